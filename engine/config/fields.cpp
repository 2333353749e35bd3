#include "engine/config/fields.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/config/section_visitor.h"

namespace assay {
namespace {

const char* type_name(const bool&) {
  return "true/false";
}
const char* type_name(const int64_t&) {
  return "integer";
}
const char* type_name(const double&) {
  return "number";
}
const char* type_name(const std::string&) {
  return "string";
}
template <IsChoice E>
const char* type_name(const E&) {
  return "string";
}
template <IsChoice E>
const char* type_name(const std::optional<E>&) {
  return "string";
}
const char* type_name(const BiasRate&) {
  return "number";
}
const char* type_name(const std::vector<std::string>&) {
  return "list";
}
const char* type_name(const std::optional<double>&) {
  return "number";
}
const char* type_name(const std::optional<std::vector<double>>&) {
  return "numbers";
}

class Collector : public SectionVisitor<Collector> {
 public:
  enum class Optionals { kAsTheyAre, kAllThere };
  Collector(std::vector<FieldRow>& rows, Optionals optionals)
      : rows_(rows), optionals_(optionals) {}

  template <typename T>
  void operator()(const char* name, T& field, const char* doc, const FieldCheck& check) {
    rows_.push_back({.path = path_of(name),
                     .type = type_name(field),
                     .value = yaml_scalar(field),
                     .doc = doc,
                     .check = check});
    if constexpr (IsChoice<T>) rows_.back().check.choices = choice_names<T>();
    if constexpr (IsOptionalChoice<T>) {
      rows_.back().check.choices = choice_names<typename OptionalChoice<T>::Enum>();
    }
  }

  template <typename T>
  void section(const char* name, T& nested, const char* doc) {
    add_section(name, "", doc);
    enter(name, nested);
  }
  template <typename T>
  void section(const char* name, std::optional<T>& nested, const char* doc) {
    if (!nested && optionals_ == Optionals::kAllThere) nested.emplace();
    add_section(name, nested ? "" : "absent", doc);
    if (nested) enter(name, *nested);
  }

 private:
  void add_section(const char* name, const char* value, const char* doc) {
    rows_.push_back(
        {.path = path_of(name), .type = "section", .value = value, .doc = doc, .check = {}});
  }

  std::vector<FieldRow>& rows_;
  Optionals optionals_;
};

std::vector<FieldRow> collect(Config config, Collector::Optionals optionals) {
  std::vector<FieldRow> rows;
  Collector collector(rows, optionals);
  visit(collector, config);
  return rows;
}

std::string number_text(double value) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

bool is_plain_word(const std::string& text) {
  if (text.empty() || !(isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/')) {
    return false;
  }
  for (const char c : text) {
    if (!isalnum(static_cast<unsigned char>(c)) && !strchr("_-./+", c)) return false;
  }
  // Words that some YAML readers do not read as text; "absent" marks absent sections here.
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "absent"}) {
    if (strcasecmp(text.c_str(), word) == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<FieldRow> config_fields(const Config& config) {
  return collect(config, Collector::Optionals::kAsTheyAre);
}

std::vector<FieldRow> all_config_fields() {
  return collect(Config{}, Collector::Optionals::kAllThere);
}

const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& path) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const FieldRow& row) { return row.path == path; });
  return found == rows.end() ? nullptr : &*found;
}

std::string file_names(const std::string& value) {
  std::string names, word;
  const auto end_word = [&] {
    names += word.substr(word.rfind('/') + 1) + ",";
    word.clear();
  };
  for (const char c : value) {
    if (c == ',') {
      end_word();
    } else if (c != '[' && c != ']' && c != '"') {
      word += c;
    }
  }
  end_word();
  return names;
}

std::string check_text(const FieldCheck& check) {
  if (!check.choices.empty()) {
    std::string text = "one of ";
    for (size_t i = 0; i < check.choices.size(); ++i) {
      text += (i > 0 ? ", " : "") + check.choices[i];
    }
    return text;
  }
  const bool has_low = check.low > -1e300, has_high = check.high < 1e300;
  if (has_low && has_high) {
    return std::string("in ") + (check.low_open ? "(" : "[") + number_text(check.low) + ", " +
           number_text(check.high) + (check.high_open ? ")" : "]");
  }
  if (has_low) return (check.low_open ? "> " : ">= ") + number_text(check.low);
  if (has_high) return (check.high_open ? "< " : "<= ") + number_text(check.high);
  return "";
}

std::string yaml_scalar(bool value) {
  return value ? "true" : "false";
}

std::string yaml_scalar(int64_t value) {
  return std::to_string(value);
}

// With a point, as YAML 1.1 (Python's reader) needs it in numbers with an exponent: 1.0e-05.
std::string yaml_scalar(double value) {
  std::string text = number_text(value);
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  return exponent == std::string::npos ? text + ".0" : text.insert(exponent, ".0");
}

std::string yaml_scalar(const std::optional<double>& value) {
  return value ? yaml_scalar(*value) : "absent";
}

std::string yaml_scalar(const BiasRate& value) {
  return value.automatic ? "auto" : yaml_scalar(value.number);
}

std::string yaml_scalar(const std::string& value) {
  if (is_plain_word(value)) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      static const char* hex = "0123456789abcdef";
      quoted += std::string("\\x") + hex[c >> 4] + hex[c & 15];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string yaml_scalar(const std::optional<std::vector<double>>& value) {
  if (!value) return "absent";
  std::string text = "[";
  for (size_t i = 0; i < value->size(); ++i) text += (i > 0 ? ", " : "") + yaml_scalar((*value)[i]);
  return text + "]";
}

std::string yaml_scalar(const std::vector<std::string>& value) {
  std::string text = "[";
  for (size_t i = 0; i < value.size(); ++i) text += (i > 0 ? ", " : "") + yaml_scalar(value[i]);
  return text + "]";
}

}  // namespace assay
