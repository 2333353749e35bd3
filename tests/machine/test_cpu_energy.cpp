// Counters of energy in a folder of ours, as Linux's powercap has them.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "machine/cpu_energy.h"
#include "tests/catch.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

class Powercap {
 public:
  Powercap() : folder_(fs::temp_directory_path() / ("assay-powercap-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Powercap() { fs::remove_all(folder_); }
  Powercap(const Powercap&) = delete;
  Powercap& operator=(const Powercap&) = delete;

  void zone(const std::string& zone, const std::string& name, uint64_t range, uint64_t energy) {
    fs::create_directories(folder_ / zone);
    write(zone + "/name", name);
    write(zone + "/max_energy_range_uj", std::to_string(range));
    set(zone, energy);
  }
  void set(const std::string& zone, uint64_t energy) {
    write(zone + "/energy_uj", std::to_string(energy));
  }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(folder_ / file) << text << "\n";
  }
  std::string path() const { return folder_.string(); }

 private:
  fs::path folder_;
};

}  // namespace

TEST_CASE("packages and their memory are added; what they contain or repeat is not") {
  Powercap c;
  c.zone("intel-rapl:0", "package-0", 1'000'000'000, 5'000'000);
  c.zone("intel-rapl:0:0", "core", 1'000'000'000, 0);
  c.zone("intel-rapl:0:1", "dram", 1'000'000'000, 7'000'000);
  c.zone("intel-rapl:1", "package-1", 1'000'000'000, 0);
  c.zone("intel-rapl:2", "psys", 1'000'000'000, 0);
  c.zone("intel-rapl-mmio:0", "package-0", 1'000'000'000, 0);
  CpuEnergy energy(c.path());
  REQUIRE(energy.problem().empty());
  REQUIRE(energy.counters() == "package-0 + dram + package-1");
  REQUIRE(energy.joules() == 0);
  for (const char* zone : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"}) {
    c.set(zone, 900'000'000);
  }
  REQUIRE(energy.joules() == 0);
  c.set("intel-rapl:0", 7'500'000);
  c.set("intel-rapl:0:1", 8'000'000);
  c.set("intel-rapl:1", 4'000'000);
  REQUIRE(energy.joules() == Approx(2.5 + 1 + 4));
  REQUIRE(energy.joules() == Approx(7.5));
}

TEST_CASE("a counter that begins again at 0 loses nothing") {
  Powercap c;
  c.zone("intel-rapl:0", "package-0", 262'143'328'850, 262'143'000'000);
  CpuEnergy energy(c.path());
  c.set("intel-rapl:0", 171'150);
  REQUIRE(energy.joules() == Approx(0.5));
  c.set("intel-rapl:0", 1'171'150);
  REQUIRE(energy.joules() == Approx(1.5));
}

TEST_CASE("without a counter, or one that cannot be read, there is a problem and no value") {
  Powercap c;
  const CpuEnergy absent(c.path() + "/none");
  REQUIRE(absent.problem() == c.path() + "/none has no counter of a package (RAPL)");
  c.zone("intel-rapl:0", "package-0", 1'000'000'000, 0);
  CpuEnergy vanishing(c.path());
  REQUIRE(vanishing.joules() == 0);
  fs::remove(c.path() + "/intel-rapl:0/energy_uj");
  REQUIRE(std::isnan(vanishing.joules()));
  REQUIRE(vanishing.problem() == c.path() + "/intel-rapl:0/energy_uj cannot be read any more");
  CpuEnergy unreadable(c.path());
  REQUIRE(unreadable.problem() == c.path() + "/intel-rapl:0/energy_uj cannot be read as this user");
  REQUIRE(unreadable.counters().empty());
  REQUIRE(std::isnan(unreadable.joules()));
}

TEST_CASE("the environment names another folder") {
  setenv("ASSAY_POWERCAP", "/of-a-test/powercap", 1);
  REQUIRE(powercap_folder() == "/of-a-test/powercap");
  unsetenv("ASSAY_POWERCAP");
  REQUIRE(powercap_folder() == "/sys/class/powercap");
}

}  // namespace assay
