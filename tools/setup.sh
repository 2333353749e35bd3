#!/usr/bin/env bash
# Installs the Debian packages that building and testing need. Run again at will: what is there is left alone.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/setup.sh [--check] [--peers]
  --check   only list what is there and what is missing; exit 1 if something is missing
  --peers   also PyTorch, OpenBLAS and oneDNN, for the comparisons under bench
TEXT
}

# package|what it is for
packages=(
  "build-essential|C and C++ compiler, OpenMP"
  "cmake|configures the build"
  "ninja-build|runs the build"
  "pkg-config|finds PCRE2 and zstd"
  "git|source version, recorded in every run"
  "python3|tools: layer check, tables"
  "clang-format|format check among the tests"
  "libpcre2-dev|PCRE2: pre-split of the tokenizer"
  "nlohmann-json3-dev|tokenizer files, manifests, receipts"
  "libssl-dev|SHA-256 of shards and checkpoints"
  "libyaml-cpp-dev|configuration files"
  "libspdlog-dev|the log of a run"
  "libfmt-dev|text formatting, used by spdlog"
  "libsqlite3-dev|telemetry.db"
  "libzstd-dev|compressed expert loads in telemetry.db"
  "libboost-dev|Boost.Math, headers: intervals over seeds"
  "libcli11-dev|the command line"
  "catch2|tests"
  "curl|downloads of tools/get_fineweb.sh"
  "ca-certificates|downloads of tools/get_fineweb.sh"
)

check_only=no
for argument in "$@"; do
  case "$argument" in
    --check) check_only=yes ;;
    --peers) packages+=("python3-torch|PyTorch, the peer of bench/peers"
                        "libopenblas0-pthread|what PyTorch multiplies with; without it, the slow reference BLAS"
                        "libdnnl-dev|oneDNN, the peer of bench_matmul") ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown argument $argument" >&2; usage >&2; exit 1 ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  {
    echo "error: no apt-get here, so nothing can be installed automatically"
    echo "hint: install the equivalents of these Debian 12 packages, then: cmake --preset release && cmake --build build"
    printf '  %s\n' "${packages[@]/|/: }"
  } >&2
  exit 1
fi

missing=()
for entry in "${packages[@]}"; do
  name=${entry%%|*}
  if [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]]; then
    if [[ $check_only == yes ]]; then printf 'ok       %-20s %s\n' "$name" "${entry#*|}"; fi
  else
    missing+=("$name")
    printf 'missing  %-20s %s\n' "$name" "${entry#*|}"
  fi
done

if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi
if [[ $check_only == yes ]]; then
  echo "setup: ${#missing[@]} of ${#packages[@]} packages missing (bash tools/setup.sh installs them)"
  exit 1
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "error: ${#missing[@]} packages are missing, and this is neither root nor is there sudo" >&2
    echo "hint: as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} packages with ${as_root[*]:+sudo }apt-get"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "setup: done"
