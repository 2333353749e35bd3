#include "base/shapes.h"

namespace assay {

std::string shapes_of(std::initializer_list<ShapePart> parts) {
  std::string text;
  for (const ShapePart& part : parts) {
    if (part.name != nullptr) {
      text += text.empty() ? "" : ", ";
      text += part.name;
      continue;
    }
    for (size_t r = 0; r < part.rank; ++r) {
      text += r == 0 ? " (" : ", ";
      text += std::to_string(part.dim[r]);
    }
    text += ")";
  }
  return text;
}

}  // namespace assay
