#!/usr/bin/env bash
# Checks two builds that the suite does not make: without CUDA, and the kernels alone with every
# package hidden from CMake. Both are configured and all their rules are resolved. For the build
# without CUDA what differs there is compiled too: files with #if ASSAY_HAS_CUDA, and the device
# layer, which has other sources; it must define every function of the layer with CUDA. Complete
# builds would compile the same sources again, for minutes.
#   build_variants.sh SOURCE SCRATCH [DEVICE_LIBRARY]
# DEVICE_LIBRARY is libassay_device.a of a build with CUDA.
set -euo pipefail
source=$1 scratch=$2 with_cuda=${3:-}
configure() {
  local folder=$scratch/$1
  shift
  rm -rf "$folder"
  cmake -S "$source" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
  ninja -C "$folder" -n >"$folder.log" 2>&1 || { tail -20 "$folder.log"; exit 1; }
}
command -v ninja >/dev/null || { echo "not run: ninja is not installed"; exit 0; }
mkdir -p "$scratch"

configure no-cuda -DASSAY_CUDA=OFF -DASSAY_UNITY=OFF -DASSAY_PRECOMPILE=OFF
ninja -C "$scratch/no-cuda" assay_device >"$scratch/no-cuda.log" 2>&1 || { tail -30 "$scratch/no-cuda.log"; exit 1; }
# By the command alone: ninja would first build the libraries that a file's target is linked with.
folders=(base comm cuda data engine eval interop lab machine models ops session tools)
mapfile -t differing < <(cd "$source" && grep -lrE '^#if.*ASSAY_HAS_CUDA' --include=*.cpp "${folders[@]}")
[[ ${#differing[@]} -gt 0 ]] || { echo "no file asks for ASSAY_HAS_CUDA"; exit 1; }
for file in "${differing[@]}"; do
  object=$(ninja -C "$scratch/no-cuda" -t targets all | sed -n "s|^\([^:]*\.dir/${file#*/}\.o\): .*|\1|p")
  [[ -n $object ]] || { echo "$file: no target compiles it"; exit 1; }
  command=$(ninja -C "$scratch/no-cuda" -t commands "$object" | tail -1)
  (cd "$scratch/no-cuda" && mkdir -p "$(dirname "$object")" && bash -c "$command") || { echo "without CUDA, $file does not compile"; exit 1; }
done

hidden=()
while read -r package; do hidden+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"); done \
  < <(sed -n 's/^find_package(\([A-Za-z0-9_-]*\).*/\1/p' "$source/cmake/dependencies.cmake")
configure kernels-only -DASSAY_KERNELS_ONLY=ON "${hidden[@]}"

# functions LIBRARY OBJECT: lists the functions that an object defines, except constructors that
# only the layer itself calls.
functions() { nm --defined-only -gC "$1" 2>/dev/null | sed -n "/^$2:/,/^$/s/.* T //p" | grep -v '^assay::gpu::Device::Device(' | sort; }
if [[ -n $with_cuda ]]; then
  missing=$(comm -23 <(functions "$with_cuda" device.cpp.o) <(functions "$scratch/no-cuda/cuda/libassay_device.a" device_absent.cpp.o))
  if [[ -n $missing ]]; then
    printf 'cuda/device_absent.cpp lacks:\n%s\n' "$missing"
    exit 1
  fi
  [[ $(functions "$with_cuda" device.cpp.o | wc -l) -gt 10 ]] || { echo "no functions in $with_cuda"; exit 1; }
fi
echo "build variants: ok"
