// The functions that code compiled with -fsanitize=thread calls at each access.
#include <cstddef>
#include <cstdint>

#include "cuda/simt/race_internal.h"

using assay::simt::Access;
using assay::simt::place_of;
using assay::simt::race_access;

// The call's own line is that of the instruction before the return address.
#define ASSAY_PLACE place_of(static_cast<const char*>(__builtin_return_address(0)) - 1)

#define ASSAY_ACCESS(bytes)                             \
  void __tsan_read##bytes(void* p) {                    \
    race_access(p, bytes, Access::kRead, ASSAY_PLACE);  \
  }                                                     \
  void __tsan_write##bytes(void* p) {                   \
    race_access(p, bytes, Access::kWrite, ASSAY_PLACE); \
  }                                                     \
  void __tsan_unaligned_read##bytes(void* p) {          \
    race_access(p, bytes, Access::kRead, ASSAY_PLACE);  \
  }                                                     \
  void __tsan_unaligned_write##bytes(void* p) {         \
    race_access(p, bytes, Access::kWrite, ASSAY_PLACE); \
  }                                                     \
  void __tsan_volatile_read##bytes(void* p) {           \
    race_access(p, bytes, Access::kRead, ASSAY_PLACE);  \
  }                                                     \
  void __tsan_volatile_write##bytes(void* p) {          \
    race_access(p, bytes, Access::kWrite, ASSAY_PLACE); \
  }

// Atomics of host code in the same files: performed, not checked.
#define ASSAY_ATOMIC(bits, T)                                                                \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                   \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                             \
  }                                                                                          \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                \
  }                                                                                          \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                          \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) {                               \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                       \
  }                                                                                          \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) {                               \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                       \
  }                                                                                          \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* want, T v, int, int) { \
    return __atomic_compare_exchange_n(p, want, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
  }                                                                                          \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* want, T v, int, int) {   \
    return __atomic_compare_exchange_n(p, want, v, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_read_range(void* p, size_t bytes) {
  race_access(p, bytes, Access::kRead, ASSAY_PLACE);
}
void __tsan_write_range(void* p, size_t bytes) {
  race_access(p, bytes, Access::kWrite, ASSAY_PLACE);
}

ASSAY_ACCESS(1)
ASSAY_ACCESS(2)
ASSAY_ACCESS(4)
ASSAY_ACCESS(8)
ASSAY_ACCESS(16)

ASSAY_ATOMIC(8, uint8_t)
ASSAY_ATOMIC(16, uint16_t)
ASSAY_ATOMIC(32, uint32_t)
ASSAY_ATOMIC(64, uint64_t)

}  // extern "C"
