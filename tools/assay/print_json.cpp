#include "tools/assay/print_json.h"

#include <cstdio>

#include "data/json_text.h"

namespace assay {

void print_json(const nlohmann::ordered_json& json, JsonLayout layout) {
  const int indent = layout == JsonLayout::kIndented ? 1 : -1;
  const std::string text = json_text(json, indent) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace assay
