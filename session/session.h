// What a model needs of this machine, decided in one place: device, backend, recipe, threads.
//
//   Session session(load_config("models/presets/cpu/moe.yaml"), {.device = "auto"});
//   TrainingRun run(std::move(session), {.folder = "runs/moe"});   // session/training_run.h
//
// Training, evaluation, sampling and the benches begin with a Session, so that they cannot differ
// in what they make of a configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder/training_memory.h"
#include "session/product_files.h"
#include "session/ranks.h"
#include "session/session_device.h"

namespace assay {

struct SessionOptions {
  std::string device = "auto";  // auto: the GPU where one can be used; cpu; cuda
  // kPlan opens no device: memory can be planned for a GPU where there is none.
  enum class Use { kCompute, kPlan } use = Use::kCompute;
  Ranks* ranks = nullptr;  // those that share the work; null: this is the only one
  bool share_gpu = false;  // several ranks may use one GPU, for tests
  // With kPlan and without `ranks`: memory is planned for one rank of a launch of so many.
  int planned_ranks = 1, planned_rank = 0;
};

struct Session {
  // Calls validate_ranges and resolve_precision. UserError also where the device cannot be used.
  Session(Config config, const SessionOptions& options);

  // run.threads stays 0 where it was: a run may go on with other cores, or with other ranks.
  Config config;
  int64_t threads = 1;   // of this process
  SessionDevice device;  // none with Use::kPlan
  SessionOptions::Use use;
  Ranks* ranks;
  // Whether precision.products was `auto`: a run that goes on keeps what it was there.
  bool automatic_products;
  // Of ranks with GPUs, for the memory of these. The latter two with parallel.expert_ranks.
  std::unique_ptr<NcclGroup> gpu_group, gpu_experts, gpu_replicas;
  int planned_ranks, planned_rank;
  Backend backend;
  Recipe recipe;

  // The ranks' groups, null without ranks: for the host's memory, and for the model's.
  Group* host_group() const { return ranks ? &ranks->group() : nullptr; }
  Group* model_group() const { return gpu_group ? gpu_group.get() : host_group(); }
  // With parallel.expert_ranks: those that hold the experts together; those that hold the same. For
  // the host's memory.
  Group* expert_group = nullptr;
  Group* replica_group = nullptr;
  RankGroups model_groups() const;
  // The groups that parallel.expert_ranks adds, each once.
  std::vector<const Group*> groups_of_experts() const;

  // The algorithms of a GPU's dense products, taken from a file (session/run_products.h), and what
  // was found on the way.
  std::optional<Tuning> tuning;
  // Bytes of workspace that the products of the run so far need: an earlier version may have
  // planned more than this one does.
  int64_t product_workspace = 0;
  std::vector<std::string> warnings;

  // Of the launch, there or planned.
  int rank_count() const { return ranks ? ranks->size() : planned_ranks; }
  int rank() const { return ranks ? ranks->rank() : planned_rank; }

  // Where ops run: the device, or `threads` threads. The workspace is planned memory.
  Exec exec() const;
  // The GPU's capability where there is one; mask_id is the data's (RunData::mask_id). With kPlan
  // and no ranks the first of parallel.expert_ranks ranks.
  ModelPlace place(int32_t mask_id = -1) const;

 private:
  void connect_ranks();
  void share_experts();
};

}  // namespace assay
