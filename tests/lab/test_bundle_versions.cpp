// Verdicts and intervals of a matrix's receipt by the versions of their rules.
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "lab/receipt/make.h"
#include "lab/receipt/verify.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/fake_run.h"

namespace assay::test_bundle_versions {
namespace {

constexpr int kSeeds = 6;

std::vector<std::string> runs_named(const std::string& model) {
  std::vector<std::string> runs;
  for (int seed = 1; seed <= kSeeds; ++seed) runs.push_back(model + "-" + std::to_string(seed));
  return runs;
}

// Six runs of dense and of moe that stopped at their target at half of their steps. Those of moe
// but one have collapsed. The receipt's claims are by the present rules, or as version 2 had them.
struct Versions {
  TempFolder folder;
  std::string path = folder / "matrix";
  const std::vector<std::string> dense = runs_named("dense"), moe = runs_named("moe");

  void write_run(const std::string& name, double loss, bool collapsed) const {
    const std::string run = path + "/" + name;
    FakeRun{.path = run, .data = folder / "data", .loss = loss}.write();
    Config config = load_config(run + "/config.yaml");
    config.run.steps = 2 * FakeRun::kSteps;
    config.telemetry.window = 10;
    write_file_atomic(run + "/config.yaml", to_yaml(config));
    if (!collapsed) {
      Database(run + "/telemetry.db", Database::Mode::kCreate)
          .run("UPDATE router_layer SET window_max_load_norm = 0.5");
    }
    write_receipt(run + "/receipt.json", make_run_receipt(run, run));
  }

  explicit Versions(bool is_old) {
    Bundle bundle{.folder = path, .name = "versions", .runs = {}, .files = {}, .claims = {}};
    for (int i = 0; i < kSeeds; ++i) {
      write_run(dense[size_t(i)], 3.9 + 0.01 * i, false);
      write_run(moe[size_t(i)], 3.8 + 0.013 * i, i > 0);
    }
    bundle.runs = dense;
    bundle.runs.insert(bundle.runs.end(), moe.begin(), moe.end());
    const auto difference = [&](const ReceiptJson& of) {
      return std::vector<ReceiptTerm>{{.sign = 1, .of = of, .runs = moe},
                                      {.sign = -1, .of = of, .runs = dense}};
    };
    const std::vector<ReceiptTerm> of_moe = {
        {.sign = 1, .of = how_measure("val_loss", 0.27), .runs = moe}};
    const std::pair<const char*, ReceiptJson> claims[] = {
        {"collapsed.verdict",
         how_verdict(ClaimRelation::kAbove, 0, 0, difference(how_measure("collapsed")))},
        {"loss.verdict",
         how_verdict(ClaimRelation::kBelow, 0, 0, difference(how_measure("val_loss")))},
        {"share.verdict", how_verdict(ClaimRelation::kBelow, 5, 0, of_moe)},
        {"collapsed.low", how_over_runs("interval95_low", how_measure("collapsed"), moe)},
        {"saturation.low", how_over_runs("interval95_low", how_measure("first_saturation"), moe)}};
    for (auto [name, how] : claims) {
      if (is_old) how["version"] = 2;
      if (is_old && how.contains("terms")) {
        for (ReceiptJson& term : how["terms"]) term["of"].erase("version");
      }
      bundle.claims.push_back({.name = name, .unit = "", .how = how});
    }
    write_receipt(path + "/receipt.json", make_bundle_receipt(bundle));
  }
};

}  // namespace

TEST_CASE("a receipt is recomputed by the version of its rules, and told where they say another") {
  for (const bool is_old : {true, false}) {
    const Versions m(is_old);
    const Receipt receipt = read_receipt(m.path + "/receipt.json");
    const auto value = [&](size_t i) { return receipt.claims[i].value; };
    // Student's interval of 1, 1, 1, 1, 1, 0 is above 0; the exact test of five has p = 0.0625.
    REQUIRE(value(0) == (is_old ? "holds" : "undecided"));
    REQUIRE(value(1) == (is_old ? "holds" : "undecided"));  // losses about the target
    // Step 20 is within 2.5% of 80 steps of 21.6; the next evaluation, at 40, is too far from it.
    REQUIRE(value(2) == (is_old ? ReceiptJson("holds") : ReceiptJson()));
    REQUIRE(value(3).is_null() == !is_old);
    REQUIRE(std::abs(value(4).get<double>() - 31) < 1e-9);
    const Verification v = verify_receipt(m.path, {});
    REQUIRE(v.count(Finding::kDrift) == 0);
    int told = 0;
    for (const Check& check : v.checks) {
      told += check.detail.find("(by an older rule; now \"undecided\")") != std::string::npos;
    }
    REQUIRE(told == (is_old ? 3 : 0));
  }
}

TEST_CASE("a value at a share by a version that this program does not know is refused") {
  const Versions m(false);
  RunEvidence run(m.path + "/moe-1");
  ReceiptJson how = how_measure("val_loss", 0.25);
  REQUIRE(recompute(run, how) == 3.8 - 0.25);
  how["version"] = 3;
  expect_error([&] { recompute(run, how); }, "a version that this program does not know");
}

}  // namespace assay::test_bundle_versions
