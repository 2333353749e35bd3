#include "lab/compare/derivation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "base/suggest.h"
#include "engine/config/paths.h"
#include "engine/config/yaml.h"
#include "models/audit/contract.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPresets = "models/presets/";
constexpr const char* kHint = "docs/published/README.md has the grammar of derivations";
constexpr double kSlack = 1e-12;  // relative; of sums and quotients of doubles

Range exact(double value) {
  return {value, value, value};
}

std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint = kHint) {
  throw UserError("a derivation " + what, hint);
}

// The member `key`; UserError if it is absent.
const Json& member(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    refuse(std::string("has no ") + key + ": " + object.dump());
  return object.at(key);
}

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> texts;
  if (!list.is_array()) refuse("has no list: " + list.dump());
  for (const Json& item : list) texts.push_back(text_of(item));
  return texts;
}

// The numbers of a configuration that a derivation may name.
struct Quantity {
  const char* name;
  int64_t (*of)(const Config& config, const Audit& audit);
};
const Quantity kQuantities[] = {
    {"total", [](const Config&, const Audit& a) { return a.total; }},
    {"active", [](const Config&, const Audit& a) { return a.active; }},
    {"embedding", [](const Config&, const Audit& a) { return a.parameters.embedding; }},
    {"flops_per_token", [](const Config&, const Audit& a) { return a.flops_per_token; }},
    {"ffn_active_width", [](const Config&, const Audit& a) { return a.ffn_active_width; }},
    {"steps", [](const Config& c, const Audit&) { return c.run.steps; }},
    {"tokens_per_step", [](const Config& c, const Audit&) { return c.run.batch_tokens; }},
    {"sequence", [](const Config& c, const Audit&) { return c.run.sequence; }},
    {"layers", [](const Config& c, const Audit&) { return c.model.layers; }},
    {"heads", [](const Config& c, const Audit&) { return c.model.heads; }},
    {"top_k", [](const Config& c, const Audit&) { return c.model.moe ? c.model.moe->top_k : 0; }},
};

int64_t quantity(const Config& config, const std::string& name) {
  std::vector<std::string> known;
  for (const Quantity& q : kQuantities) {
    if (name == q.name) return q.of(config, audit(config));
    known.emplace_back(q.name);
  }
  const std::string near = nearest_name(name, known);
  refuse("names " + name + ", which the audit does not have",
         near.empty() ? kHint : "did you mean " + near + "?");
}

Range apply(double (*function)(double), const Range& x) {  // of an increasing function
  return {function(x.value), function(x.low), function(x.high)};
}

Range combine(double (*function)(double, double), const Range& a, const Range& b) {
  const double corners[] = {function(a.low, b.low), function(a.low, b.high),
                            function(a.high, b.low), function(a.high, b.high)};
  const auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {function(a.value, b.value), *low, *high};
}

Range call(const std::string& name, const std::vector<Range>& of) {
  if (name == "exp" || name == "ceil" || name == "sqrt") {
    if (of.size() != 1) refuse(strprintf("gives %s %zu values", name.c_str(), of.size()));
    if (name == "exp") return apply([](double x) { return std::exp(x); }, of[0]);
    if (name == "ceil") return apply([](double x) { return std::ceil(x); }, of[0]);
    if (of[0].low < 0) refuse(strprintf("takes the root of %g", of[0].low));
    return apply([](double x) { return std::sqrt(x); }, of[0]);
  }
  if (of.size() < 2) refuse(strprintf("gives %s %zu values", name.c_str(), of.size()));
  if ((name == "-" || name == "/") && of.size() != 2)
    refuse(strprintf("gives %s %zu values", name.c_str(), of.size()));
  Range result = of[0];
  for (size_t i = 1; i < of.size(); ++i) {
    const Range& next = of[i];
    if (name == "+") result = combine([](double a, double b) { return a + b; }, result, next);
    if (name == "-") result = combine([](double a, double b) { return a - b; }, result, next);
    if (name == "*") result = combine([](double a, double b) { return a * b; }, result, next);
    if (name != "/") continue;
    if (next.low <= 0 && next.high >= 0) refuse(strprintf("divides by %g", next.value));
    result = combine([](double a, double b) { return a / b; }, result, next);
  }
  return result;
}

class FormulaValue {
 public:
  FormulaValue(const PublishedStudy& study, const RowOfTable* row) : study_(study), row_(row) {}

  Range value(const Json& node) const {
    if (node.is_number()) return exact(node.get<double>());
    if (!node.is_object() || node.size() != 1) refuse("is not understood: " + node.dump());
    const Range result = value_of(node.begin().key(), node.begin().value());
    if (!std::isfinite(result.low) || !std::isfinite(result.high))
      refuse("is not finite: " + node.dump());
    return result;
  }

 private:
  Range value_of(const std::string& word, const Json& of) const {
    static const std::vector<std::string> kCalls = {"+", "-", "*", "/", "exp", "ceil", "sqrt"};
    if (word == "row") return row_ ? cell(*row_, text_of(of)) : no_row(of);
    if (word == "cell") return cell_at(of);
    if (word == "audit") return audit_at(of);
    if (word == "horizon") return exact(double(steps_of(of)));
    if (word == "tokens_per_expert") return tokens_per_expert(of);
    if (std::find(kCalls.begin(), kCalls.end(), word) == kCalls.end())
      refuse("has the unknown word " + word);
    std::vector<Range> values;
    if (!of.is_array()) values.push_back(value(of));
    if (of.is_array())
      for (const Json& operand : of) values.push_back(value(operand));
    return call(word, values);
  }

  [[noreturn]] static Range no_row(const Json& column) {
    refuse("outside a table names the column " + text_of(column));
  }

  static Range cell(const RowOfTable& row, const std::string& key) {
    const auto& columns = row.table.columns;
    const auto column = std::find_if(columns.begin(), columns.end(),
                                     [&](const PublishedColumn& c) { return c.key == key; });
    if (column == columns.end()) refuse("names no column of " + row.table.title + ": " + key);
    const Json& found =
        row.cells[row.table.keys.size() + size_t(std::distance(columns.begin(), column))];
    if (!found.is_number()) refuse("needs " + key + ", which is not published");
    const double value = found.get<double>();
    if (!column->decimals) return exact(value);
    const double half = read_figure(cell_text(found, &*column)).half_unit();
    return {value, value - half, value + half};
  }

  Range cell_at(const Json& address) const {
    std::vector<std::string> words = texts_of(address);
    if (words.size() < 3) refuse("has an incomplete address: " + address.dump());
    for (std::string& word : words) word = filled(word);
    const std::string column = words.back();
    words.pop_back();
    return cell(find_row(study_, words), column);
  }

  Range audit_at(const Json& of) const {
    const std::vector<std::string> words = texts_of(of);
    if (words.size() != 2) refuse("asks the audit for " + of.dump());
    return exact(double(quantity(preset(words[0]), words[1])));
  }

  Range tokens_per_expert(const Json& of) const {
    if (!of.is_array() || of.size() != 2) refuse("asks tokens per expert of " + of.dump());
    const Range tokens = value(of[1]);
    return exact(double(tokens_per_routed_expert(preset(text_of(of[0])).model,
                                                 int64_t(std::llround(tokens.value)))));
  }

  int64_t steps_of(const Json& of) const {
    const auto sets = of.contains("set") ? texts_of(of.at("set")) : std::vector<std::string>{};
    Config config = preset(text_of(member(of, "preset")), sets);
    const std::string kind = text_of(member(of, "kind"));
    const auto choice = choice_named<ContractKind>(kind);
    if (!choice) refuse("names the unknown contract " + kind);
    ContractConfig contract;
    contract.kind = *choice;
    contract.shared_in_total = of.value("shared_in_total", true);
    contract.fraction = of.value("fraction", 1.0);
    if (of.contains("reference")) {
      const std::string name = text_of(of.at("reference"));
      contract.coefficient = reference_coefficient(contract.kind, reference_of(name, preset(name)),
                                                   shared_experts(contract));
    } else {
      contract.coefficient = value(member(of, "coefficient")).value;
    }
    config.contract = contract;
    return planned_steps(config);
  }

  Config preset(const std::string& name, const std::vector<std::string>& sets = {}) const {
    const std::string path = kPresets + filled(name);
    std::error_code ignored;
    if (!std::filesystem::exists(preset_or_path(path), ignored))
      refuse("needs " + path + ", which is not here",
             "call the program in the folder of a clone, or install it");
    return load_config(path, sets);
  }

  // Replaces {KEY} by the row's cell under that heading.
  std::string filled(std::string text) const {
    if (row_ == nullptr) return text;
    for (size_t k = 0; k < row_->table.keys.size(); ++k) {
      const std::string word = "{" + row_->table.keys[k] + "}";
      if (const size_t at = text.find(word); at != std::string::npos)
        text.replace(at, word.size(), text_of(row_->cells[k]));
    }
    return text;
  }

  const PublishedStudy& study_;
  const RowOfTable* row_;
};

}  // namespace

double PrintedFigure::half_unit() const {
  return 0.5 * std::pow(10.0, -double(decimals));
}

PrintedFigure read_figure(const std::string& text) {
  std::string digits;
  for (size_t i = text.starts_with("~") ? 1 : 0; i < text.size(); ++i)
    if (text[i] != ',') digits += text[i];
  const bool has_sign = digits.starts_with("+") || digits.starts_with("-");
  const std::string body = digits.substr(has_sign ? 1 : 0);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (body.empty() || !is_digit(body.front()) || !is_digit(body.back()) ||
      body.find_first_not_of("0123456789.") != std::string::npos ||
      std::count(body.begin(), body.end(), '.') > 1)
    throw UserError("\"" + text + "\" is not a printed figure", kHint);
  const size_t point = body.find('.');
  const int64_t decimals = point == std::string::npos ? 0 : int64_t(body.size() - point - 1);
  return {.value = std::strtod(digits.c_str(), nullptr), .decimals = decimals};
}

std::string cell_text(const Json& cell, const PublishedColumn* column) {
  if (cell.is_null()) return "";
  if (cell.is_number() && column != nullptr && column->decimals)
    return strprintf("%.*f", int(*column->decimals), cell.get<double>());
  return text_of(cell);
}

RowOfTable find_row(const PublishedStudy& study, const std::vector<std::string>& title_and_keys) {
  for (const PublishedTable& table : study.tables) {
    if (title_and_keys.empty() || table.title != title_and_keys[0]) continue;
    for (const auto& cells : table.rows) {
      if (title_and_keys.size() != table.keys.size() + 1) continue;
      if (std::equal(title_and_keys.begin() + 1, title_and_keys.end(), cells.begin(),
                     [](const std::string& key, const Json& cell) { return key == text_of(cell); }))
        return {table, cells};
    }
  }
  refuse("names no row of " + study.name + ": " + joined(title_and_keys, ", "));
}

Range evaluate(const Json& derivation, const PublishedStudy& study, const RowOfTable* row) {
  return FormulaValue(study, row).value(derivation);
}

bool is_same(const Range& derived, const PrintedFigure& published) {
  const double reach = published.half_unit() + kSlack * std::abs(published.value);
  return derived.low <= published.value + reach && derived.high >= published.value - reach;
}

}  // namespace assay
