#include "lab/telemetry/columns.h"

#include <iterator>

#include "base/check.h"
#include "engine/telemetry/schema.h"

namespace assay {
namespace {

using Type = TelemetryColumn::Type;

struct Known {
  const char* name;
  const char* unit;
  const char* text;
};

constexpr Known kSteps[] = {
    {"train_loss_nats", "nats per token", "training loss of the step's batch"},
    {"lr", "", "learning rate"},
    {"gradient_norm", "", "global norm of the gradient, before clipping"},
    {"clip_factor", "", "factor on the gradient by optimizer.clip; 1 = not clipped"},
    {"non_finite", "values", "values of the gradient that are NaN or infinite"},
    {"tokens", "tokens", "trained on since the beginning of the run"},
    {"tokens_per_s", "tokens/s", "of this step"},
    {"train_s", "s",
     "seconds of the steps since the beginning: without hash_ms, evaluations and saves"},
    {"eta_s", "s",
     "left of the run when the step was logged, with evaluations and saves as measured by then"},
    {"cpu_joules", "J", "energy of the machine's CPUs in the seconds of train_s"},
    {"gpu_joules", "J", "energy of the GPU in the seconds of train_s"},
    {"mfu_share", "share",
     "of the peak of products: measured on a CPU, dense bf16 by datasheet on a GPU"},
    {"hash", "", "hash of loss, gradient norm and parameters, 32 bits"},
    {"peak_rss_bytes", "bytes", "largest resident memory of the process so far"},
    {"sent_bytes", "bytes", "sent to other ranks by the first one in this step"},
    {"router_aux", "", "load-balancing loss, mean over layers; 0 if aux_alpha is"},
    {"router_z", "", "mean of logsumexp(logits)^2, mean over layers"},
    {"router_cv_mean_percent", "percent", "cv of router_layers, mean over layers"},
    {"router_cv_std_percent", "percent", "cv of router_layers, standard deviation over layers"},
    {"router_entropy_mean_nats", "nats", "entropy of router_layers, mean over layers"},
    {"router_entropy_min_nats", "nats", "entropy of router_layers, smallest over layers"},
    {"router_max_load_mean_share", "share", "max_load of router_layers, mean over layers"},
    {"router_max_load_max_share", "share", "max_load of router_layers, largest over layers"},
    {"router_dead_sum", "experts", "dead_for of router_layers, sum over layers; absent with it"},
    {"exchange_rounds_max", "rounds", "of the exchange of experts' rows, most of a layer"},
    {"step_ms", "ms", "duration of the step"},
    {"router_telemetry_ms", "ms",
     "duration of the router's measures, after the step: not in step_ms and train_s"},
    {"hash_ms", "ms",
     "duration of the hash of the parameters, after the step: not in step_ms and train_s"},
};

// Names of the table steps that end in the name of a group or a source.
constexpr Known kStepFamilies[] = {
    {"grad_ratio/", "", "norm of the gradient over norm of the parameters, of a group"},
    {"update_ratio/", "", "norm of the update over norm of the parameters, of a group"},
    {"source_share/", "share", "of the tokens so far, from a source of the mixture"},
    {"source_epochs/", "epochs", "how often a source of the mixture was used so far"},
};

constexpr Known kRouter[] = {
    {"assignments", "tokens", "assignments of tokens to experts (A)"},
    {"cv", "percent", "standard deviation over mean of the experts' loads"},
    {"cv_norm", "share", "cv over its ceiling, 100 sqrt((E - K) / K)"},
    {"cv_floor", "percent", "cv of uniform random routing, by sampling alone"},
    {"max_load", "share", "of the assignments that the busiest expert got"},
    {"max_load_norm", "share", "K max_load: 1 = one expert is in every token's choice"},
    {"entropy", "nats", "entropy of the loads"},
    {"entropy_norm", "share", "entropy over ln E"},
    {"e_eff", "experts", "exp(entropy), effective number of experts"},
    {"e_eff_norm", "share", "e_eff over E"},
    {"participation", "experts", "1 / sum of squared loads"},
    {"participation_norm", "share", "participation over E"},
    {"active", "experts", "with at least one token"},
    {"active_norm", "share", "active over E"},
    {"gini", "share", "Gini coefficient of the loads"},
    {"dead_for", "experts",
     "without a token in the last W logged steps; absent before W are logged"},
    {"dead_for_norm", "share", "dead_for over E"},
    {"bias_range", "", "largest minus smallest selection bias"},
    {"margin", "",
     "score of the K-th expert minus that of the next, mean over up to 256 tokens of the step"},
    {"lead", "", "score of the first expert minus that of the (K+1)-th, mean over the same tokens"},
    {"gate_entropy", "nats", "entropy of a token's normalised gates, mean"},
    {"gate_entropy_norm", "share", "gate_entropy over ln K"},
    {"overlap", "share", "of the chosen experts kept since the last probe"},
};

constexpr Known kPrecision[] = {
    {"flushed", "share", "of all values, became 0 and were not"},
    {"saturated", "share", "of the values beyond the largest element"},
    {"error", "share", "RMS of the rounding error over RMS of the operand"},
    {"blocks", "blocks", "blocks with a scale"},
    {"zero_blocks", "blocks", "in which every value is 0"},
    {"low_scales", "blocks", "with the format's smallest scale or 0, not all values 0"},
    {"high_scales", "blocks", "with the format's largest scale"},
    {"scale_min", "", "smallest scale"},
    {"scale_max", "", "largest scale"},
    {"flips", "share", "of the weight's codes that the update changed"},
};

const TelemetryColumn kStep{"step", Type::kInteger, "steps", "optimizer steps done"};
const TelemetryColumn kLayer{"layer", Type::kInteger, "", "index of the block, from 0"};

template <size_t N>
TelemetryColumn known_column(const Known (&known)[N], const std::string& name) {
  TelemetryColumn column{.name = name, .unit = "", .text = ""};
  for (const Known& k : known) {
    if (name != k.name) continue;
    column.unit = k.unit;
    column.text = k.text;
  }
  return column;
}

TelemetryColumn router_column(const std::string& name) {
  const std::string window = "window_";
  if (name.rfind(window, 0) != 0) return known_column(kRouter, name);
  TelemetryColumn column = known_column(kRouter, name.substr(window.size()));
  column.name = name;
  column.text = "over the last W logged steps: " + column.text;
  return column;
}

TelemetryTable router_table() {
  TelemetryTable table{.name = "router_layers",
                       .text =
                           "one row per logged step and MoE layer: how evenly it used its "
                           "experts; W is telemetry.window",
                       .columns = {kStep, kLayer}};
  for (const RouterColumn& c : router_columns()) table.columns.push_back(router_column(c.name));
  return table;
}

TelemetryTable precision_table() {
  TelemetryTable table{
      .name = "precision",
      .text = "one row per sampled step and quantised operand: what the number format lost",
      .columns = {kStep,
                  kLayer,
                  {"weight", Type::kText, "", "the product, by its weight"},
                  {"operand", Type::kText, "", "operand of a product: fprop.input, ..."},
                  {"role", Type::kText, "", "group of the weight: attention, experts, ..."},
                  {"format", Type::kText, "", "number format, e.g. nvfp4"}}};
  for (const PrecisionColumn& c : precision_columns()) {
    table.columns.push_back(known_column(kPrecision, c.name));
  }
  return table;
}

constexpr const char* kStored[] = {"evaluations",  "router_layers", "precision", "rank_steps",
                                   "expert_loads", "events",        "meta"};

}  // namespace

std::span<const char* const> stored_table_names() {
  return kStored;
}

std::string database_table(const std::string& name) {
  if (name == "evaluations") return "eval";
  if (name == "router_layers") return "router_layer";
  if (name == "expert_loads") return "expert_load";
  if (name == "rank_steps") return "rank_step";
  if (name == "events") return "event";
  return name;  // precision, meta
}

TelemetryColumn step_column(const std::string& name) {
  if (name == "step") return kStep;
  for (const Known& family : kStepFamilies) {
    if (name.rfind(family.name, 0) == 0) {
      return {.name = name, .unit = family.unit, .text = family.text};
    }
  }
  return known_column(kSteps, name);
}

TelemetryTable stored_table(const std::string& name) {
  if (name == "router_layers") return router_table();
  if (name == "precision") return precision_table();
  if (name == "evaluations") {
    return {.name = name,
            .text = "one row per step, task and metric that was evaluated",
            .columns = {kStep,
                        {"task", Type::kText, "", "val, val/SOURCE, core, core/TASK, ..."},
                        {"metric", Type::kText, "", "with its unit: loss_nats, bits_per_byte, ..."},
                        {"value", Type::kNumber, "as in metric", "absent if it was NaN"},
                        {"n", Type::kInteger, "", "tokens, rows or bytes it was measured over"}}};
  }
  if (name == "rank_steps") {
    return {
        .name = name,
        .text = "one row per logged step and rank, of a run with several ranks",
        .columns = {kStep,
                    {"rank", Type::kInteger, "", "from 0"},
                    {"step_ms", Type::kNumber, "ms", "duration of the step on this rank"},
                    {"wait_ms", Type::kNumber, "ms",
                     "of it, in calls to the other ranks: waiting, sending"},
                    {"bytes_sent", Type::kInteger, "bytes", "to the other ranks in the step"},
                    {"peak_rss_bytes", Type::kInteger, "bytes", "largest resident memory so far"}}};
  }
  if (name == "expert_loads") {
    return {
        .name = name,
        .text = "one row per logged step, MoE layer and expert",
        .columns = {kStep,
                    kLayer,
                    {"expert", Type::kInteger, "", "from 0"},
                    {"tokens", Type::kInteger, "tokens", "assigned to the expert in the step"}}};
  }
  if (name == "events") {
    return {.name = name,
            .text = "what happened when",
            .columns = {kStep,
                        {"time", Type::kText, "UTC", "ISO 8601"},
                        {"kind", Type::kText, "", "checkpoint, resume, landing, end, ..."},
                        {"detail", Type::kText, "", "a path or a sentence"}}};
  }
  CHECK(name == "meta", "telemetry has no table %s", name.c_str());
  return {.name = name,
          .text = "facts about the run, as text",
          .columns = {{"key", Type::kText, "", "name"}, {"value", Type::kText, "", "text"}}};
}

}  // namespace assay
