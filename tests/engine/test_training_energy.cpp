// What is counted as training, from counters that a test moves.
#include <cmath>

#include "engine/run/training_energy.h"
#include "tests/catch.h"

namespace assay::test_training_energy {

TEST_CASE("energy between a pause and the next step is not of training") {
  Energy now{.cpu_joules = 100, .gpu_joules = 1000};
  int readings = 0;
  TrainingEnergy energy(
      [&] {
        ++readings;
        return now;
      },
      {.cpu_joules = 7, .gpu_joules = 0});
  energy.count();  // not begun
  REQUIRE(energy.total().cpu_joules == 7);
  energy.go_on();
  now = {.cpu_joules = 103, .gpu_joules = 1040};
  energy.go_on();  // the next step
  now = {.cpu_joules = 105, .gpu_joules = 1050};
  energy.count();
  REQUIRE(energy.total().cpu_joules == 12);
  REQUIRE(energy.total().gpu_joules == 50);
  REQUIRE(readings == 2);
  now = {.cpu_joules = 106, .gpu_joules = 1060};
  energy.pause();
  now = {.cpu_joules = 206, .gpu_joules = 2060};
  energy.pause();
  energy.go_on();
  now = {.cpu_joules = 207, .gpu_joules = 2061};
  energy.count();
  REQUIRE(energy.total().cpu_joules == 14);
  REQUIRE(energy.total().gpu_joules == 61);
}

TEST_CASE("counters are also read between logged steps, now and then") {
  Energy now{.cpu_joules = 100, .gpu_joules = 0};
  int readings = 0;
  TrainingEnergy energy(
      [&] {
        ++readings;
        return now;
      },
      {.cpu_joules = 0, .gpu_joules = 0});
  energy.go_on();
  now.cpu_joules = 105;
  energy.count_if_older_than(std::chrono::seconds(3600));
  REQUIRE(readings == 1);
  energy.count_if_older_than(std::chrono::seconds(-1));
  REQUIRE(readings == 2);
  REQUIRE(energy.total().cpu_joules == 5);
}

TEST_CASE("what is unknown once stays unknown") {
  Energy now{.cpu_joules = 1};
  TrainingEnergy energy([&] { return now; }, {.cpu_joules = 0, .gpu_joules = 0});
  energy.go_on();
  energy.count();
  REQUIRE(energy.total().cpu_joules == 0);
  REQUIRE(std::isnan(energy.total().gpu_joules));
  now.cpu_joules = NAN;  // the counter vanished
  energy.count();
  now.cpu_joules = 5;
  energy.count();
  REQUIRE(std::isnan(energy.total().cpu_joules));

  TrainingEnergy none({}, {.cpu_joules = 0, .gpu_joules = 0});
  none.go_on();
  none.count();
  REQUIRE(std::isnan(none.total().cpu_joules));
  TrainingEnergy resumed([] { return Energy{.cpu_joules = 1}; }, {});  // a checkpoint without
  resumed.go_on();
  resumed.count();
  REQUIRE(std::isnan(resumed.total().cpu_joules));
}

}  // namespace assay::test_training_energy
