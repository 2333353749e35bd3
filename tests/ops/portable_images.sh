#!/usr/bin/env bash
# Compiles a few kernels for each image: rounding to 8 bits where there is no instruction for it, and the experts' products of
# codes by mma.sync, which use most of what images lack or have (stmatrix, 8-bit products). Fails if ptxas refuses one or
# spills more than tools/check_kernels.sh allows. Exits 77 (skipped) without nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "portable images: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile() {
  "$nvcc" -std=c++20 -cubin -arch "$1" --expt-relaxed-constexpr -diag-suppress 554 -Xptxas -v -I . -o "$work/kernel.cubin" \
    "$2" 2>"$work/report" || { cat "$work/report"; exit 1; }
  awk -v what="$1 $2" '
    /bytes stack frame/ { ++kernels; spilled = $5 + $9; most = spilled > most ? spilled : most }
    END { printf "%s: %d kernels, at most %d bytes spilled\n", what, kernels, most; exit kernels == 0 || most > 256 }' \
    "$work/report"
}
compile sm_80 ops/swiglu_codes.cu
for image in sm_80 sm_89 sm_100 sm_120; do compile $image ops/grouped/gpu_scaled_mma.cu; done
