#include "tests/comm/lane_case.h"

#include <functional>
#include <optional>

#include "cuda/graph.h"
#include "cuda/lane.h"
#include "cuda/transfer.h"

namespace assay {
namespace {

constexpr int kRounds = 3;

// n numbers in the device's memory, or in pinned memory.
class Numbers {
 public:
  Numbers(Exec on, gpu::Place place, int n)
      : on_(on),
        place_(place),
        data_(static_cast<int64_t*>(on.gpu->memory->allocate(size_t(n) * sizeof(int64_t), place))) {
  }
  ~Numbers() { on_.gpu->memory->release(data_, place_); }
  Numbers(const Numbers&) = delete;
  int64_t* data() const { return data_; }

 private:
  Exec on_;
  gpu::Place place_;
  int64_t* data_;
};

int64_t number_of(int pass, int round, int rank) {
  return 1000 * (pass + 1) + 100 * round + rank;
}

}  // namespace

bool gathers_beside_main(Group& group, Exec main, Exec lane, Edge missing, bool recorded) {
  const int d = group.size();
  const size_t bytes = sizeof(int64_t);
  const Numbers made(main, gpu::Place::kHostVisible, kRounds);
  const Numbers read(main, gpu::Place::kHostVisible, kRounds * d);
  const Numbers own(main, gpu::Place::kDevice, 1), all(main, gpu::Place::kDevice, d);
  const std::function<void()> rounds = [&] {
    for (int round = 0; round < kRounds; ++round) {
      const auto edge = [&](Edge which, Exec later, Exec earlier) {
        if (round != 1 || which != missing) follow(later, earlier);
      };
      copy_bytes(main, own.data(), made.data() + round, bytes);
      edge(Edge::kGatherBehindMade, lane, main);
      group.all_gather(lane, all.data(), own.data(), bytes);
      edge(Edge::kReadBehindGather, main, lane);
      copy_bytes(main, read.data() + round * d, all.data(), size_t(d) * bytes);
    }
  };
  std::optional<gpu::Graph> graph;
  if (recorded) graph = gpu::Graph::capture(*main.gpu, rounds);
  bool right = true;
  for (int pass = 0; pass < 2; ++pass) {
    for (int r = 0; r < kRounds; ++r) made.data()[r] = number_of(pass, r, group.rank());
    graph ? graph->replay(*main.gpu) : rounds();
    wait(main);
    wait(lane);
    for (int i = 0; i < kRounds * d; ++i) {
      right = right && read.data()[i] == number_of(pass, i / d, i % d);
    }
  }
  return right;
}

}  // namespace assay
