// What --json prints, for every command: names of files may be any bytes, JSON may not.
#pragma once

#include <nlohmann/json.hpp>

namespace assay {

enum class JsonLayout { kIndented, kOneLine };

// One JSON document and a line end on standard output. Bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json, JsonLayout layout = JsonLayout::kIndented);

}  // namespace assay
