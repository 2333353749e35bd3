#include "engine/config/yaml_source.h"

#include <vector>

#include "base/check.h"

namespace assay {

std::string YamlSource::at(const YAML::Mark& mark) const {
  return mark.line < 0 || is_line ? name : name + ":" + std::to_string(mark.line + 1);
}

std::string yaml_kind(const YAML::Node& node) {
  if (node.IsMap()) return "a section";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "null";
  return "\"" + node.Scalar() + "\"";
}

YAML::Node parse_yaml(const std::string& text, const YamlSource& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      throw UserError(source.name + ": has " + std::to_string(documents.size()) + " YAML documents",
                      "keep one; `---` starts another");
    }
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    throw UserError(source.at(error.mark) + ": not YAML: " + error.msg,
                    "look at that line and the one before it: indentation, colons, quotes");
  }
}

}  // namespace assay
