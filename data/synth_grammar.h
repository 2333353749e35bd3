// The grammar of the embedded corpus: tables of words and rules of sentences, compiled once from
// text.
//
// A rule is "#name" and one alternative per line. Inside a line:
//   {@Rule}         one alternative of the rule; a capital initial marks whole sentences, whose
//                   bindings are forgotten afterwards
//   {=x:table}      binds x to a row not yet used in this story; prints nothing. {=x:y~list} binds
//                   it to a row of the table "<y>.list", {=x:y} to what y is bound to
//   {#n=3..9}       binds n to a number; {+n=a-b}, {+n=a+b}, {+n=a-1} compute one; print nothing
//   {x} {x.field}   prints the bound value; numbers as words. The name of a table draws a row
//                   without binding it
//   {x~list}        draws from the table named "<x>.<list>"
//   {*x} {*x~list}  plural;  {n*x} a count of them: "one fox", "three foxes"
//   {?n:was:were}   the first if n is one, else the second
//   {^x}            with a capital;  [a|b] either;  {/} new paragraph
// docs/synth.md describes the corpus as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

extern const std::string_view kSynthLexicon;  // tables
extern const std::string_view kSynthStories;  // rules
extern const std::string_view kSynthPlots;    // rules

struct SynthTable {
  std::string name;
  std::vector<std::string> fields;
  std::vector<std::vector<std::string>> rows;  // one string per field each
  int field(std::string_view wanted) const;    // index of the field, -1 if there is none
};

enum class SynthOp {
  kText,
  kRule,
  kBind,
  kRange,
  kCompute,
  kPrint,
  kPlural,
  kCount,
  kAgree,
  kEither
};
enum class SynthCase { kAsIs, kCapital };

struct SynthNode;
using SynthLine = std::vector<SynthNode>;

struct SynthNode {
  SynthOp op = SynthOp::kText;
  SynthCase letter_case = SynthCase::kAsIs;
  std::string target = {};    // the text, the rule, or the variable that is bound or printed
  std::string field = {};     // .field, ~list, the table of a bind, the counted variable
  std::string left = {};      // operand of a computation, singular of an agreement
  std::string right = {};     // operand of a computation, plural of an agreement
  int64_t low = 0, high = 0;  // bounds of a range; low is the sign of a computation, 1 or -1
  std::vector<SynthLine> alternatives = {};  // of [a|b]
};

struct SynthRule {
  int id = 0;
  bool sentences = false;  // name with a capital initial
  std::vector<SynthLine> lines;
};

struct SynthGrammar {
  std::map<std::string, SynthTable, std::less<>> tables;
  std::map<std::string, SynthRule, std::less<>> rules;

  const SynthTable& table(std::string_view name) const;
  const SynthRule& rule(std::string_view name) const;
};

// The grammar of the embedded corpus, with the derived tables: person, elder, town and its facts.
const SynthGrammar& synth_grammar();

}  // namespace assay
