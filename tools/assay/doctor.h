// What this machine has and what that means: the facts behind `assay doctor`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

enum class Measure { kLimits, kNothing };

// Something that will not work here, or not at its speed, and what to do about it.
struct Advice {
  std::string what, todo;
};

struct Examination {
  nlohmann::ordered_json facts;  // "program", "cpu", "memory", "limits", "gpu", "libraries", "disk"
  std::vector<Advice> advice;
};

// Measuring takes about two seconds on a CPU, and a few on a GPU.
Examination examine_machine(Measure measure);

// For people: the facts by section, then the advice.
std::string examination_text(const Examination& examination);

}  // namespace assay
