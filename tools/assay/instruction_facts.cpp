#include "tools/assay/instruction_facts.h"

#include <fstream>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/instruction_sets.h"
#include "ops/cpu_gemm/amx.h"
#include "ops/cpu_gemm/amx_target.h"

namespace assay {

using nlohmann::ordered_json;

namespace {

// The matrix unit is in no list of sets: a program that was compiled for it does without.
constexpr const char* kAmx = "amx_bf16";

bool cpu_has(const std::string& wanted) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream flags(line);
    for (std::string flag; flags >> flag;) {
      if (flag == wanted) return true;
    }
    return false;  // the other cores have the same
  }
  return false;
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  const InstructionSets present = present_sets();
  InstructionSets bit = 1;
#define ASSAY_SET(name, builtin, macro, use)                                  \
  if (SetUse::use == SetUse::kPath) {                                         \
    sets.push_back({name, (present & bit) != 0, (kCompiledSets & bit) != 0}); \
  }                                                                           \
  bit <<= 1;
  ASSAY_INSTRUCTION_SETS(ASSAY_SET)
#undef ASSAY_SET
  sets.push_back({kAmx, cpu_has(kAmx), ASSAY_AMX != 0, panel::has_amx()});
  return sets;
}

void add_instruction_sets(const std::vector<InstructionSet>& sets, ordered_json& facts,
                          std::vector<Advice>& advice) {
  const char* const here = "build on this machine: cmake --preset release && cmake --build build";
  ordered_json used = ordered_json::array(), unused = ordered_json::array(),
               absent = ordered_json::array();
  for (const InstructionSet& set : sets) {
    if (!set.here) {
      if (!set.compiled) continue;
      absent.push_back(set.name);
      advice.push_back(
          {strprintf("this program was compiled for %s, which the CPU has not", set.name), here});
    } else if (!set.compiled) {
      unused.push_back(set.name);
      advice.push_back(
          {strprintf("the CPU has %s, but this program was compiled without it", set.name), here});
    } else if (!set.granted) {
      unused.push_back(set.name);
      advice.push_back({"the system does not let this process use the CPU's matrix unit (AMX)",
                        "use Linux 5.16 or newer; until then products run without AMX"});
    } else {
      used.push_back(set.name);
    }
  }
  facts["used"] = used;
  facts["unused"] = unused;
  if (!absent.empty()) facts["absent"] = absent;
}

}  // namespace assay
