// A comparison as tables for the terminal.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "lab/compare/compare_report.h"
#include "lab/runs/summary_text.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

std::string seeds_of(const SeedGroup& group) {
  std::vector<int64_t> seeds;
  for (const RunRecord* run : group.runs) seeds.push_back(run->config.run.seed);
  return joined(seeds, ",");
}

// "nm: the runs alpha, beta, delta" of a model whose name does not tell which runs it has.
std::string members_text(const SeedGroup& group) {
  std::vector<std::string> names;
  for (const RunRecord* run : group.runs) names.push_back(run->name);
  const bool told = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.starts_with(group.name);
  });
  return told ? "" : group.name + ": the runs " + joined(names, ", ") + "\n";
}

// "71", or "33 to 71" where the runs differ.
std::string range_text(const SeedGroup& group, int64_t (*of)(const RunRecord&)) {
  std::set<int64_t> values;
  for (const RunRecord* run : group.runs) values.insert(of(*run));
  const std::string least = grouped(*values.begin());
  return values.size() == 1 ? least : least + " to " + grouped(*values.rbegin());
}

// Those that were done, " of " the planned ones where a run has not done them all.
std::string steps_text(const SeedGroup& group) {
  const auto done = [](const RunRecord& run) { return run.steps_done; };
  const auto planned = [](const RunRecord& run) { return run.config.run.steps; };
  const bool whole = std::all_of(group.runs.begin(), group.runs.end(),
                                 [&](const RunRecord* run) { return done(*run) == planned(*run); });
  return range_text(group, done) + (whole ? "" : " of " + range_text(group, planned));
}

std::string models_text(const Comparison& c) {
  TextTable table({"model", "seeds", "P_active", "P_total", "steps", "tokens", "contract"});
  for (const ModelRow& row : c.models) {
    table.add({row.group.name, seeds_of(row.group), grouped(row.group.audit().active),
               grouped(row.group.audit().total), steps_text(row.group),
               range_text(row.group, [](const RunRecord& run) { return run.tokens; }),
               row.contract});
  }
  std::string members;
  for (const ModelRow& row : c.models) members += members_text(row.group);
  return table.text() + members;
}

std::string triple_text(const Comparison& c) {
  TextTable table({"model", "n", "val loss", "sd", "95% interval", "best", "bits/byte",
                   "capability", "health"});
  for (const ModelRow& row : c.models) {
    const std::optional<Summary>& loss = row.final_loss;
    table.add({row.group.name, std::to_string(row.group.runs.size()),
               loss ? number_text(loss->mean, Digits::kLoss) : "",
               loss && loss->sd ? number_text(*loss->sd, Digits::kLoss) : "",
               loss ? interval_text(loss->interval95, Digits::kLoss) : "",
               row.best_loss ? number_text(row.best_loss->mean, Digits::kLoss) : "",
               row.bits_per_byte ? number_text(row.bits_per_byte->mean, Digits::kLoss) : "",
               row.capability.text(), row.health.text()});
  }
  std::string rows;
  for (const ModelRow& row : c.models) {
    const std::string& first = c.models.front().group.name;
    const CoreRowComparison& core = row.core_against_first;
    if (core.difference) rows += core_row_text(row.group.name, first, *core.difference) + "\n";
    if (!core.absent.empty()) {
      rows += "CORE of " + row.group.name + " minus " + first +
              ": no difference over the rows: " + core.absent + "\n";
    }
  }
  return "\nloss (nats per token at the last validation), capability, health\n" + table.text() +
         rows;
}

std::string curve_cell(const CurvePoint& point) {
  if (!point.loss) return "";
  const std::string loss = number_text(point.loss->mean, Digits::kLoss);
  if (point.step == 0) return loss;
  return loss + (point.measured_at == point.step ? " @" : " ~") + grouped(point.measured_at);
}

std::string curves_text(const Comparison& c) {
  std::vector<std::string> heads = {"share"};
  for (const ModelRow& row : c.models) heads.push_back(row.group.name);
  TextTable table(heads);
  for (size_t i = 0; i < c.models.front().curve.size(); ++i) {
    std::vector<std::string> cells = {strprintf("%g%%", 100 * c.models.front().curve[i].fraction)};
    for (const ModelRow& row : c.models) cells.push_back(curve_cell(row.curve[i]));
    table.add(cells);
  }
  return "\nval loss at equal shares of each contract (@ the share's step; ~ step of the nearest "
         "validation; "
         "- none near)\n" +
         table.text();
}

std::string target_text(const Comparison& c) {
  if (!c.target_loss) return "\nno time to target: run.target_loss and --target LOSS are not set\n";
  TextTable table({"model", "reached", "steps", "tokens", "seconds", "FLOPs"});
  for (const ModelRow& row : c.models) {
    const TargetSummary& t = *row.target;
    table.add({row.group.name, strprintf("%ld of %ld", long(t.reached), long(t.of)),
               summary_text(t.steps, Digits::kCount), summary_text(t.tokens, Digits::kCount),
               summary_text(t.seconds, Digits::kShort), summary_text(t.flops, Digits::kShort)});
  }
  return strprintf(
             "\nfirst evaluation at or below %g nats (mean over the runs that reached it, 95%% "
             "interval)\n",
             *c.target_loss) +
         table.text() + left_out_text(c.left_out_steps);
}

std::string verdict(const PairedDifference& difference) {
  const std::optional<Interval>& interval = difference.summary.interval95;
  if (difference.summary.mean == 0 && difference.summary.sd.value_or(0) == 0) return "equal";
  if (difference.summary.no_spread()) return kNoSpread;
  if (!interval) return "one shared seed: no interval";
  if (interval->contains(0)) return "interval includes 0: no difference shown";
  return interval->high < 0 ? "lower" : "higher";
}

std::string differences_text(const Comparison& c) {
  if (c.models.size() < 2) return "";
  TextTable table({"model", "seeds", "difference", "sd", "95% interval", ""});
  for (size_t i = 1; i < c.models.size(); ++i) {
    const std::optional<PairedDifference>& d = c.models[i].loss_against_first;
    if (!d) {
      table.add({c.models[i].group.name, "", "", "", "", "no seed with a loss in both"});
      continue;
    }
    table.add({c.models[i].group.name, joined(d->seeds, ","), strprintf("%+.4f", d->summary.mean),
               d->summary.sd ? number_text(*d->summary.sd, Digits::kLoss) : "",
               interval_text(d->summary.interval95, Digits::kLoss), verdict(*d)});
  }
  return "\nval loss minus that of " + c.models[0].group.name + ", seed by seed\n" + table.text();
}

Digits digits_of(const std::string& unit) {
  if (unit == "nats") return Digits::kLoss;
  return unit == "steps" || unit == "tokens" ? Digits::kCount : Digits::kShort;
}

std::string ranking_text(const Comparison& c) {
  if (!c.no_ranking.empty()) return "\nno ranking: " + c.no_ranking + "\n";
  std::string text;
  for (const Ranking& r : c.rankings) {
    text += c.not_held.empty() ? "\nranking under the contract " + c.contract + ", by " + r.by
                               : "\nranking by " + r.by + ". " + c.not_held;
    text += "\n";
    TextTable table({"", "model", r.unit, ""});
    for (size_t i = 0; i < r.places.size(); ++i)
      table.add({std::to_string(r.places[i].place) + ".", r.places[i].model,
                 summary_text(r.places[i].value, digits_of(r.unit)), r.places[i].note});
    for (const std::string& model : r.not_reached)
      table.add({"", model, "", "missing in some runs"});
    text += table.text();
  }
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& c) {
  std::string text = comparison_sentence(c) + "\n\n";
  const size_t sentence = text.size();
  for (const std::string& difference : c.incomparable)
    text += "NOT COMPARABLE (--force): " + difference + "\n";
  for (const std::string& note : c.notes) text += "note: " + note + "\n";
  for (const Confound& confound : c.confounds) text += "confound: " + confound.text + "\n";
  if (text.size() > sentence) text += "\n";
  return text + models_text(c) + triple_text(c) + curves_text(c) + target_text(c) +
         differences_text(c) + ranking_text(c);
}

}  // namespace assay
