// Ways of the GPU and their predecessors (cuda/predecessors.h) around the experts: work lists.
#include <vector>

#include "cuda/simt/context.h"
#include "ops/grouped/gpu_work_list.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using test::DeviceArray;

// On a GPU of this kind, by the new way and by its predecessor.
struct Ways {
  gpu::Context now = simt::make_context(), before = simt::make_context();
  explicit Ways(gpu::Predecessor which) { before.predecessors.add(which); }
};

enum class List { kCut64, kCut128, kWhole, kPieces };

// The parts of a list, `count` of them, as integers.
std::vector<int32_t> list_of(gpu::Context& gpu, const std::vector<int32_t>& offsets, List list) {
  const int64_t experts = int64_t(offsets.size()) - 1, assignments = offsets.back();
  const DeviceArray<int32_t> at(offsets);
  const int64_t bytes = gpu::grouped_parts_bytes(assignments, experts, 0, 0);
  const DeviceArray<std::byte> workspace(size_t(bytes), 256);
  const Exec on{.workspace = {workspace.data(), {bytes}}, .gpu = &gpu};
  const gpu::GroupedParts parts = gpu::grouped_parts(on, "test", assignments, experts);
  const View<const int32_t, 1> view{at.data(), {experts + 1}};
  if (list == List::kCut64 || list == List::kCut128) {
    gpu::cut_rows(on, parts, view, assignments, list == List::kCut64 ? 64 : 128);
  } else {
    gpu::order_experts(on, parts, view,
                       list == List::kPieces ? gpu::GroupedCut::kPieces : gpu::GroupedCut::kWhole);
  }
  int32_t count;
  simt::device_copy(&count, parts.count, sizeof count);
  std::vector<int32_t> out(size_t(count) * 4);
  simt::device_copy(out.data(), parts.parts, out.size() * 4);
  return out;
}

std::vector<int32_t> offsets_of(const std::vector<int32_t>& loads) {
  std::vector<int32_t> offsets{0};
  for (const int32_t n : loads) offsets.push_back(offsets.back() + n);
  return offsets;
}

// Every 7th expert has no rows; many have as many as others.
std::vector<int32_t> uneven_loads(int experts) {
  std::vector<int32_t> loads;
  for (int e = 0; e < experts; ++e) loads.push_back(e % 7 == 3 ? 0 : e * 37 % 300);
  return loads;
}

TEST_CASE("the experts' work lists are those of their predecessors") {
  Ways ways(gpu::Predecessor::kWorkLists);
  std::vector<int32_t> one_of_many(1100, 0), cut(70, 5);
  one_of_many[1050] = 20000;
  cut[0] = cut[40] = cut[69] = 40000;
  for (const std::vector<int32_t>& loads : {std::vector<int32_t>{0},
                                            {1},
                                            {64},
                                            {3, 0, 129, 128},
                                            std::vector<int32_t>(65, 0),
                                            uneven_loads(64),
                                            uneven_loads(129),
                                            uneven_loads(1100),
                                            one_of_many,
                                            cut}) {
    const std::vector<int32_t> offsets = offsets_of(loads);
    for (const List list : {List::kCut64, List::kCut128, List::kWhole, List::kPieces}) {
      INFO(loads.size() << " experts, list " << int(list));
      const std::vector<int32_t> now = list_of(ways.now, offsets, list);
      REQUIRE(now == list_of(ways.before, offsets, list));
      int64_t rows = 0;
      for (size_t i = 0; i < now.size(); i += 4) rows += now[i + 2];
      REQUIRE(rows == offsets.back());
    }
  }
}

}  // namespace
}  // namespace assay
