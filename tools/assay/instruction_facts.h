// The instruction sets that the ops have code for, as `assay doctor` lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/assay/doctor.h"

namespace assay {

struct InstructionSet {
  const char* name;     // as in /proc/cpuinfo
  bool here, compiled;  // the CPU has it; this program is compiled for it
};

std::vector<InstructionSet> instruction_sets();

// Adds the lists "used" and "unused" of what the CPU has, and "absent", if there is any, of what
// the program is compiled for beyond it; and advice about each. amx: the system lets this process
// use the matrix unit.
void add_instruction_sets(const std::vector<InstructionSet>& sets, bool amx,
                          nlohmann::ordered_json& facts, std::vector<Advice>& advice);

}  // namespace assay
