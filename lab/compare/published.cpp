#include "lab/compare/published.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/joined.h"
#include "base/math.h"
#include "base/suggest.h"
#include "data/json_text.h"
#include "engine/telemetry/reader.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/time_to_target.h"
#include "models/audit/audit.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;
using Found = std::optional<double>;

// Arguments of a measure: a run, a column of a table, and the target of the comparison.
struct Question {
  const RunRecord& run;
  const PublishedColumn& column;
  Found target_loss;
};

template <typename T>
std::optional<T> optional_field(const Json& json, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  return json.at(key).get<T>();
}

FigureRule read_rule(const Json& json) {
  return {.derive = json.value("derive", Json()),
          .not_derivable = json.value("not_derivable", ""),
          .note = json.value("note", "")};
}

PublishedFigure read_check(const Json& json) {
  return {.what = json.value("what", ""),
          .where = json.value("where", ""),
          .cell = json.value("cell", std::vector<std::string>{}),
          .printed = json.value("published", ""),
          .unit = json.value("unit", ""),
          .rule = read_rule(json)};
}

PublishedTable read_table(const Json& json) {
  PublishedTable table{
      .title = json.at("title"), .keys = json.at("keys"), .columns = {}, .rows = {}};
  for (const Json& c : json.at("columns"))
    table.columns.push_back({.key = c.at("key"),
                             .unit = c.at("unit"),
                             .what = c.at("what"),
                             .measure = c.value("measure", ""),
                             .step = optional_field<int64_t>(c, "step"),
                             .layer = optional_field<int64_t>(c, "layer"),
                             .decimals = optional_field<int64_t>(c, "decimals"),
                             .rule = read_rule(c)});
  for (const Json& row : json.at("rows")) {
    CHECK(row.size() == table.keys.size() + table.columns.size(), "%s: %s", table.title.c_str(),
          row.dump().c_str());
    table.rows.emplace_back(row.begin(), row.end());
  }
  return table;
}

Found last_loss(const Question& q) {
  const auto eval = q.run.last_val();
  return eval ? Found(eval->value) : std::nullopt;
}

// Where the run is taken to stop: at its first validation at or below the target, if any.
std::optional<TimeToTarget> stop_at_target(const Question& q) {
  return q.target_loss ? time_to_target(q.run, *q.target_loss) : std::nullopt;
}

// Of the column's step, else at the stop.
Found loss_at(const Question& q) {
  if (q.column.step) return finite_value(q.run.val_at(*q.column.step));
  const auto stop = stop_at_target(q);
  return stop ? Found(stop->loss_nats) : last_loss(q);
}

// The step at which the target was reached, else the last step.
int64_t stop_step(const Question& q) {
  const auto stop = stop_at_target(q);
  return stop ? stop->steps : q.run.steps_done;
}

Found last_core(const Question& q) {
  return find_run_measure("core")->of(q.run);
}

// None of a run that went on after its target and was scored at its end.
Found core_at_stop(const Question& q) {
  return q.run.core && q.run.core->step > stop_step(q) ? std::nullopt : last_core(q);
}

// Of the GPUs that trained the run; nullopt where that is unknown, or launches had other numbers.
Found gpus_of(const RunRecord& run) {
  int64_t ranks = 0;
  const char* const end = run.ranks.data() + run.ranks.size();
  const auto [stop, error] = std::from_chars(run.ranks.data(), end, ranks);
  return error == std::errc() && stop == end && ranks > 0 ? Found(double(ranks)) : std::nullopt;
}

Found seconds_per_step(const Question& q) {
  return q.run.seconds_per_step();
}

// Combines the layers of a logged step; nullopt for a dense run or if the step was not logged.
Found router_measure(const Question& q, const char* name,
                     const std::function<double(const std::vector<LayerValue>&)>& combine) {
  if (!q.run.config.model.moe) return std::nullopt;
  const TelemetryReader telemetry(q.run.path + "/telemetry.db");
  const std::vector<LayerValue> layers =
      telemetry.router(name, q.column.step.value_or(q.run.last_logged));
  if (layers.empty()) return std::nullopt;
  return combine(layers);
}

double mean(const std::vector<LayerValue>& layers) {
  double sum = 0;
  for (const LayerValue& l : layers) sum += l.value;
  return sum / double(layers.size());
}

double smallest(const std::vector<LayerValue>& layers) {
  return std::min_element(
             layers.begin(), layers.end(),
             [](const LayerValue& a, const LayerValue& b) { return a.value < b.value; })
      ->value;
}

Found max_load_percent(const Question& q) {
  if (!q.run.config.model.moe || !q.column.layer) return std::nullopt;
  const TelemetryReader telemetry(q.run.path + "/telemetry.db");
  for (const LayerValue& l :
       telemetry.router("max_load", q.column.step.value_or(q.run.last_logged)))
    if (l.layer == *q.column.layer) return 100 * l.value;
  return std::nullopt;
}

struct NamedMeasure {
  const char* name;
  Found (*of)(const Question&);
};

const NamedMeasure kMeasures[] = {
    {"stop_step", [](const Question& q) -> Found { return double(stop_step(q)); }},
    {"val_loss", loss_at},
    {"best_val_loss",
     [](const Question& q) -> Found {
       const auto best = q.run.best_val();
       return best ? Found(best->value) : std::nullopt;
     }},
    {"bits_per_byte",
     [](const Question& q) -> Found {
       return q.run.val_bits_per_byte.empty() ? std::nullopt
                                              : Found(q.run.val_bits_per_byte.back().value);
     }},
    {"last_step", [](const Question& q) -> Found { return double(q.run.steps_done); }},
    {"last_val_loss", last_loss},
    {"core", core_at_stop},
    {"last_core", last_core},
    {"step_ms",
     [](const Question& q) -> Found {
       const Found seconds = seconds_per_step(q);
       return seconds ? Found(1e3 * *seconds) : std::nullopt;
     }},
    {"train_minutes",
     [](const Question& q) -> Found {
       const Found seconds = q.run.seconds_at(stop_step(q));
       return seconds ? Found(*seconds / 60) : std::nullopt;
     }},
    {"k_tokens_per_s",
     [](const Question& q) -> Found {
       const Found seconds = seconds_per_step(q), gpus = gpus_of(q.run);
       if (!seconds || !gpus) return std::nullopt;
       return 1e-3 * double(q.run.config.run.batch_tokens) / *seconds / *gpus;
     }},
    {"tflops_per_s",
     [](const Question& q) -> Found {
       const Found seconds = seconds_per_step(q), gpus = gpus_of(q.run);
       if (!seconds || !gpus) return std::nullopt;
       const double flops =
           double(q.run.audit.flops_per_token) * double(q.run.config.run.batch_tokens);
       return 1e-12 * flops / *seconds / *gpus;
     }},
    {"million_tokens", [](const Question& q) -> Found { return 1e-6 * double(q.run.tokens); }},
    {"tokens_per_total",
     [](const Question& q) -> Found { return double(q.run.tokens) / double(q.run.audit.total); }},
    {"tokens_per_active",
     [](const Question& q) -> Found { return double(q.run.tokens) / double(q.run.audit.active); }},
    {"million_tokens_per_expert",
     [](const Question& q) -> Found {
       if (!q.run.config.model.moe) return std::nullopt;
       return 1e-6 * double(tokens_per_routed_expert(q.run.config.model, q.run.tokens));
     }},
    {"mean_cv_percent", [](const Question& q) { return router_measure(q, "cv", mean); }},
    {"mean_max_load_percent",
     [](const Question& q) -> Found {
       const Found share = router_measure(q, "max_load", mean);
       return share ? Found(100 * *share) : std::nullopt;
     }},
    {"min_entropy_nats", [](const Question& q) { return router_measure(q, "entropy", smallest); }},
    {"effective_experts",
     [](const Question& q) -> Found {
       const Found entropy = router_measure(q, "entropy", smallest);
       return entropy ? Found(std::exp(*entropy)) : std::nullopt;
     }},
    {"max_load_percent", max_load_percent},
};

constexpr const char* kBestLossDeviation = "best_val_loss_sd";  // over the seeds

void require_known_measures(const PublishedTable& table) {
  for (const PublishedColumn& column : table.columns) {
    const std::string& name = column.measure;  // "": none of our runs has it
    const bool known =
        name.empty() || name == kBestLossDeviation ||
        std::any_of(std::begin(kMeasures), std::end(kMeasures),
                    [&](const NamedMeasure& measure) { return name == measure.name; });
    CHECK(known, "%s, column %s: no measure %s", table.title.c_str(), column.key.c_str(),
          name.c_str());
  }
}

}  // namespace

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const PublishedText& text : published_texts()) names.push_back(text.name);
  return names;
}

std::string study_of_matrix(const std::string& matrix) {
  const std::string start = matrix.substr(0, matrix.find('-'));
  const std::vector<std::string> names = published_names();
  return std::find(names.begin(), names.end(), start) == names.end() ? "" : start;
}

PublishedStudy published_study(const std::string& name) {
  for (const PublishedText& text : published_texts()) {
    if (text.name != name) continue;
    const Json json = json_or_throw<Json>(text.json);
    PublishedStudy study{.name = json.at("name"),
                         .title = json.at("title"),
                         .setting = json.at("setting"),
                         .target_loss = optional_field<double>(json, "target_loss"),
                         .vocab_size = optional_field<int64_t>(json, "vocab_size"),
                         .reference_data = json.value("reference_data", ""),
                         .tables = {},
                         .checks = {},
                         .receipt_names = json.value("receipt_names", Json::object()),
                         .receipt_places = json.value("receipt_places", Json::array()),
                         .notes = json.at("notes")};
    for (const Json& table : json.at("tables")) study.tables.push_back(read_table(table));
    for (const PublishedTable& table : study.tables) require_known_measures(table);
    for (const Json& check : json.at("checks")) study.checks.push_back(read_check(check));
    return study;
  }
  const std::string near = nearest_name(name, published_names());
  throw UserError("there is no published study " + name,
                  (near.empty() ? "" : "did you mean " + near + "? ") + "known are " +
                      joined(published_names(), ", "));
}

std::optional<double> published_measure(const PublishedColumn& column, const SeedGroup& group,
                                        std::optional<double> target_loss) {
  std::string name = column.measure;
  const bool deviation = name == kBestLossDeviation;
  if (deviation) name = "best_val_loss";
  for (const NamedMeasure& measure : kMeasures) {
    if (name != measure.name) continue;
    const auto summary = summarise(values_of(group, [&](const RunRecord& run) {
      return measure.of({.run = run, .column = column, .target_loss = target_loss});
    }));
    if (!summary) return std::nullopt;
    return deviation ? summary->sd : summary->mean;
  }
  return std::nullopt;
}

std::string published_mismatch(const PublishedStudy& study, const PublishedColumn& column,
                               const SeedGroup& group) {
  const auto any_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return column.measure == name; });
  };
  const RunRecord& run = *group.runs.front();
  const int64_t vocab_size = run.config.model.vocab_size, rows = 128;  // padded to a multiple
  const bool of_loss = any_of({"stop_step", "val_loss", "last_val_loss", "best_val_loss",
                               kBestLossDeviation, "train_minutes"});
  if (of_loss && study.vocab_size &&
      round_up(vocab_size, rows) != round_up(*study.vocab_size, rows)) {
    return strprintf("losses for a vocabulary of %ld, the study's is %ld", long(vocab_size),
                     long(*study.vocab_size));
  }
  if ((of_loss || any_of({"bits_per_byte"})) && !study.reference_data.empty() &&
      run.config.data.reference != study.reference_data) {
    return "losses on a text that is not known to be the study's, " + study.reference_data +
           " (data.reference is " + run.config.data.reference + ")";
  }
  if (run.device == "cpu" &&
      any_of({"step_ms", "k_tokens_per_s", "tflops_per_s", "train_minutes"})) {
    return "times on a CPU";
  }
  return "";
}

}  // namespace assay
