// assay sample: generates text from a checkpoint after prompts.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/check.h"
#include "engine/config/schedule.h"
#include "engine/run/imported_run.h"
#include "eval/generate.h"
#include "eval/prompt_file.h"
#include "session/loaded_model.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"
#include "tools/assay/prompt_loop.h"
#include "tools/assay/standard_input.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct SampleArguments {
  std::string checkpoint;
  std::vector<std::string> prompts;
  std::string prompt_file, tokenizer;
  int64_t samples = 1, tokens = 128;
  Sampling sampling = {.temperature = 0.8};
  int64_t context = 0, batch = 32;
  std::string device = "auto";
  bool special_tokens = false, past_end = false, interactive = false, json = false;
};

// Prompt tokens in one call of the model; short prompts are read together.
constexpr int64_t kRowsAtOnce = 2048;

void check_sampling(const Sampling& s) {
  if (!(s.temperature >= 0) || std::isinf(s.temperature)) {
    throw UserError(strprintf("--temperature is %g, must be finite and >= 0", s.temperature),
                    "0 is greedy, 1 samples from the model's distribution");
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

void check_interactive(const SampleArguments& a) {
  if (!a.prompts.empty() || !a.prompt_file.empty() || a.json || a.samples > 1) {
    throw UserError("--interactive reads its prompts from the terminal and writes one text each",
                    "leave out --prompt, --prompts, --samples and --json; enter a line again for "
                    "another continuation");
  }
  if (!on_terminal()) {
    throw UserError("--interactive needs a terminal for input and output",
                    "in a pipe: assay sample RUN --prompts -");
  }
}

// Prompts of the command line, of a file or of standard input; without any, one empty prompt.
std::vector<std::string> prompts_of(const SampleArguments& a) {
  if (!a.prompts.empty() && !a.prompt_file.empty()) {
    throw UserError("both --prompt and --prompts were given", "use only one of them");
  }
  if (!a.prompts.empty()) return a.prompts;
  const std::string name = "standard input";
  if (a.prompt_file == "-") {
    return parse_piped_prompts(read_standard_input("reading prompts from standard input"), name);
  }
  if (!a.prompt_file.empty()) return read_prompts(a.prompt_file);
  if (standard_input_is_piped()) {
    const std::string text = read_standard_input(
        "reading prompts from standard input, one per line (without any: < /dev/null)");
    if (!text.empty()) return parse_piped_prompts(text, name);
  }
  return {""};
}

void check_length(const std::vector<int32_t>& tokens, size_t number, int64_t context) {
  if (int64_t(tokens.size()) <= context) return;
  throw UserError(strprintf("prompt %zu has %zu tokens with the <|endoftext|> before it, but "
                            "the context is %ld",
                            number, tokens.size(), long(context)),
                  "give a shorter prompt, or a --context beyond the length used in training");
}

std::vector<std::vector<int32_t>> encoded(const SampleArguments& a,
                                          const std::vector<std::string>& prompts,
                                          const Tokenizer& tokenizer, int64_t context) {
  std::vector<std::vector<int32_t>> tokens = encode_prompts(
      prompts, tokenizer, a.special_tokens ? SpecialTokens::kAsTokens : SpecialTokens::kAsText);
  bool noted = a.special_tokens;
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_length(tokens[i], i + 1, context);
    const std::string special = noted ? "" : special_token_in(prompts[i], tokenizer);
    if (special.empty()) continue;
    noted = true;
    std::fprintf(stderr,
                 "note: %s in a prompt is ordinary text; with --special-tokens it is the token\n",
                 special.c_str());
  }
  return tokens;
}

// The sizes that memory is planned for. The cache counts the positions of all its texts in 32 bits.
GeneratorConfig generator_config(const SampleArguments& a, int64_t context,
                                 const Tokenizer& tokenizer,
                                 const std::vector<std::vector<int32_t>>& prompts) {
  int64_t longest = 0, all = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, int64_t(prompt.size()));
    all += int64_t(prompt.size());
  }
  const int64_t positions = std::min(context, longest + a.tokens);
  const int64_t most = std::numeric_limits<int32_t>::max() / positions;
  GeneratorConfig config{.texts = std::min({a.batch, int64_t(prompts.size()), most}),
                         .positions = positions,
                         .vocab = tokenizer.vocab_size(),
                         .unused = tokenizer.unused_ids(),
                         .tokens = a.tokens,
                         .end = a.past_end ? -1 : tokenizer.eot(),
                         .sampling = a.sampling};
  config.rows = std::max({config.positions, config.texts, std::min(all, kRowsAtOnce)});
  return config;
}

const std::string& recipe_of(const LoadedModel& loaded) {
  return loaded.session.config.precision.recipe;
}

std::string phase_of(const LoadedModel& loaded) {
  return precision_phase(loaded.session.config, loaded.source.state.step);
}

double per_second(int64_t tokens, double seconds) {
  return seconds > 0 ? double(tokens) / seconds : 0.0;
}

void print_speed(const LoadedModel& loaded, const GenerationWork& work, int64_t texts) {
  const bool in_recipe = phase_of(loaded) == "recipe";
  std::string line =
      strprintf("%s, %s: %ld prompt tokens at %.0f tokens/s", loaded.session.device.name().c_str(),
                in_recipe ? recipe_of(loaded).c_str() : "bf16", long(work.prompt_tokens),
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

// Prompts and the texts generated from them: text i continues prompt i % prompts.size(). So the
// first sample of each prompt is the same for any number of samples.
struct Written {
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> prompt_tokens;  // of each text
  std::vector<GeneratedText> texts;
  GenerationWork work;

  size_t samples() const { return prompt_tokens.size() / prompts.size(); }
  size_t text_of(size_t prompt, size_t sample) const { return sample * prompts.size() + prompt; }
};

ordered_json text_json(const Written& written, size_t prompt, size_t sample,
                       const Tokenizer& tokenizer) {
  const size_t i = written.text_of(prompt, sample);
  const GeneratedText& generated = written.texts[i];
  ordered_json text;
  text["prompt"] = written.prompts[prompt];
  text["sample"] = sample + 1;
  text["text"] = tokenizer.decode(generated.tokens);
  text["prompt_tokens"] = written.prompt_tokens[i];
  text["tokens"] = generated.tokens;
  text["end"] = text_end_name(generated.end);
  return text;
}

ordered_json result_json(const LoadedModel& loaded, const SampleArguments& a, int64_t context,
                         const Written& written, const Tokenizer& tokenizer) {
  ordered_json j;
  j["checkpoint"] = loaded.source.folder;
  j["step"] = loaded.source.state.step;
  j["device"] = loaded.session.device.name();
  j["recipe"] = recipe_of(loaded);
  j["phase"] = phase_of(loaded);
  j["temperature"] = a.sampling.temperature;
  j["top_k"] = a.sampling.top_k;
  j["top_p"] = a.sampling.top_p;
  j["seed"] = a.sampling.seed;
  j["context_tokens"] = context;
  j["texts"] = ordered_json::array();
  for (size_t prompt = 0; prompt < written.prompts.size(); ++prompt) {
    for (size_t sample = 0; sample < written.samples(); ++sample) {
      j["texts"].push_back(text_json(written, prompt, sample, tokenizer));
    }
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

void print_texts(const Written& written, const Tokenizer& tokenizer) {
  for (size_t prompt = 0; prompt < written.prompts.size(); ++prompt) {
    for (size_t sample = 0; sample < written.samples(); ++sample) {
      const GeneratedText& text = written.texts[written.text_of(prompt, sample)];
      std::string title = strprintf("--- prompt %zu", prompt + 1);
      if (written.samples() > 1) title += strprintf(", sample %zu", sample + 1);
      print_text((prompt + sample > 0 ? "\n" : "") + title + ": " + end_text(text) + "\n" +
                 written.prompts[prompt] + tokenizer.decode(text.tokens) + "\n");
    }
  }
}

struct Stopped {};

// Continues every line that is typed: line n as `assay sample` continues its n-th prompt.
int continue_typed_lines(const SampleArguments& a, const CheckpointSource& source,
                         const Tokenizer& tokenizer, int64_t context) {
  GeneratorConfig config = generator_config(a, context, tokenizer, {{tokenizer.eot()}});
  config.positions = config.rows = context;
  LoadedModel loaded(source, a.device, {.positions = config.positions, .rows = config.rows});
  Generator generator(config);
  generator.plan(loaded.plan, *loaded.model, source.config.model.vocab_size);
  loaded.allocate();
  print_text(
      strprintf("%s, step %ld\n"
                "Type the beginning of a text. Ctrl-C stops; Ctrl-D or an empty line ends.\n",
                source.folder.c_str(), long(source.state.step)));
  int64_t lines = 0;
  run_prompt_loop([&](const std::string& line, const StopRequested& stop) {
    const auto tokens = encoded(a, {line}, tokenizer, context);
    print_text(line);
    try {
      const auto texts = generator.run(
          loaded.on, *loaded.model, tokens,
          [&](size_t, int32_t token) {
            if (stop()) throw Stopped{};
            print_text(tokenizer.decode(std::vector<int32_t>{token}));
          },
          lines++);
      print_text("\n[" + end_text(texts[0]) + "]\n");
    } catch (const Stopped&) {
      print_text("\n[stopped]\n");
    }
  });
  return kExitDone;
}

int sample(const SampleArguments& a) {
  check_sampling(a.sampling);
  if (a.interactive) check_interactive(a);
  const CheckpointSource source = open_checkpoint(a.checkpoint);
  const int64_t context = a.context > 0 ? a.context : source.config.run.sequence;
  require_within_window(run_of(source), context, a.context > 0 ? "--context" : "run.sequence");
  if (a.interactive) {
    return continue_typed_lines(a, source, checkpoint_tokenizer(source, a.tokenizer), context);
  }
  Written written;
  written.prompts = prompts_of(a);
  const Tokenizer tokenizer = checkpoint_tokenizer(source, a.tokenizer);
  const auto tokens = encoded(a, written.prompts, tokenizer, context);
  for (int64_t i = 0; i < a.samples; ++i) {
    written.prompt_tokens.insert(written.prompt_tokens.end(), tokens.begin(), tokens.end());
  }
  const GeneratorConfig config = generator_config(a, context, tokenizer, written.prompt_tokens);

  LoadedModel loaded(source, a.device, {.positions = config.positions, .rows = config.rows});
  Generator generator(config);
  generator.plan(loaded.plan, *loaded.model, source.config.model.vocab_size);
  loaded.allocate();
  const bool streams = !a.json && written.prompt_tokens.size() == 1;
  if (streams) print_text(written.prompts[0]);
  written.texts =
      generator.run(loaded.on, *loaded.model, written.prompt_tokens, [&](size_t, int32_t token) {
        if (streams) print_text(tokenizer.decode(std::vector<int32_t>{token}));
      });
  written.work = generator.work();
  if (streams) {
    print_text("\n");
  } else if (a.json) {
    print_json(result_json(loaded, a, context, written, tokenizer));
  } else {
    print_texts(written, tokenizer);
  }
  std::fprintf(stderr, "%s, step %ld%s\n", source.folder.c_str(), long(source.state.step),
               streams ? (": " + end_text(written.texts[0])).c_str() : "");
  print_speed(loaded, written.work, config.texts);
  return kExitDone;
}

}  // namespace

void add_sample_command(Commands& commands) {
  auto a = std::make_shared<SampleArguments>();
  CLI::App* sub = commands.app.add_subcommand("sample", "generate text from a checkpoint");
  sub->add_option("RUN", a->checkpoint,
                  "a run (its newest checkpoint is used) or a checkpoint: RUN/checkpoints/step-N")
      ->required();
  sub->add_option("--prompt", a->prompts,
                  "the beginning of a text; may be repeated, one text each (default: none, the "
                  "model writes a text from its beginning)")
      ->allow_extra_args(false);
  sub->add_option("--prompts", a->prompt_file,
                  "file with one prompt per line (*.jsonl: objects with \"prompt\"); - reads "
                  "standard input");
  sub->add_flag("-i,--interactive", a->interactive,
                "continue every line typed on the terminal, until Ctrl-D or an empty line");
  sub->add_option("--samples", a->samples, "texts per prompt (default: 1)")
      ->check(whole_between(1, 1 << 16));
  sub->add_option("--tokens", a->tokens, "generate at most this many per text (default: 128)")
      ->check(whole_between(1, 1 << 20));
  sub->add_option("--temperature", a->sampling.temperature,
                  "0 = greedy, 1 = the model's distribution, between: favours likely tokens "
                  "(default: 0.8)");
  sub->add_option("--top-k", a->sampling.top_k,
                  "draw only from the K likeliest tokens (default: 0 = all)");
  sub->add_option("--top-p", a->sampling.top_p,
                  "draw only from the likeliest tokens that together have this probability "
                  "(default: 1 = all)");
  sub->add_option("--seed", a->sampling.seed,
                  "the same seed and prompts give the same texts (default: 1)")
      ->check(zero_or_more());
  sub->add_flag("--special-tokens", a->special_tokens,
                "<|endoftext|> and other special tokens written in a prompt are these tokens, "
                "not text");
  sub->add_flag("--past-end", a->past_end,
                "do not stop at <|endoftext|>: the model begins another text");
  sub->add_option("--context", a->context,
                  "the model sees at most this many tokens of a prompt and its text (default: the "
                  "sequence length of training); the one it draws after them ends the text")
      ->check(whole_between(2, 1 << 20));
  sub->add_option("--batch", a->batch,
                  "texts generated at a time (default: 32); fewer need less memory")
      ->check(whole_between(1, 1 << 16));
  sub->add_option("--tokenizer", a->tokenizer,
                  "the tokenizer, if it is not the one of the run's data");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_flag("--json", a->json, "print one JSON object on stdout, with the tokens");
  sub->footer(
      "Examples:\n"
      "  assay sample runs/moe                                  without a prompt\n"
      "  assay sample runs/moe --interactive                    continue what you type\n"
      "  assay sample runs/moe --prompt 'Once upon a time' --samples 3\n"
      "  assay sample runs/moe --prompt 'The cat' --prompt 'The dog' --top-p 0.9\n"
      "  assay sample runs/moe --prompts prompts.txt --json > texts.json\n"
      "  head -3 stories.txt | assay sample runs/moe --temperature 0\n"
      "A single text is printed as it is generated. Token counts and speed go to "
      "stderr. Nothing is written to the run. More: docs/sample.md");
  commands.on_chosen(sub, [a] { return sample(*a); });
}

}  // namespace assay
