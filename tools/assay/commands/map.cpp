// assay map: which model is ahead at each budget on each axis of cost, and where the order turns.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "lab/map/map_claims.h"
#include "lab/map/map_page.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct MapArguments {
  std::vector<std::string> paths, models, axes = {"all"};
  std::string measure = "val_loss", html, claims, title = "Contract map";
  bool json = false;
};

std::vector<CostAxis> axes_of(const std::vector<std::string>& names) {
  std::vector<CostAxis> axes;
  std::string known;
  for (const AxisWords& words : cost_axes()) known += std::string(", ") + words.name;
  for (const std::string& name : names) {
    bool found = name == "all";
    for (const AxisWords& words : cost_axes()) {
      if (name != "all" && name != words.name) continue;
      if (std::count(axes.begin(), axes.end(), words.axis) == 0) axes.push_back(words.axis);
      found = true;
    }
    if (!found) throw UserError("--axis " + name + " is unknown", "choose of all" + known);
  }
  return axes;
}

int run_map(const MapArguments& a) {
  const std::vector<CostAxis> axes = axes_of(a.axes);
  const MapMeasure measure = a.measure == "core" ? MapMeasure::kCore : MapMeasure::kValLoss;
  const ContractMap map =
      contract_map(collect_endpoints(a.paths, measure, a.models), measure, axes);
  std::vector<MapClaimResult> claims;
  if (!a.claims.empty()) claims = judge_map_claims(read_map_claims(a.claims), map);
  for (const SkippedRun& out : map.set.left_out) {
    if (out.unread) std::fprintf(stderr, "warning: left out: %s\n", out.reason.c_str());
  }
  if (!a.html.empty()) write_file_atomic(a.html, map_page(map, claims, a.title));
  if (a.json) {
    nlohmann::ordered_json json = map_json(map);
    if (!a.claims.empty()) json["claims"] = map_claims_json(claims);
    print_json(json);
  } else {
    std::fputs((map_text(map) + map_claims_text(claims)).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_map_command(Commands& commands) {
  auto a = std::make_shared<MapArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "map", "which model is ahead per token, parameter, FLOP and second, and where that turns");
  sub->add_option("RUNS", a->paths, "finished runs, or folders of runs such as a matrix's")
      ->required();
  sub->add_option("--models", a->models, "only these models, in this order: A,B")->delimiter(',');
  sub->add_option("--measure", a->measure,
                  "val_loss (default), or core of runs that were scored on it")
      ->check(CLI::IsMember({"val_loss", "core"}));
  sub->add_option("--axis", a->axes,
                  "tokens, p_active, p_total, p_used (tokens per parameter of that kind), flops, "
                  "seconds, memory, joules; all (default)")
      ->delimiter(',');
  sub->add_option("--claims", a->claims,
                  "a file of claims to judge on the map: docs/map.md#claims");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->add_option("--html", a->html, "also write a page with a picture of every axis");
  sub->add_option("--title", a->title, "heading of that page (default: Contract map)");
  sub->footer(
      "Example:\n"
      "  assay map runs/0004-mini\n"
      "  assay map runs/0004-mini --models dense,moe-64 --axis tokens,p_total\n"
      "  assay map runs/0004-mini --claims claims.yaml\n"
      "The endpoints of a model are its finished runs of several lengths: branches of one trunk "
      "(assay branch), or runs under several contracts of a matrix. docs/map.md explains the "
      "tables.");
  commands.on_chosen(sub, [a] { return run_map(*a); });
}

}  // namespace assay
