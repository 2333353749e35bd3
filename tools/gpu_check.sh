#!/usr/bin/env bash
# Runs every check that needs a GPU, in about ten minutes: the build (CMake, a C++ compiler and the
# CUDA toolkit are enough), op tests, memcheck and racecheck, every bench, and PyTorch's figures if it
# is installed. With `assay` (from a bundle or a full build) also training against the CPU's, its bits
# when repeated, resumed and run without graphs, and the steps of the speedrun models. What no GPU has
# executed yet (docs/bench) comes first. A step that fails or reaches its time limit does not stop the
# others. Writes results.json and logs.tgz; exit 1 if a step failed.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: bash tools/gpu_check.sh [--out FOLDER] [--build FOLDER | --prebuilt FOLDER] [--only REGEX] [--dry-run]
  --out       folder for results.json and logs.tgz (default: $OUT, or gpu-check)
  --build     where to build (default: build-gpu)
  --prebuilt  build nothing, use the programs in this folder; in a bundle (tools/bundle.sh) it is bin
  --only      run only the steps whose names match, e.g. 'limits|step_.*'
  --dry-run   print the steps with their time limits and run none
After 525 s no further step begins, and the remaining ones count as failed. To have time for all
steps, make four calls, each with its own --out:
  --only 'build|kernels|limits|op_check_.*|bench_quantisers|(step|profile)_.*_fp8_.*|losses'
  --only 'limits|op_check|bench_[a-pr-z].*|memcheck|racecheck|parity_.*|(step|profile)_[a-z0-9-]*|torch'
  --only 'torch_step_dense|torch_step_moe-64' and --only 'torch_step_moe-256|torch_step_super-4096'
(all but the first with --prebuilt and the folder that it built).
TEXT
}

out=${OUT:-gpu-check}
build=build-gpu
only='.*'
prebuilt=no
dry=no
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out | --build | --prebuilt | --only)
      [[ $# -ge 2 ]] || { usage >&2; exit 1; }
      case "$1" in
        --out) out=$2 ;;
        --only) only=$2 ;;
        *) build=$2 ;;
      esac
      if [[ $1 == --prebuilt ]]; then prebuilt=yes; fi
      shift 2 ;;
    --dry-run) dry=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "error: unknown argument $1" >&2 && usage >&2 && exit 1 ;;
  esac
done

if [[ $prebuilt == yes && ! -x $build/op_check_cuda ]]; then
  echo "error: $build has no op_check_cuda" >&2
  echo "hint: give the folder of programs built for CUDA; in a bundle --prebuilt bin" >&2
  exit 1
fi
total_seconds=525
if [[ $dry == no ]]; then
  if ! gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>&1); then
    echo "error: no NVIDIA GPU here (nvidia-smi: ${gpu##*$'\n'})" >&2
    echo "hint: run it on a machine with a GPU of compute capability 8.0 or newer; without one, ctest -LE gpu runs the same kernels on the CPU" >&2
    exit 1
  fi
  mkdir -p "$out/logs"
  rm -rf "${out:?}"/logs/*
fi

# Folder for small runs; removed when this script ends, also by Ctrl-C or a time limit.
scratch=$(mktemp -d)
export scratch
export logs="$out/logs"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# gather_shards LOG STATUS: puts the output of the shards before the step's own in LOG. The step
# cannot do this itself: at its time limit it is killed with its processes.
gather_shards() {
  local log=$1 status=$2
  mv "$log" "$SHARDS.own"
  cat "$SHARDS"/* "$SHARDS.own" >"$log" 2>/dev/null
  if [[ $status == 124 || $status == 137 ]]; then
    printf 'stopped at the time limit: %d cases ok, %d failed so far\n' "$(grep -c '^ok ' "$log")" "$(grep -c '^FAIL ' "$log")" >>"$log"
  fi
  rm -rf "$SHARDS" "$SHARDS.own"
}

failed=()
steps=""
# step NAME LIMIT COMMAND...: runs a step of at most LIMIT seconds. Output goes to logs/NAME.log; if
# NAME ends in .json, stdout goes to logs/NAME.
step() {
  local name=$1 limit=$2
  shift 2
  if ! [[ ${name%.json} =~ ^($only)$ ]]; then return; fi
  if [[ $dry == yes ]]; then
    printf '%4d s  %-36s %s\n' "$limit" "$name" "$*"
    return
  fi
  local left=$((total_seconds - SECONDS)) begin=$SECONDS status=0
  if ((left < 5)); then
    status=not-run
  else
    local log="$out/logs/${name%.json}.log" file="$out/logs/$name"
    [[ $name == *.json ]] || file=$log
    if [[ -n ${SHARDS:-} ]]; then mkdir -p "$SHARDS"; fi
    if [[ $file == "$log" ]]; then
      timeout -k 5 $((limit < left ? limit : left)) "$@" >"$log" 2>&1 || status=$?
    else
      timeout -k 5 $((limit < left ? limit : left)) "$@" >"$file" 2>"$log" || status=$?
    fi
    if [[ -n ${SHARDS:-} ]]; then gather_shards "$log" "$status"; fi
  fi
  [[ $status == 0 ]] || failed+=("$name")
  printf '%4d s  %-36s %s\n' $((SECONDS - begin)) "$name" "$([[ $status == 0 ]] && echo ok || echo "FAILED ($status)")"
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

# Runs all cases of an op check in one process per core, each with every N-th case, because the
# references are computed on the CPU. Their output goes to files in $SHARDS; step() gathers it.
sharded() {
  local shards status
  shards=$(nproc)
  seq 0 $((shards - 1)) | xargs -P "$shards" -I{} bash -c '"$@" --shard {}/'"$shards"' >"$SHARDS/{}" 2>&1' _ "$@"
  status=$?
  sed -n 's/^\([0-9]*\) cases, \([0-9]*\) failed.*/\1 \2/p' "$SHARDS"/* |
    awk '{cases += $1; failed += $2} END {printf "%d cases, %d failed\n", cases, failed; exit cases == 0}' || status=1
  return $status
}
export -f sharded
# check NAME LIMIT COMMAND...: a step of an op check.
check() {
  local name=$1 limit=$2
  shift 2
  SHARDS=$out/logs/$name.shards step "$name" "$limit" bash -c 'sharded "$@"' _ "$@"
}

# Fails on hazards, except those whose accesses are inside cuBLASLt's own kernels.
racecheck() {
  local status=0 ours theirs
  sharded compute-sanitizer --tool racecheck "$@" || status=1
  theirs=$(cat "$SHARDS"/* | grep 'access at' | grep -cE ' at (void )?(nvjet_|cublas|cutlass)' || true)
  ours=$(cat "$SHARDS"/* | grep 'access at' | grep -cvE ' at (void )?(nvjet_|cublas|cutlass)' || true)
  printf 'racecheck: %d accesses in hazards, %d of them inside kernels of cuBLASLt\n' $((ours + theirs)) "$theirs"
  return $((status | (ours > 0)))
}
export -f racecheck

# steps_of LOG: prints "step loss hash" for every step line in a log of `assay train`.
steps_of() { sed -n 's|^step \([0-9]*\)/.* loss \([0-9.]*\) .*\(#[0-9a-f]*\)$|\1 \2 \3|p' "$1"; }
export -f steps_of

# parity RECIPE FIRST ALL: trains a small mixture of experts for 60 steps on the CPU and on the GPU.
# Their losses may differ by at most FIRST at step 1 and ALL at any step. On the GPU a second run, a
# resumed run and a run without graphs must have the bits of the first.
parity() {
  local recipe=$1 first=$2 all=$3 runs
  runs=$(mktemp -d -p "$scratch")
  train() {
    local name=$1 device=$2
    shift 2
    "$build/assay" train models/presets/cpu/moe.yaml --run "$runs/$name" --device "$device" --set precision.recipe="$recipe" \
      --set run.steps=60 --set run.batch_tokens=1024 --set run.micro_batch=1 --set optimizer.lr=1e-3 --set schedule.warmup=20 \
      --set schedule.warmdown=20 --set eval.every=60 --set eval.tokens=4096 --set data.cache="$runs/cache" \
      --set data.synth.train_tokens=200000 --set data.synth.val_tokens=20000 "$@" >>"$runs/$name.log" 2>&1 || { tail -5 "$runs/$name.log"; return 1; }
    steps_of "$runs/$name.log" >"$runs/$name.steps"
  }
  train cpu cpu && train gpu cuda && train again cuda && ASSAY_SYNC_LAUNCHES=1 train no-graphs cuda &&
    train resumed cuda --stop-after 30 && train resumed cuda || return 1
  local status=0 same
  for name in again no-graphs resumed; do
    same=yes
    cmp -s "$runs/gpu.steps" "$runs/$name.steps" || { same=no; status=1; }
    printf 'same bits, %s: %s\n' "$name" "$same"
  done
  paste "$runs/cpu.steps" "$runs/gpu.steps" | awk -v first="$first" -v all="$all" '
    { d = $2 - $5; if (d < 0) d = -d; if (NR == 1) one = d; if (d > most) { most = d; at = $1 } }
    END { printf "%d steps: |loss on the CPU - on the GPU| %.3f at step 1, at most %.3f (step %d)\n", NR, one, most, at
          exit NR != 60 || one > first || most > all }' || status=1
  return $status
}
export -f parity

# losses FIRST LAST PAIR...: prints, as JSON, the losses of a recipe's steps with simulated and with
# native products. Codes and draws are the same; sums differ in order and by the tensor cores' short
# accumulators, whose truncation (2^-13 of a step's largest product) weighs about as much as rounding
# a product's result to bf16. So the rule is that of two backends in bf16, as in `parity`: losses may
# differ by FIRST before anything is learned and by LAST in the last step. On a CPU, where small
# models of both kinds take the same steps, bf16 and fp32 differ by 0.001 and 0.016.
losses() {
  local first=$1 last=$2 status=0 separator="{"
  shift 2
  # number FIELD NAME: the value of a field in step_NAME.json.
  number() { sed -n 's/.*"'"$1"'":\(-\{0,1\}[0-9.][-+0-9.e]*\).*/\1/p' "$logs/step_$2.json" 2>/dev/null; }
  for pair; do
    local numbers=("$(number first_loss "${pair}_decoded")" "$(number first_loss "${pair}_native")"
      "$(number loss "${pair}_decoded")" "$(number loss "${pair}_native")")
    local all="${numbers[*]}"
    [[ -n ${all// /} ]] || continue  # neither step was run
    awk -v first="$first" -v last="$last" -v a="${numbers[0]}" -v b="${numbers[1]}" -v c="${numbers[2]}" -v d="${numbers[3]}" -v pair="$pair" \
      -v separator="$separator" '
      function apart(x, y) { return x > y ? x - y : y - x }
      BEGIN {
        if (a == "" || b == "" || c == "" || d == "") { print pair ": a loss is missing" >"/dev/stderr"; exit 1 }
        printf "%s\n\"%s\": {\"decoded\": [%s, %s], \"native\": [%s, %s], \"apart\": [%.6f, %.6f]}", separator, pair, a, c, b, d, apart(a, b), apart(c, d)
        ok = apart(a, b) <= first && apart(c, d) <= last
        printf "%s: losses of decoded and native products differ by %.6f in the first step (at most %s), %.6f in the last (at most %s)%s\n", \
          pair, apart(a, b), first, apart(c, d), last, ok ? "" : ": FAILED" >"/dev/stderr"
        exit !ok
      }' || status=1
    separator=","
  done
  printf '%s}\n' "$([[ $separator == "{" ]] && echo "{")"
  return $status
}
export -f losses

if [[ $prebuilt == no ]]; then
  step build 200 bash -c build_all
  step kernels 20 bash tools/check_kernels.sh --no-build "$build"
fi
measured=""
# measure KIND NAME MODEL OPTION...: runs bench_step on a speedrun model, as step KIND_NAME.
measure() {
  local name=$1_$2 model=$3
  shift 3
  step "$name.json" 60 "$build/bench_step" --config "models/presets/speedrun/$model.yaml" --device cuda "$@" --json
  measured+=" $name"
}
codes_ops="grouped_scaled swiglu_codes quantise fake_quantise"
benches=""
bench() {
  step "bench_$1.json" 60 "$build/bench_$1" --iters 50 --json
  benches+=" $1"
}

# Real NCCL: one rank with any; ranks that share the GPU with one of 2.30 or later, named by ASSAY_NCCL_LIBRARY.
if [[ $dry == yes || -x $build/nccl_check ]]; then
  step ranks 110 "$build/nccl_check"
  if [[ $dry == yes || -n ${ASSAY_NCCL_LIBRARY:-} ]]; then
    for ranks in 2 4; do step "ranks_$ranks" 110 "$build/nccl_check" "$ranks"; done
  fi
fi
step limits.json 30 "$build/bench_limits" --json
# cuBLASLt logs why it has no algorithm for a product; %i is the process id.
check op_check_scaled_linear 60 env CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE="$out/logs/cublaslt_%i.log" "$build/op_check_cuda" --op scaled_linear
for op in $codes_ops; do check "op_check_$op" 60 "$build/op_check_cuda" --op "$op"; done
bench quantisers
if [[ $dry == yes || -x $build/assay ]]; then
  pairs=()
  for model in dense moe-64; do
    for recipe in fp8_tensor fp8_block; do
      for products in decoded native; do
        measure step "${model}_${recipe}_$products" "$model" --recipe $recipe --products $products --micro-batches 8 --steps 5 --warmup 2
      done
      pairs+=("${model}_$recipe")
    done
  done
  step losses.json 5 bash -c 'losses "$@"' _ 0.01 0.05 "${pairs[@]}"
  for pair in "${pairs[@]}"; do
    measure profile "${pair}_native" "${pair%%_*}" --recipe "${pair#*_}" --products native --steps 2 --warmup 1 --profile
  done
fi
check op_check 110 "$build/op_check_cuda"
for op in attention grouped_linear grouped_swiglu; do  # the kernels of other GPUs
  check "op_check_mma_$op" 60 env ASSAY_GPU_PATH=mma "$build/op_check_cuda" --op "$op" --filter bf16
done
for name in attention gemm grouped head memory_ops optimizer router; do bench $name; done
check memcheck 80 compute-sanitizer --tool memcheck --error-exitcode 1 "$build/op_check_cuda" --small
SHARDS=$out/logs/racecheck.shards step racecheck 120 bash -c 'racecheck "$@"' _ "$build/op_check_cuda" --small
if [[ $dry == yes || -x $build/assay ]]; then
  step parity_fp32 60 bash -c 'parity fp32 0.001 0.005'
  step parity_bf16 60 bash -c 'parity bf16 0.01 0.05'
  for model in dense moe-64 moe-256; do
    measure step "$model" "$model" --micro-batches 8 --steps 5 --warmup 2
    measure profile "$model" "$model" --steps 2 --warmup 1 --profile
  done
fi
if [[ $dry == yes ]] || python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  step torch.json 60 python3 bench/peers/torch_gpu.py
  if [[ $dry == yes || -x $build/bench_step ]]; then
    for model in dense moe-64 moe-256 super-4096; do
      step "torch_step_$model.json" 330 python3 bench/peers/torch_gpu_step.py --model $model --minutes 4.5 --rounds 3 --bench "$build/bench_step"
    done
  fi
fi
if [[ $dry == yes ]]; then exit 0; fi

# A bundle's MANIFEST names its commit.
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [[ -f MANIFEST ]]; then commit=$(sed -n 's/^# commit //p' MANIFEST); fi
# value FILE: a bench's JSON if it is complete, else null.
value() {
  if [[ -s $1 && $(tail -c 3 "$1") == *[\]\}]* ]]; then cat "$1"; else echo null; fi
}
last_line() { tail -1 "$out/logs/$1.log" 2>/dev/null | tr -d '"\\'; }
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
  printf '},\n"steps_of_models": {'
  separator=""
  for name in $measured; do
    printf '%s\n"%s": ' "$separator" "$name"
    value "$out/logs/$name.json"
    separator=","
  done
  printf '},\n"losses_decoded_native": '
  value "$logs/losses.json"
  for ranks in ranks ranks_2 ranks_4; do printf ',\n"%s": "%s"' "$ranks" "$(last_line "$ranks")"; done
  for op in scaled_linear $codes_ops; do printf ',\n"op_check_%s": "%s"' "$op" "$(last_line "op_check_$op")"; done
  printf ',\n"op_check": "%s", "memcheck": "%s", "racecheck": "%s",\n"parity_fp32": "%s", "parity_bf16": "%s",\n"torch": [' \
    "$(last_line op_check)" "$(last_line memcheck)" "$(last_line racecheck)" "$(last_line parity_fp32)" "$(last_line parity_bf16)"
  if [[ -s $out/logs/torch.json ]]; then grep '^{' "$out/logs/torch.json" | paste -sd,; fi
  printf '],\n"torch_steps": ['
  cat "$out"/logs/torch_step_*.json 2>/dev/null | { grep '^{' || true; } | paste -sd,
  printf ']}\n'
} >"$out/results.json"
tar -czf "$out/logs.tgz" -C "$out" logs && rm -r "$out/logs"

echo "gpu_check: $SECONDS s, $out/results.json, $out/logs.tgz"
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "gpu_check: failed: ${failed[*]}"
  exit 1
fi
