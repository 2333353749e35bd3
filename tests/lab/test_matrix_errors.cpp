#include "base/check.h"
#include "lab/matrix/defaults.h"
#include "lab/matrix/judgeable.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/matrix_family.h"

namespace assay::test_matrix_errors {
namespace {

using matrix_family::Family;
using matrix_family::kMatrix;

struct BadMatrix {
  const char* what;
  const char* text;
  const char* error;
  const char* hint;
};

}  // namespace

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
      {"a contract's field of a model",
       "models: {a: {config: dense.yaml, set: {contract.fraction: 0.5}}}\n",
       "set: contract.fraction is varied", "contracts"},
      {"one step of all models",
       "models: {a: dense.yaml}\nset: {contract.step_seconds: 0.1}\n"
       "contracts: [{kind: seconds, coefficient: 2}]\n",
       "m.yaml:2: set: contract.step_seconds would be that of all models",
       "set: {contract.step_seconds: 0.05}"},
      {"a step without seconds",
       "models: {a: {config: dense.yaml, set: {contract.step_seconds: 0.1}}}\n"
       "contracts: [{kind: steps}]\n",
       "m.yaml:1: set contract.step_seconds: contract.step_seconds has no effect", "kind: seconds"},
      {"a reference of unknown seconds",
       "models: {a: dense.yaml}\ncontracts: [{kind: seconds, reference: a}]\n",
       "reference a, which is not trained yet, and how long its step takes is not given",
       "set: {contract.step_seconds: 0.05}"},
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

TEST_CASE("an error of a model names it beside its text") {
  const Family family;
  family.write("wide.yaml", "include: dense.yaml\nmodel: {heads: 3}\n");
  try {
    family.matrix("models: {a: dense.yaml, b: wide.yaml}\n");
    FAIL("it was accepted");
  } catch (const ModelError& error) {
    REQUIRE(error.model() == "b");
    REQUIRE(std::string(error.what()).starts_with("model b: "));
  }
}

TEST_CASE("a claim on routers needs as many logged steps as its window") {
  const Family family;
  // 60 steps, validated at every 20th.
  const auto judge = [&](const std::string& measure, const std::string& set) {
    require_judgeable_claims(family.matrix(
        "name: m\nmodels: {dense: dense.yaml, moe: moe.yaml}\ncontracts: [{kind: steps}]\n"
        "precisions: [fp32]\nset: {" +
        set + "}\nclaims:\n  - {measure: " + measure + ", of: moe, below: 0.9}\n"));
  };
  const char* const why =
      "can never be judged: moe-steps-fp32-seed1 logs fewer steps than telemetry.window = 100 "
      "(run.steps = 60, run.log_every = 1)";
  for (const char* measure : {"cv", "max_load_worst", "dead", "collapsed"}) {
    INFO(measure);
    expect_error([&] { judge(measure, "telemetry.window: 100"); }, why);
    expect_error([&] { judge(measure, "telemetry.window: 40, run.log_every: 7"); }, "window = 40");
    expect_error([&] { judge(measure, "telemetry.window: 61"); }, "window = 61");
    REQUIRE_NOTHROW(judge(measure, "telemetry.window: 60"));
    REQUIRE_NOTHROW(judge(measure, "telemetry.window: 10, run.log_every: 7"));  // 7, 14, 20, ...
    REQUIRE_NOTHROW(judge(measure, "telemetry.window: 100, telemetry.collapse_stop: auto"));
  }
  REQUIRE_NOTHROW(judge("val_loss", "telemetry.window: 100"));
  REQUIRE_NOTHROW(judge("first_saturation", "telemetry.window: 100"));  // of any logged step
}

TEST_CASE("a plan names the models whose routers stay too early to judge") {
  const Family family;
  const auto notes = [&](const std::string& set, const std::string& contracts) {
    const Matrix m = family.matrix(
        "name: m\nmodels: {dense: dense.yaml, moe: moe.yaml, slow: {config: moe.yaml, set: "
        "{optimizer.lr: 1e-4}}}\nprecisions: [fp32]\nseeds: [1, 2]\nset: {" +
        set + "}\ncontracts: [" + contracts + "]\n");
    std::vector<const Cell*> all;
    for (const Cell& cell : m.cells) all.push_back(&cell);
    return no_verdict_notes(plan_matrix(m, family.runs(), all));
  };
  REQUIRE(notes("telemetry.window: 60", "{kind: steps}").empty());
  const std::string needs =
      " stay too early to judge: a verdict needs telemetry.window = 100 logged steps, and their "
      "runs log at most 60 (set: {telemetry.window: 60}, but not once they have begun)";
  REQUIRE(notes("telemetry.window: 100", "{kind: steps}") ==
          std::vector<std::string>{"the routers of moe, slow" + needs});
  // One that measures its steps cannot be told before; its own log says it.
  REQUIRE(notes("telemetry.window: 100", "{kind: steps}, {kind: seconds, coefficient: 2}") ==
          std::vector<std::string>{"the routers of moe under steps, slow under steps" + needs});
}

TEST_CASE("a recipe that a model names is not replaced in silence") {
  const Family family;
  family.write("full.yaml", "include: dense.yaml\nprecision: {recipe: fp32}\n");
  family.write("eight.yaml", "include: dense.yaml\nprecision: {recipe: mxfp8}\n");
  const std::string models = "models: {a: dense.yaml, b: full.yaml, c: eight.yaml}\n";
  const auto judge = [&](const std::string& text) {
    require_given_precisions(family.matrix(text));
  };
  try {
    judge(models);
    FAIL("it was accepted");
  } catch (const UserError& error) {
    REQUIRE(std::string(error.what()) ==
            "model b names precision.recipe fp32, but " + (family.folder / "m.yaml") +
                " has no precisions, which trains every model in auto");
    REQUIRE(error.hint() ==
            "precisions: [fp32, mxfp8] trains every model in each of them, precisions: [auto] "
            "every model in bf16 or fp32, as the device does best");
  }
  REQUIRE_NOTHROW(judge(models + "precisions: [auto]\n"));
  REQUIRE_NOTHROW(judge(models + "precisions: [bf16]\n"));
  REQUIRE_NOTHROW(judge("models: {a: dense.yaml}\n"));
}

TEST_CASE("a seed that a model names is said to be replaced") {
  const Family family;
  family.write("seven.yaml", "include: dense.yaml\nrun: {seed: 7}\n");
  const std::string models = "models: {a: dense.yaml, b: seven.yaml}\n";
  REQUIRE(replaced_seed(family.matrix(models)) ==
          "model b names run.seed 7, but " + (family.folder / "m.yaml") +
              " has no seeds, which trains every model with seed 1; for its own: seeds: [7]");
  REQUIRE(replaced_seed(family.matrix(models + "seeds: [1]\n")).empty());
  REQUIRE(replaced_seed(family.matrix("models: {a: dense.yaml}\n")).empty());
}

TEST_CASE("--set of what the matrix sets itself is refused") {
  const Family family;
  for (const char* set : {"run.seed=9", "run={seed: 9}", "precision.recipe=bf16", "run.threads=2",
                          "contract.fraction=0.5", "contract.step_seconds=2"}) {
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

}  // namespace assay::test_matrix_errors
