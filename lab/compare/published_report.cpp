// Published figures beside ours, as text and as JSON.
#include "lab/compare/published_report.h"

#include <algorithm>

#include "base/check.h"
#include "lab/compare/derivation.h"
#include "lab/runs/text_table.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

bool has_ours(const PublishedTable& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const PublishedColumn& c) { return !c.measure.empty(); });
}

// The cell of a key column in a model's row.
std::string key_of(const std::string& key, const ModelRow& row, bool is_last) {
  if (is_last) return "yours: " + row.group.name;
  if (key != "precision") return "yours";
  const RunRecord& run = *row.group.runs.front();
  return run.recipe.empty() ? run.config.precision.recipe : run.recipe;
}

// Our value of a column, if it may stand beside the study's.
std::optional<double> our_value(const PublishedStudy& study, const PublishedColumn& column,
                                const ModelRow& row, std::optional<double> target_loss) {
  if (!published_mismatch(study, column, row.group).empty()) return std::nullopt;
  return published_measure(column, row.group, target_loss);
}

std::vector<std::string> our_cells(const PublishedStudy& study, const PublishedTable& table,
                                   const ModelRow& row, std::optional<double> target_loss) {
  std::vector<std::string> cells;
  for (size_t k = 0; k < table.keys.size(); ++k)
    cells.push_back(key_of(table.keys[k], row, k + 1 == table.keys.size()));
  for (const PublishedColumn& column : table.columns) {
    const auto value = our_value(study, column, row, target_loss);
    cells.push_back(value ? strprintf(column.unit == "steps" ? "%.0f" : "%.5g", *value) : "");
  }
  return cells;
}

std::string table_text(const PublishedStudy& study, const PublishedTable& table,
                       const std::vector<ModelRow>& models, std::optional<double> target_loss) {
  std::vector<std::string> heads = table.keys;
  for (const PublishedColumn& c : table.columns)
    heads.push_back(c.key + (c.unit.empty() ? "" : ", " + c.unit));
  TextTable text(heads);
  for (const auto& row : table.rows) {
    std::vector<std::string> cells;
    for (size_t k = 0; k < row.size(); ++k)
      cells.push_back(cell_text(
          row[k], k < table.keys.size() ? nullptr : &table.columns[k - table.keys.size()]));
    text.add(cells);
  }
  if (has_ours(table))
    for (const ModelRow& row : models) text.add(our_cells(study, table, row, target_loss));
  return "\n" + table.title + "\n" + text.text();
}

Json table_json(const PublishedStudy& study, const PublishedTable& table,
                const std::vector<ModelRow>& models, std::optional<double> target_loss) {
  Json json;
  json["title"] = table.title;
  json["keys"] = table.keys;
  json["columns"] = Json::array();
  for (const PublishedColumn& c : table.columns) {
    Json column;
    column["key"] = c.key;
    column["unit"] = c.unit;
    column["what"] = c.what;
    json["columns"].push_back(column);
  }
  json["rows"] = table.rows;
  json["ours"] = Json::object();
  if (!has_ours(table)) return json;
  for (const ModelRow& row : models) {
    Json ours;
    for (const PublishedColumn& c : table.columns) {
      ours[c.key] = nullptr;
      if (const auto value = our_value(study, c, row, target_loss)) ours[c.key] = *value;
    }
    json["ours"][row.group.name] = ours;
  }
  return json;
}

// What was left out of our rows, and why: "moe: no losses of a vocabulary of 4096, ..."
std::vector<std::string> left_out(const PublishedStudy& study,
                                  const std::vector<ModelRow>& models) {
  std::vector<std::string> notes;
  for (const ModelRow& row : models) {
    std::vector<std::string> reasons;
    for (const PublishedTable& table : study.tables) {
      for (const PublishedColumn& column : table.columns) {
        const std::string why = published_mismatch(study, column, row.group);
        if (!why.empty() && std::find(reasons.begin(), reasons.end(), why) == reasons.end()) {
          reasons.push_back(why);
        }
      }
    }
    for (const std::string& why : reasons) {
      notes.push_back(row.group.name + ": left empty: " + why);
    }
  }
  return notes;
}

}  // namespace

std::string published_list_text() {
  std::string text;
  for (const std::string& name : published_names())
    text += strprintf("%-6s %s\n", name.c_str(), published_study(name).title.c_str());
  return text;
}

Json published_list_json() {
  Json json;
  for (const std::string& name : published_names()) json[name] = published_study(name).title;
  return json;
}

std::string published_text(const PublishedStudy& study, const std::vector<ModelRow>& models,
                           std::optional<double> target_loss) {
  std::string text = "published " + study.name + ": " + study.title + "\n" + study.setting + "\n";
  for (const PublishedTable& table : study.tables)
    text += table_text(study, table, models, target_loss);
  text += "\n";
  for (const std::string& note : study.notes) text += "note: " + note + "\n";
  for (const std::string& note : left_out(study, models)) text += "note: " + note + "\n";
  if (!models.empty())
    text +=
        "note: your rows are of other models, data and machines unless their configuration says "
        "otherwise: do not rank them against the published rows\n";
  return text;
}

Json published_json(const PublishedStudy& study, const std::vector<ModelRow>& models,
                    std::optional<double> target_loss) {
  Json json;
  json["name"] = study.name;
  json["title"] = study.title;
  json["setting"] = study.setting;
  json["tables"] = Json::array();
  for (const PublishedTable& table : study.tables)
    json["tables"].push_back(table_json(study, table, models, target_loss));
  json["notes"] = study.notes;
  json["left_out"] = left_out(study, models);
  return json;
}

}  // namespace assay
