#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/sha256.h"
#include "engine/config/text.h"
#include "lab/matrix/budget.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/report.h"
#include "lab/matrix/state.h"
#include "models/audit/contract.h"
#include "models/audit/horizon.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_matrix {
namespace {

const char* kBase = R"(
model: {hidden: 64, layers: 2, heads: 2, vocab_size: 512, ffn: 64}
schedule: {warmup: 2, warmdown: 4}
run: {steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8}
eval: {every: 20, tokens: 4096}
data: {synth: {train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}
)";
const char* kMatrix = R"(name: m
models: {dense: dense.yaml, moe: moe.yaml, large: large.yaml}
contracts:
  - {kind: activeDN, reference: dense}
  - {kind: totalDN, reference: dense}
seeds: [1, 2]
precisions: [fp32]
)";

// A folder with the configurations of three models.
struct Family {
  TempFolder folder;
  Family() {
    write("dense.yaml", kBase);
    write("large.yaml", "include: dense.yaml\nmodel: {ffn: 128}\n");
    write("moe.yaml",
          "include: dense.yaml\nmodel: {moe: {experts: 4, top_k: 2, expert_ffn: 32}}\n");
  }
  void write(const std::string& name, const std::string& text) const {
    write_file_atomic(folder / name, text);
  }
  MatrixFile file(const std::string& text, const std::vector<std::string>& sets = {}) const {
    write("m.yaml", text);
    return load_matrix_file(folder / "m.yaml", sets);
  }
  Matrix matrix(const std::string& text) const { return lay_out(file(text)); }
  MatrixFolder runs() const { return MatrixFolder(folder / "runs"); }
  // Makes a run as `assay train` leaves it before the first step: with its configuration only.
  void begin(const Cell& cell) const {
    make_folders(runs().run(cell));
    write_file_atomic(runs().run(cell) + "/config.yaml", to_yaml(cell.config));
  }
};

struct BadMatrix {
  const char* what;
  const char* text;
  const char* error;
  const char* hint;
};

std::string edited(const std::string& from, const std::string& to) {
  std::string text = kMatrix;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

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

TEST_CASE("an invalid matrix is refused with reason and place") {
  const Family family;
  const BadMatrix rows[] = {
      {"empty", "", "the matrix is empty", "--help"},
      {"no models", "seeds: [1]\n", "models is not given", "models:"},
      {"a list", "- 1\n", "m.yaml:1: the matrix is a list", ""},
      {"unknown key", "name: m\nmodel: {a: dense.yaml}\n",
       "m.yaml:2: unknown key model in the matrix", "did you mean models"},
      {"duplicate key", "models: {a: dense.yaml}\nseeds: [1]\nseeds: [2]\n",
       "m.yaml:3: duplicate key seeds", "keep one"},
      {"duplicate model", "models: {a: dense.yaml, a: moe.yaml}\n", "duplicate key a in models",
       "keep one"},
      {"missing model", "models:\n  a: nowhere.yaml\n", "m.yaml:2: models.a: ", "paths start"},
      {"model without a file", "models: {a: {set: {optimizer.lr: 1}}}\n", "models.a has no config",
       "config: moe.yaml"},
      {"unknown key of a model", "models: {a: {config: dense.yaml, sets: {}}}\n",
       "unknown key sets in models.a", "did you mean set"},
      {"a model's precision", "models: {a: {config: dense.yaml, set: {precision.recipe: bf16}}}\n",
       "precision.recipe is varied by the matrix itself", "use seeds, precisions"},
      {"neither true nor false",
       "models: {a: dense.yaml}\n"
       "contracts: [{kind: totalDN, coefficient: 2, shared_in_total: maybe}]\n",
       "shared_in_total maybe is neither", "true or false"},
      {"model name", "models: {a/b: dense.yaml}\n", "model name a/b", "letters"},
      {"seed twice", "models: {a: dense.yaml}\nseeds: [1, 2, 1]\n",
       "m.yaml:2: seed 1 is listed twice", "count as two"},
      {"no seed", "models: {a: dense.yaml}\nseeds: []\n", "seeds is an empty list", ""},
      {"negative seed", "models: {a: dense.yaml}\nseeds: [-1]\n", "seed -1 is negative", ""},
      {"word for a seed", "models: {a: dense.yaml}\nseeds: [one]\n", "a seed is \"one\"", ""},
      {"precision twice", "models: {a: dense.yaml}\nprecisions: [fp32, fp32]\n",
       "precision fp32 is listed twice", ""},
      {"unknown precision", "models: {a: dense.yaml}\nprecisions: [fp31]\n",
       "precision fp31 is unknown", "did you mean fp32"},
      {"no coefficient", "models: {a: dense.yaml}\ncontracts:\n  - {kind: activeDN}\n",
       "m.yaml:3: contract activeDN has no coefficient", "reference: a"},
      {"both",
       "models: {a: dense.yaml}\ncontracts: [{kind: activeDN, coefficient: 2, reference: a}]\n",
       "has a coefficient and a reference", "remove one"},
      {"negative coefficient",
       "models: {a: dense.yaml}\ncontracts: [{kind: totalDN, coefficient: -2}]\n",
       "coefficient = -2 is negative", ""},
      {"no kind", "models: {a: dense.yaml}\ncontracts: [{coefficient: 2}]\n", "has no kind", ""},
      {"unknown kind", "models: {a: dense.yaml}\ncontracts: [{kind: activDN, coefficient: 2}]\n",
       "contract kind activDN is unknown", "did you mean activeDN"},
      {"beyond the run",
       "models: {a: dense.yaml}\ncontracts: [{kind: totalDN, coefficient: 2, fraction: 1.5}]\n",
       "fraction = 1.5 is out of range", "at most 1"},
      {"landing beyond the run",
       "models: {a: dense.yaml}\ncontracts: [{kind: totalDN, coefficient: 2, landings: [2]}]\n",
       "landings has 2", "at most 1"},
      {"two of one name",
       "models: {a: dense.yaml}\ncontracts: [{kind: totalDN, coefficient: 2}, {kind: totalDN, "
       "coefficient: 3}]\n",
       "two contracts are called totalDN", "different names"},
      {"unknown reference",
       "models: {dense: dense.yaml}\ncontracts: [{kind: totalDN, reference: dens}]\n",
       "reference dens is not a model", "did you mean dense"},
      {"set of a seed", "models: {a: dense.yaml}\nset: {run.seed: 3}\n",
       "m.yaml:2: set: run.seed is varied by the matrix itself", "seeds"},
      {"set of a precision", "models: {a: dense.yaml}\nset: {precision: {recipe: fp32}}\n",
       "set: precision.recipe is varied", ""},
      {"set of a section", "models: {a: dense.yaml}\nset: {run: {seed: 9}}\n",
       "set: run.seed is varied", "seeds"},
      {"a coefficient of steps",
       "models: {a: dense.yaml}\ncontracts: [{kind: steps, coefficient: 50}]\n",
       "contract steps has a coefficient, 50", "run.steps"},
      {"a warm-down without branches",
       "models: {a: dense.yaml}\n"
       "contracts: [{kind: totalDN, coefficient: 2, branch_warmdown: 0.2}]\n",
       "contract totalDN has branch_warmdown, but no branches", "branches: [0.2]"},
      {"a warm-down of a whole branch",
       "models: {a: dense.yaml}\n"
       "contracts: [{kind: totalDN, reference: a, branches: [0.5], branch_warmdown: 1}]\n",
       "contract totalDN: branch_warmdown = 1 leaves no step", "below 1"},
      {"a branch that begins with its trunk",
       "models: {a: dense.yaml}\n"
       "contracts: [{kind: totalDN, reference: a, branches: [0.02], branch_warmdown: 0.9}]\n",
       "a branch of 2 steps with a warm-down over 0.9 of them leaves its trunk at step 0",
       "smaller branch_warmdown"},
      {"shared experts of other kinds",
       "models: {a: dense.yaml}\n"
       "contracts: [{kind: activeDN, coefficient: 2, shared_in_total: false}]\n",
       "contract activeDN has shared_in_total: false", "only totalDN"},
      {"unknown field", "models: {a: dense.yaml}\nset:\n  run.stps: 3\n",
       "m.yaml:3: set run.stps: unknown key stps", "did you mean steps"},
      {"field out of range", "models: {a: dense.yaml}\nset: {run.steps: 0}\n", "run.steps = 0", ""},
      {"no jobs", "models: {a: dense.yaml}\njobs: 0\n", "jobs = 0 is out of range", ""},
      {"memory", "models: {a: dense.yaml}\nmemory: much\n", "memory much is not an amount", "8GiB"},
      {"same name twice",
       "models: {a: dense.yaml, a-b: moe.yaml}\ncontracts: [{kind: steps, name: b-c}, {kind: "
       "steps, "
       "name: c}]\n",
       "two cells are called a-b-c-auto-seed1", "mixed up"},
  };
  for (const BadMatrix& row : rows) {
    INFO(row.what);
    try {
      family.matrix(row.text);
      FAIL("it was accepted");
    } catch (const UserError& error) {
      INFO(error.what() << "\n" << error.hint());
      REQUIRE(std::string(error.what()).find(row.error) != std::string::npos);
      REQUIRE(error.hint().find(row.hint) != std::string::npos);
      REQUIRE(error.hint().size() > 5);
    }
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
          std::vector<std::string>{"contract.step_seconds: 0.05 -> 0.1"});
  REQUIRE(matrix_differences(m.cells[1].config, m.cells[0].config) ==
          std::vector<std::string>{"contract.step_seconds: 0.05 -> measured"});
  // Under another contract it has no meaning.
  const Matrix steps =
      family.matrix("models: {slow: slow.yaml}\nprecisions: [fp32]\ncontracts: [{kind: steps}]\n");
  REQUIRE((steps.cells[0].steps() == 60 && steps.cells[0].config.contract.step_seconds == 0));
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

TEST_CASE("--set of what the matrix sets itself is refused") {
  const Family family;
  for (const char* set : {"run.seed=9", "run={seed: 9}", "precision.recipe=bf16", "run.threads=2",
                          "contract.fraction=0.5"}) {
    INFO(set);
    try {
      family.file(kMatrix, {set});
      FAIL("it was accepted");
    } catch (const UserError& error) {
      REQUIRE(std::string(error.what()).find("is set by the matrix itself") != std::string::npos);
    }
  }
  REQUIRE_NOTHROW(family.file(kMatrix, {"precision.products=simulated"}));
  REQUIRE_NOTHROW(family.file("models: {dense: dense.yaml}\n", {"contract.landings=[0.5]"}));
}

TEST_CASE("the changes of an edited matrix are listed") {
  const Family family;
  const Matrix first = family.matrix(kMatrix);
  make_folders(family.runs().path());
  REQUIRE(!find_edits(family.runs(), first).started);
  write_matrix(family.runs(), first, {});
  REQUIRE(!find_edits(family.runs(), first).any());
  family.begin(first.cell("dense-activeDN-fp32-seed1"));
  REQUIRE(!find_edits(family.runs(), first).any());

  const Matrix more = family.matrix(edited("seeds: [1, 2]", "seeds: [1, 3]"));
  const MatrixEdits seeds = find_edits(family.runs(), more);
  REQUIRE(seeds.added.size() == 6);
  REQUIRE(seeds.added[0] == "dense-activeDN-fp32-seed3");
  REQUIRE(seeds.removed.size() == 6);
  REQUIRE(seeds.changed.empty());

  const Matrix faster = family.matrix(std::string(kMatrix) + "set: {optimizer.lr: 2e-3}\n");
  const MatrixEdits rate = find_edits(family.runs(), faster);
  REQUIRE(rate.changed ==
          std::vector<std::string>{"dense-activeDN-fp32-seed1: optimizer.lr: 0.001 -> 0.002"});
  REQUIRE(rate.changed_cells == std::vector<std::string>{"dense-activeDN-fp32-seed1"});
  REQUIRE(rate.moved.size() == 7);  // the runs that had not started
  REQUIRE(rate.added.empty());

  // Threads and checkpoints change no results.
  const Matrix saved =
      family.matrix(std::string(kMatrix) + "set: {run.checkpoint_every: 7}\njobs: 3\n");
  REQUIRE(!find_edits(family.runs(), saved).any());

  // The manifest keeps the history of edits.
  write_matrix(family.runs(), more, seeds);
  const std::string manifest = read_file(family.runs().file("matrix.json"));
  REQUIRE(manifest.find("dense-activeDN-fp32-seed3") != std::string::npos);
  REQUIRE(manifest.find("\"removed\"") != std::string::npos);
}

TEST_CASE("seeds that undecided claims add are no edits of the file") {
  const Family family;
  MatrixFile file = family.file(kMatrix);
  make_folders(family.runs().path());
  write_matrix(family.runs(), lay_out(file), {});
  file.seeds.push_back(3);
  file.extra_seeds.push_back(3);
  const Matrix more = lay_out(file);
  const MatrixEdits edits = find_edits(family.runs(), more);
  REQUIRE(!edits.any());
  write_matrix(family.runs(), more, edits);
  const auto record = nlohmann::json::parse(read_file(family.runs().file(kMatrixRecord)));
  REQUIRE((record["cells"].size() == 18 && record["edits"].empty()));
  // A model that is added later is one, with all its seeds.
  file.models.push_back(file.models.back());
  file.models.back().name = "again";
  REQUIRE(find_edits(family.runs(), lay_out(file)).added.size() == 6);
}

TEST_CASE("claims stay sealed while runs of removed cells are in the folder") {
  const Family family;
  const auto with = [&](const std::string& contract, const std::string& bound) {
    return family.matrix("name: m\nmodels: {dense: dense.yaml}\nprecisions: [fp32]\n" +
                         ("contracts: [{kind: steps, name: " + contract + "}]\n") +
                         "claims: [{name: c, measure: val_loss, of: dense, below: " + bound +
                         "}]\n");
  };
  const auto take_over = [&](const Matrix& matrix) {
    const MatrixEdits edits = find_edits(family.runs(), matrix);
    REQUIRE(!edits.claims.any());
    write_matrix(family.runs(), matrix, edits);
  };
  make_folders(family.runs().path() + "/half.part");
  family.write("runs/half.part/config.yaml", "a copy that was cut short is no run");
  std::filesystem::create_directory(family.folder / "runs/configs");
  take_over(with("a", "4"));
  take_over(with("a", "3.9"));  // nothing has begun
  family.begin(with("a", "3.9").cells.front());
  REQUIRE(find_edits(family.runs(), with("a", "3")).claims.added == std::vector<std::string>{"c"});
  REQUIRE(find_edits(family.runs(), with("b", "3")).claims.any());  // the run is of no cell now
  take_over(with("b", "3.9"));
  REQUIRE(find_edits(family.runs(), with("b", "3")).claims.any());  // nor of a recorded one
  const std::optional<ClaimSeal> seal = recorded_seal(family.runs());
  REQUIRE((seal->runs_begun == 0 && seal->edits.empty()));
}

TEST_CASE("a matrix whose evaluations read files may move with them") {
  const Family family;
  const auto in = [&](const std::string& folder, const std::string& bundle) {
    return family.matrix(edited("models:", "set: {eval.core.bundle: " + folder + "/" + bundle +
                                               ", eval.samples.file: " + folder +
                                               "/prompts.txt}\nmodels:"));
  };
  const Matrix here = in("/clone-a", "core"), there = in("/clone-b", "core/");
  const Cell &cell = here.cells.front(), &moved = there.cells.front();
  REQUIRE(moved.config.eval.core->bundle.starts_with("/clone-b/core"));
  REQUIRE(matrix_differences(cell.config, moved.config).empty());
  REQUIRE(config_sha256(cell.config) == config_sha256(moved.config));
  const Config other = in("/clone-a", "core-2").cells.front().config;
  REQUIRE(matrix_differences(cell.config, other).size() == 1);
  REQUIRE(config_sha256(cell.config) != config_sha256(other));

  make_folders(family.runs().path());
  write_matrix(family.runs(), here, {});
  REQUIRE(!find_edits(family.runs(), there).any());
  // The hash of an earlier version, of a configuration that has not moved.
  std::string text = to_yaml(what_matters(cell.config));
  const std::string old = sha256_hex(text);
  REQUIRE(old != config_sha256(cell.config));
  REQUIRE((is_config_sha256(old, cell.config) && !is_config_sha256(old, other)));
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

TEST_CASE("folders with other contents are refused") {
  const Family family;
  const Matrix m = family.matrix(kMatrix);
  make_folders(family.runs().path());
  family.write("runs/note.txt", "mine");
  REQUIRE_THROWS_WITH(find_edits(family.runs(), m),
                      Catch::Matchers::ContainsSubstring("has files but no matrix"));
  std::filesystem::remove(family.folder / "runs/note.txt");
  write_matrix(family.runs(), m, {});
  const Matrix other = family.matrix(edited("name: m", "name: n"));
  REQUIRE_THROWS_WITH(find_edits(family.runs(), other),
                      Catch::Matchers::ContainsSubstring("holds the matrix m, not n"));
  const MatrixFolder file(family.folder / "dense.yaml");
  REQUIRE_THROWS_WITH(find_edits(file, m), Catch::Matchers::ContainsSubstring("is a file"));
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

}  // namespace assay::test_matrix
