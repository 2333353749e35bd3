#!/usr/bin/env bash
# Compiles the given kernels, which have products by wgmma, for sm_90a. Fails if ptxas refuses one,
# spills registers or serialises wgmma (C75xx), or if wgmma_order.py finds fault with the PTX; those
# after --order are compiled to PTX only, because the build keeps what ptxas says of them
# (tools/check_kernels.sh). Exits 77 (skipped) without nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "ptx: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 --expt-relaxed-constexpr -diag-suppress 554 -I.)
only_order=no
for file in "$@"; do
  if [[ $file == --order ]]; then only_order=yes && continue; fi
  if [[ $only_order == yes ]]; then
    "$nvcc" "${flags[@]}" -arch=sm_90a -ptx "$file" -o "$work/kernel.ptx"
    echo "ptx: $file"
    python3 tests/simt/wgmma_order.py "$work/kernel.ptx"
    continue
  fi
  if ! "$nvcc" "${flags[@]}" -gencode arch=compute_90a,code=sm_90a \
       -Xptxas=-v --keep --keep-dir "$work" -c "$file" -o "$work/kernel.o" >"$work/log" 2>&1; then
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
