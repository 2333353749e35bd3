// NCCL's interface without a GPU: the functions that comm/nccl_library.h looks up, over MPI and the
// SIMT emulator's streams. A library, libnccl_fake.so, for ASSAY_NCCL_LIBRARY; it takes the
// emulator's functions from the program that opens it. As in NCCL, communicators are made, and the
// first call of one is queued, some time after the function has answered ncclInProgress, and a call
// before that is refused.
//
// ASSAY_FAKE_NCCL_VERSION is the version that it says it has. ASSAY_FAKE_NCCL_FAULT plans a fault,
// "RANK CALL N KIND": on that rank (-1: on each) the N-th call of that function (from 1)
//   fails           answers ncclSystemError
//   full            of one that is queued: answers ncclUnhandledCudaError
//   stays           answers ncclInProgress for ever
//   blocks          does not return
//   hangs           never ends on its stream
//   remote          the same, and the state becomes ncclRemoteError soon after
//   abort-blocks    the same, and ncclCommAbort does not return
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/simt/stream.h"

namespace {

using assay::simt::Operation;
using assay::simt::Poll;
using Clock = std::chrono::steady_clock;

thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_error = why;
  return result;
}

enum class Fault { kNone, kFails, kFull, kStays, kBlocks, kHangs, kRemote, kAbortBlocks };

// The fault of this call of `function`, which is counted.
Fault fault_of(const std::string& function) {
  static std::map<std::string, int> calls;
  const int call = ++calls[function];
  const char* const text = std::getenv("ASSAY_FAKE_NCCL_FAULT");
  if (text == nullptr) return Fault::kNone;
  std::istringstream plan(text);
  int rank = -1, n = 0, own = 0;
  std::string wanted, kind;
  plan >> rank >> wanted >> n >> kind;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  if ((rank >= 0 && own != rank) || wanted != function || n != call) return Fault::kNone;
  last_error = "planned fault in call " + std::to_string(n) + " of " + function;
  const std::map<std::string, Fault> kinds = {{"fails", Fault::kFails},
                                              {"full", Fault::kFull},
                                              {"stays", Fault::kStays},
                                              {"blocks", Fault::kBlocks},
                                              {"hangs", Fault::kHangs},
                                              {"remote", Fault::kRemote},
                                              {"abort-blocks", Fault::kAbortBlocks}};
  return kinds.at(kind);
}

// What a communicator and its queued operations share. Its members exchange messages over `mpi`,
// where they are `ranks`; operations on streams have the tag 2 * tag, and what is exchanged while
// calls are made 2 * tag + 1.
struct Core {
  MPI_Comm mpi = MPI_COMM_NULL;
  std::vector<int> ranks;
  int rank = 0, tag = 0;
  int next_tag = 1;     // of a communicator to be split off
  bool used = false;    // a call was queued
  bool blocks = false;  // ncclCommAbort does not return
  bool finalised = false;
  Clock::time_point fails_at = Clock::time_point::max();
  std::atomic<bool> aborted{false};
  std::deque<std::function<bool()>> making;  // calls that have answered ncclInProgress
};
using CorePointer = std::shared_ptr<Core>;

struct Part {
  void* to = nullptr;  // null: a message that is sent
  const void* from = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// Begins to move the parts. `then` runs when they have arrived.
Poll move_parts(const CorePointer& core, int tag, const std::vector<Part>& parts,
                std::function<void()> then) {
  auto requests = std::make_shared<std::vector<MPI_Request>>();
  for (const Part& p : parts) {
    requests->emplace_back();
    const int peer = core->ranks[size_t(p.peer)];
    if (p.to != nullptr) {
      MPI_Irecv(p.to, int(p.bytes), MPI_BYTE, peer, tag, core->mpi, &requests->back());
    } else {
      MPI_Isend(p.from, int(p.bytes), MPI_BYTE, peer, tag, core->mpi, &requests->back());
    }
  }
  return [core, requests, then = std::move(then)] {
    int done = 0;
    MPI_Testall(int(requests->size()), requests->data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) {
      then();
      return true;
    }
    if (!core->aborted) return false;
    for (MPI_Request& request : *requests) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
    return true;
  };
}

// Everybody's row of `bytes`; mine is in `all` already.
std::vector<Part> gather_parts(const Core& core, std::byte* all, size_t bytes) {
  std::vector<Part> parts;
  for (int r = 0; r < int(core.ranks.size()); ++r) {
    if (r == core.rank) continue;
    parts.push_back({.to = all + size_t(r) * bytes, .bytes = bytes, .peer = r});
    parts.push_back({.from = all + size_t(core.rank) * bytes, .bytes = bytes, .peer = r});
  }
  return parts;
}

// The call is made after a few looks at the state; the result is what it answers.
ncclResult_t make_later(Core& core, std::function<bool()> call) {
  core.making.push_back(
      [looks = 0, call = std::move(call)]() mutable { return ++looks > 3 && call(); });
  return ncclInProgress;
}

}  // namespace

struct ncclComm {
  CorePointer core;
};

namespace {

ncclResult_t state_of(ncclComm_t comm) {
  Core& core = *comm->core;
  if (Clock::now() >= core.fails_at) return ncclRemoteError;
  while (!core.making.empty()) {
    if (!core.making.front()()) return ncclInProgress;
    core.making.pop_front();
  }
  return ncclSuccess;
}

ncclResult_t ready(ncclComm_t comm) {
  if (comm->core->aborted || comm->core->finalised) {
    return refuse(ncclInvalidUsage, "the communicator has ended");
  }
  if (!comm->core->making.empty()) {
    return refuse(ncclInvalidUsage, "a call before the one in progress was made");
  }
  return ncclSuccess;
}

// Queues an operation of `function`, or what the planned fault makes of it.
ncclResult_t queue(const char* function, ncclComm_t comm, cudaStream_t stream,
                   Operation operation) {
  const CorePointer core = comm->core;
  const Fault fault = fault_of(function);
  if (fault == Fault::kFails) return ncclSystemError;
  if (fault == Fault::kFull) return ncclUnhandledCudaError;
  if (fault == Fault::kStays) return make_later(*core, [] { return false; });
  while (fault == Fault::kBlocks) pause();
  if (fault != Fault::kNone) {
    operation = [core]() -> Poll { return [core] { return core->aborted.load(); }; };
    if (fault != Fault::kHangs) core->fails_at = Clock::now() + std::chrono::milliseconds(100);
    core->blocks = fault == Fault::kAbortBlocks;
  }
  // What is still queued when a communicator is aborted exchanges nothing.
  operation = [core, begin = std::move(operation)] { return core->aborted ? Poll() : begin(); };
  if (core->used) {
    assay::simt::enqueue_operation(stream, std::move(operation));
    return ncclSuccess;
  }
  core->used = true;
  return make_later(*core, [stream, operation] {
    assay::simt::enqueue_operation(stream, operation);
    return true;
  });
}

struct OpenGroup {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Part> parts;
};
thread_local OpenGroup open_group;

ncclResult_t add_part(const char* function, ncclComm_t comm, cudaStream_t stream, const Part& p) {
  if (const ncclResult_t bad = ready(comm); bad != ncclSuccess) return bad;
  OpenGroup& g = open_group;
  if (g.depth == 0 || (g.comm != nullptr && (g.comm != comm || g.stream != stream))) {
    return refuse(ncclInvalidUsage, "not in a group of one communicator and stream");
  }
  if (fault_of(function) == Fault::kFails) return ncclSystemError;
  g.comm = comm;
  g.stream = stream;
  g.parts.push_back(p);
  return ncclSuccess;
}

bool is_outside_of_groups(ncclComm_t comm, ncclResult_t& result) {
  result = ready(comm);
  if (result == ncclSuccess && open_group.depth > 0) {
    result = refuse(ncclInvalidUsage, "in an open group");
  }
  return result == ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("ASSAY_FAKE_NCCL_VERSION");
  *version = text == nullptr ? 22809 : std::atoi(text);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (fault_of(__func__) == Fault::kFails) return ncclSystemError;
  static int made = 0;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "fake %d of process %d", ++made, int(getpid()));
  return ncclSuccess;
}

// Communicators of all ranks; others are split off.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  int size = 0, own = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  if (ranks != size || rank != own) return refuse(ncclInvalidUsage, "not the ranks of MPI");
  const char* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (size > 1 && std::getenv("SIMT_UUID") == nullptr && (!shared || *shared != '1'))
    return refuse(ncclInvalidUsage, "Duplicate GPU detected");
  if (config->blocking != 0) return refuse(ncclInvalidUsage, "a communicator that blocks");
  const Fault fault = fault_of(__func__);
  if (fault == Fault::kFails) return ncclSystemError;
  auto core = std::make_shared<Core>();
  for (int r = 0; r < ranks; ++r) core->ranks.push_back(r);
  core->rank = rank;
  *made = new ncclComm{core};
  if (fault != Fault::kNone) return make_later(*core, [] { return false; });
  auto request = std::make_shared<MPI_Request>();
  MPI_Comm_idup(MPI_COMM_WORLD, &core->mpi, request.get());
  make_later(*core, [request] {
    int done = 0;
    MPI_Test(request.get(), &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  // All must have come with the same id.
  auto ids = std::make_shared<std::vector<ncclUniqueId>>(size_t(ranks), id);
  auto poll = std::make_shared<Poll>();
  return make_later(*core, [core = core.get(), self = std::weak_ptr(core), ids, poll] {
    if (!*poll) {
      auto* const all = reinterpret_cast<std::byte*>(ids->data());
      *poll = move_parts(self.lock(), 1, gather_parts(*core, all, sizeof(ncclUniqueId)), [] {});
    }
    if (!(*poll)()) return false;
    for (const ncclUniqueId& other : *ids) {
      if (std::memcmp(&other, &ids->front(), sizeof other) != 0) core->fails_at = Clock::now();
    }
    *poll = nullptr;
    return true;
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  ncclResult_t result;
  if (!is_outside_of_groups(comm, result)) return result;
  if (config->splitShare != 1) return refuse(ncclInvalidUsage, "a split that shares nothing");
  const Fault fault = fault_of(__func__);
  if (fault == Fault::kFails) return ncclSystemError;
  const CorePointer core = comm->core;
  if (fault != Fault::kNone) return make_later(*core, [] { return false; });
  struct Row {
    int colour, key, next_tag;
  };
  auto rows = std::make_shared<std::vector<Row>>(core->ranks.size());
  (*rows)[size_t(core->rank)] = {colour, key, core->next_tag};
  auto* const all = reinterpret_cast<std::byte*>(rows->data());
  const auto done = [core, rows, made] {
    auto child = std::make_shared<Core>();
    child->mpi = core->mpi;
    for (const Row& row : *rows) child->tag = std::max(child->tag, row.next_tag);
    core->next_tag = child->next_tag = child->tag + 1;
    const Row& own = (*rows)[size_t(core->rank)];
    std::vector<std::pair<int, int>> members;  // key, rank here
    for (int r = 0; r < int(rows->size()); ++r) {
      if ((*rows)[size_t(r)].colour == own.colour) members.push_back({(*rows)[size_t(r)].key, r});
    }
    std::sort(members.begin(), members.end());
    for (const auto& member : members) {
      if (member.second == core->rank) child->rank = int(child->ranks.size());
      child->ranks.push_back(core->ranks[size_t(member.second)]);
    }
    *made = new ncclComm{child};
  };
  // As NCCL 2.32: the answer is ncclSuccess, the state says ncclInProgress, the handle is null.
  *made = nullptr;
  make_later(*core,
             move_parts(core, 2 * core->tag + 1, gather_parts(*core, all, sizeof(Row)), done));
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = int(comm->core->ranks.size());
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->core->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ncclResult_t result;
  if (!is_outside_of_groups(comm, result)) return result;
  const Fault fault = fault_of(__func__);
  if (fault == Fault::kFails) return ncclSystemError;
  const CorePointer core = comm->core;
  core->finalised = true;
  if (fault != Fault::kNone) return make_later(*core, [] { return false; });
  auto all = std::make_shared<std::vector<std::byte>>(core->ranks.size());
  return make_later(
      *core, move_parts(core, 2 * core->tag + 1, gather_parts(*core, all->data(), 1), [all] {}));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->core->finalised || !comm->core->making.empty()) {
    return refuse(ncclInvalidUsage, "destroyed before it was finalised");
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (comm->core->blocks) pause();
  comm->core->aborted = true;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = state_of(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  const char* const texts[] = {"no error",
                               "unhandled cuda error",
                               "unhandled system error",
                               "internal error",
                               "invalid argument",
                               "invalid usage",
                               "remote process exited",
                               "NCCL operation in progress"};
  return texts[result];
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
}

ncclResult_t ncclGroupStart() {
  open_group.depth += 1;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--open_group.depth > 0) return ncclSuccess;
  const OpenGroup g = std::exchange(open_group, {});
  if (g.comm == nullptr) return ncclSuccess;
  return queue(__func__, g.comm, g.stream, [core = g.comm->core, parts = g.parts] {
    return move_parts(core, 2 * core->tag, parts, [] {});
  });
}

ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result;
  if (!is_outside_of_groups(comm, result)) return result;
  if (type != ncclUint8) return refuse(ncclInvalidArgument, "a type other than bytes");
  return queue(__func__, comm, stream, [=, core = comm->core] {
    auto* const rows = static_cast<std::byte*>(all);
    std::byte* const own = rows + size_t(core->rank) * count;
    if (own != mine) std::memcpy(own, mine, count);
    return move_parts(core, 2 * core->tag, gather_parts(*core, rows, count), [] {});
  });
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result;
  if (!is_outside_of_groups(comm, result)) return result;
  if (type != ncclUint64 || op != ncclSum) {
    return refuse(ncclInvalidArgument, "anything but a sum of integers");
  }
  return queue(__func__, comm, stream, [=, core = comm->core] {
    const size_t members = core->ranks.size();
    auto all = std::make_shared<std::vector<uint64_t>>(members * count);
    std::memcpy(all->data() + size_t(core->rank) * count, from, count * sizeof(uint64_t));
    auto* const rows = reinterpret_cast<std::byte*>(all->data());
    return move_parts(core, 2 * core->tag, gather_parts(*core, rows, count * sizeof(uint64_t)),
                      [=] {
                        for (size_t i = 0; i < count; ++i) {
                          uint64_t sum = 0;
                          for (size_t r = 0; r < members; ++r) sum += (*all)[r * count + i];
                          static_cast<uint64_t*>(to)[i] = sum;
                        }
                      });
  });
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_part(__func__, comm, stream, {.from = from, .bytes = count, .peer = peer});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_part(__func__, comm, stream, {.to = to, .bytes = count, .peer = peer});
}

}  // extern "C"
