#include "tools/assay/print_json.h"

#include <cstdio>

namespace assay {

void print_json(const nlohmann::ordered_json& json, JsonLayout layout) {
  const int indent = layout == JsonLayout::kIndented ? 1 : -1;
  const std::string text =
      json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace assay
