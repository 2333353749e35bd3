#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "tests/simt/wrappers.h"

namespace assay::wrappers {

using namespace gpu;

namespace {

constexpr int kTileBytes = 32 << 10;
constexpr int kThreads = 128;
using Piece = Vec<uint32_t, 4>;  // 16 bytes

GPU_DEVICE void start_barrier(Mbarrier* barrier, int arrivals) {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, arrivals);
    mbarrier_init_fence();
  }
  sync_block();
}

GPU_DEVICE void load_operand(unsigned char* tile, const Operand& operand, Mbarrier* full) {
  for (int i = 0; i < operand.boxes; ++i)
    tma_load(tile + i * operand.box_bytes, &operand.map, full, i * operand.box_step, 0);
}
GPU_DEVICE void load_operands(unsigned char* tile, const WgmmaTest& t, Mbarrier* full) {
  start_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, t.a.boxes * t.a.box_bytes + t.b.boxes * t.b.box_bytes);
    load_operand(tile, t.a, full);
    load_operand(tile + kTileBytes, t.b, full);
  }
  mbarrier_wait(full, 0);
}
GPU_DEVICE uint64_t descriptor(const unsigned char* tile, const Operand& operand, int step) {
  return wgmma_descriptor(tile + step * operand.k_bytes, operand.leading_bytes,
                          operand.stride_bytes, operand.swizzle);
}

template <int N>
GPU_DEVICE void store_product(float* out, const float (&d)[N / 2]) {
  for (int i = 0; i < N / 2; ++i) out[(warp() * 16 + accum_row(i)) * N + accum_column(i)] = d[i];
}

template <int N, Major A, Major B>
__global__ __launch_bounds__(kThreads) void wgmma_kernel(const __grid_constant__ WgmmaTest t) {
  GPU_DYNAMIC_SHARED(unsigned char, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  load_operands(tile, t, full);
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = t.initial;
  for (int step = 0; step < t.k / 16; ++step) {
    wgmma_fence();
    wgmma_m64k16<N, A, B>(d, descriptor(tile, t.a, step), descriptor(tile + kTileBytes, t.b, step),
                          t.accumulate || step > 0);
    // A loop of unknown length must contain all four instructions, or ptxas adds fences.
    wgmma_commit();
    wgmma_wait<0>();
  }
  wgmma_wait<0>();  // a wait without pending products is allowed
  store_product<N>(t.d, d);
}

template <int N, Major B>
__global__ __launch_bounds__(kThreads) void wgmma_registers_kernel(
    const __grid_constant__ WgmmaTest t) {
  GPU_DYNAMIC_SHARED(unsigned char, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  start_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, t.b.boxes * t.b.box_bytes);
    load_operand(tile, t.b, full);
  }
  mbarrier_wait(full, 0);
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = t.initial;
  for (int step = 0; step < t.k / 16; ++step) {
    uint32_t a[4];
    for (int i = 0; i < 4; ++i) {
      const bf16* const pair =
          t.a_registers + (warp() * 16 + accum_row(2 * i)) * t.k + step * 16 + accum_column(2 * i);
      a[i] = pair[0].bits | uint32_t{pair[1].bits} << 16;
    }
    wgmma_fence();
    wgmma_m64k16<N, B>(d, a, descriptor(tile, t.b, step), t.accumulate || step > 0);
    wgmma_commit();
    wgmma_wait<0>();
  }
  store_product<N>(t.d, d);
}

template <Fp8 A>
__global__ __launch_bounds__(kThreads) void wgmma_codes_kernel(
    const __grid_constant__ WgmmaTest t) {
  GPU_DYNAMIC_SHARED(unsigned char, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  load_operands(tile, t, full);
  float d[64];
  for (int i = 0; i < 64; ++i) d[i] = t.initial;
  for (int step = 0; step < t.k / 32; ++step) {
    wgmma_fence();
    wgmma_m64k32<128, A>(d, descriptor(tile, t.a, step), descriptor(tile + kTileBytes, t.b, step),
                         t.accumulate || step > 0);
    wgmma_commit();
    wgmma_wait<0>();
  }
  store_product<128>(t.d, d);
}

__global__ __launch_bounds__(32) void tma_load_kernel(const __grid_constant__ LoadTest t) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  start_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, t.bytes);
    const int* const at = t.at;
    if (t.rank == 2) gpu::tma_load(tile, &t.map, full, at[0], at[1]);
    if (t.rank == 3) gpu::tma_load(tile, &t.map, full, at[0], at[1], at[2]);
    if (t.rank == 4) gpu::tma_load(tile, &t.map, full, at[0], at[1], at[2], at[3]);
    if (t.rank == 5) gpu::tma_load(tile, &t.map, full, at[0], at[1], at[2], at[3], at[4]);
  }
  mbarrier_wait(full, 0);
  for (int i = lane(); i < t.bytes / 2; i += kWarp) t.tile[i] = tile[i];
}

__global__ __launch_bounds__(32) void tma_store_kernel(const __grid_constant__ StoreTest t) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  for (int i = lane(); i < t.bytes / 2; i += kWarp) tile[i] = t.tile[i];
  fence_proxy_async();
  sync_block();
  if (threadIdx.x == 0) {
    if (t.rank == 2) gpu::tma_store(&t.map, tile, t.at[0], t.at[1]);
    if (t.rank == 3) gpu::tma_store(&t.map, tile, t.at[0], t.at[1], t.at[2]);
    bulk_commit();
    bulk_wait_read<0>();
    bulk_wait<0>();
  }
}

__global__ __launch_bounds__(32) void multicast_kernel(const __grid_constant__ MulticastTest t) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  GPU_SHARED(Mbarrier, before, [1]);
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(before, 1);
    mbarrier_init_fence();
  }
  sync_cluster();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, t.to >> rank & 1 ? t.bytes : 0);
    if (rank == t.blocks - 1) {
      const int* const at = t.at;
      if (t.rank == 2) gpu::tma_load_multicast(tile, &t.map, full, t.to, at[0], at[1]);
      if (t.rank == 3) gpu::tma_load_multicast(tile, &t.map, full, t.to, at[0], at[1], at[2]);
    }
  }
  mbarrier_wait(full, 0);
  if (rank > 0) mbarrier_wait(before, 0);
  uint16_t* const mine = t.tiles + rank * (t.bytes / 2);
  for (int i = lane(); i < t.bytes / 2; i += kWarp)
    mine[i] = t.to >> rank & 1 ? tile[i] : uint16_t{7};
  sync_warp();
  if (threadIdx.x == 0 && rank + 1 < t.blocks) mbarrier_arrive_cluster(before, rank + 1);
  sync_cluster();
}

__global__ __launch_bounds__(32) void bulk_load_kernel(CopyTest t) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  GPU_SHARED(Mbarrier, full, [1]);
  start_barrier(full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, t.elements * 2);
    gpu::bulk_load(tile, t.in, t.elements * 2, full);
  }
  mbarrier_wait(full, 0);
  for (int i = lane(); i < t.elements; i += kWarp) t.out[i] = tile[i];
}

// Keeps two groups in flight; threads read what their neighbours copied.
__global__ __launch_bounds__(32) void cp_async_kernel(CopyTest t) {
  GPU_SHARED(Piece, tile, [2][kWarp]);
  const int pieces = t.elements / 8;
  for (int round = 0; round <= (pieces + kWarp - 1) / kWarp; ++round) {
    const int piece = round * kWarp + lane();
    if (piece < pieces)
      cp_async16(&tile[round % 2][lane()], t.in + piece * 8, piece % 3 == 2 ? 0 : 16);
    cp_async_commit();
    cp_async_wait<1>();
    sync_block();
    const int before = (round - 1) * kWarp + (lane() ^ 1);
    if (round > 0 && before < pieces)
      reinterpret_cast<Piece*>(t.out)[before] = tile[(round - 1) % 2][lane() ^ 1];
    sync_block();
  }
}

__global__ __launch_bounds__(64) void cp_async_mbarrier_kernel(CopyTest t) {
  GPU_SHARED(Piece, tile, [kWarp]);
  GPU_SHARED(Mbarrier, full, [1]);
  start_barrier(full, kWarp);
  if (warp() == 0) {
    if (lane() < t.elements / 8) cp_async16(&tile[lane()], t.in + lane() * 8);
    cp_async_mbarrier_arrive(full);
  } else {
    mbarrier_wait(full, 0);
    if (lane() < t.elements / 8) reinterpret_cast<Piece*>(t.out)[lane()] = tile[lane()];
  }
}

__global__ __launch_bounds__(32) void mma_kernel(float* d, const uint32_t* a, const uint32_t* b) {
  float product[4];
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) product[i] = d[lane() * 4 + i];
  for (int i = 0; i < 4; ++i) left[i] = a[lane() * 4 + i];
  for (int i = 0; i < 2; ++i) right[i] = b[lane() * 2 + i];
  mma_m16n8k16(product, left, right);
  for (int i = 0; i < 4; ++i) d[lane() * 4 + i] = product[i];
}

template <Fp8 A>
__global__ __launch_bounds__(32) void mma_codes_kernel(float* d, const uint32_t* a,
                                                       const uint32_t* b) {
  float product[4];
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) product[i] = d[lane() * 4 + i];
  for (int i = 0; i < 4; ++i) left[i] = a[lane() * 4 + i];
  for (int i = 0; i < 2; ++i) right[i] = b[lane() * 2 + i];
  mma_m16n8k32<A>(product, left, right);
  for (int i = 0; i < 4; ++i) d[lane() * 4 + i] = product[i];
}

__global__ void reduce_add_kernel(float* sums, const float* v, int count) {
  for (int i = 0; i < count; i += 4) gpu::reduce_add(sums + i, load_vec<4>(v + i));
}

__global__ __launch_bounds__(32) void mma_matrices_kernel(uint16_t* c, const uint16_t* a,
                                                          const uint16_t* b) {
  GPU_SHARED(Piece, left, [16 * 2]);
  GPU_SHARED(Piece, right, [16 * 2]);
  left[lane()] = reinterpret_cast<const Piece*>(a)[lane()];
  right[lane()] = reinterpret_cast<const Piece*>(b)[lane()];
  sync_warp();
  // Matrices 0 and 1 are rows 0 to 7 and 8 to 15 of columns 0 to 7; matrices 2 and 3 are the same
  // rows of columns 8 to 15.
  const int row = lane() % 16 * 2 + lane() / 16;
  uint32_t fragment_a[4], fragment_b[4];
  ldmatrix_x4(fragment_a, &left[row]);
  ldmatrix_x4_trans(fragment_b, &right[row]);
  float d[2][4] = {};
  for (int half = 0; half < 2; ++half) {
    const uint32_t columns[2] = {fragment_b[2 * half], fragment_b[2 * half + 1]};
    mma_m16n8k16(d[half], fragment_a, columns);
  }
  uint32_t packed[4];
  for (int i = 0; i < 4; ++i) packed[i] = pack_bf16(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
  sync_warp();
  stmatrix_x4(&left[row], packed);
  sync_warp();
  reinterpret_cast<Piece*>(c)[lane()] = left[lane()];
}

// On the SIMT emulator the numbers of registers have no effect.
__global__ __launch_bounds__(384, 1) void registers_kernel(float* out) {
  if (threadIdx.x < 128) {
    set_registers_down<40>();
  } else {
    set_registers_up<232>();
  }
  named_barrier_sync(1, 384);
  out[threadIdx.x] = 1.0f;
}

template <typename... Args>
void run(Exec on, void (*kernel)(Args...), int threads, int shared_bytes, Args... args) {
  launch(
      on,
      {.name = "wrapper", .grid = {}, .block = {uint32_t(threads)}, .shared_bytes = shared_bytes},
      kernel, args...);
}

template <int N>
void run_wgmma(Exec on, Side a, Side b, const WgmmaTest& t) {
  constexpr Major K = Major::kK, MN = Major::kMN;
  const auto kernel = a == Side::kK ? b == Side::kK ? wgmma_kernel<N, K, K> : wgmma_kernel<N, K, MN>
                      : b == Side::kK ? wgmma_kernel<N, MN, K>
                                      : wgmma_kernel<N, MN, MN>;
  run(on, kernel, kThreads, 2 * kTileBytes, t);
}
template <int N>
void run_wgmma_registers(Exec on, Side b, const WgmmaTest& t) {
  const auto kernel =
      b == Side::kK ? wgmma_registers_kernel<N, Major::kK> : wgmma_registers_kernel<N, Major::kMN>;
  run(on, kernel, kThreads, kTileBytes, t);
}

}  // namespace

void wgmma(Exec on, int n, Side a, Side b, const WgmmaTest& test) {
  n == 32    ? run_wgmma<32>(on, a, b, test)
  : n == 64  ? run_wgmma<64>(on, a, b, test)
  : n == 96  ? run_wgmma<96>(on, a, b, test)
  : n == 128 ? run_wgmma<128>(on, a, b, test)
  : n == 192 ? run_wgmma<192>(on, a, b, test)
             : run_wgmma<256>(on, a, b, test);
}
void wgmma_registers(Exec on, int n, Side b, const WgmmaTest& test) {
  n == 32    ? run_wgmma_registers<32>(on, b, test)
  : n == 64  ? run_wgmma_registers<64>(on, b, test)
  : n == 96  ? run_wgmma_registers<96>(on, b, test)
  : n == 128 ? run_wgmma_registers<128>(on, b, test)
  : n == 192 ? run_wgmma_registers<192>(on, b, test)
             : run_wgmma_registers<256>(on, b, test);
}
void wgmma_codes(Exec on, Codes a, const WgmmaTest& test) {
  const auto kernel =
      a == Codes::kE4M3 ? wgmma_codes_kernel<Fp8::kE4M3> : wgmma_codes_kernel<Fp8::kE5M2>;
  run(on, kernel, kThreads, 2 * kTileBytes, test);
}
void tma_load(Exec on, const LoadTest& test) {
  run(on, tma_load_kernel, kWarp, kTileBytes, test);
}
void tma_store(Exec on, const StoreTest& test) {
  run(on, tma_store_kernel, kWarp, kTileBytes, test);
}
void tma_load_multicast(Exec on, const MulticastTest& test) {
  launch(on,
         {.name = "wrapper",
          .grid = {uint32_t(test.blocks)},
          .block = {kWarp},
          .shared_bytes = kTileBytes,
          .cluster = uint32_t(test.blocks)},
         multicast_kernel, test);
}
void bulk_load(Exec on, const CopyTest& test) {
  run(on, bulk_load_kernel, kWarp, kTileBytes, test);
}
void cp_async(Exec on, const CopyTest& test) {
  run(on, cp_async_kernel, kWarp, 0, test);
}
void cp_async_mbarrier(Exec on, const CopyTest& test) {
  run(on, cp_async_mbarrier_kernel, 2 * kWarp, 0, test);
}
void reduce_add(Exec on, float* sums, const float* v, int count) {
  run(on, reduce_add_kernel, 1, 0, sums, v, count);
}
void mma(Exec on, float* d, const uint32_t* a, const uint32_t* b) {
  run(on, mma_kernel, kWarp, 0, d, a, b);
}
void mma_codes(Exec on, Codes a_format, float* d, const uint32_t* a, const uint32_t* b) {
  const auto kernel =
      a_format == Codes::kE4M3 ? mma_codes_kernel<Fp8::kE4M3> : mma_codes_kernel<Fp8::kE5M2>;
  run(on, kernel, kWarp, 0, d, a, b);
}
void mma_matrices(Exec on, uint16_t* c, const uint16_t* a, const uint16_t* b) {
  run(on, mma_matrices_kernel, kWarp, 0, c, a, b);
}
void registers(Exec on, float* out) {
  run(on, registers_kernel, 384, 0, out);
}

}  // namespace assay::wrappers
