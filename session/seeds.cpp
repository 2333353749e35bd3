#include "session/seeds.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "data/sha256.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "engine/run/checkpoint_files.h"
#include "lab/runs/first_weights.h"
#include "lab/runs/seed_groups.h"

namespace assay {

namespace {

class ChoiceRecorder final : public MoeProbe {
 public:
  explicit ChoiceRecorder(const HeldOut& text) : first_layer_(text.layers().front()) {
    const MoeConfig& moe = *text.config().model.moe;
    for (const int64_t layer : text.layers()) {
      layers.push_back({.layer = layer, .experts = moe.experts, .top_k = moe.top_k, .expert = {}});
      layers.back().expert.reserve(size_t(text.tokens() * moe.top_k));
    }
  }

  Changed routed(int64_t layer, View<int32_t, 2> expert, View<float, 2>) override {
    std::vector<int32_t>& to = layers[size_t(layer - first_layer_)].expert;
    to.insert(to.end(), expert.data, expert.data + expert.size());
    return Changed::kNo;
  }
  bool wants_outputs(int64_t) const override { return false; }
  Changed computed(int64_t, View<const int32_t, 2>, View<const int32_t, 2>,
                   View<float, 2>) override {
    return Changed::kNo;
  }
  bool keeps_shared(int64_t) const override { return true; }

  std::vector<LayerChoices> layers;

 private:
  const int64_t first_layer_;
};

// What two models must share so that their experts can be matched.
void require_same_shape(const CheckpointSource& first, const CheckpointSource& other) {
  const ModelConfig &a = first.config.model, &b = other.config.model;
  const struct {
    const char* field;
    int64_t first, other;
  } rows[] = {
      {"model.layers", a.layers, b.layers},
      {"model.moe.first_dense_layers", a.moe->first_dense_layers, b.moe->first_dense_layers},
      {"model.moe.experts", a.moe->experts, b.moe->experts},
      {"model.moe.top_k", a.moe->top_k, b.moe->top_k},
      {"model.vocab_size", a.vocab_size, b.vocab_size},
      {"run.sequence", first.config.run.sequence, other.config.run.sequence}};
  for (const auto& row : rows) {
    if (row.first == row.other) continue;
    throw UserError(strprintf("%s differs: %ld in %s, %ld in %s", row.field, long(row.first),
                              first.folder.c_str(), long(row.other), other.folder.c_str()),
                    "give runs of one model that differ in their seed: --set run.seed=N");
  }
}

// The run's folder, or that of a checkpoint that is in none.
std::string name_of(const CheckpointSource& source) {
  const std::string run = run_of(source);
  return run.empty() ? source.folder : run;
}

void require_same_text(const SeedRun& first, const std::string& text, const HeldOut& other) {
  if (other.text_sha256() == text) return;
  throw UserError(strprintf("the held-out text of %s is not that of %s: SHA-256 %.12s and %.12s",
                            name_of(other.source()).c_str(), first.run.c_str(),
                            other.text_sha256().c_str(), text.c_str()),
                  "read the same from one file: --shards FILE --tokens N");
}

void require_one_tokenizer(const std::string& first, const std::string& other) {
  if (first.empty() || other.empty() || first == other) return;
  require_same_tokenizer(read_tokenizer(first), first, read_tokenizer(other), other);
}

// All are opened and compared before any of them computes.
std::vector<CheckpointSource> open_all(const std::vector<std::string>& runs) {
  if (runs.size() < 2) {
    throw UserError(
        "experts are matched between two runs or more, not " + std::to_string(runs.size()),
        "give another: assay dissect seeds RUN RUN");
  }
  std::vector<CheckpointSource> sources;
  std::map<std::string, std::string> folder_of;  // by the manifest's SHA-256
  for (const std::string& run : runs) {
    sources.push_back(open_checkpoint(run));
    const std::string& folder = sources.back().folder;
    require_experts(sources.back());
    const auto [other, is_new] =
        folder_of.emplace(sha256_file(folder + "/" + kCheckpointManifest), folder);
    if (!is_new) {
      throw UserError(other->second + " and " + folder + " are the same checkpoint",
                      "give runs of other seeds: assay train CONFIG --set run.seed=N");
    }
    require_same_shape(sources.front(), sources.back());
  }
  return sources;
}

// Every pair once, in order.
std::vector<SeedPair> pairs_of(size_t runs) {
  std::vector<SeedPair> pairs;
  for (size_t a = 0; a < runs; ++a) {
    for (size_t b = a + 1; b < runs; ++b) pairs.push_back({.a = a, .b = b, .layers = {}});
  }
  return pairs;
}

}  // namespace

RunChoices record_choices(HeldOut& text) {
  ChoiceRecorder recorder(text);
  RunChoices choices;
  for (int i = 0; i < text.micro_batches(); ++i) {
    const Batch batch = text.micro(i);
    choices.token.insert(choices.token.end(), batch.token.data,
                         batch.token.data + batch.token.dim[0]);
    text.evaluate(i, &recorder);
  }
  choices.layers = std::move(recorder.layers);
  for (const LayerChoices& layer : choices.layers) {
    CHECK(int64_t(layer.expert.size()) == int64_t(choices.token.size()) * layer.top_k,
          "layer %ld: %zu choices of %zu tokens", long(layer.layer), layer.expert.size(),
          choices.token.size());
  }
  return choices;
}

SeedsReport measure_seeds(const std::vector<std::string>& runs, const HeldOutOptions& text,
                          const MatchPlan& plan, const SeedsWatch& watch) {
  const std::vector<CheckpointSource> sources = open_all(runs);
  const MoeConfig& moe = *sources.front().config.model.moe;
  SeedsReport report{.runs = {},
                     .text_sha256 = {},
                     .experts = moe.experts,
                     .top_k = moe.top_k,
                     .tokens = 0,
                     .shuffles = plan.shuffles,
                     .differences = {},
                     .pairs = pairs_of(runs.size())};
  std::vector<RunChoices> choices;
  std::string tokenizer;
  for (const CheckpointSource& source : sources) {
    HeldOutOptions options = text;
    if (!report.runs.empty()) options.warn = {};  // the same text
    HeldOut held_out(source.folder, options);
    const SeedRun run{.run = name_of(source),
                      .checkpoint = source.folder,
                      .checkpoint_sha256 = held_out.checkpoint_sha256(),
                      .step = source.state.step,
                      .seed = int64_t(source.config.run.seed),
                      .imported_sha256 = imported_weights(name_of(source))};
    if (report.runs.empty()) {
      report.text_sha256 = held_out.text_sha256();
      report.tokens = held_out.tokens();
    } else {
      require_one_tokenizer(tokenizer, held_out.tokenizer());
      require_same_text(report.runs.front(), report.text_sha256, held_out);
    }
    if (tokenizer.empty()) tokenizer = held_out.tokenizer();
    report.runs.push_back(run);
    for (const std::string& field :
         model_differences(sources.front().config, held_out.source().config)) {
      if (std::find(report.differences.begin(), report.differences.end(), field) ==
          report.differences.end()) {
        report.differences.push_back(field);
      }
    }
    choices.push_back(record_choices(held_out));
  }

  const auto layers = int64_t(choices.front().layers.size());
  const int64_t all = int64_t(report.pairs.size()) * layers;
  int64_t done = 0;
  for (SeedPair& pair : report.pairs) {
    for (size_t l = 0; l < size_t(layers); ++l) {
      watch(done++, all);
      pair.layers.push_back(match_experts(choices[pair.a].layers[l], choices[pair.b].layers[l],
                                          choices.front().token, plan));
    }
  }
  watch(all, all);
  return report;
}

}  // namespace assay
