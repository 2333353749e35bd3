// Device memory as run_grid, the race detector and fault reports use it.
#pragma once

#include <cstddef>
#include <string>

namespace assay::simt {

// Open device memory to kernels, and close it to the host again (HostAccess::kForbidden).
void open_device_memory();
void close_device_memory();

// The addresses that device_malloc has given out so far, one contiguous range.
struct DeviceRegion {
  const std::byte* begin;
  size_t bytes;
};
DeviceRegion device_region();

// An address in words, for reports: "byte 40 of an allocation of 40 in device memory".
std::string describe_address(const void* p);

}  // namespace assay::simt
