// What a decoder's memory is planned for. kInference: scoring, evaluation and generation need
// neither gradients nor what backward reads, so all layers share the activation buffers of one.
#pragma once

namespace assay {

enum class Purpose { kTraining, kInference };

}  // namespace assay
