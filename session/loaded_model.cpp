#include "session/loaded_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/file.h"
#include "base/math.h"
#include "base/read_failed.h"
#include "cuda/transfer.h"
#include "data/hash_files.h"
#include "data/manifest.h"
#include "data/tokenizer_files.h"
#include "engine/config/check.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint_slices.h"
#include "engine/run/run_dir.h"
#include "engine/run/safetensors.h"
#include "engine/run/saved_run.h"
#include "engine/trainer.h"
#include "models/parameters/in_checkpoint.h"
#include "session/rank_memory.h"
#include "session/run_data.h"
#include "session/run_products.h"

namespace assay {

CheckpointSource open_checkpoint(const std::string& run_or_checkpoint, Warnings warnings) {
  CheckpointSource source;
  source.folder = require_checkpoint(run_or_checkpoint, [&](const std::string& warning) {
    if (warnings == Warnings::kNone) return;
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  });
  source.state = load_state(source.folder);
  source.config =
      parse_run_config_text(source.state.config_yaml, source.folder + "/state.json", source.folder);
  require_model(CheckpointSlices(source.folder, TensorKind::kModel), source.config.model);
  DataConfig& data = source.config.data;
  data.tokenizer = present_tokenizer(run_of(source), data);
  return source;
}

namespace {

namespace fs = std::filesystem;

// Empty for a path that is not RUN/checkpoints/step-N.
fs::path run_above(const fs::path& checkpoint) {
  const fs::path folder = checkpoint.parent_path(), run = folder.parent_path();
  const bool in_place = folder.filename() == "checkpoints" && !run.empty() && is_run(run);
  return in_place ? run : fs::path();
}

}  // namespace

std::string run_of(const CheckpointSource& source) {
  // RUN/checkpoints may be a link to another disk, and what it links to names no run. A checkpoint
  // may be given from inside its folder, or by a link to it.
  const fs::path given = source.folder, absolute = fs::absolute(given).lexically_normal();
  for (const fs::path& path : {given, absolute, fs::weakly_canonical(given)}) {
    if (const fs::path run = run_above(path); !run.empty()) return run.string();
  }
  return "";
}

std::string require_run_of(const CheckpointSource& source, const std::string& what) {
  const std::string run = run_of(source);
  if (!run.empty()) return run;
  throw UserError(source.folder + " is in no run, whose folder " + what,
                  "give the run, or a checkpoint in its place: RUN/checkpoints/step-N");
}

namespace {

std::map<std::string, std::string> sha256_of(const HashedFiles& files) {
  std::map<std::string, std::string> hashes;
  for (const auto& [path, file] : files) hashes[path] = file.sha256;
  return hashes;
}

// SHA-256 of the files of this tokenizer, a file or a folder, as far as they can be compared with
// what the run has read: none for an imported model, which has its own file.
std::map<std::string, std::string> tokenizer_hashes(const CheckpointSource& source,
                                                    const std::string& tokenizer) {
  if (!source.config.data.check_tokenizer || tokenizer.empty()) return {};
  if (!imported_tokenizer(run_of(source)).empty()) return {};
  const std::vector<std::string> paths = tokenizer_paths(tokenizer);
  if (!has_tokenizer(source.state, paths)) return {};
  return sha256_of(hash_files(paths, UseCache::kNo));
}

// require_known_data() with another way out: ", or ...".
void require_known(const CheckpointSource& source, const std::map<std::string, std::string>& hashes,
                   const std::string& way_out) {
  try {
    require_known_data(source.state, hashes);
  } catch (const UserError& error) {
    throw UserError(error.what(), error.hint() + way_out);
  }
}

// Whether the run has read these files of a tokenizer.
bool is_of_run(const CheckpointSource& source, const std::string& tokenizer) {
  const std::map<std::string, std::string> hashes = tokenizer_hashes(source, tokenizer);
  return !hashes.empty() && first_unknown_file(source.state, hashes).empty();
}

// read(), for a file that a run had and that is not in its place: its error says so, and names the
// option that takes another.
template <typename Read>
auto read_moved(Read read, const std::string& way_out) {
  try {
    return read();
  } catch (const ReadFailed&) {
    throw;
  } catch (const UserError& error) {
    throw UserError(error.what(), "if it has moved: " + way_out + "; else " + error.hint());
  }
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// UserError if a validation shard or the tokenizer of the configuration is missing.
void require_files_there(const DataConfig& data, const OtherFiles& way_out) {
  for (const std::string& pattern : data.val) {
    if (!paths_matching(pattern).empty()) continue;
    read_moved([&] { return expand_files({pattern}, "data.val"); }, way_out.shards);
  }
  if (data.tokenizer.empty() || way_out.moved_tokenizer.empty() || is_there(data.tokenizer)) return;
  read_moved([&] { return read_tokenizer(data.tokenizer); }, way_out.moved_tokenizer);
}

// UserError if the run has read another tokenizer at this path.
void require_tokenizer_known(const CheckpointSource& source, const std::string& tokenizer,
                             const OtherFiles& way_out) {
  if (source.names_tokenizer || tokenizer.empty()) return;
  require_known(source, tokenizer_hashes(source, tokenizer),
                ", or name the tokenizer: " + way_out.tokenizer);
}

}  // namespace

RunData data_of_checkpoint(const CheckpointSource& source, const OtherFiles& way_out) {
  const DataConfig& of_config = source.config.data;
  if (!of_config.synth) {
    require_files_there(of_config, way_out);
    // A tokenizer that was written over may not fit the shards or the model either.
    if (is_there(of_config.tokenizer)) {
      require_tokenizer_known(source, of_config.tokenizer, way_out);
    }
  }
  RunData data = evaluation_data(source.config);
  require_tokenizer_of_run(run_of(source), source.config, data);
  if (!source.names_data) {
    const HashedFiles files = hash_files(data.val, UseCache::kYes);
    require_manifest_hashes(files);
    require_known(source, sha256_of(files), ", or name other data: " + way_out.shards);
  }
  if (of_config.synth) require_tokenizer_known(source, data.tokenizer, way_out);
  return data;
}

std::string own_tokenizer(const CheckpointSource& source) {
  const DataConfig& data = source.config.data;
  std::error_code ignored;
  if (!data.check_tokenizer) return "";
  const std::string imported = imported_tokenizer(run_of(source));
  if (!imported.empty()) return imported;
  if (data.synth) return "";
  return std::filesystem::exists(data.tokenizer, ignored) ? data.tokenizer : "";
}

namespace {

// UserError if the model's own tokenizer was left behind at its import, and the user has named no
// other: that of the data, unless it is a file that is not to be compared, is no substitute.
void require_not_left(const CheckpointSource& source) {
  const DataConfig& data = source.config.data;
  if (source.names_tokenizer) return;
  if (!data.check_tokenizer && !data.synth && !data.tokenizer.empty()) return;
  const std::string why = left_tokenizer(run_of(source));
  if (why.empty()) return;
  throw UserError(
      source.folder + " has no tokenizer: the model's was left behind at the import: " + why,
      "Assay cannot use that one: --tokenizer FILE takes another with the same ids that it can "
      "read, if there is one");
}

}  // namespace

Tokenizer checkpoint_tokenizer(const CheckpointSource& source, const std::string& path) {
  // Without data.synth the configuration names the file, also for a run without data.
  const DataConfig& data = source.config.data;
  const auto of_corpus = [&] {
    std::string tokenizer;
    const auto problem = problem_of([&] { tokenizer = evaluation_data(source.config).tokenizer; });
    if (problem) {
      throw UserError("the run's corpus, which has its tokenizer, is missing and cannot be made: " +
                          std::string(problem->what()),
                      "give the tokenizer: --tokenizer FILE");
    }
    return tokenizer;
  };
  std::string file = path;
  if (file.empty()) require_not_left(source);
  if (file.empty()) file = imported_tokenizer(run_of(source));
  if (file.empty()) file = data.synth ? of_corpus() : data.tokenizer;
  if (file.empty()) {
    throw UserError(
        source.folder + " has no tokenizer: its configuration has no data.tokenizer",
        "give that of its tokens: --tokenizer FILE, a tokenizer.json or the folder that has it");
  }
  Tokenizer tokenizer = path.empty() && !is_there(file)
                            ? read_moved([&] { return read_tokenizer(file); }, "--tokenizer FILE")
                            : read_tokenizer(file);
  if (tokenizer.vocab_size() > source.config.model.vocab_size) {
    throw UserError(strprintf("%s has %ld tokens, the model %ld", file.c_str(),
                              long(tokenizer.vocab_size()), long(source.config.model.vocab_size)),
                    "give the tokenizer that its shards were made with: --tokenizer FILE");
  }
  if (path.empty() && !source.names_tokenizer) {
    require_known(source, tokenizer_hashes(source, file),
                  ", or name the tokenizer: --tokenizer FILE");
  }
  const bool is_known = path.empty() || is_of_run(source, path);
  const std::optional<KnownTokenizer> known = is_known ? std::nullopt : known_tokenizer(source);
  if (known && tokenizer_hash(tokenizer) != known->hash) {
    const bool has_own = data.synth || !own_tokenizer(source).empty();
    throw UserError(file + " is another tokenizer than the run's, " + known->where,
                    has_own ? "the model would read its ids as other text: leave --tokenizer out"
                            : "give the tokenizer that the shards were made with");
  }
  tokenizer.eot();
  return tokenizer;
}

namespace {

// What the manifest beside the validation shards says, if they are those that the run has read.
std::optional<KnownTokenizer> tokenizer_of_shards(const CheckpointSource& source) {
  for (const std::string& file : expand_files(source.config.data.val, "data.val")) {
    const fs::path folder = fs::path(file).parent_path();
    if (!has_manifest(folder.string())) continue;
    const Manifest manifest = read_manifest(folder.string());
    for (const ShardEntry& shard : manifest.shards) {
      if (shard.file != fs::path(file).filename().string()) continue;
      if (!first_unknown_file(source.state, {{file, shard.sha256}}).empty()) continue;
      return KnownTokenizer{.where = (folder / kManifestName).string(),
                            .hash = manifest.tokenizer_sha256};
    }
  }
  return std::nullopt;
}

// UserError if its files are gone, or are others now.
std::optional<KnownTokenizer> tokenizer_of_files(const CheckpointSource& source) {
  const DataConfig& data = source.config.data;
  const auto of_file = [&](const std::string& file) {
    require_known_data(source.state, tokenizer_hashes(source, file));
    return KnownTokenizer{.where = file, .hash = tokenizer_hash(read_tokenizer(file))};
  };
  if (const std::string own = own_tokenizer(source); !own.empty()) return of_file(own);
  if (!data.synth) return tokenizer_of_shards(source);
  const auto corpus = synth_corpus_there(shards_of(*data.synth), data.cache);
  if (!corpus) return std::nullopt;  // not to make it for this
  return of_file(corpus->tokenizer);
}

}  // namespace

std::optional<KnownTokenizer> known_tokenizer(const CheckpointSource& source) {
  if (!source.config.data.check_tokenizer) return std::nullopt;
  std::optional<KnownTokenizer> known;
  problem_of([&] { known = tokenizer_of_files(source); });
  return known;
}

bool tokenizer_was_compared(const CheckpointSource& source, const std::string& path) {
  return path.empty() || !source.config.data.check_tokenizer || is_of_run(source, path) ||
         known_tokenizer(source).has_value();
}

namespace {

// Without training every rank has all experts.
Config with_all_experts(Config config) {
  config.parallel.expert_ranks = 1;
  return config;
}

}  // namespace

LoadedModel::LoadedModel(const CheckpointSource& from, const std::string& device_name,
                         EvaluationSize size, int32_t mask_id, Ranks* ranks)
    : source(from),
      session(with_all_experts(from.config), {.device = device_name, .ranks = ranks}) {
  if (const std::string run = run_of(from); !run.empty()) use_products_of_run(session, run);
  const int64_t texts = std::max<int64_t>(1, ceil_div(size.rows, size.positions));
  rows = texts * size.positions;
  DecoderOptions options = decoder_options(from.config, session.place(mask_id));
  options.micro_batch = texts;
  options.sequence = size.positions;
  options.purpose = Purpose::kInference;
  options.layout = {};  // no training
  model = make_decoder(from.config.model, session.recipe, options);
  model->plan(plan);
  plan.add(Section::kScratch, "workspace", workspace, {model->workspace_bytes()});
  on = session.exec();
  on.threads = static_cast<int>(cores_of_rank(ranks));
}

void LoadedModel::allocate() {
  try {
    require_room(session.ranks, plan, on.gpu);
    plan.allocate(on.gpu);
  } catch (const NotEnoughMemory& error) {
    throw UserError(error.what(), "use a smaller --batch");
  }
  on.workspace = workspace;
  model->bind(on);
  if (const std::string what = load_model(source.folder, model->tensors(), on); !what.empty()) {
    const CheckpointManifest manifest = read_checkpoint_manifest(source.folder);
    throw UserError(manifest.tensor_files_text(source.folder, TensorKind::kModel) + ": " + what,
                    "the run overflowed before it was saved: give an earlier checkpoint of it");
  }
  model->refresh_weights(on);
  // Evaluates in the precision phase of the checkpoint's last step.
  if (source.state.step > recipe_steps(source.config)) model->enter(on, PrecisionPhase::kBf16);
}

}  // namespace assay
