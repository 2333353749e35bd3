// An example for kernel authors: a matrix product with TMA, mbarriers and wgmma, in which
// warpgroups have different roles. d (m, n) = a b^T, with a (m, k) and b (n, k) each stored with
// either index contiguous.
#pragma once

#include "base/bf16.h"
#include "cuda/exec.h"

namespace assay::pipeline {

// As stored: kNt: a (m, k), b (n, k); kNn: a (m, k), b (k, n); kTn: a (k, m), b (k, n).
enum class Order { kNt, kNn, kTn };

struct Product {
  bf16* d;        // out (m, n)
  const bf16* a;  // in
  const bf16* b;  // in
  int m, n, k;    // the contiguous dimensions are multiples of 8
};
void multiply(Exec on, Order order, const Product& p);

}  // namespace assay::pipeline
