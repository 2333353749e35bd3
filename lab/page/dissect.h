// What `assay dissect` found out about a run: the damage of each group of experts and of the other
// parts, and P_used.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

inline constexpr size_t kMostDamageRows = 4000;  // on the page; single experts are left out first

// {"step", "tokens", "loss_nats", "experts", "top_k", "rows": [{"layer", "without", "removal",
// "experts", "load_share", "nats", "standard_error"}], "p_used", "p_total", "p_active"}; null for a
// run that was not dissected. Figures that the files lack, or that are damaged, are left out.
nlohmann::ordered_json report_dissect(const std::string& run);

}  // namespace assay
