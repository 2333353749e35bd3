// Written by tests/ops/quantise_vectors.py, which explains it.
#pragma once

#include <cstdint>

#include "ops/quantise_format.h"

namespace assay {

struct QuantiseVector {
  QuantFormat format;
  int mixed;  // 0: in order
  uint64_t codes, scales;
};

// clang-format off
inline constexpr QuantiseVector kQuantiseVectors[] = {
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::kTensor}, 0, 0x416e14c4483dd939, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x128}, 0, 0x63ca79632f25b995, 0xb7a2207d9b7b0cf9},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 0, 0x2c1fe900b564b6a5, 0xd309a25c5ec0fde5},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k128x128}, 0, 0xf5d3f4b0984e3755, 0xeb1d613bde76ff1d},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x32}, 0, 0xc58a4a1e507b1725, 0x1019127ca315db75},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x16}, 0, 0xd9145cd343c0a725, 0xcb6b1c375428db91},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k16x16}, 0, 0xfa091f0c730d6ebd, 0xf8b0669a35d44145},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::kTensor}, 0, 0xb5cc8317bfa7611d, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x128}, 0, 0x26220c6b25cdaf9d, 0xd139c2ea61b785a9},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 0, 0xfdd7e070ce23a70d, 0x3bc7d0a81d532485},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k128x128}, 0, 0x8df3f25781d9e7ed, 0xcfcd87165e25673d},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x32}, 0, 0x301526631a32070d, 0x384fd9e6c6111e1d},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x16}, 0, 0x0165ec3eae44847d, 0xcb6b1c375428db91},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k16x16}, 0, 0x184016fb4a84ca75, 0xf8b0669a35d44145},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::kTensor}, 0, 0xe8c439c44415319d, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x128}, 0, 0x3207f5ea29fa66e5, 0x38b7cc6e8284e575},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 0, 0x325e69827ebffb25, 0xc456b9da6a28aa25},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k128x128}, 0, 0x30eb5104351541fd, 0x64d120cd25d344d5},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x32}, 0, 0xb44ae5a6deba7365, 0x77044eabf77f6399},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x16}, 0, 0x098d0cca80a10bb9, 0xcb6b1c375428db91},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k16x16}, 0, 0xd3a52892bc75af25, 0xf8b0669a35d44145},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::kTensor}, 1, 0xbfea74f9903a51d9, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x128}, 1, 0x9bfb8a1d142283cd, 0x03575d8fd0827819},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 1, 0xcadcf72b1ae3f5b5, 0xd0d521de894c6aa5},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k128x128}, 1, 0xd3e1e5d34ce6b285, 0x837c1d708bc3d7e9},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x32}, 1, 0x58159ec431d7f255, 0x0cb40be8cbcbeaf5},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x16}, 1, 0xd41aaa562fde40e1, 0x435d12a088687341},
    {{.element = ElementFormat::kE4M3, .scale = ScaleKind::k16x16}, 1, 0x3742f93cdcee2949, 0x243ff7a3b16324a1},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::kTensor}, 1, 0xf73c5aa12736648d, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x128}, 1, 0x211b9b3c0add5419, 0xba7726f4d03ec689},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 1, 0xfd56135b64e0c73d, 0xdb7c86a7e0a90e25},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k128x128}, 1, 0xfd547936c1b5a2f5, 0x3eebef338d6bb3e9},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x32}, 1, 0xd65c83ba8f4e774d, 0xa490dbb43295c285},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k1x16}, 1, 0x151c03b40f70d685, 0x435d12a088687341},
    {{.element = ElementFormat::kE5M2, .scale = ScaleKind::k16x16}, 1, 0x99d32869fb352fa9, 0x243ff7a3b16324a1},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::kTensor}, 1, 0x6db44eb81db7d57d, 0xcbf29ce484222325},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x128}, 1, 0x7572695714c366f5, 0xf8d0e505a78ad9d5},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x128, .scale_rounding = ScaleRounding::kPowerOfTwo}, 1, 0x9bc844253549272d, 0xea2c4336889c93a5},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k128x128}, 1, 0x0e2b3c9955f255d9, 0x4ef22afc7e8093a9},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x32}, 1, 0x9bc844253549272d, 0x2c66d9938450b8e5},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x16}, 1, 0xb9097f7a32a2e33d, 0x435d12a088687341},
    {{.element = ElementFormat::kE2M1, .scale = ScaleKind::k16x16}, 1, 0x445ca78f56527c05, 0x243ff7a3b16324a1},
};
// clang-format on

}  // namespace assay
