#include "ops/kv_cache_write.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kRowsPerPiece = 64;

}  // namespace

template <typename T>
void kv_cache_write(Exec on, const KvCacheWrite<T>& a) {
  const ProfileScope timed(on, "kv_cache_write", kv_cache_write_cost(a));
  const int64_t width = a.kept.dim[1];
  CHECK(a.x.dim[0] == a.row.dim[0] && a.column >= 0 && a.column + width <= a.x.dim[1],
        "kv_cache_write: columns %ld to %ld of %s", long(a.column), long(a.column + width),
        shapes("x", a.x, "row", a.row).c_str());
  if (on.gpu) return gpu::kv_cache_write(on, a);
  for (int64_t i = 0; i < a.row.dim[0]; ++i) {
    CHECK(a.row[i] >= 0 && a.row[i] < a.kept.dim[0], "kv_cache_write: row[%ld] = %d of %ld",
          long(i), int(a.row[i]), long(a.kept.dim[0]));
  }
  parallel_ranges(on, a.row.dim[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = a.x.row(i) + a.column;
      std::copy(x, x + width, a.kept.row(a.row[i]));
    }
  });
}

template void kv_cache_write<float>(Exec, const KvCacheWrite<float>&);
template void kv_cache_write<bf16>(Exec, const KvCacheWrite<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(kv_cache_write, KvCacheWrite<float>)
ASSAY_GPU_ABSENT(kv_cache_write, KvCacheWrite<bf16>)
}  // namespace gpu

}  // namespace assay
