// assay match: finds the dense twins of a model.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "models/audit/audit_report.h"
#include "models/audit/dense_twin.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string like;
  std::vector<std::string> contracts = {"active", "total"};
  std::vector<std::string> sets;
  int64_t multiple = 128;
  bool json = false;
};

Json twin_json(const Twin& twin) {
  Json json;
  json["ffn"] = twin.ffn;
  json["parameters"] = twin.parameters;
  json["target"] = twin.target;
  json["residual"] = twin.residual;
  json["residual_percent"] = twin.residual_percent;
  return json;
}

void print_line(const std::string& contract, const std::string& widths, const Twin& twin) {
  std::printf("%-8s  %-15s  %9s  %20s  %16s  %+9.4f%%\n", contract.c_str(), widths.c_str(),
              grouped(twin.ffn).c_str(), grouped(twin.parameters).c_str(),
              ((twin.residual > 0 ? "+" : "") + grouped(twin.residual)).c_str(),
              twin.residual_percent);
}

int run_match(const Arguments& a) {
  if (a.multiple < 1)
    throw UserError(strprintf("--multiple %ld is not a width", static_cast<long>(a.multiple)),
                    "give a number >= 1, for example 128");
  const Config like = load_config(a.like, a.sets);
  const Audit model = audit(like);
  for (const std::string& kind : a.contracts)
    if (kind != "active" && kind != "total")
      throw UserError("--contract " + kind + " is unknown", "choose active, total or both");
  const std::string every = "multiple of " + std::to_string(a.multiple);

  Json json;
  json["like"] = a.like;
  json["total"] = model.total;
  json["active"] = model.active;
  if (!a.json) {
    std::printf("%s: P_total %s, P_active %s\n", a.like.c_str(), grouped(model.total).c_str(),
                grouped(model.active).c_str());
    std::printf("%-8s  %-15s  %9s  %20s  %16s  %10s\n", "contract", "dense twin", "ffn",
                "parameters", "residual", "percent");
  }
  for (const std::string& kind : a.contracts) {
    const Twin closest = dense_twin(like, kind), rounded = dense_twin(like, kind, a.multiple);
    json["match"][kind] = twin_json(closest);
    json["match"][kind]["rounded"] = twin_json(rounded);
    json["match"][kind]["rounded"]["multiple"] = a.multiple;
    if (a.json) continue;
    print_line(kind, "any width", closest);
    print_line(kind, every, rounded);
  }
  if (a.json) print_json(json);
  return kExitDone;
}

}  // namespace

void add_match_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "match", "find dense models with as many parameters as a given model: FFN width, difference");
  sub->add_option("--like", a->like, "configuration of the model to match")->required();
  sub->add_option("--contract", a->contracts,
                  "which parameters to match: active, total (default: both)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--multiple", a->multiple,
                  "also list the closest width that is a multiple of this (default: 128)");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  add_set_option(sub, a->sets);
  sub->footer(
      "Example:\n"
      "  assay match --like models/presets/cpu/moe.yaml    ffn is model.ffn of the dense twin");
  commands.on_chosen(sub, [a] { return run_match(*a); });
}

}  // namespace assay
