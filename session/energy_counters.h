// The counters of energy of what a process trains on.
#pragma once

#include <memory>
#include <string>

#include "engine/run/training_energy.h"
#include "machine/cpu_energy.h"
#include "machine/gpu_meter.h"

namespace assay {

class EnergyCounters {
 public:
  // gpu_bus: the PCI address of its GPU; "": it trains on the CPU.
  explicit EnergyCounters(const std::string& gpu_bus);
  Energy read();
  // What is counted and what is not, for the log: "energy: CPU package-0 + dram; not the GPU: ...".
  std::string text() const;

 private:
  CpuEnergy cpu_;
  std::unique_ptr<GpuMeter> gpu_;
};

}  // namespace assay
