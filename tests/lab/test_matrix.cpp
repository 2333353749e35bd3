#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "lab/matrix/budget.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/report.h"
#include "lab/matrix/state.h"
#include "lab/matrix/table_contract.h"
#include "models/audit/contract.h"
#include "models/audit/horizon.h"
#include "tests/catch.h"
#include "tests/lab/matrix_family.h"

namespace assay::test_matrix {
namespace {

using matrix_family::edited;
using matrix_family::Family;
using matrix_family::kMatrix;

}  // namespace

TEST_CASE("cells are contracts x models x precisions x seeds") {
  const Family family;
  const Matrix m = family.matrix(edited("[fp32]", "[fp32, fp8_block]"));
  REQUIRE(m.cells.size() == 24);
  REQUIRE(m.cells[0].name == "dense-activeDN-fp32-seed1");
  REQUIRE(m.cells[1].name == "dense-activeDN-fp32-seed2");
  REQUIRE(m.cells[2].name == "dense-activeDN-fp8_block-seed1");
  REQUIRE(m.cells[23].name == "large-totalDN-fp8_block-seed2");
  REQUIRE(m.cells[1].config.run.seed == 2);
  REQUIRE(m.cells[0].unavailable.empty());
  REQUIRE_THAT(m.cells[2].unavailable,
               Catch::Matchers::StartsWith(
                   "precision fp8_block: attention.fprop in fp8_1x128 needs blocks of 128"));
  REQUIRE(m.cells[2].steps() == m.cells[0].steps());
  REQUIRE(m.cells[0].memory_bytes > 0);
}

TEST_CASE("of a GPU's memory a cell has its plan there, and what its process takes besides") {
  const Family family;
  const ModelPlace gpu{.backend = Backend::kGpu};
  const Cell cell = lay_out(family.file(kMatrix), gpu).cell("moe-totalDN-fp32-seed1");
  const TrainingMemory memory(cell.config, resolve_recipe("fp32"), gpu);
  const size_t on_host =
      memory.plan.section_bytes(Section::kHostVisible) + memory.plan.section_bytes(Section::kData);
  REQUIRE(cell.memory_bytes == int64_t(memory.plan.total_bytes() - on_host) + (1 << 30));
}

TEST_CASE("the reference trains for its own steps, the others for as many tokens per parameter") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  for (const Cell& cell : m.cells) {
    const Cell& dense = m.cell("dense-" + cell.contract + "-fp32-seed1");
    REQUIRE(dense.steps() == 60);
    const int64_t all = contract_parameters(*choice_named<ContractKind>(cell.contract), cell.audit);
    REQUIRE(cell.steps() == 60 * all / dense.audit.total);
  }
  REQUIRE(m.cell("moe-totalDN-fp32-seed1").steps() > m.cell("moe-activeDN-fp32-seed1").steps());
}

TEST_CASE("a model's own changes follow those of the matrix, and --set follows both") {
  const Family family;
  const std::string text =
      edited("large: large.yaml",
             "slow: {config: moe.yaml, set: {optimizer.lr: 1e-4, optimizer.beta2: 0.9}}") +
      "set: {optimizer.lr: 2e-3, optimizer.beta2: 0.99}\n";
  const Matrix m = lay_out(family.file(text, {"optimizer.beta2=0.8"}));
  const Config& moe = m.cell("moe-activeDN-fp32-seed1").config;
  const Config& slow = m.cell("slow-activeDN-fp32-seed1").config;
  REQUIRE(moe.optimizer.lr == 2e-3);
  REQUIRE(slow.optimizer.lr == 1e-4);
  REQUIRE(slow.optimizer.beta2 == 0.8);
  REQUIRE(slow.model.moe->experts == moe.model.moe->experts);
}

TEST_CASE("a run takes the steps that the matrix plans for a fraction of its horizon") {
  const Family family;
  const std::string text = edited(
      "- {kind: activeDN, reference: dense}",
      "- {kind: steps, fraction: 0.5}\n  - {kind: activeDN, reference: dense, fraction: 0.5}\n"
      "  - {kind: flops, reference: dense, fraction: 0.5}");
  for (const Cell& cell : family.matrix(text).cells) {
    Config as_trained = cell.config;
    resolve_steps(as_trained);  // what `assay train` does with it
    INFO(cell.name);
    REQUIRE(as_trained.run.steps == cell.steps());
    if (cell.model == "dense") REQUIRE(cell.steps() == (cell.contract == "totalDN" ? 60 : 30));
  }
}

TEST_CASE("totalDN without the shared experts has fewer steps") {
  const Family family;
  family.write("moe.yaml",
               "include: dense.yaml\n"
               "model: {moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 32}}\n");
  const auto steps = [&](const std::string& text) {
    return family.matrix(text).cell("moe-totalDN-fp32-seed1").steps();
  };
  const std::string counted = edited("totalDN, reference: dense", "totalDN, coefficient: 2");
  const std::string left_out =
      edited("totalDN, reference: dense", "totalDN, coefficient: 2, shared_in_total: false");
  REQUIRE(steps(left_out) < steps(counted));
}

TEST_CASE("cells that are the same run are trained once") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  // In dense models all parameters are active, so both contracts are the same run; not for the
  // mixture.
  REQUIRE(m.cell("dense-totalDN-fp32-seed2").run == "dense-activeDN-fp32-seed2");
  REQUIRE(m.cell("large-totalDN-fp32-seed1").run == "large-activeDN-fp32-seed1");
  REQUIRE(m.cell("moe-totalDN-fp32-seed1").run == "moe-totalDN-fp32-seed1");
  std::vector<std::string> order;
  for (const Cell* cell : m.order()) order.push_back(cell->name);
  REQUIRE(order == std::vector<std::string>{"dense-activeDN-fp32-seed1", "moe-activeDN-fp32-seed1",
                                            "large-activeDN-fp32-seed1", "moe-totalDN-fp32-seed1",
                                            "dense-activeDN-fp32-seed2", "moe-activeDN-fp32-seed2",
                                            "large-activeDN-fp32-seed2", "moe-totalDN-fp32-seed2"});
  // A different coefficient, seed or precision is a different run.
  const Matrix other =
      family.matrix(edited("totalDN, reference: dense", "totalDN, coefficient: 3"));
  REQUIRE(other.cell("dense-totalDN-fp32-seed1").run == "dense-totalDN-fp32-seed1");
  // Two models with one configuration share their runs too.
  family.write("same.yaml", "include: dense.yaml\n");
  const Matrix same = family.matrix(edited("large: large.yaml", "same: same.yaml"));
  REQUIRE(same.cell("same-activeDN-fp32-seed1").run == "dense-activeDN-fp32-seed1");
}

TEST_CASE("set changes every model, with paths from the matrix; --set comes last") {
  const Family family;
  const std::string text =
      std::string(kMatrix) +
      "set: {run.target_loss: 3.28, optimizer.lr: 1e-3, data.tokenizer: 't, [x].json'}\njobs: 2\n"
      "threads: 5\nmemory: 1.5GiB\n";
  const MatrixFile file = family.file(text, {"optimizer.lr=2e-3"});
  REQUIRE(file.jobs == 2);
  REQUIRE(file.memory_bytes == 1610612736);
  const Matrix m = lay_out(file);
  for (const Cell& cell : m.cells) {
    REQUIRE(cell.config.run.target_loss == 3.28);
    REQUIRE(cell.config.optimizer.lr == 2e-3);
    REQUIRE(cell.config.data.tokenizer == (family.folder / "t, [x].json"));
    REQUIRE(cell.config.run.threads == 2);
  }
}

TEST_CASE("precision auto is what it becomes on the device that trains") {
  const Family family;
  std::string text = kMatrix;
  text.replace(text.find("[fp32]"), 6, "[auto]");
  const Matrix m = lay_out(family.file(text), {.backend = Backend::kGpu});
  for (const Cell& cell : m.cells) {
    REQUIRE(cell.precision == "auto");
    REQUIRE(cell.config.precision.recipe == "bf16");
    REQUIRE(cell.config.precision.products == ProductsMode::kSimulated);
  }
}

TEST_CASE("products: auto of a quantised cell is what the machine made of it that trained") {
  const Family family;
  std::string text = kMatrix;
  text.replace(text.find("[fp32]"), 6, "[mxfp8]");
  const Matrix m = lay_out(family.file(text));
  const Config cell = m.cells.front().config;
  REQUIRE(cell.precision.products == ProductsMode::kAuto);
  Config trained = cell;
  for (const ProductsMode products : {ProductsMode::kSimulated, ProductsMode::kNative}) {
    trained.precision.products = products;
    REQUIRE(matrix_differences(trained, cell).empty());
  }
  Config decoded = cell;
  decoded.precision.products = ProductsMode::kSimulated;
  REQUIRE(matrix_differences(trained, decoded).size() == 1);
  REQUIRE(config_sha256(cell) == config_sha256(decoded));
  REQUIRE(config_sha256(cell) != config_sha256(trained));
}

TEST_CASE("the configuration of a cell is self-contained") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  for (const Cell& cell : m.cells) {
    family.runs().write_config(cell);
    const Config read = load_config(family.runs().config(cell));
    REQUIRE(planned_steps(read) == cell.steps());
    REQUIRE(matrix_differences(read, cell.config).empty());
    REQUIRE(config_sha256(read) == config_sha256(cell.config));
  }
}

TEST_CASE("models with different data are found") {
  const Family family;
  REQUIRE(different_data(family.matrix(kMatrix)).empty());
  family.write("large.yaml", "include: dense.yaml\ndata: {synth: {seed: 5}}\n");
  REQUIRE(different_data(family.matrix(kMatrix)) == "data.synth.seed of large is 5, of dense 1");
  family.write("large.yaml", "include: dense.yaml\neval: {tokens: 8192}\n");
  REQUIRE(different_data(family.matrix(kMatrix)) == "eval.tokens of large is 8192, of dense 4096");
  family.write("large.yaml", "include: dense.yaml\nrun: {sequence: 32}\n");
  REQUIRE(different_data(family.matrix(kMatrix)) == "run.sequence of large is 32, of dense 64");
  family.write("large.yaml", "include: dense.yaml\nrun: {target_loss: 3}\n");
  REQUIRE(different_data(family.matrix(kMatrix)) ==
          "run.target_loss of large is 3.0, of dense 0.0");
  // When a target is seen depends on how often the loss is measured; else that changes no result.
  family.write("large.yaml", "include: dense.yaml\neval: {every: 7}\n");
  REQUIRE(different_data(family.matrix(kMatrix)).empty());
  const std::string target = std::string(kMatrix) + "set: {run.target_loss: 3}\n";
  REQUIRE(different_data(family.matrix(target)).starts_with("eval.every of large is 7, of dense "));
  family.write("large.yaml", "include: dense.yaml\neval: {core: {bundle: b, max_tokens: 32}}\n");
  REQUIRE(different_data(family.matrix(kMatrix)).empty());
  const std::string scored = std::string(kMatrix) + "set: {eval.core.bundle: b}\n";
  REQUIRE(different_data(family.matrix(scored)) ==
          "eval.core.max_tokens of large is 32, of dense 64");
  family.write("large.yaml", "include: dense.yaml\neval: {core: {bundle: b, max_tokens: 64}}\n");
  REQUIRE(different_data(family.matrix(scored)).empty());  // the whole sequence, as without it
}

TEST_CASE("a run under a contract in seconds is that of its cell, whatever it measured") {
  const Family family;
  const Matrix m = family.matrix(
      "models: {dense: dense.yaml}\nprecisions: [fp32]\n"
      "contracts: [{kind: seconds, coefficient: 2}]\n");
  const Cell& cell = m.cells.front();
  REQUIRE(!cell.known_steps);
  Config trained = cell.config;  // as session/training_run.cpp leaves it
  trained.contract.step_seconds = 0.05;
  trained.contract.derived_from = "step_seconds measured when the run began";
  resolve_steps(trained);
  REQUIRE(trained.run.steps == 40);
  REQUIRE(matrix_differences(trained, cell.config).empty());
  trained.contract.coefficient = 3;
  REQUIRE(matrix_differences(trained, cell.config).size() == 1);
}

TEST_CASE("a contract in seconds takes a model's own step_seconds") {
  const Family family;
  family.write("slow.yaml", "include: dense.yaml\ncontract: {step_seconds: 0.05}\n");
  family.write("slower.yaml", "include: dense.yaml\ncontract: {step_seconds: 0.1}\n");
  const Matrix m = family.matrix(
      "models: {dense: dense.yaml, slow: slow.yaml, slower: slower.yaml}\nprecisions: [fp32]\n"
      "contracts: [{kind: seconds, coefficient: 2}]\n");
  REQUIRE(!m.cells[0].known_steps);
  REQUIRE((m.cells[1].known_steps && m.cells[1].steps() == 40));
  REQUIRE((m.cells[2].known_steps && m.cells[2].steps() == 20));
  REQUIRE((m.cells[1].trained() && m.cells[2].trained()));
  REQUIRE(matrix_differences(m.cells[1].config, m.cells[1].config).empty());
  REQUIRE(matrix_differences(m.cells[1].config, m.cells[2].config) ==
          std::vector<FieldDifference>{
              {.field = "contract.step_seconds", .before = "0.05", .now = "0.1"}});
  REQUIRE(matrix_differences(m.cells[1].config, m.cells[0].config) ==
          std::vector<FieldDifference>{
              {.field = "contract.step_seconds", .before = "0.05", .now = "measured"}});
  // Under another contract it has no meaning.
  const Matrix steps =
      family.matrix("models: {slow: slow.yaml}\nprecisions: [fp32]\ncontracts: [{kind: steps}]\n");
  REQUIRE((steps.cells[0].steps() == 60 && steps.cells[0].config.contract.step_seconds == 0));
}

TEST_CASE("a model's set may give its step_seconds, and the reference's give the seconds") {
  const Family family;
  const Matrix m = family.matrix(
      "models:\n"
      "  dense: {config: dense.yaml, set: {contract.step_seconds: 0.05}}\n"
      "  moe: {config: moe.yaml, set: {contract: {step_seconds: 0.1}}}\n"
      "precisions: [fp32]\nseeds: [1, 2]\ncontracts: [{kind: seconds, reference: dense}]\n");
  REQUIRE(m.file.contracts[0].coefficient == 60 * 0.05);
  REQUIRE(contract_text(m.file.contracts[0], m) ==
          "3 seconds of training, what dense's steps take by its contract.step_seconds");
  REQUIRE(m.cells.size() == 4);
  for (const Cell& cell : m.cells) {
    INFO(cell.name);
    REQUIRE(cell.known_steps);
    REQUIRE(cell.steps() == (cell.model == "dense" ? 60 : 30));
    REQUIRE(cell.config.contract.kind == ContractKind::kSeconds);
    REQUIRE(cell.config.contract.reference.empty());
  }
  // Without contracts of the matrix the models' own take it.
  family.write("timed.yaml", "include: dense.yaml\ncontract: {kind: seconds, coefficient: 2}\n");
  const Matrix own = family.matrix(
      "models: {a: {config: timed.yaml, set: {contract.step_seconds: 0.05}}}\n"
      "precisions: [fp32]\n");
  REQUIRE(own.cells[0].steps() == 40);
  REQUIRE(setting_notes(own.file).empty());
  const MatrixFile unused = family.file(
      "models: {a: {config: dense.yaml, set: {contract.step_seconds: 0.05}}}\n"
      "precisions: [fp32]\n");
  const std::vector<std::string> notes = setting_notes(unused);
  REQUIRE(notes.size() == 1);
  REQUIRE(notes[0].ends_with(
      "m.yaml:1: set contract.step_seconds: contract.step_seconds has no effect: contract.kind is "
      "steps"));
}

TEST_CASE("a branch follows its trunk into the run that another contract began") {
  const Family family;
  const auto text = [](const std::string& first) {
    return "name: m\nmodels: {dense: dense.yaml}\nprecisions: [fp32]\nset: {run.steps: 100}\n"
           "contracts: [" +
           first + "{kind: activeDN, reference: dense, branches: [0.5]}]\n";
  };
  const Matrix before = family.matrix(text(""));
  const Cell& trunk = before.cell("dense-activeDN-fp32-seed1");
  REQUIRE(before.cell("dense-activeDN-at-0.5-fp32-seed1").trunk == trunk.name);
  family.begin(trunk);
  Matrix after = family.matrix(text("{kind: totalDN, reference: dense, branches: [0.5]}, "));
  prefer_existing_runs(after, family.runs());
  std::vector<std::string> order;
  for (const Cell* cell : after.order()) {
    order.push_back(cell->name);
    if (!cell->trunk.empty()) REQUIRE(cell->trunk == trunk.name);
  }
  REQUIRE(order.front() == trunk.name);
  REQUIRE(order.size() == 2);
}

TEST_CASE("models that take their own numbers of steps are not ranked") {
  struct Row {
    const char* contracts;
    const char* moe;  // its changes
    const char* says;
    const char* not_ranked;
  };
  const char* const own = "each model's own number of steps";
  const char* const differ = "the models take 60 to 120 steps";
  const Row rows[] = {
      {"contracts: [{kind: steps}]\n", "run.steps: 60", "the same steps", ""},
      {"contracts: [{kind: steps}]\n", "run.steps: 120", own, differ},
      {"contracts: [{kind: steps, reference: dense}]\n", "run.steps: 120",
       "the same steps, as in dense's run", ""},
      {"", "run.steps: 60", own, ""},
      {"", "run.steps: 120", own, differ},
  };
  for (const Row& row : rows) {
    INFO(row.contracts << row.moe);
    const Family family;
    const Matrix m = family.matrix(
        std::string("models:\n  dense: dense.yaml\n  moe: {config: moe.yaml, set: {") + row.moe +
        "}}\n" + row.contracts + "precisions: [fp32]\nseeds: [1]\n");
    const MatrixSummary summary = summarise_matrix(m, family.runs());
    REQUIRE(summary.tables[0].not_ranked == row.not_ranked);
    REQUIRE(contract_text(m.file.contracts[0], m) == row.says);
    const std::string line = std::string("Not ranked: ") + row.not_ranked + ".\n";
    REQUIRE((summary_markdown(summary).find(line) != std::string::npos) ==
            !std::string(row.not_ranked).empty());
  }
  // A contract that the configurations bring gives their numbers of steps one meaning.
  const Family family;
  for (const std::string model : {"dense", "large"}) {
    family.write(model + "-once.yaml",
                 "include: " + model + ".yaml\n" + "contract: {kind: activeDN, coefficient: 1}\n");
  }
  const Matrix m = family.matrix(
      "models: {dense: dense-once.yaml, large: large-once.yaml}\nprecisions: [fp32]\nseeds: [1]\n");
  REQUIRE(m.cells[0].steps() < m.cells[1].steps());
  REQUIRE(summarise_matrix(m, family.runs()).tables[0].not_ranked.empty());
}

TEST_CASE("counts of a recorded matrix are those of the seed that has a configuration") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  make_folders(family.runs().path());
  write_matrix(family.runs(), m, {});
  const Cell& second = m.cell("moe-activeDN-fp32-seed2");
  family.begin(second);
  const RecordedMatrix recorded = read_matrix_folder(family.runs().path());
  const MatrixSummary summary = summarise_matrix(recorded.matrix, family.runs());
  REQUIRE(summary.different_data.empty());
  for (const SummaryRow& row : summary.tables[0].rows) {
    INFO(row.cell->name);
    const bool known = row.cell->model == "moe";
    REQUIRE(row.cell->configured == known);
    REQUIRE(row.total() == (known ? std::optional(double(second.audit.total)) : std::nullopt));
    REQUIRE(row.active() == (known ? std::optional(double(second.audit.active)) : std::nullopt));
    REQUIRE(row.tokens() == (known ? std::optional(double(second.tokens())) : std::nullopt));
    REQUIRE(row.flops().has_value() == known);
  }
  const auto json = nlohmann::json::parse(summary_json(summary));
  for (const auto& row : json["contracts"][0]["rows"]) {
    for (const char* key : {"parameters_total", "parameters_active", "tokens", "flops"}) {
      REQUIRE(row[key].is_null() == (row["model"] != "moe"));
    }
  }
}

TEST_CASE("a contract added before the others reuses the existing runs") {
  const Family family;
  const Matrix first = family.matrix(kMatrix);
  family.begin(first.cell("dense-activeDN-fp32-seed1"));
  Matrix swapped = family.matrix(
      "name: m\nmodels: {dense: dense.yaml}\nprecisions: [fp32]\ncontracts: [{kind: totalDN, "
      "reference: dense}, {kind: activeDN, reference: dense}]\nseeds: [1, 2]\n");
  REQUIRE(swapped.cell("dense-activeDN-fp32-seed1").run == "dense-totalDN-fp32-seed1");
  prefer_existing_runs(swapped, family.runs());
  REQUIRE(swapped.cell("dense-totalDN-fp32-seed1").run == "dense-activeDN-fp32-seed1");
  REQUIRE(swapped.cell("dense-activeDN-fp32-seed1").trained());
  REQUIRE(swapped.cell("dense-totalDN-fp32-seed2").trained());
  REQUIRE(swapped.order().size() == 2);
}

TEST_CASE("runs start within the budget") {
  const MatrixBudget budget{.jobs = 3, .memory_bytes = 10};
  using Bytes = std::vector<int64_t>;
  REQUIRE(next_to_start(Bytes{4, 1}, Bytes{}, budget) == size_t{0});
  REQUIRE(next_to_start(Bytes{4, 1}, Bytes{7}, budget) == size_t{1});  // the first does not fit
  REQUIRE(next_to_start(Bytes{3}, Bytes{7}, budget) == size_t{0});     // just fits
  REQUIRE(!next_to_start(Bytes{4}, Bytes{7}, budget));
  REQUIRE(!next_to_start(Bytes{1}, Bytes{1, 1, 1}, budget));  // never more than jobs
  REQUIRE(!next_to_start(Bytes{}, Bytes{}, budget));
}

TEST_CASE("amounts of memory") {
  REQUIRE(read_bytes("8GiB") == int64_t{8} << 30);
  REQUIRE(read_bytes("500 MB") == 500000000);
  REQUIRE(read_bytes("123") == 123);
  REQUIRE(read_bytes("1e9") == 1000000000);
  for (const char* wrong : {"", "GiB", "8 gigs", "-1", "nan", "1e400"}) {
    INFO(wrong);
    REQUIRE(!read_bytes(wrong));
  }
}

TEST_CASE("of an edited run all is left once it is to be trained again") {
  const Family family;
  const Matrix m = family.matrix(
      "name: m\nmodels: {dense: dense.yaml}\ncontracts: [{kind: steps}]\nprecisions: [fp32]\n");
  PlannedCell run;
  run.cell = &m.cells.front();
  run.status.state = CellState::kDone;
  run.status.steps_done = run.cell->steps();
  MatrixPlan plan;
  plan.matrix = &m;
  plan.runs = {run};
  const std::string whole = strprintf("%.3e FLOPs, ", run.cell->flops_after(0));
  const auto says_left = [&](const std::string& left) {
    INFO(plan_text(plan));
    return plan_text(plan).find(whole + left + " of them left") != std::string::npos;
  };
  REQUIRE(says_left("0.000e+00"));
  plan.fresh_changed = true;
  REQUIRE(says_left("0.000e+00"));
  plan.runs[0].status.differences = {{.field = "optimizer.lr", .before = "0.001", .now = "0.002"}};
  REQUIRE(says_left(strprintf("%.3e", run.cell->flops_after(0))));
  plan.fresh_changed = false;  // refused: the edit may be undone
  REQUIRE(says_left("0.000e+00"));
  plan.refused = {"the claims were edited"};
  REQUIRE(nlohmann::json::parse(plan_json(plan))["refused"][0] == "the claims were edited");
}

}  // namespace assay::test_matrix
