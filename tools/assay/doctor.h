// The facts and the advice that `assay doctor` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

enum class MachineLimits { kMeasured, kLeftOut };

// Something that does not work on this machine or works slowly, and what to do about it.
struct Advice {
  std::string what, todo;
};

struct Examination {
  nlohmann::ordered_json facts;  // "program", "cpu", "memory", "limits", "gpu", "energy",
                                 // "libraries", "disk"
  std::vector<Advice> advice;
};

// Measuring limits takes about two seconds on a CPU, and a few on a GPU.
Examination examine_machine(MachineLimits limits);

// As text: the facts by section, then the advice.
std::string examination_text(const Examination& examination);

}  // namespace assay
