// What the CPU of this machine is called.
#pragma once

#include <string>

namespace assay {

std::string cpu_name();  // as in /proc/cpuinfo: "AMD EPYC 9554"; "unknown" if it does not say

}  // namespace assay
