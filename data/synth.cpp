#include "data/synth.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "data/synth_grammar.h"

namespace assay {
namespace {

constexpr char kSentenceStart = '\x01';  // marks sentences between expansion and polish()

const char* const kNumberWords[] = {
    "no",       "one",     "two",     "three",     "four",     "five",     "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",   "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};

std::string number_word(int64_t n) {
  CHECK(n >= 0 && n < static_cast<int64_t>(std::size(kNumberWords)), "synth: number %ld", long{n});
  return kNumberWords[n];
}

bool ends_with_any(std::string_view word, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto e) { return word.ends_with(e); });
}

std::string plural(const std::string& one) {
  if (ends_with_any(one, {"s", "x", "ch", "sh"})) return one + "es";
  if (one.ends_with('y') && !ends_with_any(one, {"ay", "ey", "oy", "uy"})) {
    return one.substr(0, one.size() - 1) + "ies";
  }
  return one + "s";
}

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_letter(char c) {
  return is_lower(c) || (c >= 'A' && c <= 'Z');
}
char upper(char c) {
  return is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
}

// The state of one story: bound variables, used rows and lines.
class Story {
 public:
  Story(const SynthGrammar& grammar, const RandomKey& key) : grammar_(grammar), random_(key) {}

  std::string text = {};

  void rule(std::string_view name) {
    const SynthRule& rule = grammar_.rule(name);
    const SynthLine& line = rule.lines[unused_line(rule)];
    if (!rule.sentences) return expand(line);
    const auto outer = bound_;
    text += kSentenceStart;
    expand(line);
    text += kSentenceStart;
    bound_ = outer;
  }

 private:
  struct Binding {
    const SynthTable* table = nullptr;  // null: a number
    size_t row = 0;
    int64_t number = 0;
  };

  // Draws a row as the smaller of two draws, which favours the start of the table.
  size_t draw(const SynthTable& table) {
    const auto n = static_cast<uint32_t>(table.rows.size());
    const uint32_t a = random_.below(n);
    return std::min(a, random_.below(n));
  }

  size_t unused_line(const SynthRule& rule) {
    const auto n = static_cast<uint32_t>(rule.lines.size());
    size_t line = random_.below(n);
    for (int tries = 0; tries < 4 && used_lines_.count({rule.id, line}); ++tries) {
      line = random_.below(n);
    }
    used_lines_.insert({rule.id, line});
    return line;
  }

  void bind(const std::string& name, const SynthTable& table) {
    size_t row = draw(table);
    for (int tries = 0; tries < 16 && used_rows_.count({&table, row}); ++tries) row = draw(table);
    used_rows_.insert({&table, row});
    bound_[name] = {.table = &table, .row = row};
  }

  // what: a table, x~list or a variable.
  void bind_to(const std::string& name, const std::string& what) {
    const size_t list = what.find('~');
    const auto found = bound_.find(what.substr(0, list));
    if (found == bound_.end()) return bind(name, grammar_.table(what));
    const Binding same = found->second;
    if (list == what.npos) {
      bound_[name] = same;
    } else {
      bind(name, grammar_.table(same.table->rows[same.row][0] + "." + what.substr(list + 1)));
    }
  }

  int64_t number(const std::string& operand) const {
    if (std::isdigit(static_cast<unsigned char>(operand[0]))) return std::stol(operand);
    const auto found = bound_.find(operand);
    CHECK(found != bound_.end() && !found->second.table, "synth: %s is not a number",
          operand.c_str());
    return found->second.number;
  }

  // The text of {x}, {x.field}, {x~list}, {table} or {table.field}.
  std::string value(const std::string& name, const std::string& field) {
    const auto found = bound_.find(name);
    if (found == bound_.end()) {
      const SynthTable& table = grammar_.table(name);
      return cell(table, draw(table), field);
    }
    const Binding& b = found->second;
    if (!b.table) return number_word(b.number);
    if (field.starts_with('~')) {
      const SynthTable& list = grammar_.table(b.table->rows[b.row][0] + "." + field.substr(1));
      return list.rows[draw(list)][0];
    }
    return cell(*b.table, b.row, field);
  }

  static std::string cell(const SynthTable& table, size_t row, const std::string& field) {
    const int column = field.empty() ? 0 : table.field(field);
    CHECK(column >= 0, "synth: table %s has no field %s", table.name.c_str(), field.c_str());
    return table.rows[row][static_cast<size_t>(column)];
  }

  std::string many(const std::string& name) {
    const auto found = bound_.find(name);
    const bool listed =
        found != bound_.end() && found->second.table && found->second.table->field("many") >= 0;
    return listed ? value(name, "many") : plural(value(name, ""));
  }

  void expand(const SynthLine& line) {
    for (const SynthNode& node : line) expand(node);
  }

  void expand(const SynthNode& node) {
    switch (node.op) {
      case SynthOp::kText:
        text += node.target;
        break;
      case SynthOp::kRule:
        rule(node.target);
        break;
      case SynthOp::kBind:
        bind_to(node.target, node.field);
        break;
      case SynthOp::kRange: {
        const auto span = static_cast<uint32_t>(node.high - node.low + 1);
        bound_[node.target] = {.number = node.low + random_.below(span)};
        break;
      }
      case SynthOp::kCompute:
        bound_[node.target] = {.number = number(node.left) + node.low * number(node.right)};
        break;
      case SynthOp::kPrint: {
        const std::string word = value(node.target, node.field);
        text += node.letter_case == SynthCase::kCapital ? upper(word[0]) + word.substr(1) : word;
        break;
      }
      case SynthOp::kPlural:
        text += node.field.empty() ? many(node.target) : plural(value(node.target, node.field));
        break;
      case SynthOp::kCount:
        text += number_word(number(node.target)) + " ";
        text += number(node.target) == 1 ? value(node.field, "") : many(node.field);
        break;
      case SynthOp::kAgree:
        text += number(node.target) == 1 ? node.left : node.right;
        break;
      case SynthOp::kEither:
        expand(node.alternatives[random_.below(static_cast<uint32_t>(node.alternatives.size()))]);
        break;
    }
  }

  const SynthGrammar& grammar_;
  RandomSequence random_;
  std::map<std::string, Binding, std::less<>> bound_ = {};
  std::set<std::pair<const SynthTable*, size_t>> used_rows_ = {};
  std::set<std::pair<int, size_t>> used_lines_ = {};
};

// Fixes spaces, capitals, "a" before a vowel and the comma before "said".
std::string polish(const std::string& raw) {
  std::string out;
  out.reserve(raw.size());
  bool capital = true;  // the next letter starts a sentence
  bool quoted = false;  // inside "..."
  for (size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    const char last = out.empty() ? '\n' : out.back();
    if (c == kSentenceStart) {
      capital = true;
    } else if (c == '\n') {
      while (!out.empty() && out.back() == ' ') out.pop_back();
      if (!out.empty() && out.back() != '\n') out += '\n';
      capital = true;
    } else if (c == ' ') {
      if (last == ' ' || last == '\n') continue;
      const bool ended = last == '.' || last == '!' || last == '?';
      capital = capital || ended;
      const char following = i + 1 < raw.size() ? raw[i + 1] : '\n';
      // "It is cold." said Anna: the full stop inside the quotation is a comma.
      if (last == '"' && !capital && is_lower(following) && out.size() > 1 &&
          out[out.size() - 2] == '.') {
        out[out.size() - 2] = ',';
      }
      out += ' ';
    } else if (c == '"') {
      quoted = !quoted;
      if (quoted)
        capital = capital || out.size() < 2 || out[out.size() - 2] != ',';
      else
        capital = false;
      out += '"';
    } else {
      const bool word_start = !is_letter(last);
      const char following = i + 1 < raw.size() ? raw[i + 1] : ' ';
      const bool pronoun = c == 'i' && word_start && !is_letter(following);
      const bool vowel = c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
      if (vowel && word_start &&
          (out.ends_with(" a ") || out.ends_with("\nA ") || out.ends_with(" A ") ||
           out.ends_with("\"A ") || out == "A ")) {
        out.insert(out.size() - 1, "n");
      }
      out += (capital || pronoun) ? upper(c) : c;
      if (is_letter(c)) capital = false;
    }
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  return out;
}

}  // namespace

std::string StoryGenerator::next() {
  const RandomKey key{.seed = seed_,
                      .stream = stream_id("synth story") + (story_ >> 32),
                      .step = static_cast<uint32_t>(story_)};
  ++story_;
  Story story(synth_grammar(), key);
  story.rule("story");
  return polish(story.text);
}

}  // namespace assay
