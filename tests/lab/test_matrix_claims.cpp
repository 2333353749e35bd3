#include <set>

#include "base/file.h"
#include "lab/matrix/claims.h"
#include "lab/runs/run_measures.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/run_records.h"

namespace assay {
namespace {

// The measures of a run's layers 1, 2 and 3, as its telemetry would give them.
struct Planted {
  std::string model;
  int64_t seed;
  double loss;
  double load;                               // K max_load of layer 3; the others have half of it
  std::optional<int64_t> saturated_at = {};  // of layer 3
};

RunRecord run_of(const Planted& planted) {
  RunRecord run =
      hand_made({.name = planted.model + "-seed" + std::to_string(planted.seed),
                 .seed = planted.seed,
                 .val_loss_nats = {{50, planted.loss + 1, 10}, {100, planted.loss, 10}}});
  std::vector<LayerHealth> layers;
  for (int64_t layer = 1; layer <= 3; ++layer) {
    LayerHealth& l = layers.emplace_back();
    l.layer = layer;
    l.max_load_norm = layer == 3 ? planted.load : planted.load / 2;
    l.active_norm = 0.25;
    l.cv_norm = planted.load;
  }
  layers[2].saturated_at = planted.saturated_at;
  run.health = health_of(layers);
  return run;
}

// One table with a row per model, each with its runs.
struct Table {
  std::vector<RunRecord> runs;
  std::vector<Cell> cells;
  std::vector<ContractTable> tables;

  Table(const std::vector<std::string>& models, const std::vector<Planted>& planted) {
    for (const Planted& p : planted) runs.push_back(run_of(p));
    for (const std::string& model : models) {
      Cell& cell = cells.emplace_back();
      cell.model = model;
      cell.contract = "steps";
      cell.precision = "bf16";
    }
    ContractTable& table = tables.emplace_back();
    table.contract.name = "steps";
    for (const Cell& cell : cells) {
      SummaryRow& row = table.rows.emplace_back();
      row.cell = &cell;
      row.planned = 3;
      for (size_t i = 0; i < planted.size(); ++i) {
        if (planted[i].model == cell.model) row.runs.runs.push_back(&runs[i]);
      }
    }
  }
};

// The models "even" and "full" have three seeds, "one" has one, "none" has none.
Table planted_table() {
  return Table({"full", "even", "one", "none"}, {{"full", 1, 4.00, 0.90, 40},
                                                 {"full", 2, 4.30, 0.92, 60},
                                                 {"full", 3, 4.10, 0.94, 20},
                                                 {"even", 1, 3.90, 0.30},
                                                 {"even", 2, 4.21, 0.32},
                                                 {"even", 3, 4.02, 0.31, 80},
                                                 {"one", 2, 4.00, 0.10}});
}

MatrixClaim claim(const std::string& measure, const std::string& of, MatrixClaim::Relation relation,
                  const std::string& other, double number, double within = 0) {
  return {.name = "c",
          .measure = measure,
          .of = of,
          .relation = relation,
          .other = other,
          .number = number,
          .within = within,
          .where = {}};
}

}  // namespace

TEST_CASE("a claim is judged by the interval over the seeds") {
  using enum MatrixClaim::Relation;
  struct Row {
    const char* what;
    MatrixClaim claim;
    const char* verdict;
    const char* why;
  };
  const Row rows[] = {
      {"well above a number", claim("max_load_worst", "full", kAbove, "", 0.8), "holds", ""},
      {"well below a number", claim("max_load_worst", "full", kBelow, "", 0.8), "fails", ""},
      {"a number in the interval", claim("max_load_worst", "full", kAbove, "", 0.91), "undecided",
       ""},
      {"above the interval", claim("max_load_worst", "full", kAbove, "", 1.1), "fails", ""},
      {"near a number", claim("max_load_worst", "full", kNear, "", 0.9, 0.1), "holds", ""},
      {"not near it", claim("max_load_worst", "full", kNear, "", 0.5, 0.1), "fails", ""},
      {"nearer than is known", claim("max_load_worst", "full", kNear, "", 0.92, 0.01), "undecided",
       ""},
      {"mean over layers", claim("max_load", "full", kNear, "", 0.6133, 0.05), "holds", ""},
      {"another model", claim("max_load_worst", "even", kBelow, "full", 0), "holds", ""},
      {"the other way round", claim("max_load_worst", "full", kBelow, "even", 0), "fails", ""},
      // The losses differ by up to 0.3 between seeds, but only by 0.09 to 0.1 within pairs.
      {"paired by seed", claim("val_loss", "even", kBelow, "full", 0), "holds", ""},
      {"alike", claim("dead", "even", kNear, "full", 0, 0.01), "holds", ""},
      {"equal is not below", claim("dead", "even", kBelow, "full", 0), "fails", ""},
      {"equal is not above", claim("dead", "even", kAbove, "full", 0), "fails", ""},
      {"falls after saturation", claim("loss_after_saturation", "full", kBelow, "", 0), "undecided",
       "2 of 3 runs of full have the measure"},
      {"deep first", claim("first_saturated_depth", "full", kAbove, "", 0.5), "holds", ""},
      {"some runs have it", claim("first_saturation", "even", kAbove, "", 10), "undecided",
       "1 of 3 runs of even have the measure"},
      {"one seed", claim("max_load", "one", kBelow, "", 10), "undecided", "one seed"},
      {"one shared seed", claim("max_load", "one", kBelow, "full", 0), "undecided", "one seed"},
      {"no run", claim("max_load", "none", kBelow, "full", 0), "no run", ""},
      {"no run of the other", claim("max_load", "full", kBelow, "none", 0), "no run", ""},
  };
  const Table table = planted_table();
  for (const Row& row : rows) {
    INFO(row.what);
    const auto results = evaluate_claims({row.claim}, table.tables);
    REQUIRE(results.size() == 1);
    REQUIRE(std::string(claim_verdict_name(results[0].verdict)) == row.verdict);
    REQUIRE(results[0].why == row.why);
    REQUIRE(results[0].planned == 3);
  }
}

TEST_CASE("the table of claims shows the numbers and counts the verdicts") {
  using enum MatrixClaim::Relation;
  const Table table = planted_table();
  REQUIRE(claims_markdown({}).empty());
  const std::vector<MatrixClaim> claims = {claim("max_load_worst", "full", kAbove, "", 0.8),
                                           claim("max_load_worst", "full", kBelow, "even", 0)};
  const std::string text = claims_markdown(evaluate_claims(claims, table.tables));
  INFO(text);
  for (const char* part :
       {"max_load_worst of full > 0.8", "max_load_worst of full - even < 0", "| holds", "| fails",
        "0.8703 to 0.9697", "0.92", "0.31", "1 of 2 hold, 1 fail"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("measures of a run") {
  const RunRecord run = run_of({"a", 1, 4.0, 0.95, 40});
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run).value(); };
  REQUIRE(value("val_loss") == 4.0);
  REQUIRE(value("loss_after_saturation") == -1.0);
  REQUIRE(value("max_load_worst") == 0.95);
  REQUIRE(std::abs(value("max_load") - 0.95 * 2 / 3) < 1e-12);
  REQUIRE(std::abs(value("max_load_by_depth") - 0.475) < 1e-12);
  REQUIRE(value("dead") == 0.75);
  REQUIRE(std::abs(value("saturated_layers") - 1.0 / 3) < 1e-12);
  REQUIRE(value("first_saturation") == 40);
  REQUIRE(value("first_saturated_depth") == 1);
  REQUIRE(first_saturated_layers(run) == std::vector<int64_t>{3});
  // A run without a measure has no value for it.
  const RunRecord dense = hand_made({.name = "d", .val_loss_nats = {{100, 3.0, 10}}});
  const RunRecord late = run_of({"b", 1, 4.0, 0.95, 100});
  const std::set<std::string> of_dense = {"val_loss", "best_val_loss", "step_seconds"};
  for (const RunMeasure& measure : run_measures()) {
    INFO(measure.name);
    REQUIRE(measure.of(dense).has_value() == of_dense.contains(measure.name));
  }
  REQUIRE(!find_run_measure("loss_after_saturation")->of(late));
  REQUIRE(find_run_measure("max_laod") == nullptr);
}

TEST_CASE("measures of a run's losses and of its target") {
  RunRecord run =
      hand_made({.name = "a", .val_loss_nats = {{20, 4.0, 10}, {40, 3.1, 10}, {60, 3.2, 10}}});
  run.val_bits_per_byte = {{20, 2.0, 10}, {60, 1.6, 10}};
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run); };
  REQUIRE(value("val_loss") == 3.2);
  REQUIRE(value("best_val_loss") == 3.1);
  REQUIRE(value("bits_per_byte") == 1.6);
  REQUIRE(value("step_seconds") == 0.5);
  REQUIRE(!value("target_steps"));  // none is set
  run.config.run.target_loss = 3.28;
  REQUIRE(value("target_steps") == 40);
  REQUIRE(value("target_tokens") == 40 * 1000);
  REQUIRE(value("target_seconds") == 20);
  REQUIRE(value("target_flops") == 40 * 1000 * 30);
  run.config.run.target_loss = 3;
  REQUIRE(!value("target_steps"));  // it was not reached
  run = run_of({"b", 1, 4.0, 0.95});
  run.config.model.moe.emplace().experts = 64;
  run.health->min_entropy_norm = 0.5;
  REQUIRE(std::abs(value("effective_experts").value() - 8) < 1e-12);
}

TEST_CASE("claims of a file") {
  const TempFolder folder;
  write_file_atomic(folder / "a.yaml", "model: {layers: 2}\n");
  const auto load = [&](const std::string& claims) {
    write_file_atomic(folder / "m.yaml",
                      "models: {full: a.yaml, even: a.yaml}\nclaims:\n" + claims);
    return load_matrix_file(folder / "m.yaml");
  };
  const MatrixFile file = load(
      "  - {name: less, measure: max_load, of: even, below: full}\n"
      "  - {measure: cv, of: full, near: 0.64, within: 0.1}\n");
  REQUIRE(file.claims.size() == 2);
  REQUIRE(file.claims[0].name == "less");
  REQUIRE(file.claims[0].other == "full");
  REQUIRE(file.claims[0].text() == "max_load of even - full < 0");
  REQUIRE(file.claims[1].name == "cv of full - 0.64 within +-0.1");

  struct Bad {
    const char* claim;
    const char* error;
    const char* hint;
  };
  const Bad rows[] = {
      {"{of: full, below: 1}", "m.yaml:3: a claim has no measure", "max_load"},
      {"{measure: max_laod, of: full, below: 1}", "measure max_laod is unknown",
       "did you mean max_load"},
      {"{measure: cv, below: 1}", "a claim has no model", "of: aux-only"},
      {"{measure: cv, of: ful, below: 1}", "of: ful is not a model", "did you mean full"},
      {"{measure: cv, of: full, below: evn}", "below evn is not a model", "did you mean even"},
      {"{measure: cv, of: full}", "neither below nor above nor near", "below: baseline"},
      {"{measure: cv, of: full, below: 1, above: 0}", "a claim has below and above", "two claims"},
      {"{measure: cv, of: full, near: even}", "near, but not within", "within: 0.05"},
      {"{measure: cv, of: full, below: even, within: 1}", "within, but not near", "within: 0.05"},
      {"{measure: cv, of: full, near: even, within: 0}", "within = 0 must be > 0", "within: 0.05"},
      {"{measure: cv, of: full, bellow: 1}", "unknown key bellow in a claim", "did you mean below"},
  };
  for (const Bad& row : rows) {
    INFO(row.claim);
    try {
      load("  - " + std::string(row.claim) + "\n");
      FAIL("it was accepted");
    } catch (const UserError& error) {
      INFO(error.what() << "\n" << error.hint());
      REQUIRE(std::string(error.what()).find(row.error) != std::string::npos);
      REQUIRE(error.hint().find(row.hint) != std::string::npos);
    }
  }
}

}  // namespace assay
