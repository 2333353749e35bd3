#include "data/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "data/tokenizer_settings.h"

namespace assay {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Bounds of ids: a file with a larger one is taken to be damaged, instead of allocating for it. A
// published vocabulary has few ids without a token.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMostIdsPerToken = 16;

// GPT-2's printable character for a byte, as a code point below 0x180.
int byte_character(int byte) {
  const int id = gpt2_byte_id(static_cast<uint8_t>(byte));
  return id < 188 ? byte : 0x100 + id - 188;
}

const std::array<int, 0x180>& character_bytes() {
  static const std::array<int, 0x180> table = [] {
    std::array<int, 0x180> made;
    made.fill(-1);
    for (int byte = 0; byte < 256; ++byte) made[static_cast<size_t>(byte_character(byte))] = byte;
    return made;
  }();
  return table;
}

std::string printable(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const int character = byte_character(static_cast<uint8_t>(c));
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | character >> 6);
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return text;
}

// The inverse of printable(); false if a character represents no byte.
bool unprintable(const std::string& text, std::string& bytes) {
  bytes.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<uint8_t>(text[i]);
    if (character >= 0x80) {
      if (character < 0xC2 || character > 0xC5 || i + 1 == text.size()) return false;
      character = (character & 0x1F) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F);
    }
    const int byte = character_bytes()[character];
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
  }
  return true;
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UserError(
      name + ": " + why,
      "byte-level BPE is supported: tokenizer.json, or GPT-2's vocab.json + merges.txt");
}

json parse_json(const std::string& text, const std::string& name) {
  try {
    const json parsed = json_or_throw(text);
    if (const auto twice = first_repeated_key(text))
      refuse(name, "the key " + json(*twice).dump() + " is there twice");
    return parsed;
  } catch (const json::exception& e) {
    refuse(name, "not JSON (" + json_problem(e) + ")");
  }
}

// Collects tokens, special tokens and merges under their names.
class Builder {
 public:
  // tokens: that the file lists.
  Builder(std::string name, size_t tokens)
      : name_(std::move(name)),
        most_ids_(std::min(kMaxVocab, kMostIdsPerToken * static_cast<int64_t>(tokens))) {}

  void add_vocab(const json& vocab) {
    if (!vocab.is_object()) refuse(name_, "the vocabulary is not an object of token: id");
    for (const auto& [token, id] : vocab.items()) {
      const size_t at = slot(id, token);
      if (!text_[at].empty())
        refuse(name_, strprintf("id %zu is %s and %s", at, text_[at].c_str(), token.c_str()));
      if (token.empty()) refuse(name_, strprintf("the token of id %zu is empty", at));
      text_[at] = token;
    }
  }
  void add_special(const json& id, const std::string& content) {
    const size_t at = slot(id, content);
    text_[at] = content;
    special_.push_back(static_cast<int32_t>(at));
  }
  void add_merge(const std::string& left, const std::string& right) {
    merges_.emplace_back(left, right);
  }

  Tokenizer build() {
    Vocabulary vocabulary;
    std::unordered_map<std::string, int32_t> id_of;
    std::vector<bool> is_special(text_.size());
    for (const int32_t id : special_) is_special[static_cast<size_t>(id)] = true;
    std::unordered_map<std::string, size_t> seen;
    for (size_t i = 0; i < text_.size(); ++i) {
      const auto [first, is_new] = seen.emplace(text_[i], i);
      if (!is_new && !text_[i].empty()) {
        refuse(name_, strprintf("%s has two ids, %zu and %zu", text_[i].c_str(), first->second, i));
      }
      std::string bytes;
      if (is_special[i]) {
        bytes = text_[i];
      } else if (unprintable(text_[i], bytes)) {
        id_of.emplace(text_[i], static_cast<int32_t>(i));
      } else {
        refuse(name_, strprintf("token %zu (%s) has a character that represents no byte", i,
                                text_[i].c_str()));
      }
      vocabulary.bytes.push_back(std::move(bytes));
      if (is_special[i]) vocabulary.special.push_back(static_cast<int32_t>(i));
    }
    for (const auto& [left, right] : merges_) {
      const auto a = id_of.find(left);
      const auto b = id_of.find(right);
      if (a == id_of.end() || b == id_of.end())
        refuse(name_, strprintf("merge %zu (%s %s) names an unknown token",
                                vocabulary.merges.size(), left.c_str(), right.c_str()));
      vocabulary.merges.emplace_back(a->second, b->second);
    }
    try {
      return Tokenizer(std::move(vocabulary));
    } catch (const UserError& e) {
      throw UserError(name_ + ": " + e.what(), e.hint());
    }
  }

 private:
  size_t slot(const json& id, const std::string& token) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= most_ids_)
      refuse(name_, strprintf("the id of %s is %s, expected a whole number from 0 to %ld, "
                              "%ld for each token of the file",
                              token.c_str(), id.dump().c_str(), long(most_ids_ - 1),
                              long(kMostIdsPerToken)));
    const size_t at = id.get<size_t>();
    if (at >= text_.size()) text_.resize(at + 1);
    return at;
  }

  std::string name_;
  int64_t most_ids_;
  std::vector<std::string> text_;  // text_[id], as in the file
  std::vector<int32_t> special_;
  std::vector<std::pair<std::string, std::string>> merges_;
};

const json& member(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto at = object.find(key);
  return at == object.end() ? null : *at;
}

// Refuses a setting that changes the encoding and is not supported, unless it is off.
void require_off(const json& object, const std::string& name, const char* where, const char* key) {
  const json& value = member(object, key);
  const bool off = value.is_null() || value == json(false) || value == json("");
  if (!off) refuse(name, strprintf("%s.%s is %s", where, key, value.dump().c_str()));
}

void require_byte_level(const json& pre, const std::string& name) {
  const json& type = member(pre, "type");
  const json& regex = member(pre, "use_regex");
  if (type != "ByteLevel" || !(regex.is_null() || regex == json(true)))
    refuse(name, "pre_tokenizer is not ByteLevel with GPT-2's pattern");
  require_off(pre, name, "pre_tokenizer", "add_prefix_space");
}

void add_merge_line(Builder& builder, const std::string& line, const std::string& name) {
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
    refuse(name, strprintf("a merge is two tokens with a space between, not \"%s\"", line.c_str()));
  builder.add_merge(line.substr(0, space), line.substr(space + 1));
}

// Tokens in the order of their ids. Built as object_t, whose emplace_back() does not search all
// tokens, as [] would.
ordered_json vocab_object(const Tokenizer& tokenizer) {
  const std::vector<std::string>& bytes = tokenizer.vocabulary().bytes;
  ordered_json::object_t vocab;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    if (!bytes[i].empty())
      vocab.emplace_back(tokenizer.is_special(id) ? bytes[i] : printable(bytes[i]), id);
  }
  return vocab;
}

std::vector<std::string> merge_lines(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::vector<std::string> lines;
  for (const auto& [left, right] : vocabulary.merges)
    lines.push_back(printable(vocabulary.bytes[static_cast<size_t>(left)]) + " " +
                    printable(vocabulary.bytes[static_cast<size_t>(right)]));
  return lines;
}

}  // namespace

Tokenizer parse_tokenizer_json(const std::string& text, const std::string& name) {
  const json file = parse_json(text, name);
  const json& model = member(file, "model");
  const json& type = member(model, "type");
  const json& merges = member(model, "merges");
  if (!(type.is_null() || type == "BPE") || !merges.is_array())
    refuse(name, strprintf("model.type is %s, with merges %s", type.dump().c_str(),
                           merges.is_array() ? "present" : "absent"));
  require_off(file, name, "file", "normalizer");
  require_byte_level(member(file, "pre_tokenizer"), name);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"})
    require_off(model, name, "model", key);

  const json &vocab = member(model, "vocab"), &all_added = member(file, "added_tokens");
  Builder builder(name, vocab.size() + all_added.size());
  builder.add_vocab(vocab);
  for (const json& added : all_added) {
    const json& content = member(added, "content");
    if (!content.is_string() || content.get<std::string>().empty())
      refuse(name, "an entry of added_tokens has no content");
    const json& special = member(added, "special");
    if (special.is_boolean() && !special.get<bool>())
      refuse(name, "added_tokens has " + content.dump() +
                       " with special: false, which would be found inside of ordinary text");
    if (const std::string flag = matching_flag(added); !flag.empty())
      refuse(name, "added_tokens has " + content.dump() + " with " + flag + ": true");
    builder.add_special(member(added, "id"), content.get<std::string>());
  }
  for (const json& merge : merges) {
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (pair) {
      builder.add_merge(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else if (merge.is_string()) {
      add_merge_line(builder, merge.get<std::string>(), name);
    } else {
      refuse(name, "a merge is neither \"a b\" nor [\"a\", \"b\"]");
    }
  }
  return builder.build();
}

Tokenizer parse_gpt2_files(const std::string& vocab_json, const std::string& merges_txt,
                           const std::string& name) {
  const json vocab = parse_json(vocab_json, name);
  Builder builder(name, vocab.size());
  builder.add_vocab(vocab);
  const json& eot = member(vocab, std::string(kEndOfText).c_str());
  if (!eot.is_null()) builder.add_special(eot, std::string(kEndOfText));
  for (size_t at = 0; at < merges_txt.size();) {
    const size_t end = std::min(merges_txt.find('\n', at), merges_txt.size());
    std::string line = merges_txt.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const bool header = at == 0 && line.starts_with("#version");
    if (!line.empty() && !header) add_merge_line(builder, line, name);
    at = end + 1;
  }
  return builder.build();
}

std::vector<std::string> tokenizer_paths(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::string file = path;
  if (!fs::exists(path, ignored) && fs::path(path).filename() == "gpt2")
    throw UserError("cannot read " + path + ": there is no such folder",
                    "bash tools/get_gpt2.sh downloads GPT-2's tokenizer");
  if (fs::is_directory(path, ignored)) {
    file = path + "/tokenizer.json";
    if (!fs::exists(file, ignored)) file = path + "/vocab.json";
    if (!fs::exists(file, ignored))
      throw UserError(path + " holds neither tokenizer.json nor vocab.json",
                      "give a tokenizer's file or folder, or train one: assay tokenizer train");
  }
  if (fs::path(file).filename() != "vocab.json") return {file};
  return {file, fs::path(file).replace_filename("merges.txt").string()};
}

Tokenizer read_tokenizer(const std::string& path) {
  const std::vector<std::string> files = tokenizer_paths(path);
  const std::string text = read_regular_file(files.front());
  Tokenizer tokenizer = files.size() == 2
                            ? parse_gpt2_files(text, read_regular_file(files.back()), files.front())
                            : parse_tokenizer_json(text, files.front());
  refuse_other_settings(files.front(), tokenizer);
  return tokenizer;
}

static std::string json_with(const Tokenizer& tokenizer, const ordered_json& post_processor) {
  ordered_json added = ordered_json::array();
  for (const int32_t id : tokenizer.vocabulary().special)
    added.push_back({{"id", id},
                     {"content", tokenizer.vocabulary().bytes[static_cast<size_t>(id)]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const ordered_json byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
  const ordered_json file = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", std::move(added)},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", post_processor},
                             {"decoder", byte_level},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", ""},
                               {"end_of_word_suffix", ""},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", vocab_object(tokenizer)},
                               {"merges", merge_lines(tokenizer)}}}};
  return file.dump(1) + "\n";
}

std::string tokenizer_json(const Tokenizer& tokenizer) {
  return json_with(tokenizer, nullptr);
}

std::string tokenizer_json_with_begin(const Tokenizer& tokenizer) {
  const std::string begin(kEndOfText);
  const auto part = [](const char* type, const std::string& id, int type_id) {
    ordered_json one;
    one[type] = {{"id", id}, {"type_id", type_id}};
    return one;
  };
  const ordered_json first = part("SpecialToken", begin, 0), a = part("Sequence", "A", 0);
  const ordered_json second = part("SpecialToken", begin, 1), b = part("Sequence", "B", 1);
  const ordered_json token = {{"id", begin},
                              {"ids", ordered_json::array({tokenizer.eot()})},
                              {"tokens", ordered_json::array({begin})}};
  ordered_json tokens;
  tokens[begin] = token;
  return json_with(tokenizer, {{"type", "TemplateProcessing"},
                               {"single", ordered_json::array({first, a})},
                               {"pair", ordered_json::array({first, a, second, b})},
                               {"special_tokens", tokens}});
}

std::string tokenizer_hash(const Tokenizer& tokenizer) {
  return sha256_hex(tokenizer_json(tokenizer));
}

void write_tokenizer_json(const Tokenizer& tokenizer, const std::string& path) {
  write_file_atomic(path, tokenizer_json(tokenizer));
}

void write_gpt2_files(const Tokenizer& tokenizer, const std::string& folder) {
  std::string merges = "#version: 0.2\n";
  for (const std::string& line : merge_lines(tokenizer)) merges += line + "\n";
  make_folders(folder);
  AtomicFile vocab(folder + "/vocab.json");  // last, and its part file is there before merges.txt
  const std::string text = vocab_object(tokenizer).dump() + "\n";
  vocab.write(text.data(), text.size());
  vocab.sync();
  const std::string merges_file = folder + "/merges.txt";
  std::error_code ignored;
  const bool replaces = std::filesystem::exists(merges_file, ignored);
  write_file_atomic(merges_file, merges);
  try {
    vocab.commit();
  } catch (const UserError&) {  // one of the two alone is no tokenizer
    if (!replaces) std::filesystem::remove(merges_file, ignored);
    throw;
  }
}

}  // namespace assay
