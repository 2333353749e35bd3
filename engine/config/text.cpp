#include "engine/config/text.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "data/sha256.h"
#include "engine/config/fields.h"
#include "engine/config/schedule.h"

namespace assay {
namespace {

size_t depth_of(const std::string& path) {
  return static_cast<size_t>(std::count(path.begin(), path.end(), '.'));
}

std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::string yaml_of(const std::vector<FieldRow>& rows) {
  std::string text;
  for (const FieldRow& row : rows) {
    if (row.value == "absent") continue;
    text += std::string(2 * depth_of(row.path), ' ') + leaf_of(row.path) + ":";
    text += (row.value.empty() ? "" : " " + row.value) + "\n";
  }
  return text;
}

const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& path) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const FieldRow& row) { return row.path == path; });
  return found == rows.end() ? nullptr : &*found;
}

// True if the section may appear or disappear on resume: every field in it is free.
bool free_section(const std::string& path) {
  bool free = true;
  for (const FieldRow& row : all_config_fields()) {
    const bool inside = row.path.rfind(path + ".", 0) == 0 && row.type != "section";
    free &= !inside || row.check.on_resume == OnResume::kFree;
  }
  return free;
}

// "" if the learning rates of the first steps_done steps are the same.
std::string schedule_difference(const Config& before, const Config& now, int64_t steps_done) {
  const Schedule old_schedule = make_schedule(before), new_schedule = make_schedule(now);
  for (int64_t step = 0; step < steps_done; ++step) {
    if (old_schedule.share(step) != new_schedule.share(step)) {
      return strprintf(" (step %ld of the %ld done would have had another learning rate)",
                       static_cast<long>(step + 1), static_cast<long>(steps_done));
    }
  }
  return "";
}

// "" if as many of the first steps_done steps are in the recipe: its last ones are in bf16.
std::string tail_difference(const Config& before, const Config& now, int64_t steps_done) {
  if (same_formats(before, now, steps_done)) return "";
  return strprintf(
      " (precision.bf16_tail: of the %ld steps done the first %ld were in the recipe's formats, "
      "and would have been the first %ld)",
      long(steps_done), long(std::min(recipe_steps(before), steps_done)),
      long(std::min(recipe_steps(now), steps_done)));
}

// What the optimizer makes of a field that may be absent.
double router_lr(const OptimizerConfig& c) {
  return c.router_lr.value_or(c.lr);
}
double expert_lr(const OptimizerConfig& c) {
  return c.expert_lr.value_or(c.lr);
}
double expert_beta2(const OptimizerConfig& c) {
  return c.expert_beta2.value_or(c.beta2);
}
// Muon's section with its learning rates of dense matrices and of experts.
std::tuple<double, double, double, bool, int64_t, double, MuonAdjust> muon(
    const OptimizerConfig& c) {
  const MuonConfig m = c.muon.value_or(MuonConfig{});
  return {m.lr.value_or(c.lr),
          m.lr.value_or(expert_lr(c)),
          m.momentum,
          m.nesterov,
          m.steps,
          m.weight_decay.value_or(c.weight_decay),
          m.adjust};
}

bool same_in_optimizer(const std::string& path, const OptimizerConfig& then,
                       const OptimizerConfig& now) {
  if (path == "optimizer.router_lr") return router_lr(then) == router_lr(now);
  if (path == "optimizer.expert_lr") return expert_lr(then) == expert_lr(now);
  if (path == "optimizer.expert_beta2") return expert_beta2(then) == expert_beta2(now);
  const bool of_muon = path == "optimizer.muon" || path.starts_with("optimizer.muon.");
  return of_muon && muon(then) == muon(now);
}

bool same_in_router(const std::string& path, const RouterConfig& then, const RouterConfig& now) {
  if (path == "model.moe.router.bias_rule")
    return then.resolved_bias_rule() == now.resolved_bias_rule();
  return path == "model.moe.router.bias_steps" &&
         then.resolved_bias_steps() == now.resolved_bias_steps();
}

// True if the two values of a field are two ways of writing one thing.
bool means_the_same(const std::string& path, const Config& before, const Config& now) {
  if (path.starts_with("optimizer.")) {
    return same_in_optimizer(path, before.optimizer, now.optimizer);
  }
  if (path.starts_with("model.moe.router.")) {
    return same_in_router(path, before.model.moe->router, now.model.moe->router);
  }
  const ModelConfig &then = before.model, &model = now.model;
  if (path == "model.kv_heads") return then.resolved_kv_heads() == model.resolved_kv_heads();
  if (path == "model.head_dim") return then.resolved_head_dim() == model.resolved_head_dim();
  if (path == "model.ffn") return !then.has_dense_block() && !model.has_dense_block();
  // 0 leaves the run's own; runs before there were parts have one.
  return path == "parallel.parts" &&
         (now.parallel.parts == 0 || now.parallel.batch_parts() == before.parallel.batch_parts());
}

// "run.seed: 1 -> 2".
std::string changed(const FieldRow& from, const FieldRow& to) {
  const auto shown = [](const FieldRow& row) {
    return row.type == "section" && row.value.empty() ? "present" : row.value;
  };
  return from.path + ": " + shown(from) + " -> " + shown(to);
}

}  // namespace

void keep_spelling(const Config& begun, Config& now) {
  const Config given = now;
  const auto keep = [&](const char* path, auto& field, const auto& of_begun) {
    if (!means_the_same(path, begun, given)) return;
    const auto written = field;
    field = of_begun;
    // Beside other fields that differ (which are refused later) it could mean something else.
    if (!means_the_same(path, given, now)) field = written;
  };
  keep("model.kv_heads", now.model.kv_heads, begun.model.kv_heads);
  keep("model.head_dim", now.model.head_dim, begun.model.head_dim);
  keep("model.ffn", now.model.ffn, begun.model.ffn);
  keep("optimizer.router_lr", now.optimizer.router_lr, begun.optimizer.router_lr);
  keep("optimizer.expert_lr", now.optimizer.expert_lr, begun.optimizer.expert_lr);
  keep("optimizer.expert_beta2", now.optimizer.expert_beta2, begun.optimizer.expert_beta2);
  keep("optimizer.muon", now.optimizer.muon, begun.optimizer.muon);
  if (!begun.model.moe || !now.model.moe) return;
  RouterConfig& router = now.model.moe->router;
  const RouterConfig& then = begun.model.moe->router;
  keep("model.moe.router.bias_rule", router.bias_rule, then.bias_rule);
  keep("model.moe.router.bias_steps", router.bias_steps, then.bias_steps);
}

std::string to_yaml(const Config& config) {
  return yaml_of(config_fields(config));
}

std::string help_config() {
  std::string text =
      "Fields of a configuration, as `section: {field: value}` in YAML or `--set "
      "section.field=value`.\n"
      "`include: other.yaml` reads another file first. Paths are relative to the file that names "
      "them.\n";
  Config defaults;
  const std::vector<FieldRow> present = config_fields(defaults);
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") {
      const FieldRow* here = find_row(present, row.path);
      const bool optional = here != nullptr && here->value == "absent";
      text += strprintf("\n%s%s: %s\n", row.path.c_str(), optional ? " (optional)" : "",
                        row.doc.c_str());
      continue;
    }
    const std::string check = check_text(row.check);
    const std::string type = row.check.path ? (row.type == "list" ? "paths" : "path") : row.type;
    text += strprintf("  %-20s %-10s default %-12s %s%s\n", leaf_of(row.path).c_str(), type.c_str(),
                      row.value.c_str(), row.doc.c_str(),
                      check.empty() ? "" : (" [" + check + "]").c_str());
  }
  return text;
}

std::vector<std::string> differences_from_default(const Config& config) {
  const std::vector<FieldRow> defaults = all_config_fields(), present = config_fields(Config{});
  std::vector<std::string> lines;
  // A section that is there beside the defaults: told by the fields in which it differs, or alone.
  std::string added;
  const auto tell_added = [&] {
    const bool told = !lines.empty() && lines.back().starts_with(added + ".");
    if (!added.empty() && !told) lines.push_back(added + " = present (default absent)");
    added.clear();
  };
  for (const FieldRow& row : config_fields(config)) {
    if (!row.path.starts_with(added + ".")) tell_added();
    if (row.value == "absent") continue;
    if (row.type == "section") {
      const FieldRow* usual = find_row(present, row.path);
      if (usual != nullptr && usual->value == "absent") added = row.path;
      continue;
    }
    const FieldRow* usual = find_row(defaults, row.path);
    CHECK(usual != nullptr, "no default for %s", row.path.c_str());
    if (usual->value != row.value) {
      lines.push_back(row.path + " = " + row.value + " (default " + usual->value + ")");
    }
  }
  tell_added();
  return lines;
}

std::vector<std::string> result_changing_differences(const Config& before, const Config& now,
                                                     int64_t steps_done) {
  const std::vector<FieldRow> old_rows = config_fields(before), new_rows = config_fields(now);
  std::vector<std::string> differences;
  for (const FieldRow& row : old_rows) {
    const FieldRow* other = find_row(new_rows, row.path);
    if (other == nullptr || other->value == row.value)
      continue;  // absent sections have a row of their own
    if (row.check.on_resume == OnResume::kFree) continue;
    if (means_the_same(row.path, before, now)) continue;
    if (row.type == "section" && free_section(row.path)) continue;
    if (row.check.path && file_names(row.value) == file_names(other->value)) continue;
    std::string why;
    if (row.check.on_resume == OnResume::kSchedule) {
      why = now.run.steps < steps_done
                ? " (" + std::to_string(steps_done) + " steps are done already)"
                : schedule_difference(before, now, steps_done);
      if (why.empty() && row.path == "run.steps") why = tail_difference(before, now, steps_done);
      if (why.empty()) continue;
    }
    differences.push_back(changed(row, *other) + why);
  }
  return differences;
}

std::vector<std::string> differences_of_ranks(const Config& first, const Config& other) {
  const std::vector<FieldRow> theirs = config_fields(other);
  std::vector<std::string> differences;
  for (const FieldRow& row : config_fields(first)) {
    const FieldRow* there = find_row(theirs, row.path);
    if (there == nullptr || there->value == row.value) continue;
    if (row.path == "run.threads" || row.path == "data.cache") continue;
    if (row.check.path && file_names(row.value) == file_names(there->value)) continue;
    differences.push_back(changed(row, *there));
  }
  return differences;
}

std::map<std::string, std::string> section_hashes(const Config& config) {
  std::map<std::string, std::vector<FieldRow>> sections;
  for (const FieldRow& row : config_fields(config)) {
    sections[row.path.substr(0, row.path.find('.'))].push_back(row);
  }
  std::map<std::string, std::string> hashes;
  for (const auto& [name, rows] : sections) hashes[name] = sha256_hex(yaml_of(rows));
  return hashes;
}

}  // namespace assay
