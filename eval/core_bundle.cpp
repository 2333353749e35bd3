#include "eval/core_bundle.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/config/yaml_source.h"
#include "eval/csv.h"

namespace assay {

namespace {

using nlohmann::json;

constexpr const char* kList = "core.yaml";
constexpr const char* kBaselines = "eval_meta_data.csv";
constexpr const char* kFetch = "fetch the bundle again: bash tools/get_core.sh";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw UserError(where + ": " + what, kFetch);
}

CoreKind parse_kind(const std::string& name, const std::string& where) {
  for (const CoreKind kind :
       {CoreKind::kMultipleChoice, CoreKind::kSchema, CoreKind::kLanguageModeling}) {
    if (name == core_kind_name(kind)) return kind;
  }
  refuse(where,
         "icl_task_type '" + name + "' is not one of multiple_choice, schema, language_modeling");
}

template <typename V>
V field(const YAML::Node& task, const char* key, const YamlSource& source) {
  const YAML::Node node = task[key];
  if (!node) refuse(source.at(task), std::string("the task has no ") + key);
  try {
    return node.as<V>();
  } catch (const YAML::Exception&) {
    refuse(source.at(node), std::string(key) + " is " + yaml_kind(node));
  }
}

// Whether a path leads below the folder that it is joined to.
bool is_below(const std::filesystem::path& path) {
  return path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

CoreTask parse_task(const YAML::Node& node, const YamlSource& source) {
  if (!node.IsMap()) refuse(source.at(node), "a task is a section, not " + yaml_kind(node));
  CoreTask task;
  task.label = field<std::string>(node, "label", source);
  task.path = field<std::string>(node, "dataset_uri", source);
  if (!is_below(task.path)) {
    refuse(source.at(node), "dataset_uri '" + task.path + "' is not below eval_data");
  }
  task.kind = parse_kind(field<std::string>(node, "icl_task_type", source), source.at(node));
  const auto shots = field<std::vector<int64_t>>(node, "num_fewshot", source);
  if (shots.empty() || shots[0] < 0 || shots[0] > 1000) {
    refuse(source.at(node), "num_fewshot of " + task.label + " does not begin with a count");
  }
  task.shots = shots[0];
  if (node["continuation_delimiter"]) {
    task.delimiter = field<std::string>(node, "continuation_delimiter", source);
  }
  return task;
}

double parse_percent(const std::string& text, const std::string& where) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty() || !(value >= 0 && value < 100)) {
    refuse(where, "'" + text + "' is not a percentage below 100");
  }
  return value;
}

std::map<std::string, double> read_baselines(const std::string& path) {
  const auto records = parse_csv(read_file(path), path);
  const auto column = [&](const std::string& title) {
    for (size_t i = 0; !records.empty() && i < records[0].size(); ++i) {
      if (records[0][i] == title) return i;
    }
    refuse(path, "no column '" + title + "'");
  };
  const size_t task = column("Eval Task"), baseline = column("Random baseline");
  std::map<std::string, double> percent;
  for (size_t r = 1; r < records.size(); ++r) {
    if (records[r].size() <= std::max(task, baseline)) {
      refuse(path, strprintf("record %zu has %zu fields", r, records[r].size()));
    }
    percent[records[r][task]] =
        parse_percent(records[r][baseline], path + " (" + records[r][task] + ")");
  }
  return percent;
}

std::string text_of(const json& row, const char* key, const std::string& where) {
  const auto at = row.find(key);
  if (at == row.end()) refuse(where, std::string("the row has no '") + key + "'");
  if (!at->is_string()) refuse(where, std::string("'") + key + "' is not a string");
  return at->get<std::string>();
}

void read_options(const json& row, const char* key, const std::string& where, CoreRow& into) {
  const auto at = row.find(key);
  if (at == row.end()) refuse(where, std::string("the row has no '") + key + "'");
  if (!at->is_array() || at->empty())
    refuse(where, std::string("'") + key + "' is not a list with items");
  for (const json& option : *at) {
    if (!option.is_string())
      refuse(where, std::string("'") + key + "' has an item that is not a string");
    into.options.push_back(option.get<std::string>());
  }
  const auto gold = row.find("gold");
  if (gold == row.end()) refuse(where, "the row has no 'gold'");
  const int64_t count = int64_t(into.options.size());
  if (!gold->is_number_integer() || gold->get<int64_t>() < 0 || gold->get<int64_t>() >= count) {
    refuse(where,
           strprintf("'gold' is %s, but there are %ld options", gold->dump().c_str(), long(count)));
  }
  into.gold = gold->get<int64_t>();
}

CoreRow parse_row(std::string_view line, CoreKind kind, const std::string& where) {
  const json row = json_of(line);
  if (row.is_discarded()) refuse(where, "not JSON");
  if (!row.is_object()) refuse(where, std::string("a row is an object, not ") + row.type_name());
  CoreRow out;
  switch (kind) {
    case CoreKind::kMultipleChoice:
      out.context = text_of(row, "query", where);
      read_options(row, "choices", where, out);
      break;
    case CoreKind::kSchema:
      read_options(row, "context_options", where, out);
      out.continuation = text_of(row, "continuation", where);
      break;
    case CoreKind::kLanguageModeling:
      out.context = text_of(row, "context", where);
      out.continuation = text_of(row, "continuation", where);
      break;
  }
  return out;
}

}  // namespace

const char* core_kind_name(CoreKind kind) {
  switch (kind) {
    case CoreKind::kMultipleChoice:
      return "multiple_choice";
    case CoreKind::kSchema:
      return "schema";
    case CoreKind::kLanguageModeling:
      return "language_modeling";
  }
  return "";
}

std::vector<CoreTask> parse_core_yaml(const std::string& text, const std::string& name) {
  const YamlSource source{.name = name, .folder = ""};
  const YAML::Node root = parse_yaml(text, source);
  if (!root || !root.IsMap() || !root["icl_tasks"] || !root["icl_tasks"].IsSequence()) {
    refuse(name, "no list icl_tasks");
  }
  std::vector<CoreTask> tasks;
  std::set<std::string> labels;
  for (const YAML::Node& node : root["icl_tasks"]) {
    tasks.push_back(parse_task(node, source));
    const std::string& label = tasks.back().label;
    // Answers and scores are kept by label.
    if (!labels.insert(label).second) {
      refuse(source.at(node), "two tasks have the label " + label);
    }
  }
  if (tasks.empty()) refuse(name, "icl_tasks is empty");
  return tasks;
}

std::vector<CoreRow> parse_core_rows(std::string_view text, CoreKind kind,
                                     const std::string& name) {
  std::vector<CoreRow> rows;
  long number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    // Only the last line of a file may be empty; an empty row elsewhere would shift all that
    // follow.
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      if (text.empty()) break;
      refuse(strprintf("%s:%ld", name.c_str(), number), "an empty line");
    }
    rows.push_back(parse_row(line, kind, strprintf("%s:%ld", name.c_str(), number)));
  }
  if (rows.empty()) refuse(name, "no rows");
  return rows;
}

std::vector<CoreRow> read_core_rows(const CoreTask& task) {
  return parse_core_rows(read_file(task.path), task.kind, task.path);
}

CoreBundle read_core_bundle(const std::string& folder) {
  const std::string list = folder + "/" + kList, meta = folder + "/" + kBaselines;
  for (const std::string& file : {list, meta}) {
    if (!std::filesystem::exists(file)) {
      throw UserError("no CORE bundle in " + folder + ": " + file + " does not exist",
                      "fetch it with: bash tools/get_core.sh, or name its folder with --bundle");
    }
  }
  const std::map<std::string, double> baselines = read_baselines(meta);
  CoreBundle bundle{.folder = folder, .tasks = {}, .missing = {}};
  for (CoreTask& task : parse_core_yaml(read_file(list), list)) {
    const auto baseline = baselines.find(task.label);
    if (baseline == baselines.end()) refuse(meta, "no task " + task.label);
    task.baseline_percent = baseline->second;
    task.path = folder + "/eval_data/" + task.path;
    if (std::filesystem::is_other(task.path)) {
      refuse(task.path, "is a pipe or a device, not a file");
    }
    if (std::filesystem::exists(task.path)) {
      bundle.tasks.push_back(std::move(task));
    } else {
      bundle.missing.push_back(task.label);
    }
  }
  if (bundle.tasks.empty()) {
    refuse(folder, strprintf("none of the %zu tasks' files exists", bundle.missing.size()));
  }
  return bundle;
}

CoreBundle with_tasks(CoreBundle bundle, const std::vector<std::string>& labels,
                      const std::string& asked_by) {
  if (labels.empty()) return bundle;
  std::string known;
  for (const CoreTask& t : bundle.tasks) known += (known.empty() ? "" : ", ") + t.label;
  for (const std::string& label : labels) {
    if (std::any_of(bundle.tasks.begin(), bundle.tasks.end(),
                    [&](const CoreTask& t) { return t.label == label; })) {
      continue;
    }
    throw UserError(asked_by + ": no task " + label + " with a file in " + bundle.folder,
                    "there are " + known);
  }
  std::vector<CoreTask> chosen;
  for (const CoreTask& task : bundle.tasks) {
    if (std::count(labels.begin(), labels.end(), task.label) > 0) {
      chosen.push_back(task);
    } else {
      bundle.missing.push_back(task.label);
    }
  }
  bundle.tasks = std::move(chosen);
  return bundle;
}

std::vector<std::pair<std::string, std::string>> core_bundle_hashes(const CoreBundle& bundle) {
  std::vector<std::pair<std::string, std::string>> hashes;
  for (const char* file : {kList, kBaselines}) {
    hashes.emplace_back(file, sha256_file(bundle.folder + "/" + file));
  }
  std::map<std::string, std::string> rows;
  for (const std::string& label : bundle.missing) rows["rows of " + label] = "none";
  for (const CoreTask& task : bundle.tasks) rows["rows of " + task.label] = sha256_file(task.path);
  hashes.insert(hashes.end(), rows.begin(), rows.end());
  return hashes;
}

}  // namespace assay
