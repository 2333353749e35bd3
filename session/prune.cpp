#include "session/prune.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/cores.h"
#include "base/new_folder.h"
#include "base/shell_word.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/safetensors.h"
#include "engine/run/saved_run.h"
#include "lab/dissect/used.h"
#include "models/audit/audit.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

// The experts that a layer keeps, ascending: the used ones, then unused ones until there are
// `count`.
std::vector<int32_t> kept_experts(const LayerLoads& loads, int64_t count) {
  std::vector<int32_t> kept;
  for (size_t e = 0; e < loads.counts.size(); ++e) {
    if (loads.counts[e] > 0) kept.push_back(int32_t(e));
  }
  for (size_t e = 0; e < loads.counts.size() && int64_t(kept.size()) < count; ++e) {
    if (loads.counts[e] == 0) kept.push_back(int32_t(e));
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// The tensors of a file of a checkpoint, those of routers and routed experts with the rows of the
// kept experts only. Optimizer state, which is named after its parameter, is cut in the same way.
class CutTensors {
 public:
  CutTensors(const std::string& path, int64_t experts,
             const std::map<int64_t, std::vector<int32_t>>& kept) {
    const SafetensorsFile file(path);
    for (const SafetensorsFile::Entry& entry : file.entries()) {
      TensorRef tensor{entry.name, dtype_of(entry, path), entry.shape, nullptr};
      std::vector<std::byte>& all = memory_.emplace_back(size_t(tensor.bytes()));
      file.read_bytes(entry, 0, all.data(), int64_t(all.size()));
      for (const auto& [layer, rows] : kept) {
        if (!is_of_experts(entry.name, layer) || entry.shape.empty() || entry.shape[0] != experts) {
          continue;
        }
        const size_t row = all.size() / size_t(experts);
        for (size_t i = 0; i < rows.size(); ++i) {
          std::memmove(all.data() + i * row, all.data() + size_t(rows[i]) * row, row);
        }
        all.resize(rows.size() * row);
        tensor.shape[0] = int64_t(rows.size());
      }
      tensor.data = all.data();
      tensors_.push_back(tensor);
    }
  }
  const std::vector<TensorRef>& tensors() const { return tensors_; }

 private:
  static bool is_of_experts(const std::string& name, int64_t layer) {
    const std::string of = "blocks." + std::to_string(layer) + ".moe.";
    return name.rfind(of, 0) == 0 && name.rfind(of + "shared.", 0) != 0;
  }
  static DType dtype_of(const SafetensorsFile::Entry& entry, const std::string& path) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
      if (entry.dtype == dtype_name(dtype)) return dtype;
    }
    throw UserError(path + ": " + entry.name + " has type " + entry.dtype,
                    "give a checkpoint that assay wrote");
  }

  std::deque<std::vector<std::byte>> memory_;
  std::vector<TensorRef> tensors_;
};

void compare(Pruned& pruned, HeldOut& before, HeldOut& after) {
  double loss = 0, original = 0;
  for (int i = 0; i < before.micro_batches(); ++i) {
    const Batch batch = before.micro(i);
    const View<const float, 1> a = before.evaluate(i, nullptr), b = after.evaluate(i, nullptr);
    for (int64_t t = 0; t < batch.target.dim[0]; ++t) {
      if (!before.counts(batch.target[t])) continue;
      pruned.targets += 1;
      original += double(a[t]);
      loss += double(b[t]);
      if (std::bit_cast<uint32_t>(a[t]) == std::bit_cast<uint32_t>(b[t])) continue;
      pruned.different += 1;
      pruned.largest = std::max(pruned.largest, double(std::fabs(a[t] - b[t])));
    }
  }
  const auto targets = double(std::max<int64_t>(pruned.targets, 1));
  pruned.loss = loss / targets;
  pruned.original_loss = original / targets;
}

}  // namespace

void require_prunable(const HeldOut& text, const std::string& folder) {
  const std::string& checkpoint = text.source().folder;
  require_new_folder(folder, "give a new folder: --export FOLDER");
  if (!text.unread().none()) {
    throw UserError("an export would lose experts that only text of " +
                        joined_names(text.unread()) +
                        " uses: " + unread_text(text.unread(), text.tokens()),
                    text.to_read_all());
  }
  if (read_checkpoint_manifest(checkpoint).ranks > 1) {
    throw UserError(checkpoint + " has a file of each of several ranks",
                    "assay checkpoint merge " + shell_word(checkpoint) + " makes one of them");
  }
}

Pruned write_pruned(HeldOut& text, std::span<const LayerLoads> loads, const std::string& folder,
                    const std::string& device, RunMeta meta) {
  require_prunable(text, folder);
  const CheckpointSource& source = text.source();
  Pruned pruned;
  pruned.run = folder;
  pruned.experts = source.config.model.moe->top_k;
  for (const LayerLoads& l : loads) pruned.experts = std::max(pruned.experts, used_experts(l));
  std::map<int64_t, std::vector<int32_t>> kept;
  for (const LayerLoads& l : loads) kept[l.layer] = kept_experts(l, pruned.experts);

  const int64_t before = source.config.model.moe->experts;
  const CutTensors model(source.folder + "/" + whole_file(TensorKind::kModel), before, kept);
  const CutTensors optimizer(source.folder + "/" + whole_file(TensorKind::kOptimizer), before,
                             kept);
  TrainingState state = source.state;
  forget_measured(state);
  Config config =
      parse_run_config_text(state.config_yaml, source.folder + "/state.json", source.folder);
  config.data.tokenizer = source.config.data.tokenizer;  // an import's may have moved with it
  config.model.moe->experts = pruned.experts;
  // With all experts in every choice there is nothing to stop for, and none is refused.
  if (pruned.experts == config.model.moe->top_k) config.telemetry.collapse_stop.reset();
  pruned.parameters = audit(config).total;
  state.config_yaml = to_yaml(config);
  state.config_hashes = section_hashes(config);

  NewFolder made(folder);
  const RunDir dir(made.part(), RunDir::Start::kContinue);
  Checkpoints checkpoints(dir.path(), 1, nullptr);
  const std::string saved =
      checkpoints.save(state, model.tensors(), optimizer.tensors(), Checkpoints::Keep::kMilestone);
  pruned.checkpoint = made.path() + saved.substr(made.part().size());
  meta.recipe = config.precision.recipe;
  meta.threads = config.run.threads > 0 ? config.run.threads : usable_cores();
  write_meta(dir, meta);
  dir.write_config(config);

  HeldOut after(made.part(), {.device = device, .tokens = text.tokens(), .files = text.files()});
  compare(pruned, text, after);
  made.commit();
  return pruned;
}

}  // namespace assay
