#include "session/session.h"

#include <utility>

#include "base/check.h"
#include "engine/config/check.h"

namespace assay {

void resolve_machine_fields(Config& config, Backend backend, const Ranks* ranks) {
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend);
  if (config.run.threads == 0) {
    config.run.threads = cores_of_rank(ranks);
  }
}

Session::Session(Config given, const SessionOptions& options)
    : config(std::move(given)),
      device(options.use == SessionOptions::Use::kPlan ? SessionDevice()
                                                       : choose_device(options.device)),
      use(options.use),
      ranks(options.ranks),
      backend(options.use == SessionOptions::Use::kPlan ? backend_of(options.device)
                                                        : device.backend()),
      recipe(resolve_recipe(config.precision.recipe, backend)) {
  validate_ranges(config);
  if (ranks && backend == Backend::kGpu) {
    throw UserError(strprintf("%d ranks on GPUs: several ranks train on CPUs only in this version",
                              ranks->size()),
                    "--device cpu, or one rank on the GPU (without --ranks or mpirun)");
  }
  resolve_machine_fields(config, backend, ranks);
}

Exec Session::exec() const {
  return {.threads = static_cast<int>(config.run.threads), .gpu = device.context()};
}

ModelPlace Session::place(int32_t mask_id) const {
  ModelPlace place{.mask_id = mask_id, .backend = backend};
  if (ranks) {
    place.ranks = ranks->size();
    place.rank = ranks->rank();
  }
  if (device.gpu) place.capability = device.gpu->facts().capability;
  return place;
}

}  // namespace assay
