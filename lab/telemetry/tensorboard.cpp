#include "lab/telemetry/tensorboard.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/check.h"
#include "lab/telemetry/event_file.h"

namespace assay {
namespace {

struct Scalar {
  std::string tag;
  double value;
};
using ScalarsByStep = std::map<int64_t, std::vector<Scalar>>;

std::optional<double> number_in(const TelemetryCell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* integer = std::get_if<int64_t>(&cell)) return double(*integer);
  return std::nullopt;
}

size_t column_index(const TelemetryTable& table, const std::string& name) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == name) return c;
  }
  return table.columns.size();
}

std::string without_end(const std::string& text, const std::string& end) {
  return text.ends_with(end) ? text.substr(0, text.size() - end.size()) : text;
}

// "2026-11-20T09:30:00Z" in seconds since 1970.
std::optional<double> seconds_of(const std::string& utc) {
  tm parts = {};
  const char* end = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<double>(timegm(&parts));
}

// Wall times of steps. Only events have one in the database; a step lies as far from the event
// before it (else after it) as the seconds of training say.
class WallClock {
 public:
  explicit WallClock(const TelemetryTables& tables) {
    const TelemetryTable& steps = tables.table("steps");
    const size_t train_s = column_index(steps, "train_s");
    tables.read(steps, [&](TelemetryRow row) {
      const std::optional<double> seconds =
          train_s < row.size() ? number_in(row[train_s]) : std::nullopt;
      if (seconds) trained_s_[std::get<int64_t>(row[0])] = *seconds;
    });
    tables.read(tables.table("events"), [&](TelemetryRow row) {
      const auto* text = std::get_if<std::string>(&row[1]);
      const auto time = text != nullptr ? seconds_of(*text) : std::nullopt;
      if (time) anchors_[std::get<int64_t>(row[0])] = *time;  // the last one at a step
    });
  }

  double at(int64_t step) const {
    if (anchors_.empty()) return trained_at(step);
    const auto after = anchors_.upper_bound(step);
    const auto& [anchor, time] = after == anchors_.begin() ? *after : *std::prev(after);
    return time + trained_at(step) - trained_at(anchor);
  }

 private:
  // Of the last logged step up to this one.
  double trained_at(int64_t step) const {
    const auto after = trained_s_.upper_bound(step);
    return after == trained_s_.begin() ? 0 : std::prev(after)->second;
  }

  std::map<int64_t, double> trained_s_, anchors_;
};

// The columns of a table from `first` on that are curves: {column, tag}, by a function of its name.
template <typename TagOf>
void add_columns(const TelemetryTable& table, TelemetryRow row, size_t first, TagOf tag_of,
                 std::vector<Scalar>& scalars) {
  for (size_t c = first; c < row.size(); ++c) {
    const std::optional<double> value = number_in(row[c]);
    if (!value) continue;
    std::string tag = tag_of(table.columns[c].name);
    if (!tag.empty()) scalars.push_back({.tag = std::move(tag), .value = *value});
  }
}

void add_table(const TelemetryTables& tables, const TelemetryTable& table, ScalarsByStep& by_step) {
  tables.read(table, [&](TelemetryRow row) {
    if (table.name == "steps") {
      return add_columns(table, row, 1, step_tag, by_step[std::get<int64_t>(row[0])]);
    }
    if (table.name == "router_layers") {
      const int64_t layer = std::get<int64_t>(row[1]);
      const auto tag = [&](const std::string& column) { return router_tag(layer, column); };
      return add_columns(table, row, 2, tag, by_step[std::get<int64_t>(row[0])]);
    }
    if (table.name == "precision") {
      const int64_t layer = std::get<int64_t>(row[1]);
      const auto tag = [&](const std::string& column) {
        return precision_tag(layer, std::get<std::string>(row[2]), std::get<std::string>(row[3]),
                             column);
      };
      return add_columns(table, row, 6, tag, by_step[std::get<int64_t>(row[0])]);
    }
    if (table.name == "rank_steps") {
      const int64_t rank = std::get<int64_t>(row[1]);
      const auto tag = [&](const std::string& column) { return rank_tag(rank, column); };
      return add_columns(table, row, 2, tag, by_step[std::get<int64_t>(row[0])]);
    }
    const std::optional<double> value = number_in(row[3]);
    if (value) {
      by_step[std::get<int64_t>(row[0])].push_back(
          {.tag = evaluation_tag(std::get<std::string>(row[1]), std::get<std::string>(row[2])),
           .value = *value});
    }
  });
}

}  // namespace

std::string step_tag(const std::string& column) {
  static const std::map<std::string, std::string> tags = {
      {"train_loss_nats", "train/loss"},
      {"lr", "lr"},
      {"gradient_norm", "train/gradient_norm"},
      {"clip_factor", "train/clip_factor"},
      {"non_finite", "train/non_finite"},
      {"tokens", "progress/tokens"},
      {"train_s", "progress/train_s"},
      {"eta_s", "progress/eta_s"},
      {"cpu_joules", "progress/cpu_joules"},
      {"gpu_joules", "progress/gpu_joules"},
      {"tokens_per_s", "speed/tokens_per_s"},
      {"mfu_share", "speed/mfu"},
      {"step_ms", "speed/step_ms"},
      {"router_telemetry_ms", "speed/router_telemetry_ms"},
      {"hash_ms", "speed/hash_ms"},
      {"peak_rss_bytes", "memory/peak_rss_bytes"},
      {"sent_bytes", "speed/sent_bytes"},
      {"hash", ""},
  };
  if (const auto known = tags.find(column); known != tags.end()) return known->second;
  const std::string router = "router_";
  if (column.rfind(router, 0) == 0) {
    std::string name = column.substr(router.size());
    for (const char* unit : {"_percent", "_nats", "_share"}) name = without_end(name, unit);
    return "router/" + name;
  }
  return column.find('/') != std::string::npos ? column : "train/" + column;
}

std::string evaluation_tag(const std::string& task, const std::string& metric) {
  return task + "/" + without_end(metric, "_nats");
}

std::string router_tag(int64_t layer, const std::string& column) {
  if (column.rfind("window_", 0) == 0 || column == "assignments" || column == "cv_floor") return "";
  return strprintf("router/layer_%02ld/%s", static_cast<long>(layer), column.c_str());
}

std::string precision_tag(int64_t layer, const std::string& weight, const std::string& operand,
                          const std::string& column) {
  return strprintf("precision/layer_%02ld/%s/%s/%s", static_cast<long>(layer), weight.c_str(),
                   operand.c_str(), column.c_str());
}

std::string rank_tag(int64_t rank, const std::string& column) {
  return strprintf("ranks/rank_%03ld/%s", static_cast<long>(rank), column.c_str());
}

std::string write_events(const TelemetryTables& tables, const std::string& folder) {
  ScalarsByStep by_step;
  for (const TelemetryTable& table : tables.all()) {
    for (const char* name : {"steps", "evaluations", "router_layers", "precision", "rank_steps"}) {
      if (table.name == name) add_table(tables, table, by_step);
    }
  }
  if (by_step.empty()) {
    throw UserError("the run has no logged step", "train it, then export its telemetry");
  }
  const WallClock clock(tables);
  const double start = clock.at(by_step.begin()->first);
  const std::string path = strprintf("%s/%s%010.0f%s", folder.c_str(), kEventFileStart,
                                     std::max(0.0, start), kEventFileEnd);
  EventFile file(path, start);
  std::vector<TaggedScalar> scalars;
  double wall = start;
  for (const auto& [step, values] : by_step) {
    scalars.clear();
    for (const Scalar& s : values) scalars.push_back({.tag = s.tag, .value = s.value});
    // Events are recorded to the second, so the next one may lie before the steps that led to it.
    wall = std::max(wall, clock.at(step));
    file.add(wall, step, scalars);
  }
  file.commit();
  return path;
}

}  // namespace assay
