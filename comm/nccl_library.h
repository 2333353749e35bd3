// The NCCL functions that we call, looked up at run time (cuda/shared_library.h); no program is
// linked with the library. Private to comm/nccl_*.cpp.
#pragma once

#include <nccl.h>

namespace assay {

struct Nccl {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommCount) count;
  decltype(&ncclCommUserRank) user_rank;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

// Opens the library, once. nccl_problem() (comm/nccl_group.h) must be empty.
const Nccl& nccl();

}  // namespace assay
