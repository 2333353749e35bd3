#include "tools/assay/commands/match_ladder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/file.h"
#include "base/shell_word.h"
#include "engine/config/check.h"
#include "engine/config/fields.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "lab/matrix/file.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"
#include "models/audit/contract.h"
#include "models/audit/family.h"
#include "models/audit/ladder.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kMostResidual = 5;  // percent, of what --contract makes equal

LadderEqual equal_of(const std::string& contract) {
  if (contract == "total") return LadderEqual::kTotal;
  if (contract == "active") return LadderEqual::kActive;
  if (contract == "flops") return LadderEqual::kFlops;
  if (contract.empty()) return LadderEqual::kWidth;
  throw UserError(
      "--contract " + contract + " is unknown",
      "with --experts or --shared choose total, active or flops, or leave it out to keep "
      "the width");
}

// True if --contract chooses the width of the experts.
bool takes_width(const LadderRequest& r) {
  return !r.experts.empty() || !r.shared.empty();
}

// UserError if a preset of the rung could not be read, if two rungs have one name, or if the
// quantity that was to be equal is not.
void require_usable(const LadderRequest& r, const Config& base, const std::vector<Rung>& rungs) {
  std::set<std::string> names;
  for (const Rung& rung : rungs) {
    if (!names.insert(rung.name).second) {
      throw UserError("two models would be called " + rung.name, "name each number once");
    }
    parse_config_text(to_yaml(rung.config), rung.name, ".");
    const RungResiduals residual = rung_residuals(base, rung.config);
    const double off = r.contract == "total"    ? residual.total
                       : r.contract == "active" ? residual.active
                       : r.contract == "flops"  ? residual.flops
                                                : 0;
    if (std::fabs(off) <= kMostResidual || !takes_width(r)) continue;
    throw UserError(strprintf("%s: no width brings %s within %g%% of the base's, the nearest is "
                              "%+.3g%% off",
                              rung.name.c_str(), r.contract.c_str(), kMostResidual, off),
                    "give a smaller --multiple, or fewer experts");
  }
}

struct LadderBase {
  Config config;
  std::string changes;  // as YAML lines below the include of the base
};

// The base with the steps of its own contract as its own: the ladder's matrix compares the rungs
// under another one, to which that of the base would be a reference only. Landings stay at their
// steps.
LadderBase with_own_steps(const std::string& like, const Config& base) {
  LadderBase own{.config = base, .changes = ""};
  if (has_own_steps(base)) return own;
  const ContractConfig before = base.contract;
  resolve_reference(own.config);
  const int64_t steps = reference_of(like, own.config).steps;
  const bool moves_landings = before.landings && before.fraction != 1;
  std::optional<std::vector<double>> shares = before.landings;
  if (moves_landings) {
    shares->clear();
    for (const Landing& l : landings(own.config)) shares->push_back(double(l.step) / double(steps));
  }
  own.config.run.steps = steps;
  own.config.contract = ContractConfig{};
  own.config.contract.landings = shares;
  own.changes = strprintf("run: {steps: %ld}\ncontract: {kind: steps", long(steps));
  if (!before.reference.empty()) own.changes += ", reference: \"\"";
  if (!before.derived_from.empty()) own.changes += ", derived_from: \"\"";
  if (!before.shared_in_total) own.changes += ", shared_in_total: true";
  for (const auto& [name, value, usual] : {std::tuple{"coefficient", before.coefficient, 0},
                                           std::tuple{"step_seconds", before.step_seconds, 0},
                                           std::tuple{"horizon", double(before.horizon), 0},
                                           std::tuple{"fraction", before.fraction, 1}}) {
    if (value != usual) own.changes += strprintf(", %s: %d", name, usual);
  }
  if (moves_landings) own.changes += ", landings: " + yaml_scalar(shares);
  own.changes += "}\n";
  return own;
}

// What --contract names for the ladder's matrix; nothing for equal steps, and for horizons, which
// are the rungs' own.
std::optional<ContractKind> contract_of(const LadderRequest& r) {
  if (r.contract.empty() || !r.horizons.empty()) return std::nullopt;
  return r.contract == "total"    ? ContractKind::kTotalDN
         : r.contract == "active" ? ContractKind::kActiveDN
                                  : ContractKind::kFlops;
}

// UserError if the warm-up and warm-down of a rung do not fit into the steps that its matrix gives.
void require_schedule(const Rung& rung, const Config& config) {
  try {
    validate_schedule(config);
  } catch (const UserError& e) {
    const ScheduleConfig& s = config.schedule;
    throw UserError(rung.name + ": " + e.what(),
                    s.warmup == 0 && s.warmdown == 0
                        ? e.hint()
                        : "give schedule.warmup_fraction and schedule.warmdown_fraction in the "
                          "base instead of steps, or leave out --contract");
  }
}

// Of each rung in the ladder's matrix, where the first one is the reference. UserError if a rung's
// schedule is longer.
std::vector<int64_t> steps_of(const LadderRequest& r, const std::vector<Rung>& rungs) {
  const std::optional<ContractKind> kind = contract_of(r);
  std::vector<int64_t> steps;
  for (const Rung& rung : rungs) {
    Config config = rung.config;
    if (kind) {
      const Rung& first = rungs.front();
      config.contract = {};
      config.contract.kind = *kind;
      config.contract.coefficient = reference_coefficient(
          *kind, reference_of(first.name, first.config), SharedExperts::kInTotal);
    }
    config.run.steps = planned_steps(config);
    require_schedule(rung, config);
    steps.push_back(config.run.steps);
  }
  return steps;
}

std::vector<Rung> rungs_of(const LadderRequest& r, const Config& base) {
  std::vector<Rung> rungs;
  const LadderEqual equal = equal_of(r.contract);
  const RungGates gates = r.keep_branch_scale ? RungGates::kKeepBranchScale : RungGates::kOfBase;
  for (const int64_t e : r.experts) {
    rungs.push_back(granularity_rung(base, e, equal, r.multiple, gates));
  }
  for (const int64_t s : r.shared) rungs.push_back(shared_rung(base, s, equal, r.multiple));
  for (const int64_t l : r.depths) rungs.push_back(depth_rung(base, l, r.multiple));
  for (const int64_t x : r.horizons) rungs.push_back(horizon_rung(base, x));
  if (!r.contract.empty() && !r.horizons.empty() && !takes_width(r)) {
    throw UserError("--contract " + r.contract +
                        " does nothing for --horizons, whose steps are "
                        "their own",
                    "leave it out");
  }
  require_usable(r, base, rungs);
  return rungs;
}

std::string ladder_text(const Config& base, const std::vector<Rung>& rungs,
                        const std::vector<int64_t>& steps) {
  TextTable table({"model", "layers", "hidden", "E", "K", "S", "F", "steps", "P_total", "percent",
                   "P_active", "percent", "FLOPs/token", "percent"});
  for (size_t i = 0; i < rungs.size(); ++i) {
    const Rung& rung = rungs[i];
    const ModelConfig& m = rung.config.model;
    const bool sparse = moe_blocks(m) > 0;
    const Audit a = audit(rung.config);
    const RungResiduals residual = rung_residuals(base, rung.config);
    const auto percent = [](double value) { return strprintf("%+.3f%%", value); };
    const auto of_moe = [&](int64_t MoeConfig::*value) {
      return sparse ? grouped((*m.moe).*value) : std::string();
    };
    table.add({rung.name, grouped(m.layers), grouped(m.hidden), of_moe(&MoeConfig::experts),
               of_moe(&MoeConfig::top_k), of_moe(&MoeConfig::shared),
               grouped(sparse ? m.moe->expert_ffn : m.ffn), grouped(steps[i]), grouped(a.total),
               percent(residual.total), grouped(a.active), percent(residual.active),
               grouped(a.flops_per_token), percent(residual.flops)});
  }
  return table.text();
}

// What differs between the rungs beside what the ladder is about and the table shows.
std::vector<std::string> confounds_of(const LadderRequest& r, const std::vector<Rung>& rungs) {
  std::vector<NamedConfig> models;
  models.reserve(rungs.size());
  for (const Rung& rung : rungs) models.push_back({rung.name, rung.config});
  std::vector<std::string> lines;
  for (const Confound& c : confounds(models, {})) {
    // The router's share is what a mixture has more than a dense model, and here are none.
    const bool shown = c.name == "router_share" || (c.name == "experts" && takes_width(r));
    if (!shown) lines.push_back(c.text);
  }
  return lines;
}

// The line of a ladder's matrix with the contract under which its rungs are compared; "" for
// horizons.
std::string contracts_line(const LadderRequest& r, const std::string& first) {
  if (!r.horizons.empty()) return "";
  const std::optional<ContractKind> kind = contract_of(r);
  if (!kind) return "contracts: [{kind: steps}]\n";
  return std::string("contracts: [{kind: ") + name_of(*kind) + ", reference: " + first + "}]\n";
}

// Nothing is written if a file of the ladder is there. Its matrix is written last: without it,
// files with the same text are those of a command that was killed.
void require_new(const std::vector<std::pair<fs::path, std::string>>& files) {
  std::error_code ignored;
  const bool whole = fs::exists(files.back().first, ignored);
  for (const auto& [path, text] : files) {
    if (!fs::exists(path, ignored)) continue;
    if (!whole && read_file(path.string()) == text) continue;
    throw UserError(path.string() + " is there already",
                    "--force replaces it, or choose another -o");
  }
}

// The folder's name as that of a matrix, which becomes part of names of folders.
std::string matrix_name(const std::string& folder) {
  std::string name = fs::weakly_canonical(folder).filename().string();
  for (char& c : name) {
    if (!is_plain_name(std::string(1, c)) && std::string_view("._-").find(c) == std::string::npos) {
      c = '-';
    }
  }
  name.resize(std::min<size_t>(name.size(), 80));
  return is_plain_name(name) ? name : "ladder" + name;
}

void write_ladder(const LadderRequest& r, const std::vector<Rung>& rungs) {
  make_folders(r.folder);
  const std::string base =
      fs::weakly_canonical(r.like).lexically_relative(fs::weakly_canonical(r.folder)).string();
  std::string matrix = "# The ladder of " + base +
                       ", made by assay match.\nname: " + yaml_scalar(matrix_name(r.folder)) +
                       "\nmodels:\n";
  std::vector<std::pair<fs::path, std::string>> files;
  for (const Rung& rung : rungs) {
    files.emplace_back(fs::path(r.folder) / (rung.name + ".yaml"),
                       "# " + rung.name + " of the ladder of " + base + ", made by assay match.\n" +
                           "include: " + yaml_scalar(base) + "\n" + rung.changes);
    matrix += "  " + rung.name + ": " + rung.name + ".yaml\n";
  }
  matrix += contracts_line(r, rungs.front().name) + "seeds: [1, 2, 3]\n";
  files.emplace_back(fs::path(r.folder) / "matrix.yaml", matrix);
  if (!r.force) require_new(files);
  for (const auto& [path, text] : files) write_file_atomic(path.string(), text);
}

Json ladder_json(const LadderRequest& r, const Config& base, const std::vector<Rung>& rungs,
                 const std::vector<int64_t>& steps) {
  Json json;
  json["like"] = r.like;
  json["rungs"] = Json::array();
  for (size_t i = 0; i < rungs.size(); ++i) {
    const Rung& rung = rungs[i];
    const Audit a = audit(rung.config);
    const RungResiduals residual = rung_residuals(base, rung.config);
    const ModelConfig& m = rung.config.model;
    Json j;
    j["name"] = rung.name;
    j["layers"] = m.layers;
    j["hidden"] = m.hidden;
    j["steps"] = steps[i];
    if (moe_blocks(m) > 0) {
      j["experts"] = m.moe->experts;
      j["top_k"] = m.moe->top_k;
      j["shared"] = m.moe->shared;
      j["expert_ffn"] = m.moe->expert_ffn;
      j["gate_scale"] = m.moe->router.gate_scale;
    } else {
      j["ffn"] = m.ffn;
    }
    j["total"] = a.total;
    j["active"] = a.active;
    j["flops_per_token"] = a.flops_per_token;
    j["residual_percent"] = {
        {"total", residual.total}, {"active", residual.active}, {"flops", residual.flops}};
    json["rungs"].push_back(j);
  }
  json["confounds"] = confounds_of(r, rungs);
  return json;
}

}  // namespace

int match_ladder(const LadderRequest& r) {
  const Config given = load_config(r.like, r.sets);
  // Horizons are multiples of the steps that the base was given.
  const LadderBase own = r.horizons.empty() ? with_own_steps(r.like, given)
                                            : LadderBase{.config = given, .changes = ""};
  const Config& base = own.config;
  std::vector<Rung> rungs = rungs_of(r, base);
  for (Rung& rung : rungs) rung.changes += own.changes;
  if (!r.folder.empty() && !r.sets.empty()) {
    throw UserError("--set changes the base, which the presets of -o only name",
                    "write the change into " + r.like + ", or leave out -o");
  }
  const std::vector<int64_t> steps = steps_of(r, rungs);
  if (!r.folder.empty()) write_ladder(r, rungs);
  if (r.json) {
    print_json(ladder_json(r, base, rungs, steps));
    return kExitDone;
  }
  std::printf("%s: P_total %s, P_active %s; percent: of the difference to it\n", r.like.c_str(),
              grouped(audit(base).total).c_str(), grouped(audit(base).active).c_str());
  std::fputs(ladder_text(base, rungs, steps).c_str(), stdout);
  for (const std::string& line : confounds_of(r, rungs))
    std::printf("confound: %s\n", line.c_str());
  if (!r.folder.empty()) {
    const std::string matrix = r.folder + "/matrix.yaml";
    std::printf("wrote %zu presets and %s: assay matrix %s --dry-run\n", rungs.size(),
                matrix.c_str(), shell_word(matrix).c_str());
  }
  return kExitDone;
}

}  // namespace assay
