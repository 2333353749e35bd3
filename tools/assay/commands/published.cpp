// assay published list, show, check, receipts, scoreboard: the figures of published studies.
#include "tools/assay/commands/published.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "engine/config/paths.h"
#include "lab/compare/published_check.h"
#include "lab/compare/published_receipts.h"
#include "lab/compare/published_report.h"
#include "lab/matrix/scoreboard.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

struct PublishedArguments {
  std::string name;
  bool json = false;
};

int run_show(const PublishedArguments& a) {
  const PublishedStudy study = published_study(a.name);
  if (a.json) {
    print_json({{"published", published_json(study, {}, study.target_loss)}});
    return kExitDone;
  }
  std::printf("%s", published_text(study, {}, study.target_loss).c_str());
  return kExitDone;
}

int run_check(const PublishedArguments& a) {
  const bool all = a.name == "all";
  std::vector<CheckedFigure> every;
  Json json;
  std::string text;
  for (const std::string& name : all ? published_names() : std::vector<std::string>{a.name}) {
    const PublishedStudy study = published_study(name);
    const std::vector<CheckedFigure> figures = check_published(study);
    json[name] = check_json(figures);
    text += (text.empty() ? "" : "\n") + check_text(study, figures);
    every.insert(every.end(), figures.begin(), figures.end());
  }
  if (all) text += "all: " + count_line(every) + "\n";
  if (a.json) {
    print_json(json);
  } else {
    std::printf("%s", text.c_str());
  }
  return count_of(every, Verdict::kFailed) > 0 ? kExitVerificationFailed : kExitDone;
}

void add_list(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<PublishedArguments>();
  CLI::App* sub = parent->add_subcommand("list", "names and titles of the studies");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  commands.on_chosen(sub, [a] { return list_published_studies(a->json); });
}

void add_show(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<PublishedArguments>();
  CLI::App* sub = parent->add_subcommand("show", "the figures of a study");
  sub->add_option("NAME", a->name, "study, see `assay published list`")->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Example:\n"
      "  assay published show 0003\n"
      "`assay compare RUN --published 0003` shows your runs beside them.");
  commands.on_chosen(sub, [a] { return run_show(*a); });
}

void add_check(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<PublishedArguments>();
  CLI::App* sub =
      parent->add_subcommand("check", "recompute every figure of a study that can be derived");
  sub->add_option("NAME", a->name, "study, or all of them: all")->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "A figure is the same if what is derived, as far as its rounded inputs are known, rounds to "
      "the digits that were printed. Parameters, FLOPs and horizons come from models/presets. "
      "The exit code is 0 also where figures differ, and 2 if a derivation fails.\n"
      "Examples:\n"
      "  assay published check 0004\n"
      "  assay published check all --json");
  commands.on_chosen(sub, [a] { return run_check(*a); });
}

struct ReceiptsArguments {
  std::string file, artifacts;
  bool json = false;
};

int run_receipts(const ReceiptsArguments& a) {
  const PublishedReceipts receipts = read_published_receipts(a.file);
  const auto figures = compare_receipts(published_study(receipts.post), receipts);
  if (a.json) {
    print_json(receipts_json(receipts, figures, a.artifacts));
  } else {
    std::printf("%s", receipts_text(receipts, figures, a.artifacts).c_str());
  }
  return kExitDone;
}

void add_receipts(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<ReceiptsArguments>();
  CLI::App* sub = parent->add_subcommand(
      "receipts", "a study's own receipts beside the figures that it printed");
  sub->add_option("FILE", a->file, "NAME.receipts.json of the study's repository")->required();
  sub->add_option("--artifacts", a->artifacts, "folder in which to look for the named artifacts");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "A figure is the same if the value in the receipts rounds to the digits that were printed. "
      "The exit code is 0 also where figures differ.\n"
      "Example:\n"
      "  assay published receipts nmoe/repro/0003.receipts.json --artifacts nmoe");
  commands.on_chosen(sub, [a] { return run_receipts(*a); });
}

struct ScoreboardArguments {
  ScoreboardSource source;
  std::string output;
};

// The matrices of the studies that came with the program.
std::vector<std::string> study_files() {
  const std::string folder = preset_or_path("models/presets/posts");
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(".yaml")) files.push_back(folder + "/" + name);
  }
  if (files.empty()) {
    throw UserError(folder + " has no matrix file", "name the matrices: --claims FILE...");
  }
  return files;
}

int run_scoreboard(const ScoreboardArguments& a) {
  ScoreboardSource source = a.source;
  source.page = a.output;
  if (source.files.empty()) source.files = study_files();
  const std::string page = scoreboard_markdown(source);
  if (a.output.empty()) {
    std::printf("%s", page.c_str());
  } else {
    write_file_atomic(a.output, page);
    std::fprintf(stderr, "%s: %ld matrices\n", a.output.c_str(), long(source.folders.size()));
  }
  return kExitDone;
}

void add_scoreboard(Commands& commands, CLI::App* parent) {
  auto a = std::make_shared<ScoreboardArguments>();
  CLI::App* sub = parent->add_subcommand(
      "scoreboard", "every claim of the studies: holds, fails, undecided or untested");
  sub->add_option("FOLDER", a->source.folders, "folders of trained matrices, e.g. runs/0003-mini");
  sub->add_option("--claims", a->source.files,
                  "matrix files whose claims are listed (default: models/presets/posts)");
  sub->add_option("--evidence", a->source.evidence,
                  "link NAME.tar.zst in this folder instead of FOLDER");
  sub->add_option("-o,--output", a->output, "markdown file to write (default: stdout)");
  sub->footer(
      "A claim of a file is untested if no FOLDER is of that matrix.\n"
      "Example:\n"
      "  assay published scoreboard runs/*-mini -o scoreboard.md");
  commands.on_chosen(sub, [a] { return run_scoreboard(*a); });
}

}  // namespace

int list_published_studies(bool json) {
  if (json) {
    print_json({{"published", published_list_json()}});
  } else {
    std::printf("%s", published_list_text().c_str());
  }
  return kExitDone;
}

void add_published_commands(Commands& commands) {
  CLI::App* parent = commands.app.add_subcommand(
      "published", "published studies: their figures, recomputed; their claims, tested");
  parent->require_subcommand(1);
  parent->footer(
      "Examples:\n"
      "  assay published show 0003\n"
      "  assay published check all\n"
      "  assay published scoreboard runs/*-mini\n"
      "docs/published/README.md describes the files.");
  add_list(commands, parent);
  add_show(commands, parent);
  add_check(commands, parent);
  add_receipts(commands, parent);
  add_scoreboard(commands, parent);
}

}  // namespace assay
