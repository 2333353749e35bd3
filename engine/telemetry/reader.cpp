#include "engine/telemetry/reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "base/shell_word.h"
#include "engine/telemetry/expert_load_codec.h"
#include "engine/telemetry/exported.h"
#include "engine/telemetry/schema.h"

namespace assay {
namespace {

constexpr const char* kPutBack =
    "put back a copy of the file, or train the run again from the start: `assay train` with "
    "--fresh";
constexpr const char* kNothingYet = "the run logged nothing yet: train it first";

// Whether the run in the folder has trained: it has a checkpoint, and not only the weights that it
// began with.
bool has_trained(const std::filesystem::path& run) {
  const std::vector<std::string> names = names_in((run / "checkpoints").string());
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("step-") && name != "step-00000000";
  });
}

// For a missing file SQLite's error would not give the reason.
std::string require_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return path;
  const std::filesystem::path run = std::filesystem::path(path).parent_path();
  if (const auto from = exported_from(run.string())) {
    throw UserError(run.string() + " is an export of `assay dissect used`: it has no telemetry",
                    from->empty() ? "give the run that it was made from"
                                  : "give the run that it was made from: " + shell_word(*from));
  }
  if (has_trained(run)) {
    throw UserError("no telemetry at " + path + ", though the run has trained: it has checkpoints",
                    kPutBack);
  }
  throw UserError("no telemetry at " + path, kNothingYet);
}

// Of a database that no run has written to: it is another's, or a run's whose rows are lost or not
// there yet.
[[noreturn]] void refuse_without_version(const Database& database, const std::string& path) {
  Statement tables(database, "SELECT 1 FROM sqlite_master LIMIT 1");
  const std::string what = path + ": is not a telemetry database";
  if (tables.step()) throw NotTelemetry(what, "give the telemetry.db of a run");
  if (has_trained(std::filesystem::path(path).parent_path())) {
    throw NotTelemetry(what + ": it is empty, though the run has trained: it has checkpoints",
                       kPutBack);
  }
  throw NotTelemetry(what + ": it is empty", kNothingYet);
}

void require_column(const std::string& column) {
  const auto columns = router_columns();
  const bool known = std::any_of(columns.begin(), columns.end(),
                                 [&](const RouterColumn& c) { return column == c.name; });
  CHECK(known, "router_layer has no column %s", column.c_str());
}

}  // namespace

std::string telemetry_file(const std::string& run) {
  return (std::filesystem::path(run) / "telemetry.db").string();
}

TelemetryReader::TelemetryReader(const std::string& path, Wait wait)
    : database_(require_file(path), Database::Mode::kReadOnly, wait) {
  Statement version(database_, "PRAGMA user_version");
  const int64_t found = version.step() ? version.integer(0) : 0;
  if (found > kTelemetryVersion) {
    throw UserError(strprintf("%s: is telemetry of a later version (found %ld, this program reads "
                              "versions up to %d)",
                              path.c_str(), long(found), kTelemetryVersion),
                    "written by a newer assay: use that one");
  }
  if (found < 1) refuse_without_version(database_, path);
  require_plain_tables(database_);
  Statement names(database_, "SELECT name FROM pragma_table_info('router_layer')");
  while (names.step()) columns_.insert(names.text(0));
}

std::optional<int64_t> TelemetryReader::last_step() const {
  Statement s(database_,
              "SELECT max(step) FROM scalar WHERE name NOT IN ('train_s', 'cpu_joules', "
              "'gpu_joules')");
  if (!s.step() || s.is_null(0)) return std::nullopt;
  return s.integer(0);
}

int64_t TelemetryReader::steps_done(int64_t up_to) const {
  int64_t done = 0;
  for (const char* table : {"scalar", "eval", "event"}) {
    Statement s(database_, std::string("SELECT max(step) FROM ") + table + " WHERE step <= ?");
    s.bind(0, up_to);
    if (s.step() && !s.is_null(0)) done = std::max(done, s.integer(0));
  }
  return done;
}

int64_t TelemetryReader::events(const std::string& kind) const {
  Statement s(database_, "SELECT count(*) FROM event WHERE kind = ?");
  s.bind(0, kind);
  return s.step() ? s.integer(0) : 0;
}

std::string TelemetryReader::end() const {
  Statement s(database_,
              "SELECT kind, detail FROM event WHERE kind IN ('end', 'resume') ORDER BY rowid DESC "
              "LIMIT 1");
  if (!s.step() || s.text(0) != "end") return "";
  const std::string end = s.text(1);
  if (end != "steps") return end;
  const std::optional<EvalValue> last = last_eval("val", "loss_nats");
  const bool of_last_step = last && last->step >= steps_done();
  return of_last_step && !std::isfinite(last->value) ? "non_finite" : end;
}

std::vector<StepValue> TelemetryReader::scalar(const std::string& name) const {
  Statement s(database_, "SELECT step, value FROM scalar WHERE name = ? ORDER BY step");
  s.bind(0, name);
  std::vector<StepValue> values;
  while (s.step()) values.push_back({.step = s.integer(0), .value = s.number(1)});
  return values;
}

std::optional<StepValue> TelemetryReader::last_scalar(const std::string& name) const {
  Statement s(database_,
              "SELECT step, value FROM scalar WHERE name = ? ORDER BY step DESC LIMIT 1");
  s.bind(0, name);
  if (!s.step()) return std::nullopt;
  return StepValue{.step = s.integer(0), .value = s.number(1)};
}

std::vector<std::string> TelemetryReader::scalar_names() const {
  Statement s(database_, "SELECT DISTINCT name FROM scalar ORDER BY name");
  std::vector<std::string> names;
  while (s.step()) names.push_back(s.text(0));
  return names;
}

std::vector<EvalValue> TelemetryReader::eval(const std::string& task,
                                             const std::string& metric) const {
  Statement s(database_,
              "SELECT step, value, n FROM eval WHERE task = ? AND metric = ? ORDER BY step");
  s.bind(0, task).bind(1, metric);
  std::vector<EvalValue> values;
  while (s.step()) {
    // SQLite stores NaN as NULL.
    const double value = s.is_null(1) ? std::numeric_limits<double>::quiet_NaN() : s.number(1);
    values.push_back({.step = s.integer(0), .value = value, .n = s.integer(2)});
  }
  return values;
}

std::optional<EvalValue> TelemetryReader::last_eval(const std::string& task,
                                                    const std::string& metric) const {
  const std::vector<EvalValue> all = eval(task, metric);
  if (all.empty()) return std::nullopt;
  return all.back();
}

std::vector<std::pair<std::string, std::string>> TelemetryReader::eval_names() const {
  Statement s(database_, "SELECT DISTINCT task, metric FROM eval ORDER BY task, metric");
  std::vector<std::pair<std::string, std::string>> names;
  while (s.step()) names.emplace_back(s.text(0), s.text(1));
  return names;
}

bool TelemetryReader::has_eval(int64_t step, const std::string& task) const {
  Statement s(database_, "SELECT 1 FROM eval WHERE step = ? AND task = ?");
  s.bind(0, step).bind(1, task);
  return s.step();
}

std::vector<LayerValue> TelemetryReader::router(const std::string& column, int64_t step) const {
  require_column(column);
  if (!columns_.contains(column)) return {};
  Statement s(database_, "SELECT layer, " + column + " FROM router_layer WHERE step = ? AND " +
                             column + " IS NOT NULL ORDER BY layer");
  s.bind(0, step);
  std::vector<LayerValue> values;
  while (s.step()) values.push_back({.layer = s.integer(0), .value = s.number(1)});
  return values;
}

std::vector<StepValue> TelemetryReader::router_over_time(const std::string& column,
                                                         int64_t layer) const {
  require_column(column);
  if (!columns_.contains(column)) return {};
  Statement s(database_, "SELECT step, " + column + " FROM router_layer WHERE layer = ? AND " +
                             column + " IS NOT NULL ORDER BY step");
  s.bind(0, layer);
  std::vector<StepValue> values;
  while (s.step()) values.push_back({.step = s.integer(0), .value = s.number(1)});
  return values;
}

std::map<int64_t, RouterCurves> TelemetryReader::router_curves(std::span<const char* const> columns,
                                                               int64_t up_to) const {
  std::vector<std::string> present;
  std::string select = "SELECT layer, step";
  for (const std::string column : columns) {
    require_column(column);
    if (!columns_.contains(column)) continue;
    present.push_back(column);
    select += ", " + column;
  }
  Statement s(database_, select + " FROM router_layer WHERE step <= ? ORDER BY step, layer");
  s.bind(0, up_to);
  std::map<int64_t, RouterCurves> layers;
  while (s.step()) {
    RouterCurves& curves = layers[s.integer(0)];
    if (curves.empty()) {
      for (const char* column : columns) curves[column] = {};
    }
    for (size_t c = 0; c < present.size(); ++c) {
      const int at = int(c) + 2;
      if (!s.is_null(at)) {
        curves[present[c]].push_back({.step = s.integer(1), .value = s.number(at)});
      }
    }
  }
  return layers;
}

std::optional<LayerValue> TelemetryReader::worst_max_load_norm() const {
  Statement last(database_, "SELECT max(step) FROM router_layer");
  if (!last.step() || last.is_null(0)) return std::nullopt;
  const std::vector<LayerValue> layers = router("max_load_norm", last.integer(0));
  if (layers.empty()) return std::nullopt;
  return *std::max_element(
      layers.begin(), layers.end(),
      [](const LayerValue& a, const LayerValue& b) { return a.value < b.value; });
}

std::vector<int64_t> TelemetryReader::precision_steps() const {
  Statement there(database_, "SELECT 1 FROM sqlite_master WHERE name = 'precision'");
  if (!there.step()) return {};
  Statement s(database_, "SELECT DISTINCT step FROM precision ORDER BY step");
  std::vector<int64_t> steps;
  while (s.step()) steps.push_back(s.integer(0));
  return steps;
}

std::vector<OperandValue> TelemetryReader::precision(int64_t step) const {
  Statement there(database_, "SELECT name FROM pragma_table_info('precision')");
  std::set<std::string> known;
  while (there.step()) known.insert(there.text(0));
  std::string names;
  for (const PrecisionColumn& column : precision_columns()) {
    names += known.contains(column.name) ? std::string(", ") + column.name : ", NULL";
  }
  Statement s(database_, "SELECT layer, weight, operand, role, format" + names +
                             " FROM precision WHERE step = ? ORDER BY layer, weight, operand");
  s.bind(0, step);
  std::vector<OperandValue> values;
  while (s.step()) {
    OperandValue value{.site = {.layer = s.integer(0),
                                .weight = s.text(1),
                                .operand = s.text(2),
                                .role = s.text(3),
                                .format = s.text(4)},
                       .loss = {}};
    int at = 5;
    for (const PrecisionColumn& column : precision_columns()) {
      if (!s.is_null(at)) value.loss.*column.value = s.number(at);
      at += 1;
    }
    values.push_back(value);
  }
  return values;
}

std::vector<RankStepRow> TelemetryReader::rank_steps(int64_t after,
                                                     std::optional<int64_t> last) const {
  Statement there(database_, "SELECT 1 FROM sqlite_master WHERE name = 'rank_step'");
  if (!there.step()) return {};
  Statement s(database_,
              "SELECT step, rank, step_ms, wait_ms, bytes_sent, peak_rss_bytes FROM rank_step "
              "WHERE step > ?1 AND step >= (SELECT min(step) FROM (SELECT DISTINCT step FROM "
              "rank_step WHERE step > ?1 ORDER BY step DESC LIMIT ?2)) ORDER BY step, rank");
  constexpr int64_t kAll = -1;  // in SQL
  s.bind(0, after).bind(1, last.value_or(kAll));
  std::vector<RankStepRow> rows;
  while (s.step()) {
    rows.push_back({.step = s.integer(0),
                    .rank = s.integer(1),
                    .of = {.step_ms = s.number(2),
                           .wait_ms = s.number(3),
                           .bytes_sent = s.integer(4),
                           .peak_rss_bytes = s.integer(5)}});
  }
  return rows;
}

std::vector<uint32_t> TelemetryReader::expert_load(int64_t step, int64_t layer) const {
  Statement s(database_, "SELECT counts FROM expert_load WHERE step = ? AND layer = ?");
  s.bind(0, step).bind(1, layer);
  if (!s.step()) return {};
  return unpacked_load(s.blob(0), step, layer);
}

std::vector<uint32_t> TelemetryReader::unpacked_load(std::string_view packed, int64_t step,
                                                     int64_t layer) const {
  std::vector<uint32_t> counts;
  if (!unpack_load(packed, counts)) {
    throw UserError(
        strprintf("%s: expert_load of step %ld, layer %ld is not a load vector",
                  database_.path().c_str(), static_cast<long>(step), static_cast<long>(layer)),
        "the database is damaged");
  }
  return counts;
}

std::optional<std::string> TelemetryReader::meta(const std::string& key) const {
  Statement s(database_, "SELECT value FROM meta WHERE key = ?");
  s.bind(0, key);
  if (!s.step()) return std::nullopt;
  return s.text(0);
}

}  // namespace assay
