#include <algorithm>
#include <filesystem>
#include <functional>

#include "lab/receipt/make.h"
#include "lab/receipt/verify.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/fake_run.h"

namespace assay::test_bundle {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kDense = {"dense-1", "dense-2"}, kMoe = {"moe-1", "moe-2"};

// Two models with two seeds each: final losses 4.0 and 4.5, 4.25 and 5.25.
struct Matrix {
  TempFolder folder;
  std::string path = folder / "matrix";
  Matrix() {
    const std::pair<std::string, double> runs[] = {
        {"dense-1", 4.0}, {"dense-2", 4.5}, {"moe-1", 4.25}, {"moe-2", 5.25}};
    Bundle bundle{
        .folder = path, .name = "two", .runs = {}, .files = {"summary.csv"}, .claims = {}};
    for (const auto& [name, loss] : runs) {
      const std::string run = path + "/" + name;
      FakeRun{.path = run, .data = folder / "data", .loss = loss}.write();
      write_receipt(run + "/receipt.json", make_run_receipt(run, run));
      bundle.runs.push_back(name);
    }
    write_file_atomic(path + "/summary.csv", "model,loss\n");
    const ReceiptJson last = how_eval("val", "loss_nats", "last");
    const auto claim = [&](const char* name, const ReceiptJson& how) {
      bundle.claims.push_back({.name = name, .unit = "nats", .how = how});
    };
    claim("dense_1_loss", {{"rule", "run"}, {"run", "dense-1"}, {"of", last}});
    claim("dense_loss", how_over_runs("mean", last, kDense));
    claim("dense_loss_sd", how_over_runs("sd", last, kDense));
    claim("moe_minus", how_over_runs("mean", last, kMoe, kDense));
    claim("moe_minus_high", how_over_runs("interval95_high", last, kMoe, kDense));
    claim("dense_trend", how_over_runs("mean", how_measure("best_val_loss"), kDense));
    claim("moe_verdict", how_verdict(ClaimRelation::kAbove, 0, 0,
                                     {{.sign = 1, .of = how_measure("val_loss"), .runs = kMoe}}));
    claim("one_seed_sd", how_over_runs("sd", last, {"moe-1"}));
    claim("never", how_over_runs("mean", how_first_at_or_below(4.0, "step"), kDense));
    write_receipt(path + "/receipt.json", make_bundle_receipt(bundle));
  }
};

std::string drifts(const Verification& v) {
  std::string text;
  for (const Check& check : v.checks) {
    if (check.finding == Finding::kDrift)
      text += check.run + (check.run.empty() ? "" : ": ") + check.what + ": " + check.detail + "\n";
  }
  return text;
}

void sql(const std::string& run, const std::string& statement) {
  Database(run + "/telemetry.db", Database::Mode::kCreate).run(statement);
}

struct Change {
  const char* what;
  std::function<void(const Matrix&)> make;
  std::vector<std::string> named;
};
template <typename... Names>
Change change(const char* what, std::function<void(const Matrix&)> make, Names... named) {
  return {.what = what, .make = std::move(make), .named = {named...}};
}

}  // namespace

TEST_CASE("a matrix claims statistics over its runs") {
  const Matrix m;
  const Receipt receipt = read_receipt(m.path + "/receipt.json");
  const auto value = [&](size_t i) { return receipt.claims[i].value; };
  REQUIRE(value(0) == 4.0);
  REQUIRE(value(1) == 4.25);
  REQUIRE(std::abs(value(2).get<double>() - 0.25 * std::sqrt(2.0)) < 1e-12);
  REQUIRE(value(3) == 0.5);  // the mean of 0.25 and 0.75
  REQUIRE(std::abs(value(4).get<double>() - (0.5 + 12.706204736432095 * 0.25)) < 1e-9);
  REQUIRE(value(7).is_null());
  REQUIRE(value(8).is_null());  // one of the runs did not reach it
  const Verification v = verify_receipt(m.path, {});
  INFO(drifts(v));
  REQUIRE(v.count(Finding::kDrift) == 0);
  fs::rename(m.path, m.folder / "moved");
  REQUIRE(verify_receipt(m.folder / "moved", {}).count(Finding::kDrift) == 0);
}

// A matrix whose two moe runs are equal, with claims by this version of the rules of intervals.
struct EqualMatrix {
  TempFolder folder;
  std::string path = folder / "matrix";
  explicit EqualMatrix(bool is_old) {
    Bundle bundle{.folder = path, .name = "equal", .runs = {}, .files = {}, .claims = {}};
    for (const std::string& name : kMoe) {
      const std::string run = path + "/" + name;
      FakeRun{.path = run, .data = folder / "data", .loss = 4.25}.write();
      write_receipt(run + "/receipt.json", make_run_receipt(run, run));
      bundle.runs.push_back(name);
    }
    const std::vector<ReceiptTerm> loss = {
        {.sign = 1, .of = how_measure("val_loss"), .runs = kMoe}};
    const std::vector<ReceiptTerm> steps = {
        {.sign = 1, .of = how_measure("target_steps"), .runs = kMoe}};
    const std::pair<const char*, ReceiptJson> claims[] = {
        {"loss.verdict", how_verdict(ClaimRelation::kBelow, 5, 0, loss)},
        {"loss.low", how_over_terms("interval95_low", loss)},
        {"steps.low", how_over_runs("interval95_low", how_first_at_or_below(4.1, "step"), kMoe)},
        {"steps.verdict", how_verdict(ClaimRelation::kBelow, 30, 0, steps)},
        {"loss.mean", how_over_terms("mean", loss)}};
    for (auto [name, how] : claims) {
      if (is_old) how.erase("version");
      bundle.claims.push_back({.name = name, .unit = "", .how = how});
    }
    write_receipt(path + "/receipt.json", make_bundle_receipt(bundle));
  }
};

TEST_CASE("equal runs: undecided by the present rule, and older receipts still verify") {
  for (const bool is_old : {false, true}) {
    const EqualMatrix m(is_old);
    const Receipt receipt = read_receipt(m.path + "/receipt.json");
    REQUIRE(receipt.claims[0].value == (is_old ? "holds" : "undecided"));
    REQUIRE(receipt.claims[1].value == (is_old ? ReceiptJson(4.25) : ReceiptJson()));
    REQUIRE(receipt.claims[2].value == (is_old ? ReceiptJson(20.0) : ReceiptJson()));
    REQUIRE(receipt.claims[3].value == (is_old ? "holds" : "undecided"));
    REQUIRE(receipt.claims[4].value == 4.25);
    REQUIRE(!receipt.claims[4].how.contains("version"));
    const Verification v = verify_receipt(m.path, {});
    INFO(drifts(v));
    REQUIRE(v.count(Finding::kDrift) == 0);
    const auto verdict = std::find_if(v.checks.begin(), v.checks.end(), [](const Check& check) {
      return check.what == "claim loss.verdict";
    });
    REQUIRE(verdict->finding == Finding::kSame);
    const bool is_told =
        verdict->detail.find("(by an older rule; now \"undecided\")") != std::string::npos;
    REQUIRE(is_told == is_old);
  }
}

TEST_CASE("a version of a rule that this program does not know is drift, not a verdict") {
  BundleEvidence evidence("nowhere");
  ReceiptJson how = how_verdict(ClaimRelation::kBelow, 5, 0,
                                {{.sign = 1, .of = how_measure("val_loss"), .runs = kMoe}});
  for (const ReceiptJson& version : {ReceiptJson(4), ReceiptJson(0), ReceiptJson("2")}) {
    how["version"] = version;
    expect_error([&] { verdict_by_present_rule(evidence, how); }, "a version that this program");
  }
}

TEST_CASE("drift of a run is reported as drift of its matrix, with the run's name") {
  const Change rows[] = {
      change(
          "a loss of one run",
          [](const Matrix& m) {
            sql(m.path + "/moe-2", "UPDATE eval SET value = 5 WHERE step = 40");
          },
          "moe-2: claim val_loss_final", "moe-2: input telemetry", "claim moe_minus:"),
      change(
          "a run sealed again after an edit",
          [](const Matrix& m) {
            const std::string run = m.path + "/moe-2";
            sql(run, "UPDATE eval SET value = 5 WHERE step = 40");
            write_receipt(run + "/receipt.json", make_run_receipt(run, run));
          },
          "input run moe-2", "claim moe_minus:"),
      change(
          "a run's receipt cut short",
          [](const Matrix& m) { fs::resize_file(m.path + "/moe-1/receipt.json", 300); },
          "input run moe-1: the file is damaged"),
      change(
          "the table",
          [](const Matrix& m) {
            write_file_atomic(m.path + "/summary.csv", "model,loss\nmoe,1\n");
          },
          "input file summary.csv"),
  };
  for (const auto& row : rows) {
    const Matrix m;
    row.make(m);
    const std::string found = drifts(verify_receipt(m.path, {}));
    for (const std::string& drift : row.named) {
      INFO(row.what << ": " << drift << " in\n" << found);
      REQUIRE(found.find(drift) != std::string::npos);
    }
  }
}

TEST_CASE("a claim removed from a matrix's receipt breaks the seal") {
  const Matrix m;
  const std::string path = m.path + "/receipt.json";
  std::string text = read_file(path);
  const size_t at = text.find("  {\"name\": \"moe_minus\"");
  text.erase(at, text.find('\n', at) + 1 - at);
  write_file_atomic(path, text);
  REQUIRE(drifts(verify_receipt(path, {})) == "receipt: edited after it was sealed\n");
}

TEST_CASE("what was removed of a run is reported as not available") {
  for (const std::string part : {"", "/telemetry.db", "/config.yaml", "/receipt.json"}) {
    const Matrix m;
    fs::remove_all(m.path + "/moe-1" + part);
    const Verification v = verify_receipt(m.path, {});
    INFO(part << ": " << drifts(v));
    REQUIRE(v.count(Finding::kDrift) == 0);
    const auto absent = [&](const std::string& what) {
      return std::any_of(v.checks.begin(), v.checks.end(), [&](const Check& check) {
        return check.finding == Finding::kNotAvailable && check.run.empty() && check.what == what;
      });
    };
    REQUIRE(absent("claim moe_verdict") == (part != "/receipt.json"));
    REQUIRE(absent("input run moe-1") == (part.empty() || part == "/receipt.json"));
  }
}

TEST_CASE("telemetry of a run that is damaged is drift of its matrix's claims") {
  const Matrix m;
  write_file_atomic(m.path + "/moe-1/telemetry.db", "no database");
  REQUIRE(drifts(verify_receipt(m.path, {})).find("\nclaim moe_verdict: ") != std::string::npos);
}

TEST_CASE("a matrix needs the receipts of its runs") {
  const Matrix m;
  fs::remove(m.path + "/moe-1/receipt.json");
  const auto make_of = [&](const char* run) {
    Bundle bundle;
    bundle.folder = m.path;
    bundle.runs = {run};
    make_bundle_receipt(bundle);
  };
  expect_error([&] { make_of("moe-1"); }, "no receipt in");
  expect_error([&] { make_of("../data"); }, "is not in");
}

}  // namespace assay::test_bundle
