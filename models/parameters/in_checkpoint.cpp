#include "models/parameters/in_checkpoint.h"

#include "base/check.h"
#include "models/parameters/table.h"

namespace assay {

void require_model(const CheckpointSlices& checkpoint, const ModelConfig& model) {
  for (const ParameterSpec& spec : parameter_table(model)) {
    const TensorRef* tensor = checkpoint.find(spec.name);
    const bool known = tensor != nullptr && tensor->dtype != DType::kI64;
    if (!known || tensor->shape != spec.shape) {
      throw UserError(
          checkpoint.where() + " has no " + spec.name + " as its configuration describes it",
          "the checkpoint is not what its run wrote: use another one");
    }
  }
}

}  // namespace assay
