#include "data/json_text.h"

#include <unordered_set>
#include <vector>

namespace assay {
namespace {

using nlohmann::json;

// Reads keys and builds no values: the parser with a callback looks through all members of an
// object again whenever one of them ends.
class RepeatedKey : public nlohmann::json_sax<json> {
 public:
  std::optional<std::string> found;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!found && !open_.back().insert(name).second) found = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  std::vector<std::unordered_set<std::string>> open_;  // the names of each open object
};

}  // namespace

std::optional<std::string> first_repeated_key(std::string_view text) {
  if (json_is_too_deep(text)) return std::nullopt;
  RepeatedKey keys;
  return json::sax_parse(text, &keys) ? keys.found : std::nullopt;
}

}  // namespace assay
