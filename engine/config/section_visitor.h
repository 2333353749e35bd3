// For visitors over the fields of a configuration (engine/config/config.h): enters every section
// that is there, and knows where it is.
//
//   class Collect : public SectionVisitor<Collect> {
//    public:
//     template <typename T>
//     void operator()(const char* name, T& field, const char* doc, const FieldCheck& check) {
//       paths.push_back(path_of(name));  // "model.moe.top_k"
//     }
#pragma once

#include <optional>
#include <string>

#include "engine/config/config.h"

namespace assay {

template <typename Visitor>
class SectionVisitor {
 public:
  template <typename T>
  void section(const char* name, T& nested, const char*) {
    enter(name, nested);
  }
  template <typename T>
  void section(const char* name, std::optional<T>& nested, const char*) {
    if (nested) enter(name, *nested);
  }

 protected:
  std::string path_of(const char* name) const { return prefix_ + name; }
  template <typename T>
  void enter(const char* name, T& nested) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    visit(static_cast<Visitor&>(*this), nested);
    prefix_ = outer;
  }

 private:
  std::string prefix_;
};

}  // namespace assay
