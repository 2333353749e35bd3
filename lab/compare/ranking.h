// Who won, by each measure for which that can be said, and how sure it is.
#pragma once

#include "lab/compare/compare.h"

namespace assay {

// Fills `rankings`, or `no_ranking` where it is still empty. Expects everything else.
void rank(Comparison& comparison);

}  // namespace assay
