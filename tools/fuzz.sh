#!/usr/bin/env bash
# Fuzzes the parsers of bytes from outside (tests/fuzz/targets.h) with clang's libFuzzer, address and undefined-behaviour
# sanitizers. What is found lies in build-fuzz/found/TARGET; a corpus that grows from call to call in build-fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C  # seconds have a decimal point

usage() {
  cat <<'TEXT'
usage: bash tools/fuzz.sh [--minutes N] [--jobs N] [--list] [TARGET...]
  --minutes N  for each target (default 1)
  --jobs N     targets at a time (default: the number of cores)
  --list       only print the names of the targets; builds nothing
  TARGET       default: all
Exit code 0: nothing found; 2: a crash, a hang of 10 s, more than 2 GiB of memory, or a report of a sanitizer;
1: a target did not run, or another error.
To see one again: ASSAY_FUZZ_TARGET=TARGET build-fuzz/fuzz_parsers build-fuzz/found/TARGET/FILE
TEXT
}

minutes=1 jobs=$(nproc) list=no targets=()
while (($# > 0)); do
  case "$1" in
    --minutes|--jobs)
      [[ ${2-} =~ ^0*[1-9][0-9]*$ ]] || { echo "error: $1 wants a whole number above 0" >&2; usage >&2; exit 1; }
      if [[ $1 == --minutes ]]; then minutes=$((10#$2)); else jobs=$((10#$2)); fi  # 08 is no octal number
      shift ;;
    --list) list=yes ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "error: unknown argument $1" >&2; usage >&2; exit 1 ;;
    *) targets+=("$1") ;;
  esac
  shift
done

if [[ $list == yes ]]; then
  sed -n 's/^const Target k[A-Za-z0-9]*Target = {"\([a-z0-9_]*\)",.*/\1/p' tests/fuzz/targets_*.cpp
  exit 0
fi
if ! command -v clang++ >/dev/null; then
  echo "error: clang++ was not found" >&2
  echo "hint: on Debian: apt-get install clang libomp-dev" >&2
  exit 1
fi
mkdir -p build-fuzz
# The build, the corpus and last.txt belong to one call at a time.
exec 9>build-fuzz/lock
if ! flock -n 9; then
  echo "error: another call of tools/fuzz.sh is running in $PWD" >&2
  echo "hint: give one call all targets, or --jobs; wait for it to end, or stop it" >&2
  exit 1
fi
log=build-fuzz/build.log
if ! { cmake --preset fuzz && cmake --build build-fuzz --target fuzz_parsers fuzz_seeds --parallel "$(nproc)"; } >"$log" 2>&1; then
  grep -E -A6 'error|FAILED' "$log" | head -40 >&2
  echo "error: the build failed; all of its output is in $log" >&2
  exit 1
fi
find_program() { find build-fuzz -type f -name "$1" -perm -u+x | head -1; }
program=$(find_program fuzz_parsers) seeds=$(find_program fuzz_seeds)
mapfile -t known < <("$seeds" --list)
((${#targets[@]} > 0)) || targets=("${known[@]}")
for target in "${targets[@]}"; do
  if [[ " ${known[*]} " != *" $target "* ]]; then
    echo "error: no target is called $target" >&2
    echo "hint: one of ${known[*]}" >&2
    exit 1
  fi
done
"$seeds" --write build-fuzz/seeds

# What the targets write: in memory where that is possible. A crash leaves its part of it.
scratch=${TMPDIR:-/tmp}
if [[ -z ${TMPDIR:-} && -w /dev/shm ]]; then scratch=/dev/shm; fi
scratch=$(mktemp -d "$scratch/assay-fuzz-XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# finds FOLDER: its files with their times. The fuzzer names a file by its input, so one that fails again is written again.
finds() { find "$1" -type f -printf '%T@ %p\n' | sort; }
# fuzz TARGET: one line of what was done. Returns 1 if the fuzzer made no run, or failed and found nothing.
fuzz() {
  local target=$1 corpus=build-fuzz/corpus/$1 found=build-fuzz/found/$1 log=build-fuzz/log/$1.txt
  mkdir -p "$corpus" "$found" build-fuzz/log "$scratch/$target"
  local before; before=$(finds "$found")
  local inputs=("$corpus" "build-fuzz/seeds/$target")
  [[ -d tests/fuzz/found/$target ]] && inputs+=("tests/fuzz/found/$target")
  local TIMEFORMAT='%U %S' seconds
  seconds=$({ time TMPDIR=$scratch/$target ASSAY_FUZZ_TARGET=$target ASAN_OPTIONS=allocator_may_return_null=0 UBSAN_OPTIONS=halt_on_error=1 \
    OMP_NUM_THREADS=1 "$program" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -timeout=10 \
    -max_total_time=$((60 * minutes)) -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$found/" -print_final_stats=1 \
    "${inputs[@]}" >"$log" 2>&1 || echo "exit code $?" >>"$log"; } 2>&1 | awk 'END { printf "%.0f", $1 + $2 }')
  rm -rf "${scratch:?}/$target"
  local new runs cover
  new=$(comm -13 <(echo "$before") <(finds "$found") | wc -l)
  runs=$(sed -n 's/^#\([0-9]*\): cov: .*/\1/p' "$log" | tail -1)
  if ((new == 0)) && { ((${runs:-0} == 0)) || grep -q '^exit code ' "$log"; }; then
    printf '%-14s did not run: %s\n' "$target" "$log"
    return 1
  fi
  cover=$(sed -n 's/^#[0-9]*: cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  printf '%-14s %6s CPU s %10s runs  %6s edges  %5s inputs  %s found\n' "$target" "$seconds" "${runs:-0}" "${cover:-?}" \
    "$(find "$corpus" -type f | wc -l)" "$new"
}
export -f finds fuzz
export minutes program scratch
echo "fuzz: ${#targets[@]} targets, $minutes min each, $jobs at a time"
status=0
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz {}' | tee build-fuzz/last.txt || status=$?
total=$(awk '/ found$/ { sum += $(NF-1) } END { print sum + 0 }' build-fuzz/last.txt)
if ((status != 0)); then
  logs=$(sed -n 's/.* did not run: //p' build-fuzz/last.txt)
  echo "error: ${logs:+$(wc -l <<<"$logs") of }${#targets[@]} targets did not run" >&2
  echo "hint: see ${logs//$'\n'/, }" >&2
fi
if ((total > 0)); then
  echo "error: $total inputs made a parser fail; they are in build-fuzz/found"
  exit 2
fi
if ((status != 0)); then exit 1; fi
echo "fuzz: nothing found"
