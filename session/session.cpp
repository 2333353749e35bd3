#include "session/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/config/check.h"

namespace assay {

void resolve_machine_fields(Config& config, Backend backend) {
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend);
  if (config.run.threads == 0) {
    config.run.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
}

Session::Session(Config given, const SessionOptions& options)
    : config(std::move(given)),
      device(options.use == SessionOptions::Use::kPlan ? SessionDevice()
                                                       : choose_device(options.device)),
      use(options.use),
      backend(options.use == SessionOptions::Use::kPlan ? backend_of(options.device)
                                                        : device.backend()),
      recipe(resolve_recipe(config.precision.recipe, backend)) {
  validate_ranges(config);
  resolve_machine_fields(config, backend);
}

Exec Session::exec() const {
  return {.threads = static_cast<int>(config.run.threads), .gpu = device.context()};
}

ModelPlace Session::place(int32_t mask_id) const {
  ModelPlace place{.mask_id = mask_id, .backend = backend};
  if (device.gpu) place.capability = device.gpu->facts().capability;
  return place;
}

}  // namespace assay
