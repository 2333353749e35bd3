// The instruction sets that the ops have code for, as `assay doctor` lists them: those of
// base/instruction_sets.h by which they choose, and AMX.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/assay/doctor.h"

namespace assay {

struct InstructionSet {
  const char* name;     // as in /proc/cpuinfo
  bool here, compiled;  // the CPU has it; this program is compiled for it
  bool granted = true;  // the system lets this process use it: it asks for AMX
};

std::vector<InstructionSet> instruction_sets();

// Adds the lists "used" and "unused" of what the CPU has, and "absent", if there is any, of what
// the program is compiled for beyond it; and advice about each.
void add_instruction_sets(const std::vector<InstructionSet>& sets, nlohmann::ordered_json& facts,
                          std::vector<Advice>& advice);

}  // namespace assay
