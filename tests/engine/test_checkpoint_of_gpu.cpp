// Checkpoints of tensors in a GPU's memory: the files are those of tensors in the host's, which is
// used for a few MiB only.
#include <cmath>

#include "engine/run/checkpoint_slices.h"
#include "tests/catch.h"
#include "tests/data/file_size_limit.h"
#include "tests/engine/fake_gpu.h"
#include "tests/engine/sliced_run.h"

namespace assay::test_checkpoint_of_gpu {
namespace {

using Names = std::vector<std::string>;

constexpr int64_t kOfFirst = 1'100'100;  // elements of a large tensor that the first rank has
constexpr int64_t kLarge = kOfFirst + 100'003;
static_assert(kOfFirst * 4 > kTensorPieceBytes);

std::vector<TensorRef> shapes_of(TensorKind kind) {
  const bool model = kind == TensorKind::kModel;
  std::vector<TensorRef> shapes = model ? model_shapes() : optimizer_shapes();
  shapes.insert(shapes.begin() + 1, {.name = model ? "large" : "large.m",
                                     .dtype = DType::kF32,
                                     .shape = {kLarge},
                                     .data = nullptr});
  return shapes;
}

// The tensors of both kinds, the model's first. Drawn once: there are many bytes.
const DrawnTensors& drawn() {
  static const DrawnTensors all = [] {
    std::vector<TensorRef> shapes = shapes_of(TensorKind::kModel);
    for (const TensorRef& t : shapes_of(TensorKind::kOptimizer)) shapes.push_back(t);
    return DrawnTensors(shapes, 3);
  }();
  return all;
}

std::vector<TensorRef> of_kind(TensorKind kind, const std::vector<TensorRef>& both) {
  const auto border = both.begin() + ptrdiff_t(shapes_of(TensorKind::kModel).size());
  return kind == TensorKind::kModel ? std::vector(both.begin(), border)
                                    : std::vector(border, both.end());
}

// Of two ranks the first one has what is small.
std::vector<Slice> slices_of_rank(const std::vector<TensorRef>& tensors, int rank, int ranks) {
  if (ranks == 1) return whole_slices(tensors);
  std::vector<Slice> slices;
  for (const TensorRef& t : tensors) {
    const int64_t border = std::min(t.size(), kOfFirst);
    slices.push_back(rank == 0 ? DrawnTensors::slice(t, 0, border)
                               : DrawnTensors::slice(t, border, t.size() - border));
  }
  return slices;
}

void save(Checkpoints checkpoints, const std::vector<TensorRef>& both, Exec on, int64_t step,
          int rank = 0, int ranks = 1) {
  checkpoints.save_slices(state_of_step(step),
                          slices_of_rank(of_kind(TensorKind::kModel, both), rank, ranks),
                          slices_of_rank(of_kind(TensorKind::kOptimizer, both), rank, ranks),
                          Checkpoints::Keep::kRolling, on);
}

void require_bounded(const FakeGpu& gpu) {
  REQUIRE(gpu.largest == size_t(kTensorPieceBytes));
  REQUIRE(gpu.one_thread);
}

// What went wrong on each rank: the message, and behind a | the hint.
Names save_of_gpus(int ranks, SlicedRun& run, int64_t step, int failing = -1) {
  Names told(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Group& group) {
    FakeGpu gpu(drawn().refs);
    if (group.rank() == failing) gpu.fails_at = 1;
    try {
      save(run.checkpoints(&group), gpu.tensors, gpu.on(), step, group.rank(), ranks);
    } catch (const UserError& error) {
      told[size_t(group.rank())] = error.what() + ("|" + error.hint());
    }
  });
  return told;
}

}  // namespace

TEST_CASE("a GPU's tensors pass through a few MiB of the host's memory") {
  SlicedRun of_host, of_gpu;
  FakeGpu gpu(drawn().refs);
  save(of_host.checkpoints(nullptr), drawn().refs, {}, 10);
  save(of_gpu.checkpoints(nullptr), gpu.tensors, gpu.on(), 10);
  require_bounded(gpu);
  REQUIRE(same_files(of_host.path(10), of_gpu.path(10)));

  for (const TensorKind kind : {TensorKind::kModel, TensorKind::kOptimizer}) {
    const std::vector<TensorRef> want = of_kind(kind, drawn().refs);
    FakeGpu loaded(shapes_of(kind));
    const std::string found = load_tensors(of_gpu.path(10), kind, loaded.tensors, loaded.on());
    REQUIRE(found == first_not_finite(want));
    REQUIRE_FALSE(found.empty());  // drawn bytes have such elements
    require_bounded(loaded);
    for (size_t t = 0; t < want.size(); ++t) {
      INFO(want[t].name);
      REQUIRE(std::equal(loaded.bytes_of(loaded.tensors[t]),
                         loaded.bytes_of(loaded.tensors[t]) + want[t].bytes(),
                         static_cast<const char*>(want[t].data)));
    }
  }
}

TEST_CASE("an element that is not finite is named by its place in the whole tensor") {
  SlicedRun run;
  std::vector<float> values(size_t{kLarge}, 1.0f);
  values[1'150'000] = INFINITY;
  const TensorRef large = {
      .name = "large", .dtype = DType::kF32, .shape = {kLarge}, .data = values.data()};
  run.checkpoints(nullptr).save(state_of_step(1), {large}, {});
  FakeGpu gpu({large});
  // In the second piece of a slice.
  const Slice slice = DrawnTensors::slice(gpu.tensors[0], 50'001, kLarge - 50'001);
  for (const auto& [slices, on] :
       {std::pair(std::vector{slice}, gpu.on()), std::pair(whole_slices({large}), Exec())}) {
    REQUIRE(load_slices(run.path(1), TensorKind::kModel, slices, Others::kRefused, on) ==
            "element 1150000 of large is inf");
  }
  const Slice before = DrawnTensors::slice(gpu.tensors[0], 0, 1'150'000);
  REQUIRE(load_slices(run.path(1), TensorKind::kModel, std::vector{before}, Others::kIgnored,
                      gpu.on()) == "");
}

TEST_CASE("ranks with GPUs write the files of ranks without") {
  SlicedRun of_hosts, of_gpus;
  const Names failed = run_ranks(2, [&](Group& group) {
    save(of_hosts.checkpoints(&group), drawn().refs, {}, 10, group.rank(), 2);
  });
  REQUIRE(failed == Names(2));
  REQUIRE(save_of_gpus(2, of_gpus, 10) == Names(2));
  REQUIRE(same_files(of_hosts.path(10), of_gpus.path(10)));
}

TEST_CASE("a GPU that fails while a checkpoint is saved is told as such, and costs nothing") {
  SlicedRun run;
  REQUIRE(save_of_gpus(1, run, 10) == Names(1));
  REQUIRE(save_of_gpus(1, run, 20, 0) == Names{"the GPU failed|look at the GPU"});
  REQUIRE(save_of_gpus(2, run, 20, 1) == Names(2, "rank 1: the GPU failed|look at the GPU"));
  {
    const FileSizeLimit disk(rlim_t{1} << 20);
    for (const std::string& told : save_of_gpus(1, run, 20)) {
      REQUIRE_THAT(told, Catch::Matchers::StartsWith("cannot write ") &&
                             Catch::Matchers::ContainsSubstring("|check the disk (df -h "));
    }
  }
  REQUIRE(run.names() == Names{"step-00000010"});
  REQUIRE(checkpoint_problem(run.path(10)).empty());
}

}  // namespace assay::test_checkpoint_of_gpu
