// The source of a YAML text, so that messages can name file and line. Only for .cpp files that walk
// YAML (configurations, matrices): the rest of the program sees structs.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace assay {

struct YamlSource {
  std::string name;      // the file, or its name in messages
  std::string folder;    // base of relative paths
  bool is_line = false;  // the text is one line (--set ...): messages have no line number

  std::string at(const YAML::Node& node) const { return at(node.Mark()); }
  std::string at(const YAML::Mark& mark) const;
};

// The kind of a node, for messages: "a section", "a list", "nothing", "the text abc".
std::string yaml_kind(const YAML::Node& node);

// The only document of a text; a null node if there is none. Throws UserError with the line if the
// text is not YAML, or has several documents.
YAML::Node parse_yaml(const std::string& text, const YamlSource& source);

}  // namespace assay
