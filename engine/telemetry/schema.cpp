#include "engine/telemetry/schema.h"

#include "base/check.h"
#include "engine/telemetry/sqlite.h"

namespace assay {
namespace {

double or_absent(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

using Row = RouterRow;

// clang-format off
constexpr RouterColumn kColumns[] = {
    {"assignments",                 [](const Row& r) { return r.step.assignments; }},
    {"cv",                          [](const Row& r) { return r.step.cv; }},
    {"cv_norm",                     [](const Row& r) { return or_absent(r.step.cv_norm); }},
    {"cv_floor",                    [](const Row& r) { return r.step.cv_floor; }},
    {"max_load",                    [](const Row& r) { return r.step.max_load; }},
    {"max_load_norm",               [](const Row& r) { return r.step.max_load_norm; }},
    {"entropy",                     [](const Row& r) { return r.step.entropy; }},
    {"entropy_norm",                [](const Row& r) { return or_absent(r.step.entropy_norm); }},
    {"e_eff",                       [](const Row& r) { return r.step.e_eff; }},
    {"e_eff_norm",                  [](const Row& r) { return r.step.e_eff_norm; }},
    {"participation",               [](const Row& r) { return r.step.participation; }},
    {"participation_norm",          [](const Row& r) { return r.step.participation_norm; }},
    {"active",                      [](const Row& r) { return double(r.step.active); }},
    {"active_norm",                 [](const Row& r) { return r.step.active_norm; }},
    {"gini",                        [](const Row& r) { return r.step.gini; }},
    {"dead_for",                    [](const Row& r) { return or_absent(r.dead_for); }},
    {"dead_for_norm",               [](const Row& r) { return or_absent(r.dead_for_norm); }},
    {"bias_range",                  [](const Row& r) { return or_absent(r.bias_range); }},
    {"margin",                      [](const Row& r) { return or_absent(r.margin); }},
    {"lead",                        [](const Row& r) { return or_absent(r.lead); }},
    {"gate_entropy",                [](const Row& r) { return or_absent(r.gate_entropy); }},
    {"gate_entropy_norm",           [](const Row& r) { return or_absent(r.gate_entropy_norm); }},
    {"overlap",                     [](const Row& r) { return or_absent(r.overlap); }},
    {"window_assignments",          [](const Row& r) { return r.window.assignments; }},
    {"window_cv",                   [](const Row& r) { return r.window.cv; }},
    {"window_cv_norm",              [](const Row& r) { return or_absent(r.window.cv_norm); }},
    {"window_cv_floor",             [](const Row& r) { return r.window.cv_floor; }},
    {"window_max_load",             [](const Row& r) { return r.window.max_load; }},
    {"window_max_load_norm",        [](const Row& r) { return r.window.max_load_norm; }},
    {"window_entropy",              [](const Row& r) { return r.window.entropy; }},
    {"window_entropy_norm",         [](const Row& r) { return or_absent(r.window.entropy_norm); }},
    {"window_e_eff",                [](const Row& r) { return r.window.e_eff; }},
    {"window_e_eff_norm",           [](const Row& r) { return r.window.e_eff_norm; }},
    {"window_participation",        [](const Row& r) { return r.window.participation; }},
    {"window_participation_norm",   [](const Row& r) { return r.window.participation_norm; }},
    {"window_active",               [](const Row& r) { return double(r.window.active); }},
    {"window_active_norm",          [](const Row& r) { return r.window.active_norm; }},
    {"window_gini",                 [](const Row& r) { return r.window.gini; }},
};
// clang-format on

constexpr PrecisionColumn kPrecisionColumns[] = {
    {"flushed", &OperandLoss::flushed},
    {"saturated", &OperandLoss::saturated},
    {"error", &OperandLoss::error},
    {"blocks", &OperandLoss::blocks},
    {"zero_blocks", &OperandLoss::zero_blocks},
    {"low_scales", &OperandLoss::low_scales},
    {"high_scales", &OperandLoss::high_scales},
    {"scale_min", &OperandLoss::scale_min},
    {"scale_max", &OperandLoss::scale_max},
    {"flips", &OperandLoss::flips},
};

}  // namespace

std::span<const PrecisionColumn> precision_columns() {
  return kPrecisionColumns;
}

std::span<const RouterColumn> router_columns() {
  return kColumns;
}

std::string telemetry_schema() {
  std::string columns, precision;
  for (const RouterColumn& column : kColumns) columns += std::string(", ") + column.name + " REAL";
  for (const PrecisionColumn& column : kPrecisionColumns) {
    precision += std::string(", ") + column.name + " REAL";
  }
  return "CREATE TABLE IF NOT EXISTS scalar(step INTEGER, name TEXT, value REAL, PRIMARY KEY(step, "
         "name)) "
         "WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS span(step INTEGER, name TEXT, milliseconds REAL, PRIMARY "
         "KEY(step, name)) "
         "WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS router_layer(step INTEGER, layer INTEGER" +
         columns +
         ", PRIMARY KEY(step, layer)) WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS expert_load(step INTEGER, layer INTEGER, counts BLOB, "
         "PRIMARY KEY(step, layer)) WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS eval(step INTEGER, task TEXT, metric TEXT, value REAL, n "
         "INTEGER, "
         "PRIMARY KEY(step, task, metric)) WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS event(step INTEGER, time TEXT, kind TEXT, detail TEXT);"
         "CREATE TABLE IF NOT EXISTS precision(step INTEGER, layer INTEGER, weight TEXT, operand "
         "TEXT, "
         "role TEXT, format TEXT" +
         precision +
         ", PRIMARY KEY(step, weight, operand)) WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS rank_step(step INTEGER, rank INTEGER, step_ms REAL, wait_ms "
         "REAL, bytes_sent INTEGER, peak_rss_bytes INTEGER, PRIMARY KEY(step, rank)) WITHOUT ROWID;"
         "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;";
}

void require_plain_tables(const Database& database) {
  // An index of columns, which somebody may have added to look things up, computes nothing.
  Statement stranger(
      database,
      "SELECT CASE m.type WHEN 'index' THEN 'an ' ELSE 'a ' END || m.type, m.name "
      "FROM sqlite_master m WHERE m.type NOT IN ('table', 'index') "
      "OR m.type = 'table' AND m.sql LIKE 'CREATE VIRTUAL%' "
      "OR m.type = 'index' AND (EXISTS (SELECT 1 FROM pragma_index_xinfo(m.name) x "
      "WHERE x.cid = -2) OR EXISTS (SELECT 1 FROM pragma_index_list(m.tbl_name) l "
      "WHERE l.name = m.name AND l.partial)) "
      "UNION ALL "
      "SELECT CASE c.hidden WHEN 0 THEN 'a default of' ELSE 'a computed column' END, "
      "t.name || '.' || c.name FROM sqlite_master t, pragma_table_xinfo(t.name) c "
      "WHERE t.type = 'table' AND (c.hidden <> 0 OR c.dflt_value IS NOT NULL) LIMIT 1");
  if (!stranger.step()) return;
  throw UserError(database.path() + ": has " + stranger.text(0) + " " + stranger.text(1) +
                      " that is none of assay's",
                  "it is no telemetry that a run wrote: do not trust it");
}

}  // namespace assay
