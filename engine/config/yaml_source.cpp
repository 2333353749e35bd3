#include "engine/config/yaml_source.h"

#include <yaml-cpp/eventhandler.h>

#include <cstdint>
#include <sstream>

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

namespace {

constexpr int64_t kMostNodes = 1'000'000;

// Counts what a text holds before a tree of it is built. Two things make yaml-cpp build without
// end: a document that begins with a comma is read again and again as an empty one, and aliases may
// multiply a short text.
class Counter : public YAML::EventHandler {
 public:
  explicit Counter(const YamlSource& source) : source_(source) {}
  bool several() const { return documents_ > 1; }

  void OnDocumentStart(const YAML::Mark&) override { ++documents_; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { node(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { node(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    node(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    node(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    node(mark);
  }
  void OnMapEnd() override {}

 private:
  void node(const YAML::Mark& mark) {
    if (++nodes_ <= kMostNodes) return;
    throw UserError(source_.at(mark) + ": more than " + std::to_string(kMostNodes) + " values",
                    "that is no file of ours: check that it is the right one");
  }

  const YamlSource& source_;
  int64_t documents_ = 0, nodes_ = 0;
};

void require_one_document(const std::string& text, const YamlSource& source) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  Counter counter(source);
  while (parser.HandleNextDocument(counter)) {
    if (counter.several()) {
      throw UserError(
          source.name + ": has several YAML documents",
          "keep one; `---` starts another, and so does a line that begins with a comma");
    }
  }
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const YamlSource& source) {
  try {
    require_one_document(text, source);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw UserError(source.at(error.mark) + ": not YAML: " + error.msg,
                    "look at that line and the one before it: indentation, colons, quotes");
  }
}

}  // namespace assay
