// What of the optimizer's settings steps the tensors of a model, and how compared models differ in
// that.
//
// Routers and routed experts may have rates of their own, and experts a decay of the second moment.
// A dense model that has these fields is stepped as one without; so are a mixture's experts where
// Muon, which has no second moment, steps them. But the FFN of a dense model and the routed experts
// beside it are then stepped in two ways, though both configurations have the same fields.
#pragma once

#include <string>
#include <vector>

#include "models/audit/family.h"

namespace assay {

// Without the routers' and experts' own values that are the common ones, which are none.
OptimizerConfig without_common_values(OptimizerConfig optimizer);

// Whether a field acts on a tensor of the model; true of fields that are not the optimizer's.
bool acts_on_a_tensor(const std::string& path, const Config& config);

// "ffn_optimizer": learning rates, and decays of the second moment, of dense FFNs and of routed
// experts that have one of their own.
std::vector<Confound> ffn_optimizer_confounds(const std::vector<NamedConfig>& models);

// What Muon's iterations take, as a share of the step's counted FLOPs, which are without them:
// "; FLOPs of Muon, which are not counted, ...: dense-muon 7%"; "" if no model has Muon.
std::string muon_shares_text(const std::vector<NamedConfig>& models);

}  // namespace assay
