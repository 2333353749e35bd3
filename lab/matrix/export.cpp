#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/report.h"
#include "lab/runs/run_measures.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

std::optional<double> mean(const std::optional<Summary>& s) {
  return s ? std::optional<double>(s->mean) : std::nullopt;
}

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
  j["runs"] = ordered_json::array();
  for (const RunRecord* run : row.runs.runs) {
    ordered_json r;
    r["run"] = run->name;
    r["seed"] = run->config.run.seed;
    r["end"] = run->end;
    r["steps"] = run->steps_done;
    r["val_loss_nats"] = run->last_val() ? ordered_json(run->last_val()->value) : ordered_json();
    r["reused_from"] = run->reused_from.empty() ? ordered_json() : ordered_json(run->reused_from);
    j["runs"].push_back(r);
  }
  j["parameters_total"] = row.cell->audit.total;
  j["parameters_active"] = row.cell->audit.active;
  j["tokens"] = row.tokens();
  j["flops"] = row.flops();
  j["steps"] = json_of(row.steps);
  j["val_loss_nats"] = json_of(row.loss);
  j["bits_per_byte"] = json_of(row.bits_per_byte);
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
  j["time_to_target"] = target;
  j["worst_max_load_norm"] = json_of(row.worst_load);
  j["collapsed_runs"] = row.collapsed;
  ordered_json measures;
  for (const RunMeasure& measure : run_measures()) {
    measures[measure.name] = json_of(summarise(values_of(row.runs, measure.of)));
  }
  j["measures"] = measures;
  return j;
}

ordered_json claim_json(const ClaimResult& result) {
  const MatrixClaim& claim = *result.claim;
  ordered_json j;
  j["name"] = claim.name;
  j["is"] = claim.text();
  j["measure"] = claim.measure;
  j["of"] = claim.of;
  j["contract"] = result.contract;
  j["precision"] = result.precision;
  j["verdict"] = claim_verdict_name(result.verdict);
  j["why"] = result.why.empty() ? ordered_json() : ordered_json(result.why);
  j["value"] = json_of(result.value);
  j["other"] = json_of(result.other);
  j["compared"] = json_of(result.compared);
  j["planned"] = result.planned;
  return j;
}

}  // namespace

std::string summary_csv(const MatrixSummary& summary) {
  std::string text = csv_line({"contract",
                               "kind",
                               "coefficient",
                               "model",
                               "precision",
                               "planned",
                               "finished",
                               "parameters_total",
                               "parameters_active",
                               "steps",
                               "tokens",
                               "flops",
                               "val_loss_nats",
                               "val_loss_sd",
                               "val_loss_low95",
                               "val_loss_high95",
                               "bits_per_byte",
                               "seconds",
                               "tokens_per_s",
                               "difference_nats",
                               "difference_low95",
                               "difference_high95",
                               "target_nats",
                               "reached",
                               "target_steps",
                               "target_tokens",
                               "target_seconds",
                               "target_flops",
                               "worst_max_load_norm",
                               "collapsed_runs"});
  for (const ContractTable& table : summary.tables) {
    for (const SummaryRow& row : table.rows) {
      std::optional<Summary> difference;
      if (row.difference) difference.emplace(row.difference->summary);
      text += csv_line({table.contract.name,
                        table.contract.kind_text(),
                        exact(table.contract.coefficient),
                        row.cell->model,
                        row.cell->precision,
                        std::to_string(row.planned),
                        std::to_string(row.runs.runs.size()),
                        std::to_string(row.cell->audit.total),
                        std::to_string(row.cell->audit.active),
                        exact(mean(row.steps)),
                        exact(row.tokens()),
                        exact(row.flops()),
                        exact(mean(row.loss)),
                        exact_sd(row.loss),
                        exact_bound(row.loss, &Interval::low),
                        exact_bound(row.loss, &Interval::high),
                        exact(mean(row.bits_per_byte)),
                        exact(mean(row.seconds)),
                        exact(mean(row.tokens_per_s)),
                        exact(mean(difference)),
                        exact_bound(difference, &Interval::low),
                        exact_bound(difference, &Interval::high),
                        exact(table.target_nats),
                        std::to_string(row.reached),
                        exact(mean(row.target_steps)),
                        exact(mean(row.target_tokens)),
                        exact(mean(row.target_seconds)),
                        exact(mean(row.target_flops)),
                        exact(row.worst_load),
                        std::to_string(row.collapsed)});
    }
  }
  return text;
}

std::string runs_csv(const MatrixSummary& summary) {
  std::string text = csv_line({"cell", "run", "contract", "model", "precision", "seed", "end",
                               "steps", "tokens", "val_loss_nats", "bits_per_byte", "seconds",
                               "flops", "worst_max_load_norm", "reused_from"});
  for (const Cell& cell : summary.matrix->cells) {
    const auto found = summary.records.find(cell.run);
    std::vector<std::string> fields = {cell.name,  cell.run,       cell.contract,
                                       cell.model, cell.precision, std::to_string(cell.seed)};
    if (found == summary.records.end()) {
      fields.resize(15);
    } else {
      const RunRecord& run = found->second;
      const auto loss = run.last_val();
      fields.push_back(run.end);
      fields.push_back(std::to_string(run.steps_done));
      fields.push_back(std::to_string(run.tokens));
      fields.push_back(loss ? exact(loss->value) : "");
      fields.push_back(run.val_bits_per_byte.empty() ? ""
                                                     : exact(run.val_bits_per_byte.back().value));
      fields.push_back(exact(run.seconds_at(run.steps_done)));
      fields.push_back(exact(run.flops_at(run.steps_done)));
      fields.push_back(run.health ? exact(run.health->worst_max_load_norm) : "");
      fields.push_back(run.reused_from);
    }
    text += csv_line(fields);
  }
  return text;
}

std::string summary_json(const MatrixSummary& summary) {
  ordered_json j;
  j["matrix"] = summary.matrix->file.name;
  j["complete"] = summary.complete();
  j["cells"] = summary.cells;
  j["done"] = summary.done;
  j["unavailable"] = summary.unavailable;
  j["different_data"] =
      summary.different_data.empty() ? ordered_json() : ordered_json(summary.different_data);
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
    t["rows"] = ordered_json::array();
    for (const SummaryRow& row : table.rows) t["rows"].push_back(row_json(row));
    t["ranking"] = ordered_json::array();
    for (size_t i = 0; i < table.ranking.size(); ++i) {
      using Relation = ContractTable::Relation;
      ordered_json place;
      place["model"] = table.ranking[i]->cell->model;
      place["precision"] = table.ranking[i]->cell->precision;
      if (i < table.relation.size()) {
        place["told_apart_from_next"] = table.relation[i] == Relation::kOneSeed
                                            ? ordered_json()
                                            : ordered_json(table.relation[i] == Relation::kBelow);
      }
      t["ranking"].push_back(place);
    }
    j["contracts"].push_back(t);
  }
  j["claims"] = ordered_json::array();
  for (const ClaimResult& r : evaluate_claims(summary.matrix->file.claims, summary.tables)) {
    j["claims"].push_back(claim_json(r));
  }
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void write_summary(const MatrixFolder& folder, const MatrixSummary& summary) {
  write_file_atomic(folder.file("summary.md"), summary_markdown(summary));
  write_file_atomic(folder.file("summary.csv"), summary_csv(summary));
  write_file_atomic(folder.file("summary.json"), summary_json(summary));
  write_file_atomic(folder.file("runs.csv"), runs_csv(summary));
}

}  // namespace assay
