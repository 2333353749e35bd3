#include "machine/cpu_energy.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

namespace assay {

namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

std::string word_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string powercap_folder() {
  const char* given = std::getenv("ASSAY_POWERCAP");
  return given != nullptr && *given != '\0' ? given : "/sys/class/powercap";
}

// Zones are intel-rapl:0 (a package) and intel-rapl:0:1 (a part of it: core, uncore, dram), on AMD
// too. intel-rapl-mmio:0 is the same package once more, and psys contains the packages.
CpuEnergy::CpuEnergy(const std::string& folder) {
  for (const fs::path& zone : folders_in(folder)) {
    if (zone.filename().string().rfind("intel-rapl:", 0) != 0) continue;
    const std::string name = word_in(zone / "name");
    if (name.rfind("package", 0) == 0 || name == "dram") add(zone.string(), name);
  }
  if (counters_.empty() && problem_.empty()) {
    problem_ = folder + " has no counter of a package (RAPL)";
  }
  if (!problem_.empty()) counters_.clear();
}

void CpuEnergy::add(const std::string& zone, const std::string& name) {
  Counter counter{.name = name, .file = zone + "/energy_uj"};
  const auto range = number_in(zone + "/max_energy_range_uj"), now = number_in(counter.file);
  if (!range || !now || *range == 0) {
    problem_ = zone + (range && *range > 0 ? "/energy_uj" : "/max_energy_range_uj") +
               " cannot be read as this user";
    return;
  }
  counter.range_uj = *range;
  counter.last_uj = *now;
  counters_.push_back(counter);
}

std::string CpuEnergy::counters() const {
  std::string text;
  for (const Counter& c : counters_) text += (text.empty() ? "" : " + ") + c.name;
  return text;
}

double CpuEnergy::joules() {
  if (!problem_.empty()) return std::numeric_limits<double>::quiet_NaN();
  for (Counter& c : counters_) {
    const auto now = number_in(c.file);
    if (!now) {
      problem_ = c.file + " cannot be read any more";
      return std::numeric_limits<double>::quiet_NaN();
    }
    const uint64_t used =
        *now >= c.last_uj ? *now - c.last_uj : *now + c.range_uj - std::min(c.last_uj, c.range_uj);
    joules_ += 1e-6 * double(used);
    c.last_uj = *now;
  }
  return joules_;
}

}  // namespace assay
