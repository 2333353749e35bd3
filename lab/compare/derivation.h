// Derivations of published figures: small trees in docs/published/*.json, evaluated with this
// program's own audit and horizons. docs/published/README.md has the grammar.
//
//   {"/": [{"audit": ["speedrun/dense.yaml", "total"]}, 1e6]}
//
// A published figure is rounded, so every value carries the range that the unrounded inputs allow.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/compare/published.h"

namespace assay {

struct Range {
  double value, low, high;  // low <= value <= high; equal if every input is exact
};

// A figure as printed: "~4.5", "+0.205" or "190,532,352". UserError if it is anything else.
struct PrintedFigure {
  double value;
  int64_t decimals;
  // Half a unit of the last printed digit.
  double half_unit() const;
};
PrintedFigure read_figure(const std::string& text);

// A cell with the digits of its column.
std::string cell_text(const nlohmann::ordered_json& cell, const PublishedColumn* column);

// A row to which {"row": COLUMN}, and {KEY} in a text, refer.
struct RowOfTable {
  const PublishedTable& table;
  const std::vector<nlohmann::ordered_json>& cells;
};

// The row of a study at {title, keys...}; UserError if there is none.
RowOfTable find_row(const PublishedStudy& study, const std::vector<std::string>& title_and_keys);

// UserError for a derivation that cannot be evaluated: an unknown word, an absent cell or preset, a
// quotient by zero.
Range evaluate(const nlohmann::ordered_json& derivation, const PublishedStudy& study,
               const RowOfTable* row = nullptr);

// Whether a derived value, as far as its inputs are known, rounds to the printed digits.
bool is_same(const Range& derived, const PrintedFigure& published);

}  // namespace assay
