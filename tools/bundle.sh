#!/usr/bin/env bash
# Makes a folder that trains and measures on a GPU machine without network, compiler or libraries:
# programs, their libraries, presets, gpu_check.sh. The bundle is tried here before it is put in
# place; a failure leaves none.
#
# The programs find lib/ by DT_RPATH ($ORIGIN/../lib), not DT_RUNPATH: it also applies to the
# libraries' own libraries (fmt of spdlog), and it precedes the target's LD_LIBRARY_PATH. They are
# compiled for a CPU that every GPU host has: the ops then contain no AVX-512 or AMX, which are
# chosen at compile time (ops/cpu_gemm/amx_tiles.h).
#
# cuBLASLt is left out by default: it is 541 MB in CUDA 13.0, the rest 152 MB, and a CUDA toolkit
# has it. It is opened at run time, so no program is linked with it.
set -euo pipefail
umask 022

usage() {
  cat <<'TEXT'
usage: bash tools/bundle.sh --out FOLDER [--tar] [--with-cublas] [--march NAME] [--gpus LIST] [--build FOLDER]
                            [--also FOLDER:NAME]...
  --out FOLDER    the bundle to make; an existing bundle is replaced
  --tar           also make FOLDER.tgz
  --with-cublas   include libcublasLt, for a machine with a driver but no CUDA toolkit (+ 541 MB)
  --march NAME    the CPU to compile for (default: x86-64-v3, which is AVX2; x86-64-v4 is AVX-512)
  --gpus LIST     the GPUs to compile the kernels for (default: 90a), e.g. "80;90a;100;120"
  --build FOLDER  where to build (default: build-bundle)
  --also FOLDER:NAME  another bundle, of another commit: its bench_step comes along in also/NAME, and
                  gpu_check.sh runs whole steps of both in turn
This machine needs the CUDA toolkit and Catch2: test_device comes along. The GPU machine needs Linux on
x86-64, a glibc at least as new as MANIFEST says, and the NVIDIA driver. For example:
  bash tools/bundle.sh --out bundle --tar
  (on the GPU machine)
  tar -xzf bundle.tgz && cd bundle && sha256sum -c --quiet MANIFEST && bin/assay doctor
docs/gpu.md describes what to do next.
TEXT
}
fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

out='' tar=no cublas=no march=x86-64-v3 gpus=90a build=build-bundle
also=()  # NAME:FOLDER
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out | --march | --gpus | --build)
      [[ -n ${2:-} ]] || fail "$1 needs a value" "bash tools/bundle.sh --help"
      declare "${1#--}=$2"
      if [[ $1 == --build ]]; then build=$(realpath -m -- "$2"); fi  # of the caller's folder
      shift 2 ;;
    --also)
      [[ ${2:-} =~ ^(.+):([a-z0-9][a-z0-9_-]*)$ ]] || fail "--also ${2:-} is not FOLDER:NAME" "NAME is of a-z, 0-9, _ and -, as in --also ../before/bundle:before"
      also+=("${BASH_REMATCH[2]}:$(realpath -m -- "${BASH_REMATCH[1]}")")
      shift 2 ;;
    --tar) tar=yes; shift ;;
    --with-cublas) cublas=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown argument $1" "bash tools/bundle.sh --help" ;;
  esac
done
[[ -n $out ]] || fail "--out is not given" "bash tools/bundle.sh --out bundle"

# Checks that need no build.
out=$(realpath -m -- "$out")
cd "$(dirname "$0")/.."
for tool in cmake ldd readelf objdump sha256sum tar; do
  command -v "$tool" >/dev/null || fail "$tool was not found" "bash tools/setup.sh installs what building needs"
done
[[ $(uname -m) == x86_64 ]] || fail "this is $(uname -m): a bundle is for x86-64" "make it on an x86-64 machine"
if [[ -e $out && ! (-d $out && -z $(ls -A "$out")) ]] && ! grep -qs '^# assay bundle' "$out/MANIFEST"; then
  fail "$out exists and is not a bundle" "give another --out, or remove it"
fi
for other in ${also[@]+"${also[@]}"}; do
  folder=${other#*:}
  grep -qs '^# assay bundle' "$folder/MANIFEST" && [[ -x $folder/bin/bench_step ]] ||
    fail "$folder is not a bundle" "make one of the other commit there: bash tools/bundle.sh --out $folder"
  (cd "$folder" && sha256sum -c --quiet MANIFEST) >/dev/null 2>&1 || fail "$folder is not as its MANIFEST says" "make that bundle again"
done
parent=$(dirname "$out")
mkdir -p "$parent" 2>/dev/null && [[ -w $parent ]] || fail "$parent cannot be written" "give another --out"

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }
gpu_programs="bench_device bench_limits"
if [[ ";$gpus;" == *";90a;"* ]]; then gpu_programs+=" test_wrappers_cuda"; fi  # its wrappers are those of 9.0
programs="assay op_check op_check_cuda test_device bench_ops bench_step $gpu_programs"

say "build for $march: $build"
mkdir -p "$build"
generator=()
if command -v ninja >/dev/null && [[ ! -f $build/CMakeCache.txt ]]; then generator=(-G Ninja); fi
# shellcheck disable=SC2016,SC2086  # $ORIGIN is the loader's
if ! { cmake -S . -B "$build" ${generator[@]+"${generator[@]}"} -DCMAKE_BUILD_TYPE=Release -DASSAY_CUDA=ON -DASSAY_NATIVE=OFF \
  -DASSAY_TESTS=ON -DASSAY_GPUS="$gpus" \
  -DCMAKE_CXX_FLAGS="-march=$march" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN/../lib' \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags &&
  cmake --build "$build" --parallel "$(nproc)" --target $programs gpu_benches; } >"$build/bundle.log" 2>&1; then
  grep -E -A4 'error|CMake Error|FAILED' "$build/bundle.log" | head -30 >&2 || tail -30 "$build/bundle.log" >&2
  fail "the build failed" "all of its output is in $build/bundle.log"
fi
if [[ -x $build/nccl_check ]]; then gpu_programs+=" nccl_check" programs+=" nccl_check"; fi  # where CMake found nccl.h
# Where CMake found MPI; `assay` opens it for ranks. The MPI itself is the machine's.
ranks=()
if [[ -e $build/libassay_mpi.so ]]; then ranks=("$build/libassay_mpi.so"); fi
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# True for the C library's own libraries and the loader: these belong to the machine, with its
# kernel and driver. All other libraries of the programs are copied.
of_the_system() { [[ $1 =~ ^(linux-vdso|ld-linux-x86-64|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl))\.so ]]; }
# linked: what ldd says in its input, as "NAME PATH", or "NAME not found". A path may have blanks.
linked() { sed -nE 's/^[[:space:]]*([^ ]+) => /\1 /; T; s/ \(0x[0-9a-f]+\)$//; p'; }
say "libraries"
declare -A libraries
for program in $programs; do
  while read -r name path; do
    if [[ $name == lib@(cuda|cudart|cublas|cublasLt|nvidia|nccl)* ]]; then
      fail "$program is linked with $name, which the GPU machine may lack" "open it at run time (cuda/shared_library.h)"
    fi
    if of_the_system "$name"; then continue; fi
    [[ $path == /* ]] || fail "$program needs $name, which was not found here" "run bash tools/setup.sh"
    libraries[$name]=$path
  done < <(ldd "$build/$program" | linked)
done
if [[ $cublas == yes ]]; then
  path=$(cached CUDA_cublasLt_LIBRARY)
  [[ -f $path ]] || fail "no libcublasLt in the CUDA toolkit here" "install its cuBLAS, or leave out --with-cublas"
  libraries[$(readelf -d "$path" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')]=$path
fi

files=()
for program in $programs; do files+=("$build/$program"); done
need=$(($(du -cLk "${files[@]}" "${libraries[@]}" ${ranks[@]+"${ranks[@]}"} | tail -1 | cut -f1) / 1024 + 32))
if [[ $tar == yes ]]; then need=$((need * 2)); fi
have=$(($(df --output=avail -k "$parent" | tail -1) / 1024))
((need <= have)) || fail "the bundle takes $need MiB, but $parent has $have MiB free" "give --out on another disk, or leave out --with-cublas"

# Made in a temporary folder beside $out, moved there and tried, then moved to $out.
stage=$(mktemp -d "$parent/.bundle-XXXXXX")
trap 'rm -rf "$stage"' EXIT
trap 'fail "the bundle could not be written to $stage (line $LINENO)" "df -h $parent: is the disk full?"' ERR
made=$stage/made
mkdir -p "$made"/{bin,lib,tools,models,bench/peers}
say "copy: ${#files[@]} programs, ${#libraries[@]} libraries"
cp "${files[@]}" "$made/bin"
find "$build" -maxdepth 1 -type l -lname bench_device -exec cp -P -t "$made/bin" {} +  # bench_attention and others
for name in "${!libraries[@]}"; do cp -L "${libraries[$name]}" "$made/lib/$name"; done
chmod 644 "$made"/lib/*
if [[ ${#ranks[@]} -gt 0 ]]; then install -D -m 644 -t "$made/lib/assay" "${ranks[@]}"; fi
cp -r models/presets "$made/models"
cp -r tools/gpu_check.sh tools/gpu_check "$made/tools"
cp bench/in_turn.py "$made/bench"
cp bench/peers/torch_gpu.py bench/peers/torch_gpu_step.py bench/peers/torch_models.py "$made/bench/peers"
cp docs/gpu.md "$made/README.md"
cp LICENSE "$made"
# The other commits' programs, each with its own libraries; those that are the same here are links.
for other in ${also[@]+"${also[@]}"}; do
  name=${other%%:*} folder=${other#*:}
  mkdir -p "$made/also/$name"/{bin,lib}
  cp "$folder/bin/bench_step" "$made/also/$name/bin"
  while read -r library path; do
    if of_the_system "$library"; then continue; fi
    if cmp -s "$path" "$made/lib/$library"; then ln -s "../../../lib/$library" "$made/also/$name/lib"; else cp "$path" "$made/also/$name/lib"; fi
  done < <(env -i ldd "$folder/bin/bench_step" | linked)
  for library in "$made"/lib/libcublasLt*; do  # which programs open at run time
    if [[ -e $library ]]; then ln -s "../../../lib/${library##*/}" "$made/also/$name/lib"; fi
  done
done
oldest_glibc=$(find "$made" -type f \( -path '*/bin/*' -o -path '*/lib/*' \) -print0 | xargs -0 cat | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
commit=unknown
if [[ $(git rev-parse --show-toplevel 2>/dev/null) -ef . ]]; then  # not of another repository around this folder
  commit=$(git rev-parse --verify HEAD 2>/dev/null || echo unknown)
  if [[ -n $(git status --porcelain --untracked-files=no 2>/dev/null) ]]; then commit+=" and changes"; fi
fi
{
  echo "# assay bundle (sha256sum -c MANIFEST)"
  echo "# commit $commit"
  for other in ${also[@]+"${also[@]}"}; do
    echo "# also ${other%%:*}: commit $(sed -n 's/^# commit //p' "${other#*:}/MANIFEST")"
  done
  echo "# compiler $("$(cached CMAKE_CXX_COMPILER)" --version | sed -n 1p), -march=$march"
  echo "# cuda $("$made/bin/assay" doctor --quick | sed -n 's/^ *built with CUDA *//p'), kernels for $("$made/bin/assay" doctor --quick | sed -n 's/^ *images *//p'), cuBLASLt $([[ $cublas == yes ]] && echo included || echo "of the machine")"
  echo "# glibc ${oldest_glibc#GLIBC_} or later"
  (cd "$made" && find . -type f ! -name MANIFEST -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum)
} >"$stage/MANIFEST"
mv "$stage/MANIFEST" "$made/MANIFEST"

say "trial in another place, without this machine's environment"
moved=$stage/moved
mv "$made" "$moved"
(cd "$moved" && sha256sum -c --quiet MANIFEST)
there() { (cd "$moved" && env -i PATH=/usr/bin:/bin HOME="$stage" OMP_WAIT_POLICY=passive "$@"); }
for program in $programs; do
  while read -r name path; do
    if [[ $path != "$moved/bin/../lib/$name" ]] && ! of_the_system "$name"; then
      fail "bin/$program takes $name from ${path/#not found/nowhere}" "it should come from the bundle's lib: was $build configured by hand?"
    fi
  done < <(there ldd "bin/$program" | linked)
done
if [[ $march == x86-64-v[23] ]]; then
  wide=$(objdump -d --no-show-raw-insn "$moved/bin/assay" | grep -E '%zmm|%tmm' | head -1 || true)
  [[ -z $wide ]] || fail "bin/assay has instructions beyond $march: ${wide//$'\t'/ }" "compile them only where __AVX512F__ or __AMX_TILE__ is defined"
fi
# trial WHAT COMMAND...: runs the command in the moved bundle; fails with its output.
trial() {
  local what=$1
  shift
  printf '   %s\n' "$what"
  if ! there "$@" >"$stage/trial.log" 2>&1; then
    tail -15 "$stage/trial.log" >&2
    fail "the bundle does not work: $what" "the command was: $*"
  fi
}
trial "doctor" bin/assay doctor --quick
trial "device" bin/test_device
trial "op_check" bin/op_check --op cast
trial "bench_ops" bin/bench_ops --help
train=(bin/assay train models/presets/cpu/moe.yaml --device cpu --set run.steps=2 --set run.batch_tokens=512 --set schedule.warmup=0
  --set schedule.warmdown=0 --set eval.every=2 --set eval.tokens=2048 --set data.synth.train_tokens=200000
  --set data.synth.val_tokens=20000)
trial "train" "${train[@]}" --run runs/trial --set run.micro_batch=2
if [[ ${#ranks[@]} -gt 0 ]] && there bash -c 'command -v mpirun' >/dev/null; then
  trial "train on two ranks" "${train[@]}" --run runs/ranks --set run.micro_batch=1 --ranks 2
fi
rm -rf "$moved/runs" "$moved/data-cache"
for other in ${also[@]+"${also[@]}"}; do
  trial "bench_step of ${other%%:*}" "also/${other%%:*}/bin/bench_step" --json --steps 1 --warmup 0 --layers 1 --hidden 64 --heads 1 --ffn 64 \
    --vocab 256 --sequence 32 --batch 1
done
# Without a GPU these programs must at least start and print a hint.
printf '   what needs a GPU\n'
for program in op_check_cuda $gpu_programs; do
  command=("bin/$program" --op cast)
  if [[ $program =~ ^(bench_limits|nccl_check|test_wrappers_cuda)$ ]]; then command=("bin/$program"); fi
  if ! there "${command[@]}" >"$stage/trial.log" 2>&1 && ! grep -q '^hint: ' "$stage/trial.log"; then
    tail -5 "$stage/trial.log" >&2
    fail "the bundle does not work: $program" "the command was: ${command[*]}"
  fi
done
if [[ $cublas == yes ]]; then
  there env LD_DEBUG=files bin/test_device 'every function*' 2>&1 | grep "calling init: $moved/bin/../lib/libcublasLt" >/dev/null ||
    fail "the bundle's libcublasLt is not the one that is opened" "LD_DEBUG=files bin/test_device says which is"
fi

rm -rf "$out"
mv "$moved" "$out"
if [[ $tar == yes ]]; then
  say "tar"
  tar -czf "$stage/bundle.tgz" -C "$parent" --owner=0 --group=0 "$(basename "$out")"
  mv "$stage/bundle.tgz" "$out.tgz"
fi
grep '^# ' "$out/MANIFEST"
if [[ $tar == yes ]]; then du -sh "$out.tgz"; fi
du -sh "$out"
