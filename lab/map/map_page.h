// The contract map as one HTML page: the answer per axis, a picture of each, what was left out.
// Without a script and without a network.
#pragma once

#include <string>
#include <vector>

#include "lab/map/contract_map.h"
#include "lab/map/map_claims.h"

namespace assay {

std::string map_page(const ContractMap& map, const std::vector<MapClaimResult>& claims,
                     const std::string& title);

}  // namespace assay
