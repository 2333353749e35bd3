// Functions that run minimal kernels for each wrapper of cuda/kernel: async.h, cluster.h, tma.h,
// mma.h and wgmma.h. Pointers are to device memory.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "cuda/exec.h"
#include "cuda/tensor_map.h"

namespace assay::wrappers {

enum class Side { kK, kMN };  // the contiguous index; as gpu::Major, without its header

// An operand of wgmma, loaded into shared memory as `boxes` consecutive boxes.
struct Operand {
  gpu::TensorMap map;
  gpu::Swizzle swizzle;
  int boxes, box_bytes, box_step;  // box i is at coordinates (i * box_step, 0)
  int leading_bytes, stride_bytes;
  int k_bytes;  // distance of consecutive steps of 16 along K
};

struct WgmmaTest {
  float* d;                 // out (64, n)
  const bf16* a_registers;  // in  (64, k)   only for wgmma_registers
  Operand a, b;
  int k;
  int accumulate;  // 1: adds to `initial`
  float initial;
};
// n: 32, 64, 96, 128, 192 or 256
void wgmma(Exec on, int n, Side a, Side b, const WgmmaTest& test);
void wgmma_registers(Exec on, int n, Side b, const WgmmaTest& test);
// Both operands are K-major 8-bit codes, b is E4M3, n = 128. The maps and k_bytes count pairs of
// codes, k counts codes.
enum class Codes { kE4M3, kE5M2 };  // of a; as gpu::Fp8, without its header
void wgmma_codes(Exec on, Codes a, const WgmmaTest& test);

// Loads the box of `map` at `at`; `tile` receives it as laid out in shared memory.
struct LoadTest {
  uint16_t* tile;  // out
  gpu::TensorMap map;
  int rank;
  int at[5];
  int bytes;
};
void tma_load(Exec on, const LoadTest& test);
// Stores `tile`, given as laid out in shared memory, to the box at (x, y[, z]).
struct StoreTest {
  gpu::TensorMap map;
  const uint16_t* tile;  // in
  int rank;
  int at[3];
  int bytes;
};
void tma_store(Exec on, const StoreTest& test);

struct CopyTest {
  uint16_t* out;       // (elements)
  const uint16_t* in;  // (elements)
  int elements;        // a multiple of 8
};
// In a cluster of `blocks` blocks, the last one loads the box for those of the mask `to`; the
// others store 7. Each waits until the one before it is done.
struct MulticastTest {
  uint16_t* tiles;  // out (blocks, bytes / 2)
  gpu::TensorMap map;
  int rank;  // 2 or 3
  int at[3];
  int bytes;
  int blocks;
  uint32_t to;
};
void tma_load_multicast(Exec on, const MulticastTest& test);
void bulk_load(Exec on, const CopyTest& test);
// Copies with 32 threads, 8 elements per thread at a time, in groups; every third piece becomes
// zero.
void cp_async(Exec on, const CopyTest& test);
// One warp copies by cp.async, another waits for it at an mbarrier.
void cp_async_mbarrier(Exec on, const CopyTest& test);

// Adds v to sums, by one thread; both (count), a multiple of 4.
void reduce_add(Exec on, float* sums, const float* v, int count);

// One warp with raw registers per lane: a (32, 4), b (32, 2), d (32, 4).
void mma(Exec on, float* d, const uint32_t* a, const uint32_t* b);
// The same of 8-bit codes, a (16, 32), b (32, 8) in E4M3.
void mma_codes(Exec on, Codes a_format, float* d, const uint32_t* a, const uint32_t* b);
// c (16, 16) = a (16, 16) b (16, 16), rounded: by ldmatrix_x4, ldmatrix_x4_trans, two products and
// stmatrix_x4.
void mma_matrices(Exec on, uint16_t* c, const uint16_t* a, const uint16_t* b);

// Three warpgroups change their numbers of registers and write 1 to out (384).
void registers(Exec on, float* out);

}  // namespace assay::wrappers
