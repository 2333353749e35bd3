// Device memory of the executor: ordinary memory that it knows. Fresh memory is filled with 0xFF
// (NaN in float and bf16); an allocation ends at a page that cannot be touched, as closely as its
// alignment allows.
#pragma once

#include <cstddef>

namespace assay::simt {

// alignment: a power of two, 16 to 4096. A smaller one brings the end closer to the guard page.
void* device_malloc(size_t bytes, size_t alignment = 256);
void device_free(void* p);
bool is_device_pointer(const void* p);

// Between host and device, either way; what lies in device memory must lie in one allocation
// (KernelError).
void device_copy(void* to, const void* from, size_t bytes);
void device_fill(void* p, int byte, size_t bytes);

// Throws KernelError if something was written between an allocation's end and its guard page.
// run_grid calls it after each kernel, with the kernel's name.
void check_device_memory(const char* kernel);

// Under the address sanitizer, host code that reads or writes device memory outside of a kernel and
// of device_copy is an error while this is kForbidden. A kernel may always.
enum class HostAccess { kAllowed, kForbidden };
void set_host_access(HostAccess access);

}  // namespace assay::simt
