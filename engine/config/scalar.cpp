#include "engine/config/scalar.h"

#include <ctype.h>
#include <strings.h>

#include <charconv>
#include <cmath>

namespace assay {
namespace {

constexpr double kLargestInt = 1e15;

size_t digits_from(const std::string& text, size_t at) {
  while (at < text.size() && isdigit(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

// [+-] digits [. digits] [e [+-] digits], at least one digit before the exponent.
bool is_number(const std::string& text) {
  size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const size_t whole = digits_from(text, at);
  size_t digits = whole - at;
  at = whole;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = digits_from(text, at + 1);
    digits += fraction - (at + 1);
    at = fraction;
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = digits_from(text, at);
    if (exponent == at) return false;
    at = exponent;
  }
  return at == text.size();
}

bool has_leading_zero(const std::string& text) {
  const size_t at = text[0] == '+' || text[0] == '-' ? 1 : 0;
  return at + 1 < text.size() && text[at] == '0' &&
         isdigit(static_cast<unsigned char>(text[at + 1]));
}

bool is_not_finite_word(const std::string& text) {
  const size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  for (const char* word : {".nan", ".inf", "nan", "inf", "infinity"}) {
    if (strcasecmp(text.c_str() + at, word) == 0) return true;
  }
  return false;
}

// The common part: `wanted` is "a number" or "an integer".
ReadDouble read_number(const std::string& text, const char* wanted) {
  if (is_not_finite_word(text)) return {.problem = "= " + text + " is not a finite number"};
  if (!is_number(text)) return {.problem = "is \"" + text + "\", not " + wanted};
  if (has_leading_zero(text)) {
    return {.problem = "= " + text + " starts with a zero, which some read as octal"};
  }
  const char* begin = text.c_str() + (text[0] == '+' ? 1 : 0);
  double value = 0;
  const auto read = std::from_chars(begin, text.c_str() + text.size(), value);
  if (read.ec == std::errc::result_out_of_range || !std::isfinite(value)) {
    return {.problem = "= " + text + " does not fit a double"};
  }
  return {.value = value, .problem = ""};
}

}  // namespace

std::optional<bool> read_bool(const std::string& text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

ReadInt read_int(const std::string& text) {
  const ReadDouble read = read_number(text, "an integer");
  if (!read.problem.empty()) return {.problem = read.problem};
  if (read.value != std::floor(read.value)) return {.problem = "= " + text + " is not an integer"};
  if (std::fabs(read.value) > kLargestInt) return {.problem = "= " + text + " is beyond 10^15"};
  return {.value = static_cast<int64_t>(read.value), .problem = ""};
}

ReadDouble read_double(const std::string& text) {
  return read_number(text, "a number");
}

}  // namespace assay
