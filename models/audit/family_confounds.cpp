#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include "base/check.h"
#include "engine/config/fields.h"
#include "models/audit/family.h"
#include "models/audit/optimizer_confounds.h"
#include "models/audit/routed_scale.h"
#include "models/linear/precision.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

// Fields that should be equal in a comparison, with the confound's name if they are not.
struct Shared {
  const char* name;
  const char* prefix;
};
constexpr Shared kShared[] = {
    {"tokenizer", "data.tokenizer"},
    {"tokenizer", "model.vocab_size"},
    {"data", "data.train"},
    {"data", "data.val"},
    {"mixture", "data.mixture"},
    {"data_order", "data.shuffle"},
    {"data", "data.synth"},
    {"data", "data.mask_eos"},
    {"batch", "run.batch_tokens"},
    {"sequence", "run.sequence"},
    {"optimizer", "optimizer."},
    {"schedule", "schedule."},
    {"precision", "precision."},
    {"seed", "run.seed"},
    {"eval", "eval.tokens"},
    {"architecture", "model.tie_embeddings"},
    {"architecture", "model.rope_theta"},
    {"architecture", "model.norm_eps"},
    {"architecture", "model.qk_norm"},
    {"architecture", "model.attention_gain"},
    {"architecture", "model.embed_gain"},
    {"architecture", "model.logit_gain"},
    {"architecture", "model.init"},
    {"architecture", "model.head_init"},
    {"router", "model.moe.router."},  // of mixtures with other mixtures
};

std::string value_of(const std::vector<FieldRow>& rows, const std::string& path) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const FieldRow& r) { return r.path == path; });
  if (found == rows.end()) return "absent";
  return found->type == "section" && found->value.empty() ? "present" : found->value;
}

template <typename F>
std::string by_model(const std::vector<NamedConfig>& models, F&& value) {
  std::vector<std::string> names, values;
  for (size_t i = 0; i < models.size(); ++i) {
    names.push_back(models[i].name);
    values.push_back(value(i));
  }
  return values_by_model(names, values);
}

std::vector<NamedConfig> mixtures_of(const std::vector<NamedConfig>& models) {
  std::vector<NamedConfig> mixtures;
  for (const NamedConfig& model : models) {
    if (moe_blocks(model.config.model) > 0) mixtures.push_back(model);
  }
  return mixtures;
}

const Shared* shared_field(const std::string& path) {
  if (path == "model.moe.router.gate_scale") return nullptr;  // add_branch_scale()
  const auto found = std::find_if(std::begin(kShared), std::end(kShared),
                                  [&](const Shared& s) { return path.starts_with(s.prefix); });
  return found == std::end(kShared) ? nullptr : found;
}

// The fields of mixtures' routers, or all others; each of the models in which it acts.
void add_unequal_fields(const std::vector<NamedConfig>& models, bool of_routers,
                        std::vector<Confound>& found) {
  std::vector<std::vector<FieldRow>> rows;
  for (const NamedConfig& model : models) {
    Config config = model.config;
    config.optimizer = without_common_values(config.optimizer);
    rows.push_back(config_fields(config));
  }
  std::string lacked;  // a section that some models lack, which is one difference
  for (const FieldRow& field : all_config_fields()) {
    const Shared* shared = shared_field(field.path);
    if (!shared || (std::string_view(shared->name) == "router") != of_routers) continue;
    if (!lacked.empty() && field.path.starts_with(lacked)) continue;
    std::vector<std::string> names, values;
    for (size_t i = 0; i < models.size(); ++i) {
      if (!acts_on_a_tensor(field.path, models[i].config)) continue;
      names.push_back(models[i].name);
      values.push_back(value_of(rows[i], field.path));
    }
    if (std::set<std::string>(values.begin(), values.end()).size() < 2) continue;
    const std::string more = field.path == "optimizer.kind" ? muon_shares_text(models) : "";
    found.push_back(
        {shared->name, field.path + " differs: " + values_by_model(names, values) + more});
    if (field.type == "section") lacked = field.path + ".";
  }
}

// A family whose size is set by its depth changes both.
void add_sizes(const std::vector<NamedConfig>& models, std::vector<Confound>& found) {
  struct Size {
    const char* name;
    const char* what;
    int64_t ModelConfig::*of;
  };
  constexpr Size kSizes[] = {{"depth", "number of layers", &ModelConfig::layers},
                             {"width", "hidden width", &ModelConfig::hidden}};
  for (const Size& size : kSizes) {
    const auto value = [&](size_t i) { return std::to_string(models[i].config.model.*size.of); };
    const auto other = [&](const NamedConfig& m) {
      return m.config.model.*size.of != models.front().config.model.*size.of;
    };
    if (std::none_of(models.begin(), models.end(), other)) continue;
    found.push_back({size.name, std::string(size.what) + " differs: " + by_model(models, value)});
  }
}

// Heads that grow with the width, as a dial of depths sets them, are the same attention.
void add_attention(const std::vector<NamedConfig>& models, std::vector<Confound>& found) {
  const auto of = [&](size_t i) -> const ModelConfig& { return models[i].config.model; };
  const auto same = [](const ModelConfig& a, const ModelConfig& b) {
    return a.resolved_head_dim() == b.resolved_head_dim() &&
           a.heads * b.resolved_kv_heads() == b.heads * a.resolved_kv_heads() &&
           a.heads * b.hidden == b.heads * a.hidden;
  };
  bool differs = false;
  for (size_t i = 1; i < models.size(); ++i) differs |= !same(of(0), of(i));
  if (!differs) return;
  const auto text = [&](size_t i) {
    return strprintf("%ld heads of %ld with %ld key-value heads", long(of(i).heads),
                     long(of(i).resolved_head_dim()), long(of(i).resolved_kv_heads()));
  };
  found.push_back({"architecture", "attention differs: " + by_model(models, text)});
}

// Of mixtures with other mixtures: that a dense model has no experts is what is compared.
void add_experts(const std::vector<NamedConfig>& sparse, std::vector<Confound>& found) {
  const auto text = [&](size_t i) {
    const MoeConfig& moe = *sparse[i].config.model.moe;
    return strprintf("%ld (%ld chosen, %ld shared)", long(moe.experts), long(moe.top_k),
                     long(moe.shared));
  };
  bool differs = false;
  for (size_t i = 1; i < sparse.size(); ++i) differs |= text(i) != text(0);
  if (differs) found.push_back({"experts", "experts differ: " + by_model(sparse, text)});
}

// Of mixtures with one number of experts that choose or share other numbers of them: a width that
// keeps the active width makes each expert narrower, and the stored width smaller.
void add_expert_width(const std::vector<NamedConfig>& sparse, std::vector<Confound>& found) {
  const auto of = [&](size_t i) -> const MoeConfig& { return *sparse[i].config.model.moe; };
  const auto stored = [&](size_t i) { return (of(i).experts + of(i).shared) * of(i).expert_ffn; };
  bool differs = false, other_total = false;
  for (size_t i = 0; i < sparse.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool recut = of(i).experts == of(j).experts && of(i).expert_ffn != of(j).expert_ffn &&
                         (of(i).top_k != of(j).top_k || of(i).shared != of(j).shared);
      differs |= recut;
      other_total |= recut && stored(i) != stored(j);
    }
  }
  if (!differs) return;
  const auto text = [&](size_t i) {
    return strprintf("%ld (%ld stored)", long(of(i).expert_ffn), long(stored(i)));
  };
  found.push_back({"expert_width", "width of an expert differs: " + by_model(sparse, text) +
                                       (other_total ? ", so P_total does" : "")});
}

// Of mixtures with a dense block. In others model.ffn has no effect, and beside a dense model it is
// what is compared.
void add_dense_width(const std::vector<NamedConfig>& sparse, std::vector<Confound>& found) {
  std::vector<NamedConfig> mixed;
  for (const NamedConfig& model : sparse) {
    if (moe_blocks(model.config.model) < model.config.model.layers) mixed.push_back(model);
  }
  const auto width = [&](size_t i) { return std::to_string(mixed[i].config.model.ffn); };
  bool differs = false;
  for (size_t i = 1; i < mixed.size(); ++i) differs |= width(i) != width(0);
  if (!differs) return;
  found.push_back({"dense_width", "width of the dense layers before the experts differs: " +
                                      by_model(mixed, width)});
}

// Of mixtures: blocks that have no experts, and gates that say nothing.
void add_mixtures(const std::vector<NamedConfig>& sparse, std::vector<Confound>& found) {
  std::set<int64_t> dense_layers;
  for (const NamedConfig& model : sparse) {
    dense_layers.insert(model.config.model.layers - moe_blocks(model.config.model));
  }
  if (dense_layers.size() > 1) {
    const auto layers = [&](size_t i) {
      const ModelConfig& m = sparse[i].config.model;
      return std::to_string(m.layers - moe_blocks(m));
    };
    found.push_back(
        {"dense_layers", "dense layers before the experts differ: " + by_model(sparse, layers)});
  }
  add_dense_width(sparse, found);
  add_experts(sparse, found);
  add_expert_width(sparse, found);
  for (const NamedConfig& model : sparse) {
    if (!has_constant_gates(*model.config.model.moe)) continue;
    found.push_back({"constant_gates", model.name +
                                           ": K = 1 with normalised gates, which are all equal: "
                                           "its routers learn nothing from the loss"});
  }
}

// A difference in how a step is split, between models to which that is not only a matter of speed.
void add_split(const std::vector<NamedConfig>& models, const char* name, const std::string& field,
               int64_t (*of)(const Config&), const std::string& why, std::vector<Confound>& found) {
  const auto other = [&](const NamedConfig& m) {
    return of(m.config) != of(models.front().config);
  };
  if (std::none_of(models.begin(), models.end(), other)) return;
  const auto value = [&](size_t i) { return std::to_string(of(models[i].config)); };
  found.push_back({name, field + " differs: " + by_model(models, value) + "; " + why});
}

int64_t micro_batch_of(const Config& config) {
  return config.run.micro_batch;
}

// Auxiliary losses of the assignments of a micro-batch, or of those of a step or its part so far.
void add_balancing(const std::vector<NamedConfig>& sparse, std::vector<Confound>& found) {
  std::vector<NamedConfig> of_micro, of_step;
  for (const NamedConfig& model : sparse) {
    const MoeConfig& moe = *model.config.model.moe;
    if (!has_working_aux(moe) || moe.router.aux_scope == AuxScope::kSequence) continue;
    (moe.router.aux_scope == AuxScope::kStep ? of_step : of_micro).push_back(model);
  }
  add_split(of_micro, "balancing", "run.micro_batch", micro_batch_of,
            "the auxiliary loss of aux_scope micro is of a micro-batch", found);
  add_split(of_step, "balancing", "run.micro_batch", micro_batch_of,
            "the auxiliary loss of aux_scope step is of the micro-batches so far", found);
  add_split(
      of_step, "balancing", "parallel.parts",
      [](const Config& config) { return config.parallel.batch_parts(); },
      "the auxiliary loss of aux_scope step is of a part of the step so far", found);
}

// Products, forward or backward, that scale or round all rows of a micro-batch together.
void add_common_scales(const std::vector<NamedConfig>& models, std::vector<Confound>& found) {
  const auto other = [&](const NamedConfig& m) {
    return micro_batch_of(m.config) != micro_batch_of(models.front().config);
  };
  if (std::none_of(models.begin(), models.end(), other)) return;
  std::vector<NamedConfig> common;
  for (const NamedConfig& model : models) {
    const PrecisionTable table = precision_table(model.config.precision, model.config.model);
    if (!rows_train_apart(table, model.config.model)) common.push_back(model);
  }
  add_split(common, "precision", "run.micro_batch", micro_batch_of,
            "the formats scale or round the rows of a micro-batch together", found);
}

// Of mixtures, and of a dense model beside them, which has 1.
void add_branch_scale(const std::vector<NamedConfig>& models, std::vector<Confound>& found) {
  constexpr double kEqualWithin = 0.01;  // what the formulas are good for
  std::vector<BranchScale> scales;
  for (const NamedConfig& model : models) scales.push_back(branch_scale(model.config.model));
  const auto is_first = [&](const BranchScale& s) {
    return std::fabs(s.first / scales[0].first - 1) <= kEqualWithin &&
           std::fabs(s.last / scales[0].last - 1) <= kEqualWithin;
  };
  if (std::all_of(scales.begin(), scales.end(), is_first)) return;
  const auto text = [&](size_t i) {
    const std::string first = strprintf("%.3g", scales[i].first);
    const std::string last = strprintf("%.3g", scales[i].last);
    return first == last ? first : first + " to " + last;
  };
  const bool shared = std::any_of(models.begin(), models.end(), [](const NamedConfig& m) {
    return moe_blocks(m.config.model) > 0 && m.config.model.moe->shared > 0;
  });
  found.push_back(
      {"branch_scale",
       std::string(shared ? "routed and shared branch" : "routed branch") +
           " at initialisation, relative to a dense FFN of its width: " + by_model(models, text) +
           "; model.moe.router.gate_scale sets " + (shared ? "the routed part" : "it")});
}

// What takes an audit.
void add_parameters(const std::vector<NamedConfig>& models, std::vector<Confound>& found) {
  std::set<int64_t> widths;
  std::vector<Audit> audits;
  for (const NamedConfig& model : models) {
    audits.push_back(audit(model.config));
    widths.insert(audits.back().ffn_active_width);
  }
  if (widths.size() > 1) {
    const auto width = [&](size_t i) { return grouped(audits[i].ffn_active_width); };
    found.push_back({"active_width", "active FFN width differs: " + by_model(models, width)});
  }
  for (size_t i = 0; i < models.size(); ++i) {
    if (audits[i].parameters.router == 0) continue;
    found.push_back(
        {"router_share",
         strprintf("%s: %.2f%% of P_active is the router (%s), which a dense model lacks",
                   models[i].name.c_str(),
                   100 * double(audits[i].parameters.router) / double(audits[i].active),
                   grouped(audits[i].parameters.router).c_str())});
  }
}

}  // namespace

std::string values_by_model(const std::vector<std::string>& names,
                            const std::vector<std::string>& values) {
  constexpr size_t kNamed = 4, kValues = 4;
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (names.size() <= kNamed) {
    for (size_t i = 0; i < names.size(); ++i) add(names[i] + " " + values[i]);
    return text;
  }
  std::vector<std::string> distinct;
  for (const std::string& value : values) {
    if (std::find(distinct.begin(), distinct.end(), value) == distinct.end())
      distinct.push_back(value);
  }
  for (size_t k = 0; k < std::min(kValues, distinct.size()); ++k) {
    const auto first = std::find(values.begin(), values.end(), distinct[k]);
    const long count = long(std::count(first, values.end(), distinct[k]));
    add(distinct[k] + (count == 1 ? " (" + names[size_t(first - values.begin())] + ")"
                                  : strprintf(" (%ld models)", count)));
  }
  if (distinct.size() > kValues) add(strprintf("and %zu other values", distinct.size() - kValues));
  return text;
}

std::vector<Confound> recorded_confounds(const std::vector<NamedConfig>& models) {
  std::vector<Confound> found;
  add_sizes(models, found);
  add_attention(models, found);
  add_mixtures(mixtures_of(models), found);
  add_branch_scale(models, found);
  add_unequal_fields(models, false, found);
  for (const Confound& c : ffn_optimizer_confounds(models)) found.push_back(c);
  add_unequal_fields(mixtures_of(models), true, found);
  add_balancing(mixtures_of(models), found);
  add_common_scales(models, found);
  return found;
}

std::vector<Confound> confounds(const std::vector<NamedConfig>& models,
                                const std::vector<FamilyHorizon>& horizons) {
  std::vector<Confound> found = recorded_confounds(models);
  add_parameters(models, found);
  for (const FamilyHorizon& h : horizons) {
    std::string text;
    for (size_t i = 0; i < models.size(); ++i) {
      if (!h.epochs[i] || *h.epochs[i] <= 1) continue;
      text += strprintf("%s%s %.2f times", text.empty() ? "" : ", ", models[i].name.c_str(),
                        *h.epochs[i]);
    }
    if (text.empty()) continue;
    found.push_back(
        {"epochs", std::string(name_of(h.kind)) + ": the data is seen more than once: " + text});
  }
  return found;
}

}  // namespace assay
