// Reads the sections of a matrix file, or of a file of claims; every message begins with the file
// and a line. Only for .cpp files that walk YAML.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/yaml_source.h"

namespace assay {

// Where a matrix file is explained.
extern const char* const kMatrixHint;

class SectionReader {
 public:
  // hint: what to do about a mistake of which nothing better is known.
  explicit SectionReader(YamlSource source, std::string hint = kMatrixHint)
      : source_(std::move(source)), hint_(std::move(hint)) {}

  using Field = std::pair<std::string, std::function<void(const YAML::Node&)>>;
  using EachPair =
      std::function<void(const std::string&, const YAML::Node& key, const YAML::Node& value)>;

  const YamlSource& source() const { return source_; }

  [[noreturn]] void fail(const YAML::Node& at, const std::string& what,
                         const std::string& hint) const;

  // Visits the pairs of a section. UserError for a repeated key: yaml-cpp accepts a key twice and
  // would hide the second.
  void walk(const YAML::Node& node, const std::string& what, const EachPair& each) const;
  // Calls the field of each key. UserError for an unknown key.
  void read_section(const YAML::Node& node, const std::string& what,
                    const std::vector<Field>& fields) const;
  // The items of a list; one scalar counts as a list of one.
  void each_item(const YAML::Node& node, const std::string& what,
                 const std::function<void(const YAML::Node&)>& each) const;

  std::string text(const YAML::Node& node, const std::string& what) const;
  double number(const YAML::Node& node, const std::string& what) const;
  // Above 0 and at most 1; of: what it is a share of.
  double share(const YAML::Node& node, const std::string& what, const std::string& of) const;

 private:
  const YamlSource source_;
  const std::string hint_;
};

}  // namespace assay
