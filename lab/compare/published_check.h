// Every figure of a published study, recomputed where it can be: the cells of its tables, then the
// figures of its text.
//
//   const std::vector<CheckedFigure> figures = check_published(published_study("0003"));
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/compare/derivation.h"

namespace assay {

enum class Verdict { kSame, kDiffers, kNotDerivable, kFailed };
const char* verdict_name(Verdict verdict);  // "same", "differs", "not derivable", "failed"

struct CheckedFigure {
  std::string table;    // "" = of the text
  std::string what;     // "bf16, dense: val_loss", or what the text says
  std::string column;   // of a table
  std::string where;    // of the text
  std::string printed;  // "3.2725"
  std::string unit;
  Verdict verdict = Verdict::kFailed;
  std::optional<Range> derived = {};  // without a verdict if the figure is not derivable
  std::string reason = "";            // why it is not derivable; why the derivation failed
  std::string note = "";
};

std::vector<CheckedFigure> check_published(const PublishedStudy& study);
int64_t count_of(const std::vector<CheckedFigure>& figures, Verdict verdict);

// "12 same, 3 differ, 40 cannot be derived"; failures are named only if there are any.
std::string count_line(const std::vector<CheckedFigure>& figures);

// At most 110 columns. Figures of a column that are not derivable share a line.
std::string check_text(const PublishedStudy& study, const std::vector<CheckedFigure>& figures);
nlohmann::ordered_json check_json(const std::vector<CheckedFigure>& figures);

}  // namespace assay
