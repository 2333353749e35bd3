// What run_grid needs of device memory.
#pragma once

#include <cstddef>
#include <string>

namespace assay::simt {

// Let kernels at it, and bar the host again (HostAccess::kForbidden, address sanitizer).
void open_device_memory();
void close_device_memory();

// The addresses that device_malloc has given out, one after another.
struct DeviceRegion {
  const std::byte* begin;
  size_t bytes;
};
DeviceRegion device_region();

// Where an address lies, for reports: "byte 40 of an allocation of 40 bytes in device memory".
std::string describe_address(const void* p);

}  // namespace assay::simt
