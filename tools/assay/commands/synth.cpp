// assay data synth, assay data ngrams: builds the embedded corpus; measures n-gram models on a
// corpus.
#include "data/synth.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/manifest.h"
#include "data/ngram.h"
#include "data/shard.h"
#include "data/synth_shards.h"
#include "engine/config/yaml.h"
#include "session/run_data.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kHighestOrder = 5;

struct NgramArguments {
  std::string folder;
  int64_t train_tokens = 20'000'000;
  int64_t val_tokens = 0;
  bool json = false;
};

// The first `limit` tokens of a split. UserError when there are fewer than two.
std::vector<int32_t> first_tokens(const Manifest& manifest, const std::string& folder,
                                  const std::string& split, int64_t limit) {
  std::vector<int32_t> tokens;
  for (const ShardEntry& shard : manifest.shards) {
    const auto have = static_cast<int64_t>(tokens.size());
    if (shard.split != split || have >= limit) continue;
    const Shard file(folder + "/" + shard.file);
    const int64_t count = std::min(limit - have, file.tokens());
    std::vector<std::byte> raw(static_cast<size_t>(count * file.token_bytes()));
    tokens.resize(static_cast<size_t>(have + count));
    file.read(0, manifest.vocab_size, {tokens.data() + have, {count}},
              {raw.data(), {static_cast<int64_t>(raw.size())}});
  }
  if (tokens.size() < 2) {
    throw UserError(folder + ": no " + split + " tokens",
                    split == "val" ? "prepare it with --val or --val-every above 0"
                                   : "prepare it from more text");
  }
  return tokens;
}

Json ngram_losses(const NgramArguments& a) {
  const Manifest manifest = read_manifest(a.folder);
  const auto train = first_tokens(manifest, a.folder, "train", a.train_tokens);
  const auto val =
      first_tokens(manifest, a.folder, "val", a.val_tokens > 0 ? a.val_tokens + 1 : INT64_MAX);
  const NgramModel model(kHighestOrder, manifest.vocab_size,
                         {train.data(), {static_cast<int64_t>(train.size())}});
  return {{"folder", a.folder},
          {"train_tokens", train.size()},
          {"val_tokens", val.size() - 1},
          {"nats", model.losses({val.data(), {static_cast<int64_t>(val.size())}})}};
}

void print_ngrams(const Json& result) {
  std::printf("interpolated Kneser-Ney, %ld training and %ld validation tokens, nats per token\n",
              result["train_tokens"].get<long>(), result["val_tokens"].get<long>());
  const char* names[] = {"unigram", "bigram", "3-gram", "4-gram", "5-gram"};
  for (size_t k = 0; k < result["nats"].size(); ++k) {
    std::printf("  %-8s %.4f\n", names[k], result["nats"][k].get<double>());
  }
}

int run_ngrams(const NgramArguments& a) {
  const Json result = ngram_losses(a);
  if (a.json) {
    print_json(result);
  } else {
    print_ngrams(result);
  }
  return kExitDone;
}

struct SynthArguments {
  std::string config;
  std::vector<std::string> sets;
  std::string folder;
  SynthConfig synth;
  int64_t stories = 0;
  bool overwrite = false;
  bool ngrams = false;
  bool json = false;
};

// What the data.synth of CONFIG says. UserError if its data are files.
SynthConfig configured(const Config& config, const std::string& file) {
  if (config.data.synth) return *config.data.synth;
  throw UserError(file + ": data.synth is absent, its data are files",
                  "give a configuration with a data.synth section, or --out DIR");
}

SynthCorpus build(const SynthArguments& a) {
  if (a.config.empty()) {
    if (a.folder.empty()) {
      throw UserError("assay data synth: neither a folder nor a configuration was given",
                      "give --out DIR, or a CONFIG to build its corpus, or --stories N to print "
                      "some stories");
    }
    return write_synth_corpus(shards_of(a.synth), a.folder,
                              a.overwrite ? Existing::kReplace : Existing::kRefuse);
  }
  const Config config = load_config(a.config, a.sets);
  return cached_synth_corpus(shards_of(configured(config, a.config)), config.data.cache);
}

// Of the seed of CONFIG, or of --seed.
int print_stories(const SynthArguments& a) {
  const SynthConfig synth =
      a.config.empty() ? a.synth : configured(load_config(a.config, a.sets), a.config);
  StoryGenerator generator(static_cast<uint64_t>(synth.seed));
  for (int64_t i = 0; i < a.stories; ++i)
    std::printf("%s\n<|endoftext|>\n", generator.next().c_str());
  return kExitDone;
}

int run_synth(const SynthArguments& a) {
  if (a.stories > 0) return print_stories(a);
  const SynthCorpus corpus = build(a);
  const Manifest manifest = read_manifest(corpus.folder);
  Json result = {{"folder", corpus.folder},
                 {"tokenizer", corpus.tokenizer},
                 {"train", corpus.train},
                 {"val", corpus.val},
                 {"train_tokens", manifest.tokens("train")},
                 {"val_tokens", manifest.tokens("val")},
                 {"vocab_size", manifest.vocab_size},
                 {"text_bytes", manifest.text_bytes}};
  if (a.ngrams) result["ngrams"] = ngram_losses({.folder = corpus.folder});
  if (a.json) {
    print_json(result);
    return kExitDone;
  }
  std::printf("%s: %ld training and %ld validation tokens, vocabulary %ld, %ld bytes of text\n",
              corpus.folder.c_str(), static_cast<long>(manifest.tokens("train")),
              static_cast<long>(manifest.tokens("val")), static_cast<long>(manifest.vocab_size),
              static_cast<long>(manifest.text_bytes));
  if (a.ngrams) print_ngrams(result["ngrams"]);
  return kExitDone;
}

}  // namespace

void add_synth_commands(Commands& commands) {
  CLI::App* data = commands.app.get_subcommand("data");

  auto s = std::make_shared<SynthArguments>();
  CLI::App* synth =
      data->add_subcommand("synth", "build the embedded corpus: generated stories as shards");
  synth->add_option("CONFIG", s->config,
                    "configuration: build the corpus of its data.synth in its data.cache");
  synth->add_option("-o,--out", s->folder, "folder for shards, tokenizer.json and manifest.json")
      ->excludes("CONFIG");
  synth
      ->add_option("--tokens", s->synth.train_tokens,
                   "approximate number of training tokens (default: 8000000)")
      ->check(whole_between(int64_t{1000}, int64_t{1} << 40));
  synth
      ->add_option("--val-tokens", s->synth.val_tokens,
                   "approximate number of validation tokens (default: 200000)")
      ->check(whole_between(int64_t{1000}, int64_t{1} << 40));
  synth
      ->add_option("--vocab-size", s->synth.vocab_size,
                   "vocabulary of the tokenizer (default: 4096)")
      ->check(whole_between(int64_t{257}, int64_t{1} << 20));
  synth->add_option("--seed", s->synth.seed, "seed of the generator (default: 1)")
      ->check(zero_or_more());
  CLI::Option* stories =
      synth
          ->add_option("--stories", s->stories,
                       "only print the first N stories of --seed, or of the seed of CONFIG")
          ->check(zero_or_more());
  synth->add_flag("--overwrite", s->overwrite, "replace an existing corpus in the folder");
  synth->add_flag("--ngrams", s->ngrams,
                  "also train n-gram models on the corpus and print their losses");
  synth->add_flag("--json", s->json, "print one JSON object on stdout");
  CLI::Option* config = synth->get_option("CONFIG");
  add_set_option(synth, s->sets)->needs(config);
  for (const char* of_flags : {"--tokens", "--val-tokens", "--vocab-size", "--seed", "--overwrite"})
    synth->get_option(of_flags)->excludes(config);
  for (const char* of_corpus :
       {"--out", "--tokens", "--val-tokens", "--vocab-size", "--overwrite", "--ngrams", "--json"})
    synth->get_option(of_corpus)->excludes(stories);
  synth->footer("docs/synth.md describes how the stories are made.");
  commands.on_chosen(synth, [s] { return run_synth(*s); });

  auto n = std::make_shared<NgramArguments>();
  CLI::App* ngrams =
      data->add_subcommand("ngrams", "losses of n-gram models, to compare a model's loss with");
  ngrams->add_option("DIR", n->folder, "corpus: a folder with manifest.json")->required();
  ngrams
      ->add_option("--train-tokens", n->train_tokens,
                   "use the first N training tokens (default: 20000000)")
      ->check(above_zero());
  ngrams
      ->add_option("--val-tokens", n->val_tokens,
                   "use the first N validation tokens (default: 0 = all)")
      ->check(zero_or_more());
  ngrams->add_flag("--json", n->json, "print one JSON object on stdout");
  ngrams->footer(
      "Example:\n"
      "  assay data ngrams mine --train-tokens 1000000");
  commands.on_chosen(ngrams, [n] { return run_ngrams(*n); });
}

}  // namespace assay
