#include "ops/instruction_path.h"

#include "ops/cpu_gemm/amx.h"

namespace assay {

const char* instruction_path() {
  if (panel::has_amx()) return "amx";
#if defined(__AVX512BF16__)
  return "avx512_bf16";
#elif defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#else
  return "base";
#endif
}

std::string float_instruction_path(const std::string& path) {
  return path == "amx" || path == "avx512_bf16" ? "avx512" : path;
}

bool has_fast_bf16() {
#if defined(__AVX512BF16__)
  // Zen 4 does twice as many products by vdpbf16ps as by fused multiply-adds; a Sapphire Rapids
  // without its AMX, whose products would be several times faster, 0.6 times (docs/bench/cpu.md).
  return panel::has_amx() || !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

std::string instruction_path_text(const std::string& path) {
  if (path == "amx") return "AMX";
  if (path == "avx512_bf16") return "AVX512-BF16";
  if (path == "avx512") return "AVX-512";
  if (path == "avx2") return "AVX2";
  return path == "base" ? "no vector extension" : path;
}

}  // namespace assay
