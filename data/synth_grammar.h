// The grammar of the embedded corpus: tables of words and rules of sentences, compiled once from
// text.
//
// A rule is "#name" and one alternative a line. Inside a line:
//   {@Rule}         one alternative of the rule; a capital initial says that it is whole sentences,
//                   and what it binds is then forgotten
//   {=x:table}      binds x to a row not yet used in this story; prints nothing. {=x:y~list} to a row of that
//                   table, {=x:y} to what y is bound to
//   {#n=3..9}       binds n to a number; {+n=a-b}, {+n=a+b}, {+n=a-1} compute one; print nothing
//   {x} {x.field}   what is bound; numbers print as words. A table's name draws a row without binding it
//   {x~list}        draws from the table named "<x>.<list>"
//   {*x} {*x~list}  plural;  {n*x} a count of them: "one fox", "three foxes"
//   {?n:was:were}   the first if n is one, else the second
//   {^x}            with a capital;  [a|b] either;  {/} new paragraph
// The corpus as a whole: docs/synth.md.
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
  std::vector<std::vector<std::string>> rows;  // as many strings each as fields
  int field(std::string_view wanted) const;    // -1: there is none
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
  int64_t low = 0, high = 0;  // range; sign of a computation in low
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
