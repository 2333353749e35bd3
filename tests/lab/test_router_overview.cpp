#include <filesystem>
#include <nlohmann/json.hpp>

#include "lab/router/overview.h"
#include "tests/catch.h"
#include "tests/lab/fake_run.h"

namespace assay::test_router_overview {
namespace {

// Two runs with experts, of one folder; one is judged over five steps, one is too early.
struct Runs {
  std::filesystem::path folder;

  explicit Runs(const std::string& name)
      : folder(std::filesystem::temp_directory_path() / ("assay-router-overview-" + name)) {
    std::filesystem::remove_all(folder);
    write("judged", 5);
    write("early", 100);
  }
  ~Runs() { std::filesystem::remove_all(folder); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  std::string path(const std::string& name) const { return folder / name; }

 private:
  void write(const std::string& name, int64_t window) const {
    const FakeRun run{.path = path(name), .data = folder / "data", .window = window};
    run.write();
  }
};

}  // namespace

TEST_CASE("an overview has a line per run, and names what it leaves out") {
  const Runs runs("lines");
  const RouterOverview overview =
      router_overview("m", {runs.path("judged"), runs.path("nowhere"), runs.path("early")});
  REQUIRE(overview.lines.size() == 2);
  const RouterLine& judged = overview.lines[0];
  REQUIRE((judged.run == "judged" && judged.experts == 4 && judged.top_k == 2));
  REQUIRE(judged.state == RouterState::kCollapsed);
  REQUIRE(judged.dead_share == 0.125);
  REQUIRE(judged.effective_share == 1);
  REQUIRE((judged.max_load_norm_worst == 0.95 && judged.worst_layer == 2));
  REQUIRE((judged.last_step == FakeRun::kSteps && judged.end == "steps"));
  REQUIRE(overview.lines[1].state == RouterState::kTooEarly);
  REQUIRE(!overview.lines[1].dead_share);
  REQUIRE(overview.left_out.size() == 1);
  REQUIRE(overview.left_out[0].find("nowhere") != std::string::npos);

  const std::string text = overview_text(overview);
  INFO(text);
  for (const char* part : {"m: the routers of 2 runs", "12.5%", "0.950", "too early",
                           "compares numbers of experts", "left out: "}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
  const nlohmann::ordered_json json = overview_json(overview);
  REQUIRE(json.size() == 2);
  REQUIRE(json[0]["state"] == "collapsed");
  REQUIRE(json[0]["effective_share"] == 1);
  REQUIRE(json[1]["state"] == "too_early");
  REQUIRE(json[1]["dead_share"].is_null());
}

TEST_CASE("an overview of nothing is refused") {
  const Runs runs("nothing");
  REQUIRE_THROWS_WITH(router_overview("m", {runs.path("nowhere")}),
                      Catch::Matchers::ContainsSubstring("m: none of its 1 runs has a router"));
}

}  // namespace assay::test_router_overview
