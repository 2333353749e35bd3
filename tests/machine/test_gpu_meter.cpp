// Clock and power of a GPU, from a library of ours in place of NVML (fake_nvml.cpp).
#include "machine/gpu_meter.h"
#include "tests/catch.h"

namespace assay {

namespace {
const std::string kLibrary = ASSAY_FAKE_NVML;
}

TEST_CASE("a meter reads the clock of the SMs, the power and what holds the clock down") {
  const GpuMeter meter("0000:17:00.0", kLibrary);
  REQUIRE(meter.problem().empty());
  const GpuReading first = meter.read(), second = meter.read();
  REQUIRE(*first.sm_mhz - *second.sm_mhz == 15);
  REQUIRE(*first.watts == 698.75);
  REQUIRE(*first.slowed_by == "power+heat");
  REQUIRE(json_fields({.sm_mhz = 1755, .watts = 698.75, .slowed_by = "power"}) ==
          "\"sm_mhz\": 1755, \"watts\": 698.8, \"slowed_by\": \"power\"");
}

TEST_CASE("a meter reads the energy since the driver was loaded") {
  const GpuMeter meter("0000:17:00.0", kLibrary);
  const double before = *meter.joules();
  REQUIRE(before > 5e9);
  REQUIRE(*meter.joules() - before == 1.5);
}

TEST_CASE("a meter reads the memory that is free") {
  REQUIRE(*GpuMeter("0000:17:00.0", kLibrary).free_bytes() == int64_t{100} << 30);
}

TEST_CASE("without NVML, or for a GPU that it does not know, readings have no value") {
  const GpuMeter absent("0000:17:00.0", "libassay-has-no-such.so.1"),
      other("0000:18:00.0", kLibrary);
  REQUIRE(absent.problem().find("libassay-has-no-such.so.1 cannot be loaded") == 0);
  REQUIRE(other.problem().find("answers 6 for the GPU at 0000:18:00.0") != std::string::npos);
  for (const GpuMeter* meter : {&absent, &other}) {
    REQUIRE(json_fields(meter->read()) == "\"sm_mhz\": null, \"watts\": null, \"slowed_by\": null");
    REQUIRE(!GpuTrace(*meter).end().sm_mhz);
    REQUIRE(!meter->joules());
    REQUIRE(!meter->free_bytes());
  }
}

TEST_CASE("a library that lacks the functions of NVML is a problem, not a crash") {
  const GpuMeter meter("0000:17:00.0", "libm.so.6");
  REQUIRE(meter.problem() == "libm.so.6 has no nvmlInit_v2 or no nvmlDeviceGetHandleByPciBusId_v2");
}

TEST_CASE("a trace has the median clock, the mean power and every reason that was met") {
  const GpuReading of_three = summary({{.sm_mhz = 1980, .watts = 300.0, .slowed_by = ""},
                                       {.sm_mhz = 1500, .watts = 700.0, .slowed_by = "power"},
                                       {.sm_mhz = 1515, .watts = {}, .slowed_by = "other"}});
  REQUIRE(*of_three.sm_mhz == 1515);
  REQUIRE(*of_three.watts == 500);
  REQUIRE(*of_three.slowed_by == "power+other");
  REQUIRE(!summary({}).watts);

  const GpuMeter meter("0000:17:00.0", kLibrary);
  const int before = *meter.read().sm_mhz;
  GpuTrace trace(meter);
  const GpuReading read = trace.end();  // of at least one reading
  REQUIRE(*read.sm_mhz < before);
  REQUIRE(*read.watts == 698.75);
}

}  // namespace assay
