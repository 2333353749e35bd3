// The instruction sets that the compiler may use anywhere in a program, and whether the CPU has
// them: without one of them the program dies of "Illegal instruction" somewhere.
//
//   int main() {
//     require_instruction_sets();   // first
#pragma once

#include <cstddef>
#include <cstdint>

// SET(as /proc/cpuinfo spells it, as the compiler's __builtin_cpu_supports does, its macro, a
// SetUse without its prefix). AMX is none of them: products ask for it (ops/cpu_gemm/amx.h) and do
// without.
#if defined(__clang__)
#define ASSAY_SETS_OF_GCC(SET)
#else
#define ASSAY_SETS_OF_GCC(SET)                       \
  SET("f16c", "f16c", __F16C__, kAnywhere)           \
  SET("abm", "lzcnt", __LZCNT__, kAnywhere)          \
  SET("movbe", "movbe", __MOVBE__, kAnywhere)        \
  SET("avx_vnni", "avxvnni", __AVXVNNI__, kAnywhere) \
  SET("avx512_fp16", "avx512fp16", __AVX512FP16__, kAnywhere)
#endif
#define ASSAY_INSTRUCTION_SETS(SET)                                          \
  SET("sse4_2", "sse4.2", __SSE4_2__, kAnywhere)                             \
  SET("popcnt", "popcnt", __POPCNT__, kAnywhere)                             \
  SET("bmi1", "bmi", __BMI__, kAnywhere)                                     \
  SET("bmi2", "bmi2", __BMI2__, kAnywhere)                                   \
  SET("avx", "avx", __AVX__, kAnywhere)                                      \
  SET("fma", "fma", __FMA__, kAnywhere)                                      \
  SET("avx2", "avx2", __AVX2__, kPath)                                       \
  SET("avx512f", "avx512f", __AVX512F__, kPath)                              \
  SET("avx512cd", "avx512cd", __AVX512CD__, kAnywhere)                       \
  SET("avx512bw", "avx512bw", __AVX512BW__, kAnywhere)                       \
  SET("avx512dq", "avx512dq", __AVX512DQ__, kAnywhere)                       \
  SET("avx512vl", "avx512vl", __AVX512VL__, kAnywhere)                       \
  SET("avx512ifma", "avx512ifma", __AVX512IFMA__, kAnywhere)                 \
  SET("avx512vbmi", "avx512vbmi", __AVX512VBMI__, kAnywhere)                 \
  SET("avx512_vbmi2", "avx512vbmi2", __AVX512VBMI2__, kAnywhere)             \
  SET("avx512_vnni", "avx512vnni", __AVX512VNNI__, kAnywhere)                \
  SET("avx512_bitalg", "avx512bitalg", __AVX512BITALG__, kAnywhere)          \
  SET("avx512_vpopcntdq", "avx512vpopcntdq", __AVX512VPOPCNTDQ__, kAnywhere) \
  SET("avx512_bf16", "avx512bf16", __AVX512BF16__, kPath)                    \
  SET("gfni", "gfni", __GFNI__, kAnywhere)                                   \
  ASSAY_SETS_OF_GCC(SET)

namespace assay {

enum class SetUse {
  kAnywhere,  // wherever the compiler likes
  kPath,      // also by code of the ops that is there for it (ops/instruction_path.h)
};

// Bit i is the i-th of ASSAY_INSTRUCTION_SETS.
using InstructionSets = uint32_t;

extern const InstructionSets kCompiledSets;  // what this program is compiled for
InstructionSets present_sets();              // what the CPU has and the system lets programs use

// The error and the hint of a program that is compiled for more than is present, in at most `size`
// characters, 0 at the end not counted; returns their number, 0 if all is present.
size_t absent_sets_error(InstructionSets compiled, InstructionSets present, char* text,
                         size_t size);

// Ends the process with that error and exit code 1. What calls it has this done already before its
// static objects are made, which may use such instructions too: it is a constructor of the program.
void require_instruction_sets();

}  // namespace assay
