// The products of cuda/scaled_matmul.h by cuBLASLt, opened at run time (cuda/cublaslt_plan.h).
#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cublaslt_plan.h"
#include "cuda/scaled_matmul.h"

namespace assay::gpu {

#if CUBLAS_VERSION >= 120900

namespace {

ProductKey::Type type_of(CodeFormat f) {
  return f == CodeFormat::kE4M3   ? ProductKey::Type::kE4M3
         : f == CodeFormat::kE5M2 ? ProductKey::Type::kE5M2
                                  : ProductKey::Type::kE2M1;
}

ProductKey::Scales scales_of(CodeScales s) {
  switch (s) {
    case CodeScales::kTensor:
      return ProductKey::Scales::kTensor;
    case CodeScales::k1x128:
      return ProductKey::Scales::k1x128;
    case CodeScales::k128x128:
      return ProductKey::Scales::k128x128;
    case CodeScales::k1x32:
      return ProductKey::Scales::k1x32;
    case CodeScales::k1x16:
      return ProductKey::Scales::k1x16;
  }
  return ProductKey::Scales::kTensor;
}

ProductKey key_of(const ScaledMatmul& p) {
  using Key = ProductKey;
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = {.type = type_of(p.a.kind.format),
                .scales = scales_of(p.a.kind.scales),
                .alignment = pointer_alignment(p.a.codes)},
          .b = {.type = type_of(p.b.kind.format),
                .form = Key::Form::kTransposed,
                .scales = scales_of(p.b.kind.scales),
                .alignment = pointer_alignment(p.b.codes)},
          .result = p.result == Element::kFloat ? Key::Type::kFloat : Key::Type::kBf16,
          .added = added_of(p.c, p.d),
          .factors = p.factors ? Key::Factors::kDevice : Key::Factors::kHost,
          .sums = p.sums == ScaledMatmul::Sums::kFast ? Key::Sums::kFast : Key::Sums::kPromoted,
          .c_alignment = pointer_alignment(p.c ? p.c : p.d),
          .d_alignment = pointer_alignment(p.d)};
}

}  // namespace

void scaled_matmul(Exec on, const ScaledMatmul& p) {
  CHECK(on.gpu != nullptr, "scaled_matmul (%ld, %ld, %ld): no GPU", long(p.m), long(p.n),
        long(p.k));
  check_scaled_matmul(p);
  if (p.m == 0 || p.n == 0) return;
  run_product(on, key_of(p),
              {.a = p.a.codes,
               .b = p.b.codes,
               .c = p.c,
               .d = p.d,
               .factors = p.factors,
               .a_scales = p.a.scales,
               .b_scales = p.b.scales});
}

#else

void scaled_matmul(Exec, const ScaledMatmul&) {
  throw UserError("products of quantised operands need cuBLASLt 12.9 or newer",
                  "build with a newer CUDA toolkit, or set precision.products: decoded");
}

#endif

}  // namespace assay::gpu
