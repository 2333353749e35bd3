// assay tokenizer train, encode, decode.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "data/manifest.h"
#include "data/prepare.h"
#include "data/tokenizer_files.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/document_options.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizerArguments {
  DocumentArguments documents;
  int64_t vocab_size = 8192;
  std::string output;
  std::string format = "json";
  bool overwrite = false;
  bool json = false;
};

// read_tokenizer() of a folder takes its tokenizer.json, and never the two files beside it.
// UserError also with --overwrite, which replaces those two only.
void require_no_tokenizer_json(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file, ignored)) return;
  throw UserError(
      file.string() + " is there, and would be read instead of the new vocab.json",
      "choose another folder, or write that file itself: --format json -o " + file.string());
}

// UserError when the output exists and --overwrite is not given. A corpus that was made with it
// would be without its tokenizer.
void require_new_output(const TokenizerArguments& a) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path output = a.output;
  const bool gpt2 = a.format == "gpt2";
  if (gpt2) require_no_tokenizer_json(output);
  if (a.overwrite) return;
  // A merges.txt without vocab.json, but with its part file: write_gpt2_files() was killed.
  if (gpt2 && !fs::exists(output / "vocab.json", ignored) &&
      fs::exists(output / "vocab.json.part", ignored)) {
    return;
  }
  for (const fs::path& file :
       gpt2 ? std::vector<fs::path>{output / "vocab.json", output / "merges.txt"}
            : std::vector<fs::path>{output}) {
    if (!fs::exists(file, ignored)) continue;
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    const fs::path manifest = file.parent_path() / kManifestName;
    if (has_manifest(folder))
      throw UserError(file.string() + " exists and belongs to the corpus of " + manifest.string(),
                      "choose another file: the ids in its shards mean nothing to another "
                      "tokenizer; --overwrite replaces it anyway");
    throw UserError(file.string() + " already exists",
                    "choose another file, or replace it with --overwrite");
  }
}

int run_train(const TokenizerArguments& a) {
  if (a.format != "json" && a.format != "gpt2")
    throw UserError("--format " + a.format + " is unknown", "choose json or gpt2");
  require_new_output(a);
  // Opens the output before the work, so that an unwritable path fails at once.
  std::optional<AtomicFile> json_file;
  if (a.format == "json") {
    const auto folder = std::filesystem::path(a.output).parent_path();
    if (!folder.empty()) make_folders(folder.string());
    json_file.emplace(a.output);
  }
  if (a.format == "gpt2") make_folders(a.output);
  InputNotes notes;
  const Tokenizer tokenizer = train_tokenizer(a.documents.inputs, a.documents.options(),
                                              a.vocab_size, a.documents.threads, notes);
  warn_of_input(notes);
  if (json_file) {
    const std::string text = tokenizer_json(tokenizer);
    json_file->write(text.data(), text.size());
    json_file->commit();
  } else {
    write_gpt2_files(tokenizer, a.output);
  }
  const std::string hash = tokenizer_hash(tokenizer);
  if (tokenizer.vocab_size() < a.vocab_size)
    std::fprintf(stderr,
                 "warning: %ld tokens instead of %ld: no further pair occurs twice in the text\n",
                 static_cast<long>(tokenizer.vocab_size()), static_cast<long>(a.vocab_size));
  if (a.json) {
    const Json json = {{"file", a.output},
                       {"vocab_size", tokenizer.vocab_size()},
                       {"eot_id", tokenizer.eot()},
                       {"sha256", hash}};
    print_json(json);
    return kExitDone;
  }
  std::printf("%s: %ld tokens, sha256 %s; %s\n", a.output.c_str(),
              static_cast<long>(tokenizer.vocab_size()), hash.c_str(), files_text(notes).c_str());
  return kExitDone;
}

void add_train(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<TokenizerArguments>();
  CLI::App* sub = parent->add_subcommand("train", "learn a byte-level BPE vocabulary from text");
  add_document_options(sub, a->documents);
  sub->add_option("--vocab-size", a->vocab_size,
                  "number of tokens, including the 256 bytes and <|endoftext|> (default: 8192)");
  sub->add_option("-o,--output", a->output,
                  "tokenizer.json to write (with --format gpt2: a folder)")
      ->required();
  sub->add_option("--format", a->format,
                  "json = Hugging Face tokenizer.json (default), gpt2 = vocab.json + merges.txt");
  sub->add_flag("--overwrite", a->overwrite, "replace an existing tokenizer");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "The result depends only on the texts, not on their order or on threads. Example:\n"
      "  assay tokenizer train stories.txt --vocab-size 8192 -o tokenizer.json");
  commands.on_chosen(sub, [a] { return run_train(*a); });
}

struct CodeArguments {
  std::string tokenizer;
  std::string file;
  std::string text;
  std::vector<int32_t> ids;
  bool json = false;
};

std::string input_bytes(const CodeArguments& a) {
  if (a.file != "-" && !a.file.empty()) return read_file(a.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

int run_encode(const CodeArguments& a, bool has_text) {
  const Tokenizer tokenizer = read_tokenizer(a.tokenizer);
  const std::string text = has_text ? a.text : input_bytes(a);
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (a.json) {
    Json tokens = Json::array();
    for (const int32_t id : ids) tokens.push_back(tokenizer.decode({id}));
    const Json json = {{"bytes", text.size()}, {"ids", ids}, {"tokens", tokens}};
    print_json(json, JsonLayout::kOneLine);
    return kExitDone;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
  std::printf("\n");
  return kExitDone;
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of(" \t\r\n,[]"); at != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    const std::string word = text.substr(at, end - at);
    char* rest = nullptr;
    const long id = std::strtol(word.c_str(), &rest, 10);
    if (*rest != '\0' || id < 0 || id > INT32_MAX)
      throw UserError("\"" + word + "\" is not a token id",
                      "give numbers separated by spaces or commas");
    ids.push_back(static_cast<int32_t>(id));
    at = text.find_first_not_of(" \t\r\n,[]", end);
  }
  return ids;
}

int run_decode(const CodeArguments& a) {
  const Tokenizer tokenizer = read_tokenizer(a.tokenizer);
  const std::vector<int32_t> ids = a.ids.empty() ? parse_ids(input_bytes(a)) : a.ids;
  const std::string text = tokenizer.decode(ids);
  if (a.json) {
    const Json json = {{"ids", ids}, {"text", text}};
    print_json(json, JsonLayout::kOneLine);
    return kExitDone;
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitDone;
}

void add_encode(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<CodeArguments>();
  CLI::App* sub = parent->add_subcommand("encode", "turn text into token ids");
  CLI::Option* file =
      sub->add_option("FILE", a->file, "file of text to encode; - or none = standard input");
  CLI::Option* text =
      sub->add_option("--text", a->text, "encode this text instead of a file")->excludes(file);
  sub->add_option("--tokenizer", a->tokenizer,
                  "tokenizer.json, or a folder with vocab.json and merges.txt")
      ->required();
  sub->add_flag("--json", a->json, "print one JSON object with ids and tokens");
  sub->footer(
      "Example:\n"
      "  assay tokenizer encode --tokenizer tokenizer.json --text 'Once upon a time'");
  commands.on_chosen(sub, [a, text] { return run_encode(*a, text->count() > 0); });
}

void add_decode(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<CodeArguments>();
  CLI::App* sub = parent->add_subcommand("decode", "turn token ids into the bytes of their text");
  CLI::Option* ids =
      sub->add_option("ID", a->ids, "token ids; without any they are read from --file");
  sub->add_option("--file", a->file, "file of token ids; - or none = standard input")
      ->excludes(ids);
  sub->add_option("--tokenizer", a->tokenizer,
                  "tokenizer.json, or a folder with vocab.json and merges.txt")
      ->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Example:\n"
      "  assay tokenizer decode --tokenizer tokenizer.json 464 3797");
  commands.on_chosen(sub, [a] { return run_decode(*a); });
}

}  // namespace

void add_tokenizer_commands(Commands& commands) {
  CLI::App* parent =
      commands.app.add_subcommand("tokenizer", "byte-level BPE: train, encode, decode");
  parent->require_subcommand(1);
  parent->footer(
      "Examples:\n"
      "  assay tokenizer train texts --vocab-size 4096 -o mine/tokenizer.json\n"
      "  assay tokenizer encode --tokenizer mine/tokenizer.json --text 'Once upon a time'");
  add_train(commands, parent);
  add_encode(commands, parent);
  add_decode(commands, parent);
}

}  // namespace assay
