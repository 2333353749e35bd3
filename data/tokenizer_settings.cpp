#include "data/tokenizer_settings.h"

#include <charconv>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {
namespace {

using nlohmann::json;

// One of the files beside the tokenizer's.
class SettingsFile {
 public:
  SettingsFile(const std::string& tokenizer_file, const char* name)
      : tokenizer_file_(tokenizer_file),
        path_(std::filesystem::path(tokenizer_file).replace_filename(name).string()) {
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return;
    values_ = json_of(read_regular_file(path_));
    if (!values_.is_object()) refuse("is not a JSON object");
  }

  const json& values() const { return values_; }
  const json* find(const char* key) const {
    const auto at = values_.find(key);
    return at == values_.end() || at->is_null() ? nullptr : &*at;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(path_ + ": " + why,
                    "transformers gives other ids with it than " + tokenizer_file_ +
                        " alone: if those are wanted all the same, move " +
                        std::filesystem::path(path_).filename().string() + " out of the folder");
  }

  void require_special(const Tokenizer& tokenizer, int64_t id, const std::string& content) const {
    const bool known = id >= 0 && id < tokenizer.vocab_size() &&
                       tokenizer.is_special(static_cast<int32_t>(id)) &&
                       tokenizer.vocabulary().bytes[static_cast<size_t>(id)] == content;
    if (known) return;
    refuse(strprintf("it adds the token %s with the id %ld, which is not a special token of %s",
                     json_text(json(content)).c_str(), long(id), tokenizer_file_.c_str()));
  }

 private:
  std::string tokenizer_file_, path_;
  json values_ = json::object();
};

int64_t id_of(const SettingsFile& file, const std::string& text) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0)
    file.refuse("added_tokens_decoder has the id " + json_text(json(text)));
  return id;
}

void refuse_added(const SettingsFile& file, const json& decoder, const Tokenizer& tokenizer) {
  if (!decoder.is_object()) file.refuse("added_tokens_decoder is not an object");
  for (const auto& [id, added] : decoder.items()) {
    const std::string content = text_or_empty(added, "content");
    if (content.empty()) file.refuse("added_tokens_decoder has a token without content");
    file.require_special(tokenizer, id_of(file, id), content);
    const std::string token = json_text(json(content));
    if (added.contains("special") && added["special"] == false)
      file.refuse(token + " has special: false: it would be found inside of ordinary text");
    if (const std::string flag = matching_flag(added); !flag.empty())
      file.refuse(token + " has " + flag + ": true");
  }
}

}  // namespace

void refuse_other_settings(const std::string& file, const Tokenizer& tokenizer) {
  const SettingsFile config(file, "tokenizer_config.json");
  if (const json* prefix = config.find("add_prefix_space"); prefix && *prefix != false)
    config.refuse("add_prefix_space is " + json_text(*prefix));
  const std::string name = text_or_empty(config.values(), "tokenizer_class");
  const bool is_pair = std::filesystem::path(file).filename() == "vocab.json";
  if (is_pair && !name.empty() && name != "GPT2Tokenizer" && name != "GPT2TokenizerFast")
    config.refuse("tokenizer_class is " + name + ", which is not known to split text as GPT-2's");
  if (const json* decoder = config.find("added_tokens_decoder"))
    refuse_added(config, *decoder, tokenizer);

  const SettingsFile added(file, "added_tokens.json");
  for (const auto& [token, id] : added.values().items()) {
    if (!id.is_number_integer()) added.refuse("the id of " + json_text(json(token)) + " is no id");
    added.require_special(tokenizer, id.get<int64_t>(), token);
  }
}

std::string matching_flag(const json& added) {
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    const auto at = added.find(flag);
    if (at != added.end() && *at == true) return flag;
  }
  return "";
}

}  // namespace assay
