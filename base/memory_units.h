// Bytes in the units that messages have.
#pragma once

namespace assay {

constexpr double in_mib(auto bytes) {
  return double(bytes) / 0x1p20;
}
constexpr double in_gib(auto bytes) {
  return double(bytes) / 0x1p30;
}

}  // namespace assay
