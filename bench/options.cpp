#include "bench/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/instruction_sets.h"
#include "base/suggest.h"

namespace assay {
namespace {

constexpr size_t kHelpColumn = 28, kColumns = 80;
constexpr int64_t kMostThreads = 1024;  // as of run.threads

// Appends the words of `text` from `column` on; lines after the first are indented.
std::string wrapped(const std::string& text, size_t column, size_t indent) {
  std::string out;
  const size_t begin = column;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool first = column == begin && out.empty();
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

// A row of the help: the option, and its text to the right of it.
std::string row(const std::string& left, const std::string& text) {
  std::string out = "  " + left;
  if (out.size() + 1 > kHelpColumn) {
    out += "\n" + std::string(kHelpColumn, ' ');
  } else {
    out.resize(kHelpColumn, ' ');
  }
  return out + wrapped(text, kHelpColumn, kHelpColumn);
}

std::vector<std::string> choices_of(const std::string& what) {
  std::vector<std::string> out;
  if (what.size() < 2 || what.front() != '{') return out;
  std::istringstream list(what.substr(1, what.size() - 2));
  for (std::string word; std::getline(list, word, ',');) out.push_back(word);
  return out;
}

}  // namespace

void BenchOptions::add(const char* name, const char* what, std::string& value, std::string help) {
  const std::vector<std::string> choices = choices_of(what);
  // A part of a name may be empty: every name has it.
  const bool may_be_empty = std::string_view(name) == "--filter";
  const auto read = [&value, choices, may_be_empty, what = std::string(what),
                     given = std::optional<std::string>()](const std::string& text) mutable {
    if (text.empty() && !may_be_empty) return std::string("the value is empty");
    if (given && *given != text) return "given twice, as " + *given + " and as " + text;
    given = text;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
      return text + " is not one of " + what;
    value = text;
    return std::string();
  };
  options_.push_back({name, what, std::move(help), read, nullptr, sections_.size() - 1});
}

void BenchOptions::add_number(const char* name, int64_t least, std::string help,
                              std::function<void(int64_t)> set, int64_t most) {
  const auto read = [least, most, set = std::move(set)](const std::string& text) {
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0') return "\"" + text + "\" is not an integer";
    if (errno != 0 || number < least || number > most)
      return text + " is not an integer of at least " + std::to_string(least) +
             (number > most || errno != 0 ? " and at most " + std::to_string(most) : "");
    set(number);
    return std::string();
  };
  options_.push_back({name, "INT", std::move(help), read, nullptr, sections_.size() - 1});
}

void BenchOptions::add(const char* name, int& value, std::string help, int64_t least) {
  add_number(
      name, least, std::move(help), [&value](int64_t n) { value = int(n); },
      std::numeric_limits<int>::max());
}

void BenchOptions::add(const char* name, int64_t& value, std::string help, int64_t least) {
  add_number(
      name, least, std::move(help), [&value](int64_t n) { value = n; },
      std::numeric_limits<int64_t>::max());
}

void BenchOptions::add_threads(int& value) {
  add_number(
      "--threads", 0,
      "CPU threads (default: 0, all cores that it may use, whatever OMP_NUM_THREADS says)",
      [&value, all = value](int64_t n) { value = n == 0 ? all : int(n); }, kMostThreads);
}

void BenchOptions::add(const char* name, double& value, std::string help) {
  const auto read = [&value](const std::string& text) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    // Also refuses NaN.
    if (text.empty() || *end != '\0' || !(number > 0) || number > 1e300)
      return "\"" + text + "\" is not a number above 0";
    value = number;
    return std::string();
  };
  options_.push_back({name, "NUMBER", std::move(help), read, nullptr, sections_.size() - 1});
}

void BenchOptions::add(const char* name, bool& value, std::string help) {
  options_.push_back({name, "", std::move(help), {}, &value, sections_.size() - 1});
}

void BenchOptions::section(std::string title) {
  sections_.push_back(std::move(title));
}

BenchOptions::Option* BenchOptions::find(const std::string& name) {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& o) { return o.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

bool BenchOptions::given(const std::string& name) const {
  return std::any_of(options_.begin(), options_.end(),
                     [&](const Option& o) { return o.name == name && o.given; });
}

int BenchOptions::fail(const std::string& error, const std::string& hint) const {
  std::fprintf(stderr, "error: %s: %s\nhint: %s`%s --help` lists the options\n", program_.c_str(),
               error.c_str(), hint.c_str(), program_.c_str());
  return 1;
}

std::optional<int> BenchOptions::parse(int argc, char** argv) {
  require_instruction_sets();
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::fputs(help().c_str(), stdout);
      return 0;
    }
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    Option* const option = find(name);
    if (option == nullptr) {
      std::vector<std::string> known = {"--help"};
      for (const Option& o : options_) known.push_back(o.name);
      const std::string near = nearest_name(name, known);
      return fail("unknown option " + name, near.empty() ? "" : "did you mean " + near + "? ");
    }
    option->given = true;
    if (option->flag != nullptr) {
      if (value) return fail(name + " takes no value", "");
      *option->flag = true;
      continue;
    }
    if (!value && i + 1 < argc) value = argv[++i];
    if (!value) return fail(name + " needs a value", "");
    const std::string wrong = option->read(*value);
    if (!wrong.empty()) return fail(name + ": " + wrong, "");
  }
  return std::nullopt;
}

std::string BenchOptions::help() const {
  std::string out = wrapped(about_, 0, 0) + "Usage: " + program_ + " [OPTIONS]\n";
  for (size_t s = 0; s < sections_.size(); ++s) {
    out += "\n" + sections_[s] + ":\n";
    if (s == 0) out += row("-h,--help", "print this help and exit");
    for (const Option& o : options_) {
      if (o.section == s) out += row(o.name + (o.what.empty() ? "" : " " + o.what), o.help);
    }
  }
  return out;
}

int print_bench_error(const std::exception& error) {
  const auto* const known = dynamic_cast<const UserError*>(&error);
  std::fprintf(stderr, "error: %s\n", error.what());
  if (known != nullptr && !known->hint().empty())
    std::fprintf(stderr, "hint: %s\n", known->hint().c_str());
  return 1;
}

}  // namespace assay
