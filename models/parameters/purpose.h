// What a decoder's memory is planned for. kInference: scoring, evaluation and generation need no
// gradients and nothing that backward reads, so all layers take turns on the activations of one.
#pragma once

namespace assay {

enum class Purpose { kTraining, kInference };

}  // namespace assay
