#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/run/checkpoint.h"
#include "engine/telemetry/telemetry.h"
#include "lab/matrix/edits_text.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/selection.h"
#include "lab/matrix/state.h"
#include "lab/matrix/summary.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/matrix_family.h"

namespace assay::test_matrix_state {
namespace {

using matrix_family::Family;
using matrix_family::kMatrix;

constexpr const char* kOneContract =
    "name: m\nmodels: {dense: dense.yaml, large: large.yaml}\ncontracts: [{kind: steps}]\n"
    "precisions: [fp32]\nseeds: [1, 2]\n";

void record_steps(const std::string& run, int64_t steps) {
  Telemetry telemetry(
      run + "/telemetry.db",
      {.scalars = {"train_loss_nats"}, .spans = {"step"}, .layers = {1}, .experts = 4});
  for (int64_t step = 1; step <= steps; ++step) {
    StepRecord& r = telemetry.begin_step(step);
    r.scalars = {5.0};
    r.spans_ms[0] = 1;
    telemetry.commit();
  }
}

void save(const std::string& run, int64_t step) {
  std::vector<float> weight(100, 1.0f);
  const std::vector<TensorRef> tensors = {
      {.name = "weight", .dtype = DType::kF32, .shape = {100}, .data = weight.data()}};
  TrainingState state;
  state.step = step;
  Checkpoints(run, 1, {}).save(state, tensors, tensors);
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a partial run resumes from its newest whole checkpoint, or begins again") {
  const Family family;
  const Matrix m = family.matrix(kOneContract);  // of 60 steps
  const Cell& cell = m.cells.front();
  const std::string run = family.runs().run(cell);
  family.begin(cell);
  REQUIRE(progress_text(family.runs().status(cell)) == "partial (step 0)");
  record_steps(run, 25);
  const CellStatus unsaved = family.runs().status(cell);
  REQUIRE((unsaved.steps_done == 25 && unsaved.saved == 0 && unsaved.kept() == 0));
  REQUIRE(progress_text(unsaved) == "partial (step 25, begins again)");

  save(run, 20);
  const CellStatus saved = family.runs().status(cell);
  REQUIRE((saved.saved == 20 && saved.kept() == 20 && !saved.telemetry_lost));
  REQUIRE(progress_text(saved) == "partial (step 25, resumes after step 20)");
  const MatrixPlan plan = plan_matrix(m, family.runs(), {&cell});
  REQUIRE(contains(plan_text(plan), strprintf("%.3e of them left", cell.flops_after(20))));
  // One of the checkpoints that it keeps is there.
  REQUIRE(cell.disk.each > 0);
  REQUIRE(plan.checkpoint_bytes_left() == cell.disk.each * (cell.disk.most - 1));
  REQUIRE(nlohmann::json::parse(plan_json(plan))["runs"][0]["resumes_after"] == 20);

  save(run, 25);
  REQUIRE(progress_text(family.runs().status(cell)) == "partial (step 25)");
  std::filesystem::resize_file(run + "/checkpoints/step-00000025/model.safetensors", 10);
  REQUIRE(family.runs().status(cell).saved == 0);  // the older one was removed
}

TEST_CASE("a run without its telemetry is not taken for one that made no steps") {
  const Family family;
  const Matrix m = family.matrix(kOneContract);
  const Cell& cell = m.cells.front();
  const std::string run = family.runs().run(cell);
  family.begin(cell);
  save(run, 20);
  const CellStatus part = family.runs().status(cell);
  REQUIRE((part.telemetry_lost && !part.trained && part.kept() == 20));
  REQUIRE(progress_text(part) == "partial (resumes after step 20, its telemetry is lost)");
  save(run, 60);
  REQUIRE(progress_text(family.runs().status(cell)) == "trained, its telemetry is lost");
  const std::string text = plan_text(plan_matrix(m, family.runs(), {&cell}));
  REQUIRE(contains(text, "  trained, its telemetry is lost\n"));
  REQUIRE(contains(text, "\n     hint: its router measures"));

  // A branch begins with a checkpoint of its trunk, before it has telemetry.
  Cell branch = cell;
  branch.branch_step = 60;
  REQUIRE(!family.runs().status(branch).telemetry_lost);
}

TEST_CASE("the tables say how far a missing run is by its own last step") {
  const Family family;
  const Matrix m = family.matrix(kOneContract);  // of 60 steps
  const Cell& cell = m.cells.front();
  const std::string run = family.runs().run(cell), name = cell.name + ": ";
  const auto missing = [&] {
    return summarise_matrix(m, family.runs()).tables.front().rows.front().missing.front();
  };
  family.begin(cell);
  REQUIRE(missing() == name + "partial");
  save(run, 20);
  REQUIRE(missing() == name + "partial, its telemetry is lost, step 20 of 60");
  record_steps(run, 10);  // a file of an earlier day
  REQUIRE(missing() == name + "partial, step 20 of 60");
  std::filesystem::remove(run + "/telemetry.db");
  save(run, 60);
  REQUIRE(missing() == name + "trained, its telemetry is lost, step 60 of 60");
  Config other = cell.config;
  other.run.steps = 90;
  write_file_atomic(run + "/config.yaml", to_yaml(other));
  record_steps(run, 70);
  REQUIRE(missing() == name + "partial, its run has another configuration or other data, step 70");
}

TEST_CASE("a plan says which cell could not begin") {
  const Family family;
  const Matrix m = family.matrix(kOneContract);
  const Cell& cell = m.cells.front();
  REQUIRE(!family.runs().status(cell).blocked);
  make_folders(family.runs().run(cell));
  REQUIRE(!family.runs().status(cell).blocked);
  record_steps(family.runs().run(cell), 5);
  const CellStatus status = family.runs().status(cell);
  REQUIRE((status.state == CellState::kWaiting && status.blocked));
  const MatrixPlan plan = plan_matrix(m, family.runs(), {&cell});
  const std::string text = plan_text(plan);
  REQUIRE(contains(text, "FAILS: " + family.runs().run(cell) + " has files but no run in it\n"));
  REQUIRE(contains(text, "\n     hint: put its config"));
  REQUIRE(nlohmann::json::parse(plan_json(plan))["runs"][0].contains("blocked"));
  // Nor do the tables say that it only waits, as the row's other seed does.
  const MatrixSummary summary = summarise_matrix(m, family.runs());
  const SummaryRow& row = summary.tables.front().rows.front();
  REQUIRE((row.missing.size() == 2 && row.waiting == 1));
  REQUIRE(contains(row.missing[0] + row.missing[1], "has files but no run in it"));
}

TEST_CASE("a plan says how many runs undecided claims may add") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);  // of two seeds with four runs each
  std::vector<const Cell*> all;
  for (const Cell& cell : m.cells) all.push_back(&cell);
  MatrixPlan plan = plan_matrix(m, family.runs(), all);
  REQUIRE(!contains(plan_text(plan), "at most"));
  plan.most_seeds = 6;
  REQUIRE(contains(plan_text(plan),
                   "\nat most 24 runs: claims that stay undecided add seeds, up "
                   "to 6\n"));
  REQUIRE(nlohmann::json::parse(plan_json(plan))["most_runs"] == 24);
}

TEST_CASE("an edit that a forgotten --set makes names it, and each difference once") {
  const Family family;
  const Matrix first = lay_out(family.file(kOneContract, {"run.steps=20"}));
  make_folders(family.runs().path());
  write_matrix(family.runs(), first, {});
  family.begin(first.cells[0]);
  family.begin(first.cells[1]);
  family.runs().write_config(first.cells[2]);
  const Matrix now = family.matrix(kOneContract);
  const MatrixEdits edits = find_edits(family.runs(), now);
  REQUIRE((edits.changed_cells.size() == 2 && edits.moved.size() == 2 && edits.finished == 0));
  std::string lines;
  for (const std::string& line : edit_lines(edits)) lines += line + "\n";
  for (const char* said :
       {"  changed before they started:\n", "    large-steps-fp32-seed1: run.steps: 20 -> 60\n",
        "    1 cell: large-steps-fp32-seed2\n", "  changed after they started:\n",
        "    run.steps: 20 -> 60 (2 cells: dense-steps-fp32-seed1, dense-steps-fp32-seed2)\n"}) {
    REQUIRE(contains(lines, said));
  }
  REQUIRE(give_back_text(edits) == "they were trained with --set run.steps=20: give it again");
  REQUIRE(changed_runs_text(edits) == "2 runs");
  REQUIRE(!find_edits(family.runs(), first).any());

  // A record of an earlier version has no --set: the runs have what differs.
  const std::string path = family.runs().file(kMatrixRecord);
  auto record = nlohmann::ordered_json::parse(read_file(path));
  record.erase("sets");
  write_file_atomic(path, record.dump());
  REQUIRE(give_back_text(find_edits(family.runs(), now)) ==
          "if they were trained with --set run.steps=20, give it again");
  // It would change a run that is as the file has it.
  family.begin(now.cells[2]);
  REQUIRE(give_back_text(find_edits(family.runs(), now)).empty());
}

TEST_CASE("an edit of the file itself is no forgotten --set") {
  const Family family;
  make_folders(family.runs().path());
  write_matrix(family.runs(), family.matrix(kOneContract), {});
  family.begin(family.matrix(kOneContract).cells.front());
  const MatrixEdits edits = find_edits(
      family.runs(), family.matrix(std::string(kOneContract) + "set: {run.steps: 40}\n"));
  REQUIRE((edits.changed_cells.size() == 1 && give_back_text(edits).empty()));
}

TEST_CASE("the --set of runs that still differ stays recorded") {
  const Family family;
  const Matrix first = lay_out(family.file(kOneContract, {"run.steps=20"}));
  make_folders(family.runs().path());
  write_matrix(family.runs(), first, {});
  family.begin(first.cells[0]);
  family.begin(first.cells[2]);
  const Matrix now = family.matrix(kOneContract);
  const auto write = [&] { write_matrix(family.runs(), now, find_edits(family.runs(), now)); };
  const auto named = [&] { return give_back_text(find_edits(family.runs(), now)); };
  const auto record = [&] {
    return nlohmann::ordered_json::parse(read_file(family.runs().file(kMatrixRecord)));
  };
  write();  // the command dies before it deletes a run
  REQUIRE(named() == "they were trained with --set run.steps=20: give it again");
  family.begin(now.cells[0]);  // --only
  write();
  REQUIRE(named() == "they were trained with --set run.steps=20: give it again");
  auto old = record();
  old.erase("sets");  // of an earlier version: what these runs were given stays unknown
  write_file_atomic(family.runs().file(kMatrixRecord), old.dump());
  write();
  REQUIRE(record()["sets"].is_null());
  family.begin(now.cells[2]);
  write();
  REQUIRE(record()["sets"] == nlohmann::ordered_json::array());
}

TEST_CASE("a --set is named only if what it gives differs") {
  const Family family;
  make_folders(family.runs().path());
  const Matrix first =
      lay_out(family.file(kOneContract, {"run.checkpoint_every=6", "run.steps= 20"}));
  write_matrix(family.runs(), first, {});
  const auto edits_with = [&](const std::string& steps, const std::string& more) {
    return find_edits(family.runs(),
                      lay_out(family.file(std::string(kOneContract) + more, {steps})));
  };
  const MatrixEdits waiting = edits_with("run.steps=30", "");
  REQUIRE(edit_lines(waiting).back() ==
          "  matrix.json has --set run.checkpoint_every=6 --set 'run.steps= 20', not given now");
  REQUIRE(give_back_text(waiting).empty());  // nothing was trained
  family.begin(first.cells.front());
  REQUIRE(give_back_text(edits_with("run.steps=30", "")) ==
          "they were trained with --set 'run.steps= 20': give it again");
  const MatrixEdits rate = edits_with("run.steps=20", "set: {optimizer.lr: 2e-3}\n");
  REQUIRE((rate.changed.size() == 1 && rate.missing_sets->size() == 2));
  REQUIRE(give_back_text(rate).empty());
}

TEST_CASE("steps that a contract derives are not given back by --set") {
  const Family family;
  REQUIRE(find_edits(family.runs(), family.matrix(kMatrix)).derived_steps);
  REQUIRE(!find_edits(family.runs(), family.matrix(kOneContract)).derived_steps);
  MatrixEdits edits;
  edits.changed = {{"a", {.field = "run.steps", .before = "20", .now = "40"}}};
  edits.changed_cells = {"a"};
  REQUIRE(sets_to_give_back(edits) == std::vector<std::string>{"run.steps=20"});
  edits.derived_steps = true;
  REQUIRE(sets_to_give_back(edits).empty());
  // A --set of the contract is known by the steps that it gave.
  edits.missing_sets = {"contract.coefficient=10", "optimizer.lr=1"};
  REQUIRE(sets_to_give_back(edits) == std::vector<std::string>{"contract.coefficient=10"});
}

TEST_CASE("--set over what models set themselves is noted") {
  const Family family;
  const std::string text =
      "models:\n  dense: dense.yaml\n"
      "  a: {config: moe.yaml, set: {model.moe.experts: 8}}\n"
      "  b: {config: moe.yaml, set: {model.moe: {experts: 16}}}\n";
  const auto notes = [&](const std::string& set) {
    return replaced_settings(family.file(text, {set}));
  };
  using Notes = std::vector<std::string>;
  REQUIRE(notes("model.moe.experts=4") ==
          Notes{"--set model.moe.experts=4 replaces what 2 models set themselves, and is given to "
                "the 1 other too"});
  REQUIRE(notes("model.moe.experts=8") ==  // `a` has it
          Notes{"--set model.moe.experts=8 replaces what 1 model sets itself, and is given to the "
                "2 others too"});
  REQUIRE(notes("model.moe=null").size() == 1);
  REQUIRE(notes("model={moe: {experts: 2}}").size() == 1);
  REQUIRE(notes("model.moe.top_k=2").empty());
}

TEST_CASE("--only takes patterns") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  const auto models = [&](const std::vector<std::string>& only) {
    std::string names;
    for (const Cell* cell : selected_cells(m, only)) {
      if (!contains(names, cell->model + " ")) names += cell->model + " ";
    }
    return names;
  };
  REQUIRE(models({}) == "dense moe large ");
  REQUIRE(models({"*oe", "l*"}) == "moe large ");
  REQUIRE(models({"d*", "large"}) == "dense large ");
  REQUIRE(models({"fp*"}) == "dense moe large ");
  REQUIRE(models({"fp32", "m?e"}) == "moe ");
  expect_error([&] { models({"x*"}); }, "--only x* is not a model or precision of ");
  REQUIRE((leaves_out(m.file, {"d*"}, "moe") && !leaves_out(m.file, {"d*"}, "dense")));
  REQUIRE(!leaves_out(m.file, {"fp32"}, "moe"));
}

}  // namespace assay::test_matrix_state
