#include "models/audit/optimizer_confounds.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/check.h"
#include "engine/config/fields.h"
#include "engine/optimizer_muon.h"
#include "models/audit/audit.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

// A setting of the optimizer with the value that steps dense FFNs, and routed experts; nullopt if
// it steps neither.
struct FfnSetting {
  const char* what;
  const char* of_experts;  // the field
  std::optional<double> (*value)(const OptimizerConfig& o, bool routed);
};

constexpr FfnSetting kFfnSettings[] = {
    {"learning rate", "optimizer.expert_lr",
     [](const OptimizerConfig& o, bool routed) -> std::optional<double> {
       if (o.muon && o.muon->lr) return o.muon->lr;
       return routed ? o.expert_lr.value_or(o.lr) : o.lr;
     }},
    {"decay of the second moment", "optimizer.expert_beta2",
     [](const OptimizerConfig& o, bool routed) -> std::optional<double> {
       if (o.kind == OptimizerKind::kMuon) return std::nullopt;
       return routed ? o.expert_beta2.value_or(o.beta2) : o.beta2;
     }},
};

void add_ffn_setting(const FfnSetting& setting, const std::vector<NamedConfig>& models,
                     std::vector<Confound>& found) {
  std::vector<std::string> names, values;
  std::set<double> dense, own;  // own: of routed experts, where it is not the model's common one
  for (const NamedConfig& model : models) {
    const OptimizerConfig& o = model.config.optimizer;
    const bool routed = moe_blocks(model.config.model) > 0;
    const std::optional<double> value = setting.value(o, routed);
    if (!value) continue;
    if (!routed) dense.insert(*value);
    if (routed && value != setting.value(o, false)) own.insert(*value);
    names.push_back(model.name);
    values.push_back(yaml_scalar(*value));
  }
  const auto differs = [&](double value) {
    return std::any_of(dense.begin(), dense.end(), [&](double d) { return d != value; });
  };
  if (std::none_of(own.begin(), own.end(), differs)) return;
  found.push_back({"ffn_optimizer", std::string(setting.what) +
                                        " of the FFN differs: " + values_by_model(names, values) +
                                        "; that of a mixture is its routed experts' (" +
                                        setting.of_experts + ")"});
}

// Of a model with Muon: the FLOPs of its iterations, over the step's counted ones.
double muon_share(const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  double flops = 0;  // of one iteration
  for (const ParameterSpec& spec : parameter_table(config.model)) {
    if (!spec.is_hidden_matrix()) continue;
    for (const MuonStack& stack : muon_stacks(spec)) {
      const double m = double(std::min(stack.rows, stack.cols));
      const double k = double(std::max(stack.rows, stack.cols));
      flops += double(stack.n) * 2 * m * m * (2 * k + m);
    }
  }
  const int64_t per_token = flops_per_token(config, count_from_formula(config.model));
  return double(o.muon.value_or(MuonConfig{}).steps) * flops /
         (double(per_token) * double(config.run.batch_tokens));
}

}  // namespace

OptimizerConfig without_common_values(OptimizerConfig o) {
  const auto drop = [](std::optional<double>& own, double common) {
    if (own == common) own.reset();
  };
  drop(o.router_lr, o.lr);
  drop(o.expert_lr, o.lr);
  drop(o.expert_beta2, o.beta2);
  return o;
}

bool acts_on_a_tensor(const std::string& path, const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  const bool has_experts = moe_blocks(config.model) > 0;
  if (path == "optimizer.router_lr") return has_experts;
  if (path == "optimizer.expert_lr") return has_experts && !(o.muon && o.muon->lr);
  if (path == "optimizer.expert_beta2") return has_experts && o.kind != OptimizerKind::kMuon;
  if (path == "optimizer.weight_decay") return !(o.muon && o.muon->weight_decay);
  return true;
}

std::vector<Confound> ffn_optimizer_confounds(const std::vector<NamedConfig>& models) {
  std::vector<Confound> found;
  for (const FfnSetting& setting : kFfnSettings) add_ffn_setting(setting, models, found);
  return found;
}

std::string muon_shares_text(const std::vector<NamedConfig>& models) {
  std::vector<std::string> names, values;
  for (const NamedConfig& model : models) {
    if (model.config.optimizer.kind != OptimizerKind::kMuon) continue;
    const double percent = 100 * muon_share(model.config);
    names.push_back(model.name);
    values.push_back(percent < 10 ? strprintf("%.2g%%", percent) : strprintf("%.0f%%", percent));
  }
  if (names.empty()) return "";
  return "; FLOPs of Muon, which are not counted, as a share of a step's: " +
         values_by_model(names, values);
}

}  // namespace assay
