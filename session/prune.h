// The smaller model without the experts that held-out text does not reach (`assay dissect used
// --export`).
#pragma once

#include <span>
#include <string>

#include "engine/run/run_dir.h"
#include "lab/dissect/damage.h"
#include "session/held_out.h"

namespace assay {

struct Pruned {
  std::string run, checkpoint;
  int64_t experts = 0;     // of each layer
  int64_t parameters = 0;  // P_total of the smaller model
  // Of the nats of the held-out targets: how many differ from the original's, the largest
  // difference, and the means.
  int64_t targets = 0, different = 0;
  double largest = 0;
  double loss = 0, original_loss = 0;
};

// UserError where write_pruned() would end with one: the folder is not empty, a text without some
// sources of the run's mixture or some folders of its data.val, a checkpoint of several ranks.
void require_prunable(const HeldOut& text, const std::string& folder);

// Writes the model as a new run `folder` with a checkpoint of the same step, then compares its loss
// on the same text target by target. Every layer keeps as many experts as the one that uses most
// (and at least K): its used ones, then its first unused ones, in their order. The optimizer's
// state is cut in the same way. UserError as of require_prunable().
//
// With sigmoid scores, and with softmax scores without a selection bias whose gates are normalised,
// the choices and gates of a token depend on no expert beside those chosen, so the nats are the
// same to the bit. Other softmax gates and choices depend on a sum over all experts: without some
// of them it is another model, with another loss. So is one of a recipe that quantises the experts'
// stack with a common scale.
Pruned write_pruned(HeldOut& text, std::span<const LayerLoads> loads, const std::string& folder,
                    const std::string& device, RunMeta meta);

}  // namespace assay
