// Which of the instructions that the ops have code for a process computes with on the CPU. Products
// of bf16 have other bits on each of these paths.
#pragma once

#include <string>

namespace assay {

// "amx", "avx512_bf16", "avx512", "avx2" or "base": what the build is for, and AMX only where the
// system gives it to this process. The same to the end of the process.
const char* instruction_path();

// The path as far as it decides the bits of what has no product of bf16: "avx512" for those that
// add such products to it. Another name as it is.
std::string float_instruction_path(const std::string& path);

// True if this build's products of bf16 are faster than those of float on this CPU: by AMX, or by
// vdpbf16ps where that is so. A build without them multiplies bf16 as floats.
bool has_fast_bf16();

// For people: "AVX512-BF16", "no vector extension" of "base". A name of another version as it is.
std::string instruction_path_text(const std::string& path);

}  // namespace assay
