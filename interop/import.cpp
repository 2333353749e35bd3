#include "interop/import.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/new_folder.h"
#include "base/read_failed.h"
#include "base/shell_word.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "data/synth_shards.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "engine/config/check.h"
#include "engine/config/paths.h"
#include "engine/config/text.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/run_dir.h"
#include "interop/imported_config.h"
#include "interop/imported_facts.h"
#include "interop/model_json.h"
#include "interop/tensor_map.h"
#include "interop/weights.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// True for tensors that the model does not need.
bool may_be_left(const std::string& name, const ImportedModel& imported) {
  if (name == "lm_head.weight") return imported.model.tie_embeddings;
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  const std::string layers = "model.layers.";
  if (!name.starts_with(layers)) return false;
  int64_t block = -1;
  std::from_chars(name.data() + layers.size(), name.data() + name.size(), block);
  return block >= imported.model.layers && block - imported.model.layers < imported.further_blocks;
}

// Checks, before memory is allocated, that every tensor is there, and no other.
void require_tensors(const HfWeights& weights, const ImportedModel& imported,
                     const std::string& folder, std::vector<std::string>& notes) {
  const int64_t wanted = mapped_tensors(imported.model, imported.family);
  if (wanted > weights.tensors()) {
    throw UserError(
        strprintf("%s: config.json describes a model of %ld tensors, the files have %ld",
                  folder.c_str(), long(wanted), long(weights.tensors())),
        "config.json and the weights belong to different models, or a shard is missing");
  }
  std::map<std::string, bool> known;
  for (const MappedTensor& t : tensor_map(imported.model, imported.family)) {
    weights.require(t.name, t.shape);
    known[t.name] = true;
  }
  int64_t left = 0;
  std::string first;
  for (const std::string& name : weights.names()) {
    if (known.contains(name)) continue;
    if (!may_be_left(name, imported)) {
      throw UserError(folder + ": has a tensor " + name + ", which is not part of a " +
                          family_name(imported.family).architecture + " with its config.json",
                      "config.json and the weights belong to different models");
    }
    if (left++ == 0) first = name;
  }
  if (left > 0) {
    notes.push_back(strprintf("%ld tensors that this model does not use were left out, e.g. %s",
                              long(left), first.c_str()));
  }
}

// A head beside a tied embedding must be that embedding: transformers 5 reads the head, versions
// before it the embedding.
void require_same_head(const HfWeights& weights, const ImportedModel& imported,
                       const std::string& folder) {
  const std::string head = "lm_head.weight", embedding = "model.embed_tokens.weight";
  const ModelConfig& m = imported.model;
  if (!m.tie_embeddings || !weights.has(head)) return;
  const auto values_of = [&](const std::string& name) {
    std::vector<float> values(static_cast<size_t>(m.vocab_size * m.hidden));
    weights.read(name, {m.vocab_size, m.hidden}, values.data());
    return values;
  };
  if (values_of(head) == values_of(embedding)) return;
  throw UserError(
      folder + ": tie_word_embeddings is true, but " + head + " differs from " + embedding,
      "versions of transformers read one or the other: set tie_word_embeddings false, or remove " +
          head);
}

// Our tensors, filled with the imported weights.
class Filled {
 public:
  Filled(const ImportedModel& imported, const HfWeights& weights) {
    for (const ParameterSpec& spec : parameter_table(imported.model)) {
      values_.emplace_back(static_cast<size_t>(spec.size()));
      tensors_.push_back({.name = spec.name,
                          .dtype = DType::kF32,
                          .shape = spec.shape,
                          .data = values_.back().data()});
      by_name_[spec.name] = values_.back().data();
      if (!spec.trained()) continue;
      parameters_ += spec.size();
      moments_.push_back({spec.name + ".m", DType::kF32, spec.shape, nullptr});
      moments_.push_back({spec.name + ".v", DType::kF32, spec.shape, nullptr});
    }
    for (const MappedTensor& t : tensor_map(imported.model, imported.family)) {
      CHECK(t.gain == 1, "%s is imported with gain %g", t.name.c_str(), t.gain);
      if (t.size() > 0) weights.read(t.name, t.shape, by_name_.at(t.ours) + t.begin);
    }
  }

  const std::vector<TensorRef>& tensors() const { return tensors_; }
  int64_t parameters() const { return parameters_; }
  // The moments of an optimizer before its first step; all share one block of zeros.
  std::vector<TensorRef> moments() {
    int64_t largest = 0;
    for (const TensorRef& t : moments_) largest = std::max(largest, t.size());
    zeros_.assign(static_cast<size_t>(largest), 0.0f);
    for (TensorRef& t : moments_) t.data = zeros_.data();
    return moments_;
  }
  // One momentum instead of two moments for the matrices that Muon steps, for optimizer.kind muon.
  void merge_moments(const ModelConfig& model) {
    for (const ParameterSpec& spec : parameter_table(model)) {
      if (!spec.is_hidden_matrix()) continue;
      std::erase_if(moments_, [&](const TensorRef& t) { return t.name == spec.name + ".v"; });
      for (TensorRef& t : moments_) {
        if (t.name == spec.name + ".m") t.name = spec.name + ".momentum";
      }
    }
  }
  // The matrices rounded to bf16, for optimizer.state bf16; those of a bf16 folder keep their bits.
  void round_matrices(const ModelConfig& model) {
    for (const ParameterSpec& spec : parameter_table(model)) {
      if (!spec.is_matrix()) continue;
      for (TensorRef& t : tensors_) {
        if (t.name != spec.name) continue;
        const float* const values = static_cast<const float*>(t.data);
        std::vector<bf16>& rounded = rounded_.emplace_back(static_cast<size_t>(t.size()));
        for (size_t i = 0; i < rounded.size(); ++i) round_to(rounded[i], values[i]);
        t.dtype = DType::kBF16;
        t.data = rounded.data();
      }
      for (TensorRef& t : moments_) {
        if (t.name == spec.name + ".m" || t.name == spec.name + ".v") t.dtype = DType::kBF16;
      }
    }
  }
  // True if any selection bias is not 0.
  bool has_bias(const ModelConfig& model) const {
    for (int64_t l = 0; l < model.layers; ++l) {
      if (!is_moe_block(model, l)) continue;
      const float* bias = by_name_.at("blocks." + std::to_string(l) + ".moe.bias");
      if (std::any_of(bias, bias + model.moe->experts, [](float b) { return b != 0; })) return true;
    }
    return false;
  }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<bf16>> rounded_;
  std::vector<float> zeros_;
  std::vector<TensorRef> tensors_, moments_;
  std::map<std::string, float*> by_name_;
  int64_t parameters_ = 0;
};

// The tokenizer of a model's folder. Without one, why that of the folder is left behind; "" if the
// folder has none.
struct FolderTokenizer {
  std::optional<Tokenizer> tokenizer;
  std::string why_left;
};

FolderTokenizer folder_tokenizer(const std::string& folder) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(folder + "/" + name, ignored); };
  FolderTokenizer found;
  if (!has("tokenizer.json") && !has("vocab.json")) {
    if (has("tokenizer.model")) {
      found.why_left = folder + "/tokenizer.model: is of another kind than byte-level BPE";
    }
    return found;
  }
  const auto problem = problem_of([&] { found.tokenizer = read_tokenizer(folder); });
  if (problem) found.why_left = problem->what();
  return found;
}

void require_vocabulary(const Tokenizer& tokenizer, const std::string& where, int64_t vocab) {
  if (tokenizer.vocab_size() <= vocab) return;
  throw UserError(strprintf("%s has %ld tokens, config.json vocab_size %ld", where.c_str(),
                            long(tokenizer.vocab_size()), long(vocab)),
                  "the tokenizer belongs to another model: give the right one, or none");
}

// UserError unless the stories of data.synth, whose corpus may not be there yet, are in the tokens
// of the folder's tokenizer.
void require_synth_of(const Tokenizer& tokenizer, const std::string& folder, const SynthConfig& s) {
  const Tokenizer of_stories = synth_tokenizer({.train_tokens = s.train_tokens,
                                                .val_tokens = s.val_tokens,
                                                .vocab_size = s.vocab_size,
                                                .seed = static_cast<uint64_t>(s.seed)});
  const auto problem = problem_of([&] {
    require_same_tokenizer(tokenizer, folder + "/tokenizer.json", of_stories,
                           "the tokenizer of data.synth");
  });
  if (!problem) return;
  throw UserError(problem->what(),
                  "give text in the model's own tokens: assay data prepare TEXTS --tokenizer " +
                      shell_word(folder) +
                      " -o shards, then --set data.synth=null --set "
                      "'data.train=[shards/*_train_*.bin]' --set 'data.val=[shards/*_val_*.bin]'; "
                      "or skip the check: --set data.check_tokenizer=false");
}

// UserError unless the given data is in the tokens of the folder's tokenizer.
void require_data_of(const Tokenizer& tokenizer, const std::string& folder,
                     const DataConfig& data) {
  if (!data.check_tokenizer) return;
  if (data.synth) return require_synth_of(tokenizer, folder, *data.synth);
  const std::string whose = folder + "/tokenizer.json";
  if (!data.tokenizer.empty()) {
    require_same_tokenizer(tokenizer, whose, read_tokenizer(data.tokenizer), data.tokenizer);
  }
  for (const auto* files : {&data.train, &data.val}) {
    if (!files->empty())
      require_tokenizer_of_shards(tokenizer, whose, expand_files(*files, "data"));
  }
}

// UserError if it is known which tokenizer the data is in, where the folder's was not read.
void require_unknown_data(const std::string& why, const DataConfig& data) {
  if (!data.check_tokenizer) return;
  if (data.synth) refuse_unknown_tokenizer(why, "the corpus of data.synth");
  if (!data.tokenizer.empty()) refuse_unknown_tokenizer(why, data.tokenizer);
  for (const auto* files : {&data.train, &data.val}) {
    if (files->empty()) continue;
    const std::string manifest = manifest_of(expand_files(*files, "data"));
    if (!manifest.empty()) refuse_unknown_tokenizer(why, manifest);
  }
}

// The note on a run that has no tokenizer from the folder.
std::string without_tokenizer(const std::string& why_left, const DataConfig& data) {
  const std::string what = why_left.empty() ? "the folder has no tokenizer.json"
                                            : "no tokenizer was imported: " + why_left;
  if (!data.tokenizer.empty()) return what + "; data.tokenizer is taken to be its own";
  if (data.synth && why_left.empty()) return what + "; that of data.synth is taken to be its own";
  return what + "; sample and CORE need --tokenizer FILE" +
         (why_left.empty() ? "" : ", another one with the same ids, which Assay can read");
}

// Whether data.tokenizer is going to be the folder's: the configuration names no other.
bool takes_folder_tokenizer(const DataConfig& data) {
  return data.tokenizer.empty() && !data.synth;
}

// What config.json has another id for than the run, where <|endoftext|> is both.
void note_other_ends(const ImportedFacts& facts, const Tokenizer& tokenizer,
                     std::vector<std::string>& notes) {
  const int32_t eot = tokenizer.eot();
  const auto has = [&](const nlohmann::ordered_json& ids) {
    return ids.is_null() || ids == eot ||
           (ids.is_array() && std::find(ids.begin(), ids.end(), eot) != ids.end());
  };
  std::string other;
  if (!has(facts.bos)) other = "bos_token_id is " + facts.bos.dump();
  if (!has(facts.eos)) {
    other += (other.empty() ? "" : " and ") + ("eos_token_id is " + facts.eos.dump());
  }
  if (other.empty()) return;
  notes.push_back(
      strprintf("config.json: %s; here every text begins with, and a sample ends at, "
                "<|endoftext|> (id %d)",
                other.c_str(), eot));
}

// The folder's tokenizer, of which the given data must be; none, and a note, if there is none that
// the run could use.
FolderTokenizer tokenizer_for_run(const std::string& folder, const ImportedModel& model,
                                  const DataConfig& data, std::vector<std::string>& notes) {
  const bool takes = takes_folder_tokenizer(data);
  FolderTokenizer found = folder_tokenizer(folder);
  if (found.tokenizer) require_data_of(*found.tokenizer, folder, data);
  if (!found.why_left.empty()) require_unknown_data(found.why_left, data);
  if (found.tokenizer && takes && !found.tokenizer->has_eot()) {
    found = {.tokenizer = std::nullopt,
             .why_left = "it has no special token " + std::string(kEndOfText)};
  }
  if (!found.tokenizer) {
    notes.push_back(without_tokenizer(found.why_left, data));
  } else if (takes) {
    require_vocabulary(*found.tokenizer, folder, model.model.vocab_size);
  }
  if (found.tokenizer && found.tokenizer->has_eot())
    note_other_ends(model.facts, *found.tokenizer, notes);
  return found;
}

void require_bias_rate(const Filled& filled, const Config& config, const std::string& folder) {
  if (!config.model.moe || config.model.moe->router.bias_rate.on()) return;
  if (!filled.has_bias(config.model)) return;
  throw UserError(folder + " has selection biases, but model.moe.router.bias_rate is 0",
                  "a router uses its bias only if bias_rate > 0, e.g. --set "
                  "model.moe.router.bias_rate=1e-3");
}

TrainingState first_state(const Config& config) {
  TrainingState state;
  state.seed = static_cast<uint64_t>(config.run.seed);
  state.config_yaml = to_yaml(config);
  state.config_hashes = section_hashes(config);
  return state;
}

// What imported.json says of a run besides Imported.
struct Origin {
  std::string checkpoint;      // with the weights
  std::string own_tokenizer;   // data.tokenizer, if that is the run's own file; else ""
  std::string left_tokenizer;  // why the folder's was left behind; "" if it was not
  ImportedFacts facts;
};

void write_origin(const RunDir& dir, const ImportPlan& plan, const Imported& imported,
                  const Origin& origin) {
  nlohmann::ordered_json j;
  j[kImportedFolder] = fs::absolute(plan.folder).lexically_normal().string();
  j["architecture"] = family_name(imported.family).architecture;
  j["config_json_sha256"] = sha256_file(plan.folder + "/config.json");
  const CheckpointManifest manifest = read_checkpoint_manifest(origin.checkpoint);
  j[kWeightsHash] = manifest.files.at(whole_file(TensorKind::kModel)).sha256;
  if (!origin.own_tokenizer.empty()) j[kImportedTokenizer] = origin.own_tokenizer;
  if (!origin.left_tokenizer.empty()) j[kLeftTokenizer] = origin.left_tokenizer;
  add_facts(j, origin.facts);
  j["dtypes"] = imported.dtypes;
  j["notes"] = imported.notes;
  write_file_atomic(dir.file(kImportedFile), json_text(j, 1) + "\n");
}

// A folder without config.json: what it may be instead.
void require_model_folder(const std::string& folder) {
  const std::string file = folder + "/config.json";
  std::error_code ignored;
  if (fs::exists(file, ignored)) return;
  const std::string wanted =
      "check the path: a transformers model is a folder with config.json and model.safetensors";
  if (is_run(folder)) {
    const std::string config = folder + "/config.yaml";
    throw UserError(folder + " is a run of Assay, which has no config.json",
                    "go on with it as it is: assay train " + shell_word(config) + " --run " +
                        shell_word(folder) + "; `assay export` makes a transformers model of it");
  }
  const fs::file_status status = fs::status(folder, ignored);
  if (status.type() == fs::file_type::not_found) {
    throw UserError("there is no folder " + folder + ", so no " + file, wanted);
  }
  if (fs::is_directory(status)) {
    throw UserError(folder + " is no transformers model: there is no " + file, wanted);
  }
}

}  // namespace

Imported import_model(const ImportPlan& plan, ResolveConfig resolve, RunMeta meta) {
  if (plan.run.empty()) {
    throw UserError("the name of the run is empty", "e.g. --out runs/imported");
  }
  require_new_folder(plan.run, "choose another --out, or remove it");
  require_model_folder(plan.folder);
  const ImportedModel model = read_model_json(plan.folder + "/config.json");
  Imported result;
  result.family = model.family;
  const HfWeights weights(plan.folder);
  require_tensors(weights, model, plan.folder, result.notes);
  require_same_head(weights, model, plan.folder);
  result.config = imported_config(plan, model, result.notes);
  std::string& tokenizer_file = result.config.data.tokenizer;
  const bool takes_tokenizer = takes_folder_tokenizer(result.config.data);
  const FolderTokenizer found =
      tokenizer_for_run(plan.folder, model, result.config.data, result.notes);
  if (!tokenizer_file.empty()) {
    require_vocabulary(read_tokenizer(tokenizer_file), tokenizer_file, model.model.vocab_size);
  }

  Filled filled(model, weights);
  require_bias_rate(filled, result.config, plan.folder);
  result.tensors = weights.tensors();
  result.parameters = filled.parameters();
  result.dtypes = weights.dtypes();

  NewFolder folder(plan.run);
  const RunDir dir(folder.part(), RunDir::Start::kContinue);
  // Data that the run trains on later is compared with this tokenizer.
  if (found.tokenizer && (takes_tokenizer || result.config.data.check_tokenizer)) {
    write_tokenizer_json(*found.tokenizer, dir.file("tokenizer.json"));
    const fs::path later = fs::path(folder.path()) / "tokenizer.json";
    if (takes_tokenizer) tokenizer_file = fs::absolute(later).lexically_normal().string();
  }
  resolve(result.config);
  validate(result.config);  // `auto` is decided: what does not go with it would never open
  if (result.config.optimizer.kind == OptimizerKind::kMuon) filled.merge_moments(model.model);
  if (result.config.optimizer.state == StateFormat::kBf16) filled.round_matrices(model.model);
  Checkpoints checkpoints(dir.path(), 1, nullptr);
  const std::string saved = checkpoints.save(first_state(result.config), filled.tensors(),
                                             filled.moments(), Checkpoints::Keep::kMilestone);
  meta.recipe = result.config.precision.recipe;
  const int64_t threads = result.config.run.threads;
  meta.threads = threads > 0 ? threads : usable_cores();
  write_meta(dir, meta);
  write_origin(dir, plan, result,
               {.checkpoint = saved,
                .own_tokenizer = takes_tokenizer ? tokenizer_file : "",
                .left_tokenizer = found.why_left,
                .facts = model.facts});
  dir.write_config(result.config);
  folder.commit();
  result.checkpoint = folder.path() + saved.substr(folder.part().size());
  return result;
}

}  // namespace assay
