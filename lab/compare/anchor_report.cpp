// The public run beside ours, as text and as JSON.
#include "lab/compare/anchor_report.h"

#include <filesystem>

#include "base/check.h"
#include "lab/compare/anchor_gap.h"
#include "lab/compare/anchor_recipe.h"
#include "lab/runs/summary_text.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownSteps = 12;
constexpr const char* kRecipeSource = "modded-nanogpt, AdamW, June 2024, commit b6b0a0d";

std::string at_step(const StepValue& v) {
  return strprintf("%.6f at step %ld\n", v.value, long(v.step));
}

std::string facts_text(const AnchorLog& anchor, double target_loss) {
  std::string text =
      strprintf("anchor %s: log of %s, %zu validations%s\n",
                std::filesystem::path(anchor.path).filename().c_str(),
                anchor_format_name(anchor.format), anchor.val_loss_nats.size(),
                is_published_anchor(anchor) ? ", the published AdamW run of June 2024" : "");
  if (anchor.unknown_lines > 0) text += "warning: " + anchor.path + ": " + anchor.warning() + "\n";
  text += "final    " + at_step(anchor.last());
  text += "minimum  " + at_step(anchor.best());
  const auto first = anchor.first_at_or_below(target_loss);
  text += strprintf("first evaluation at or below %g: ", target_loss);
  return text + (first ? strprintf("step %ld (%.6f)\n", long(first->step), first->value)
                       : std::string("none\n"));
}

std::string gaps_text(const AnchorLog& anchor, const ModelRow& row) {
  const std::vector<AnchorGap> gaps = anchor_gaps(anchor, row.group);
  std::string text = "\n" + row.group.name + " minus the anchor, largest common step first\n";
  const std::string obstacle = anchor_obstacle(*row.group.runs.front());
  if (!obstacle.empty()) text += "NOT COMPARABLE: " + obstacle + "\n";
  if (gaps.empty()) {
    const StepValue& second = anchor.val_loss_nats[anchor.val_loss_nats.size() > 1 ? 1 : 0];
    return text + strprintf(
                      "no step at which both were validated; the anchor's first after 0 is "
                      "%ld, this model was validated every %ld steps\n",
                      long(second.step), long(row.group.config().eval.every));
  }
  TextTable table({"step", "anchor", row.group.name, "gap", "95% interval"});
  for (size_t i = 0; i < gaps.size() && i < kShownSteps; ++i)
    table.add({grouped(gaps[i].step), strprintf("%.6f", gaps[i].anchor_nats),
               strprintf("%.6f", gaps[i].ours.mean), strprintf("%+.6f", gaps[i].gap.mean),
               interval_text(gaps[i].gap.interval95, Digits::kLoss)});
  text += table.text();
  if (gaps.size() > kShownSteps)
    text += strprintf("and %zu earlier steps (--json has them all)\n", gaps.size() - kShownSteps);
  return text;
}

std::string sign(Match match) {
  return match == Match::kYes ? "= " : match == Match::kNo ? "! " : "? ";
}

// One column per model; all models have the same items.
std::string recipe_text(const std::vector<ModelRow>& models) {
  std::vector<std::string> heads = {"recipe", "anchor"};
  std::vector<std::vector<RecipeItem>> of_models;
  for (const ModelRow& row : models) {
    heads.push_back(row.group.name);
    of_models.push_back(anchor_recipe(*row.group.runs.front()));
  }
  TextTable table(heads);
  for (size_t i = 0; i < of_models.front().size(); ++i) {
    std::vector<std::string> cells = {of_models.front()[i].what, of_models.front()[i].anchor};
    for (const auto& items : of_models) cells.push_back(sign(items[i].match) + items[i].ours);
    table.add(cells);
  }
  std::string text = strprintf("\nwhat matches the anchor's recipe (%s): = yes, ! no, ? unknown\n",
                               kRecipeSource) +
                     table.text();
  for (size_t m = 0; m < models.size(); ++m) {
    size_t same = 0;
    for (const RecipeItem& item : of_models[m]) same += item.match == Match::kYes;
    text += strprintf("%s: %zu of %zu match\n", models[m].group.name.c_str(), same,
                      of_models[m].size());
  }
  return text;
}

Json value_json(const std::optional<StepValue>& v) {
  if (!v) return nullptr;
  Json json;
  json["step"] = v->step;
  json["val_loss_nats"] = v->value;
  return json;
}

Json gap_json(const AnchorLog& anchor, const ModelRow& row) {
  Json json;
  json["not_comparable"] = nullptr;
  const std::string obstacle = anchor_obstacle(*row.group.runs.front());
  if (!obstacle.empty()) json["not_comparable"] = obstacle;
  json["gaps"] = Json::array();
  for (const AnchorGap& g : anchor_gaps(anchor, row.group)) {
    Json at;
    at["step"] = g.step;
    at["anchor_nats"] = g.anchor_nats;
    at["val_loss_nats"] = summary_json(g.ours);
    at["gap_nats"] = summary_json(g.gap);
    json["gaps"].push_back(at);
  }
  if (anchor.format != AnchorFormat::kModdedNanogpt) return json;
  json["recipe"] = Json::array();
  for (const RecipeItem& item : anchor_recipe(*row.group.runs.front())) {
    Json entry;
    entry["what"] = item.what;
    entry["anchor"] = item.anchor;
    entry["ours"] = item.ours;
    entry["match"] = match_name(item.match);
    json["recipe"].push_back(entry);
  }
  return json;
}

}  // namespace

std::string anchor_text(const AnchorLog& anchor, double target_loss,
                        const std::vector<ModelRow>& models) {
  std::string text = facts_text(anchor, target_loss);
  for (const ModelRow& row : models) text += gaps_text(anchor, row);
  if (models.empty()) return text;
  if (anchor.format != AnchorFormat::kModdedNanogpt)
    return text + "\nno recipe table: the recipe of llm.c's runs is not known here\n";
  if (!is_published_anchor(anchor))
    text +=
        "\nthis log is not the published one: its recipe may differ from the one in the table\n";
  return text + recipe_text(models);
}

Json anchor_json(const AnchorLog& anchor, double target_loss, const std::vector<ModelRow>& models) {
  Json json;
  json["path"] = anchor.path;
  json["sha256"] = anchor.sha256;
  json["format"] = anchor_format_name(anchor.format);
  json["published"] = is_published_anchor(anchor);
  json["validations"] = anchor.val_loss_nats.size();
  json["unknown_lines"] = anchor.unknown_lines;
  json["final"] = value_json(anchor.last());
  json["minimum"] = value_json(anchor.best());
  json["target_loss_nats"] = target_loss;
  json["first_at_or_below"] = value_json(anchor.first_at_or_below(target_loss));
  json["models"] = Json::object();
  for (const ModelRow& row : models) json["models"][row.group.name] = gap_json(anchor, row);
  return json;
}

}  // namespace assay
