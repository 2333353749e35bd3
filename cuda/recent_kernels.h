// The names of the latest launches, for error messages: a kernel's failure shows only in a later
// call. Private to the files of the device layer.
#pragma once

#include <string>

namespace assay::gpu {

// `name` must live as long as the program.
void remember_kernel(const char* name);
std::string recent_kernels();  // newest first
bool launched_any();

}  // namespace assay::gpu
