#!/usr/bin/env bash
# Compares one training step here and in PyTorch on this machine. Rounds are interleaved, so that
# other load on the machine affects all alike. Prints medians and the ratios to plain PyTorch and to
# PyTorch with malloc tuned.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'TEXT'
usage: bash bench/peers/run.sh [--rounds N] [--steps N] [--model dense,moe] [--out FILE]
  --rounds N   how many times each is measured, alternating (default 3; no round starts that would end after 8 minutes)
  --steps N    measured steps each time (default 12; fp32 at most 6)
  --model M    dense, moe or dense,moe (the default)
  --out FILE   keep every single measurement, one JSON object per line
Two peers, each in bf16 and fp32:
  torch        the script as it is, with OPENBLAS_CORETYPE=SKYLAKEX where the CPU has AVX-512 (Debian's OpenBLAS does not
               know every such CPU) and the better OMP_WAIT_POLICY for the type
  torch tuned  the same, and MALLOC_* settings that keep freed blocks in the process
The PyTorch is the one of /usr/bin/python3 (Debian: python3-torch); ASSAY_PEER_PYTHON names another.
TEXT
}

rounds=3 steps=12 models=dense,moe out=
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --rounds|--steps|--model|--out)
      if [[ $# -lt 2 ]]; then echo "error: $1 without a value" >&2; usage >&2; exit 1; fi
      case "$1" in
        --rounds) rounds=$2 ;;
        --steps) steps=$2 ;;
        --model) models=$2 ;;
        --out) out=$2 ;;
      esac
      shift 2 ;;
    *) echo "error: unknown argument $1" >&2; usage >&2; exit 1 ;;
  esac
done

readonly probe_s=20 run_s=40 total_s=480 fp32_steps=6

python=${ASSAY_PEER_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "error: no PyTorch for $python" >&2
  echo "hint: bash tools/setup.sh --peers installs Debian's, or ASSAY_PEER_PYTHON=/path/to/python" >&2
  exit 1
fi
# Debian's PyTorch uses whatever libblas.so.3 is installed; other builds bundle their own BLAS.
blas=$("$python" -c 'import torch
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libblas.so" in line}
print(*sorted(paths))')
if [[ -n $blas && $blas != *openblas* ]]; then
  echo "error: PyTorch multiplies with $blas here, which is not OpenBLAS: not a fair peer" >&2
  echo "hint: apt-get install libopenblas0-pthread (bash tools/setup.sh --peers does it)" >&2
  exit 1
fi
if [[ ! -x build/bench_step ]]; then
  echo "error: build/bench_step is not built" >&2
  echo "hint: cmake --preset release && cmake --build build --target bench_step" >&2
  exit 1
fi

read -r load _ </proc/loadavg
if awk "BEGIN { exit !($load > 0.5) }"; then
  echo "warning: load average $load: the machine is busy, so the figures mean little" >&2
fi

results=${out:-$(mktemp)}
one=$(mktemp)
: >"$results"
if [[ -n $out ]]; then trap 'rm -f "$one"' EXIT; else trap 'rm -f "$one" "$results"' EXIT; fi

core=()
if grep -qm1 avx512f /proc/cpuinfo; then core=(OPENBLAS_CORETYPE=SKYLAKEX); fi
tuned=(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456)

# torch SECONDS WAIT_POLICY [VARIABLE=VALUE ...] -- ARGUMENT...: prints one JSON line; fails after
# SECONDS.
torch() {
  local limit=$1 policy=$2 variables=()
  shift 2
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  env "${core[@]}" "${variables[@]}" OMP_WAIT_POLICY="$policy" timeout "$limit" \
    "$python" bench/peers/torch_step.py --threads "$(nproc)" "$@"
}

# Spinning while waiting helps if each thread has its own core and nothing competes; otherwise it is
# very slow.
declare -A policy
for recipe in bf16 fp32; do
  best=0
  for wait in PASSIVE ACTIVE; do
    torch $probe_s $wait -- --model dense --dtype $recipe --steps 3 --warmup 1 >"$one" || continue
    speed=$(sed 's/.*"tokens_per_s": \([0-9]*\).*/\1/' "$one")
    if [[ $speed -gt $best ]]; then best=$speed policy[$recipe]=$wait; fi
  done
  if [[ $best -eq 0 ]]; then
    echo "warning: PyTorch did not finish 4 dense steps in $recipe within $probe_s s: skipped" >&2
  else
    echo "PyTorch $recipe is faster here with OMP_WAIT_POLICY=${policy[$recipe]}" >&2
  fi
done

# measure WHO COMMAND...: appends the command's JSON line to the results. After one failure or
# timeout, WHO is skipped.
declare -A left_out
measure() {
  local who=$1 key=$1/$model/$recipe
  shift
  if [[ -n ${left_out[$key]:-} ]]; then return; fi
  if "$@" >"$one"; then
    sed "s/^{/{\"who\": \"$who\", /" "$one" >>"$results"
  else
    left_out[$key]=yes
    echo "warning: $key failed or took more than $run_s s: skipped" >&2
  fi
}

round_s=0
for ((round = 1; round <= rounds; ++round)); do
  began=$SECONDS
  if ((round > 1 && began + round_s > total_s)); then
    echo "warning: round $round would end after $total_s s: not started" >&2
    break
  fi
  for model in ${models//,/ }; do
    for recipe in bf16 fp32; do
      printf 'round %d/%d %s %s\n' "$round" "$rounds" "$model" "$recipe" >&2
      count=$steps
      if [[ $recipe == fp32 && $steps -gt $fp32_steps ]]; then count=$fp32_steps; fi
      measure assay timeout $run_s build/bench_step --json --model "$model" --recipe $recipe --steps "$count"
      if [[ -z ${policy[$recipe]:-} ]]; then continue; fi
      arguments=(--model "$model" --dtype $recipe --steps "$count" --warmup 2)
      measure torch torch $run_s "${policy[$recipe]}" -- "${arguments[@]}"
      measure "torch tuned" torch $run_s "${policy[$recipe]}" "${tuned[@]}" -- "${arguments[@]}"
    done
  done
  round_s=$((SECONDS - began))
done

"$python" - "$results" <<'PYTHON'
import collections, json, statistics, sys

runs = collections.defaultdict(list)
torch = ""
for line in open(sys.argv[1]):
    r = json.loads(line)
    runs[r["model"], r["who"], r["recipe"]].append(r["tokens_per_s"])
    torch = r.get("torch", torch)
middle = {key: statistics.median(v) for key, v in runs.items()}
best = {}  # (model, who): (tokens/s, recipe)
for (model, who, recipe), speed in middle.items():
    best[model, who] = max(best.get((model, who), (0, "")), (speed, recipe))

print("tokens/s, median (lowest - highest) of the rounds; PyTorch %s" % torch)
print("%-6s %-12s %6s" % ("model", "who", "recipe"))
for (model, who, recipe), v in sorted(runs.items()):
    print("%-6s %-12s %6s %8.0f (%6.0f - %6.0f)" % (model, who, recipe, middle[model, who, recipe], min(v), max(v)))
for model in sorted({m for m, _, _ in runs}):
    if (model, "assay") not in best:
        continue
    speed, recipe = best[model, "assay"]
    print("%s: assay %s, %.0f tokens/s" % (model, recipe, speed))
    for who, what in (("torch", "plain PyTorch"), ("torch tuned", "PyTorch with malloc tuned")):
        if (model, who) in best:
            theirs, its_recipe = best[model, who]
            print("  %.2fx the speed of %s (%.0f in %s, its best recipe)" % (speed / theirs, what, theirs, its_recipe))
        else:
            print("  no figure for %s" % what)
if ("dense", "assay") in best and ("moe", "assay") in best:
    print("assay's MoE step takes %.3fx the time of its dense step" % (best["dense", "assay"][0] / best["moe", "assay"][0]))
PYTHON
