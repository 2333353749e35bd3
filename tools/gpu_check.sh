#!/usr/bin/env bash
# Every check and measurement that needs a GPU, as an agenda: within --minutes it does first what
# decides most, says what is left, and another call goes on from there. It needs a build (CMake, a C++
# compiler and the CUDA toolkit are enough) or a bundle (tools/bundle.sh). With `assay` it also trains
# against the CPU's losses, and runs the steps of the speedrun models; with PyTorch it runs PyTorch's
# beside them. A step that fails or reaches its time limit does not stop the others. Writes
# results.json and logs.tgz. docs/bench/README.md describes the steps.
set -uo pipefail
export LC_ALL=C  # numbers have a decimal point

usage() {
  cat <<'TEXT'
usage: bash tools/gpu_check.sh [--minutes N] [--out FOLDER | --continue FOLDER] [--build FOLDER | --prebuilt FOLDER]
                               [--only REGEX] [--dry-run]
  --minutes N        the time that there is (default: 8.75); no step begins that does not fit in
  --out FOLDER       for results.json and logs.tgz (default: $OUT, or gpu-check); those of an earlier
                     call are only replaced by one that goes on from them
  --continue FOLDER  takes over what is ok in the results.json and logs.tgz of an earlier call, and
                     does the rest; the results are those of all calls (default of --out: FOLDER)
  --build FOLDER     where to build (default: build-gpu)
  --prebuilt FOLDER  build nothing, use the programs in this folder; in a bundle it is bin
  --only REGEX       only the steps whose names match, e.g. 'limits|step_.*'
  --dry-run          print the agenda, with what each step is expected to take, and run nothing
A given FOLDER is relative to the folder that this is called from, a default to that of tools.
exit code: 0 all is ok, 1 a step failed or an error, 3 nothing failed but steps are left for want of time, 130
and 143 after Ctrl-C and SIGTERM, which end the step that runs and leave the others.
TEXT
}
root=$(realpath "$(dirname "$0")/..")
# of_caller PATH: a path of the folder that this is called from, as it is named in $root.
of_caller() { [[ -z $1 ]] || realpath -m --relative-base="$root" -- "$1"; }
fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

out=""
build=build-gpu
only='.*'
minutes_given=8.75
continued=""
prebuilt=no
dry=no
again=""  # options that the next call needs again
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out | --build | --prebuilt | --only | --minutes | --continue)
      [[ $# -ge 2 ]] || { usage >&2; exit 1; }
      value=$2
      if [[ $1 != --only && $1 != --minutes ]]; then value=$(of_caller "$2"); fi
      case "$1" in
        --out) out=$value ;;
        --only) only=$value ;;
        --minutes) minutes_given=$value ;;
        --continue) continued=$value ;;
        *) build=$value ;;
      esac
      if [[ $1 == --prebuilt ]]; then prebuilt=yes; fi
      if [[ $1 == --prebuilt || $1 == --build || $1 == --only ]]; then again+=" $1 '$value'"; fi
      shift 2 ;;
    --dry-run) dry=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "error: unknown argument $1" >&2 && usage >&2 && exit 1 ;;
  esac
done
if [[ -z $out$continued && -n ${OUT:-} ]]; then out=$(of_caller "$OUT"); fi
out=${out:-${continued:-gpu-check}}
cd "$root" || exit 1
[[ $minutes_given =~ ^[0-9]{1,4}(\.[0-9]{1,3})?$ && $minutes_given =~ [1-9] ]] ||
  fail "--minutes $minutes_given is not a number above 0" "the time that there is for all steps, such as --minutes 8.75"
[[ $minutes_given =~ ^0*([0-9].*)$ ]] && minutes_given=${BASH_REMATCH[1]}  # JSON has no 08
total_seconds=$(awk -v minutes="$minutes_given" 'BEGIN {printf "%d", 60 * minutes}')
only_status=0
[[ x =~ ^($only)$ ]] 2>/dev/null || only_status=$?
((only_status != 2)) || fail "--only $only is not a regular expression" "names of steps, as in --only 'limits|step_.*'"
if [[ $prebuilt == yes && ! -x $build/op_check_cuda ]]; then
  fail "$build has no op_check_cuda" "give the folder of programs built for CUDA; in a bundle --prebuilt bin"
fi

# A bundle's MANIFEST names its commit.
commit=unknown
if [[ $(git rev-parse --show-toplevel 2>/dev/null) -ef . ]]; then  # not of another repository around this folder
  commit=$(git rev-parse --verify --short HEAD 2>/dev/null || echo unknown)
fi
if [[ -f MANIFEST ]]; then commit=$(sed -n 's/^# commit //p' MANIFEST); fi
continued_gpu=""
if [[ -n $continued ]]; then
  [[ -s $continued/results.json && -s $continued/logs.tgz ]] ||
    fail "$continued has no results.json and logs.tgz" "--continue takes the --out of an earlier call"
  # top FIELD: of the first line of its results.json.
  top() { sed -n '1s/.*"'"$1"'": "\([^"]*\)".*/\1/p' "$continued/results.json"; }
  [[ $(top commit) == "$commit" ]] ||
    fail "the results in $continued are of commit $(top commit), these programs of $commit" "all steps are to be done again: give another --out instead of --continue"
  continued_gpu=$(top gpu)
  continued_gpu=${continued_gpu%%,*}
fi

gpu="no GPU"
capability=""  # of the GPU: 9.0
if [[ $dry == no ]]; then
  if ! gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,compute_cap --format=csv,noheader 2>&1); then
    fail "no NVIDIA GPU here (nvidia-smi: ${gpu##*$'\n'})" "run it on a machine with a GPU of compute capability 8.0 or newer; without one, ctest -LE gpu runs the same kernels on the CPU"
  fi
  gpu=${gpu%%$'\n'*}  # the first of several
  capability=${gpu##*, }
  gpu=${gpu%, *}
  memory=$(sed -n 's/.*, \([0-9]*\) MiB.*/\1/p' <<<"$gpu")
fi
# prepare_out: the folder of the logs, with those of an earlier call if this one goes on from it. Called before the first
# step: a call without steps changes nothing.
prepare_out() {
  local name
  for name in results.json logs.tgz; do
    if [[ -e $out/$name && ! $out -ef $continued ]]; then
      fail "$out has a $name already" "give another --out; --continue $out goes on from the results of an earlier call"
    fi
  done
  mkdir -p "$out" 2>/dev/null && mkdir "$unfinished" "$logs" 2>/dev/null || fail "$out cannot be written" "give another --out"
  if [[ -n $continued ]]; then
    if ! tar -xzf "$continued/logs.tgz" -C "$unfinished"; then
      rm -r "$unfinished"
      fail "$continued/logs.tgz cannot be read" "all steps are to be done again: give another --out instead of --continue"
    fi
    if [[ $continued_gpu != "${gpu%%,*}" ]]; then
      echo "gpu_check: $continued is of another GPU ($continued_gpu); results.json names the GPU of each step"
    fi
  fi
}

# Folder for small runs; removed when this script ends, also by Ctrl-C or a time limit.
scratch=$(mktemp -d)
# Of this call alone, so that nothing else is removed with it; a call that is killed leaves it.
unfinished=$out/$(mktemp -u unfinished-XXXXXX)
logs="$unfinished/logs"
export build scratch logs capability
interrupted=0
# interrupt STATUS: ends the step that runs; it and all others are left.
interrupt() {
  interrupted=$1
  total_seconds=0
  if [[ -n $running ]]; then kill "$running" 2>/dev/null; fi
}
trap 'rm -rf "$scratch"' EXIT
trap 'interrupt 130' INT
trap 'interrupt 143' TERM
# shellcheck source=tools/gpu_check/steps.sh
source tools/gpu_check/steps.sh
# shellcheck source=tools/gpu_check/agenda.sh
source tools/gpu_check/agenda.sh
# shellcheck source=tools/gpu_check/results.sh
source tools/gpu_check/results.sh
if [[ -n $continued ]]; then read_earlier "$continued"; fi
if [[ $dry == no && -z $(image_of "$capability") ]]; then
  fail "this GPU has compute capability $capability, the kernels are for 8.x, 9.0, 10.x and 12.x" "choose another GPU; without one, ctest -LE gpu runs the same kernels on the CPU"
fi

measured=""    # steps of bench_step
benches=""     # steps of the benches of ops
last_lines=""  # steps of which results.json has the last line

# preset MODEL: of a speedrun model, or of the one with 4096 experts that fits on one GPU.
preset() {
  case $1 in
    super-4096) echo models/presets/super/one-gpu/baseline.yaml ;;
    *) echo "models/presets/speedrun/$1.yaml" ;;
  esac
}
# micros MODEL: micro-batches of a step, as its preset has them. bench_step of an older commit takes one if it is not told.
micros() { if [[ $1 == super-4096 ]]; then echo 4; else echo 8; fi; }
# measure KIND NAME MODEL ABOUT OPTION...: runs bench_step on a model, as step KIND_NAME.
measure() {
  local name=$1_$2 model=$3 about=$4
  shift 4
  step "$name.json" "$about" 60 "$build/bench_step" --config "$(preset "$model")" --device cuda "$@" --json
  measured+=" $name"
}
# ab NAME SECONDS FIRST OTHER COMMAND [OTHER COMMAND]...: commands of bench_step in turn, in two rounds, as step ab_NAME; each
# OTHER is compared with FIRST. One command is expected to take SECONDS.
ab() {
  local name=$1 seconds=$2 first=$3 names=() commands=()
  shift 3
  while [[ $# -gt 0 ]]; do
    names+=(--name "$1")
    commands+=("$2")
    shift 2
  done
  local about=$((2 * seconds * (1 + ${#commands[@]})))
  without=${without:-$no_python} step "ab_$name" "$about" $((3 * about)) python3 bench/in_turn.py --pairs 2 \
    --limit $((8 * seconds)) "${names[@]}" --out "$logs/ab_$name.json" "$first" "${commands[@]}"
}
bench() {
  step "bench_$1.json" "$2" 90 "$build/bench_$1" --iters 50 --json
  benches+=" bench_$1"
}
# ops ABOUT NAME...: an op check of each.
ops() {
  local about=$1 op
  shift
  for op; do
    check "op_check_$op" "$about" 60 "$build/op_check_cuda" --op "$op"
    last_lines+=" op_check_$op"
  done
}
# parities NAME=ARGUMENTS...: training on the CPU and on the GPU, as step parity_NAME.
parities() {
  local row
  for row; do
    step "parity_${row%%=*}" 35 100 bash -c "parity ${row#*=}"
    last_lines+=" parity_${row%%=*}"
  done
}

# unless CONDITION REASON: prints REASON if this machine cannot do what follows.
unless() { [[ $dry == yes ]] || eval "$1" || echo "$2"; }
# without_memory GIB: prints a reason if the GPU has less.
without_memory() { unless "((${memory:-0} >= $1 * 1024))" "the GPU has less than $1 GiB"; }
no_assay=$(unless '[[ -x $build/assay && -x $build/bench_step ]]' "no assay in $build")
no_python=$(unless 'command -v python3 >/dev/null' "no python3")
no_nccl=$(unless '[[ -x $build/nccl_check ]]' "no nccl_check in $build")
no_shared_nccl=$(unless '[[ -n ${ASSAY_NCCL_LIBRARY:-} ]]' "ASSAY_NCCL_LIBRARY names no NCCL of 2.30 or later")
no_mpi=$(unless 'command -v mpirun >/dev/null && [[ -e $build/libassay_mpi.so || -e $build/../lib/assay/libassay_mpi.so ]]' "no MPI")
no_sanitizer=$(unless 'command -v compute-sanitizer >/dev/null' "no compute-sanitizer")

begin_section "is anything wrong"
if [[ $prebuilt == no ]]; then
  step build 120 200 bash -c build_all
  step kernels 5 20 bash tools/check_kernels.sh --no-build "$build"
fi
without=$(unless '[[ -x $build/test_device ]]' "no test_device in $build") step device 2 40 "$build/test_device"
no_wrappers=$(unless '[[ $capability == 9.0 ]]' "the wrappers are for 9.0, this GPU has $capability")
without=${no_wrappers:-$(unless '[[ -x $build/test_wrappers_cuda ]]' "no test_wrappers_cuda in $build")} step wrappers 3 40 "$build/test_wrappers_cuda"
step limits.json 14 40 "$build/bench_limits" --json

begin_section "what no GPU has executed"
check op_check_scaled_linear 10 60 "$build/op_check_cuda" --op scaled_linear
last_lines+=" op_check_scaled_linear"
ops 10 grouped_scaled swiglu_codes quantise fake_quantise attention
# The kernels of other GPUs.
for op in attention grouped_linear grouped_swiglu grouped_scaled; do
  check "op_check_mma_$op" 8 60 env ASSAY_GPU_PATH=mma "$build/op_check_cuda" --op "$op"
  last_lines+=" op_check_mma_$op"
done
ops 6 muon newton_schulz adamw_bf16 carry_sum tree_sum global_norm checksum amax varlen_attention router dispatch sparse_linear rmsnorm
without=$no_assay
# The second bound is about three times what the CPU's own losses move by if the learning rate is changed by a millionth.
parities "fp32=fp32 0.001 0.005" "bf16=bf16 0.01 0.05" "muon=bf16 0.01 0.3 --set optimizer.kind=muon" \
  "bf16_state=bf16 0.01 0.15 --set optimizer.state=bf16" "parts=bf16 0.01 0.15 --set parallel.parts=2" \
  "fp8_block=fp8_block 0.01 0.15" "native=fp8_block 0.01 0.15 --set precision.products=native" "mxfp8_nmoe=mxfp8_nmoe 0.01 0.2" "mxfp4_nmoe=mxfp4_nmoe 0.01 0.25" "nvfp4=nvfp4 0.01 0.4"
step uses 60 200 bash -c uses
last_lines+=" uses"
pairs=()
for model in dense moe-64; do
  for recipe in fp8_tensor fp8_block; do
    for products in decoded native; do
      measure step "${model}_${recipe}_$products" "$model" 14 --recipe $recipe --products $products --micro-batches 8 --steps 5 --warmup 2
    done
    pairs+=("${model}_$recipe")
  done
done
of='step_[^ ]*_fp8_[^ ]*' step losses.json 1 5 bash -c 'losses "$@"' _ 0.01 0.05 "${pairs[@]}"
without=""
bench quantisers 40
check op_check 80 150 "$build/op_check_cuda"
last_lines+=" op_check"

begin_section "switches and builds in turn"
without=$no_assay
# step_of MODEL OPTION...: a command for in_turn.py, which splits it as a shell would.
step_of() {
  local model=$1
  shift
  echo "'${program:-$build/bench_step}' --config $(preset "$model") --device cuda --steps 3 --warmup 2 --json $*"
}
# switches MODEL SECONDS ROOM SETTING...: bench_step as it is beside each setting, a predecessor (cuda/predecessors.h) or
# wide=BATCH, sequences in a micro-batch, if there is room.
switches() {
  local model=$1 seconds=$2 room=$3 setting commands=()
  shift 3
  local first
  first=$(step_of "$model" --micro-batches "$(micros "$model")")
  for setting; do
    case $setting in
      wide=*) commands+=("${setting#*=}_sequences_$model" "$(step_of "$model" --batch "${setting#*=}" --micro-batches "$(wide_micros "$model")")") ;;
      *) commands+=("${setting}_$model" "env ASSAY_GPU_PREDECESSORS=$setting $first") ;;
    esac
  done
  without=${no_assay:-$(without_memory "$room")}
  ab "switches_$model" "$seconds" "$first" "${commands[@]}"
}
# wide_micros MODEL: micro-batches of a step in which a micro-batch has more sequences than the preset's.
wide_micros() { if [[ $1 == super-4096 ]]; then echo 1; else echo 4; fi; }

for row in "dense 8 32" "moe-64 11 50" "moe-256 22 90"; do
  read -r model seconds room <<<"$row"  # seconds of a command; GiB of the GPU
  without=${no_assay:-$(without_memory "$room")}
  for beside in also/*/bin/bench_step; do
    [[ $prebuilt == yes && -x $beside ]] || continue
    name=${beside#also/}
    ab "${name%%/*}_$model" "$seconds" "$(step_of "$model" --micro-batches 8)" "${name%%/*}_$model" \
      "$(program=$beside step_of "$model" --micro-batches 8)"
  done
done
# wide MODEL GIB SEQUENCES: that setting if the GPU has the memory.
wide() { if [[ $dry == yes || ${memory:-0} -ge $(($2 * 1024)) ]]; then echo "wide=$3"; fi; }
# shellcheck disable=SC2046  # wide may say nothing
{
  switches dense 8 32 all $(wide dense 60 64)
  switches moe-64 11 50 all gradient_zeros $(wide moe-64 90 64)
  switches moe-256 22 90 all gradient_zeros $(wide moe-256 130 64)
  switches super-4096 20 88 all router_products work_lists gradient_zeros $(wide super-4096 130 32)
}
without=""
# Sorts of ours and of CUB (docs/decisions/0028-sorts-by-cub-beside-ours.md).
step bench_by_cub.json 10 60 "$build/bench_router" --op dispatch --iters 50 --json
benches+=" bench_by_cub"
without=$no_assay
# The kernels of a GPU of 9.0 and those of others.
for row in "dense 12" "moe-64 20"; do
  read -r model seconds <<<"$row"
  ab "mma_$model" "$seconds" "$(step_of "$model" --micro-batches 4)" "mma_$model" "env ASSAY_GPU_PATH=mma $(step_of "$model" --micro-batches 4)"
done
# The algorithms of dense products: timed once, then steps without and with the file.
for row in "dense 30 8 32" "moe-64 40 11 50"; do
  read -r model about seconds room <<<"$row"
  without=${no_assay:-$(without_memory "$room")}
  step "tune_$model" "$about" 120 "$build/assay" tune "$(preset "$model")" -q -o "$logs/products_$model.json"
  last_lines+=" tune_$model"
  of="tune_$model" ab "tuned_$model" "$seconds" "$(step_of "$model" --micro-batches 8)" "tuned_$model" \
    "$(step_of "$model" --micro-batches 8 --tune "'$logs/products_$model.json'")"
done
without=$no_assay
ab parts_dense 9 "$(step_of dense --micro-batches 8)" parts_8_dense "$(step_of dense --micro-batches 8 --parts 8)"

begin_section "whole steps"
for row in "dense 12 32" "moe-64 16 50" "moe-256 30 90" "super-4096 40 88"; do
  read -r model about room <<<"$row"
  without=${no_assay:-$(without_memory "$room")}
  measure step "$model" "$model" "$about" --micro-batches "$(micros "$model")" --steps 5 --warmup 2
  measure profile "$model" "$model" $((about / 2)) --micro-batches 1 --steps 2 --warmup 2 --profile
done
without=$no_assay
for pair in "${pairs[@]}"; do
  measure profile "${pair}_native" "${pair%%_*}" 6 --recipe "${pair#*_}" --products native --micro-batches 1 --steps 2 --warmup 2 --profile
done

begin_section "PyTorch"
torch_steps=(torch_step_{dense,moe-64,moe-256,super-4096})
no_torch=""
if to_do torch "${torch_steps[@]}"; then  # PyTorch takes seconds to start
  no_torch=$(unless 'python3 -c "import torch, sys; sys.exit(not torch.cuda.is_available())" 2>/dev/null' "no PyTorch with CUDA")
fi
without=$no_torch
step torch.json 45 110 python3 bench/peers/torch_gpu.py
without=${no_torch:-$no_assay}
for name in "${torch_steps[@]}"; do step "$name.json" 300 330 bash -c 'torch_step "$@"' _ "${name#torch_step_}"; done

# Real NCCL: one rank with any; ranks that share the GPU with one of 2.30 or later.
begin_section "ranks"
without=$no_nccl
step ranks 20 110 "$build/nccl_check"
without=${no_nccl:-$no_shared_nccl}
for ranks in 2 4; do step "ranks_$ranks" 30 110 "$build/nccl_check" "$ranks"; done
without=${no_assay:-${no_shared_nccl:-$no_mpi}} step ranks_train 60 180 bash -c ranks_train
without=""
last_lines+=" ranks ranks_2 ranks_4 ranks_train"

begin_section "ops by themselves"
for row in "attention 30" "gemm 30" "grouped 45" "head 15" "memory_ops 35" "optimizer 30" "router 25"; do bench "${row% *}" "${row#* }"; done
without=$no_sanitizer
check memcheck 20 80 compute-sanitizer --tool memcheck --error-exitcode 1 "$build/op_check_cuda" --small
SHARDS=$logs/racecheck.shards step racecheck 90 150 bash -c 'racecheck "$@"' _ "$build/op_check_cuda" --small
last_lines+=" memcheck racecheck"

[[ $chosen == yes ]] || fail "--only $only matches no step" "the steps are $(IFS=,; echo "${names[*]}" | sed 's/,/, /g')"
if [[ $dry == yes ]]; then
  say_rest
  exit 0
fi
if ! said=$(write_results 2>&1); then
  said=${said%%$'\n'*}
  fail "the results cannot be written to $out: ${said##*: }" "is the disk full (df -h $out)? The logs of the steps are in $logs"
fi
echo "gpu_check: $SECONDS s, $out/results.json, $out/logs.tgz"
echo "gpu_check: ${#ok[@]} steps ok, ${#failed[@]} failed, ${#left[@]} left, ${#not_here[@]} not possible here"
if [[ ${#failed[@]} -gt 0 ]]; then echo "gpu_check: failed: ${failed[*]}"; fi
say_rest
if ((interrupted > 0)); then exit "$interrupted"; fi
if [[ ${#failed[@]} -gt 0 ]]; then exit 1; fi
if [[ ${#left[@]} -gt 0 ]]; then exit 3; fi
