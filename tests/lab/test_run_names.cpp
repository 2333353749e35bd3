// The names of runs in a column that is too narrow for their paths.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lab/live/run_names.h"
#include "lab/live/text_frame.h"
#include "tests/catch.h"

namespace assay::test_run_names {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("run names: paths that fit stay, shared folders go first") {
  REQUIRE(short_run_names({"runs/a", "runs/b"}, 6) == Names{"runs/a", "runs/b"});
  REQUIRE(short_run_names({"runs/x/dense", "runs/x/moe"}, 8) == Names{"<dense", "<moe"});
  REQUIRE(short_run_names({"runs/x-dense", "runs/x-moe"}, 6) == Names{"<dense", "<moe"});
  REQUIRE(short_run_names({"0123456789"}, 5) == Names{"01~89"});
}

TEST_CASE("run names: names that differ stay different where a place for the cut does that") {
  const Names rules = {"aux-1e-3", "aux-1e-2", "aux-1e-1", "bias-1e-3", "bias-1e-2"};
  for (const Names& seeds : {Names{"1"}, Names{"1", "2"}, Names{"1", "2", "3"}}) {
    Names paths;
    for (const std::string& rule : rules) {
      for (const std::string& seed : seeds)
        paths.push_back("runs/experts/e1024-" + rule + "-steps-auto-seed" + seed);
    }
    const Names names = short_run_names(paths, 15);
    REQUIRE(names.size() == paths.size());
    REQUIRE(std::set<std::string>(names.begin(), names.end()).size() == paths.size());
    for (const std::string& name : names) {
      CAPTURE(name);
      REQUIRE(name.size() <= 15);
      REQUIRE(name.substr(0, 2) != "<e");  // e1024- is shared
    }
  }
}

TEST_CASE("run names: the same path twice, and any width") {
  const Names paths = {"runs/one-run", "runs/one-run", "runs/other-run-with-a-long-name", ""};
  for (int columns = 0; columns < 40; ++columns) {
    const Names names = short_run_names(paths, columns);
    REQUIRE(names.size() == paths.size());
    REQUIRE(names[0] == names[1]);
    for (const std::string& name : names) REQUIRE(int(name.size()) <= std::max(3, columns));
  }
}

TEST_CASE("run names: the table of several runs tells runs of one ending apart") {
  std::vector<RunView> runs(2);
  runs[0].status.path = "runs/experts/aux-1024-steps-auto-seed1";
  runs[1].status.path = "runs/experts/bias-1024-steps-auto-seed1";
  std::string text;
  for (const StyledLine& line :
       text_frame(runs, {.columns = 80, .rows = 24}, Glyphs::kAscii, Colours::kNo)) {
    text += line.text(StyledLine::Escapes::kNone) + "\n";
  }
  CAPTURE(text);
  REQUIRE(text.find("<aux-1") != std::string::npos);
  REQUIRE(text.find("<bias-") != std::string::npos);
}

}  // namespace
}  // namespace assay::test_run_names
