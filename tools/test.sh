#!/usr/bin/env bash
# Builds and runs every test that this machine can run, from a clean clone:
#   release build           all tests except those labelled gpu
#   ASan + UBSan build      tests labelled asan: parsers of data and configuration, every op (without
#                           the cases that tests/ops/CMakeLists.txt leaves out)
#   TSan build              tests labelled tsan: loader, telemetry writer, control of ranks
#   ten planted bugs        drawn by chance (tools/mutate.sh), which a test must notice; with ccache only, which knows the
#                           objects of the release build
# --interop adds the comparisons of tests/interop/compare.py, --systems bare Debian 12 and 13
# (tests/tools/test_debian_root.py). Lists what it could not run. The last
# lines are ctest's summary of the release build; the exit status is 0 only if all passed. The labels
# are defined in tests/CMakeLists.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8  # tests expect English messages and decimal points

usage() {
  cat <<'TEXT'
usage: bash tools/test.sh [--quick] [--no-setup] [--interop] [--systems]
  --quick     only the release build: no sanitizers, no planted bugs
  --no-setup  do not install packages first (tools/setup.sh)
  --interop   also compare with PyTorch and transformers (docs/interop.md): .venv-interop takes 6 GB, downloaded once
  --systems   also set up and build in bare roots of Debian 12 and 13, and run the Dockerfile's lines there: needs root,
              debootstrap, 15 GB of disk and an hour of two cores
TEXT
}

sanitizers=yes
setup=yes
interop=no
systems=no
for argument in "$@"; do
  case "$argument" in
    --quick) sanitizers=no ;;
    --no-setup) setup=no ;;
    --interop) interop=yes ;;
    --systems) systems=yes ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown argument $argument" >&2; usage >&2; exit 1 ;;
  esac
done

jobs=$(nproc)
# Tests run in parallel: OpenMP threads that spin while they wait would take each other's cores.
export OMP_WAIT_POLICY=passive
# Their runs sync files all the time, so what they write is in memory where there is room.
tests_folder=${TMPDIR:-/tmp}
in_memory=""
tsan=""  # the process group of tests that run beside others
trap '[[ -z $tsan ]] || kill -- "-$tsan" 2>/dev/null; [[ -z $in_memory ]] || rm -rf "$in_memory"' EXIT
if [[ -z ${TMPDIR:-} && $(df --output=avail -B1G /dev/shm 2>/dev/null | tail -1) -ge 8 ]]; then
  in_memory=$(mktemp -d /dev/shm/assay-tests-XXXXXX)
  # Containers often mount /dev/shm so that no program in it may run; tests write some.
  printf '#!/bin/sh\n' >"$in_memory/program"
  chmod +x "$in_memory/program"
  if "$in_memory/program" 2>/dev/null; then tests_folder=$in_memory; fi
  rm "$in_memory/program"
fi
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

# build PRESET FOLDER TARGET [OPTION...]: builds; prints output only if it fails.
build() {
  say "build: $1"
  local log="$2/build.log"
  mkdir -p "$2"
  if ! { cmake --preset "$1" -DASSAY_TESTS=ON "${@:4}" && cmake --build "$2" --target "$3" --parallel "$jobs"; } >"$log" 2>&1; then
    grep -E -A6 'error|CMake Error|FAILED' "$log" | head -60 || tail -40 "$log"
    echo "test: the $1 build failed; all of its output is in $log"
    exit 1
  fi
  { grep -c 'warning:' "$log" || true; } | sed 's/^/warnings: /'
}

# sanitized PRESET FOLDER: runs a test preset; prints one line if all pass, else everything.
failed=()
sanitized() {
  local log="$2/ctest.log"
  if TMPDIR=$tests_folder ctest --preset "$1" -j "$jobs" >"$log" 2>&1; then
    echo "$1: all $(grep -cE 'Test +#[0-9]+:.* Passed ' "$log") tests passed"
  else
    cat "$log"
    return 1
  fi
}

# compare_interop: runs the comparisons in an environment of tests/interop/requirements.txt, which is
# remade when that file changes.
compare_interop() {
  say "comparisons with PyTorch and transformers"
  local venv=.venv-interop wanted=tests/interop/requirements.txt
  if ! cmp -s "$wanted" "$venv/installed.txt"; then
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet -r "$wanted"; }; then
      echo "error: cannot install $wanted into $venv"
      echo "hint: on Debian python3 -m venv needs apt-get install python3-venv; the packages need 5.2 GB of disk"
      return 1
    fi
    cp "$wanted" "$venv/installed.txt"
  fi
  "$venv/bin/python" tests/interop/compare.py && "$venv/bin/python" tests/interop/peers.py
}

if [[ $setup == yes ]]; then
  say "packages"
  bash tools/setup.sh
fi
build release build all
if [[ $sanitizers == yes ]]; then
  plain=-DASSAY_PLAIN_BUILD=$PWD/build
  build debug build-debug tests_asan "$plain"
  build tsan build-tsan tests_tsan "$plain"
  # Their options and labels are in CMakePresets.json. Threads wait for each other most of the time, so both run at once.
  say "tests under asan and tsan"
  set -m
  sanitized tsan build-tsan >build-tsan/said.log 2>&1 &
  tsan=$!
  set +m
  sanitized asan build-debug || failed+=(asan)
  wait "$tsan" || failed+=(tsan)
  tsan=""
  cat build-tsan/said.log
fi

say "tests"
# One more than there are cores: a sixth of their time is waiting, for other ranks most of all.
TMPDIR=$tests_folder ctest --test-dir build -j $((jobs + 1)) -LE gpu --output-on-failure --no-tests=error 2>&1 | tee build/ctest.log |
  sed -u '/% tests passed/,$d' || failed+=("release")
# A test prints "not run: ..." for each part that needs something absent. Every call of ctest begins this log anew.
not_run=build/not-run.log
grep -ahoE 'not run: .*' build/Testing/Temporary/LastTest.log >"$not_run" || true

planted="left out by --quick"
if [[ $sanitizers == yes ]] && ! command -v ccache >/dev/null; then planted="without ccache their build takes 20 minutes"; fi
if [[ $sanitizers == yes ]] && command -v ccache >/dev/null; then
  say "ten planted bugs"
  planted=""
  if bash tools/mutate.sh --random 10 >build/mutants.log 2>&1; then
    grep -E '^(drawn|noticed)' build/mutants.log
  else
    cat build/mutants.log
    failed+=("planted bugs")
  fi
fi

if [[ $interop == yes ]]; then compare_interop || failed+=("interop"); fi
if [[ $systems == yes ]]; then
  for release in bookworm trixie; do
    say "bare Debian: $release"
    python3 tests/tools/test_debian_root.py --release "$release" | tee -a "$not_run" || failed+=("$release")
  done
fi

echo "== not run here"
{
  gpu_tests=$(ctest --test-dir build -N -L gpu | sed -n 's/^Total Tests: //p')
  if [[ $gpu_tests == 0 ]]; then echo "label gpu: this build has no CUDA"; else echo "label gpu: $gpu_tests tests (tools/gpu_check.sh)"; fi
  if [[ $sanitizers == no ]]; then echo "sanitizers: left out by --quick"; fi
  if [[ -n $planted ]]; then echo "planted bugs: $planted"; fi
  if [[ ! -d ${ASSAY_TEST_DATA:-../shared/data} ]]; then
    echo "tests against reference files: their data is absent (set ASSAY_TEST_DATA to its folder)"
  fi
  if [[ $interop == no ]]; then echo "comparisons with PyTorch and transformers: --interop adds them"; fi
  if [[ $systems == no ]]; then echo "bare Debian 12 and 13, the Dockerfile: --systems adds them"; fi
  grep -aoE 'not run: .*' "$not_run" | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' || true
} | sed 's/^/  /'

if [[ ${#failed[@]} -gt 0 ]]; then echo "== failed: ${failed[*]}"; fi
sed -n '/% tests passed/,$p' build/ctest.log
exit $((${#failed[@]} > 0))
