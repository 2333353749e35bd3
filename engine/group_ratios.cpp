#include "engine/group_ratios.h"

#include <algorithm>
#include <cmath>

namespace assay {

namespace {

constexpr int64_t kPieces = 64;

RatioSquares piece_squares(const RatioTensor& a, int64_t begin, int64_t end) {
  const float *p = a.master.data, *m = a.m.data, *v = a.v.data, *g = a.grad.data;
  const AdamWConstants& s = a.step;
  const float before = 1 / (1 - s.decay);  // p_before = (p + step) / (1 - decay)
  double grad = 0, update = 0, master = 0;
#pragma omp simd reduction(+ : grad, update, master)
  for (int64_t i = begin; i < end; ++i) {
    const float step = s.step_size * m[i] / (std::sqrt(v[i]) * s.root_scale + s.eps);
    const float u = s.decay * before * (p[i] + step) + step;
    grad += double(g[i]) * double(g[i]);
    update += double(u) * double(u);
    master += double(p[i]) * double(p[i]);
  }
  return {grad, update, master};
}

}  // namespace

const char* ratio_group_name(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return "embedding";
    case Role::kHead:
      return "head";
    case Role::kNorm:
      return "norms";
    case Role::kAttention:
      return "attention";
    case Role::kDenseFfn:
      return "dense_ffn";
    case Role::kRouter:
      return "router";
    case Role::kRoutedExpert:
      return "experts";
    case Role::kSharedExpert:
      return "shared_experts";
    case Role::kBuffer:
      break;
  }
  return "?";
}

RatioSquares ratio_squares(Exec on, const RatioTensor& a) {
  const int64_t n = a.master.dim[0], piece = (n + kPieces - 1) / kPieces;
  std::array<RatioSquares, kPieces> partial{};
  parallel_for(on, kPieces, [&](int64_t i) {
    const int64_t begin = std::min(n, i * piece);
    partial[size_t(i)] = piece_squares(a, begin, std::min(n, begin + piece));
  });
  RatioSquares sum;
  for (const RatioSquares& p : partial) sum.add(p);
  return sum;
}

GroupRatio ratio_of(const RatioSquares& sum) {
  if (!(sum.master > 0)) return {};
  return {.grad = std::sqrt(sum.grad / sum.master), .update = std::sqrt(sum.update / sum.master)};
}

}  // namespace assay
