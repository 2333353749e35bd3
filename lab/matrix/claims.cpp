#include "lab/matrix/claims.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/matrix/table_contract.h"
#include "lab/matrix/verdict_counts.h"
#include "lab/runs/core_questions.h"
#include "lab/runs/machine.h"
#include "lab/runs/markdown_table.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/share_claim.h"
#include "lab/runs/time_to_target.h"

namespace assay {
namespace {

constexpr const char* kOneSeed = "one seed";
constexpr const char* kTooFarApart = "validations too far apart";

const SummaryRow* find_row(const ContractTable& table, const std::string& model,
                           const std::string& precision) {
  for (const SummaryRow& row : table.rows) {
    if (row.cell->model == model && row.cell->precision == precision) return &row;
  }
  return nullptr;
}

const SummaryRow& row_of(const ContractTable& table, const std::string& model,
                         const std::string& precision) {
  const SummaryRow* row = find_row(table, model, precision);
  CHECK(row != nullptr, "no row of %s", model.c_str());
  return *row;
}

// "2 of 3 runs of baseline have the measure"; "" if all have it. Runs that a guard stopped come
// first: the others are a selection.
std::string runs_without(const RunMeasure& measure, const ClaimTerm& term,
                         const SeedValues& values) {
  const std::string stopped = stopped_text(*term.row, measure);
  if (!stopped.empty()) return stopped;
  const size_t runs = measured_runs(*term.row, measure).runs.size();
  if (values.size() == runs) return "";
  std::string text = strprintf("%zu of %zu runs of %s have the measure", values.size(), runs,
                               term.row->cell->model.c_str());
  return term.share ? text + strprintf(" at %.4g%%", 100 * *term.share) : text;
}

// "60 of 100 logged steps (telemetry.window) in 3 of 3 runs of moe": no verdict on routers has been
// reached then (judge_router()); "" if one has in all, or the measure is of no window.
std::string too_early(const RunMeasure& measure, const ClaimTerm& term) {
  if (measure.about != RunMeasure::About::kWindow) return "";
  const RouterHealth* first = nullptr;
  size_t early = 0;
  const SeedGroup measured = measured_runs(*term.row, measure);
  for (const RunRecord* run : measured.runs) {
    if (!run->health || router_state(*run->health) != RouterState::kTooEarly) continue;
    if (early++ == 0) first = &*run->health;
  }
  if (early == 0) return "";
  return strprintf("%ld of %ld logged steps (telemetry.window) in %zu of %zu runs of %s",
                   long(first->logged), long(first->window), early, measured.runs.size(),
                   term.row->cell->model.c_str());
}

// Why the runs' values are not of one quantity: "a ran on cpu, 1 thread, b on cpu, 4 threads" where
// the measure is a time, other questions where it is CORE; "" if they are.
std::string not_one_quantity(const RunMeasure& measure, const std::vector<ClaimTerm>& terms) {
  const bool time = measure.about == RunMeasure::About::kMachine;
  const bool core = measure.name == std::string("core");
  if (!time && !core) return "";
  std::vector<const RunRecord*> runs;
  for (const ClaimTerm& term : terms) {
    const SeedGroup measured = measured_runs(*term.row, measure);
    runs.insert(runs.end(), measured.runs.begin(), measured.runs.end());
  }
  return time ? other_machine(runs) : different_core_questions(runs);
}

// Why losses at the end say nothing of the models; "" if they do. sums: of the seeds compared.
std::string only_targets(const MatrixClaim& claim, const RunMeasure& measure,
                         const std::vector<ClaimTerm>& terms, const SeedValues& sums) {
  if (measure.about != RunMeasure::About::kEndLoss) return "";
  const auto stopped = [&](const ClaimTerm& term) {
    const SeedGroup measured = measured_runs(*term.row, measure);
    return !term.share &&
           std::any_of(measured.runs.begin(), measured.runs.end(), [&](const RunRecord* run) {
             const bool compared = std::any_of(
                 sums.begin(), sums.end(),
                 [&](const SeedValue& value) { return value.seed == run->config.run.seed; });
             return compared && stopped_at_target(run->config, run->steps_done, run->val_loss_nats);
           });
  };
  const auto count = std::count_if(terms.begin(), terms.end(), stopped);
  const bool only_order = claim.relation != ClaimRelation::kNear && claim.number == 0;
  return rests_on_targets(terms.size(), size_t(count), only_order) ? kStoppedAtTarget : "";
}

SeedValues values_of_term(const RunMeasure& measure, const ClaimTerm& term) {
  const SeedGroup runs = measured_runs(*term.row, measure);
  if (!term.share) return values_of(runs, measure);
  return values_of(runs, [&](const RunRecord& run) { return measure.at(run, *term.share); });
}

// Where a claim is judged: one place, or the two that it goes across.
struct Place {
  const ContractTable* table = nullptr;
  std::string precision;
  std::optional<double> share;
};

// The terms of `of` minus the other model at a place.
std::vector<ClaimTerm> terms_at(const MatrixClaim& claim, const Place& place, double sign) {
  std::vector<ClaimTerm> terms = {{.row = &row_of(*place.table, claim.of, place.precision),
                                   .share = place.share,
                                   .sign = sign}};
  if (!claim.other.empty()) {
    terms.push_back({.row = &row_of(*place.table, claim.other, place.precision),
                     .share = place.share,
                     .sign = -sign});
  }
  return terms;
}

SeedValues sum_of(const std::vector<SeedValues>& values, const std::vector<ClaimTerm>& terms,
                  size_t begin, size_t end) {
  const auto term = [&](size_t i, double sign) {
    return terms[i].sign == sign ? values.at(i) : negated(values.at(i));
  };
  SeedValues sum = term(begin, 1);
  for (size_t i = begin + 1; i < end; ++i) sum = subtract(sum, term(i, -1));
  return sum;
}

// The bounds of what the claim wants: one, or with `near` two.
std::vector<double> bounds_of(const MatrixClaim& claim) {
  if (claim.relation != MatrixClaim::Relation::kNear) return {claim.number};
  return {claim.number - claim.within, claim.number + claim.within};
}

// The bounds that an interval must exclude to decide about this mean.
std::vector<double> bounds_to_exclude(const MatrixClaim& claim, double mean) {
  std::vector<double> bounds = bounds_of(claim);
  if (bounds.size() == 1 || (bounds[0] < mean && mean < bounds[1])) return bounds;
  return {mean <= bounds[0] ? bounds[0] : bounds[1]};
}

// The verdict on as many equal values as a sign test takes.
ClaimVerdict verdict_of_equal(const MatrixClaim& claim, const Summary& s) {
  const Interval interval{.low = s.mean - s.below, .high = s.mean + s.above};
  return claim_verdict(claim.relation, claim.number, claim.within, interval);
}

void add_test(ClaimResult& result) {
  const Summary& s = *result.compared;
  double p = 0;
  std::optional<int64_t> needed = 0;
  for (const double bound : bounds_to_exclude(*result.claim, s.mean)) {
    p = std::max(p, p_value(s, bound).value());
    const auto values = values_needed(s, bound);
    needed = needed && values ? std::optional(std::max(*needed, *values)) : std::nullopt;
  }
  result.p = p;
  if (result.verdict != ClaimVerdict::kUndecided) return;
  // Equal values on the bound itself are not below it.
  if (s.no_spread() && verdict_of_equal(*result.claim, s) != ClaimVerdict::kUndecided) {
    needed = kFewestEqual;
  }
  if (needed) {
    result.more_seeds = std::max<int64_t>(1, *needed - s.n);
    return;
  }
  // Two seeds are often near each other by chance.
  const double standard_error = *s.sd / std::sqrt(double(s.n));
  result.is_coarse = p == 1 && s.n > 2 && std::max(s.below, s.above) > standard_error;
}

// "collapsed in 4 of 5 seeds and in 0 of 5": one entry per term, over the seeds that all have.
std::string hits_text(const RunMeasure& measure, const std::vector<SeedValues>& values,
                      const SeedValues& shared) {
  std::string text = measure.name;
  for (size_t i = 0; i < values.size(); ++i) {
    long hits = 0;
    for (const SeedValue& v : values[i]) {
      hits += v.value > 0.5 && std::any_of(shared.begin(), shared.end(),
                                           [&](const SeedValue& s) { return s.seed == v.seed; });
    }
    if (i > 0) text += i + 1 == values.size() ? " and" : ",";
    text += strprintf(" in %ld of %zu", hits, shared.size()) + (i == 0 ? " seeds" : "");
  }
  return text;
}

// By the exact test of a share of the runs. sums: of the terms, by seed.
void judge_share(ClaimResult& result, const SeedValues& sums) {
  const MatrixClaim& claim = *result.claim;
  const bool is_difference = result.terms.size() > 1;
  result.why = untestable_share(claim.relation, claim.number, claim.within, is_difference);
  if (!result.why.empty()) return;
  std::vector<double> numbers;
  for (const SeedValue& sum : sums) numbers.push_back(sum.value);
  const ShareVerdict judged =
      share_verdict(claim.relation, claim.number, claim.within, is_difference, numbers);
  result.verdict = judged.verdict;
  result.p = judged.p;
  if (judged.verdict == ClaimVerdict::kUndecided && judged.needed)
    result.more_seeds = *judged.needed - int64_t(sums.size());
}

// places: one, or the second and the first that the claim goes across.
ClaimResult evaluate(const MatrixClaim& claim, const std::vector<Place>& places) {
  ClaimResult result;
  result.claim = &claim;
  const RunMeasure* measure = find_run_measure(claim.measure);
  CHECK(measure != nullptr, "no measure %s", claim.measure.c_str());
  double sign = 1;
  for (const Place& place : places) {
    std::vector<const SummaryRow*> rows;
    for (const ClaimTerm& term : terms_at(claim, place, sign)) {
      result.terms.push_back(term);
      rows.push_back(term.row);
    }
    if (result.not_held.empty() && rows.size() > 1)
      result.not_held = why_not_held(*place.table, rows);
    sign = -1;
  }
  result.planned = result.terms.front().row->planned;
  std::vector<SeedValues> values;
  bool no_run = false;
  for (const ClaimTerm& term : result.terms) {
    values.push_back(values_of_term(*measure, term));
    if (result.why.empty()) result.why = term.row->mixed_data;
    if (result.why.empty()) result.why = runs_without(*measure, term, values.back());
    if (result.why.empty()) result.why = too_early(*measure, term);
    no_run |= term.row->runs.runs.empty() && term.row->stopped.empty();
  }
  if (result.why.empty()) result.why = not_one_quantity(*measure, result.terms);
  // Two sides: the models, or with two places the comparison at each.
  const size_t terms = result.terms.size(), half = places.size() == 1 ? 1 : terms / 2;
  const auto side = [&](size_t begin, size_t end, bool is_negative) {
    const SeedValues sum = sum_of(values, result.terms, begin, end);
    return summarise(is_negative ? negated(sum) : sum, *measure);
  };
  result.value = side(0, half, false);
  if (half < terms) result.other = side(half, terms, true);
  const SeedValues sums = sum_of(values, result.terms, 0, terms);
  if (result.why.empty()) result.why = only_targets(claim, *measure, result.terms, sums);
  result.compared = summarise(sums, *measure);
  if (measure->is_share && !sums.empty()) result.counts = hits_text(*measure, values, sums);
  if (no_run) return result;
  result.verdict = ClaimVerdict::kUndecided;
  if (!result.why.empty() || !result.compared) return result;
  if (result.compared->n == 1) {
    result.why = kOneSeed;
    return result;
  }
  if (measure->is_share) {
    judge_share(result, sums);
    return result;
  }
  if (result.compared->no_spread()) {
    result.why = kNoSpread;
  } else {
    result.verdict =
        claim_verdict(claim.relation, claim.number, claim.within, *result.compared->interval95);
  }
  add_test(result);
  return result;
}

void adjust_for_number(std::vector<ClaimResult>& results) {
  std::vector<double> p;
  for (const ClaimResult& r : results) {
    if (r.p) p.push_back(*r.p);
  }
  const std::vector<double> adjusted = holm(p);
  size_t next = 0;
  for (ClaimResult& r : results) {
    if (r.p) r.p_holm = adjusted[next++];
  }
}

std::vector<std::string> precisions_of(const ContractTable& table) {
  std::vector<std::string> precisions;
  for (const SummaryRow& row : table.rows) {
    const std::string& name = row.cell->precision;
    if (std::count(precisions.begin(), precisions.end(), name) == 0) precisions.push_back(name);
  }
  return precisions;
}

// The claim under one contract and precision, each the first of those that it goes across.
std::optional<ClaimResult> judge(const MatrixClaim& claim, const std::vector<ContractTable>& tables,
                                 const ContractTable& table, const std::string& precision) {
  if (!claim.contract.empty() && claim.contract != table.contract.name) return std::nullopt;
  if (!claim.precision.empty() && claim.precision != precision) return std::nullopt;
  Place first{.table = &table, .precision = precision, .share = claim.at};
  if (!claim.across) {
    ClaimResult result = evaluate(claim, {first});
    result.contract = table.contract.name;
    result.precision = precision;
    return result;
  }
  const ClaimAcross& across = *claim.across;
  Place second = first;
  using Over = ClaimAcross::Over;
  if (across.over == Over::kShares) {
    first.share = across.from_share;
    second.share = across.to_share;
  }
  if (across.over == Over::kContracts) {
    if (table.contract.name != across.from) return std::nullopt;
    const auto to = std::find_if(tables.begin(), tables.end(), [&](const ContractTable& other) {
      return other.contract.name == across.to;
    });
    CHECK(to != tables.end(), "no contract %s", across.to.c_str());
    second.table = &*to;
  }
  if (across.over == Over::kPrecisions) {
    if (precision != across.from) return std::nullopt;
    second.precision = across.to;
  }
  ClaimResult result = evaluate(claim, {second, first});
  result.contract = table.contract.name;
  result.precision = precision;
  if (across.over == Over::kContracts) result.contract += " to " + across.to;
  if (across.over == Over::kPrecisions) result.precision += " to " + across.to;
  return result;
}

std::string p_text(const std::optional<double>& p) {
  if (!p) return "-";
  return *p < 0.001 ? "<0.001" : strprintf("%.3f", *p);
}

// "holds", "undecided: one seed", "holds, not after Holm".
std::string verdict_text(const ClaimResult& r) {
  return marked_verdict(r) + (r.why.empty() ? "" : ": " + r.why);
}

std::string more_text(const ClaimResult& r) {
  if (r.verdict != ClaimVerdict::kUndecided || !r.p) return "-";
  if (r.is_coarse) {
    return is_of_routers(*find_run_measure(r.claim->measure))
               ? "logged steps too far apart (run.log_every)"
               : kTooFarApart;
  }
  return r.more_seeds ? std::to_string(*r.more_seeds) : ">" + std::to_string(kMostValues);
}

std::string number(const std::optional<Summary>& s) {
  return s ? strprintf("%.4g", s->mean) : "-";
}

}  // namespace

std::vector<ClaimResult> evaluate_claims(const std::vector<MatrixClaim>& claims,
                                         const std::vector<ContractTable>& tables) {
  std::vector<ClaimResult> results;
  for (const ContractTable& table : tables) {
    for (const std::string& precision : precisions_of(table)) {
      for (const MatrixClaim& claim : claims) {
        if (const auto result = judge(claim, tables, table, precision)) results.push_back(*result);
      }
    }
  }
  adjust_for_number(results);
  return results;
}

std::vector<ClaimResult> shown_claims(const MatrixSummary& summary) {
  std::vector<ClaimResult> results = evaluate_claims(summary.matrix->file.claims, summary.tables);
  std::erase_if(results, [](const ClaimResult& r) {
    return std::none_of(r.terms.begin(), r.terms.end(),
                        [](const ClaimTerm& term) { return term.row->is_shown; });
  });
  return results;
}

std::vector<std::string> undecided_claims(const std::vector<ClaimResult>& results) {
  std::vector<std::string> names;
  for (const ClaimResult& r : results) {
    const bool seeds = r.why.empty() || r.why == kOneSeed || r.why == kNoSpread;
    const bool open = r.verdict == ClaimVerdict::kUndecided && seeds && !r.is_coarse;
    if (open && std::count(names.begin(), names.end(), r.claim->name) == 0) {
      names.push_back(r.claim->name);
    }
  }
  return names;
}

std::string claims_markdown(const std::vector<ClaimResult>& results,
                            const std::optional<ClaimSeal>& seal) {
  if (results.empty()) return "";
  const auto differs = [&](std::string ClaimResult::*part) {
    return std::any_of(results.begin(), results.end(),
                       [&](const ClaimResult& r) { return r.*part != results.front().*part; });
  };
  const bool contracts = differs(&ClaimResult::contract),
             precisions = differs(&ClaimResult::precision);
  MarkdownRows rows = {{"claim", "statement", "verdict", "n", "value", "against", "mean",
                        "95% interval", "p (Holm)", "more seeds"}};
  VerdictCounts counts;
  std::string without_run;
  size_t number_without_run = 0;
  for (const ClaimResult& r : results) {
    std::string name = r.claim->name;
    if (seal && seal->added_after(*r.claim)) name += " (late)";
    if (contracts) name += ", " + r.contract;
    if (precisions) name += ", " + r.precision;
    counts.add(r);
    if (r.verdict == ClaimVerdict::kNoRun) {
      without_run += (number_without_run++ == 0 ? "" : "; ") + name;
      continue;
    }
    const long n = r.compared ? long(r.compared->n) : 0;
    std::string interval = r.counts.empty() ? "-" : r.counts;
    if (r.compared && r.compared->interval95) {
      interval =
          strprintf("%.4g to %.4g", r.compared->interval95->low, r.compared->interval95->high);
    }
    rows.push_back(
        {name, r.claim->text(), verdict_text(r),
         n == r.planned ? strprintf("%ld", n) : strprintf("%ld of %ld", n, long(r.planned)),
         number(r.value), number(r.other), number(r.compared), interval, p_text(r.p_holm),
         more_text(r)});
  }
  std::string text = "## Claims\n\n";
  if (rows.size() > 1) text += markdown_table(rows, 3) + "\n";
  if (number_without_run > 0) {
    text += strprintf("%zu %s no run of a model yet: ", number_without_run,
                      number_without_run == 1 ? "claim has" : "claims have") +
            without_run + ".\n\n";
  }
  text += strprintf(
      "Of %zu claims %s. holds: the whole 95%% interval over the seeds satisfies the claim; fails: "
      "no part of it does. Times to a target are known to the validation before, and their "
      "intervals are as much wider. Fewer than %ld equal values have no spread, so they decide "
      "nothing. p (Holm): of the test that the mean is on the claim's bound (of equal values the "
      "sign test), corrected for the number of claims judged; a verdict with more than 0.05 is "
      "marked and counted apart. More seeds: how many would decide it if mean and spread stayed as "
      "they are; with %s only a smaller eval.every would.\n",
      results.size(), counts.text().c_str(), long(kFewestEqual), kTooFarApart);
  if (std::any_of(results.begin(), results.end(),
                  [](const ClaimResult& r) { return !r.counts.empty(); })) {
    text +=
        "A share of collapsed runs has no Student's interval: the counts stand there, and a "
        "verdict needs p <= 0.05 of the exact test, which is the sign test on the seeds in "
        "which two models differ, against a number the binomial test.\n";
  }
  if (std::any_of(results.begin(), results.end(), [](const ClaimResult& r) {
        return marked_verdict(r).ends_with(kContractNotKept);
      })) {
    text +=
        "contract not kept: the two models' runs differ in what the contract holds fixed "
        "(\"Not held fixed\" of its table), so the verdict is about these runs only.\n";
  }
  if (seal) text += "\n" + seal_text(*seal) + "\n";
  return text;
}

}  // namespace assay
