#include "session/session.h"

#include <utility>

#include "base/check.h"
#include "engine/config/check.h"
#include "models/linear/precision.h"

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

// What ranks with a share of the experts each do not compute.
void require_exchangeable_experts(const Config& config, Backend backend) {
  if (config.parallel.expert_ranks == 1) return;
  const std::string asked = strprintf("parallel.expert_ranks = %ld", config.parallel.expert_ranks);
  const char* const hint = "--set parallel.expert_ranks=1";
  if (backend == Backend::kGpu) {
    throw UserError(asked + " on GPUs: experts are shared by ranks on CPUs only in this version",
                    std::string("--device cpu, or ") + hint);
  }
  PrecisionConfig precision = config.precision;
  precision.recipe = resolved_recipe(precision.recipe, backend);
  const PrecisionTable table = precision_table(precision, config.model);
  for (int64_t l = 0; l < config.model.layers; ++l) {
    if (!formats_of(table, ProductRole::kExperts, l, config.model.layers).any()) continue;
    throw UserError(asked + " with precision.recipe " + precision.recipe +
                        ", which quantises the experts' products",
                    std::string(hint) + ", or a recipe that leaves the experts in bf16");
  }
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
  if (use != SessionOptions::Use::kPlan || config.parallel.expert_ranks > 1) {
    require_expert_ranks(config, place().ranks);
    require_exchangeable_experts(config, backend);
  }
  if (ranks && config.parallel.expert_ranks > 1) {
    const Layout layout = layout_of(config, place());
    expert_group = &ranks->part(layout.replica());
    replica_group = &ranks->part(layout.expert_position());
  }
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
  if (use == SessionOptions::Use::kPlan && rank_count() == 1) {
    place.ranks = int(config.parallel.expert_ranks);
  }
  if (device.gpu) place.capability = device.gpu->facts().capability;
  return place;
}

}  // namespace assay
