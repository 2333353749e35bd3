#include "data/synth_grammar.h"

#include <cctype>
#include <set>

#include "base/check.h"
#include "base/random.h"

namespace assay {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split(std::string_view s, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = s.find(at);
    parts.push_back(trim(s.substr(0, end)));
    if (end == s.npos) return parts;
    s.remove_prefix(end + 1);
  }
}

void parse_tables(std::string_view text, SynthGrammar& grammar) {
  SynthTable* table = nullptr;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    if (line.front() == '@') {
      const auto words = split(line.substr(1), ' ');
      const std::string name(words[0]);
      CHECK(!grammar.tables.count(name), "synth: table %s is defined twice", name.c_str());
      table = &grammar.tables[name];
      table->name = name;
      for (size_t i = 1; i < words.size(); ++i) table->fields.emplace_back(words[i]);
      if (table->fields.empty()) table->fields = {"one"};
      continue;
    }
    CHECK(table != nullptr, "synth: a row before the first table");
    for (const std::string_view row : split(line, ';')) {
      std::vector<std::string> fields;
      for (const std::string_view field : split(row, '|')) fields.emplace_back(field);
      CHECK(fields.size() == table->fields.size(), "synth: table %s, row '%s': %zu fields, not %zu",
            table->name.c_str(), std::string(row).c_str(), fields.size(), table->fields.size());
      table->rows.push_back(std::move(fields));
    }
  }
}

// Splits `both` at its first `at`. Without one: false, and `second` stays as it is.
bool split_pair(std::string_view both, char at, std::string& first, std::string& second) {
  const size_t cut = both.find(at);
  first = both.substr(0, cut);
  if (cut != both.npos) second = both.substr(cut + 1);
  return cut != both.npos;
}

// x, x.field, x~list
void parse_reference(std::string_view s, SynthNode& node) {
  const bool list = s.find('~') != s.npos;
  split_pair(s, list ? '~' : '.', node.target, node.field);
  if (list) node.field.insert(0, "~");
}

// n=3..9
bool parse_range(std::string_view s, SynthNode& node) {
  const size_t dots = s.find("..");
  if (!split_pair(s, '=', node.target, node.left) || dots == s.npos) return false;
  node.low = std::stol(node.left);
  node.high = std::stol(std::string(s.substr(dots + 2)));
  return true;
}

// n=a-b, n=a+b
bool parse_computation(std::string_view s, SynthNode& node) {
  std::string sum;
  if (!split_pair(s, '=', node.target, sum)) return false;
  node.low = sum.find('-') != sum.npos ? -1 : 1;
  return split_pair(sum, node.low < 0 ? '-' : '+', node.left, node.right);
}

// n:was:were
bool parse_agreement(std::string_view s, SynthNode& node) {
  const auto parts = split(s, ':');
  if (parts.size() != 3) return false;
  node.target = parts[0];
  node.left = parts[1];
  node.right = parts[2];
  return true;
}

// A slot without a sign: n*x, or a reference.
void parse_unsigned(std::string_view s, SynthNode& node) {
  const bool count = s.find('*') != s.npos;
  node.op = count ? SynthOp::kCount : SynthOp::kPrint;
  if (count) {
    split_pair(s, '*', node.target, node.field);
  } else {
    parse_reference(s, node);
  }
}

// Parses the inside of {...}.
SynthNode parse_slot(std::string_view s) {
  CHECK(!s.empty(), "synth: an empty slot");
  SynthNode node;
  const std::string_view rest = s.substr(1);
  bool valid = true;
  switch (s.front()) {
    case '/':
      node.target = "\n";
      break;
    case '@':
      node.op = SynthOp::kRule;
      node.target = rest;
      break;
    case '=':
      node.op = SynthOp::kBind;
      valid = split_pair(rest, ':', node.target, node.field);
      break;
    case '#':
      node.op = SynthOp::kRange;
      valid = parse_range(rest, node);
      break;
    case '+':
      node.op = SynthOp::kCompute;
      valid = parse_computation(rest, node);
      break;
    case '?':
      node.op = SynthOp::kAgree;
      valid = parse_agreement(rest, node);
      break;
    case '*':
      node.op = SynthOp::kPlural;
      parse_reference(rest, node);
      break;
    case '^':
      node.op = SynthOp::kPrint;
      node.letter_case = SynthCase::kCapital;
      parse_reference(rest, node);
      break;
    default:
      parse_unsigned(s, node);
  }
  CHECK(valid, "synth: {%s}", std::string(s).c_str());
  return node;
}

// Parses and consumes `s` up to a character of `stop` ('|' and ']' inside a choice) or its end.
SynthLine parse_line(std::string_view& s, std::string_view stop) {
  SynthLine line;
  while (!s.empty() && stop.find(s.front()) == stop.npos) {
    if (s.front() == '{') {
      const size_t end = s.find('}');
      CHECK(end != s.npos, "synth: no } after '%s'", std::string(s).c_str());
      line.push_back(parse_slot(s.substr(1, end - 1)));
      s.remove_prefix(end + 1);
    } else if (s.front() == '[') {
      SynthNode either;
      either.op = SynthOp::kEither;
      do {
        s.remove_prefix(1);
        either.alternatives.push_back(parse_line(s, "|]"));
        CHECK(!s.empty(), "synth: a [ without its ]");
      } while (s.front() == '|');
      s.remove_prefix(1);
      line.push_back(std::move(either));
    } else {
      const size_t end = std::min(s.size(), s.find_first_of("{[|]"));
      SynthNode text;
      text.target = s.substr(0, std::max<size_t>(end, 1));
      s.remove_prefix(text.target.size());
      line.push_back(std::move(text));
    }
  }
  return line;
}

void parse_rules(std::string_view text, SynthGrammar& grammar) {
  SynthRule* rule = nullptr;
  for (std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    if (line.front() == '#') {
      const std::string name(line.substr(1));
      CHECK(!grammar.rules.count(name), "synth: rule %s is defined twice", name.c_str());
      const int id = static_cast<int>(grammar.rules.size());
      rule = &grammar.rules[name];
      rule->id = id;
      rule->sentences = std::isupper(static_cast<unsigned char>(name[0])) != 0;
      continue;
    }
    CHECK(rule != nullptr, "synth: a line before the first rule");
    rule->lines.push_back(parse_line(line, ""));
  }
}

void add_people(SynthGrammar& grammar) {
  SynthTable& person = grammar.tables["person"];
  person.name = "person";
  person.fields = {"one", "he", "him", "his", "himself", "child"};
  const auto& girls = grammar.table("girl").rows;
  const auto& boys = grammar.table("boy").rows;
  for (size_t i = 0; i < std::max(girls.size(), boys.size()); ++i) {
    if (i < girls.size())
      person.rows.push_back({girls[i][0], "she", "her", "her", "herself", "girl"});
    if (i < boys.size()) person.rows.push_back({boys[i][0], "he", "him", "his", "himself", "boy"});
  }
  SynthTable& elder = grammar.tables["elder"];
  elder.name = "elder";
  elder.fields = grammar.table("title").fields;
  for (const auto& surname : grammar.table("surname").rows) {
    for (const auto& title : grammar.table("title").rows) {
      elder.rows.push_back(title);
      elder.rows.back()[0] += " " + surname[0];
    }
  }
}

// Facts that are the same for every seed: each town's landmark and product, and the order of the
// towns.
void add_towns(SynthGrammar& grammar) {
  SynthTable& town = grammar.tables["town"];
  town.name = "town";
  town.fields = {"one", "landmark", "product"};
  for (const auto& prefix : grammar.table("prefix").rows) {
    for (const auto& suffix : grammar.table("suffix").rows) {
      town.rows.push_back({prefix[0] + suffix[0], "", ""});
    }
  }
  RandomSequence random({.seed = 0, .stream = stream_id("synth facts"), .step = 0});
  const auto draw = [&](const char* table) {
    const auto& rows = grammar.table(table).rows;
    return rows[random.below(static_cast<uint32_t>(rows.size()))][0];
  };
  for (size_t i = 0; i < town.rows.size(); ++i) {
    std::swap(town.rows[i],
              town.rows[i + random.below(static_cast<uint32_t>(town.rows.size() - i))]);
    town.rows[i][1] = draw("landmark");
    town.rows[i][2] = draw("product");
  }
}

void check_line(const SynthGrammar& grammar, const SynthLine& line) {
  for (const SynthNode& node : line) {
    if (node.op == SynthOp::kRule) grammar.rule(node.target);
    for (const SynthLine& alternative : node.alternatives) check_line(grammar, alternative);
  }
}

}  // namespace

int SynthTable::field(std::string_view wanted) const {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] == wanted) return static_cast<int>(i);
  }
  return -1;
}

const SynthTable& SynthGrammar::table(std::string_view name) const {
  const auto found = tables.find(name);
  CHECK(found != tables.end(), "synth: no table %s", std::string(name).c_str());
  return found->second;
}

const SynthRule& SynthGrammar::rule(std::string_view name) const {
  const auto found = rules.find(name);
  CHECK(found != rules.end(), "synth: no rule %s", std::string(name).c_str());
  return found->second;
}

const SynthGrammar& synth_grammar() {
  static const SynthGrammar grammar = [] {
    SynthGrammar g;
    parse_tables(kSynthLexicon, g);
    add_people(g);
    add_towns(g);
    parse_rules(kSynthStories, g);
    parse_rules(kSynthPlots, g);
    for (const auto& [name, rule] : g.rules) {
      CHECK(!rule.lines.empty(), "synth: rule %s is empty", name.c_str());
      for (const SynthLine& line : rule.lines) check_line(g, line);
    }
    return g;
  }();
  return grammar;
}

}  // namespace assay
