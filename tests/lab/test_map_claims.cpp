// Claims about a contract map, on planted endpoints whose verdicts are known by hand.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "lab/map/map_claims.h"
#include "lab/map/picture.h"
#include "tests/catch.h"

namespace assay::test_map_claims {
namespace {

using Kind = MapClaim::Kind;

// Endpoints at 10, 100 and 1000 tokens; seed s adds 0.01 s to every value of its model.
MapModel model(const std::string& name, const std::vector<double>& values, double by_seed,
               int64_t seeds = 3) {
  MapModel m{.name = name, .endpoints = {}};
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    double tokens = 1;
    for (const double value : values) {
      tokens *= 10;
      Endpoint e{.run = name,
                 .seed = seed,
                 .value = value + by_seed * double(seed),
                 .cost = {},
                 .device = "cpu",
                 .used_text = {},
                 .energy_of = {}};
      e.cost[size_t(CostAxis::kTokens)].value = tokens;
      e.cost[size_t(CostAxis::kPUsed)].missing = "no used.json";
      m.endpoints.push_back(e);
    }
  }
  return m;
}

// Sparse is behind by 1 at 10, level at 100 and ahead by 1 at 1000; its seeds spread by 0.01.
ContractMap crossing_map(int64_t seeds = 3) {
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0, seeds), model("sparse", {5, 3, 1}, 0.01, seeds)};
  return contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
}

MapClaim at(Kind kind, std::optional<double> budget) {
  MapClaim c;
  c.of = "sparse";
  c.other = "dense";
  c.kind = kind;
  c.at = budget;
  c.name = c.text();
  return c;
}

MapClaim overtakes(const std::string& of, const std::string& other, double from, double to) {
  MapClaim c;
  c.of = of;
  c.other = other;
  c.kind = Kind::kOvertakes;
  c.from = from;
  c.to = to;
  c.name = c.text();
  return c;
}

MapClaimResult judge(const MapClaim& claim, const ContractMap& map) {
  return judge_map_claims({claim}, map).front();
}

class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("assay-claims-" + std::to_string(getpid()) + ".yaml")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a claim at one budget follows from the interval of the difference there") {
  const ContractMap map = crossing_map();
  const MapClaimResult end = judge(at(Kind::kBelow, 1000), map);
  REQUIRE(end.verdict == ClaimVerdict::kHolds);
  REQUIRE(end.difference->mean == Approx(-1 + 0.02));
  REQUIRE_FALSE(end.interpolated);
  REQUIRE(judge(at(Kind::kAbove, 1000), map).verdict == ClaimVerdict::kFails);
  REQUIRE(judge(at(Kind::kBelow, 10), map).verdict == ClaimVerdict::kFails);
  // At 100 the differences are 0.01, 0.02 and 0.03: 0.02 +- 4.303 * 0.01 / sqrt(3).
  const MapClaimResult level = judge(at(Kind::kBelow, 100), map);
  REQUIRE(level.verdict == ClaimVerdict::kUndecided);
  REQUIRE(level.difference->interval95->low == Approx(0.02 - 4.302652730 * 0.01 / std::sqrt(3.0)));
  // Half way between 100 and 1000 in the logarithm: -0.5 + 0.02.
  const MapClaimResult between = judge(at(Kind::kBelow, std::sqrt(1e5)), map);
  REQUIRE(between.difference->mean == Approx(-0.5 + 0.02));
  REQUIRE(between.interpolated);
}

TEST_CASE("a picture says why a difference has no interval") {
  const auto picture = [](int64_t seeds, double by_seed) {
    EndpointSet set;
    set.models = {model("dense", {4, 3, 2}, 0, seeds), model("sparse", {5, 3, 1}, by_seed, seeds)};
    const ContractMap map = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
    return axis_picture(map, map.axes.at(0));
  };
  const auto has = [](const std::string& svg, const char* words) {
    return svg.find(words) != std::string::npos;
  };
  const std::string equal = picture(2, 0), one = picture(1, 0), apart = picture(2, 0.01);
  REQUIRE(has(equal, kNoSpread));
  REQUIRE_FALSE(has(equal, "one seed"));
  REQUIRE(has(one, ", one seed"));
  REQUIRE_FALSE(has(one, kNoSpread));
  REQUIRE_FALSE((has(apart, ", one seed") || has(apart, kNoSpread)));
}

TEST_CASE("a budget that nobody reaches, one seed, and an axis without costs decide nothing") {
  const ContractMap map = crossing_map();
  const MapClaimResult beyond = judge(at(Kind::kBelow, 2000), map);
  REQUIRE(beyond.verdict == ClaimVerdict::kUndecided);
  REQUIRE(beyond.why == "no seed of both reaches this budget");
  const MapClaimResult single = judge(at(Kind::kBelow, 1000), crossing_map(1));
  REQUIRE(single.verdict == ClaimVerdict::kUndecided);
  REQUIRE(single.why == "one seed");
  MapClaim used = at(Kind::kBelow, 1000);
  used.along = CostAxis::kPUsed;
  const MapClaimResult missing = judge(used, map);
  REQUIRE(missing.verdict == ClaimVerdict::kNoRun);
  REQUIRE(missing.why == "sparse: no used.json");
}

TEST_CASE("seeds that are all equal decide no claim") {
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0), model("sparse", {5, 3, 1}, 0)};
  const ContractMap map = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  for (const MapClaim& claim :
       {at(Kind::kBelow, 1000), at(Kind::kAbove, 1000), overtakes("sparse", "dense", 50, 200)}) {
    const MapClaimResult result = judge(claim, map);
    REQUIRE(result.verdict == ClaimVerdict::kUndecided);
    REQUIRE(result.why == kNoSpread);
  }
  REQUIRE(judge(at(Kind::kBelow, {}), map).why == "0 of 3 budgets");
}

TEST_CASE("at every budget a claim holds if it holds at each, and fails if it fails at one") {
  const MapClaimResult both = judge(at(Kind::kBelow, {}), crossing_map());
  REQUIRE(both.verdict == ClaimVerdict::kFails);
  REQUIRE(both.why == "1 of 3 budgets, fails at 1");
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0), model("sparse", {3, 2, 1}, 0.01)};
  const ContractMap ahead = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  REQUIRE(judge(at(Kind::kBelow, {}), ahead).verdict == ClaimVerdict::kHolds);
  set.models = {model("dense", {4, 3, 2}, 0), model("sparse", {3, 3 - 0.02, 1}, 0.01)};
  const ContractMap partly = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  REQUIRE(judge(at(Kind::kBelow, {}), partly).verdict == ClaimVerdict::kUndecided);
}

TEST_CASE("a claim on where the order turns follows from the interval of the crossing") {
  const ContractMap map = crossing_map();  // near 100
  const MapClaimResult found = judge(overtakes("sparse", "dense", 50, 200), map);
  REQUIRE(found.verdict == ClaimVerdict::kHolds);
  REQUIRE(*found.crossing == Approx(100 * std::pow(10, 0.02)).epsilon(0.01));
  REQUIRE(judge(overtakes("sparse", "dense", 20, 50), map).verdict == ClaimVerdict::kFails);
  REQUIRE(judge(overtakes("sparse", "dense", 104, 200), map).verdict == ClaimVerdict::kUndecided);
  const MapClaimResult back = judge(overtakes("dense", "sparse", 50, 200), map);
  REQUIRE(back.verdict == ClaimVerdict::kFails);
  REQUIRE(back.why == "it turns the other way");
  const MapClaimResult single = judge(overtakes("sparse", "dense", 50, 200), crossing_map(1));
  REQUIRE(single.verdict == ClaimVerdict::kUndecided);
  REQUIRE(single.why == "one seed");
}

TEST_CASE("a crossing within the range is not enough where no budget tells the two apart") {
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0), model("sparse", {4, 3, 2}, 0)};
  // sparse - dense of seeds 1, 2 and 3 at 10, 100 and 1000: wide apart at each, but 0 near 100.
  const double differences[] = {0.1, -0.005, -0.11, 1, 0, -1, 2, 0.05, -1.9};
  for (size_t i = 0; i < 9; ++i) set.models[1].endpoints[i].value += differences[i];
  const ContractMap map = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  const MapClaimResult found = judge(overtakes("sparse", "dense", 50, 200), map);
  REQUIRE(found.crossing95->low > 50);
  REQUIRE(found.crossing95->high < 200);
  REQUIRE(found.verdict == ClaimVerdict::kUndecided);
  REQUIRE(found.why == "it turns there, but no budget on both sides tells the two apart");
}

TEST_CASE("a crossing within a range that reaches beyond the endpoints is undecided") {
  const ContractMap map = crossing_map();  // near 100, of endpoints at 10 to 1000
  REQUIRE(judge(overtakes("sparse", "dense", 10, 1000), map).verdict == ClaimVerdict::kHolds);
  for (const auto& [from, to] : {std::pair(5, 200), std::pair(50, 2000)}) {
    const MapClaimResult found = judge(overtakes("sparse", "dense", from, to), map);
    REQUIRE(found.verdict == ClaimVerdict::kUndecided);
    REQUIRE(found.why.find("beyond the endpoints of both") != std::string::npos);
  }
}

TEST_CASE("an order that does not turn refutes a crossing only where there are endpoints") {
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0), model("sparse", {5, 4, 3}, 0.01)};
  const ContractMap map = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  REQUIRE(judge(overtakes("sparse", "dense", 50, 200), map).verdict == ClaimVerdict::kFails);
  const MapClaimResult beyond = judge(overtakes("sparse", "dense", 50, 5000), map);
  REQUIRE(beyond.verdict == ClaimVerdict::kUndecided);
  REQUIRE(beyond.why.find("which is not all of it") != std::string::npos);
  // Budgets are as printed: 10 of the map may be 10.04.
  REQUIRE(judge(overtakes("sparse", "dense", 9.95, 1004), map).verdict == ClaimVerdict::kFails);
}

TEST_CASE("where there are no endpoints, a turn elsewhere refutes nothing") {
  const ContractMap map = crossing_map();  // near 100
  for (const auto& [of, other] : {std::pair("sparse", "dense"), std::pair("dense", "sparse")}) {
    const MapClaimResult far = judge(overtakes(of, other, 5000, 7000), map);
    REQUIRE(far.verdict == ClaimVerdict::kUndecided);
    REQUIRE(far.why.find("beyond the endpoints of both") != std::string::npos);
  }
}

TEST_CASE("seeds that turn once, but not in the same direction, are told as such") {
  EndpointSet set;
  set.models = {model("dense", {4, 3, 2}, 0, 2), model("sparse", {5, 3, 1}, 0, 2)};
  set.models[1].endpoints[3].value = 3;  // the second seed is ahead at first
  set.models[1].endpoints[5].value = 3;
  const ContractMap map = contract_map(set, MapMeasure::kValLoss, {CostAxis::kTokens});
  const MapClaimResult found = judge(overtakes("sparse", "dense", 50, 200), map);
  REQUIRE(found.verdict == ClaimVerdict::kUndecided);
  REQUIRE(found.why == "it turns once in every seed, but not in the same direction");
}

TEST_CASE("a file of claims is read, and its claims are judged and printed") {
  const File file(
      "- {name: pays late, of: sparse, below: dense, along: tokens, at: 1e3}\n"
      "- {of: sparse, below: dense, along: tokens, at: every}\n"
      "- {of: sparse, overtakes: dense, along: tokens, from: 50, to: 200}\n");
  const std::vector<MapClaim> claims = read_map_claims(file.path());
  REQUIRE(claims.size() == 3);
  REQUIRE(claims[0].name == "pays late");
  REQUIRE(claims[1].name == "sparse below dense at every budget of training tokens");
  REQUIRE(claims[2].name == "sparse overtakes dense at 50 to 200 training tokens");
  const auto results = judge_map_claims(claims, crossing_map());
  const std::string text = map_claims_text(results);
  REQUIRE(text.find("pays late: sparse below dense at 1000 training tokens") != std::string::npos);
  REQUIRE(text.find("2 of 3 claims hold, 1 fail") != std::string::npos);
  const auto json = map_claims_json(results);
  REQUIRE(json[1]["at"] == "every");
  REQUIRE(json[2]["verdict"] == "holds");
  REQUIRE(json[2]["crossing95"][0].get<double>() > 50);
}

TEST_CASE("what is no claim is refused with its line") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"of: a", "is not a list of claims"},
      {"- {below: b, along: tokens, at: 1}", "a claim has no model"},
      {"- {of: a, along: tokens, at: 1}", "not exactly one of below, above and overtakes"},
      {"- {of: a, below: b, above: b, along: tokens, at: 1}", "not exactly one of below"},
      {"- {of: a, below: a, along: tokens, at: 1}", "compares a with itself"},
      {"- {of: a, below: b, at: 1}", "a claim has no axis"},
      {"- {of: a, below: b, along: token, at: 1}", "along token is no axis of the map"},
      {"- {of: a, below: b, along: memory, at: 1}", "along memory is no axis of the map"},
      {"- {of: a, below: b, along: tokens}", "want a budget, at"},
      {"- {of: a, below: b, along: tokens, at: 0}", "at = 0 must be > 0"},
      {"- {of: a, below: b, along: tokens, at: many}", "at "},
      {"- {of: a, overtakes: b, along: tokens, at: 3}", "wants from and a larger to"},
      {"- {of: a, overtakes: b, along: tokens, from: 3, to: 2}", "wants from and a larger to"},
      {"- {of: a, below: b, along: tokens, att: 1}", "unknown key att"},
      {"- {of: a, below: b, along: tokens, at: 1}\n- {of: a, below: b, along: tokens, at: 1}",
       "two claims are called"},
  };
  for (const auto& [text, message] : cases) {
    const File file(text + "\n");
    INFO(text);
    try {
      read_map_claims(file.path());
      FAIL("it was read");
    } catch (const UserError& error) {
      INFO(error.what());
      REQUIRE(std::string(error.what()).find(message) != std::string::npos);
      REQUIRE(std::string(error.what()).find(file.path() + ":") == 0);
      REQUIRE(!error.hint().empty());
    }
  }
  MapClaim stranger = overtakes("moe", "dense", 1, 2);
  stranger.where = "claims.yaml:3";
  REQUIRE_THROWS_WITH(judge_map_claims({stranger}, crossing_map()),
                      "claims.yaml:3: the map has no model moe");
}

}  // namespace assay::test_map_claims
