#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/gap.h"
#include "lab/matrix/report.h"
#include "lab/runs/run_measures.h"
#include "models/audit/audit.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

// Numbers for programs: all digits; "" for absent values.
std::string exact(const std::optional<double>& value) {
  return value ? strprintf("%.17g", *value) : "";
}
std::string exact_sd(const std::optional<Summary>& s) {
  return s && s->sd ? exact(s->sd) : "";
}
std::string exact_bound(const std::optional<Summary>& s, double Interval::*bound) {
  return s && s->interval95 ? exact((*s->interval95).*bound) : "";
}

// Over fewer steps than telemetry.window more experts are without an assignment: "" then.
std::optional<double> dead_share(const RunRecord& run) {
  if (!run.health || run.health->logged < run.health->window) return std::nullopt;
  return run.health->dead_share;
}

// Names are plain, so only free texts need quotes.
std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    std::string field = fields[i];
    if (field.find_first_of(",\"\n") != std::string::npos) {
      for (size_t at = 0; (at = field.find('"', at)) != std::string::npos; at += 2) {
        field.insert(at, "\"");
      }
      field = "\"" + field + "\"";
    }
    line += (i > 0 ? "," : "") + field;
  }
  return line + "\n";
}

ordered_json json_of(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}
ordered_json json_of(const std::optional<Summary>& s) {
  if (!s) return {};
  ordered_json j;
  j["n"] = s->n;
  j["mean"] = s->mean;
  j["sd"] = json_of(s->sd);
  j["interval95"] = ordered_json();
  if (s->interval95) j["interval95"] = {s->interval95->low, s->interval95->high};
  return j;
}

ordered_json row_json(const SummaryRow& row) {
  ordered_json j;
  j["model"] = row.cell->model;
  j["precision"] = row.cell->precision;
  j["planned"] = row.planned;
  j["finished"] = row.runs.runs.size();
  j["missing"] = row.missing;
  j["stopped"] = row.stopped;
  j["not_ranked"] = row.not_ranked.empty() ? ordered_json() : ordered_json(row.not_ranked);
  j["runs"] = ordered_json::array();
  for (const RunRecord* run : row.runs.runs) {
    ordered_json r;
    r["run"] = run->name;
    r["seed"] = run->config.run.seed;
    r["end"] = run->end;
    r["steps"] = run->steps_done;
    r["planned_steps"] = run->config.run.steps;
    r["val_loss_nats"] = run->last_val() ? ordered_json(run->last_val()->value) : ordered_json();
    r["reused_from"] = run->reused_from.empty() ? ordered_json() : ordered_json(run->reused_from);
    j["runs"].push_back(r);
  }
  const Cell& cell = *row.cell;
  j["parameters_total"] = cell.configured ? ordered_json(cell.audit.total) : ordered_json();
  j["parameters_active"] = cell.configured ? ordered_json(cell.audit.active) : ordered_json();
  j["tokens"] = json_of(row.tokens());
  j["tokens_per_expert"] = ordered_json();
  if (cell.configured && cell.config.model.moe) {
    j["tokens_per_expert"] =
        tokens_per_routed_expert(cell.config.model, std::llround(*row.tokens()));
  }
  j["flops"] = json_of(row.flops());
  j["steps"] = json_of(row.steps);
  j["val_loss_nats"] = json_of(row.loss);
  j["bits_per_byte"] = json_of(row.bits_per_byte);
  j["core"] = json_of(row.core);
  j["core_difference_to_first"] =
      row.core_difference ? json_of(std::optional(row.core_difference->summary)) : ordered_json();
  j["core_row_difference_to_first"] =
      row.core_row_difference ? core_difference_json(*row.core_row_difference) : ordered_json();
  j["seconds"] = json_of(row.seconds);
  j["tokens_per_s"] = json_of(row.tokens_per_s);
  j["difference_to_first"] = ordered_json();
  if (row.difference) {
    j["difference_to_first"] = json_of(std::optional<Summary>(row.difference->summary));
    j["difference_to_first"]["seeds"] = row.difference->seeds;
  }
  ordered_json target;
  target["reached"] = row.reached;
  target["steps"] = json_of(row.target_steps);
  target["tokens"] = json_of(row.target_tokens);
  target["seconds"] = json_of(row.target_seconds);
  target["flops"] = json_of(row.target_flops);
  target["steps_difference_to_first"] =
      row.target_steps_difference ? json_of(std::optional(row.target_steps_difference->summary))
                                  : ordered_json();
  j["time_to_target"] = target;
  j["worst_max_load_norm"] = json_of(row.worst_load);
  j["collapsed_runs"] = row.collapsed;
  j["uneven_runs"] = row.uneven;
  j["restless_runs"] = row.restless;
  j["too_early_runs"] = row.too_early;
  ordered_json measures;
  for (const RunMeasure& measure : run_measures()) {
    measures[measure.name] =
        json_of(summarise(values_of(measured_runs(row, measure), measure), measure));
  }
  j["measures"] = measures;
  return j;
}

ordered_json gap_json(const GapCurve& curve) {
  ordered_json j;
  j["model"] = curve.row->cell->model;
  j["precision"] = curve.row->cell->precision;
  j["points"] = ordered_json::array();
  for (const GapPoint& point : curve.points) {
    ordered_json p = json_of(std::optional(point.gap));
    p["share"] = point.share;
    p["interpolated"] = point.interpolated;
    j["points"].push_back(p);
  }
  j["trend_per_doubling"] = json_of(curve.trend);
  return j;
}

ordered_json claim_json(const ClaimResult& result) {
  const MatrixClaim& claim = *result.claim;
  ordered_json j;
  j["name"] = claim.name;
  j["is"] = claim.text();
  j["measure"] = claim.measure;
  j["of"] = claim.of;
  j["other_model"] = claim.other.empty() ? ordered_json() : ordered_json(claim.other);
  j["contract"] = result.contract;
  j["precision"] = result.precision;
  j["verdict"] = claim_verdict_name(result.verdict);
  j["why"] = result.why.empty() ? ordered_json() : ordered_json(result.why);
  j["not_held"] = result.not_held.empty() ? ordered_json() : ordered_json(result.not_held);
  j["value"] = json_of(result.value);
  j["other"] = json_of(result.other);
  j["compared"] = json_of(result.compared);
  j["counts"] = result.counts.empty() ? ordered_json() : ordered_json(result.counts);
  j["planned"] = result.planned;
  j["p"] = json_of(result.p);
  j["p_holm"] = json_of(result.p_holm);
  j["after_holm"] = result.p ? ordered_json(result.after_holm()) : ordered_json();
  j["more_seeds"] = result.more_seeds ? ordered_json(*result.more_seeds) : ordered_json();
  j["validations_too_far_apart"] = result.is_coarse;
  return j;
}

// A row of summary.csv.
struct TableRow {
  const ContractTable& table;
  const SummaryRow& row;

  std::optional<Summary> difference() const {
    return row.difference ? std::optional<Summary>(row.difference->summary) : std::nullopt;
  }
  // Mean of a measure of the routers.
  std::string routers(const char* measure) const {
    return exact(mean(summarise(values_of(runs_with_routers(row), *find_run_measure(measure)))));
  }
  // A number of the model's experts; "" of a dense one.
  std::string experts(int64_t MoeConfig::*number) const {
    const auto& moe = row.cell->config.model.moe;
    return row.cell->configured && moe ? std::to_string((*moe).*number) : "";
  }
};

struct TableColumn {
  const char* name;
  std::string (*text)(const TableRow& r);
};

// New columns are added at the end: who reads by place finds those of earlier versions there.
const TableColumn kSummaryColumns[] = {
    {"contract", [](const TableRow& r) { return r.table.contract.name; }},
    {"kind", [](const TableRow& r) { return r.table.contract.kind_text(); }},
    {"coefficient", [](const TableRow& r) { return exact(r.table.contract.coefficient); }},
    {"model", [](const TableRow& r) { return r.row.cell->model; }},
    {"precision", [](const TableRow& r) { return r.row.cell->precision; }},
    {"planned", [](const TableRow& r) { return std::to_string(r.row.planned); }},
    {"finished", [](const TableRow& r) { return std::to_string(r.row.runs.runs.size()); }},
    {"stopped", [](const TableRow& r) { return std::to_string(r.row.stopped.size()); }},
    {"parameters_total", [](const TableRow& r) { return exact(r.row.total()); }},
    {"parameters_active", [](const TableRow& r) { return exact(r.row.active()); }},
    {"steps", [](const TableRow& r) { return exact(mean(r.row.steps)); }},
    {"tokens", [](const TableRow& r) { return exact(r.row.tokens()); }},
    {"flops", [](const TableRow& r) { return exact(r.row.flops()); }},
    {"val_loss_nats", [](const TableRow& r) { return exact(mean(r.row.loss)); }},
    {"val_loss_sd", [](const TableRow& r) { return exact_sd(r.row.loss); }},
    {"val_loss_low95", [](const TableRow& r) { return exact_bound(r.row.loss, &Interval::low); }},
    {"val_loss_high95", [](const TableRow& r) { return exact_bound(r.row.loss, &Interval::high); }},
    {"bits_per_byte", [](const TableRow& r) { return exact(mean(r.row.bits_per_byte)); }},
    {"core", [](const TableRow& r) { return exact(mean(r.row.core)); }},
    {"core_sd", [](const TableRow& r) { return exact_sd(r.row.core); }},
    {"seconds", [](const TableRow& r) { return exact(mean(r.row.seconds)); }},
    {"tokens_per_s", [](const TableRow& r) { return exact(mean(r.row.tokens_per_s)); }},
    {"difference_nats", [](const TableRow& r) { return exact(mean(r.difference())); }},
    {"difference_low95",
     [](const TableRow& r) { return exact_bound(r.difference(), &Interval::low); }},
    {"difference_high95",
     [](const TableRow& r) { return exact_bound(r.difference(), &Interval::high); }},
    {"target_nats", [](const TableRow& r) { return exact(r.table.target_nats); }},
    {"reached", [](const TableRow& r) { return std::to_string(r.row.reached); }},
    {"target_steps", [](const TableRow& r) { return exact(mean(r.row.target_steps)); }},
    {"target_tokens", [](const TableRow& r) { return exact(mean(r.row.target_tokens)); }},
    {"target_seconds", [](const TableRow& r) { return exact(mean(r.row.target_seconds)); }},
    {"target_flops", [](const TableRow& r) { return exact(mean(r.row.target_flops)); }},
    {"worst_max_load_norm", [](const TableRow& r) { return exact(r.row.worst_load); }},
    {"collapsed_runs", [](const TableRow& r) { return std::to_string(r.row.collapsed); }},
    {"restless_runs", [](const TableRow& r) { return std::to_string(r.row.restless); }},
    {"uneven_runs", [](const TableRow& r) { return std::to_string(r.row.uneven); }},
    {"effective_share", [](const TableRow& r) { return r.routers("effective_share"); }},
    {"swing", [](const TableRow& r) { return r.routers("swing"); }},
    {"experts", [](const TableRow& r) { return r.experts(&MoeConfig::experts); }},
    {"top_k", [](const TableRow& r) { return r.experts(&MoeConfig::top_k); }},
    {"cv", [](const TableRow& r) { return r.routers("cv"); }},
    {"max_load", [](const TableRow& r) { return r.routers("max_load"); }},
    {"entropy_min", [](const TableRow& r) { return r.routers("entropy_min"); }},
    {"dead",
     [](const TableRow& r) {
       return exact(mean(summarise(values_of(runs_with_routers(r.row), dead_share))));
     }},
    {"saturated_layers", [](const TableRow& r) { return r.routers("saturated_layers"); }},
    {"collapsed", [](const TableRow& r) { return r.routers("collapsed"); }},
};

}  // namespace

std::string summary_csv(const MatrixSummary& summary) {
  std::vector<std::string> names;
  for (const TableColumn& column : kSummaryColumns) names.emplace_back(column.name);
  std::string text = csv_line(names);
  for (const ContractTable& table : summary.tables) {
    for (const SummaryRow& row : table.rows) {
      std::vector<std::string> fields;
      for (const TableColumn& column : kSummaryColumns) {
        fields.push_back(column.text({.table = table, .row = row}));
      }
      text += csv_line(fields);
    }
  }
  return text;
}

std::string runs_csv(const MatrixSummary& summary) {
  std::string text =
      "cell,run,contract,model,precision,seed,end,steps,tokens,val_loss_nats,bits_per_byte,core,"
      "seconds,flops,worst_max_load_norm,reused_from,effective_share,swing,experts,top_k,cv,"
      "max_load,entropy_min,dead,saturated_layers,collapsed\n";
  for (const Cell& cell : summary.matrix->cells) {
    std::vector<std::string> fields = {cell.name,  cell.run,       cell.contract,
                                       cell.model, cell.precision, std::to_string(cell.seed)};
    const auto finished = summary.records.find(cell.run), stopped = summary.stopped.find(cell.run);
    const bool whole = finished != summary.records.end();
    if (!whole && stopped == summary.stopped.end()) {
      fields.resize(26);
    } else {
      const RunRecord& run = whole ? finished->second : stopped->second;
      // Means of losses are of finished runs: those of others stay empty.
      const auto loss = whole ? run.last_val() : std::nullopt;
      const bool has_bits = whole && !run.val_bits_per_byte.empty();
      fields.push_back(run.end);
      fields.push_back(std::to_string(run.steps_done));
      fields.push_back(std::to_string(run.tokens));
      fields.push_back(loss ? exact(loss->value) : "");
      fields.push_back(has_bits ? exact(run.val_bits_per_byte.back().value) : "");
      fields.push_back(whole ? exact(find_run_measure("core")->of(run)) : "");
      fields.push_back(exact(run.seconds_at(run.steps_done)));
      fields.push_back(exact(run.flops_at(run.steps_done)));
      fields.push_back(run.health ? exact(run.health->worst_max_load_norm) : "");
      fields.push_back(run.reused_from);
      fields.push_back(exact(find_run_measure("effective_share")->of(run)));
      fields.push_back(exact(find_run_measure("swing")->of(run)));
      const auto& moe = run.config.model.moe;
      fields.push_back(moe ? std::to_string(moe->experts) : "");
      fields.push_back(moe ? std::to_string(moe->top_k) : "");
      for (const char* measure : {"cv", "max_load", "entropy_min"})
        fields.push_back(exact(find_run_measure(measure)->of(run)));
      fields.push_back(exact(dead_share(run)));
      for (const char* measure : {"saturated_layers", "collapsed"})
        fields.push_back(exact(find_run_measure(measure)->of(run)));
    }
    text += csv_line(fields);
  }
  return text;
}

std::string summary_json(const MatrixSummary& summary) {
  ordered_json j;
  j["matrix"] = summary.matrix->file.name;
  if (!summary.only.empty()) j["only"] = summary.only;
  j["complete"] = summary.complete();
  j["cells"] = summary.cells;
  j["done"] = summary.done;
  j["unavailable"] = summary.unavailable;
  j["extra_seeds"] = summary.matrix->file.extra_seeds;
  std::string different = summary.different_data;
  if (!summary.mixed_data.empty())
    different += (different.empty() ? "" : "; ") + summary.mixed_data;
  j["different_data"] = different.empty() ? ordered_json() : ordered_json(different);
  j["trained_validation"] = summary.trained_validation.empty()
                                ? ordered_json()
                                : ordered_json(summary.trained_validation);
  j["shared_order"] =
      summary.shared_order.empty() ? ordered_json() : ordered_json(summary.shared_order);
  j["contracts"] = ordered_json::array();
  for (const ContractTable& table : summary.tables) {
    ordered_json t;
    t["name"] = table.contract.name;
    t["kind"] = table.contract.kind_text();
    t["coefficient"] = table.contract.coefficient;
    t["reference"] = table.contract.reference;
    t["fraction"] = table.contract.fraction;
    t["target_nats"] = table.target_nats > 0 ? ordered_json(table.target_nats) : ordered_json();
    t["target_given"] = table.target_given;
    t["other_core_questions"] = table.other_core_questions.empty()
                                    ? ordered_json()
                                    : ordered_json(table.other_core_questions);
    t["not_held"] = table.not_held.empty() ? ordered_json() : ordered_json(table.not_held);
    t["confounds"] = confounds_json(table.confounds);
    t["rows"] = ordered_json::array();
    for (const SummaryRow& row : table.rows) {
      if (row.is_shown) t["rows"].push_back(row_json(row));
    }
    t["ranked_by"] = table.ranked_by_target() ? "target_steps" : "val_loss";
    t["not_ranked"] = table.not_ranked.empty() ? ordered_json() : ordered_json(table.not_ranked);
    t["ranking"] = ordered_json::array();
    for (size_t i = 0; i < table.ranking.size(); ++i) {
      using Relation = ContractTable::Relation;
      ordered_json place;
      place["model"] = table.ranking[i]->cell->model;
      place["precision"] = table.ranking[i]->cell->precision;
      if (i < table.relation.size()) {
        const bool interval = table.relation[i] != Relation::kOneSeed &&
                              table.relation[i] != Relation::kNoSeed &&
                              table.relation[i] != Relation::kNoSpread;
        place["relation_to_next"] = relation_name(table.relation[i]);
        place["told_apart_from_next"] =
            !interval ? ordered_json() : ordered_json(table.relation[i] == Relation::kBelow);
      }
      t["ranking"].push_back(place);
    }
    t["gaps"] = ordered_json::array();
    for (const GapCurve& curve : gap_curves(table)) {
      if (curve.row->is_shown) t["gaps"].push_back(gap_json(curve));
    }
    j["contracts"].push_back(t);
  }
  j["claims"] = ordered_json::array();
  for (const ClaimResult& r : shown_claims(summary)) {
    j["claims"].push_back(claim_json(r));
    const auto late = summary.seal ? summary.seal->added_after(*r.claim) : std::optional<int64_t>();
    j["claims"].back()["added_after_runs"] = late ? ordered_json(*late) : ordered_json();
  }
  j["claims_seal"] = ordered_json();
  if (summary.seal) {
    j["claims_seal"] = seal_to_json(*summary.seal);
    j["claims_seal"]["says"] = seal_text(*summary.seal);
  }
  return json_text(j, 2) + "\n";
}

void write_summary(const MatrixFolder& folder, const MatrixSummary& summary) {
  write_file_atomic(folder.file("summary.md"), summary_markdown(summary));
  write_file_atomic(folder.file("summary.csv"), summary_csv(summary));
  write_file_atomic(folder.file("summary.json"), summary_json(summary));
  write_file_atomic(folder.file("runs.csv"), runs_csv(summary));
}

}  // namespace assay
