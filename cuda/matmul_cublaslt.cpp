// The products of cuda/matmul.h by cuBLASLt, opened at run time (cuda/cublaslt_plan.h).
#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cublaslt_plan.h"
#include "cuda/device.h"
#include "cuda/matmul.h"

namespace assay::gpu {

namespace {

ProductKey::Type type_of(Element e) {
  return e == Element::kFloat ? ProductKey::Type::kFloat : ProductKey::Type::kBf16;
}
ProductKey::Form form_of(Matmul::Form form) {
  return form == Matmul::Form::kPlain ? ProductKey::Form::kPlain : ProductKey::Form::kTransposed;
}

ProductKey key_of(const Matmul& p) {
  using Key = ProductKey;
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = {.type = type_of(p.operands),
                .form = form_of(p.a_form),
                .alignment = pointer_alignment(p.a)},
          .b = {.type = type_of(p.operands),
                .form = form_of(p.b_form),
                .alignment = pointer_alignment(p.b)},
          .result = type_of(p.result),
          .added = added_of(p.c, p.d),
          .factors = p.factors ? Key::Factors::kDevice : Key::Factors::kHost,
          .c_alignment = pointer_alignment(p.c ? p.c : p.d),
          .d_alignment = pointer_alignment(p.d)};
}

// k = 0: d is c, or zero.
void empty_product(Exec on, const Matmul& p) {
  const size_t bytes = size_t(p.m) * size_t(p.n) * (p.result == Element::kFloat ? 4 : 2);
  if (p.c == p.d) return;
  p.c ? copy(*on.gpu, p.d, p.c, bytes) : fill(*on.gpu, p.d, 0, bytes);
}

}  // namespace

void matmul(Exec on, const Matmul& p) {
  CHECK(on.gpu != nullptr, "matmul (%ld, %ld, %ld): no GPU", long(p.m), long(p.n), long(p.k));
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return empty_product(on, p);
  run_product(on, key_of(p),
              {.a = p.a, .b = p.b, .c = p.c, .d = p.d, .factors = p.factors, .gain = p.gain});
}

}  // namespace assay::gpu
