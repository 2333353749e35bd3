// assay match: finds the dense twins of a model.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/config/fields.h"
#include "engine/config/model_config.h"
#include "engine/config/yaml.h"
#include "models/audit/audit_report.h"
#include "models/audit/dense_twin.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/match_ladder.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

struct MatchArguments {
  std::string like;
  std::vector<std::string> contracts;
  std::vector<std::string> sets;
  std::optional<int64_t> multiple;
  LadderRequest ladder;
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

// Which width to take, and lines for the `models` of a matrix file.
void print_use(const MatchArguments& a, int64_t multiple,
               const std::vector<std::pair<std::string, int64_t>>& twins) {
  constexpr int64_t kFitsAll = 128;
  if (multiple % kFitsAll == 0) {
    std::printf("any width is nearest; a multiple of %ld also fits the blocks of every precision\n",
                static_cast<long>(multiple));
  } else {
    std::printf("any width is nearest; --multiple %ld fits the blocks of every precision\n",
                static_cast<long>(kFitsAll));
  }
  std::printf("as models of a matrix, or by --set model.moe=null --set model.ffn=%ld%s:\n",
              static_cast<long>(twins.front().second),
              a.sets.empty() ? "" : ", with the --set of this command too");
  for (const auto& [kind, ffn] : twins) {
    std::printf("  dense-%s: {config: %s, set: {model.moe: null, model.ffn: %ld}}\n", kind.c_str(),
                yaml_scalar(a.like).c_str(), static_cast<long>(ffn));
  }
}

// The members of a family by construction; nullopt if the dense twins are wanted.
std::optional<LadderRequest> ladder_of(const MatchArguments& a) {
  LadderRequest ladder = a.ladder;
  if (ladder.keep_branch_scale && ladder.experts.empty()) {
    throw UserError("--keep-branch-scale is about finer experts, but no --experts are given",
                    "add --experts 2,4,8, or leave it out");
  }
  if (ladder.experts.empty() && ladder.shared.empty() && ladder.depths.empty() &&
      ladder.horizons.empty()) {
    if (ladder.folder.empty()) return std::nullopt;
    throw UserError("-o writes a family of models, but none is named",
                    "add --experts 2,4,8, --shared 0,1, --depths 4,8 or --horizons 1,3,10; of a "
                    "dense twin, without -o, the line for a matrix file is printed");
  }
  ladder.like = a.like;
  ladder.sets = a.sets;
  ladder.json = a.json;
  ladder.multiple = a.multiple.value_or(ladder.multiple);
  if (a.contracts.size() > 1) {
    throw UserError("--contract names two quantities for one family",
                    "one width makes only one of them equal: total, active or flops");
  }
  if (!a.contracts.empty()) ladder.contract = a.contracts.front();
  return ladder;
}

int run_match(MatchArguments a) {
  if (a.multiple && *a.multiple < 1)
    throw UserError(strprintf("--multiple %ld is not a width", static_cast<long>(*a.multiple)),
                    "give a number >= 1, for example 128");
  if (const std::optional<LadderRequest> ladder = ladder_of(a)) return match_ladder(*ladder);
  if (a.contracts.empty()) a.contracts = {"active", "total"};
  const int64_t multiple = a.multiple.value_or(128);
  const Config like = load_config(a.like, a.sets);
  const Audit model = audit(like);
  for (const std::string& kind : a.contracts)
    if (kind != "active" && kind != "total")
      throw UserError("--contract " + kind + " is unknown", "choose active, total or both");
  const std::string every = "multiple of " + std::to_string(multiple);

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
  std::vector<std::pair<std::string, int64_t>> twins;
  for (const std::string& kind : a.contracts) {
    const Twin closest = dense_twin(like, kind), rounded = dense_twin(like, kind, multiple);
    json["match"][kind] = twin_json(closest);
    json["match"][kind]["rounded"] = twin_json(rounded);
    json["match"][kind]["rounded"]["multiple"] = multiple;
    twins.emplace_back(kind, closest.ffn);
    if (a.json) continue;
    print_line(kind, "any width", closest);
    print_line(kind, every, rounded);
  }
  if (a.json) {
    print_json(json);
  } else if (moe_blocks(like.model) > 0) {
    print_use(a, multiple, twins);
  }
  return kExitDone;
}

}  // namespace

void add_match_command(Commands& commands) {
  auto a = std::make_shared<MatchArguments>();
  CLI::App* sub = commands.app.add_subcommand("match",
                                              "find models like a given one: dense ones of its "
                                              "size, finer or shared experts, other depths");
  sub->add_option("--like", a->like, "configuration of the model to match")->required();
  sub->add_option("--contract", a->contracts,
                  "which parameters to match: active, total (default: both); of a family with "
                  "--experts or --shared also flops, and without it the width stays")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option(
      "--multiple", a->multiple,
      "also list the closest width that is a multiple of this (default: 128; of a family "
      "8)");
  sub->add_option("--experts", a->ladder.experts,
                  "a granularity ladder: mixtures with these numbers of experts, comma-separated, "
                  "with K and S in proportion and narrower experts")
      ->delimiter(',')
      ->check(whole_between(1, 65536));
  sub->add_flag("--keep-branch-scale", a->ladder.keep_branch_scale,
                "with --experts: gate_scale so that every routed branch begins as large as the "
                "base's: in proportion to K where gates are normalised");
  sub->add_option("--shared", a->ladder.shared,
                  "mixtures with these numbers of shared experts, comma-separated, and experts as "
                  "much narrower: (K + S) F stays")
      ->delimiter(',')
      ->check(whole_between(0, 65536));
  sub->add_option(
         "--depths", a->ladder.depths,
         "a depth dial: these numbers of blocks, with hidden and inner widths in proportion")
      ->delimiter(',')
      ->check(whole_between(1, 65536));
  sub->add_option("--horizons", a->ladder.horizons,
                  "a horizon ladder: times these factors as many steps, with the same warm-up and "
                  "the warm-down in proportion")
      ->delimiter(',')
      ->check(whole_between(1, 1000000));
  sub->add_option("-o,--out", a->ladder.folder,
                  "write the family's presets and a matrix.yaml of them to this folder");
  sub->add_flag("--force", a->ladder.force, "with -o: replace files that are there");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  add_set_option(sub, a->sets);
  sub->footer(
      "Examples:\n"
      "  assay match --like models/presets/cpu/moe.yaml    ffn is model.ffn of the dense twin\n"
      "  assay match --like models/presets/cpu/moe.yaml --experts 2,4,8,16 --contract total -o "
      "ladder\n"
      "  assay match --like models/presets/cpu/moe.yaml --experts 2,4,8,16 --keep-branch-scale\n"
      "  assay match --like models/presets/cpu/moe.yaml --shared 0,2 -o shared\n"
      "  assay match --like models/presets/cpu/moe.yaml --depths 2,4,8\n"
      "  assay match --like models/presets/cpu/moe.yaml --horizons 1,3,10 -o longer");
  commands.on_chosen(sub, [a] { return run_match(*a); });
}

}  // namespace assay
