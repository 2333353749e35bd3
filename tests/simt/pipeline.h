// An example for kernel authors: a product by TMA, mbarriers and wgmma with warpgroups of different
// roles. d = a b^T in the sense of wgmma: a (m, k), b (n, k), each with either index neighbouring
// in memory.
#pragma once

#include "base/bf16.h"
#include "cuda/exec.h"

namespace assay::pipeline {

enum class Order {
  kNt,
  kNn,
  kTn
};  // a (m, k) and b (n, k); a (m, k) and b (k, n); a (k, m) and b (k, n)

struct Product {
  bf16* d;        // out (m, n)
  const bf16* a;  // in
  const bf16* b;  // in
  int m, n, k;    // rows in memory are multiples of 8 elements
};
void multiply(Exec on, Order order, const Product& p);

}  // namespace assay::pipeline
