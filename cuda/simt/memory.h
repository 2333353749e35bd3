// The SIMT emulator's device memory: ordinary memory whose allocations it tracks. Fresh memory is
// filled with 0xFF (NaN in float and bf16); an allocation ends at an inaccessible page, as closely
// as its alignment allows.
#pragma once

#include <cstddef>

namespace assay::simt {

// alignment: a power of two, 16 to 4096. A smaller one brings the end closer to the guard page.
void* device_malloc(size_t bytes, size_t alignment = 256);
void device_free(void* p);
bool is_device_pointer(const void* p);

// Copies between host and device, either way. A range in device memory must be inside one
// allocation (KernelError).
void device_copy(void* to, const void* from, size_t bytes);
void device_fill(void* p, int byte, size_t bytes);

// Throws KernelError if something was written between an allocation's end and its guard page.
// run_grid calls it after each kernel, with the kernel's name.
void check_device_memory(const char* kernel);

// kForbidden: under the address sanitizer, host code that accesses device memory outside of
// kernels, device_copy and device_fill is an error.
enum class HostAccess { kAllowed, kForbidden };
void set_host_access(HostAccess access);

}  // namespace assay::simt
