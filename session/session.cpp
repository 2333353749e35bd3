#include "session/session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/agree.h"
#include "cuda/product_library.h"
#include "engine/config/check.h"
#include "models/linear/precision.h"
#include "ops/dispatch.h"
#include "ops/router.h"

namespace assay {

namespace {

SessionDevice device_of(const SessionOptions& options) {
  const bool on_cpu = backend_of(options.device) == Backend::kCpu;
  if (options.ranks == nullptr || on_cpu) return choose_device(options.device);
  return choose_device(options.device, options.ranks->gpu_number(gpu::device_facts().devices));
}

// What ranks with a share of the experts each do not compute.
void require_exchangeable_experts(const Config& config, Backend backend) {
  if (config.parallel.expert_ranks == 1) return;
  PrecisionConfig precision = config.precision;
  precision.recipe = resolved_recipe(precision.recipe, backend);
  const PrecisionTable table = precision_table(precision, config.model);
  for (int64_t l = 0; l < config.model.layers; ++l) {
    if (!formats_of(table, ProductRole::kExperts, l, config.model.layers).any()) continue;
    throw UserError(
        strprintf("parallel.expert_ranks = %ld with precision.recipe %s, which quantises the "
                  "experts' products",
                  config.parallel.expert_ranks, precision.recipe.c_str()),
        "--set parallel.expert_ranks=1, or a recipe that leaves the experts in bf16");
  }
}

// Before anything is planned: what the kernels of a mixture of experts would refuse in the first
// step.
void require_room_for_routers(const Config& config, const gpu::GpuKind& kind) {
  if (!config.model.moe) return;
  const int64_t experts = config.model.moe->experts, k = config.model.moe->top_k;
  gpu::require_router_room(experts, k, kind.shared_bytes);
  gpu::require_dispatch_room(experts, k, kind.shared_bytes);
}

// Before the ranks make groups, each of which needs the same call of all. Collective; what else may
// differ is told later, session/same_on_all.h.
void require_same_groups(Ranks& ranks, Backend backend, int64_t expert_ranks) {
  struct Mine {
    int64_t gpu, expert_ranks;
  };
  const std::vector<Mine> all =
      gather(ranks.group(), Mine{int64_t(backend == Backend::kGpu), expert_ranks});
  const auto name = [](int64_t gpu) { return gpu != 0 ? "cuda" : "cpu"; };
  const char* const hint = "start every rank with the same configuration and --device";
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].gpu != all[0].gpu) {
      throw UserError(strprintf("rank %zu differs in its device: %s on rank 0, %s there", r,
                                name(all[0].gpu), name(all[r].gpu)),
                      hint);
    }
    if (all[r].expert_ranks != all[0].expert_ranks) {
      throw UserError(
          strprintf("rank %zu differs in its configuration: parallel.expert_ranks: %ld -> %ld", r,
                    long(all[0].expert_ranks), long(all[r].expert_ranks)),
          hint);
    }
  }
}

}  // namespace

Session::Session(Config given, const SessionOptions& options)
    : config(std::move(given)),
      device(options.use == SessionOptions::Use::kPlan ? SessionDevice() : device_of(options)),
      use(options.use),
      ranks(options.ranks),
      automatic_products(config.precision.products == ProductsMode::kAuto),
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
  if (ranks) require_same_groups(*ranks, backend, config.parallel.expert_ranks);
  if (ranks && device.gpu && ranks->share_gpus(device.gpu->facts(), options.share_gpu)) {
    let_nccl_share_gpus();
  }
  if (ranks) ranks->while_doing("connecting the ranks", [&] { connect_ranks(); });
  CHECK(planned_ranks == 1 || (use == SessionOptions::Use::kPlan && !ranks),
        "a session of %d planned ranks that computes", planned_ranks);
  if (automatic_products && device.gpu &&
      !gpu::scaled_products_problem(gpu::product_library()).empty()) {
    config.precision.products = ProductsMode::kSimulated;
  }
  resolve_precision(config, backend, place().capability);
  threads = config.run.threads > 0 ? config.run.threads : cores_of_rank(ranks);
  if (backend == Backend::kGpu) {
    require_room_for_routers(config, device.gpu ? device.context()->kind
                                                : gpu::gpu_kind(std::max(80, place().capability)));
  }
}

// All groups of this rank. Collective.
void Session::connect_ranks() {
  if (device.gpu) gpu_group = ranks->gpu_group(*device.context());
  if (config.parallel.expert_ranks > 1) share_experts();
  for (const auto* group : {&gpu_group, &gpu_experts, &gpu_replicas}) {
    if (*group) (*group)->connect(*device.context());
  }
}

// The groups of this rank's experts. Collective.
void Session::share_experts() {
  const Layout layout = layout_of(config, place());
  expert_group = &ranks->part(layout.replica(), CallOrder::Of::kExperts);
  replica_group = &ranks->part(layout.expert_position(), CallOrder::Of::kReplicas);
  if (!gpu_group) return;
  using Of = CallOrder::Of;
  gpu_experts = ranks->gpu_part(*gpu_group, layout.replica(), Of::kExperts);
  if (layout.replicas() == 1) return;
  gpu_replicas = ranks->gpu_part(*gpu_group, layout.expert_position(), Of::kReplicas);
}

RankGroups Session::model_groups() const {
  RankGroups groups{.all = model_group(),
                    .experts = expert_group,
                    .replicas = replica_group,
                    .experts_on_host = expert_group};
  if (gpu_experts) groups.experts = gpu_experts.get();
  if (gpu_replicas) groups.replicas = gpu_replicas.get();
  return groups;
}

std::vector<const Group*> Session::groups_of_experts() const {
  std::vector<const Group*> groups{expert_group, replica_group, gpu_experts.get(),
                                   gpu_replicas.get()};
  std::erase(groups, nullptr);
  return groups;
}

Exec Session::exec() const {
  return {.threads = static_cast<int>(threads), .gpu = device.context()};
}

ModelPlace Session::place(int32_t mask_id) const {
  ModelPlace place{.mask_id = mask_id, .backend = backend, .ranks = rank_count(), .rank = rank()};
  if (use == SessionOptions::Use::kPlan && rank_count() == 1) {
    place.ranks = int(config.parallel.expert_ranks);
  }
  place.product_workspace = product_workspace;
  if (tuning) {
    place.product_workspace = std::max(product_workspace, tuning->file.workspace_bytes);
  }
  if (device.gpu) {
    place.capability = device.gpu->facts().capability;
  } else if (backend == Backend::kGpu) {
    const int capability = gpu::device_facts().capability;
    if (capability > 0) place.capability = capability;  // a plan for the GPU of this machine
  }
  return place;
}

}  // namespace assay
