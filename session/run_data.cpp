#include "session/run_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "data/shard.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "engine/config/check.h"
#include "engine/config/paths.h"
#include "engine/run/run_dir.h"
#include "models/audit/model_table.h"

namespace assay {

namespace {

// The last `parts` components of a path.
std::string path_end(const std::filesystem::path& path, int parts) {
  std::filesystem::path end;
  auto at = path.end();
  while (parts-- > 0 && at != path.begin()) end = end.empty() ? *--at : *--at / end;
  return end.string();
}

// The shortest endings that distinguish the paths: web/*.bin and code/*.bin for /data/web/*.bin and
// /data/code/*.bin.
std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (int parts = 1; parts < 100; ++parts) {
    names.clear();
    for (const std::string& path : paths) names.push_back(path_end(path, parts));
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

std::vector<MixtureSource> mixture_sources(const DataConfig& data) {
  const std::vector<std::string> names = short_names(data.train);
  std::vector<MixtureSource> sources;
  std::map<std::string, std::string> source_of;
  for (size_t i = 0; i < names.size(); ++i) {
    sources.push_back({.name = names[i],
                       .files = expand_files({data.train[i]}, "data.train"),
                       .weight = (*data.mixture)[i]});
    for (const std::string& file : sources.back().files) {
      const auto [before, is_new] = source_of.emplace(file, names[i]);
      if (is_new) continue;
      throw UserError(
          strprintf("data.train: %s is in two sources of data.mixture, %s and %s", file.c_str(),
                    before->second.c_str(), names[i].c_str()),
          "name each file in one entry only; give data to be seen more often a larger weight");
    }
  }
  return sources;
}

std::set<std::string> folders_of(const std::vector<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& file : files) {
    folders.insert(std::filesystem::path(file).parent_path().lexically_normal().string());
  }
  return folders;
}

std::vector<SourceShards> source_shards(const RunData& data, int64_t sequence) {
  std::map<std::string, int> sources_in;  // by folder
  for (const MixtureSource& source : data.mixture) {
    for (const std::string& folder : folders_of(source.files)) ++sources_in[folder];
  }
  std::vector<SourceShards> found;
  for (const MixtureSource& source : data.mixture) {
    const std::set<std::string> folders = folders_of(source.files);
    SourceShards own{.name = source.name, .files = {}};
    int64_t sequences = 0;
    for (const std::string& file : data.val) {
      const std::string folder = *folders_of({file}).begin();
      if (!folders.contains(folder) || sources_in[folder] > 1) continue;
      own.files.push_back(file);
      sequences += std::max<int64_t>(0, Shard(file).tokens() - 1) / sequence;
    }
    if (sequences > 0) found.push_back(own);
  }
  return found;
}

}  // namespace

SynthShards shards_of(const SynthConfig& s) {
  return {.train_tokens = s.train_tokens,
          .val_tokens = s.val_tokens,
          .vocab_size = s.vocab_size,
          .seed = static_cast<uint64_t>(s.seed)};
}

namespace {

RunData synth_data(const Config& config) {
  const SynthCorpus corpus = cached_synth_corpus(shards_of(*config.data.synth), config.data.cache);
  RunData data;
  data.train = corpus.train;
  data.val = corpus.val;
  data.tokenizer = corpus.tokenizer;
  return data;
}

enum class ModelSize { kMayChange, kIsFixed };

// UserError if the model has no row for some of the tokenizer's ids.
void require_rows_for(const Tokenizer& tokenizer, const std::string& file, int64_t rows,
                      ModelSize size) {
  if (tokenizer.vocab_size() <= rows) return;
  throw UserError(strprintf("%s has %ld tokens, but model.vocab_size is %ld", file.c_str(),
                            long(tokenizer.vocab_size()), long(rows)),
                  size == ModelSize::kMayChange
                      ? strprintf("--set model.vocab_size=%ld", long(tokenizer.vocab_size()))
                      : "the model was trained with fewer: give the tokenizer that its shards were "
                        "made with, --set data.tokenizer=FILE");
}

// What the tokenizer says about the data, of whose files it must be. Another tokenizer than theirs
// is told before a vocabulary that is too large: a larger model would be no help.
void add_tokenizer(const Config& config, ModelSize size, RunData& data) {
  if (!data.tokenizer.empty()) {
    const Tokenizer tokenizer = read_tokenizer(data.tokenizer);
    if (config.data.check_tokenizer) {
      require_tokenizer_of_shards(tokenizer, data.tokenizer, data.train);
      require_tokenizer_of_shards(tokenizer, data.tokenizer, data.val);
    }
    require_rows_for(tokenizer, data.tokenizer, config.model.vocab_size, size);
    data.tokenizer_sha256 = tokenizer_hash(tokenizer);
    data.tokenizer_vocab = tokenizer.vocab_size();
    data.token_bytes = tokenizer.token_lengths();
    data.eot = tokenizer.eot();
  } else if (config.data.check_tokenizer) {
    std::vector<std::string> shards = data.train;
    shards.insert(shards.end(), data.val.begin(), data.val.end());
    require_one_tokenizer(shards);
  }
  if (config.data.mask_eos && data.eot < 0) {
    throw UserError("data.mask_eos is on, but no tokenizer gives the <|endoftext|> id",
                    "give data.tokenizer, or --set data.mask_eos=false");
  }
  if (config.data.mask_eos) data.mask_id = data.eot;
}

}  // namespace

RunData resolve_data(const Config& config) {
  validate_data(config);
  RunData data;
  if (config.data.synth) {
    data = synth_data(config);
  } else {
    data.train = expand_files(config.data.train, "data.train");
    if (config.data.mixture) data.mixture = mixture_sources(config.data);
    data.val = expand_files(config.data.val, "data.val");
    data.tokenizer = config.data.tokenizer;
    data.source_val = source_shards(data, config.run.sequence);
  }
  add_tokenizer(config, ModelSize::kMayChange, data);
  return data;
}

// The sources of a mixture, of which `source_shards` needs the folders: without the files that are
// gone.
std::vector<MixtureSource> sources_there(const DataConfig& data) {
  std::vector<MixtureSource> sources;
  const std::vector<std::string> names = short_names(data.train);
  for (size_t i = 0; i < names.size(); ++i) {
    MixtureSource source{.name = names[i], .files = {data.train[i]}, .weight = (*data.mixture)[i]};
    try {
      source.files = expand_files(source.files, "data.train");
    } catch (const UserError&) {  // then the folder of the pattern
    }
    sources.push_back(source);
  }
  return sources;
}

RunData evaluation_data(const Config& config) {
  validate_evaluation_data(config);
  RunData data;
  if (config.data.synth) {
    data = synth_data(config);
    data.train.clear();
  } else {
    data.val = expand_files(config.data.val, "data.val");
    data.tokenizer = config.data.tokenizer;
    if (config.data.mixture && config.data.mixture->size() == config.data.train.size()) {
      data.mixture = sources_there(config.data);
      data.source_val = source_shards(data, config.run.sequence);
      data.mixture.clear();
    }
  }
  add_tokenizer(config, ModelSize::kIsFixed, data);
  return data;
}

IdLimit id_limit(const Config& config, const RunData& data) {
  const int64_t rows = config.model.vocab_size, tokens = data.tokenizer_vocab;
  const bool is_fewer = tokens > 0 && tokens < rows && config.data.check_tokenizer;
  return is_fewer ? IdLimit(tokens, IdLimit::Of::kTokenizer) : IdLimit(rows);
}

LoaderConfig loader_config(const Config& config, const RunData& data) {
  return {.files = data.train,
          .mixture = data.mixture,
          .hashed = data.hashed,
          .shuffle = config.data.shuffle ? Shuffle::kYes : Shuffle::kNo,
          .seed = static_cast<uint64_t>(config.run.seed),
          .batch_tokens = config.run.batch_tokens,
          .sequence = config.run.sequence,
          .micro_batch = config.run.micro_batch,
          .vocab_size = id_limit(config, data)};
}

std::string mixture_table(Loader& loader, const Config& config) {
  const std::span<const SourceUse> use = loader.source_use(config.run.steps);
  if (use.empty()) return "";
  const std::vector<int64_t> sequences = loader.source_sequences();
  double weights = 0;
  size_t width = 6;
  for (const MixtureSource& source : loader.mixture()) {
    weights += source.weight;
    width = std::max(width, source.name.size());
  }
  std::string text = strprintf("%-*s %8s %8s %16s %16s %8s\n", int(width), "source", "weight",
                               "share", "tokens", "drawn", "epochs");
  const int64_t all = config.run.steps * config.run.batch_tokens;
  for (size_t k = 0; k < use.size(); ++k) {
    const MixtureSource& source = loader.mixture()[k];
    text += strprintf("%-*s %7.3f%% %7.3f%% %16ld %16.0f %8.2f\n", int(width), source.name.c_str(),
                      100 * source.weight / weights, 100 * use[k].share,
                      long(sequences[k] * config.run.sequence), use[k].share * double(all),
                      use[k].epochs);
  }
  return text + strprintf("of %ld tokens in %ld steps; a source that is used up starts over\n",
                          long(all), long(config.run.steps));
}

std::string passes_text(const Loader& loader, const Config& config) {
  const double of_step = loader.epochs(1);
  if (of_step == 0) return "";
  const int64_t tokens = std::llround(double(config.run.batch_tokens) / of_step);
  return strprintf("training data: %s tokens, %.2f passes in %ld steps", grouped(tokens).c_str(),
                   loader.epochs(config.run.steps), long(config.run.steps));
}

std::string many_passes_text(const Loader& loader, const Config& config) {
  constexpr double kCheapPasses = 4;  // Muennighoff et al. 2023, "Scaling Data-Constrained ..."
  const double passes = loader.epochs(config.run.steps);
  if (passes <= kCheapPasses) return "";
  return as_installed(
      strprintf("%.2f passes over the training data: about %g cost little against new text, "
                "further ones teach less and less (docs/data.md)",
                passes, kCheapPasses));
}

void require_enough_data(Loader& loader, const Config& config) {
  const double most = config.data.max_epochs;
  if (most == 0) return;
  const auto check = [&](double epochs, const std::string& what) {
    if (epochs <= most) return;
    throw UserError(
        strprintf("%ld steps of %ld tokens are %.2f passes over %s, more than data.max_epochs = %g",
                  long(config.run.steps), long(config.run.batch_tokens), epochs, what.c_str(),
                  most),
        "give it more data (more text of your own, or bash tools/get_fineweb.sh --steps N for "
        "FineWeb), or accept the repetition: --set data.max_epochs=0");
  };
  check(loader.epochs(config.run.steps), "the training data");
  const std::span<const SourceUse> use = loader.source_use(config.run.steps);
  for (size_t k = 0; k < use.size(); ++k) check(use[k].epochs, loader.mixture()[k].name);
}

void require_tokenizer_of_run(const std::string& run, const Config& config, const RunData& data) {
  if (!config.data.check_tokenizer) return;
  if (const std::string why = left_tokenizer(run); !why.empty()) {
    std::string known = data.tokenizer;
    if (known.empty()) known = manifest_of(data.train);
    if (known.empty()) known = manifest_of(data.val);
    if (!known.empty()) refuse_unknown_tokenizer(why, known);
  }
  const std::string file = imported_tokenizer(run);
  if (file.empty()) return;
  const Tokenizer tokenizer = read_tokenizer(file);
  if (!data.tokenizer.empty()) {
    require_same_tokenizer(tokenizer, file, read_tokenizer(data.tokenizer), data.tokenizer);
  }
  require_tokenizer_of_shards(tokenizer, file, data.train);
  require_tokenizer_of_shards(tokenizer, file, data.val);
}

std::map<std::string, std::string> data_hashes(const RunData& data) {
  std::map<std::string, std::string> hashes;
  for (const auto& [path, file] : data.hashed) hashes[path] = file.sha256;
  return hashes;
}

std::map<std::string, std::string> data_hash_origins(const RunData& data) {
  std::map<std::string, std::string> origins;
  for (const auto& [path, file] : data.hashed) origins[path] = file.how();
  return origins;
}

std::vector<ReadFile> read_files(const RunData& data) {
  std::vector<ReadFile> files;
  const auto add = [&](const std::string& part, const std::vector<std::string>& paths) {
    for (const std::string& path : paths)
      files.push_back({.part = part, .path = path, .sha256 = data.hashed.at(path).sha256});
  };
  if (data.mixture.empty()) add("data.train", data.train);
  for (size_t k = 0; k < data.mixture.size(); ++k) {
    add(strprintf("data.train, source %zu", k + 1), data.mixture[k].files);
  }
  add("data.val", data.val);
  if (!data.tokenizer.empty()) add(kTokenizerPart, tokenizer_paths(data.tokenizer));
  return files;
}

}  // namespace assay
