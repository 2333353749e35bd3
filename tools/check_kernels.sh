#!/usr/bin/env bash
# Prints registers, spills, stack and static shared memory of every CUDA kernel in each of its images, from the ptxas
# reports that the build keeps beside the objects. Exit 1 if ptxas had to serialise wgmma or ignore setmaxnreg (C75xx), if
# a function spills registers on sm_90a, or if it spills more than 256 bytes elsewhere: kernels are written for sm_90a, and a
# few words that others spill cost less than a kernel of their own.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/check_kernels.sh [--no-build] [FOLDER]
  --no-build  do not build the kernels first
  FOLDER      a build with CUDA (default: build of this clone)
Prints registers, spills, stack and shared memory of every CUDA kernel. Exit code 1: one spills more than it may.
TEXT
}

build_first=yes build=""
for argument; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --no-build) build_first=no ;;
    -*) printf 'error: unknown argument %s\nhint: bash tools/check_kernels.sh --help\n' "$argument" >&2; exit 1 ;;
    *) build=$(realpath -m -- "$argument") ;;
  esac
done
cd "$(dirname "$0")/.."
build=${build:-build}
if [[ ! -f $build/kernels.txt ]]; then
  echo "error: $build has no CUDA kernels: it was not configured, or CMake found no CUDA toolkit" >&2
  echo "hint: run cmake --preset release with nvcc on the PATH, then this again" >&2
  exit 1
fi
if [[ $build_first == yes ]]; then cmake --build "$build" --target assay_kernels >/dev/null; fi

status=0 objects=0
printf '%9s %7s %7s %8s %8s  %s\n' registers spilled stack "shared B" image kernel
while read -r object; do
  objects=$((objects + 1))
  report=$object.ptxas
  if [[ ! -f $object || ! -f $report ]]; then
    echo "error: $object was not built" >&2
    status=1
    continue
  fi
  # One line per kernel and image: registers, bytes spilled (stores + loads), bytes of stack, bytes of static shared memory,
  # image, name. The spills of any function count, kernel or not; its report follows that of the kernel's name.
  awk '
    function fail(why) { printf "%s: %s\n", why, kernel >"/dev/stderr"; bad = 1 }
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; image = part[4] }
    /bytes stack frame/ {
      stack = $1; spilled = $5 + $9
      if (spilled > (image == "sm_90a" ? 0 : 256)) fail(spilled " bytes spilled on " image)
    }
    /\(C75[0-9]+\)/ { fail($0) }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 2; i <= NF; ++i) if ($i ~ /^smem/) shared = $(i - 2)
      for (i = 1; i < NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "%9d %7d %7d %8d %8s  %s\n", registers, spilled, stack, shared, image, kernel
    }
    END { exit bad }' "$report" | c++filt -p |
    sed -E 's/void //; s/assay::(gpu::)?//g; s/\(anonymous namespace\):://g' || {
    echo "FAIL $object: see above" >&2
    status=1
  }
  if ! grep -q '^ptxas info' "$report"; then
    echo "error: $report has no output of ptxas" >&2
    status=1
  fi
done <"$build/kernels.txt"
if [[ $objects == 0 ]]; then
  echo "error: $build/kernels.txt names no kernels" >&2
  echo "hint: configure it again with nvcc on the PATH: cmake --preset release" >&2
  status=1
fi
if [[ $status == 0 ]]; then echo "kernels: none spills more than it may"; fi
exit $status
