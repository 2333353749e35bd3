// The log of a public run to stand beside: modded-nanogpt's and llm.c's. Both write one record a
// line,
//
//   s:STEP tel:LOSS                          validation, made before the update of that step, so after STEP updates
//   s:STEP trl:LOSS                          training           modded-nanogpt, six decimals
//   s:STEP trl:LOSS lr:RATE norm:NORM        training           llm.c, four decimals
//   s:STEP eval:ACCURACY                     HellaSwag          llm.c
//
// and differ in the training lines. The step numbers mean the same as in a run of ours: steps done.
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

  // Lines that are neither, as long as they are few: how many, and the first.
  int64_t unknown_lines = 0;
  int64_t first_unknown_line = 0;  // 1-based
  std::string first_unknown_text;  // cut to a readable length

  // "12 lines are not understood, the first is line 7: ..."; "" when there are none.
  std::string warning() const;

  const StepValue& last() const { return val_loss_nats.back(); }
  const StepValue& best() const;
  std::optional<StepValue> at(int64_t step) const;
  std::optional<StepValue> first_at_or_below(double loss_nats) const;
};

// UserError when the file is absent, empty, has no validation line, is mostly something else, or
// its steps go backwards (two logs in one file).
AnchorLog read_anchor_log(const std::string& path);
// The same from memory; `path` stands in messages.
AnchorLog parse_anchor_log(const std::string& text, const std::string& path);

}  // namespace assay
