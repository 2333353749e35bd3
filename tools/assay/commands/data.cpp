// assay data prepare, inspect, verify: turns text into token shards, shows what shards hold, checks
// a corpus against its manifest.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/check.h"
#include "data/inspect.h"
#include "data/json_text.h"
#include "data/manifest.h"
#include "data/prepare.h"
#include "data/tokenizer_files.h"
#include "engine/run/interrupt.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/document_options.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::atomic<bool> stop_requested = false;

struct PrepareArguments {
  DocumentArguments documents;
  std::string tokenizer;
  std::string folder;
  std::string name = "corpus";
  std::vector<std::string> val;
  std::optional<double> val_share;
  std::optional<int64_t> val_every;
  int64_t shard_tokens = 100'000'000;
  std::optional<uint64_t> shuffle;
  bool drop_duplicates = false;
  bool overwrite = false;
  bool json = false;
};

Json manifest_json(const Manifest& manifest, const std::string& folder) {
  Json json;
  json["folder"] = folder;
  json["vocab_size"] = manifest.vocab_size;
  json["eot_id"] = manifest.eot_id;
  json["tokenizer_sha256"] = manifest.tokenizer_sha256;
  json["text_bytes"] = manifest.text_bytes;
  json["validation"] = manifest.validation;
  if (manifest.shuffle_seed) json["shuffle_seed"] = *manifest.shuffle_seed;
  for (const char* split : {"train", "val"})
    json[split] = {{"documents", manifest.documents(split)}, {"tokens", manifest.tokens(split)}};
  json["shards"] = Json::array();
  for (const SourceEntry& source : manifest.sources)
    json["sources"].push_back({{"file", source.file},
                               {"bytes", source.bytes},
                               {"documents", source.documents},
                               {"bad_lines", source.bad_lines},
                               {"not_utf8", source.not_utf8},
                               {"sha256", source.sha256}});
  for (const ShardEntry& shard : manifest.shards)
    json["shards"].push_back({{"file", shard.file},
                              {"split", shard.split},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents},
                              {"sha256", shard.sha256}});
  return json;
}

void print_corpus(const Manifest& manifest, const std::string& folder) {
  size_t width = 5;
  for (const ShardEntry& shard : manifest.shards) width = std::max(width, shard.file.size());
  const int columns = static_cast<int>(width);
  std::printf("%s\n  %-*s %5s %14s %10s  %s\n", folder.c_str(), columns, "shard", "split", "tokens",
              "documents", "sha256");
  for (const ShardEntry& shard : manifest.shards)
    std::printf("  %-*s %5s %14ld %10ld  %.12s...\n", columns, shard.file.c_str(),
                shard.split.c_str(), static_cast<long>(shard.tokens),
                static_cast<long>(shard.documents), shard.sha256.c_str());
  const int64_t held_out = manifest.documents("val");
  const int64_t documents = manifest.documents("train") + held_out;
  std::printf("validation: %ld of %ld documents (%.2f%%), %s\n", static_cast<long>(held_out),
              static_cast<long>(documents),
              100 * static_cast<double>(held_out) / static_cast<double>(documents),
              manifest.validation.c_str());
  if (manifest.shuffle_seed)
    std::printf("order: documents shuffled, seed %lu\n",
                static_cast<unsigned long>(*manifest.shuffle_seed));
  const double tokens = static_cast<double>(manifest.tokens("train") + manifest.tokens("val"));
  std::printf("%ld bytes of text, %.2f bytes per token, vocabulary %ld\n",
              static_cast<long>(manifest.text_bytes),
              static_cast<double>(manifest.text_bytes) / tokens,
              static_cast<long>(manifest.vocab_size));
}

// UserError when validation documents are chosen in more than one way.
void require_one_validation(const PrepareArguments& a) {
  std::vector<std::string> given;
  if (!a.val.empty()) given.push_back("--val");
  if (a.val_share) given.push_back(strprintf("--val-share %g", *a.val_share));
  if (a.val_every) given.push_back(strprintf("--val-every %ld", static_cast<long>(*a.val_every)));
  if (given.size() > 1)
    throw UserError(given[0] + " and " + given[1] + " are both given",
                    "choose one way to hold documents out for validation");
}

int run_prepare(const PrepareArguments& a) {
  require_one_validation(a);
  const Tokenizer tokenizer = read_tokenizer(a.tokenizer);
  PrepareConfig config;
  config.inputs = a.documents.inputs;
  config.val_inputs = a.val;
  config.documents = a.documents.options();
  config.corpus = {.folder = a.folder,
                   .name = a.name,
                   .shard_tokens = a.shard_tokens,
                   .existing = a.overwrite ? Existing::kReplace : Existing::kRefuse};
  config.val_share = a.val_share;
  config.val_every = a.val_every.value_or(config.val_every);
  config.shuffle_seed = a.shuffle;
  config.duplicates = a.drop_duplicates ? Duplicates::kDrop : Duplicates::kKeep;
  config.threads = a.documents.threads;
  config.stop = &stop_requested;
  for (const int number : {SIGINT, SIGTERM}) {
    if (!stays_ignored(number)) signal(number, [](int) { stop_requested = true; });
  }
  PrepareResult result;
  try {
    result = prepare(tokenizer, config);
  } catch (const Interrupted&) {
    std::fprintf(stderr, "interrupted: nothing was written to %s\n", a.folder.c_str());
    return kExitInterrupted;
  }
  warn_of_input(result.notes);
  if (a.json) {
    Json json = manifest_json(result.manifest, a.folder);
    json["empty_documents"] = result.empty_documents;
    json["duplicate_documents"] = result.duplicate_documents;
    json["bad_lines"] = result.notes.skipped.lines;
    json["not_utf8_documents"] = result.notes.not_utf8;
    json["nul_documents"] = result.notes.nul;
    json["too_long_to_compare"] = result.notes.too_long;
    json["trained_val_files"] = result.notes.trained_val_files;
    json["trained_val_documents"] = result.notes.trained_val_documents;
    json["files_read"] = result.notes.files;
    json["files_given_again"] = result.notes.repeated.files;
    json["files_packed_again"] = result.notes.packed_twins.files;
    json["splits_in_files"] = result.notes.splits;
    json["files_of_other_kinds"] = result.notes.left_out.other_files;
    json["entries_not_readable"] = result.notes.left_out.unreadable;
    json["seconds"] = result.seconds;
    print_json(json);
    return kExitDone;
  }
  print_corpus(result.manifest, a.folder);
  std::printf("%.1f s; left out: %ld empty documents, %ld duplicates, %ld bad lines\n",
              result.seconds, static_cast<long>(result.empty_documents),
              static_cast<long>(result.duplicate_documents),
              static_cast<long>(result.notes.skipped.lines));
  std::printf("%s\n%s", files_text(result.notes).c_str(),
              splits_text(result.notes, a.documents).c_str());
  return kExitDone;
}

void add_prepare(Commands& commands, CLI::App* data) {
  auto a = std::make_shared<PrepareArguments>();
  CLI::App* sub = data->add_subcommand("prepare", "turn text or JSONL into token shards");
  add_document_options(sub, a->documents);
  sub->add_option("--tokenizer", a->tokenizer,
                  "tokenizer.json, or a folder with vocab.json and merges.txt")
      ->required();
  sub->add_option("-o,--output", a->folder,
                  "folder for the shards, tokenizer.json and manifest.json")
      ->required();
  sub->add_option(
      "--name", a->name,
      "prefix of the shards' file names: letters, digits, -, _ and . (default: corpus)");
  sub->add_option("--val-share", a->val_share,
                  "hold out this share of the documents for validation, chosen by a hash of their "
                  "text: independent of order and files, equal documents go to the same split");
  sub->add_option("--val-every", a->val_every,
                  "hold out every N-th document for validation, starting with the first; 0 = none "
                  "(default: 20)");
  sub->add_option("--val", a->val,
                  "separate file or folder of validation documents; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--shard-tokens", a->shard_tokens, "tokens in a full shard (default: 100000000)");
  sub->add_option("--shuffle", a->shuffle,
                  "write the documents in an order drawn from this seed, e.g. 1; needs 4 bytes per "
                  "token of free space beside the shards (default: in the order of the files)")
      ->check(zero_or_more());
  sub->add_flag("--drop-duplicates", a->drop_duplicates,
                "keep only the first of equal documents; text documents of more than 64 MiB are "
                "not compared");
  sub->add_flag("--overwrite", a->overwrite, "replace an existing corpus in the folder");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Each document becomes the <|endoftext|> id followed by its tokens. JSONL files are *.jsonl, "
      "*.ndjson or *.json. Shards are NAME_val_000000.bin, NAME_train_000001.bin, ... in the "
      "public GPT-2 format. In a configuration:\n"
      "  data: {train: [DIR/NAME_train_*.bin], val: [DIR/NAME_val_*.bin], tokenizer: "
      "DIR/tokenizer.json}\n"
      "Example:\n"
      "  assay tokenizer train stories.txt --vocab-size 8192 -o tokenizer.json\n"
      "  assay data prepare stories.txt --tokenizer tokenizer.json -o stories");
  commands.on_chosen(sub, [a] { return run_prepare(*a); });
}

struct InspectArguments {
  std::vector<std::string> paths;
  std::string tokenizer;
  int64_t top = 10;
  int64_t sample = 60;
  bool json = false;
};

// The given tokenizer, else the tokenizer.json beside the shard, if any.
std::optional<Tokenizer> tokenizer_for(const InspectArguments& a, const std::string& shard) {
  if (!a.tokenizer.empty()) return read_tokenizer(a.tokenizer);
  const fs::path beside = fs::path(shard).replace_filename("tokenizer.json");
  std::error_code ignored;
  if (fs::exists(beside, ignored)) return read_tokenizer(beside.string());
  return std::nullopt;
}

// Printable form: control characters and quotes escaped, bytes that are not UTF-8 replaced.
std::string shown(const std::string& text) {
  return json_text(Json(text));
}

// The id that begins a document: that of the tokenizer, else of the manifest beside the shard, else
// GPT-2's, as in the public shards, if this can be one of them.
struct DocumentToken {
  int64_t id = -1;  // -1: unknown
  bool is_guess = false;
};
DocumentToken document_token(const std::string& file, const std::optional<Tokenizer>& tokenizer) {
  constexpr int64_t kGpt2Eot = 50256;
  if (tokenizer) return {.id = tokenizer->has_eot() ? tokenizer->eot() : -1};
  const std::string folder = fs::path(file).parent_path().string(),
                    here = folder.empty() ? "." : folder;
  if (has_manifest(here)) {
    const Manifest manifest = read_manifest(here);
    for (const ShardEntry& shard : manifest.shards)
      if (shard.file == fs::path(file).filename().string()) return {.id = manifest.eot_id};
  }
  return {.id = kGpt2Eot, .is_guess = true};
}

// Without the documents where the guess cannot be right.
ShardSummary inspected(const std::string& file, const std::optional<Tokenizer>& tokenizer,
                       const InspectArguments& a) {
  const DocumentToken token = document_token(file, tokenizer);
  ShardSummary summary = inspect_shard(Shard(file), token.id, a.top, a.sample);
  if (token.is_guess && summary.largest_id != token.id) summary.documents = {};
  return summary;
}

Json summary_json(const std::string& path, const ShardSummary& s) {
  Json json = {{"file", path},
               {"tokens", s.tokens},
               {"bytes_per_token", s.token_bytes},
               {"documents", nullptr},
               {"median_document_tokens", nullptr},
               {"largest_id", s.largest_id},
               {"distinct_ids", s.distinct_ids},
               {"unigram_nats", s.unigram_nats},
               {"first", s.first},
               {"most_frequent", Json::array()}};
  if (s.documents) {
    json["documents"] = s.documents->number;
    json["median_document_tokens"] = s.documents->median_tokens;
  }
  for (const auto& [id, count] : s.most_frequent)
    json["most_frequent"].push_back({{"id", id}, {"count", count}});
  return json;
}

void print_summary(const std::string& path, const ShardSummary& s) {
  const std::string documents =
      s.documents ? strprintf("%ld documents (median %ld tokens)", long(s.documents->number),
                              long(s.documents->median_tokens))
                  : "an unknown number of documents (no tokenizer.json or manifest.json beside it)";
  std::printf(
      "%s: %ld tokens (uint%d), %s,\n"
      "  ids up to %ld (%ld different), %.3f nats of unigram entropy\n",
      path.c_str(), static_cast<long>(s.tokens), 8 * s.token_bytes, documents.c_str(),
      static_cast<long>(s.largest_id), static_cast<long>(s.distinct_ids), s.unigram_nats);
}

void print_tokens(const ShardSummary& s, const std::optional<Tokenizer>& tokenizer) {
  const auto known = [&](int32_t id) { return tokenizer && id < tokenizer->vocab_size(); };
  std::string text;
  for (const int32_t id : s.first)
    text += known(id) ? tokenizer->decode({id}) : std::to_string(id) + " ";
  std::printf("  begins: %s\n", shown(text).c_str());
  for (const auto& [id, count] : s.most_frequent)
    std::printf("  %7d %12ld %6.2f%%  %s\n", id, static_cast<long>(count),
                100.0 * static_cast<double>(count) / static_cast<double>(s.tokens),
                known(id) ? shown(tokenizer->decode({id})).c_str() : "");
}

// "2 documents of its text are not UTF-8: utf16.txt (2)", from the manifests beside the shards.
std::vector<std::string> not_utf8_lines(const std::vector<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& file : files) folders.insert(fs::path(file).parent_path().string());
  std::vector<std::string> lines;
  for (const std::string& folder : folders) {
    const std::string here = folder.empty() ? "." : folder;
    if (!has_manifest(here)) continue;
    int64_t documents = 0;
    std::string names;
    for (const SourceEntry& source : read_manifest(here).sources) {
      if (source.not_utf8 == 0) continue;
      documents += source.not_utf8;
      if (names.size() < 200)
        names += (names.empty() ? "" : ", ") + source.file +
                 strprintf(" (%ld)", static_cast<long>(source.not_utf8));
    }
    if (documents > 0)
      lines.push_back(strprintf("%s: %ld documents of its text are not UTF-8: %s",
                                (fs::path(folder) / kManifestName).c_str(),
                                static_cast<long>(documents), names.c_str()));
  }
  return lines;
}

int run_inspect(const InspectArguments& a) {
  if (a.top < 0 || a.sample < 0)
    throw UserError("--top and --sample must be >= 0", "they are numbers of tokens to show");
  std::vector<std::string> files;
  for (const std::string& path : a.paths) {
    std::error_code ignored;
    const bool folder = fs::is_directory(path, ignored);
    for (const std::string& file : find_shards({folder ? path + "/*.bin" : path}))
      files.push_back(file);
  }
  Json json = Json::array();
  for (const std::string& file : files) {
    const std::optional<Tokenizer> tokenizer = tokenizer_for(a, file);
    const ShardSummary summary = inspected(file, tokenizer, a);
    if (a.json) {
      json.push_back(summary_json(file, summary));
      if (tokenizer) {
        std::string text;
        for (const int32_t id : summary.first)
          if (id < tokenizer->vocab_size()) text += tokenizer->decode({id});
        json.back()["begins"] = text;
      }
      continue;
    }
    print_summary(file, summary);
    print_tokens(summary, tokenizer);
  }
  for (const std::string& line : not_utf8_lines(files))
    std::fprintf(stderr, "warning: %s\n", line.c_str());
  if (a.json) print_json(Json{{"shards", json}});
  return kExitDone;
}

void add_inspect(Commands& commands, CLI::App* data) {
  auto a = std::make_shared<InspectArguments>();
  CLI::App* sub =
      data->add_subcommand("inspect", "show a shard's counts, first tokens and most frequent ids");
  sub->add_option("SHARD", a->paths, "shard files, patterns, or folders of *.bin")->required();
  sub->add_option("--tokenizer", a->tokenizer,
                  "tokenizer to show text with (default: tokenizer.json beside the shard, if any)");
  sub->add_option("--top", a->top, "number of most frequent ids to show (default: 10)");
  sub->add_option("--sample", a->sample, "number of first tokens to show (default: 60)");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay data inspect mine                                   every shard of a folder\n"
      "  assay data inspect mine/corpus_val_000000.bin --top 30");
  commands.on_chosen(sub, [a] { return run_inspect(*a); });
}

struct VerifyArguments {
  std::string folder;
  bool json = false;
};

int run_verify(const VerifyArguments& a) {
  const Manifest manifest = read_manifest(a.folder);
  std::vector<std::string> wrong = verify_corpus(manifest, a.folder);
  for (const std::string& file : unlisted_shards(manifest, a.folder))
    wrong.push_back(file + ": not in the manifest, but a pattern such as *.bin finds it");
  if (a.json) print_json(Json{{"folder", a.folder}, {"ok", wrong.empty()}, {"wrong", wrong}});
  for (const std::string& line : wrong) std::fprintf(stderr, "%s\n", line.c_str());
  if (wrong.empty() && !a.json)
    std::printf("%s: %zu shards and the tokenizer match the manifest\n", a.folder.c_str(),
                manifest.shards.size());
  return wrong.empty() ? kExitDone : kExitVerificationFailed;
}

void add_verify(Commands& commands, CLI::App* data) {
  auto a = std::make_shared<VerifyArguments>();
  CLI::App* sub =
      data->add_subcommand("verify", "check a corpus against its manifest; exit 2 if they differ");
  sub->add_option("DIR", a->folder, "folder with manifest.json")->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Example:\n"
      "  assay data verify mine");
  commands.on_chosen(sub, [a] { return run_verify(*a); });
}

}  // namespace

void add_data_commands(Commands& commands) {
  CLI::App* data =
      commands.app.add_subcommand("data", "corpora: prepare, inspect, verify, generate");
  data->require_subcommand(1);
  data->footer(
      "Examples:\n"
      "  assay data prepare texts --tokenizer mine/tokenizer.json -o mine\n"
      "  assay data inspect mine\n"
      "  assay data verify mine\n"
      "docs/data.md goes from texts to a run.");
  add_prepare(commands, data);
  add_inspect(commands, data);
  add_verify(commands, data);
}

}  // namespace assay
