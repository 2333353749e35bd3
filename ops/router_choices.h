// How a router scores and balances; arguments of ops/router.h and fields of the configuration.
#pragma once

namespace assay {

enum class RouterScore { kSigmoid, kSoftmax };
// The load-balancing loss.
enum class RouterAux { kNone, kSwitch, kGates };
// Whose counts it takes: those of the micro-batch, of the step so far, or of each sequence.
enum class AuxScope { kMicro, kStep, kSequence };

// How the selection bias follows an expert's excess load.
enum class BiasRule { kSign, kProportional };

}  // namespace assay
