#include "session/energy_counters.h"

#include <limits>

namespace assay {

EnergyCounters::EnergyCounters(const std::string& gpu_bus)
    : gpu_(gpu_bus.empty() ? nullptr : std::make_unique<GpuMeter>(gpu_bus)) {}

Energy EnergyCounters::read() {
  Energy energy{.cpu_joules = cpu_.joules()};
  if (gpu_) {
    energy.gpu_joules = gpu_->joules().value_or(std::numeric_limits<double>::quiet_NaN());
  }
  return energy;
}

std::string EnergyCounters::text() const {
  std::string counted, missing;
  const auto add = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
  };
  if (cpu_.problem().empty()) {
    add(counted, "the CPU's " + cpu_.counters());
  } else {
    add(missing, "of the CPU: " + cpu_.problem());
  }
  if (gpu_) {
    if (gpu_->joules()) {
      add(counted, "the GPU");
    } else {
      add(missing, "of the GPU: " + (gpu_->problem().empty()
                                         ? std::string("its driver has no counter of energy")
                                         : gpu_->problem()));
    }
  }
  if (missing.empty()) return "energy: counted of " + counted;
  return "energy: " + (counted.empty() ? "not counted" : "counted of " + counted + ", but not") +
         " (" + missing + ")";
}

}  // namespace assay
