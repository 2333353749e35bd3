// assay sample: generates text from a checkpoint after prompts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "eval/generate.h"
#include "eval/prompt_file.h"
#include "session/loaded_model.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> prompts;
  std::string prompt_file, tokenizer;
  int64_t tokens = 128;
  Sampling sampling = {.temperature = 0.8};
  int64_t context = 0, batch = 32;
  std::string device = "auto";
  bool past_end = false, json = false;
};

// Prompt tokens in one call of the model; short prompts are read together.
constexpr int64_t kRowsAtOnce = 2048;

void check_sampling(const Sampling& s) {
  if (!(s.temperature >= 0) || std::isinf(s.temperature)) {
    throw UserError(strprintf("--temperature is %g, must be finite and >= 0", s.temperature),
                    "0 takes the most likely token, 1 draws by the model's own probabilities");
  }
  if (!(s.top_p > 0 && s.top_p <= 1)) {
    throw UserError(strprintf("--top-p is %g, must be > 0 and <= 1", s.top_p),
                    "for example 0.9 drops the least likely tenth of the probability");
  }
  if (s.top_k < 0) {
    throw UserError(strprintf("--top-k is %ld, must be >= 0", long(s.top_k)),
                    "give a number of tokens; 0 draws from all");
  }
}

std::vector<std::string> prompts_of(const Arguments& a) {
  if (!a.prompts.empty() && !a.prompt_file.empty()) {
    throw UserError("both --prompt and --prompts were given", "use only one of them");
  }
  if (!a.prompt_file.empty()) return read_prompts(a.prompt_file);
  if (a.prompts.empty()) {
    throw UserError("no prompt",
                    "give --prompt 'Once upon a time', or --prompts FILE with one prompt per line");
  }
  for (size_t i = 0; i < a.prompts.size(); ++i) {
    if (a.prompts[i].empty()) {
      throw UserError(strprintf("prompt %zu is empty", i + 1), "give the first words of a text");
    }
  }
  return a.prompts;
}

std::vector<std::vector<int32_t>> encoded(const std::vector<std::string>& prompts,
                                          const Tokenizer& tokenizer, int64_t context) {
  std::vector<std::vector<int32_t>> tokens = encode_prompts(prompts, tokenizer);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (int64_t(tokens[i].size()) > context) {
      throw UserError(strprintf("prompt %zu has %zu tokens with the <|endoftext|> before it, but "
                                "the context is %ld",
                                i + 1, tokens[i].size(), long(context)),
                      "give a shorter prompt, or a --context beyond the length used in training");
    }
  }
  return tokens;
}

// The sizes that memory is planned for.
GeneratorConfig generator_config(const Arguments& a, int64_t context, const Tokenizer& tokenizer,
                                 const std::vector<std::vector<int32_t>>& prompts) {
  int64_t longest = 0, all = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, int64_t(prompt.size()));
    all += int64_t(prompt.size());
  }
  GeneratorConfig config{.texts = std::min(a.batch, int64_t(prompts.size())),
                         .positions = std::min(context, longest + a.tokens),
                         .vocab = tokenizer.vocab_size(),
                         .tokens = a.tokens,
                         .end = a.past_end ? -1 : tokenizer.eot(),
                         .sampling = a.sampling};
  config.rows = std::max({config.positions, config.texts, std::min(all, kRowsAtOnce)});
  return config;
}

const std::string& recipe_of(const LoadedModel& loaded) {
  return loaded.session.config.precision.recipe;
}

double per_second(int64_t tokens, double seconds) {
  return seconds > 0 ? double(tokens) / seconds : 0.0;
}

void print_speed(const LoadedModel& loaded, const GenerationWork& work, int64_t texts) {
  std::string line =
      strprintf("%s, %s: %ld prompt tokens at %.0f tokens/s", loaded.session.device.name().c_str(),
                recipe_of(loaded).c_str(), long(work.prompt_tokens),
                per_second(work.prompt_tokens, work.prompt_seconds));
  if (work.decoded_tokens > 0) {
    line += strprintf(", then %ld at %.0f tokens/s", long(work.decoded_tokens),
                      per_second(work.decoded_tokens, work.decode_seconds));
    if (texts > 1) line += strprintf(", %ld texts at a time", long(texts));
  }
  std::fprintf(stderr, "%s\n", line.c_str());
}

std::string end_text(const GeneratedText& text) {
  const auto count = static_cast<long>(text.tokens.size());
  switch (text.end) {
    case TextEnd::kTokens:
      return strprintf("%ld tokens", count);
    case TextEnd::kEndToken:
      return strprintf("<|endoftext|> after %ld tokens", count);
    case TextEnd::kContext:
      return strprintf("%ld tokens, then the context was full", count);
  }
  return "";
}

// Prompts and the texts generated from them.
struct Written {
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> prompt_tokens;
  std::vector<GeneratedText> texts;
  GenerationWork work;
};

ordered_json result_json(const LoadedModel& loaded, const Arguments& a, int64_t context,
                         const Written& written, const Tokenizer& tokenizer) {
  ordered_json j;
  j["checkpoint"] = loaded.source.folder;
  j["step"] = loaded.source.state.step;
  j["device"] = loaded.session.device.name();
  j["recipe"] = recipe_of(loaded);
  j["temperature"] = a.sampling.temperature;
  j["top_k"] = a.sampling.top_k;
  j["top_p"] = a.sampling.top_p;
  j["seed"] = a.sampling.seed;
  j["context_tokens"] = context;
  j["texts"] = ordered_json::array();
  for (size_t i = 0; i < written.texts.size(); ++i) {
    const GeneratedText& generated = written.texts[i];
    ordered_json text;
    text["prompt"] = written.prompts[i];
    text["text"] = tokenizer.decode(generated.tokens);
    text["prompt_tokens"] = written.prompt_tokens[i];
    text["tokens"] = generated.tokens;
    text["end"] = text_end_name(generated.end);
    j["texts"].push_back(text);
  }
  const GenerationWork& work = written.work;
  j["prompt_tokens"] = work.prompt_tokens;
  j["prompt_tokens_per_s"] = per_second(work.prompt_tokens, work.prompt_seconds);
  j["decoded_tokens"] = work.decoded_tokens;
  j["decoded_tokens_per_s"] = per_second(work.decoded_tokens, work.decode_seconds);
  return j;
}

void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int sample(const Arguments& a) {
  check_sampling(a.sampling);
  const CheckpointSource source = open_checkpoint(a.checkpoint);
  Written written;
  written.prompts = prompts_of(a);
  const Tokenizer tokenizer = checkpoint_tokenizer(source, a.tokenizer);
  const int64_t context = a.context > 0 ? a.context : source.config.run.sequence;
  written.prompt_tokens = encoded(written.prompts, tokenizer, context);
  const GeneratorConfig config = generator_config(a, context, tokenizer, written.prompt_tokens);

  LoadedModel loaded(source, a.device, {.positions = config.positions, .rows = config.rows});
  Generator generator(config);
  generator.plan(loaded.plan, *loaded.model, source.config.model.vocab_size);
  loaded.allocate();
  const bool streams = !a.json && written.prompts.size() == 1;
  if (streams) print_text(written.prompts[0]);
  written.texts =
      generator.run(loaded.on, *loaded.model, written.prompt_tokens, [&](size_t, int32_t token) {
        if (streams) print_text(tokenizer.decode(std::vector<int32_t>{token}));
      });
  written.work = generator.work();
  if (streams) print_text("\n");
  if (a.json) {
    print_json(result_json(loaded, a, context, written, tokenizer));
  }
  for (size_t i = 0; !a.json && !streams && i < written.texts.size(); ++i) {
    const std::string title = strprintf("--- prompt %zu: ", i + 1) + end_text(written.texts[i]);
    print_text((i > 0 ? "\n" : "") + title + "\n" + written.prompts[i] +
               tokenizer.decode(written.texts[i].tokens) + "\n");
  }
  std::fprintf(stderr, "%s, step %ld%s\n", source.folder.c_str(), long(source.state.step),
               streams ? (": " + end_text(written.texts[0])).c_str() : "");
  print_speed(loaded, written.work, config.texts);
  return kExitDone;
}

}  // namespace

void add_sample_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand("sample", "generate text from a checkpoint");
  sub->add_option("RUN", a->checkpoint,
                  "a run (its newest checkpoint is used) or a checkpoint: RUN/checkpoints/step-N")
      ->required();
  sub->add_option("--prompt", a->prompts, "beginning of a text; repeat it for several texts")
      ->allow_extra_args(false);
  sub->add_option("--prompts", a->prompt_file,
                  "file with one prompt per line; in a .jsonl file each line is an object with "
                  "\"prompt\"");
  sub->add_option("--tokens", a->tokens, "generate at most this many per prompt (default: 128)")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--temperature", a->sampling.temperature,
                  "0: always the most likely token; 1: draw by the model's own probabilities; "
                  "between: favour likely tokens (default: 0.8)");
  sub->add_option("--top-k", a->sampling.top_k,
                  "draw only from the K likeliest tokens (default: 0 = all)");
  sub->add_option("--top-p", a->sampling.top_p,
                  "draw only from the likeliest tokens that together have this probability "
                  "(default: 1 = all)");
  sub->add_option("--seed", a->sampling.seed,
                  "the same seed and prompts give the same texts (default: 1); a draw depends only "
                  "on seed, prompt number and position");
  sub->add_flag("--past-end", a->past_end,
                "do not stop at <|endoftext|>: the model begins another text");
  sub->add_option("--context", a->context,
                  "at most this many tokens for a prompt and its text (default: the sequence "
                  "length of training)")
      ->check(CLI::Range(2, 1 << 20));
  sub->add_option("--batch", a->batch,
                  "texts generated at a time (default: 32); fewer need less memory")
      ->check(CLI::Range(1, 1 << 16));
  sub->add_option("--tokenizer", a->tokenizer,
                  "the tokenizer, if it is not the one of the run's data");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_flag("--json", a->json, "print one JSON object on stdout, with the tokens");
  sub->footer(
      "Examples:\n"
      "  assay sample runs/moe --prompt 'Once upon a time'\n"
      "  assay sample runs/moe --prompt 'Once upon a time' --temperature 0       the likeliest "
      "text\n"
      "  assay sample runs/moe --prompt 'The cat' --prompt 'The dog' --top-p 0.9 --seed 7\n"
      "  assay sample runs/moe/checkpoints/step-00000720 --prompts prompts.txt --json\n"
      "The text of a single prompt is printed as it is generated. The speeds of reading prompts "
      "and of generating go to stderr.");
  commands.on_chosen(sub, [a] { return sample(*a); });
}

}  // namespace assay
