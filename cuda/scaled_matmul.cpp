#include "cuda/scaled_matmul.h"

#include "base/check.h"
#include "cuda/product_library.h"

namespace assay::gpu {

namespace {

const char* format_text(CodeFormat f) {
  return f == CodeFormat::kE4M3 ? "E4M3" : f == CodeFormat::kE5M2 ? "E5M2" : "E2M1";
}
const char* scales_text(CodeScales s) {
  switch (s) {
    case CodeScales::kTensor:
      return "tensor";
    case CodeScales::k1x128:
      return "1x128";
    case CodeScales::k128x128:
      return "128x128";
    case CodeScales::k1x32:
      return "1x32";
    case CodeScales::k1x16:
      return "1x16";
  }
  return "?";
}
std::string kind_text(const CodeKind& k) {
  return std::string(format_text(k.format)) + " " + scales_text(k.scales);
}

bool aligned_to_16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

bool long_blocks(CodeScales s) {
  return s == CodeScales::k1x128 || s == CodeScales::k128x128;
}

// Sources: cuBLAS documentation, the tables of cublasLtMatmul() for narrow precisions.
enum class Needs { kAnyFp8, kHopper, kBlackwell, kNothing };

Needs needs(const CodeKind& a, const CodeKind& b) {
  const bool fp8 = a.format != CodeFormat::kE2M1 && b.format != CodeFormat::kE2M1;
  const bool e4m3 = a.format == CodeFormat::kE4M3 && b.format == CodeFormat::kE4M3;
  if (a.scales == CodeScales::kTensor && b.scales == CodeScales::kTensor) {
    return fp8 && (a.format == CodeFormat::kE4M3 || b.format == CodeFormat::kE4M3)
               ? Needs::kAnyFp8
               : Needs::kNothing;
  }
  if (long_blocks(a.scales) && long_blocks(b.scales)) {
    const bool both_square = a.scales == CodeScales::k128x128 && b.scales == CodeScales::k128x128;
    return e4m3 && !both_square ? Needs::kHopper : Needs::kNothing;
  }
  if (!(a == b)) return Needs::kNothing;
  const bool mxfp8 = a.scales == CodeScales::k1x32 && e4m3;
  const bool nvfp4 = a.scales == CodeScales::k1x16 && a.format == CodeFormat::kE2M1;
  return mxfp8 || nvfp4 ? Needs::kBlackwell : Needs::kNothing;
}

}  // namespace

bool built_with_scaled_matmul() {
#ifdef ASSAY_NO_SCALED_MATMUL
  return false;
#else
  return true;
#endif
}

std::string scaled_products_problem(const ProductLibrary* library) {
  constexpr int64_t kOldest = 120900;  // has scales of operands
  const int64_t version = library != nullptr ? library->version() : kOldest;
  if (version >= kOldest) return "";
  return strprintf(
      "products of quantised operands need cuBLASLt 12.9 or newer, this is %ld.%ld.%ld",
      long(version / 10000), long(version / 100 % 100), long(version % 100));
}

void check_scaled_matmul(const ScaledMatmul& p) {
  const bool blocks = long_blocks(p.a.kind.scales);
  const int whole = p.a.kind.format == CodeFormat::kE2M1 ? 32 : 16;  // 16 bytes
  CHECK(p.k > 0 && p.k % whole == 0 && p.m % (blocks ? 8 : 1) == 0 && p.n % (blocks ? 8 : 16) == 0,
        "scaled_matmul: %s (%ld, %ld) by %s (%ld, %ld): k must be a multiple of %d, %s",
        kind_text(p.a.kind).c_str(), long(p.m), long(p.k), kind_text(p.b.kind).c_str(), long(p.n),
        long(p.k), whole, blocks ? "m and n multiples of 8" : "n a multiple of 16");
  for (const CodeOperand* const x : {&p.a, &p.b}) {
    CHECK(aligned_to_16(x->codes) && aligned_to_16(x->scales),
          "scaled_matmul: %s: codes at %p, scales at %p, must be at multiples of 16 bytes",
          kind_text(x->kind).c_str(), x->codes, x->scales);
  }
}

std::string scaled_matmul_problem(const CodeKind& a, const CodeKind& b, int capability) {
  const std::string pair = kind_text(a) + " by " + kind_text(b);
  const bool fp8 = capability >= 89, hopper = capability == 90, blackwell = capability >= 100;
  switch (needs(a, b)) {
    case Needs::kNothing:
      return "no hardware multiplies " + pair;
    case Needs::kAnyFp8:
      return fp8 ? "" : pair + " needs compute capability 8.9 or newer";
    case Needs::kHopper:
      return hopper ? "" : pair + " needs compute capability 9.0 exactly";
    case Needs::kBlackwell:
      return blackwell ? "" : pair + " needs compute capability 10.0 or newer";
  }
  return "";
}

}  // namespace assay::gpu
