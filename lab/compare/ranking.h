// Ranks the models by every measure that permits it, and states how certain each place is.
#pragma once

#include "lab/compare/compare.h"

namespace assay {

// Fills `rankings`, or `no_ranking` with the reason for none. All other fields must be filled.
void rank(Comparison& comparison);

}  // namespace assay
