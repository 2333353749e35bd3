#include "interop/json_fields.h"

#include <cmath>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr int64_t kLargest = int64_t{1} << 30;
constexpr size_t kShownBytes = 60;

}  // namespace

json read_json_object(const std::string& path, const std::string& hint) {
  const std::string text = read_regular_file(path);
  if (json_is_too_deep(text)) throw UserError(path + ": is nested too deep", hint);
  json parsed = json_of(text);
  if (!parsed.is_object()) throw UserError(path + ": is not a JSON object", hint);
  if (const auto twice = first_repeated_key(text))
    throw UserError(path + ": the key " + shown(*twice) + " is there twice", hint);
  return parsed;
}

std::string shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

const char* const kConfigJsonHint =
    "give the folder as it was published, or as save_pretrained wrote it: config.json beside "
    "model.safetensors";

JsonFields::JsonFields(std::string path)
    : path_(std::move(path)), json_(read_json_object(path_, kConfigJsonHint)) {}

bool JsonFields::has(const std::string& key) const {
  const auto at = json_.find(key);
  return at != json_.end() && !at->is_null();
}

void JsonFields::refuse(const std::string& key, const std::string& wanted) const {
  const std::string name = name_of(key);
  throw UserError(about(has(key) ? name + " is " + shown(json_[key]) + ", expected " + wanted
                                 : name + " is missing, expected " + wanted),
                  kConfigJsonHint);
}

int64_t JsonFields::count(const std::string& key, int64_t low) const {
  const std::string wanted = strprintf("a whole number from %ld to %ld", long(low), long(kLargest));
  if (!has(key) || !json_[key].is_number_integer()) refuse(key, wanted);
  const json& value = json_[key];
  // An unsigned value may not fit int64_t.
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(kLargest) : true;
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > kLargest) refuse(key, wanted);
  return value.get<int64_t>();
}

std::optional<int64_t> JsonFields::optional_count(const std::string& key, int64_t low) const {
  return has(key) ? std::optional(count(key, low)) : std::nullopt;
}

double JsonFields::positive(const std::string& key) const {
  const char* wanted = "a number above 0";
  if (!has(key) || !json_[key].is_number()) refuse(key, wanted);
  const double value = json_[key].get<double>();
  if (!(value > 0) || !std::isfinite(value)) refuse(key, wanted);
  return value;
}

double JsonFields::positive_or(const std::string& key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

bool JsonFields::flag_or(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_boolean()) refuse(key, "true or false");
  return json_[key].get<bool>();
}

std::string JsonFields::text_or(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_string()) refuse(key, "a string");
  return json_[key].get<std::string>();
}

std::optional<JsonFields> JsonFields::object(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  if (!json_[key].is_object()) refuse(key, "an object");
  return JsonFields(path_, prefix_ + key + ".", json_[key]);
}

}  // namespace assay
