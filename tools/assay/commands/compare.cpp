// assay compare: runs side by side, beside a public run and beside published figures.
#include "lab/compare/compare.h"

#include <cstdio>
#include <memory>

#include "base/check.h"
#include "engine/telemetry/reader.h"
#include "lab/compare/anchor_report.h"
#include "lab/compare/compare_report.h"
#include "lab/compare/published_report.h"
#include "lab/matrix/folder.h"
#include "lab/page/matrix.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/published.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPublicTarget = 3.28;  // nats per token: the target of the public speedruns

struct CompareArguments {
  std::vector<std::string> runs;
  std::string contract, anchor, published;
  std::optional<double> target;
  bool force = false, json = false;
};

void check_arguments(const CompareArguments& a) {
  if (a.runs.empty() && a.anchor.empty() && a.published.empty())
    throw UserError("assay compare needs runs, an --anchor log or --published figures",
                    "assay compare runs/a runs/b, or assay compare --published list");
  require_contract_kind(a.contract);
  if (a.target && !(*a.target > 0 && *a.target < 1e6))
    throw UserError(strprintf("--target %g is not a loss", *a.target),
                    "give nats per token, for example 3.28");
}

// Why a run of a matrix cannot be compared (yet); "" if it can.
std::string not_comparable(const std::string& run) {
  try {
    return TelemetryReader(telemetry_file(run)).steps_done() > 0 ? "" : "it has made no step yet";
  } catch (const UserError& error) {
    return error.what();
  }
}

// With the runs of each matrix among the paths in its place. What is left out is said.
std::vector<std::string> compared_runs(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  const auto leave_out = [](const std::string& path, const std::string& why) {
    std::fprintf(stderr, "note: left out: %s: %s\n", path.c_str(), why.c_str());
  };
  for (const std::string& path : paths) {
    if (is_beside_matrix_runs(path)) {
      leave_out(path, "no run, but a folder of its matrix");
    } else if (!is_matrix_folder(path)) {
      runs.push_back(path);
    } else {
      for (const std::string& run : matrix_runs(path)) {
        const std::string why = not_comparable(run);
        if (why.empty()) {
          runs.push_back(run);
        } else {
          leave_out(run, why);
        }
      }
    }
  }
  if (runs.empty() && !paths.empty()) {
    throw UserError("nothing is left to compare: " + paths.front() + " has no run with a step",
                    "give runs that have made a step, or the folder of a matrix that has any");
  }
  return runs;
}

CompareOptions options_of(const CompareArguments& a) {
  CompareOptions options;
  if (!a.contract.empty()) options.contract = a.contract;
  options.target_loss = a.target;
  if (a.force) options.incomparable = Incomparable::kMark;
  return options;
}

int run_compare(const CompareArguments& a) {
  check_arguments(a);
  if (a.published == "list") return list_published_studies(a.json);
  // Errors in files are reported before any table is printed.
  std::optional<PublishedStudy> study;
  if (!a.published.empty()) study = published_study(a.published);
  std::optional<AnchorLog> anchor;
  if (!a.anchor.empty()) anchor = read_anchor_log(a.anchor);
  const std::vector<RunRecord> runs = read_runs(compared_runs(a.runs));
  Comparison comparison;
  if (!runs.empty()) comparison = compare(runs, options_of(a));

  const std::optional<double>& common = comparison.target_loss;
  const double anchor_target = a.target.value_or(common.value_or(kPublicTarget));
  const std::optional<double> study_target = common ? common : study ? study->target_loss : common;
  if (a.json) {
    Json json;
    if (!runs.empty()) json = comparison_json(comparison);
    if (anchor) json["anchor"] = anchor_json(*anchor, anchor_target, comparison.models);
    if (study) json["published"] = published_json(*study, comparison.models, study_target);
    if (anchor && anchor->unknown_lines > 0)
      std::fprintf(stderr, "warning: %s: %s\n", a.anchor.c_str(), anchor->warning().c_str());
    print_json(json);
    return kExitDone;
  }
  std::vector<std::string> parts;
  if (!runs.empty()) parts.push_back(comparison_text(comparison));
  if (anchor) parts.push_back(anchor_text(*anchor, anchor_target, comparison.models));
  if (study) parts.push_back(published_text(*study, comparison.models, study_target));
  for (size_t i = 0; i < parts.size(); ++i)
    std::printf("%s%s", i > 0 ? "\n" : "", parts[i].c_str());
  return kExitDone;
}

}  // namespace

void add_compare_command(Commands& commands) {
  auto a = std::make_shared<CompareArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "compare", "compare runs: losses with intervals over seeds, time to a target loss");
  sub->add_option(
      "RUN", a->runs,
      "run directories, or folders of matrices; runs that differ only in seed count as one "
      "model");
  add_contract_option(sub, a->contract);
  sub->add_option("--target", a->target,
                  "validation loss in nats per token; steps, tokens and time to reach it are "
                  "compared (default: run.target_loss; 3.28 for --anchor alone)");
  sub->add_option("--anchor", a->anchor,
                  "compare with the log of a public run (modded-nanogpt or llm.c)");
  sub->add_option("--published", a->published,
                  "compare with the figures of a published study; --published list names them");
  sub->add_flag("--force", a->force,
                "compare runs even if tokenizer, data, sequence length or validation tokens "
                "differ; the tables say so");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay compare runs/dense-s1 runs/dense-s2 runs/moe-s1 runs/moe-s2\n"
      "  assay compare runs/cpu               the runs of a matrix, of all its contracts\n"
      "  assay compare runs/moe-s1 --published 0003\n"
      "  assay compare runs/moe-s1 --anchor modded-nanogpt.log\n"
      "docs/compare.md explains the tables.");
  commands.on_chosen(sub, [a] { return run_compare(*a); });
}

}  // namespace assay
