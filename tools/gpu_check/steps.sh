# What the steps of tools/gpu_check.sh do. They run in a shell of their own, under a time limit, so
# every function is exported. They read $build, $out, $logs, $scratch, $capability and $step_seconds.
# shellcheck shell=bash disable=SC2154  # variables of gpu_check.sh

# image_of CAPABILITY: what ASSAY_GPUS names for a GPU (cuda/gpu_kind.cpp); nothing if it has no image.
image_of() {
  case $1 in
    8.9) echo 89 ;;
    8.*) echo 80 ;;
    9.0) echo 90a ;;
    10.*) echo 100 ;;
    12.*) echo 120 ;;
  esac
}
export -f image_of

build_all() {
  local generator=()
  if command -v ninja >/dev/null && [[ ! -f $build/CMakeCache.txt ]]; then generator=(-G Ninja); fi
  cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DASSAY_KERNELS_ONLY=ON -DASSAY_CUDA=ON \
    -DASSAY_GPUS="$(image_of "$capability")" &&
    cmake --build "$build" --parallel "$(nproc)" --target assay_kernels op_check_cuda gpu_benches
}
export -f build_all

# Runs all cases of an op check in several processes, each with every N-th case, because the
# references are computed on the CPU. Each opens the GPU, which takes as long as some cases: so one for about eight cases, at
# most one per core and 16. Their output goes to files in $SHARDS; step() gathers it. 77: all are skipped.
sharded() {
  local most shards status counted
  most=$(nproc)
  if ((most > 16)); then most=16; fi
  shards=$most
  # Under a sanitizer even the list takes seconds.
  if [[ $1 != compute-sanitizer ]]; then shards=$((($("$@" --list | wc -l) + 7) / 8)); fi
  shards=$((shards > most ? most : shards < 1 ? 1 : shards))
  seq 0 $((shards - 1)) | xargs -P "$shards" -I{} bash -c '"$@" --shard {}/'"$shards"' >"$SHARDS/{}" 2>&1 || [[ $? == 77 ]]' _ "$@"
  status=$?
  sed -n 's/^\([0-9]*\) cases, \([0-9]*\) failed\(, \([0-9]*\) skipped\)\{0,1\}$/\1 \2 0\4/p' "$SHARDS"/* | awk '
    {cases += $1; failed += $2; skipped += $3}
    END {printf "%d cases, %d failed%s\n", cases, failed, skipped ? ", " skipped " skipped" : ""; exit cases ? 0 : skipped ? 77 : 1}'
  counted=$?
  return $((status != 0 ? status : counted))
}
export -f sharded

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

# parity RECIPE FIRST ALL [OPTION...]: trains a small mixture of experts for 60 steps on the CPU and on the GPU.
# Their losses may differ by at most FIRST at step 1 and ALL at any step. On the GPU a second run, a
# resumed run and a run without graphs must have the bits of the first.
parity() {
  local recipe=$1 first=$2 all=$3 runs
  local options=("${@:4}")
  runs=$(mktemp -d -p "$scratch")
  train() {
    local name=$1 device=$2
    shift 2
    "$build/assay" train models/presets/cpu/moe.yaml --run "$runs/$name" --device "$device" --set precision.recipe="$recipe" \
      --set precision.products=decoded --set run.steps=60 --set run.batch_tokens=1024 --set run.micro_batch=1 --set optimizer.lr=1e-3 --set schedule.warmup=20 \
      --set schedule.warmdown=20 --set eval.every=60 --set eval.tokens=4096 --set data.cache="$runs/cache" \
      --set data.synth.train_tokens=200000 --set data.synth.val_tokens=20000 ${options[@]+"${options[@]}"} "$@" >>"$runs/$name.log" 2>&1 || { tail -5 "$runs/$name.log"; return 1; }
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

# uses: what is done with a run besides its steps, on the GPU: a contract in seconds, biases with a rate of their own and in
# proportion to the load, a branch, the experiments of `dissect`, whose evaluations copy probes, and an evaluation.
uses() {
  local runs
  runs=$(mktemp -d -p "$scratch")
  local data=(--set data.cache="$runs/cache" --set data.synth.train_tokens=400000 --set data.synth.val_tokens=20000)
  local steps=(--set run.steps=80)  # but for the contract in seconds, which has its own
  local short=(--set schedule.warmup=10 --set schedule.warmdown=20 --set eval.every=40 --set eval.tokens=8192
    --set model.moe.router.aux=none --set model.moe.router.score=sigmoid --set model.moe.router.z_alpha=0)
  local train=("$build/assay" train models/presets/cpu/moe.yaml -q --device cuda "${data[@]}" "${short[@]}")
  each() {
    printf '== %s\n' "$*"
    "$@" || { printf 'failed: %s\n' "$*"; return 1; }
  }
  local run=$runs/auto
  each "${train[@]}" "${steps[@]}" --run "$run" --set model.moe.router.bias_rate=auto --set run.checkpoint_every=40 || return 1
  each "${train[@]}" "${steps[@]}" --run "$runs/proportional" --set model.moe.router.bias_rate=0.001 \
    --set model.moe.router.bias_rule=proportional || return 1
  each "${train[@]}" --run "$runs/seconds" --set contract.kind=seconds --set contract.coefficient=8 \
    --set schedule.warmup=1 --set schedule.warmdown=1 || return 1
  each "$build/assay" branch "$run" --at-step 40 --warmdown-steps 10 --device cuda -q || return 1
  each "$build/assay" dissect damage "$run" --device cuda --layers 1 || return 1
  each "$build/assay" dissect used "$run" --device cuda || return 1
  each "$build/assay" dissect routing "$run" --device cuda || return 1
  each "$build/assay" eval "$run" --device cuda || return 1
  each "$build/assay" doctor || return 1
  echo "what is done with a run: ok"
}
export -f uses

# ranks_train: ranks that share the GPU, with the bits of one: two that have a half of the batch each, and two that also share
# the experts, in one round of rows and in several. A run that two began goes on with one.
ranks_train() {
  local runs status=0 name
  runs=$(mktemp -d -p "$scratch")
  train() {
    local name=$1
    shift
    "$build/assay" train models/presets/cpu/moe.yaml --run "$runs/$name" --device cuda --set precision.recipe=bf16 \
      --set run.steps=40 --set run.batch_tokens=1024 --set run.micro_batch=2 --set schedule.warmup=5 --set schedule.warmdown=5 \
      --set eval.every=20 --set eval.tokens=4096 --set data.cache="$runs/cache" --set data.synth.train_tokens=200000 \
      --set data.synth.val_tokens=20000 --set parallel.parts=2 "$@" >>"$runs/$name.log" 2>&1 || { tail -5 "$runs/$name.log"; return 1; }
    steps_of "$runs/$name.log" >"$runs/$name.steps"
  }
  local two=(--ranks 2 --share-gpu) experts=(--ranks 2 --share-gpu --set parallel.expert_ranks=2)
  train one && train two "${two[@]}" && train stopped "${two[@]}" --stop-after 20 && train stopped &&
    train experts "${experts[@]}" --set parallel.expert_rows=4 && train rounds "${experts[@]}" --set parallel.expert_rows=0.3 || return 1
  for name in two stopped experts; do
    if cmp -s "$runs/one.steps" "$runs/$name.steps"; then
      echo "same bits as one rank, $name: yes"
    else
      echo "same bits as one rank, $name: no"
      diff "$runs/one.steps" "$runs/$name.steps" | head -4
      status=1
    fi
  done
  paste "$runs/one.steps" "$runs/rounds.steps" | awk '
    { d = $2 - $5; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%d steps: |loss of one rank - of two in rounds| at most %.4f\n", NR, most; exit NR != 40 || most > 0.02 }' || status=1
  return $status
}
export -f ranks_train

# torch_step MODEL: PyTorch's whole steps in turn with ours, planned to end before the time limit. A signal is PyTorch's, so
# there is no shell between.
torch_step() {
  exec python3 bench/peers/torch_gpu_step.py --model "$1" --rounds 3 --bench "$build/bench_step" \
    --minutes "$(awk -v seconds="$step_seconds" 'BEGIN {printf "%.2f", (seconds - 15) / 60}')"
}
export -f torch_step

# losses FIRST FOURTH PAIR...: prints, as JSON, the losses of a recipe's steps with simulated and with
# native products. Codes and draws are the same; sums differ in order and by the tensor cores' short
# accumulators, whose truncation (2^-13 of a step's largest product) weighs about as much as rounding
# a product's result to bf16. So the rule is that of two backends in bf16, as in `parity`: losses may
# differ by FIRST before anything is learned and by FOURTH in the fourth step. Later ones are not
# compared: without a warm-up these steps leap, and then any change of bits moves them by tenths.
losses() {
  local first=$1 fourth=$2 status=0 separator="{" pair
  shift 2
  # number INDEX NAME: the loss of a step in step_NAME.json, if it is a number.
  number() { sed -n 's/.*"losses":\[\([^]]*\)\].*/\1/p' "$logs/step_$2.json" 2>/dev/null | cut -d, -f"$1" | grep -xE -- '-?[0-9][-+0-9.e]*' || true; }
  for pair; do
    local numbers=("$(number 1 "${pair}_decoded")" "$(number 1 "${pair}_native")"
      "$(number 4 "${pair}_decoded")" "$(number 4 "${pair}_native")")
    local printed=0
    [[ -s $logs/step_${pair}_decoded.json || -s $logs/step_${pair}_native.json ]] || continue  # neither has run
    awk -v first="$first" -v fourth="$fourth" -v a="${numbers[0]}" -v b="${numbers[1]}" -v c="${numbers[2]}" -v d="${numbers[3]}" -v pair="$pair" \
      -v separator="$separator" '
      function apart(x, y) { return x > y ? x - y : y - x }
      BEGIN {
        if (a == "" || b == "" || c == "" || d == "") { print pair ": a loss is missing" >"/dev/stderr"; exit 2 }
        printf "%s\n\"%s\": {\"decoded\": [%s, %s], \"native\": [%s, %s], \"apart\": [%.6f, %.6f]}", separator, pair, a, c, b, d, apart(a, b), apart(c, d)
        ok = apart(a, b) <= first && apart(c, d) <= fourth
        printf "%s: losses of decoded and native products differ by %.6f in the first step (at most %s), %.6f in the fourth (at most %s)%s\n", \
          pair, apart(a, b), first, apart(c, d), fourth, ok ? "" : ": FAILED" >"/dev/stderr"
        exit !ok
      }' || printed=$?
    if [[ $printed != 0 ]]; then status=1; fi
    if [[ $printed != 2 ]]; then separator=","; fi
  done
  printf '%s}\n' "$([[ $separator == "{" ]] && echo "{")"
  return $status
}
export -f losses
