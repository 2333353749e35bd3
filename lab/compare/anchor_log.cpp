#include "lab/compare/anchor_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "data/sha256.h"

namespace assay {
namespace {

constexpr const char* kHint =
    "the log of a run of modded-nanogpt or llm.c has lines like `s:128 tel:6.034447`";
constexpr size_t kShownText = 60;
constexpr size_t kLlmCDecimals = 4;

// One line, split at blanks.
struct Line {
  int64_t number = 0;
  std::string_view text;
  size_t at = 0;

  std::string_view word() {
    while (at < text.size() && text[at] == ' ') ++at;
    const size_t begin = at;
    while (at < text.size() && text[at] != ' ') ++at;
    return text.substr(begin, at - begin);
  }
};

// The number of `key:NUMBER`; nullopt for any other word.
template <typename T>
std::optional<T> field(std::string_view word, std::string_view key) {
  if (word.substr(0, key.size()) != key) return std::nullopt;
  word.remove_prefix(key.size());
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
  return value;
}

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, kShownText));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  return shown + (text.size() > kShownText ? "..." : "");
}

class Parser {
 public:
  explicit Parser(AnchorLog& log) : log_(log) {}

  void line(const Line& line) {
    if (line.text.empty()) return;
    if (!record(line)) unknown(line);
    ++lines_;
  }

  void finish() {
    if (lines_ == 0) throw UserError(log_.path + " is empty", kHint);
    if (2 * log_.unknown_lines > lines_ || log_.val_loss_nats.empty()) {
      throw UserError(
          strprintf("%s is not a log of modded-nanogpt or llm.c: of %ld lines, %zu are validations",
                    log_.path.c_str(), long(lines_), log_.val_loss_nats.size()) +
              (log_.unknown_lines > 0 ? "; " + log_.warning() : ""),
          kHint);
    }
    log_.format = is_llm_c() ? AnchorFormat::kLlmC : AnchorFormat::kModdedNanogpt;
  }

 private:
  bool record(Line line) {
    const auto step = field<int64_t>(line.word(), "s:");
    const std::string_view what = line.word();
    if (!step || *step < 0) return false;
    if (const auto loss = field<double>(what, "tel:")) {
      short_losses_ += what.size() - std::min(what.size(), what.find('.')) == 1 + kLlmCDecimals;
      return validation(line, *step, *loss);
    }
    if (field<double>(what, "eval:")) return ends(line) && ++log_.accuracy_lines > 0;
    if (!field<double>(what, "trl:")) return false;
    return training(line);
  }

  // Decided by the training lines; without any, by the decimals of the validation losses.
  bool is_llm_c() const {
    if (log_.train_lines > 0) return 2 * with_rate_ > log_.train_lines;
    return log_.accuracy_lines > 0 || short_losses_ == int64_t(log_.val_loss_nats.size());
  }

  static bool ends(Line& line) { return line.word().empty(); }

  bool validation(Line& line, int64_t step, double loss) {
    if (!ends(line)) return false;
    if (!std::isfinite(loss)) {
      throw UserError(strprintf("%s:%ld: the loss at step %ld is %g", log_.path.c_str(),
                                long(line.number), long(step), loss),
                      "an anchor is a run that succeeded: give another log");
    }
    if (!log_.val_loss_nats.empty() && step <= log_.val_loss_nats.back().step) {
      throw UserError(
          strprintf("%s:%ld: step %ld comes after step %ld", log_.path.c_str(), long(line.number),
                    long(step), long(log_.val_loss_nats.back().step)),
          "the file holds more than one run, or a run that was resumed: keep one");
    }
    log_.val_loss_nats.push_back({.step = step, .value = loss});
    return true;
  }

  bool training(Line& line) {
    const std::string_view next = line.word();
    if (!next.empty()) {
      if (!field<double>(next, "lr:")) return false;
      const std::string_view norm = line.word();
      if (!norm.empty() && !field<double>(norm, "norm:")) return false;
      if (!ends(line)) return false;
      ++with_rate_;
    }
    ++log_.train_lines;
    return true;
  }

  void unknown(const Line& line) {
    if (++log_.unknown_lines > 1) return;
    log_.first_unknown_line = line.number;
    log_.first_unknown_text = printable(line.text);
  }

  AnchorLog& log_;
  int64_t lines_ = 0;         // non-empty lines
  int64_t with_rate_ = 0;     // training lines with lr:
  int64_t short_losses_ = 0;  // validations with four decimals
};

}  // namespace

const char* anchor_format_name(AnchorFormat format) {
  return format == AnchorFormat::kLlmC ? "llm.c" : "modded-nanogpt";
}

std::string AnchorLog::warning() const {
  if (unknown_lines == 0) return "";
  return strprintf("%ld line%s not understood, the first is line %ld: %s", long(unknown_lines),
                   unknown_lines == 1 ? " is" : "s are", long(first_unknown_line),
                   first_unknown_text.c_str());
}

const StepValue& AnchorLog::best() const {
  return *std::min_element(
      val_loss_nats.begin(), val_loss_nats.end(),
      [](const StepValue& a, const StepValue& b) { return a.value < b.value; });
}

std::optional<StepValue> AnchorLog::at(int64_t step) const {
  for (const StepValue& v : val_loss_nats)
    if (v.step == step) return v;
  return std::nullopt;
}

std::optional<StepValue> AnchorLog::first_at_or_below(double loss_nats) const {
  for (const StepValue& v : val_loss_nats)
    if (v.value <= loss_nats) return v;
  return std::nullopt;
}

AnchorLog parse_anchor_log(const std::string& text, const std::string& path) {
  AnchorLog log;
  log.path = path;
  Parser parser(log);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string_view line(text.data() + begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    parser.line({.number = ++number, .text = line});
    begin = end + 1;
  }
  parser.finish();
  log.sha256 = sha256_hex(text);
  return log;
}

AnchorLog read_anchor_log(const std::string& path) {
  return parse_anchor_log(read_file(path), path);
}

}  // namespace assay
