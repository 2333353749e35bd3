#include "session/session.h"

#include <utility>

#include "engine/config/check.h"

namespace assay {

void resolve_machine_fields(Config& config, Backend backend, const Ranks* ranks) {
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend);
  if (config.run.threads == 0) {
    config.run.threads = cores_of_rank(ranks);
  }
}

namespace {

SessionDevice device_of(const SessionOptions& options) {
  if (options.ranks == nullptr || options.device == "cpu") return choose_device(options.device);
  const int devices = gpu::device_facts().devices;
  return choose_device(options.device, options.ranks->gpu_number(devices, options.share_gpu));
}

}  // namespace

Session::Session(Config given, const SessionOptions& options)
    : config(std::move(given)),
      device(options.use == SessionOptions::Use::kPlan ? SessionDevice() : device_of(options)),
      use(options.use),
      ranks(options.ranks),
      planned_ranks(options.planned_ranks),
      planned_rank(options.planned_rank),
      backend(options.use == SessionOptions::Use::kPlan ? backend_of(options.device)
                                                        : device.backend()),
      recipe(resolve_recipe(config.precision.recipe, backend)) {
  validate_ranges(config);
  if (ranks && device.gpu) gpu_group = ranks->gpu_group(*device.context());
  CHECK(planned_ranks == 1 || (use == SessionOptions::Use::kPlan && !ranks),
        "a session of %d planned ranks that computes", planned_ranks);
  resolve_machine_fields(config, backend, ranks);
}

Exec Session::exec() const {
  return {.threads = static_cast<int>(config.run.threads), .gpu = device.context()};
}

ModelPlace Session::place(int32_t mask_id) const {
  ModelPlace place{.mask_id = mask_id, .backend = backend, .ranks = rank_count(), .rank = rank()};
  if (device.gpu) place.capability = device.gpu->facts().capability;
  return place;
}

}  // namespace assay
