#include "engine/parameter_spec.h"

#include "base/check.h"

namespace assay {

bool ParameterSpec::is_hidden_matrix() const {
  const bool inside = role == Role::kAttention || role == Role::kDenseFfn ||
                      role == Role::kRoutedExpert || role == Role::kSharedExpert;
  return inside && is_matrix();
}

std::vector<int64_t> ParameterSpec::whole_shape() const {
  std::vector<int64_t> whole = shape;
  if (!whole.empty()) whole.front() *= shares;
  return whole;
}

int64_t ParameterSpec::size() const {
  int64_t n = 1;
  for (const int64_t d : shape)
    if (__builtin_mul_overflow(n, d, &n))
      throw UserError(name + " has more elements than 63 bits can count",
                      "make hidden, ffn, experts or vocab_size smaller");
  return n;
}

}  // namespace assay
