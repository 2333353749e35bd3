#include "tools/assay/instruction_facts.h"

#include <cstring>
#include <fstream>

#include "base/check.h"

namespace assay {

using nlohmann::ordered_json;

namespace {

// The value of a line "name : value" of a file in /proc; "" if there is none.
std::string table_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
#if defined(__AVX2__)
  constexpr bool kAvx2 = true;
#else
  constexpr bool kAvx2 = false;
#endif
#if defined(__AVX512F__)
  constexpr bool kAvx512 = true;
#else
  constexpr bool kAvx512 = false;
#endif
#if defined(__AVX512BF16__)
  constexpr bool kAvx512Bf16 = true;
#else
  constexpr bool kAvx512Bf16 = false;
#endif
#if defined(__AMX_BF16__)
  constexpr bool kAmx = true;
#else
  constexpr bool kAmx = false;
#endif
#if defined(__x86_64__)
  const std::string flags = " " + table_value("/proc/cpuinfo", "flags") + " ";
  const auto has = [&](const char* flag) {
    return flags.find(std::string(" ") + flag + " ") != std::string::npos;
  };
  return {
      {"avx2", has("avx2"), kAvx2},
      {"avx512f", has("avx512f"), kAvx512},
      {"avx512_bf16", has("avx512_bf16"), kAvx512Bf16},
      {"amx_bf16", has("amx_bf16"), kAmx},
  };
#else
  return {};
#endif
}

void add_instruction_sets(const std::vector<InstructionSet>& sets, bool amx, ordered_json& facts,
                          std::vector<Advice>& advice) {
  const char* const here = "build on this machine: cmake --preset release && cmake --build build";
  ordered_json used = ordered_json::array(), unused = ordered_json::array(),
               absent = ordered_json::array();
  for (const InstructionSet& set : sets) {
    const bool granted = std::strcmp(set.name, "amx_bf16") != 0 || amx;
    if (!set.here) {
      if (!set.compiled) continue;
      absent.push_back(set.name);
      advice.push_back(
          {strprintf("this program was compiled for %s, which the CPU has not", set.name), here});
    } else if (!set.compiled) {
      unused.push_back(set.name);
      advice.push_back(
          {strprintf("the CPU has %s, but this program was compiled without it", set.name), here});
    } else if (!granted) {
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
