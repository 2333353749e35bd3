// One axis of the contract map as an SVG picture: above, the measure of every model against the
// cost; below, the difference to the first model at each budget with its interval.
#pragma once

#include <string>

#include "lab/map/contract_map.h"

namespace assay {

// An <svg> element; its colours are the classes m0, m1, ... of the models (lab/map/map_page.cpp).
// axis.absent must be "".
std::string axis_picture(const ContractMap& map, const MapAxis& axis);

}  // namespace assay
