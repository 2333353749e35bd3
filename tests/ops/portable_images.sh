#!/usr/bin/env bash
# Compiles some kernels for other GPUs than those of ASSAY_GPUS, with what these lack: instructions that round to 8 bits, and
# stmatrix. Exits 77 (skipped) without nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "portable images: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile() {
  "$nvcc" -std=c++20 -cubin -arch "$1" --expt-relaxed-constexpr -diag-suppress 554 -I . -o "$work/kernel.cubin" "$2"
  echo "$1 $2: $(stat -c %s "$work/kernel.cubin") bytes"
}
compile sm_80 ops/swiglu_codes.cu
compile sm_80 ops/grouped/gpu_mma.cu
