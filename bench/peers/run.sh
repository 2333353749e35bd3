#!/usr/bin/env bash
# One training step here and in PyTorch, side by side on this machine: rounds are interleaved, so that whatever else
# the machine does meets all of them. Prints medians and the ratio to the best PyTorch.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'TEXT'
usage: bash bench/peers/run.sh [--rounds N] [--steps N] [--model dense,moe] [--out FILE]
  --rounds N   how many times each is measured, in turn (default 3)
  --steps N    measured steps each time (default 20)
  --model M    dense, moe or dense,moe (the default)
  --out FILE   keep every single measurement, one JSON object a line
The PyTorch is the one of /usr/bin/python3 (Debian: python3-torch); ASSAY_PEER_PYTHON names another.
TEXT
}

rounds=3 steps=20 models=dense,moe out=
while [[ $# -gt 0 ]]; do
  case "$1" in
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --model) models=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown argument $1" >&2; usage >&2; exit 1 ;;
  esac
done

python=${ASSAY_PEER_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "error: no PyTorch for $python" >&2
  echo "hint: bash tools/setup.sh --peers installs Debian's, or ASSAY_PEER_PYTHON=/path/to/python" >&2
  exit 1
fi
if [[ ! -x build/bench_step ]]; then
  echo "error: build/bench_step is not built" >&2
  echo "hint: cmake --preset release && cmake --build build --target bench_step" >&2
  exit 1
fi

results=${out:-$(mktemp)}
: >"$results"
if [[ -z $out ]]; then trap 'rm -f "$results"' EXIT; fi

# What PyTorch needs to be at its best here: Debian's OpenBLAS does not know every CPU with AVX-512, glibc returns
# large blocks to the system after each operation, and threads that spin while they wait help on idle cores and
# cripple it on shared ones, so both are tried.
wait_policy=ACTIVE
peer() {
  local core=()
  if grep -qm1 avx512f /proc/cpuinfo; then core=(OPENBLAS_CORETYPE=SKYLAKEX); fi
  env "${core[@]}" OMP_WAIT_POLICY=$wait_policy MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 \
    MALLOC_TOP_PAD_=268435456 timeout "$limit" "$python" bench/peers/torch_step.py --steps "$steps" --threads "$(nproc)" "$@" |
    sed 's/^{/{"who": "torch", /' >>"$results"
}
ours() {
  build/bench_step --steps "$steps" --json "$@" | sed 's/^{/{"who": "assay", /' >>"$results"
}

best=0 better=PASSIVE
for wait_policy in PASSIVE ACTIVE; do
  : >"$results"
  limit=60  # seconds; spinning threads on shared cores need minutes for what takes two
  peer --model dense --dtype fp32 --steps 4 --warmup 2 || continue
  speed=$(grep -o '"tokens_per_s": [0-9]*' "$results" | grep -o '[0-9]*$')
  if [[ $speed -gt $best ]]; then best=$speed better=$wait_policy; fi
done
limit=3600
wait_policy=$better
: >"$results"
echo "PyTorch is faster here with OMP_WAIT_POLICY=$better" >&2

for ((round = 1; round <= rounds; ++round)); do
  for model in ${models//,/ }; do
    for recipe in bf16 fp32; do
      printf 'round %d/%d %s %s\n' "$round" "$rounds" "$model" "$recipe" >&2
      ours --model "$model" --recipe "$recipe"
      peer --model "$model" --dtype "$recipe"
    done
  done
done

"$python" - "$results" <<'PYTHON'
import collections, json, statistics, sys

runs = collections.defaultdict(list)
torch = ""
for line in open(sys.argv[1]):
    r = json.loads(line)
    runs[r["model"], r["who"], r["recipe"]].append(r["tokens_per_s"])
    torch = r.get("torch", torch)
print("tokens/s, median (lowest - highest) of the rounds; PyTorch %s" % torch)
print("%-6s %-6s %10s %19s   %s" % ("model", "who", "recipe", "", "ratio to the best PyTorch"))
for model in sorted({m for m, _, _ in runs}):
    best = max(statistics.median(v) for (m, who, _), v in runs.items() if m == model and who == "torch")
    for (m, who, recipe), v in sorted(runs.items()):
        if m == model:
            mid = statistics.median(v)
            print("%-6s %-6s %6s %8.0f (%6.0f - %6.0f)   %.2fx" % (m, who, recipe, mid, min(v), max(v), mid / best))
PYTHON
