// The processes (ranks) of one launch. comm/launch.h finds them; comm/mpi_world.cpp is the one
// implementation, over MPI.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/group.h"

namespace assay {

// Short messages between any two ranks, beside the calls of groups. Each object is used from one
// thread at a time.
class Mail {
 public:
  virtual ~Mail() = default;
  // Copies the text, at most kMostMailBytes, and does not wait for the receiver. Letters from one
  // rank to another arrive in the order in which they were sent.
  virtual void send(int to, std::string_view text) = 0;
  struct Letter {
    int from = 0;
    std::string text;
  };
  // A letter that has arrived, if there is one; does not wait.
  virtual std::optional<Letter> receive() = 0;
};
inline constexpr size_t kMostMailBytes = size_t{1} << 20;

class World {
 public:
  virtual ~World() = default;

  virtual int size() const = 0;
  virtual int rank() const = 0;
  // Ranks on this machine, and this one's position among them.
  virtual int node_ranks() const = 0;
  virtual int node_rank() const = 0;
  // The first rank on this machine.
  virtual int node() const = 0;

  // The ranks that give the same colour, in the order of their ranks here. Collective over all
  // ranks. The group must end before the world. Waits give the core away to other threads, and call
  // `look` now and then. MPI has the buffers of the call then: where letters go on, `look` ends the
  // process instead of throwing through their owners. Failures of the transport are UserErrors.
  virtual std::unique_ptr<Group> group(int colour, std::function<void()> look = {}) = 0;
  // Collective over all ranks; must end before the world.
  virtual std::unique_ptr<Mail> mail() = 0;

  // Ends every rank of the launch, with this exit code where the launcher passes it on.
  [[noreturn]] virtual void abort(int code) = 0;
};

}  // namespace assay
