#include "session/sample_evaluator.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "comm/agree.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/run/run_dir.h"
#include "eval/prompt_file.h"
#include "eval/ranks.h"
#include "models/linear/precision.h"
#include "session/step_measurements.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kTextsAtOnce = 32;

Tokenizer samples_tokenizer(const std::string& file) {
  if (file.empty()) {
    throw UserError("eval.samples is set, but there is no tokenizer",
                    "set data.tokenizer to the shards' tokenizer, or --set eval.samples=null");
  }
  Tokenizer tokenizer = read_tokenizer(file);
  tokenizer.eot();
  return tokenizer;
}

std::vector<std::vector<int32_t>> fitting(const std::vector<std::string>& prompts,
                                          const Tokenizer& tokenizer, int64_t sequence) {
  std::vector<std::vector<int32_t>> tokens = encode_prompts(prompts, tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (int64_t(tokens[i].size()) <= sequence) continue;
    throw UserError(strprintf("eval.samples: prompt %zu has %zu tokens with the <|endoftext|> "
                              "before it, but run.sequence is %ld",
                              i + 1, tokens[i].size(), long(sequence)),
                    "give a shorter prompt");
  }
  return tokens;
}

GeneratorConfig generator_config(const Config& config, const Tokenizer& tokenizer,
                                 const std::vector<std::vector<int32_t>>& prompts) {
  const int64_t rows = config.run.micro_batch * config.run.sequence;
  return {.texts = std::min({int64_t(prompts.size()), kTextsAtOnce, rows}),
          .positions = config.run.sequence,
          .rows = rows,
          .vocab = tokenizer.vocab_size(),
          .unused = tokenizer.unused_ids(),
          .tokens = config.eval.samples->tokens,
          .end = tokenizer.eot(),
          .sampling = {.temperature = config.eval.samples->temperature}};
}

// A rank's texts, for the others.
std::string texts_json(const std::vector<GeneratedText>& texts) {
  auto j = ordered_json::array();
  for (const GeneratedText& text : texts) j.push_back({int(text.end), text.tokens});
  return j.dump();
}

void append_texts(std::vector<GeneratedText>& texts, const std::string& json) {
  for (const ordered_json& j : json_or_throw<ordered_json>(json)) {
    texts.push_back(
        {.tokens = j.at(1).get<std::vector<int32_t>>(), .end = TextEnd(j.at(0).get<int>())});
  }
}

// One line of JSON; a text may end inside a UTF-8 character.
std::string line_of(const ordered_json& json) {
  return json_text(json);
}

// The file's lines of steps before `step`: a repeated evaluation replaces its own lines.
std::string lines_before(const std::string& path, int64_t step) {
  return std::filesystem::exists(path) ? sample_lines_up_to(read_regular_file(path), step - 1) : "";
}

}  // namespace

TrainingSamples::TrainingSamples(const Config& config, const RunData& data, std::string run,
                                 const EvaluationRanks& ranks)
    : config_(*config.eval.samples),
      every_(config_.every > 0 ? config_.every : config.eval.every),
      vocab_(config.model.vocab_size),
      run_(std::move(run)),
      ranks_(ranks),
      own_scales_(rows_have_own_scales(precision_table(config.precision, config.model))),
      tokenizer_(samples_tokenizer(data.tokenizer)),
      prompts_(config_.file.empty() ? config_.prompts : read_prompts(config_.file)),
      tokens_(fitting(prompts_, tokenizer_, config.run.sequence)),
      generator_(generator_config(config, tokenizer_, tokens_)) {}

void TrainingSamples::plan(MemoryPlan& plan, Model& model) {
  generator_.plan(plan, model, vocab_);
}

std::string TrainingSamples::prompts_sha256() const {
  std::string all;
  for (const std::string& prompt : prompts_) all += strprintf("%zu:", prompt.size()) + prompt;
  return sha256_hex(all);
}

bool TrainingSamples::due(const EvalMoment& at) const {
  return at.last || (at.landing && config_.every == 0) || at.steps_done % every_ == 0;
}

std::optional<std::vector<GeneratedText>> TrainingSamples::generate(Exec on, Model& model,
                                                                    const EvalWatch& alone) {
  struct Interrupted {};
  const EvalWatch watch = ranks_.in_step(alone);
  const int64_t prompts = int64_t(tokens_.size()), rank = rank_of(ranks_.sharing);
  // A GPU's products may round otherwise for another number of texts.
  const bool shared = own_scales_ && model.backend() == Backend::kCpu;
  const int64_t ranks = shared ? size_of(ranks_.sharing) : 1;
  const int64_t begin = std::min(prompts, prompts * rank / ranks);
  const int64_t end = std::min(prompts, prompts * (rank + 1) / ranks);
  std::vector<GeneratedText> texts;
  const PartEnd part = run_shared_part(ranks_, [&] {
    try {
      texts = generator_.run(
          on, model, {tokens_.begin() + begin, tokens_.begin() + end},
          [&](size_t, int32_t) {
            if (watch.interrupted && watch.interrupted()) throw Interrupted{};
          },
          begin);
      return PartEnd::kDone;
    } catch (const Interrupted&) {
      return PartEnd::kInterrupted;
    }
  });
  if (part == PartEnd::kInterrupted) return std::nullopt;
  if (size_of(ranks_.sharing) == 1) return texts;
  std::vector<GeneratedText> all;
  for (const std::string& json : gather_texts(*ranks_.sharing, texts_json(texts)))
    append_texts(all, json);
  return all;
}

std::optional<Evaluation> TrainingSamples::evaluate(Exec on, Model& model, const EvalMoment& at,
                                                    const EvalWatch& watch) {
  const std::optional<std::vector<GeneratedText>> generated = generate(on, model, watch);
  if (!generated) return std::nullopt;
  const std::vector<GeneratedText>& texts = *generated;
  CHECK(texts.size() == prompts_.size(), "%zu texts of all ranks for %zu prompts", texts.size(),
        prompts_.size());
  std::string lines;
  Evaluation result{.results = {}, .text = "samples"};
  int64_t drawn = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = tokenizer_.decode(texts[i].tokens);
    drawn += int64_t(texts[i].tokens.size());
    ordered_json j;
    j["step"] = at.steps_done;
    j["prompt"] = prompts_[i];
    j["text"] = text;
    j["tokens"] = texts[i].tokens;
    j["end"] = text_end_name(texts[i].end);
    lines += line_of(j) + "\n";
    result.text += "\n" + line_of(prompts_[i] + text);
  }
  run_part(ranks_.all, [&] {
    const std::string path = run_ + "/" + kSamplesFile;
    if (ranks_.first()) write_file_atomic(path, lines_before(path, at.steps_done) + lines);
    return PartEnd::kDone;
  });
  const auto count = int64_t(texts.size());
  result.results.push_back({"samples", "tokens_each", double(drawn) / double(count), count});
  return result;
}

}  // namespace assay
