// The parts of the race detector: race.cpp decides, race_hooks.cpp has the compiler's entry points,
// race_place.cpp names lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/simt/source_location.h"

namespace assay::simt {

enum class Access { kRead, kWrite, kAtomic, kAsyncRead, kAsyncWrite };

// A line of a kernel in 32 bits: an address in the program, or a SourceLocation.
using Place = uint32_t;
inline constexpr Place kAsyncPlace = ~Place{0};
Place place_of(const void* code);
Place place_of(SourceLocation here);
std::string describe_place(Place place);

void race_access(const void* p, size_t bytes, Access kind, Place place);

}  // namespace assay::simt
