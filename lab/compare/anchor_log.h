// Reads the log of a public run of modded-nanogpt or llm.c. Both write one record per line and
// differ in the training lines:
//
//   s:STEP tel:LOSS                      validation after STEP updates
//   s:STEP trl:LOSS                      training      modded-nanogpt, six decimals
//   s:STEP trl:LOSS lr:RATE norm:NORM    training      llm.c, four decimals
//   s:STEP eval:ACCURACY                 HellaSwag     llm.c
//
// Step numbers mean the same as in our runs: steps done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

enum class AnchorFormat { kModdedNanogpt, kLlmC };
const char* anchor_format_name(AnchorFormat format);

struct AnchorLog {
  std::string path;
  std::string sha256;  // of the file
  AnchorFormat format = AnchorFormat::kModdedNanogpt;
  std::vector<StepValue> val_loss_nats;  // by step
  int64_t train_lines = 0;
  int64_t accuracy_lines = 0;

  // Lines of no known form, at most half of all: how many, and the first.
  int64_t unknown_lines = 0;
  int64_t first_unknown_line = 0;  // 1-based
  std::string first_unknown_text;  // cut to a readable length

  // "12 lines are not understood, the first is line 7: ..."; "" if there are none.
  std::string warning() const;

  const StepValue& last() const { return val_loss_nats.back(); }
  const StepValue& best() const;
  std::optional<StepValue> at(int64_t step) const;
  std::optional<StepValue> first_at_or_below(double loss_nats) const;
};

// UserError if the file is absent or empty, has no validation line, has a loss that is not finite,
// is mostly something else, or its steps do not increase (two logs in one file).
AnchorLog read_anchor_log(const std::string& path);
// The same from memory; `path` is used in messages.
AnchorLog parse_anchor_log(const std::string& text, const std::string& path);

}  // namespace assay
