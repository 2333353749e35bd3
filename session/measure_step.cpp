#include "session/measure_step.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "base/seconds_since.h"
#include "engine/trainer.h"
#include "models/decoder/training_memory.h"
#include "session/rank_memory.h"

namespace assay {
namespace {

constexpr int kWarmup = 3, kTimed = 9;

}  // namespace

double measured_step_seconds(const Session& session, const RunData& data) {
  const Config& config = session.config;
  const ModelPlace place = session.place(data.mask_id);
  TrainingMemory memory(config, session.recipe, place, session.model_groups());
  LoaderConfig order = loader_config(config, data);
  order.rank = place.rank;
  order.ranks = place.ranks;
  order.say = [](const std::string&) {};
  Loader loader(std::move(order));
  loader.plan(memory.plan);
  Exec on = session.exec();
  memory.allocate(config, session.recipe, on.gpu,
                  [&] { require_room(session.ranks, memory.plan, on.gpu); });
  memory.bind(on);
  memory.model->initialise(on, static_cast<uint64_t>(config.run.seed));
  memory.model->refresh_weights(on);

  std::optional<TrainingRanks> ranks;
  if (session.ranks) {
    ranks.emplace(TrainingRanks{layout_of(config, place), *session.host_group(),
                                *session.model_group(), *memory.rank_sums, session.expert_group,
                                memory.expert_sums.get()});
  }
  Trainer trainer(config, *memory.model, *memory.sums, *memory.optimizer, loader, data.mask_id,
                  ranks ? &*ranks : nullptr);
  std::vector<double> seconds;
  for (int i = 0; i < kWarmup + kTimed; ++i) {
    const auto start = std::chrono::steady_clock::now();
    trainer.step(on, i);
    const double took = seconds_since(start);
    if (i >= kWarmup) seconds.push_back(took);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kTimed / 2];
}

}  // namespace assay
