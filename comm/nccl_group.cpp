#include "comm/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "base/check.h"
#include "comm/nccl_family.h"
#include "cuda/context.h"
#include "cuda/transfer.h"

namespace assay {
namespace {

const std::byte* at(const void* base, size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
std::byte* at(void* base, size_t offset) {
  return static_cast<std::byte*>(base) + offset;
}

ncclConfig_t config() {
  ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
  c.blocking = 0;    // NCCL can be aborted at any time only then
  c.splitShare = 1;  // groups that are split off use the channels of the first
  return c;
}

class Communicating final : public NcclGroup {
 public:
  Communicating(int size, int rank, std::shared_ptr<NcclFamily> family, NcclCommunicator* own)
      : NcclGroup(size, rank), family_(std::move(family)), own_(own) {}
  ~Communicating() override;

  std::unique_ptr<NcclGroup> split(int colour) override;
  void connect(gpu::Context& on) override;
  void check() override { family_->check(); }
  bool abort() override { return family_->abort(); }

 protected:
  void gather(Exec lane, void* all, const void* mine, size_t bytes) override {
    const cudaStream_t stream = stream_of(lane);
    finish("ncclAllGather", nccl().all_gather(mine, all, bytes, ncclUint8, own_->handle, stream));
  }

  void exchange_rows(Exec lane, void* to, const void* from, size_t bytes) override {
    Exchange e{.to = to, .received = {}, .from = from, .sent = {}};
    for (int r = 0; r < size(); ++r) e.sent.push_back({size_t(r) * bytes, bytes});
    e.received = e.sent;
    exchange_runs(lane, e);
  }

  void exchange_runs(Exec lane, const Exchange& e) override;

  void add_integers(Exec lane, View<int64_t, 1> x) override {
    const cudaStream_t stream = stream_of(lane);
    finish("ncclAllReduce", nccl().all_reduce(x.data, x.data, size_t(x.dim[0]), ncclUint64, ncclSum,
                                              own_->handle, stream));
  }

 private:
  cudaStream_t stream_of(Exec lane) const {
    CHECK(lane.gpu != nullptr, "%s", "NCCL moves the GPU's memory only");
    family_->require_alive();
    return static_cast<cudaStream_t>(lane.gpu->stream);
  }
  void finish(const char* call, ncclResult_t result) { family_->finish(*own_, call, result); }
  bool finalised();

  const std::shared_ptr<NcclFamily> family_;
  NcclCommunicator* const own_;
  const int exceptions_ = std::uncaught_exceptions();
};

// One group of sends and receives, which NCCL makes at once. What a rank keeps is a copy.
void Communicating::exchange_runs(Exec lane, const Exchange& e) {
  const cudaStream_t stream = stream_of(lane);
  const auto me = size_t(rank());
  if (e.sent[me].bytes > 0 && at(e.to, e.received[me].offset) != at(e.from, e.sent[me].offset)) {
    lane.gpu->memory->copy(*lane.gpu, at(e.to, e.received[me].offset),
                           at(e.from, e.sent[me].offset), e.sent[me].bytes);
  }
  const auto none = [](const Run& run) { return run.bytes == 0; };
  const auto empty = [&](const std::vector<Run>& runs) {
    return std::all_of(runs.begin(), runs.begin() + ptrdiff_t(me), none) &&
           std::all_of(runs.begin() + ptrdiff_t(me) + 1, runs.end(), none);
  };
  if (empty(e.sent) && empty(e.received)) return;

  ncclResult_t failed = ncclSuccess;
  const char* call = "ncclGroupStart";
  const auto make = [&](const char* name, ncclResult_t result) {
    if (failed != ncclSuccess || result == ncclSuccess || result == ncclInProgress) return;
    failed = result;
    call = name;
  };
  make(call, nccl().group_start());
  for (int r = 0; r < size() && failed == ncclSuccess; ++r) {
    const Run &to = e.sent[size_t(r)], &from = e.received[size_t(r)];
    if (r == rank()) continue;
    if (to.bytes > 0) {
      make("ncclSend",
           nccl().send(at(e.from, to.offset), to.bytes, ncclUint8, r, own_->handle, stream));
    }
    if (from.bytes > 0) {
      make("ncclRecv",
           nccl().receive(at(e.to, from.offset), from.bytes, ncclUint8, r, own_->handle, stream));
    }
  }
  // Also after a failure: a group that stays open would hold back what this thread calls next.
  const ncclResult_t end = nccl().group_end();
  failed == ncclSuccess ? finish("ncclGroupEnd", end) : finish(call, failed);
}

void Communicating::connect(gpu::Context& on) {
  const Exec lane{.gpu = &on};
  const auto release = [&](void* p) { on.memory->release(p, gpu::Place::kDevice); };
  const size_t row = sizeof(int64_t), rows = row * size_t(size());
  const std::unique_ptr<void, decltype(release)> memory(
      on.memory->allocate(2 * rows, gpu::Place::kDevice), release);
  std::byte *const to = at(memory.get(), 0), *const from = at(memory.get(), rows);
  exchange_rows(lane, to, from, row);
  gather(lane, to, at(to, row * size_t(rank())), row);
  add_integers(lane, {reinterpret_cast<int64_t*>(to), {size()}});
  wait(lane);
}

std::unique_ptr<NcclGroup> Communicating::split(int colour) {
  family_->require_alive();
  NcclCommunicator* const made = family_->add();
  ncclConfig_t c = config();
  const ncclResult_t begun = nccl().split(own_->handle, colour, rank(), &made->handle, &c);
  // NCCL 2.32 answers ncclSuccess at once. The state of the group that is split says when the other
  // one is there; its handle is null until then.
  finish("ncclCommSplit", begun == ncclSuccess ? family_->state(*own_) : begun);
  family_->finish(*made, "ncclCommSplit", family_->state(*made));
  int size = 0, rank = 0;
  family_->finish(*made, "ncclCommCount", nccl().count(made->handle, &size));
  family_->finish(*made, "ncclCommUserRank", nccl().user_rank(made->handle, &rank));
  return std::make_unique<Communicating>(size, rank, family_, made);
}

// What was queued must be done on all members; they are waited for, but not long.
bool Communicating::finalised() {
  const auto begin = std::chrono::steady_clock::now();
  ncclResult_t result = nccl().finalize(own_->handle);
  while (result == ncclInProgress) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(kMostAbortSeconds)) break;
    const timespec nap{0, 100'000};
    nanosleep(&nap, nullptr);
    result = family_->state(*own_);
  }
  return result == ncclSuccess && nccl().destroy(own_->handle) == ncclSuccess;
}

Communicating::~Communicating() {
  // What an ended family had is left to NCCL, which may still use it.
  if (family_->ended()) return;
  if (std::uncaught_exceptions() > exceptions_ || !finalised()) {
    family_->abort();
    return;
  }
  family_->remove(own_);
}

// What a member says of itself before they join; the id is rank 0's.
struct Greeting {
  char version[16] = "";
  char problem[240] = "";
  ncclUniqueId id = {};
};

template <size_t N>
void put(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), std::min(N - 1, text.size()));
}

ncclUniqueId agree(Group& host) {
  Greeting mine;
  put(mine.version, nccl_version());
  put(mine.problem, nccl_problem());
  if (host.rank() == 0 && nccl_problem().empty()) {
    const ncclResult_t result = nccl().unique_id(&mine.id);
    if (result != ncclSuccess) {
      put(mine.problem, std::string("ncclGetUniqueId: ") + nccl().error_string(result) + " (" +
                            nccl().last_error(nullptr) + ")");
    }
  }
  std::vector<Greeting> all(size_t(host.size()));
  host.all_gather({}, all.data(), &mine, sizeof mine);
  for (int r = 0; r < host.size(); ++r) {
    const Greeting& theirs = all[size_t(r)];
    if (theirs.problem[0] != '\0') {
      throw UserError(
          strprintf("NCCL cannot be used on rank %d of %d: %s", r, host.size(), theirs.problem),
          kNcclHint);
    }
    if (std::strcmp(theirs.version, all[0].version) != 0) {
      throw UserError(
          strprintf("rank %d has NCCL %s, rank 0 has %s", r, theirs.version, all[0].version),
          "use the same file on all machines: ASSAY_NCCL_LIBRARY names one");
    }
  }
  return all[0].id;
}

}  // namespace

std::unique_ptr<NcclGroup> join_nccl(Group& host, NcclCallbacks callbacks) {
  const ncclUniqueId id = agree(host);
  auto family = std::make_shared<NcclFamily>(host.rank(), host.size(), std::move(callbacks));
  NcclCommunicator* const made = family->add();
  ncclConfig_t c = config();
  family->finish(*made, made->call, nccl().init(&made->handle, host.size(), id, host.rank(), &c));
  return std::make_unique<Communicating>(host.size(), host.rank(), std::move(family), made);
}

}  // namespace assay
