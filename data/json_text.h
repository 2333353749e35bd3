// JSON that others may have written: bounded in depth, because values are built and destroyed by
// recursion, and a file of brackets would exhaust the stack.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace assay {

constexpr int kDeepestJson = 100;  // brackets within brackets

// Whether the text has more than kDeepestJson open brackets somewhere outside of strings.
inline bool json_is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// The value of a text; throws Json::exception if it is not JSON or nested too deep.
template <typename Json = nlohmann::json>
Json json_or_throw(std::string_view text) {
  if (json_is_too_deep(text)) {
    throw Json::other_error::create(
        501, "brackets are nested more than " + std::to_string(kDeepestJson) + " deep", nullptr);
  }
  return Json::parse(text);
}

// What is wrong, without the library's name of it: "parse error at line 1, column 5: ...".
inline std::string json_problem(const nlohmann::json::exception& error) {
  const std::string what = error.what();
  const size_t tag = what.starts_with("[json.") ? what.find("] ") : std::string::npos;
  return tag == std::string::npos ? what : what.substr(tag + 2);
}

// The value of a text: discarded (is_discarded()) if it is not JSON or nested too deep.
template <typename Json = nlohmann::json>
Json json_of(std::string_view text) {
  if (json_is_too_deep(text)) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// The text of a value: on one line, or with a line for each member, `indent` columns a level. Bytes
// that are not UTF-8, as names of files may have them, become U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// The text under a key; "" if the value is no object, or has no text there.
template <typename Json>
std::string text_or_empty(const Json& object, const std::string& key) {
  return object.contains(key) && object[key].is_string() ? object[key].template get<std::string>()
                                                         : "";
}

// A key that an object of the text has twice, of which a program reads the last and a person the
// first; nullopt if none has, or the text is not JSON.
std::optional<std::string> first_repeated_key(std::string_view text);

// json_of() a file; discarded too if it is not there. UserError if it cannot be read.
template <typename Json = nlohmann::json>
Json json_in_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return Json(nlohmann::detail::value_t::discarded);
  }
  return json_of<Json>(read_regular_file(path));
}

}  // namespace assay
