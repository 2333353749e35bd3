// A comparison in a sentence.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "lab/compare/compare_report.h"
#include "lab/runs/summary_text.h"

namespace assay {
namespace {

std::string amount(double value, const std::string& unit) {
  const Digits digits = unit == "nats"                        ? Digits::kLoss
                        : unit == "steps" || unit == "tokens" ? Digits::kCount
                                                              : Digits::kShort;
  return number_text(value, digits);
}

// How certain it is that the first place is below the second.
std::string certainty(const Ranking::Place& first, const std::string& unit) {
  const auto& paired = first.to_next;
  if (!paired) return "They share no seed, so the seeds may cause the difference.";
  if (paired->summary.n == 1) return "One shared seed: the seed may cause the difference.";
  if (paired->summary.no_spread()) {
    return "Over the seeds " + joined(paired->seeds, ", ") + " the difference is " + kNoSpread +
           ".";
  }
  const Interval& interval = *paired->summary.interval95;
  const std::string text =
      strprintf("Over the seeds %s the 95%% interval of the difference, [%s, %s] %s, ",
                joined(paired->seeds, ", ").c_str(), amount(interval.low, unit).c_str(),
                amount(interval.high, unit).c_str(), unit.c_str());
  return text +
         (interval.contains(0) ? "includes 0: these seeds do not tell them apart." : "excludes 0.");
}

// Of a gap that is not 0, with as many digits as it takes to show that.
std::string gap_text(double gap, const std::string& unit) {
  const std::string text = amount(std::abs(gap), unit);
  const bool shows_zero = text.find_first_of("123456789") == std::string::npos;
  return shows_zero ? strprintf("%.1e", std::abs(gap)) : text;
}

// "a, b and c".
std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

// " a is not ranked: ..."; "" if every model has a place.
std::string not_ranked_text(const Ranking& r) {
  if (r.not_reached.empty()) return "";
  return " " + names_text(r.not_reached) +
         (r.not_reached.size() == 1 ? " is not ranked: not all of its runs "
                                    : " are not ranked: not all of their runs ") +
         (r.unit == "nats" ? "have a validation loss." : "reached the target.");
}

// What follows the first sentence: the models from place `from` on, those without a place,
// collapses, what was held fixed.
std::string rest_of_sentence(const Comparison& c, const Ranking& r, size_t from) {
  std::string text, later;
  for (size_t i = from; i < r.places.size(); ++i) {
    later += (later.empty() ? "" : ", ") + r.places[i].model + " (" +
             amount(r.places[i].value.mean, r.unit) + ")";
  }
  if (!later.empty()) text += " Then " + later + ".";
  text += not_ranked_text(r);
  for (const ModelRow& row : c.models) {
    const std::string collapse = row.health.collapse_text();
    if (!collapse.empty()) text += " The routers of " + row.group.name + " " + collapse + ".";
  }
  text += " " + (c.not_held.empty() ? "Held fixed: " + c.contract + "." : c.not_held);
  return text + (c.confounds.empty() ? "" : " " + confounds_sentence(c.confounds));
}

// Of models that share the first place.
std::string equal_sentence(const Comparison& c, const Ranking& r, size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(r.places[i].model);
  return names_text(names) + " are equal in " + r.by + ": " +
         amount(r.places[0].value.mean, r.unit) + " " + r.unit + "." +
         rest_of_sentence(c, r, count);
}

std::string ranking_sentence(const Comparison& c, const Ranking& r) {
  size_t equal = 1;
  while (equal < r.places.size() && r.places[equal].place == r.places[0].place) ++equal;
  if (equal > 1) return equal_sentence(c, r, equal);
  const Ranking::Place &first = r.places[0], &second = r.places[1];
  // A paired difference is that of the shared seeds; the means are of all.
  const double gap =
      first.to_next ? -first.to_next->summary.mean : second.value.mean - first.value.mean;
  const char* side = gap < 0 ? "above" : "below";  // where the shared seeds disagree with all
  const bool tied = first.to_next && first.to_next->summary.interval95 &&
                    first.to_next->summary.interval95->contains(0);
  std::string text =
      strprintf("%s is %s %s %s %s in %s%s.", first.model.c_str(), gap_text(gap, r.unit).c_str(),
                r.unit.c_str(), side, second.model.c_str(), r.by.c_str(),
                tied ? ", but no model is ahead beyond the seeds" : "");
  return text + " " + certainty(first, r.unit) + rest_of_sentence(c, r, 2);
}

// " (step 300)", " (steps 280 to 300)" where a loss is from before the end of its run; else "".
std::string loss_steps_text(const SeedGroup& group) {
  std::set<int64_t> steps;
  bool earlier = false;
  for (const RunRecord* run : group.runs) {
    const std::optional<EvalValue> last = run->last_val();
    if (!last) continue;
    steps.insert(last->step);
    earlier = earlier || last->step < run->steps_done;
  }
  if (!earlier) return "";
  if (steps.size() == 1) return strprintf(" (step %ld)", long(*steps.begin()));
  return strprintf(" (steps %ld to %ld)", long(*steps.begin()), long(*steps.rbegin()));
}

std::string one_model_sentence(const ModelRow& row) {
  const std::optional<Summary>& loss = row.final_loss;
  if (!loss) return row.group.name + " has no validation loss yet.";
  const std::string seeds =
      loss->n == 1 ? "one seed" : strprintf("the mean of %ld seeds", long(loss->n));
  std::string text = strprintf("%s: validation loss %s nats%s, %s", row.group.name.c_str(),
                               number_text(loss->mean, Digits::kLoss).c_str(),
                               loss_steps_text(row.group).c_str(), seeds.c_str());
  if (loss->interval95)
    text += ", with the 95% interval " + interval_text(loss->interval95, Digits::kLoss);
  return text + ".";
}

}  // namespace

std::string comparison_sentence(const Comparison& c) {
  if (c.models.size() == 1) return one_model_sentence(c.models.front());
  for (const Ranking& r : c.rankings)
    if (r.places.size() >= 2) return ranking_sentence(c, r);
  const std::string& why = c.no_ranking;
  return "No ranking: " + (why.empty() ? "only one model has values to rank by" : why) + ".";
}

}  // namespace assay
