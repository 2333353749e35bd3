// Whether the experts of several runs are the same experts: what each run chooses at every position
// of one held-out text, for `assay dissect seeds` (lab/dissect/seeds.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lab/dissect/seeds.h"
#include "session/held_out.h"

namespace assay {

struct RunChoices {
  std::vector<int32_t> token;        // (N) ids
  std::vector<LayerChoices> layers;  // in the order of HeldOut::layers()
};
// One pass over the text, without any change.
RunChoices record_choices(HeldOut& text);

// Called before each layer of each pair of runs is matched, and at the end.
using SeedsWatch = std::function<void(int64_t done, int64_t of)>;

// runs: two or more runs (the newest checkpoint of each) or checkpoints. Memory holds one model at
// a time, and the choices of all: N K ids a layer. UserError: fewer than two; the same checkpoint
// twice; a dense model; models that differ in layers, experts, K, sequence, vocabulary or
// tokenizer; texts that differ.
SeedsReport measure_seeds(const std::vector<std::string>& runs, const HeldOutOptions& text,
                          const MatchPlan& plan, const SeedsWatch& watch);

}  // namespace assay
