#include "base/check.h"
#include "session/since_last_launch.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_since_last_launch {
namespace {

Config keeping(int64_t checkpoints) {
  Config config;
  config.run.keep_checkpoints = checkpoints;
  return config;
}

// A run whose checkpoints were saved by a launch that kept more.
struct Run {
  TempFolder folder;
  std::vector<float> weight = std::vector<float>(8);

  void save(int64_t step) {
    const auto tensor = [&](const char* name) {
      return TensorRef{.name = name, .dtype = DType::kF32, .shape = {8}, .data = weight.data()};
    };
    TrainingState state;
    state.step = step;
    Checkpoints(folder.path(), 9, {}).save(state, {tensor("weight")}, {tensor("weight.m")});
  }
  std::vector<std::string> warnings(int64_t kept, int64_t keep, int64_t steps_done) const {
    return checkpoint_warnings(keeping(kept), keeping(keep), Checkpoints(folder.path(), keep, {}),
                               steps_done);
  }
};

std::string warning(int64_t kept, int64_t keep, const std::string& what) {
  return strprintf("run.keep_checkpoints: %ld -> %ld: the next save removes ", long(kept),
                   long(keep)) +
         what;
}

}  // namespace

TEST_CASE("a launch that keeps fewer checkpoints says how many go, and how many need not") {
  using Lines = std::vector<std::string>;
  Run run;
  for (const int64_t step : {10, 15, 20, 25, 28}) run.save(step);
  REQUIRE(
      run.warnings(5, 2, 28) ==
      Lines{warning(5, 2, "up to 4 checkpoints (--set run.keep_checkpoints=5 keeps 3 of them)")});
  REQUIRE(run.warnings(6, 2, 28) ==
          Lines{warning(6, 2, "up to 4 checkpoints (--set run.keep_checkpoints=6 keeps them)")});
  REQUIRE(run.warnings(9, 4, 28) ==
          Lines{warning(9, 4, "up to 2 checkpoints (--set run.keep_checkpoints=9 keeps them)")});
  REQUIRE(run.warnings(9, 5, 28).empty());  // one goes with every save
  REQUIRE(run.warnings(2, 5, 28).empty());
}

}  // namespace assay::test_since_last_launch
