// ASSAY_AMX: 1 in builds whose target is a CPU with a matrix unit for bf16 (AMX), else 0.
#pragma once

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define ASSAY_AMX 1
#else
#define ASSAY_AMX 0
#endif
