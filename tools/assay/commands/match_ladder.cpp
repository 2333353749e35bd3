#include "tools/assay/commands/match_ladder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/shell_word.h"
#include "engine/config/fields.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "lab/matrix/file.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"
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
  require_usable(r, base, rungs);
  return rungs;
}

std::string ladder_text(const Config& base, const std::vector<Rung>& rungs) {
  TextTable table({"model", "layers", "hidden", "E", "K", "S", "F", "steps", "P_total", "percent",
                   "P_active", "percent", "FLOPs/token", "percent"});
  for (const Rung& rung : rungs) {
    const ModelConfig& m = rung.config.model;
    const Audit a = audit(rung.config);
    const RungResiduals residual = rung_residuals(base, rung.config);
    const auto percent = [](double value) { return strprintf("%+.3f%%", value); };
    const auto of_moe = [&](int64_t value) { return m.moe ? grouped(value) : std::string(); };
    table.add({rung.name, grouped(m.layers), grouped(m.hidden), of_moe(m.moe ? m.moe->experts : 0),
               of_moe(m.moe ? m.moe->top_k : 0), of_moe(m.moe ? m.moe->shared : 0),
               grouped(m.moe ? m.moe->expert_ffn : m.ffn), grouped(rung.config.run.steps),
               grouped(a.total), percent(residual.total), grouped(a.active),
               percent(residual.active), grouped(a.flops_per_token), percent(residual.flops)});
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
// horizons, which are the rungs' own.
std::string contracts_line(const LadderRequest& r, const std::string& first) {
  if (!r.horizons.empty()) return "";
  if (r.contract.empty()) return "contracts: [{kind: steps}]\n";
  const std::string kind = r.contract == "total"    ? "totalDN"
                           : r.contract == "active" ? "activeDN"
                                                    : "flops";
  return "contracts: [{kind: " + kind + ", reference: " + first + "}]\n";
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

Json ladder_json(const LadderRequest& r, const Config& base, const std::vector<Rung>& rungs) {
  Json json;
  json["like"] = r.like;
  json["rungs"] = Json::array();
  for (const Rung& rung : rungs) {
    const Audit a = audit(rung.config);
    const RungResiduals residual = rung_residuals(base, rung.config);
    const ModelConfig& m = rung.config.model;
    Json j;
    j["name"] = rung.name;
    j["layers"] = m.layers;
    j["hidden"] = m.hidden;
    j["steps"] = rung.config.run.steps;
    if (m.moe) {
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
  const Config base = load_config(r.like, r.sets);
  const std::vector<Rung> rungs = rungs_of(r, base);
  if (!r.folder.empty() && !r.sets.empty()) {
    throw UserError("--set changes the base, which the presets of -o only name",
                    "write the change into " + r.like + ", or leave out -o");
  }
  if (!r.folder.empty()) write_ladder(r, rungs);
  if (r.json) {
    print_json(ladder_json(r, base, rungs));
    return kExitDone;
  }
  std::printf("%s: P_total %s, P_active %s; percent: of the difference to it\n", r.like.c_str(),
              grouped(audit(base).total).c_str(), grouped(audit(base).active).c_str());
  std::fputs(ladder_text(base, rungs).c_str(), stdout);
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
