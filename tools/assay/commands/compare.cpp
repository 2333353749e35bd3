// assay compare: runs side by side, beside a public run and beside published figures.
#include "lab/compare/compare.h"

#include <cstdio>
#include <memory>
#include <optional>

#include "base/check.h"
#include "engine/telemetry/reader.h"
#include "lab/compare/anchor_report.h"
#include "lab/compare/compare_report.h"
#include "lab/compare/published_report.h"
#include "lab/matrix/folder.h"
#include "lab/page/matrix.h"
#include "lab/runs/run_labels.h"
#include "lab/runs/run_record.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/published.h"
#include "tools/assay/print_json.h"
#include "tools/assay/run_paths.h"

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

struct ComparedRun {
  std::string path;
  std::optional<RunRecord> record = {};  // if it has been read
};

// A run of a matrix; without its record, and with why, if it cannot be compared (yet).
ComparedRun matrix_run(const std::string& path, std::string& why) {
  try {
    const TelemetryReader telemetry(telemetry_file(path));
    if (telemetry.steps_done() > 0) return {.path = path, .record = read_run(path, telemetry)};
    why = "it has made no step yet";
  } catch (const UserError& error) {
    why = error.what();
  }
  return {.path = path};
}

// With the runs of each matrix among the paths in its place. What is left out is said.
std::vector<ComparedRun> runs_at(const std::vector<std::string>& paths) {
  std::vector<ComparedRun> runs;
  for (const std::string& path : run_paths(paths)) {
    if (!is_matrix_folder(path)) {
      runs.push_back({.path = path});
      continue;
    }
    for (const std::string& one : matrix_runs(path)) {
      std::string why;
      ComparedRun run = matrix_run(one, why);
      if (run.record) {
        runs.push_back(std::move(run));
      } else {
        note_left_out(one, why);
      }
    }
  }
  if (runs.empty() && !paths.empty()) {
    throw UserError("nothing is left to compare: " + paths.front() + " has no run with a step",
                    "give runs that have made a step, or the folder of a matrix that has any");
  }
  return runs;
}

std::vector<RunRecord> read_compared(const std::vector<std::string>& given) {
  std::vector<ComparedRun> runs = runs_at(given);
  std::vector<std::string> paths;
  for (const ComparedRun& run : runs) paths.push_back(run.path);
  const std::vector<std::string> labels = run_labels(paths);
  std::vector<RunRecord> records;
  for (size_t i = 0; i < runs.size(); ++i) {
    records.push_back(runs[i].record ? std::move(*runs[i].record) : read_run(paths[i]));
    records.back().name = labels[i];
  }
  return records;
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
  const std::vector<RunRecord> runs = read_compared(a.runs);
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
