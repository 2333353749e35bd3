// A run whose tensors are cut over any number of ranks, for tests of checkpoints.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "engine/run/checkpoint.h"
#include "tests/comm/thread_group.h"
#include "tests/data/temp_folder.h"

namespace assay {

// Tensors whose bytes are drawn.
struct DrawnTensors {
  std::vector<TensorRef> refs;
  std::vector<std::vector<char>> bytes;

  DrawnTensors(std::vector<TensorRef> shapes, uint64_t seed) : refs(std::move(shapes)) {
    bytes.reserve(refs.size());
    for (size_t t = 0; t < refs.size(); ++t) {
      RandomSequence random({seed, t, 0});
      bytes.emplace_back(size_t(refs[t].bytes()));
      for (char& b : bytes.back()) b = char(random.below(256));
      refs[t].data = bytes.back().data();
    }
  }
  // The slices of a rank: runs of 37 elements are dealt out. Rank 0 names every tensor.
  std::vector<Slice> of_rank(int rank, int ranks) const {
    std::vector<Slice> slices;
    for (size_t t = 0; t < refs.size(); ++t) {
      const TensorRef& ref = refs[t];
      const int64_t run = ranks == 1 ? std::max<int64_t>(1, ref.size()) : 37;
      const size_t before = slices.size();
      for (int64_t first = 0; first < ref.size(); first += run) {
        if ((first / run * 5 + int64_t(t) + 1) % ranks != rank) continue;
        slices.push_back(slice(ref, first, std::min(run, ref.size() - first)));
      }
      if (rank == 0 && slices.size() == before) slices.push_back(slice(ref, 0, 0));
    }
    return slices;
  }
  static Slice slice(const TensorRef& ref, int64_t first, int64_t count) {
    return {.whole = ref,
            .first = first,
            .count = count,
            .data = static_cast<char*>(ref.data) + first * dtype_bytes(ref.dtype)};
  }
};

inline std::vector<TensorRef> model_shapes() {
  return {{.name = "weight", .dtype = DType::kF32, .shape = {10, 100}, .data = nullptr},
          {.name = "half", .dtype = DType::kBF16, .shape = {7, 3, 13}, .data = nullptr},
          {.name = "count", .dtype = DType::kI64, .shape = {}, .data = nullptr},
          {.name = "a.bias", .dtype = DType::kF32, .shape = {5}, .data = nullptr},
          {.name = "none", .dtype = DType::kF32, .shape = {0, 3}, .data = nullptr}};
}
inline std::vector<TensorRef> optimizer_shapes() {
  return {{.name = "weight.m", .dtype = DType::kF32, .shape = {1000}, .data = nullptr},
          {.name = "weight.v", .dtype = DType::kF32, .shape = {1000}, .data = nullptr}};
}

inline TrainingState state_of_step(int64_t step) {
  return {.step = step,
          .tokens = step * 8192,
          .cursor = {.shard = 1, .batch = step, .epoch = 2},
          .seed = 7,
          .schedule_share = 0.5,
          .config_yaml = "run:\n  seed: 7\n",
          .config_hashes = {{"run", "ab"}},
          .versions = {{"sqlite", "3.40.1"}},
          .extra = nlohmann::json::object()};
}

struct SlicedRun {
  TempFolder folder;
  // Of rank 0's Checkpoints; the others must not warn.
  std::vector<std::string> warnings;

  Checkpoints checkpoints(Group* ranks, int64_t keep_last = 2) {
    return {folder.path(), keep_last,
            [this, ranks](const std::string& text) {
              warnings.push_back(text + (ranks && ranks->rank() > 0 ? " (not from rank 0)" : ""));
            },
            ranks};
  }
  static DrawnTensors model(int64_t step) { return {model_shapes(), uint64_t(step)}; }
  static DrawnTensors optimizer(int64_t step) {
    return {optimizer_shapes(), uint64_t(1000 + step)};
  }

  // Returns the errors of the ranks, as run_ranks().
  std::vector<std::string> save(int ranks, int64_t step,
                                Checkpoints::Keep keep = Checkpoints::Keep::kRolling) {
    const DrawnTensors tensors = model(step), moments = optimizer(step);
    return run_ranks(ranks, [&](Group& group) {
      const int r = group.rank();
      checkpoints(&group).save_slices(state_of_step(step), tensors.of_rank(r, ranks),
                                      moments.of_rank(r, ranks), keep);
    });
  }
  std::string path(int64_t step) const {
    return folder / strprintf("checkpoints/step-%08ld", static_cast<long>(step));
  }
  static std::vector<std::string> names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> names() const { return names(folder / "checkpoints"); }
};

// Of two checkpoints.
inline bool same_files(const std::string& a, const std::string& b) {
  if (SlicedRun::names(a) != SlicedRun::names(b)) return false;
  for (const std::string& name : SlicedRun::names(a)) {
    if (read_file(a + "/" + name) != read_file(b + "/" + name)) return false;
  }
  return true;
}

// Whether the checkpoint has the tensors of its step when `ranks` ranks read their slices.
inline bool is_read_by(const std::string& checkpoint, int ranks) {
  const int64_t step = load_state(checkpoint).step;
  const auto same = [&](TensorKind kind, const DrawnTensors& want) {
    DrawnTensors got(want.refs, 12345);
    for (int r = 0; r < ranks; ++r) load_slices(checkpoint, kind, got.of_rank(r, ranks));
    return got.bytes == want.bytes;
  };
  return same(TensorKind::kModel, SlicedRun::model(step)) &&
         same(TensorKind::kOptimizer, SlicedRun::optimizer(step));
}

}  // namespace assay
