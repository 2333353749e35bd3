#include "lab/matrix/section_reader.h"

#include <set>

#include "base/check.h"
#include "base/suggest.h"
#include "engine/config/scalar.h"

namespace assay {

const char* const kMatrixHint =
    "`assay matrix --help` shows a matrix file; presets are in models/presets/matrix";

void SectionReader::fail(const YAML::Node& at, const std::string& what,
                         const std::string& hint) const {
  throw UserError(source_.at(at) + ": " + what, hint);
}

void SectionReader::walk(const YAML::Node& node, const std::string& what,
                         const EachPair& each) const {
  if (!node.IsMap()) {
    fail(node, what + " is " + yaml_kind(node) + ", not a section with `key: value` lines", hint_);
  }
  std::set<std::string> seen;
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      fail(pair.first, "a key is " + yaml_kind(pair.first) + ", not a name", hint_);
    }
    const std::string key = pair.first.Scalar();
    if (!seen.insert(key).second) {
      fail(pair.first, "duplicate key " + key + (what.empty() ? "" : " in " + what),
           "keep one of the two");
    }
    each(key, pair.first, pair.second);
  }
}

void SectionReader::read_section(const YAML::Node& node, const std::string& what,
                                 const std::vector<Field>& fields) const {
  walk(node, what, [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
    for (const Field& field : fields) {
      if (field.first == key) return field.second(value);
    }
    std::vector<std::string> known;
    for (const Field& field : fields) known.push_back(field.first);
    const std::string near = nearest_name(key, known);
    fail(at, "unknown key " + key + " in " + what,
         (near.empty() ? "" : "did you mean " + near + "? ") + hint_);
  });
}

void SectionReader::each_item(const YAML::Node& node, const std::string& what,
                              const std::function<void(const YAML::Node&)>& each) const {
  if (!node.IsSequence()) return each(node);
  if (node.size() == 0) fail(node, what + " is an empty list", "remove it, or fill it");
  for (const YAML::Node& item : node) each(item);
}

std::string SectionReader::text(const YAML::Node& node, const std::string& what) const {
  if (!node.IsScalar() || node.Scalar().empty()) {
    fail(node, what + " is " + yaml_kind(node) + ", not a string", hint_);
  }
  return node.Scalar();
}

double SectionReader::number(const YAML::Node& node, const std::string& what) const {
  const ReadDouble read = read_double(text(node, what));
  if (!read.problem.empty()) fail(node, what + " " + read.problem, hint_);
  return read.value;
}

double SectionReader::share(const YAML::Node& node, const std::string& what,
                            const std::string& of) const {
  const double value = number(node, what);
  if (value > 0 && value <= 1) return value;
  fail(node, strprintf("%s has %g, which is out of range", what.c_str(), value),
       "shares of the " + of + ", above 0 and at most 1");
}

}  // namespace assay
