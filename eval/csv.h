// Comma-separated values of RFC 4180: quoted fields may hold commas, line breaks and doubled
// quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

// Records of fields, without the byte order mark that some editors write. UserError with the line
// if a quote is never closed.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

}  // namespace assay
