// Energy that CPUs have used, in joules, from the counters that Linux shows in its powercap folder
// (RAPL of Intel and AMD). A counter covers its part of the machine, whoever uses it. Where there
// is none, or it may not be read, there is no value and problem() says why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

// /sys/class/powercap, or the folder that ASSAY_POWERCAP names.
std::string powercap_folder();

// The sum of all packages, and of memory that has a counter of its own. A counter begins again at 0
// after its max_energy_range_uj, which takes minutes at full power: read more often than that.
class CpuEnergy {
 public:
  explicit CpuEnergy(const std::string& folder = powercap_folder());
  const std::string& problem() const { return problem_; }  // "": there are values
  std::string counters() const;                            // "package-0 + package-1 + dram"
  // Since this object was made; NaN from the first counter on that cannot be read.
  double joules();

 private:
  struct Counter {
    std::string name, file;
    uint64_t range_uj = 0, last_uj = 0;
  };
  void add(const std::string& zone, const std::string& name);

  std::vector<Counter> counters_;
  double joules_ = 0;
  std::string problem_;
};

}  // namespace assay
