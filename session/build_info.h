// The commit, compiler and flags this program was built from.
#pragma once

#include "engine/run/run_dir.h"

namespace assay {

BuildInfo build_info();  // written at build time by cmake/build_info.cmake

}  // namespace assay
