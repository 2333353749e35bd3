#include <string>

#include "base/instruction_sets.h"
#include "tests/catch.h"

namespace assay::test_instruction_sets {
namespace {

// The bit of the set that /proc/cpuinfo calls so.
InstructionSets bit_of(const std::string& wanted) {
  InstructionSets bit = 1;
#define ASSAY_BIT(name, builtin, macro, use) \
  if (wanted == (name)) return bit;          \
  bit <<= 1;
  ASSAY_INSTRUCTION_SETS(ASSAY_BIT)
#undef ASSAY_BIT
  return 0;
}

std::string error_of(InstructionSets compiled, InstructionSets present, size_t size = 1024) {
  std::string text(size, '?');
  const size_t length = absent_sets_error(compiled, present, text.data(), size);
  REQUIRE(length <= size);
  text.resize(length);
  return text;
}

TEST_CASE("a program for another CPU names the instruction sets that are absent") {
  const InstructionSets avx2 = bit_of("avx") | bit_of("avx2") | bit_of("fma");
  const InstructionSets avx512 = avx2 | bit_of("avx512f") | bit_of("avx512_bf16");
  REQUIRE(error_of(avx512, avx2) ==
          "error: this program was compiled for a CPU with avx512f, avx512_bf16, which this CPU "
          "has not\n"
          "hint: build it on this machine, or for any x86-64 CPU: cmake --preset portable && cmake "
          "--build build-portable\n");
  REQUIRE(error_of(avx2, avx512).empty());
  REQUIRE(error_of(avx2, avx2).empty());
  REQUIRE(error_of(0, 0).empty());
  REQUIRE(error_of(avx512, 0, 20) == "error: this program ");
  const std::string all = error_of(~InstructionSets{0}, 0);
  REQUIRE(all.ends_with("build-portable\n"));  // there is room for every name
}

TEST_CASE("the sets of this build are those of its macros, and this CPU has them") {
  REQUIRE((kCompiledSets & ~present_sets()) == 0);
#if defined(__AVX2__)
  REQUIRE((kCompiledSets & bit_of("avx2")) != 0);
#else
  REQUIRE((kCompiledSets & bit_of("avx2")) == 0);
#endif
#if defined(__AVX512BF16__)
  REQUIRE((kCompiledSets & bit_of("avx512_bf16")) != 0);
#else
  REQUIRE((kCompiledSets & bit_of("avx512_bf16")) == 0);
#endif
  require_instruction_sets();
}

}  // namespace
}  // namespace assay::test_instruction_sets
