// Measures what the parts of a mixture are worth on held-out text: forward passes with one change
// each, for `assay dissect damage` (lab/dissect/damage.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "lab/dissect/damage.h"
#include "session/held_out.h"

namespace assay {

// What one pass over the held-out text shows of the routers, without any change.
struct RoutingRecord {
  std::vector<LayerLoads> loads;                // in the order of HeldOut::layers()
  std::vector<SequenceNats> nats;               // by sequence
  std::vector<std::vector<float>> first_gates;  // by layer (K): mean gate of the k-th choice
  // By layer (E, C): mean output of an expert over the tokens that chose it; zero if none did.
  // Empty unless asked for.
  std::vector<std::vector<float>> mean_output;
  // By layer (V, K): what a token id chose most often in the first half of the sequences, and the
  // mean of its gates there; an id that is not there has the experts that are busiest in that half,
  // with the mean gates of it. Empty unless asked for.
  struct TokenTable {
    std::vector<int32_t> expert;
    std::vector<float> gate;
  };
  std::vector<TokenTable> token_tables;
};
enum class RecordOutputs { kNo, kYes };
enum class RecordTokens { kNo, kYes };
RoutingRecord record_routing(HeldOut& text, RecordOutputs outputs, RecordTokens tokens);
// Adds the sums of a micro-batch's sequences.
void add_sequences(const HeldOut& text, const Batch& batch, View<const float, 1> nats,
                   std::vector<SequenceNats>& to);

// Called before each change, and at the end: changes done, of how many. Returns false to stop.
using DissectWatch = std::function<bool(size_t done, size_t of)>;

// Measures the changes of `plan` one after another; experts that no held-out token chose
// have no damage, and are not measured. Results are kept in `folder` (RUN/dissect) as
// they come, in a file of this checkpoint and text: a later call with a plan that shares changes
// does not measure them again. If the folder cannot be written, calls `not_kept` once with the
// reason and measures on. If `watch` stops it, the report has what is done.
DamageReport measure_damage(HeldOut& text, const DamagePlan& plan, const std::string& folder,
                            const DissectWatch& watch,
                            const std::function<void(const UserError&)>& not_kept);

}  // namespace assay
