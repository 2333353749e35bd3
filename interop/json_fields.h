// Fields of a config.json, with errors that name file, field and value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace assay {

// The object in a file. UserError if the file cannot be read, is not a JSON object, or is nested
// too deep.
nlohmann::json read_json_object(const std::string& path, const std::string& hint);
// A value as text for an error: long values are cut, lists and objects not written out.
std::string shown(const nlohmann::json& value);

class JsonFields {
 public:
  // UserError if the file is missing or not a JSON object.
  explicit JsonFields(std::string path);

  const std::string& path() const { return path_; }
  bool has(const std::string& key) const;  // null counts as absent
  // A whole number in [low, 2^30]. UserError if it is absent, of another type or outside.
  int64_t count(const std::string& key, int64_t low = 1) const;
  std::optional<int64_t> optional_count(const std::string& key, int64_t low = 1) const;
  // A finite number > 0.
  double positive(const std::string& key) const;
  double positive_or(const std::string& key, double otherwise) const;
  bool flag_or(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;
  // The object under a key, where newer files keep some fields; nullopt if there is none.
  std::optional<JsonFields> object(const std::string& key) const;
  const nlohmann::json& all() const { return json_; }
  // A field's name in errors: "rope_parameters.rope_type".
  std::string name_of(const std::string& key) const { return prefix_ + key; }

  // "FOLDER/config.json: what", for errors.
  std::string about(const std::string& what) const { return path_ + ": " + what; }

 private:
  JsonFields(std::string path, std::string prefix, nlohmann::json json)
      : path_(std::move(path)), prefix_(std::move(prefix)), json_(std::move(json)) {}
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

  std::string path_;
  std::string prefix_;  // of field names in errors
  nlohmann::json json_;
};

// The hint for a wrong config.json.
extern const char* const kConfigJsonHint;

}  // namespace assay
