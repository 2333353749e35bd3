// The communicators of one family (comm/nccl_group.h), what they have in common, and how they end.
// Private to comm/nccl_*.cpp.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "comm/nccl_group.h"
#include "comm/nccl_library.h"

namespace assay {

// `handle` is null until NCCL has made the communicator. NCCL may write it as long as it makes one,
// so a communicator is freed only after it was made.
struct NcclCommunicator {
  ncclComm_t handle = nullptr;
  const char* call = "ncclCommInitRankConfig";  // the latest
  uint64_t calls = 0;
};

class NcclFamily {
 public:
  // rank and size: of the group that all others were split off, for messages.
  NcclFamily(int rank, int size, NcclCallbacks callbacks);

  NcclCommunicator* add();
  void remove(NcclCommunicator* communicator);

  // Waits until a call is made, which has answered `result`; throws if it fails. `on` is the
  // communicator whose state tells.
  void finish(NcclCommunicator& on, const char* call, ncclResult_t result);
  // The state of a communicator; ncclInProgress while a call of it is being made.
  ncclResult_t state(const NcclCommunicator& on);

  void check();
  bool abort();
  // UserError if the family has ended.
  void require_alive() const;
  bool ended() const { return ended_; }

 private:
  void look();
  [[noreturn]] void fail(const NcclCommunicator& on, const char* how, ncclResult_t result);
  // Throws it, after it has ended the family.
  [[noreturn]] void raise(std::exception_ptr failure);

  const int rank_, size_;
  const NcclCallbacks callbacks_;
  std::vector<NcclCommunicator*> communicators_;
  bool ended_ = false, left_ = false;
};

}  // namespace assay
