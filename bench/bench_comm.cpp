// bench_comm: time of the calls between ranks (comm/group.h) by size, in the manner of nccl-tests:
//
//   size    bytes of the largest buffer of a rank: the whole of all_gather and all_to_all
//   algbw   size / time
//   busbw   algbw times (n - 1) / n, for sums 2 (n - 1) / n: what a link has to carry, comparable
//           between numbers of ranks and with the speed of the link
//
// The time is that of the slowest rank, the median over the iterations. Every result is checked.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/json.h"
#include "bench/options.h"
#include "comm/launch.h"

namespace assay {
namespace {

constexpr int kWord = 8;  // bytes of a value; a rank has whole ones for each other

struct Options {
  std::string call = "all";
  int64_t from = 1024, to = int64_t{64} << 20;
  int factor = 4, warmup = 3, iters = 20;
  bool json = false;
};

struct Timing {
  double seconds = 0;
  int64_t wrong = 0;
};

// One call of `size` bytes in all, and what it leaves.
class Call {
 public:
  Call(Group& group, int64_t size, bool in_place)
      : group_(group),
        row_(size_t(size) / size_t(group.size()) / kWord * kWord),
        in_place_(in_place) {}
  virtual ~Call() = default;
  virtual void prepare() = 0;
  virtual void run() = 0;
  virtual int64_t wrong() const = 0;
  virtual double bus_factor() const { return double(group_.size() - 1) / group_.size(); }
  // Bytes of a rank's largest buffer.
  size_t bytes() const { return row_ * size_t(group_.size()); }

 protected:
  // The 8 bytes at `i` of what rank `from` has for rank `to`.
  static uint64_t word(int from, int to, size_t i) {
    return (uint64_t(from) << 48) ^ (uint64_t(to) << 32) ^ i;
  }
  Group& group_;
  size_t row_;  // bytes from one rank to another
  bool in_place_;
};

class AllGather final : public Call {
 public:
  using Call::Call;
  void prepare() override {
    all_.assign(bytes() / 8, 0);
    mine_.resize(row_ / 8);
    for (size_t i = 0; i < mine_.size(); ++i) mine_[i] = word(group_.rank(), 0, i);
    if (in_place_) std::copy(mine_.begin(), mine_.end(), own());
  }
  void run() override {
    group_.all_gather({}, all_.data(), in_place_ ? own() : mine_.data(), row_);
  }
  int64_t wrong() const override {
    int64_t wrong = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      wrong += all_[i] != word(int(i / mine_.size()), 0, i % mine_.size());
    }
    return wrong;
  }

 private:
  uint64_t* own() { return all_.data() + size_t(group_.rank()) * mine_.size(); }
  std::vector<uint64_t> all_, mine_;
};

class AllToAll final : public Call {
 public:
  using Call::Call;
  void prepare() override {
    to_.assign(bytes() / 8, 0);
    from_.resize(bytes() / 8);
    const size_t row = row_ / 8;
    for (size_t i = 0; i < from_.size(); ++i) {
      from_[i] = word(group_.rank(), int(i / row), i % row);
    }
  }
  void run() override { group_.all_to_all({}, to_.data(), from_.data(), row_); }
  int64_t wrong() const override {
    int64_t wrong = 0;
    const size_t row = row_ / 8;
    for (size_t i = 0; i < to_.size(); ++i) {
      wrong += to_[i] != word(int(i / row), group_.rank(), i % row);
    }
    return wrong;
  }

 private:
  std::vector<uint64_t> to_, from_;
};

class SumIntegers final : public Call {
 public:
  using Call::Call;
  void prepare() override {
    x_.resize(bytes() / 8);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = int64_t(i) * (group_.rank() + 1);
  }
  void run() override { group_.sum_integers({}, {x_.data(), {int64_t(x_.size())}}); }
  int64_t wrong() const override {
    const int64_t n = group_.size();
    int64_t wrong = 0;
    for (size_t i = 0; i < x_.size(); ++i) wrong += x_[i] != int64_t(i) * n * (n + 1) / 2;
    return wrong;
  }
  double bus_factor() const override { return 2 * Call::bus_factor(); }

 private:
  std::vector<int64_t> x_;
};

std::unique_ptr<Call> make_call(const std::string& name, Group& group, int64_t size,
                                bool in_place) {
  if (name == "all_gather") return std::make_unique<AllGather>(group, size, in_place);
  if (name == "all_to_all") return std::make_unique<AllToAll>(group, size, in_place);
  return std::make_unique<SumIntegers>(group, size, in_place);
}

// Waits for all ranks; the largest of their values.
double slowest(Group& group, double mine) {
  std::vector<double> all(size_t(group.size()));
  group.all_gather({}, all.data(), &mine, sizeof mine);
  return *std::max_element(all.begin(), all.end());
}

Timing time_call(Group& group, Call& call, const Options& o) {
  std::vector<double> seconds;
  int64_t wrong = 0;
  for (int i = -o.warmup; i < o.iters; ++i) {
    call.prepare();
    slowest(group, 0);  // all begin together
    const auto begin = std::chrono::steady_clock::now();
    call.run();
    const double took = seconds_since(begin);
    const double longest = slowest(group, took);
    if (i >= 0) seconds.push_back(longest);
    wrong += call.wrong();
  }
  int64_t of_all = wrong;
  group.sum_integers({}, {&of_all, {1}});
  return {.seconds = median(seconds), .wrong = of_all};
}

void print_row(const Options& o, const std::string& name, int ranks, const Call& call,
               bool in_place, const Timing& t) {
  const double algbw = double(call.bytes()) / t.seconds / 1e9, busbw = algbw * call.bus_factor();
  if (o.json) {
    std::printf(
        "{\"call\": \"%s\", \"ranks\": %d, \"in_place\": %s, \"bytes\": %zu, \"runs\": %d, "
        "\"seconds_p50\": %.9f, \"algbw_gb_per_s\": %.4f, \"busbw_gb_per_s\": %.4f, \"wrong\": "
        "%ld}\n",
        name.c_str(), ranks, in_place ? "true" : "false", call.bytes(), o.iters, t.seconds, algbw,
        busbw, long(t.wrong));
    return;
  }
  std::printf("%-13s %-3s %12zu B %12.1f us %9.3f GB/s %9.3f GB/s %6ld\n", name.c_str(),
              in_place ? "in" : "out", call.bytes(), t.seconds * 1e6, algbw, busbw, long(t.wrong));
}

int64_t largest_size(const Options& o) {
  int64_t size = o.from;
  while (size <= o.to / o.factor) size *= o.factor;
  return size;
}

// The number of wrong words.
int64_t run_bench(const Options& o, Group& group) {
  const bool first = group.rank() == 0;
  if (first && o.json) std::printf("{%s}\n", json_fields(BenchHeader{"bench_comm"}).c_str());
  if (first && !o.json) {
    std::printf("%d rank%s; `in`: in place; times: median over %d of the slowest rank\n",
                group.size(), group.size() == 1 ? "" : "s", o.iters);
    std::printf("%-13s %-3s %14s %15s %14s %14s %6s\n", "call", "", "size", "time", "algbw",
                "busbw", "wrong");
  }
  int64_t wrong = 0;
  for (const std::string name : {"all_gather", "all_to_all", "sum_integers"}) {
    if (o.call != "all" && o.call != name) continue;
    for (const bool in_place : {false, true}) {
      if (in_place != (name == "sum_integers") && name != "all_gather") continue;
      for (int64_t size = o.from; size <= o.to; size *= o.factor) {
        const auto call = make_call(name, group, size, in_place);
        if (call->bytes() == 0) continue;
        const Timing t = time_call(group, *call, o);
        if (first) print_row(o, name, group.size(), *call, in_place, t);
        wrong += t.wrong;
      }
    }
  }
  return wrong;
}

int main_of(int argc, char** argv) {
  Options o;
  BenchOptions options(
      "bench_comm",
      "Time and bandwidth of the calls between ranks, by size. Start it with mpirun: `mpirun -n 2 "
      "bench_comm --to 16777216`. algbw is size over time, busbw what a link carries, as in "
      "nccl-tests. Needs no GPU.");
  options.add("--call", "{all,all_gather,all_to_all,sum_integers}", o.call,
              "which call (default: all)");
  options.add("--from", o.from, "smallest size, in bytes (default: 1024)");
  options.add("--to", o.to, "largest size, in bytes (default: 67108864)");
  options.add("--factor", o.factor, "from one size to the next (default: 4)", 2);
  options.add("--warmup", o.warmup, "untimed calls of each size (default: 3)", 0);
  options.add("--iters", o.iters, "timed calls of each size (default: 20)");
  options.add("--json", o.json, "print JSON: a line of the machine, then one for each row");
  if (const auto status = options.parse(argc, argv)) return *status;
  if (o.from > o.to) {
    throw UserError(strprintf("--from %ld is more than --to %ld", long(o.from), long(o.to)),
                    "sizes grow from the first to the second");
  }
  const std::unique_ptr<World> world = join_world();
  const int64_t least = kWord * world->size();
  if (largest_size(o) < least) {
    if (world->rank() > 0) return 1;
    throw UserError(
        strprintf("no size from --from %ld to --to %ld has %d bytes for each of %d rank%s",
                  long(o.from), long(o.to), kWord, world->size(), world->size() == 1 ? "" : "s"),
        strprintf("give --from %ld or more, and no smaller --to", long(least)));
  }
  const int64_t wrong = run_bench(o, *world->group(0));
  if (wrong > 0 && world->rank() == 0) {
    std::fprintf(stderr, "error: %ld wrong values\nhint: the MPI or its network is broken\n",
                 long(wrong));
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  try {
    return assay::finish_standard_output(assay::main_of(argc, argv));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
