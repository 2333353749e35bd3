// The parameters of a model in a checkpoint, compared before memory is taken for them: a
// configuration that somebody else wrote may ask for more than the files beside it hold.
#pragma once

#include "engine/config/config.h"
#include "engine/run/checkpoint_slices.h"

namespace assay {

// UserError unless the checkpoint has every tensor of the model with its shape.
void require_model(const CheckpointSlices& checkpoint, const ModelConfig& model);

}  // namespace assay
