// Host memory between processes, and their letters, over any MPI 3. Compiled into a library of its
// own, which comm/launch.cpp opens; the one file that includes <mpi.h>.

// The C interface alone: Open MPI and MPICH would add C++ classes that need libraries of their own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/launch.h"
#include "comm/world.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
// A wait looks again and again, giving the core away in between, for as long as the message should
// take at this slow rate: MPI moves a large message only while it is called. Then it naps between
// two looks.
constexpr auto kShortWait = std::chrono::milliseconds(2);
constexpr double kSlowBytesPerSecond = 0.5e9;
constexpr long kNapNanoseconds = 50000;
constexpr auto kLookEvery = std::chrono::milliseconds(1);
// MPI counts in int; larger messages are sent as one element of a type made of chunks.
constexpr size_t kChunk = size_t{1} << 30;

void require(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw UserError(std::string(call) + ": " + text, "another rank may have ended: see its output");
}

// A type of `bytes` bytes, to be sent as one element.
class Bytes {
 public:
  explicit Bytes(size_t bytes) {
    if (bytes <= kChunk) {
      require(MPI_Type_contiguous(int(bytes), MPI_BYTE, &type_), "MPI_Type_contiguous");
    } else {
      MPI_Datatype chunk, parts[2];
      require(MPI_Type_contiguous(int(kChunk), MPI_BYTE, &chunk), "MPI_Type_contiguous");
      const size_t chunks = bytes / kChunk;
      require(MPI_Type_contiguous(int(chunks), chunk, &parts[0]), "MPI_Type_contiguous");
      parts[1] = MPI_BYTE;
      const int lengths[] = {1, int(bytes % kChunk)};
      const MPI_Aint places[] = {0, MPI_Aint(chunks * kChunk)};
      require(MPI_Type_create_struct(2, lengths, places, parts, &type_), "MPI_Type_create_struct");
      MPI_Type_free(&parts[0]);
      MPI_Type_free(&chunk);
    }
    require(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~Bytes() { MPI_Type_free(&type_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_;
};

// Whether an exception that was thrown during the life of this object is on its way.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

const std::byte* at(const void* base, size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
std::byte* at(void* base, size_t offset) {
  return static_cast<std::byte*>(base) + offset;
}

class MpiGroup final : public Group {
 public:
  MpiGroup(MPI_Comm comm, int size, int rank, std::function<void()> look)
      : Group(size, rank), comm_(comm), look_(std::move(look)) {}
  ~MpiGroup() override {
    if (!unwinding_.now()) MPI_Comm_free(&comm_);
  }

 protected:
  void gather(Exec lane, void* all, const void* mine, size_t bytes) override {
    require_host(lane);
    const Bytes row(bytes);
    const bool in_place = mine == at(all, size_t(rank()) * bytes);
    MPI_Request request;
    require(MPI_Iallgather(in_place ? MPI_IN_PLACE : mine, 1, row.type(), all, 1, row.type(), comm_,
                           &request),
            "MPI_Iallgather");
    finish({request}, bytes * size_t(size()));
  }

  void exchange_rows(Exec lane, void* to, const void* from, size_t bytes) override {
    require_host(lane);
    const Bytes row(bytes);
    MPI_Request request;
    require(MPI_Ialltoall(from, 1, row.type(), to, 1, row.type(), comm_, &request),
            "MPI_Ialltoall");
    finish({request}, bytes * size_t(size()));
  }

  // Point to point: the displacements of MPI_Ialltoallw are ints.
  void exchange_runs(Exec lane, const Exchange& e) override {
    require_host(lane);
    const auto me = size_t(rank());
    std::byte* const own = at(e.to, e.received[me].offset);
    if (e.sent[me].bytes > 0 && own != at(e.from, e.sent[me].offset)) {
      std::memcpy(own, at(e.from, e.sent[me].offset), e.sent[me].bytes);
    }
    std::vector<MPI_Request> requests;
    size_t bytes = 0;
    for (int r = 0; r < size(); ++r) {
      const Run& run = e.received[size_t(r)];
      if (r == rank() || run.bytes == 0) continue;
      const Bytes type(run.bytes);
      bytes += run.bytes;
      requests.emplace_back();
      require(MPI_Irecv(at(e.to, run.offset), 1, type.type(), r, kTag, comm_, &requests.back()),
              "MPI_Irecv");
    }
    for (int r = 0; r < size(); ++r) {
      const Run& run = e.sent[size_t(r)];
      if (r == rank() || run.bytes == 0) continue;
      const Bytes type(run.bytes);
      bytes += run.bytes;
      requests.emplace_back();
      require(MPI_Isend(at(e.from, run.offset), 1, type.type(), r, kTag, comm_, &requests.back()),
              "MPI_Isend");
    }
    finish(std::move(requests), bytes);
  }

  void add_integers(Exec lane, View<int64_t, 1> x) override {
    require_host(lane);
    for (int64_t begin = 0; begin < x.dim[0]; begin += kMostIntegers) {
      const auto n = int(std::min<int64_t>(kMostIntegers, x.dim[0] - begin));
      MPI_Request request;
      require(
          MPI_Iallreduce(MPI_IN_PLACE, x.data + begin, n, MPI_UINT64_T, MPI_SUM, comm_, &request),
          "MPI_Iallreduce");
      finish({request}, size_t(n) * sizeof(int64_t));
    }
  }

 private:
  static constexpr int kTag = 1;
  static constexpr int64_t kMostIntegers = 1 << 28;

  static void require_host(Exec lane) {
    CHECK(lane.gpu == nullptr, "%s", "MPI moves host memory only");
  }

  // MPI's own waits keep a core busy, which a machine with few of them needs for the ranks.
  void finish(std::vector<MPI_Request> requests, size_t bytes) {
    const auto begin = Clock::now();
    const auto patience =
        kShortWait + std::chrono::nanoseconds(int64_t(double(bytes) / kSlowBytesPerSecond * 1e9));
    auto next_look = begin + kLookEvery;
    while (true) {
      int done = 0;
      require(MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
      if (done != 0) return;
      const auto now = Clock::now();
      if (look_ && now >= next_look) {
        look_();
        next_look = now + kLookEvery;
      }
      if (now - begin < patience) {
        sched_yield();
        continue;
      }
      const timespec nap{0, kNapNanoseconds};
      nanosleep(&nap, nullptr);
    }
  }

  MPI_Comm comm_;
  std::function<void()> look_;
  Unwinding unwinding_;
};

// Letters over a communicator of their own.
class MpiMail final : public Mail {
 public:
  explicit MpiMail(MPI_Comm comm) : comm_(comm) {}
  // Letters that were not received stay with MPI: waiting for a rank that is gone would not end.
  ~MpiMail() override {
    sweep();
    for (Sent& letter : sent_) MPI_Request_free(&letter.request);
    static std::list<Sent> unreceived;  // MPI may still read these texts
    unreceived.splice(unreceived.end(), sent_);
    if (!unwinding_.now()) MPI_Comm_free(&comm_);
  }

  void send(int to, std::string_view text) override {
    CHECK(text.size() <= kMostMailBytes, "a letter of %zu bytes", text.size());
    sweep();
    Sent& letter = sent_.emplace_back(Sent{std::string(text), MPI_REQUEST_NULL});
    require(MPI_Isend(letter.text.data(), int(letter.text.size()), MPI_BYTE, to, kTag, comm_,
                      &letter.request),
            "MPI_Isend");
  }

  std::optional<Letter> receive() override {
    sweep();
    int there = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    require(MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &there, &message, &status), "MPI_Improbe");
    if (there == 0) return std::nullopt;
    require(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Letter letter{.from = status.MPI_SOURCE, .text = std::string(size_t(bytes), '\0')};
    require(MPI_Mrecv(letter.text.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE),
            "MPI_Mrecv");
    return letter;
  }

 private:
  static constexpr int kTag = 2;
  struct Sent {
    std::string text;
    MPI_Request request;
  };

  void sweep() {
    for (auto letter = sent_.begin(); letter != sent_.end();) {
      int done = 0;
      require(MPI_Test(&letter->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      letter = done != 0 ? sent_.erase(letter) : std::next(letter);
    }
  }

  MPI_Comm comm_;
  std::list<Sent> sent_;
  Unwinding unwinding_;
};

class MpiWorld final : public World {
 public:
  MpiWorld();
  ~MpiWorld() override {
    if (!unwinding_.now()) MPI_Finalize();
  }

  int size() const override { return size_; }
  int rank() const override { return rank_; }
  int node_ranks() const override { return node_ranks_; }
  int node_rank() const override { return node_rank_; }
  int node() const override { return node_; }

  std::unique_ptr<Group> group(int colour, std::function<void()> look) override {
    MPI_Comm comm;
    require(MPI_Comm_split(MPI_COMM_WORLD, colour, rank_, &comm), "MPI_Comm_split");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int size = 1, rank = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    return std::make_unique<MpiGroup>(comm, size, rank, std::move(look));
  }

  std::unique_ptr<Mail> mail() override {
    MPI_Comm comm;
    require(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return std::make_unique<MpiMail>(comm);
  }

  [[noreturn]] void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);  // where MPI returns
  }

 private:
  int size_ = 1, rank_ = 0, node_ranks_ = 1, node_rank_ = 0, node_ = 0;
  Unwinding unwinding_;
};

[[noreturn]] void refuse_alone(int started) {
  throw UserError(
      "the launcher started " + std::to_string(started) +
          " processes, but MPI sees one: they would all write the same files",
      "start them with the mpirun of the MPI that this program was built with, or with "
      "srun --mpi=pmix; so that each has a run of its own, env -u SLURM_STEP_NUM_TASKS");
}

// Tasks of srun that nothing connects. Open MPI ends such a process with a page of text, while
// others may find their tasks by Slurm's variables.
bool is_alone_for_open_mpi() {
#ifdef OPEN_MPI
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  return true;
#else
  return false;
#endif
}

MpiWorld::MpiWorld() {
  const int started = launched_processes();
  if (started > 1 && is_alone_for_open_mpi()) refuse_alone(started);
  int provided = 0;
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  if (started > 1 && size_ == 1) {
    MPI_Finalize();
    refuse_alone(started);
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw UserError("this MPI does not serve several threads (MPI_THREAD_MULTIPLE)",
                    "install one that does: Debian's Open MPI, or MPICH");
  }
  MPI_Comm node;
  require(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
          "MPI_Comm_split_type");
  MPI_Comm_size(node, &node_ranks_);
  MPI_Comm_rank(node, &node_rank_);
  node_ = rank_;
  require(MPI_Bcast(&node_, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
}

}  // namespace

// What comm/launch.cpp asks the library for.
extern "C" World* assay_make_mpi_world() {
  return new MpiWorld;
}

}  // namespace assay
