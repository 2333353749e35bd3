#include "session/sample_evaluator.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "data/tokenizer_files.h"
#include "engine/run/run_dir.h"
#include "eval/prompt_file.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kTextsAtOnce = 32;

struct Interrupted {};

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
          .tokens = config.eval.samples->tokens,
          .end = tokenizer.eot(),
          .sampling = {.temperature = config.eval.samples->temperature}};
}

// One line of JSON; a text may end inside a UTF-8 character.
std::string line_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The file's lines of steps before `step`: a repeated evaluation replaces its own lines.
std::string lines_before(const std::string& path, int64_t step) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto json = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool known = json.is_object() && json.contains("step") && json["step"].is_number();
    if (known && json["step"].get<int64_t>() < step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

TrainingSamples::TrainingSamples(const Config& config, const RunData& data, std::string run)
    : config_(*config.eval.samples),
      every_(config_.every > 0 ? config_.every : config.eval.every),
      vocab_(config.model.vocab_size),
      run_(std::move(run)),
      tokenizer_(samples_tokenizer(data.tokenizer)),
      prompts_(config_.file.empty() ? config_.prompts : read_prompts(config_.file)),
      tokens_(fitting(prompts_, tokenizer_, config.run.sequence)),
      generator_(generator_config(config, tokenizer_, tokens_)) {}

void TrainingSamples::plan(MemoryPlan& plan, Model& model) {
  generator_.plan(plan, model, vocab_);
}

bool TrainingSamples::due(const EvalMoment& at) const {
  return at.last || (at.landing && config_.every == 0) || at.steps_done % every_ == 0;
}

std::optional<Evaluation> TrainingSamples::evaluate(Exec on, Model& model, const EvalMoment& at,
                                                    const EvalWatch& watch) {
  std::vector<GeneratedText> texts;
  try {
    texts = generator_.run(on, model, tokens_, [&](size_t, int32_t) {
      if (watch.interrupted && watch.interrupted()) throw Interrupted{};
    });
  } catch (const Interrupted&) {
    return std::nullopt;
  }
  const std::string path = run_ + "/" + kSamplesFile;
  std::string file = lines_before(path, at.steps_done);
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
    file += line_of(j) + "\n";
    result.text += "\n" + line_of(prompts_[i] + text);
  }
  write_file_atomic(path, file);
  const auto count = int64_t(texts.size());
  result.results.push_back({"samples", "tokens_each", double(drawn) / double(count), count});
  return result;
}

}  // namespace assay
