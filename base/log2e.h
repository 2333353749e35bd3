// Between powers of e and powers of 2, which are one instruction: e^x = 2^(x log2 e), ln x = log2 x
// ln 2.
#pragma once

namespace assay {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

}  // namespace assay
