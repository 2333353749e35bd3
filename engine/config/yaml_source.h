// A YAML text with the place it came from, so that every message about it can name file and line.
// Only for .cpp files that walk YAML (configurations, matrices): the rest of the program sees
// structs.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace assay {

struct YamlSource {
  std::string name;      // of the file, or whatever stands for it in messages
  std::string folder;    // its relative paths start here
  bool is_line = false;  // name says it all (--set ...): no line is added

  std::string at(const YAML::Node& node) const { return at(node.Mark()); }
  std::string at(const YAML::Mark& mark) const;
};

// "a section", "a list", "nothing", "the text abc".
std::string yaml_kind(const YAML::Node& node);

// The one document of a text; a null node when there is none. UserError with the line when it is
// not YAML.
YAML::Node parse_yaml(const std::string& text, const YamlSource& source);

}  // namespace assay
