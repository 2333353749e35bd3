#!/usr/bin/env bash
# Everything that only a GPU can tell, in under nine minutes: builds for it (CMake, a C++ compiler and the CUDA toolkit are
# enough), op tests, memcheck and racecheck, every bench, PyTorch's figures where it is installed. A step that fails or runs
# into its time limit does not stop the others. Leaves results.json and logs.tgz; exit 1 if a step failed.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: bash tools/gpu_check.sh [--out FOLDER] [--build FOLDER | --prebuilt FOLDER] [--dry-run]
  --out       where results.json and logs.tgz go (default: $OUT, or gpu-check)
  --build     where to build (default: build-gpu)
  --prebuilt  builds nothing, takes the programs there; in a bundle (tools/bundle.sh) that is bin
  --dry-run   prints the steps with their time limits and runs none
TEXT
}

out=${OUT:-gpu-check}
build=build-gpu
prebuilt=no
dry=no
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out | --build | --prebuilt)
      [[ $# -ge 2 ]] || { usage >&2; exit 1; }
      if [[ $1 == --out ]]; then out=$2; else build=$2; fi
      if [[ $1 == --prebuilt ]]; then prebuilt=yes; fi
      shift 2 ;;
    --dry-run) dry=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "error: unknown argument $1" >&2 && usage >&2 && exit 1 ;;
  esac
done

if [[ $prebuilt == yes && ! -x $build/op_check_cuda ]]; then
  echo "error: $build has no op_check_cuda" >&2
  echo "hint: --prebuilt takes the folder of programs built for CUDA, in a bundle --prebuilt bin" >&2
  exit 1
fi
total_seconds=525
if [[ $dry == no ]]; then
  if ! gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>&1); then
    echo "error: no NVIDIA GPU here (nvidia-smi: ${gpu##*$'\n'})" >&2
    echo "hint: run it on a machine with a GPU of compute capability 9.0 (H100, H200, GH200); without one, ctest -LE gpu runs the same kernels on the CPU" >&2
    exit 1
  fi
  mkdir -p "$out/logs"
  rm -f "$out"/logs/*
fi

failed=()
steps=""
# step NAME LIMIT COMMAND...: output to logs/NAME.log, or with a NAME.json to that file.
step() {
  local name=$1 limit=$2
  shift 2
  if [[ $dry == yes ]]; then
    printf '%4d s  %-20s %s\n' "$limit" "$name" "$*"
    return
  fi
  local left=$((total_seconds - SECONDS)) begin=$SECONDS status=0
  if ((left < 5)); then
    status=not-run
  else
    local log="$out/logs/${name%.json}.log" file="$out/logs/$name"
    [[ $name == *.json ]] || file=$log
    if [[ $file == "$log" ]]; then
      timeout -k 5 $((limit < left ? limit : left)) "$@" >"$log" 2>&1 || status=$?
    else
      timeout -k 5 $((limit < left ? limit : left)) "$@" >"$file" 2>"$log" || status=$?
    fi
  fi
  [[ $status == 0 ]] || failed+=("$name")
  printf '%4d s  %-20s %s\n' $((SECONDS - begin)) "$name" "$([[ $status == 0 ]] && echo ok || echo "FAILED ($status)")"
  if [[ $status != 0 && -s ${log:-} ]]; then tail -5 "$log" | sed 's/^/          /'; fi
  steps+="${steps:+, }{\"name\": \"${name%.json}\", \"status\": \"$status\", \"seconds\": $((SECONDS - begin))}"
}

build_all() {
  local generator=()
  if command -v ninja >/dev/null && [[ ! -f $build/CMakeCache.txt ]]; then generator=(-G Ninja); fi
  cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DASSAY_KERNELS_ONLY=ON -DASSAY_CUDA=ON &&
    cmake --build "$build" --parallel "$(nproc)" --target assay_kernels op_check_cuda gpu_benches
}
export -f build_all
export build

if [[ $prebuilt == no ]]; then
  step build 200 bash -c build_all
  step kernels 20 bash tools/check_kernels.sh --no-build "$build"
fi
step limits.json 30 "$build/bench_limits" --json
step op_check 110 "$build/op_check_cuda"
benches="attention gemm grouped head memory_ops optimizer router"
for bench in $benches; do step "bench_$bench.json" 35 "$build/bench_$bench" --iters 50 --json; done
step memcheck 60 compute-sanitizer --tool memcheck --error-exitcode 1 "$build/op_check_cuda" --small
step racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 1 "$build/op_check_cuda" --small
if [[ $dry == yes ]] || python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  step torch.json 60 python3 bench/peers/torch_gpu.py
fi
if [[ $dry == yes ]]; then exit 0; fi

# A bundle says in MANIFEST what it was made from.
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [[ -f MANIFEST ]]; then commit=$(sed -n 's/^# commit //p' MANIFEST); fi
# A bench's own JSON where it wrote all of it, else null.
value() {
  if [[ -s $1 && $(tail -c 3 "$1") == *[\]\}]* ]]; then cat "$1"; else echo null; fi
}
{
  printf '{"gpu": "%s", "date": "%s", "commit": "%s", "toolkit": "%s",\n' "$gpu" "$(date -u +%FT%TZ)" \
    "$commit" "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  printf '"seconds": %d, "steps": [%s],\n"limits": ' "$SECONDS" "$steps"
  value "$out/logs/limits.json"
  printf ',\n"benches": {'
  separator=""
  for bench in $benches; do
    printf '%s\n"bench_%s": ' "$separator" "$bench"
    value "$out/logs/bench_$bench.json"
    separator=","
  done
  printf '},\n"op_check": "%s",\n"torch": [' "$(tail -1 "$out/logs/op_check.log" 2>/dev/null | tr -d '"\\')"
  if [[ -s $out/logs/torch.json ]]; then grep '^{' "$out/logs/torch.json" | paste -sd,; fi
  printf ']}\n'
} >"$out/results.json"
tar -czf "$out/logs.tgz" -C "$out" logs && rm -r "$out/logs"

echo "gpu_check: $SECONDS s, $out/results.json, $out/logs.tgz"
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "gpu_check: failed: ${failed[*]}"
  exit 1
fi
