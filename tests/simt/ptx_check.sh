#!/usr/bin/env bash
# Compiles the given kernels for sm_90a. Fails if ptxas refuses one, spills registers or serialises
# wgmma (C75xx), or if the PTX uses an accumulator too early. Exits 77 (skipped) without nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "ptx: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$@"; do
  if ! "$nvcc" -std=c++20 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -diag-suppress 554 \
       -Xptxas=-v -I. --keep --keep-dir "$work" -c "$file" -o "$work/kernel.o" >"$work/log" 2>&1; then
    cat "$work/log"
    exit 1
  fi
  if grep -E '\(C75[0-9]+\)|[1-9][0-9]* bytes spill' "$work/log"; then
    echo "ptx: $file: see above"
    exit 1
  fi
  echo "ptx: $file: $(grep -c 'Compiling entry function' "$work/log") kernels"
  python3 tests/simt/wgmma_order.py "$work"/*.ptx
  rm -f "$work"/*
done
