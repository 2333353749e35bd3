#include "lab/matrix/report.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "engine/run/progress.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/gap.h"
#include "lab/matrix/table_contract.h"
#include "lab/runs/markdown_table.h"
#include "lab/runs/run_measures.h"

namespace assay {
namespace {

using Rows = MarkdownRows;

std::string number(const std::optional<double>& value, const char* format) {
  return value ? strprintf(format, *value) : "-";
}
std::string interval(const std::optional<Summary>& s, const char* format) {
  if (!s || !s->interval95) return "-";
  return number(s->interval95->low, format) + " to " + number(s->interval95->high, format);
}

std::string health(const SummaryRow& row) {
  if (!row.worst_load) return "-";
  std::string text = strprintf("%.2f", *row.worst_load);
  const size_t runs = runs_with_routers(row).runs.size();
  const std::pair<RouterState, int64_t> worst_first[] = {{RouterState::kCollapsed, row.collapsed},
                                                         {RouterState::kUneven, row.uneven},
                                                         {RouterState::kRestless, row.restless},
                                                         {RouterState::kTooEarly, row.too_early}};
  for (const auto& [state, count] : worst_first) {
    if (count > 0) text += " " + state_word(state) + strprintf(" (%ld of %zu)", long(count), runs);
  }
  return text;
}

// " (routers collapsed)", " (routers collapsed in 1 of 3 runs)"; "" if none did.
std::string collapse_text(const SummaryRow& row) {
  if (row.collapsed == 0) return "";
  const auto runs = int64_t(runs_with_routers(row).runs.size());
  if (row.collapsed == runs) return " (routers collapsed)";
  return strprintf(" (routers collapsed in %ld of %ld runs)", long(row.collapsed), long(runs));
}

// The rows that have values to show.
std::vector<const SummaryRow*> shown_rows(const ContractTable& table) {
  std::vector<const SummaryRow*> rows;
  for (const SummaryRow& row : table.rows) {
    if (row.is_shown && !row.without_run()) rows.push_back(&row);
  }
  return rows;
}

// "2 models have no finished run: e16-none, e64-none."; "" if all have one.
std::string without_run_text(const ContractTable& table) {
  std::string names;
  size_t count = 0;
  for (const SummaryRow& row : table.rows) {
    if (!row.is_shown || !row.without_run()) continue;
    names += (count++ == 0 ? "" : ", ") + row_name(row, table);
  }
  if (count == 0) return "";
  return strprintf("%zu %s no finished run: ", count, count == 1 ? "model has" : "models have") +
         names + ".\n\n";
}

// Mean and interval of a difference, marked where it includes 0 or has no spread; "-" if absent.
std::pair<std::string, std::string> difference_texts(const std::optional<PairedDifference>& of,
                                                     const char* format) {
  if (!of) return {"-", "-"};
  std::string spread = interval(of->summary, format);
  const auto& bounds = of->summary.interval95;
  if (bounds && bounds->low <= 0 && bounds->high >= 0) spread += " (includes 0)";
  if (of->summary.no_spread()) spread += " (" + std::string(kNoSpread) + ")";
  return {number(of->summary.mean, format), spread};
}

Rows result_rows(const ContractTable& table) {
  // Runs that stop at a target have about its loss: they differ in the steps that it took.
  const bool steps = table.ranked_by_target();
  const std::string first = row_name(table.rows.front(), table);
  Rows rows = {{"model", "precision", "n", "val loss", "sd", "95% interval", "bits/byte",
                (steps ? "target steps minus " : "minus ") + first, "95% interval",
                "worst max_load*K"}};
  const bool scored = std::any_of(table.rows.begin(), table.rows.end(),
                                  [](const SummaryRow& row) { return row.core.has_value(); });
  if (scored) rows[0].insert(rows[0].end(), {"CORE", "CORE minus " + first, "95% interval"});
  const char* format = steps ? "%+.0f" : "%+.4f";
  for (const SummaryRow* shown : shown_rows(table)) {
    const SummaryRow& row = *shown;
    const auto [difference, spread] =
        difference_texts(steps ? row.target_steps_difference : row.difference, format);
    const std::string sd = row.loss && row.loss->sd ? strprintf("%.4f", *row.loss->sd) : "-";
    const long n = long(row.runs.runs.size());
    rows.push_back(
        {row.cell->model, row.cell->precision,
         n == row.planned ? strprintf("%ld", n) : strprintf("%ld of %ld", n, long(row.planned)),
         number(mean(row.loss), "%.4f"), sd, interval(row.loss, "%.4f"),
         number(mean(row.bits_per_byte), "%.4f"), difference, spread, health(row)});
    if (!scored) continue;
    const auto [core, core_spread] = difference_texts(row.core_difference, "%+.4f");
    rows.back().insert(rows.back().end(),
                       {number(mean(row.core), "%.4f") +
                            (row.core && row.core->sd ? strprintf(" ± %.4f", *row.core->sd) : ""),
                        core, core_spread});
  }
  return rows;
}

// "0.640 ± 0.012 (2 of 3)", over the runs that have the measure. scale: 100 for percent.
std::string spread(const SummaryRow& row, const char* measure, const char* format,
                   double scale = 1) {
  const SeedGroup group = runs_with_routers(row);
  const auto s = summarise(values_of(group, find_run_measure(measure)->of));
  if (!s) return "-";
  std::string text = strprintf(format, scale * s->mean);
  if (s->sd) text += " ± " + strprintf(format, scale * *s->sd);
  const size_t runs = group.runs.size();
  if (size_t(s->n) < runs) text += strprintf(" (%ld of %zu)", long(s->n), runs);
  return text;
}

// One entry per seed: "2, -, 0+1"; - if no layer saturates.
std::string first_layers(const SummaryRow& row) {
  std::string text;
  for (const RunRecord* run : runs_with_routers(row).runs) {
    const std::string layers = joined(first_saturated_layers(*run), "+");
    text += (text.empty() ? "" : ", ") + (layers.empty() ? "-" : layers);
  }
  return text;
}

// The logged steps that a run's loads are over: telemetry.window, or as many as there are.
int64_t window_of(const SummaryRow& row, const RunRecord& run) {
  const bool early = run.health && router_state(*run.health) == RouterState::kTooEarly;
  return early ? run.health->logged : row.cell->config.telemetry.window;
}

// "20", or where they differ between runs "10 to 40".
std::string window_text(const std::set<int64_t>& windows) {
  const std::string fewest = std::to_string(*windows.begin());
  return windows.size() == 1 ? fewest : fewest + " to " + std::to_string(*windows.rbegin());
}

// "" if no run has a router.
std::string routers_text(const ContractTable& table) {
  Rows rows = {{"model", "precision", "cv/ceiling", "mean max_load*K", "worst layer", "min H/ln E",
                "effective_share", "swing %", "dead %", "saturated %", "first at step",
                "first layer, by seed"}};
  std::set<int64_t> windows;
  for (const SummaryRow& row : table.rows) {
    if (!row.is_shown || !row.worst_load) continue;
    for (const RunRecord* run : runs_with_routers(row).runs) windows.insert(window_of(row, *run));
    rows.push_back({row.cell->model, row.cell->precision, spread(row, "cv", "%.3f"),
                    spread(row, "max_load", "%.3f"), spread(row, "max_load_worst", "%.3f"),
                    spread(row, "entropy_min", "%.3f"), spread(row, "effective_share", "%.3f"),
                    spread(row, "swing", "%.0f", 100), spread(row, "dead", "%.1f", 100),
                    spread(row, "saturated_layers", "%.1f", 100),
                    spread(row, "first_saturation", "%.0f"), first_layers(row)});
  }
  if (rows.size() == 1) return "";
  return markdown_table(rows, 2) +
         strprintf(
             "\nRouters: mean ± standard deviation over the seeds; cv, max_load, entropy, swing "
             "and dead experts over the last %s logged steps, cv and mean max_load*K as means over "
             "layers, worst layer: the largest max_load*K of them; effective_share: exp(H) / E of "
             "the layer where H is smallest, which compares numbers of experts; swing: unevenness "
             "of single steps beyond that of the window and of sampling, of the mean load, in the "
             "layer where it is largest; saturated: max_load >= 0.9 / K (more if K/E is above 0.8) "
             "at any logged step.\n\n",
             window_text(windows).c_str());
}

std::string target_seconds(const SummaryRow& row) {
  return number(mean(row.target_seconds), "%.1f");
}

// Mean over the runs, or "33 to 71" where seeds measured numbers of steps of their own.
std::string steps_text(const SummaryRow& row, const std::optional<double>& steps) {
  std::set<int64_t> planned, done;
  for (const RunRecord* run : row.runs.runs) {
    planned.insert(run->config.run.steps);
    done.insert(run->steps_done);
  }
  if (planned.size() < 2) return number(steps, "%.0f");
  return strprintf("%ld to %ld", long(*done.begin()), long(*done.rbegin()));
}

Rows cost_rows(const ContractTable& table) {
  Rows rows = {{"model", "precision", "steps", "tokens", "tokens/P_total", "tokens/P_active",
                "FLOPs", "seconds", "tokens/s", "reached", "target steps", "target tokens",
                "target seconds", "target FLOPs"}};
  for (const SummaryRow* shown : shown_rows(table)) {
    const SummaryRow& row = *shown;
    const std::optional<double> steps =
        row.steps ? mean(row.steps)
                  : (row.cell->known_steps ? std::optional<double>(double(row.cell->steps()))
                                           : std::nullopt);
    const std::optional<double> tokens = steps ? row.tokens() : std::nullopt;
    const auto per = [&](const std::optional<double>& parameters) {
      return tokens ? strprintf("%.3f", *tokens / *parameters) : "-";
    };
    rows.push_back({row.cell->model, row.cell->precision, steps_text(row, steps),
                    tokens ? count_text(*tokens) : "-", per(row.total()), per(row.active()),
                    tokens ? number(row.flops(), "%.3e") : "-", number(mean(row.seconds), "%.1f"),
                    row.tokens_per_s ? count_text(row.tokens_per_s->mean) : "-",
                    strprintf("%ld of %zu", long(row.reached), row.runs.runs.size()),
                    number(mean(row.target_steps), "%.0f"),
                    row.target_tokens ? count_text(row.target_tokens->mean) : "-",
                    target_seconds(row), number(mean(row.target_flops), "%.3e")});
  }
  return rows;
}

// "Not ranked: dense, which reached the target in 1 of 3 runs."
std::string not_ranked_text(const ContractTable& table) {
  if (!table.not_ranked.empty()) return "Not ranked: " + table.not_ranked + ".\n";
  std::string text;
  for (const SummaryRow& row : table.rows) {
    if (row.not_ranked.empty()) continue;
    text += (text.empty() ? "" : "; ") + row_name(row, table) + ", which " + row.not_ranked;
  }
  return text.empty() ? "" : "Not ranked: " + text + ".\n";
}

std::string ranking_text(const ContractTable& table) {
  using Relation = ContractTable::Relation;
  if (table.ranking.size() < 2) return not_ranked_text(table);
  const bool steps = table.ranked_by_target();
  std::string text = "Ranking under " + table.contract.name + " (" +
                     (steps ? strprintf("mean steps to %g nats, fewest", table.target_nats)
                            : "mean final loss, best") +
                     " first): ";
  std::set<Relation> seen;
  for (size_t i = 0; i < table.ranking.size(); ++i) {
    if (i > 0) {
      const Relation relation = table.relation[i - 1];
      text += relation == Relation::kBelow     ? " < "
              : relation == Relation::kAbove   ? " ! "
              : relation == Relation::kUnclear ? " ~ "
                                               : " ? ";
      seen.insert(relation);
    }
    const SummaryRow& row = *table.ranking[i];
    text += row_name(row, table) + (steps ? strprintf(" %.0f", row.target_steps->mean)
                                          : strprintf(" %.4f", row.loss->mean));
    text += collapse_text(row);
  }
  text += ".\n";
  if (seen.contains(Relation::kUnclear)) {
    text +=
        "`~`, between neighbours: the 95% interval of the difference over shared seeds includes 0; "
        "these seeds show no difference.\n";
  }
  if (seen.contains(Relation::kAbove)) {
    text +=
        "`!`: over the seeds that both have the order is the other way; the means are of all "
        "seeds.\n";
  }
  if (seen.contains(Relation::kNoSpread)) {
    text += std::string("`?`: the difference over shared seeds is ") + kNoSpread + ".\n";
  }
  if (seen.contains(Relation::kOneSeed) || seen.contains(Relation::kNoSeed)) {
    text += std::string("`?`: ") +
            (!seen.contains(Relation::kNoSeed)    ? "one shared seed"
             : !seen.contains(Relation::kOneSeed) ? "no shared seed"
                                                  : "one shared seed or none") +
            ", so there is no interval; the order may depend on the seed.\n";
  }
  return text + not_ranked_text(table) + "Another contract may rank them differently.\n";
}

std::string target_text(const ContractTable& table) {
  if (table.target_nats <= 0) return "";
  return strprintf(
             "Time to target: first evaluation at or below %.4f nats (%s), mean over the runs "
             "that reached it.\n",
             table.target_nats,
             table.target_given ? "run.target_loss, where the runs stop"
                                : ("the worst final loss of " +
                                   row_name(table.rows.front(), table) + ", chosen afterwards")
                                      .c_str()) +
         left_out_text(table.left_out_steps);
}

// True if the runs of the table were trained on different devices.
bool mixes_devices(const ContractTable& table, const RunRecord& run) {
  for (const SummaryRow& row : table.rows) {
    for (const RunRecord* other : row.runs.runs) {
      if (other->device != run.device) return true;
    }
  }
  return false;
}

// " (commit 8f7949136, on cuda: NVIDIA H200)", as far as recorded; the device only if the table
// mixes devices.
std::string origin_text(const ContractTable& table, const RunRecord& run) {
  std::string text;
  if (!run.commit.empty()) text = "commit " + run.commit.substr(0, 9);
  if (!run.device.empty() && mixes_devices(table, run)) {
    text += (text.empty() ? "on " : ", on ") + run.device;
  }
  return text.empty() ? "" : " (" + text + ")";
}

std::string table_markdown(const ContractTable& table, const Matrix& matrix) {
  const bool has_rows = !shown_rows(table).empty();
  std::string text =
      "## Contract " + table.contract.name + ": " + contract_text(table.contract, matrix) + "\n\n";
  if (has_rows) text += markdown_table(result_rows(table), 2) + "\n";
  text += without_run_text(table);
  if (!table.other_core_questions.empty())
    text += "CORE NOT COMPARABLE: " + table.other_core_questions + ".\n\n";
  for (const SummaryRow& row : table.rows) {
    if (!row.is_shown || !row.core_row_difference) continue;
    text += core_row_text(row_name(row, table), row_name(table.rows.front(), table),
                          *row.core_row_difference) +
            ".\n\n";
  }
  text += gap_markdown(table);
  text += routers_text(table);
  if (has_rows) text += markdown_table(cost_rows(table), 2) + "\n";
  text += target_text(table);
  if (!table.not_held.empty()) text += table.not_held + "\n";
  text += ranking_text(table);
  for (const Confound& c : table.confounds) text += "- confound: " + c.text + "\n";
  for (const SummaryRow& row : table.rows) {
    if (!row.is_shown) continue;
    const bool is_named = row.without_run() && row.waiting == row.missing.size();
    if (!is_named) {
      for (const std::string& missing : row.missing) text += "- " + missing + "\n";
    }
    for (const RunRecord* run : row.runs.runs) {
      if (run->reused_from.empty()) continue;
      text +=
          "- " + run->name + ": reused from " + run->reused_from + origin_text(table, *run) + "\n";
    }
  }
  return text;
}

// "2 of 35 rows are shown ..."; "" if all are.
std::string shown_text(const MatrixSummary& summary) {
  size_t shown = 0, all = 0;
  for (const ContractTable& table : summary.tables) {
    for (const SummaryRow& row : table.rows) {
      shown += row.is_shown ? 1 : 0;
      all += 1;
    }
  }
  if (shown == all) return "";
  return strprintf(
      "%zu of %zu rows are shown, and the claims on their models (--only); differences, rankings "
      "and p (Holm) are those of the whole matrix.\n",
      shown, all);
}

// "" if the file names all seeds.
std::string extra_seeds_text(const MatrixFile& file) {
  if (file.extra_seeds.empty()) return "";
  return "Seeds " + joined(file.extra_seeds, ", ") +
         " were added because claims were undecided (--until-decided): the more often one looks, "
         "the more often an interval excludes a bound by chance (where nothing differs, not in 5% "
         "of the cases but in 10% from 3 to 5 seeds, in 15% to 8, in 17% to 10).\n";
}

}  // namespace

std::string summary_markdown(const MatrixSummary& summary) {
  std::string text = "# Matrix " + summary.matrix->file.name + "\n\n";
  text += strprintf("%ld of %ld cells are done", long(summary.done), long(summary.cells));
  if (summary.unavailable > 0) {
    text += strprintf(", %ld cannot be trained in their precision", long(summary.unavailable));
  }
  text += summary.complete() ? ".\n" : ": INCOMPLETE, the values below may change.\n";
  text += shown_text(summary);
  text += extra_seeds_text(summary.matrix->file);
  if (!summary.different_data.empty()) {
    text += "NOT COMPARABLE (forced): " + summary.different_data + ".\n";
  }
  if (!summary.mixed_data.empty()) text += "NOT COMPARABLE: " + summary.mixed_data + ".\n";
  if (!summary.trained_validation.empty()) text += "Note: " + summary.trained_validation + ".\n";
  if (!summary.shared_order.empty()) text += "Note: " + summary.shared_order + ".\n";
  for (const ContractTable& table : summary.tables)
    text += "\n" + table_markdown(table, *summary.matrix);
  const std::string claims = claims_markdown(shown_claims(summary), summary.seal);
  return claims.empty() ? text : text + "\n" + claims;
}

}  // namespace assay
