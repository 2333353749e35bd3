// Derivations of published figures, and the verdict on every figure of every study.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "lab/compare/published_check.h"
#include "lab/compare/published_report.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"

namespace assay::test_published_check {
namespace {

using Json = nlohmann::ordered_json;

// One table of rounded and of whole numbers.
PublishedStudy small_study() {
  PublishedTable table{.title = "t", .keys = {"model"}, .columns = {}, .rows = {}};
  for (const char* key : {"loss", "count"})
    table.columns.push_back(
        {.key = key, .unit = "", .what = "w", .measure = "", .step = {}, .layer = {}});
  table.columns[0].decimals = 2;
  table.rows = {{"moe-64", 1.5, 7}, {"dense", 1.25, nullptr}};
  PublishedStudy study;
  study.name = "small";
  study.tables = {table};
  return study;
}

Range derived(const std::string& text) {
  const PublishedStudy study = small_study();
  const RowOfTable row = find_row(study, {"t", "moe-64"});
  return evaluate(Json::parse(text), study, &row);
}

void require_range(const std::string& text, double value, double low, double high) {
  INFO(text);
  const Range range = derived(text);
  REQUIRE(range.value == Approx(value));
  REQUIRE(range.low == Approx(low));
  REQUIRE(range.high == Approx(high));
}

void require_exact(const std::string& text, double value) {
  require_range(text, value, value, value);
}

CheckedFigure only(const std::vector<CheckedFigure>& figures, const std::string& what) {
  std::vector<CheckedFigure> found;
  for (const CheckedFigure& f : figures)
    if (f.what == what) found.push_back(f);
  INFO(what);
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace

TEST_CASE("every operation of a derivation") {
  require_exact("2.5", 2.5);
  require_exact(R"({"+": [1, 2, 3]})", 6);
  require_exact(R"({"-": [1, 3]})", -2);
  require_exact(R"({"*": [2, 3, 4]})", 24);
  require_exact(R"({"/": [1, 4]})", 0.25);
  require_exact(R"({"exp": 1})", 2.718281828459045);
  require_exact(R"({"ceil": {"/": [50257, 128]}})", 393);
  require_exact(R"({"sqrt": [16]})", 4);
  require_exact(R"({"*": [{"+": [1, 2]}, {"-": [5, 1]}]})", 12);
}

TEST_CASE("a rounded input leaves a range, a whole number does not") {
  require_range(R"({"row": "loss"})", 1.5, 1.495, 1.505);
  require_exact(R"({"row": "count"})", 7);
  require_exact(R"({"cell": ["t", "moe-64", "count"]})", 7);
  require_range(R"({"cell": ["t", "{model}", "loss"]})", 1.5, 1.495, 1.505);
  require_range(R"({"cell": ["t", "dense", "loss"]})", 1.25, 1.245, 1.255);
  require_range(R"({"-": [{"row": "loss"}, {"cell": ["t", "dense", "loss"]}]})", 0.25, 0.24, 0.26);
  require_range(R"({"/": [3, {"row": "loss"}]})", 2, 3 / 1.505, 3 / 1.495);
  require_range(R"({"*": [-2, {"row": "loss"}]})", -3, -3.01, -2.99);
}

TEST_CASE("numbers of presets come from the audit and from horizons") {
  require_exact(R"({"audit": ["speedrun/{model}.yaml", "total"]})", 755534592);
  require_exact(R"({"audit": ["speedrun/moe-64.yaml", "active"]})", 191073024);
  require_exact(R"({"audit": ["speedrun/moe-64.yaml", "ffn_active_width"]})", 3072);
  require_exact(R"({"audit": ["speedrun/moe-64.yaml", "flops_per_token"]})", 1027768320);
  require_exact(R"({"audit": ["speedrun/moe-64.yaml", "tokens_per_step"]})", 524288);
  require_exact(R"({"tokens_per_expert": ["speedrun/moe-64.yaml", 4999610368]})", 468713472);
  require_exact(R"({"horizon": {"preset": "speedrun/{model}.yaml", "kind": "totalDN",
                                "reference": "speedrun/dense.yaml"}})",
                37813);
  require_exact(R"({"horizon": {"preset": "speedrun/moe-64.yaml", "kind": "totalDN",
                                "reference": "speedrun/dense.yaml", "fraction": 0.2}})",
                7563);
  require_exact(R"({"horizon": {"preset": "speedrun/moe-256.yaml", "kind": "totalDN",
                                "coefficient": 8, "shared_in_total": false}})",
                43119);
  // 8 (50304 * 768 * 2 + 6 * 2359296 + 6 * 3 * 768 * 3072 + 13 * 768) / 524288, rounded down.
  require_exact(R"({"horizon": {"preset": "speedrun/dense.yaml", "kind": "totalDN",
                                "coefficient": 8, "set": ["model.layers=6"]}})",
                2043);
}

TEST_CASE("a derivation that cannot be evaluated says why") {
  const struct {
    const char* text;
    const char* says;
  } rows[] = {
      {R"({"tan": 1})", "the unknown word tan"},
      {R"("1")", "is not understood"},
      {R"({"+": [1, 2], "-": [1, 2]})", "is not understood"},
      {R"({"+": [1]})", "gives + 1 values"},
      {R"({"-": [1, 2, 3]})", "gives - 3 values"},
      {R"({"exp": [1, 2]})", "gives exp 2 values"},
      {R"({"/": [1, 0]})", "divides by 0"},
      {R"({"sqrt": -1})", "takes the root of -1"},
      {R"({"exp": 1000})", "is not finite"},
      {R"({"row": "los"})", "names no column of t: los"},
      {R"({"cell": ["t", "dense", "count"]})", "needs count, which is not published"},
      {R"({"cell": ["t", "moe-32", "loss"]})", "names no row of small: t, moe-32"},
      {R"({"cell": ["u", "dense", "loss"]})", "names no row of small: u, dense"},
      {R"({"audit": ["speedrun/dense.yaml", "totl"]})", "names totl"},
      {R"({"audit": ["speedrun/none.yaml", "total"]})", "needs models/presets/speedrun/none.yaml"},
      {R"({"horizon": {"preset": "speedrun/dense.yaml"}})", "has no kind"},
      {R"({"horizon": {"preset": "speedrun/dense.yaml", "kind": "DN"}})", "unknown contract DN"},
  };
  for (const auto& row : rows) {
    INFO(row.text);
    expect_error([&] { derived(row.text); }, row.says);
  }
  expect_error([] { evaluate(Json::parse(R"({"row": "loss"})"), small_study()); },
               "outside a table names the column loss");
}

TEST_CASE("a printed figure has its digits, and half a unit of the last") {
  const struct {
    const char* text;
    double value, half_unit;
  } rows[] = {{"26.24", 26.24, 0.005}, {"~4.5", 4.5, 0.05},  {"+0.204713", 0.204713, 5e-7},
              {"-0.5", -0.5, 0.05},    {"~705", 705, 0.5},   {"190,532,352", 190532352, 0.5},
              {"1.40", 1.4, 0.005},    {"~1,404", 1404, 0.5}};
  for (const auto& row : rows) {
    INFO(row.text);
    const PrintedFigure figure = read_figure(row.text);
    REQUIRE(figure.value == row.value);
    REQUIRE(figure.half_unit() == Approx(row.half_unit));
  }
  for (const char* text : {"", "~", "4.", ".5", "1.2.3", "4.5B", "1e5", "--1", "nan"}) {
    INFO(text);
    expect_error([&] { read_figure(text); }, "is not a printed figure");
  }
}

TEST_CASE("a derived value is the same if it rounds to the printed digits") {
  const auto same = [](double value, const std::string& printed) {
    return is_same({value, value, value}, read_figure(printed));
  };
  REQUIRE(same(26.2402175563, "26.24"));
  REQUIRE(same(26.245, "26.24"));
  REQUIRE(same(26.235, "26.24"));
  REQUIRE(!same(26.2451, "26.24"));
  REQUIRE(!same(26.2349, "26.24"));
  REQUIRE(same(6.291, "~6.3"));
  REQUIRE(!same(37813, "37814"));
  REQUIRE(same(-0.51, "-0.5"));
  // 0.0757 from losses of four decimals: 0.0758 is possible, 0.0759 is not.
  const Range gap{0.0757, 0.0756, 0.0758};
  REQUIRE(is_same(gap, read_figure("0.0758")));
  REQUIRE(is_same(gap, read_figure("0.0755500")) == false);
  REQUIRE(!is_same(gap, read_figure("0.0759")));
}

TEST_CASE("a cell shows the digits of its column") {
  const PublishedTable table = small_study().tables[0];
  REQUIRE(cell_text(1.5, &table.columns[0]) == "1.50");
  REQUIRE(cell_text(7, &table.columns[1]) == "7");
  REQUIRE(cell_text("full", &table.columns[0]) == "full");
  REQUIRE(cell_text(nullptr, &table.columns[0]).empty());
}

TEST_CASE("a figure has its verdict, its own rule before that of its column") {
  PublishedStudy study = small_study();
  study.tables[0].columns[0].rule.not_derivable = "measured";
  study.tables[0].columns[1].rule.derive = 8;
  PublishedFigure own;
  own.cell = {"t", "dense", "loss"}, own.rule.derive = 1.254;
  study.checks.push_back(own);
  PublishedFigure of_text;
  of_text.what = "a quotient", of_text.printed = "2", of_text.rule.derive = {{"/", {1, 0}}};
  study.checks.push_back(of_text);
  of_text.what = "without a rule", of_text.rule.derive = nullptr;
  study.checks.push_back(of_text);

  const std::vector<CheckedFigure> figures = check_published(study);
  REQUIRE(figures.size() == 5);  // the cell that is not published has none
  REQUIRE(only(figures, "moe-64: loss").verdict == Verdict::kNotDerivable);
  REQUIRE(only(figures, "dense: loss").verdict == Verdict::kSame);
  REQUIRE(only(figures, "moe-64: count").verdict == Verdict::kDiffers);
  REQUIRE(only(figures, "a quotient").verdict == Verdict::kFailed);
  REQUIRE(only(figures, "a quotient").reason.find("divides by 0") != std::string::npos);
  REQUIRE(only(figures, "without a rule").verdict == Verdict::kFailed);
  REQUIRE(count_line(figures) == "1 same, 1 differ, 1 cannot be derived, 2 failed");
  const Json json = check_json(figures);
  REQUIRE(json["differ"] == 1);
  REQUIRE(json["failed"] == 2);
  REQUIRE(json["figures"][2]["verdict"] == "differs");
  REQUIRE(json["figures"][2]["published"] == "7");
  REQUIRE(json["figures"][2]["derived"] == 8.0);
}

TEST_CASE("every figure of every study has a verdict, and its own rules name its cells") {
  for (const std::string& name : published_names()) {
    const PublishedStudy study = published_study(name);
    for (const PublishedTable& table : study.tables)
      for (const auto& cells : table.rows)
        for (size_t c = 0; c < table.columns.size(); ++c) {
          const Json& cell = cells[table.keys.size() + c];
          const auto& decimals = table.columns[c].decimals;
          INFO(name << ": " << table.title << ": " << table.columns[c].key << " " << cell.dump());
          if (!cell.is_number()) continue;
          REQUIRE((decimals.has_value() || cell.is_number_integer()));
          // No digit of the file is lost.
          REQUIRE(read_figure(cell_text(cell, &table.columns[c])).value == cell.get<double>());
        }
    for (const PublishedFigure& check : study.checks) {
      INFO(name << ": " << check.what);
      if (check.cell.empty()) {
        REQUIRE(!check.what.empty());
        REQUIRE(!check.where.empty());
        continue;
      }
      const RowOfTable row = find_row(study, {check.cell.begin(), check.cell.end() - 1});
      REQUIRE(std::any_of(row.table.columns.begin(), row.table.columns.end(),
                          [&](const PublishedColumn& c) { return c.key == check.cell.back(); }));
    }
    const std::vector<CheckedFigure> figures = check_published(study);
    for (const CheckedFigure& f : figures) {
      INFO(name << ": " << f.table << ": " << f.what << ": " << f.reason);
      REQUIRE(f.verdict != Verdict::kFailed);
    }
    std::istringstream lines(check_text(study, figures));
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      REQUIRE(line.size() <= 110);
    }
  }
}

TEST_CASE("what the studies derive, and what differs") {
  const struct {
    const char* study;
    std::vector<std::string> differing;
    int64_t same;
  } studies[] = {
      {"0003",
       {"calibration, dense: compute", "calibration, moe-64: compute",
        "calibration, moe-256: compute"},
       34},
      {"0004", {}, 30},
      {"0006", {"4096 aux-only: E_eff@512", "2048: E_eff@512"}, 11},
      {"tiny", {}, 2},
  };
  for (const auto& expected : studies) {
    const std::vector<CheckedFigure> figures = check_published(published_study(expected.study));
    std::vector<std::string> differing;
    for (const CheckedFigure& f : figures)
      if (f.verdict == Verdict::kDiffers) differing.push_back(f.what);
    INFO(expected.study << ": " << count_line(figures));
    REQUIRE(differing == expected.differing);
    REQUIRE(count_of(figures, Verdict::kSame) == expected.same);
  }
  const auto figures = check_published(published_study("0004"));
  REQUIRE(only(figures, "gamma, tokens per parameter of dense").derived->value ==
          Approx(26.24021755633395));
  REQUIRE(only(figures, "moe-256: P_total").verdict == Verdict::kSame);
  REQUIRE(only(figures, "totalDN, 20%, moe-256: stop_step").derived->value == 28393);
  const auto compute =
      only(check_published(published_study("0003")), "calibration, dense: compute");
  REQUIRE(compute.derived->value == Approx(95.2386));
  const auto spread = only(check_published(published_study("tiny")), "dense active-match, MoE: +-");
  REQUIRE(spread.verdict == Verdict::kNotDerivable);
  REQUIRE(spread.derived->value == Approx(0.00233238));
}

TEST_CASE("the studies are listed with their titles") {
  const std::string text = published_list_text();
  REQUIRE(text.find("tiny   Tiny scale") != std::string::npos);
  REQUIRE(published_list_json()["0003"] == published_study("0003").title);
}

}  // namespace assay::test_published_check
