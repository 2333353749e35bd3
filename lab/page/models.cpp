#include "lab/page/models.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "base/read_failed.h"
#include "engine/config/fields.h"
#include "lab/compare/compare_report.h"
#include "lab/runs/seed_groups.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

Json models_json(const std::vector<RunRecord>& records, const std::vector<SeedGroup>& groups) {
  Json json = Json::array();
  for (const SeedGroup& group : groups) {
    Json model;
    model["name"] = group.name;
    model["runs"] = Json::array();
    for (const RunRecord* run : group.runs) model["runs"].push_back(run - records.data());
    json.push_back(std::move(model));
  }
  return json;
}

// The models of all runs. A run of a seed that its model has already is a model of its own: as one
// more seed it would count twice. A run without telemetry gives way to one that has it.
std::vector<SeedGroup> page_models(std::span<const PageRun> runs,
                                   const std::vector<RunRecord>& records) {
  std::map<const RunRecord*, std::string> model;
  for (const SeedGroup& group : group_by_model(records)) {
    std::set<int64_t> seeds;
    for (const bool readable : {true, false}) {
      for (const RunRecord* run : group.runs) {
        if (runs[size_t(run - records.data())].readable != readable) continue;
        const bool is_new = seeds.insert(run->config.run.seed).second;
        model[run] = is_new ? "model " + group.name : "run " + run->path;
      }
    }
  }
  return group_runs(
      records, [&](const RunRecord& run) { return model.at(&run); },
      [](const RunRecord&) { return std::string(); });
}

// Names the models as the page does, which has the runs without telemetry too.
Json comparison(std::span<const PageRun> runs, const std::vector<SeedGroup>& models,
                const std::string& contract, bool& read_failed) {
  std::vector<RunRecord> readable;
  for (const PageRun& run : runs)
    if (run.readable) readable.push_back(run.record);
  if (readable.size() < 2) return nullptr;
  std::map<std::string, std::string> names;  // by the folder of a run
  for (const SeedGroup& model : models)
    for (const RunRecord* run : model.runs) names[run->path] = model.name;
  std::vector<std::string> incomparable;
  try {
    CompareOptions options;
    if (!contract.empty()) options.contract = contract;
    options.model_name = [&](const RunRecord& run) { return names.at(run.path); };
    incomparable = incomparable_differences(readable);
    return comparison_json(compare(readable, options));
  } catch (const UserError& error) {
    read_failed |= is_read_failed(error);
    Json json;
    json["refused"] = error.what();
    json["incomparable"] = incomparable;
    return json;
  }
}

// The values of a field in the runs of a model, "1, 2, 3" if they differ.
struct FieldValues {
  std::vector<std::string> shown;
  std::set<std::string> compared;  // of paths only the file name
};
using ModelFields = std::map<std::string, FieldValues>;

ModelFields fields_of(const SeedGroup& group, std::vector<std::string>& order) {
  ModelFields fields;
  for (const RunRecord* run : group.runs) {
    for (const FieldRow& row : config_fields(run->config)) {
      if (std::find(order.begin(), order.end(), row.path) == order.end()) order.push_back(row.path);
      FieldValues& of = fields[row.path];
      const std::string value = row.value.empty() ? "present" : row.value;
      if (of.compared.insert(row.check.path ? file_names(value) : value).second)
        of.shown.push_back(value);
    }
  }
  return fields;
}

Json differences_json(const std::vector<SeedGroup>& groups) {
  std::vector<std::string> order;
  std::vector<ModelFields> models;
  for (const SeedGroup& group : groups) models.push_back(fields_of(group, order));
  Json json = Json::array();
  for (const std::string& path : order) {
    std::set<std::set<std::string>> distinct;
    Json values = Json::array();
    for (const ModelFields& model : models) {
      const auto found = model.find(path);
      distinct.insert(found == model.end() ? std::set<std::string>() : found->second.compared);
      values.push_back(found == model.end() ? Json() : Json(joined(found->second.shown, ", ")));
    }
    if (distinct.size() < 2) continue;
    Json row;
    row["field"] = path;
    row["values"] = std::move(values);
    json.push_back(std::move(row));
  }
  return json;
}

}  // namespace

void add_models(std::span<const PageRun> runs, const std::string& contract, Json& data,
                bool& read_failed) {
  std::vector<RunRecord> records;
  for (const PageRun& run : runs) records.push_back(run.record);
  const std::vector<SeedGroup> groups = page_models(runs, records);
  data["models"] = models_json(records, groups);
  data["comparison"] = comparison(runs, groups, contract, read_failed);
  data["differences"] = differences_json(groups);
}

}  // namespace assay
