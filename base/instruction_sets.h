// The instruction sets that the compiler may use anywhere in a program, and whether the CPU has
// them: without one of them the program dies of "Illegal instruction" somewhere.
//
//   int main() {
//     require_instruction_sets();   // first
#pragma once

#include <cstddef>
#include <cstdint>

// SET(as /proc/cpuinfo spells it, as the compiler's __builtin_cpu_supports does, its macro). AMX is
// none of them: products ask for it (ops/cpu_gemm/amx.h) and do without.
#if defined(__clang__)
#define ASSAY_SETS_OF_GCC(SET)
#else
#define ASSAY_SETS_OF_GCC(SET)            \
  SET("f16c", "f16c", __F16C__)           \
  SET("abm", "lzcnt", __LZCNT__)          \
  SET("movbe", "movbe", __MOVBE__)        \
  SET("avx_vnni", "avxvnni", __AVXVNNI__) \
  SET("avx512_fp16", "avx512fp16", __AVX512FP16__)
#endif
#define ASSAY_INSTRUCTION_SETS(SET)                               \
  SET("sse4_2", "sse4.2", __SSE4_2__)                             \
  SET("popcnt", "popcnt", __POPCNT__)                             \
  SET("bmi1", "bmi", __BMI__)                                     \
  SET("bmi2", "bmi2", __BMI2__)                                   \
  SET("avx", "avx", __AVX__)                                      \
  SET("fma", "fma", __FMA__)                                      \
  SET("avx2", "avx2", __AVX2__)                                   \
  SET("avx512f", "avx512f", __AVX512F__)                          \
  SET("avx512cd", "avx512cd", __AVX512CD__)                       \
  SET("avx512bw", "avx512bw", __AVX512BW__)                       \
  SET("avx512dq", "avx512dq", __AVX512DQ__)                       \
  SET("avx512vl", "avx512vl", __AVX512VL__)                       \
  SET("avx512ifma", "avx512ifma", __AVX512IFMA__)                 \
  SET("avx512vbmi", "avx512vbmi", __AVX512VBMI__)                 \
  SET("avx512_vbmi2", "avx512vbmi2", __AVX512VBMI2__)             \
  SET("avx512_vnni", "avx512vnni", __AVX512VNNI__)                \
  SET("avx512_bitalg", "avx512bitalg", __AVX512BITALG__)          \
  SET("avx512_vpopcntdq", "avx512vpopcntdq", __AVX512VPOPCNTDQ__) \
  SET("avx512_bf16", "avx512bf16", __AVX512BF16__)                \
  SET("gfni", "gfni", __GFNI__)                                   \
  ASSAY_SETS_OF_GCC(SET)

namespace assay {

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
