#!/usr/bin/env bash
# Prints registers, spills, stack and static shared memory of every CUDA kernel, from the ptxas
# reports that the build keeps beside the objects. Exit 1 if a kernel spills registers, or if ptxas
# had to serialise wgmma or ignore setmaxnreg (C75xx).
#
#   usage: bash tools/check_kernels.sh [--no-build] [BUILD FOLDER, default build]
set -euo pipefail
cd "$(dirname "$0")/.."

build_first=yes
if [[ ${1:-} == --no-build ]]; then build_first=no && shift; fi
build=${1:-build}
if [[ ! -f $build/kernels.txt ]]; then
  echo "error: $build has no CUDA kernels: it was not configured, or CMake found no CUDA toolkit" >&2
  echo "hint: run cmake --preset release with nvcc on the PATH, then this again" >&2
  exit 1
fi
if [[ $build_first == yes ]]; then cmake --build "$build" --target assay_kernels >/dev/null; fi

status=0
printf '%9s %7s %7s %8s  %s\n' registers spilled stack "shared B" kernel
while read -r object; do
  report=$object.ptxas
  if [[ ! -f $object || ! -f $report ]]; then
    echo "error: $object was not built" >&2
    status=1
    continue
  fi
  # One line per kernel: registers, bytes spilled (stores + loads), bytes of stack, bytes of static
  # shared memory, name.
  awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
    /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 2; i <= NF; ++i) if ($i ~ /^smem/) shared = $(i - 2)
      for (i = 1; i < NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "%9d %7d %7d %8d  %s\n", registers, spilled, stack, shared, kernel
    }' "$report" | c++filt -p |
    sed -E 's/void //; s/assay::(gpu::)?//g; s/\(anonymous namespace\):://g'
  # Spills of any function, kernel or not.
  if grep -E '[1-9][0-9]* bytes spill|\(C75[0-9]+\)' "$report"; then
    echo "FAIL $object: see above" >&2
    status=1
  fi
  if ! grep -q '^ptxas info' "$report"; then
    echo "error: $report has no output of ptxas" >&2
    status=1
  fi
done <"$build/kernels.txt"
if [[ $status == 0 ]]; then echo "kernels: none spills"; fi
exit $status
