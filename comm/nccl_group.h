// A group whose memory is the GPU's, over NCCL. It moves bytes and adds integers, as every group;
// NCCL never adds floats. Calls are queued on the stream of their lane. One thread makes all calls
// of all groups of a process, in the same order on every rank.
//
// NCCL is opened at run time: libnccl.so.2 where the loader or a CUDA toolkit has it, or the file
// that the environment variable ASSAY_NCCL_LIBRARY names. In a build without nccl.h, joining is a
// UserError (comm/nccl_absent.cpp).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "comm/group.h"
#include "cuda/context.h"

namespace assay {

// Groups that were split off one another are a family: what ends one of them ends all, since they
// share resources. A failure is a UserError with NCCL's message, the call and the rank; it ends the
// family first.
class NcclGroup : public Group, public gpu::Watcher {
 public:
  // The members that give the same colour, in the order of their ranks here. Collective.
  virtual std::unique_ptr<NcclGroup> split(int colour) = 0;

  // Makes each kind of call once, and waits: NCCL takes memory of the GPU for its connections at
  // the first one, up to gigabytes, and what it takes before memory is planned is not planned away.
  // Not counted as calls of the group. Collective.
  virtual void connect(gpu::Context& on) = 0;

  // Throws if NCCL reports a failure of the family, or if its `look` throws; the family is then
  // ended. It is the watcher of a context (gpu::Context::watch): work that was queued shows its
  // failure only later.
  void check() override = 0;

  // Ends the family; what is still queued will not arrive. Waits at most kMostAbortSeconds. False
  // if NCCL had not returned by then: it is left alone, the GPU's memory may never become free, and
  // the process should end by _exit.
  virtual bool abort() = 0;
  static constexpr int kMostAbortSeconds = 5;

  // The destructor waits for the other members, at most as long, then aborts. So it does at once if
  // an exception ends the object. A group ends before the one that it was split off.

 protected:
  using Group::Group;
};

// `look` is called every millisecond while NCCL is waited for, and by check(); it may throw.
// `unended` is called with a failure, in place of throwing it, if NCCL could not be ended then: to
// free the GPU's memory on the exception's way might take for ever. If it returns, the failure is
// thrown.
struct NcclCallbacks {
  std::function<void()> look;
  std::function<void(std::exception_ptr failure)> unended;
};

// A group of the members of `host`, which brings them together. Collective; UserError on every
// member if one of them cannot use NCCL or has another version.
std::unique_ptr<NcclGroup> join_nccl(Group& host, NcclCallbacks callbacks = {});

// Why NCCL cannot be used here; "" if it can. Opens the library.
const std::string& nccl_problem();
// What to do then.
inline constexpr const char* kNcclHint =
    "install NCCL 2.27 or later, or name its file in ASSAY_NCCL_LIBRARY";
std::string nccl_version();  // e.g. 2.28.9

}  // namespace assay
