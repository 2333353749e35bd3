#!/usr/bin/env bash
# Installs the packages that building and testing need, on Debian 12 and 13, and downloads Plotly.js
# for `assay report`. It can be run again at any time: what is installed is left alone. On a system
# without apt it prints what is needed, with versions.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/setup.sh [--check] [--no-tests] [--peers]
  --check     only list what is installed and what is missing; exit 1 if something is missing
  --no-tests  leave out what only the tests use: Catch2, clang-format, Chromium with its driver, Selenium,
              zstd; and ccache
  --peers     also install PyTorch, OpenBLAS and oneDNN, for the comparisons in bench; and the newest PyTorch
              of PyPI in .venv-peers (5 GB, renewed each time)
docs/requirements.md lists versions, for Debian and for other systems.
TEXT
}

# package|purpose
packages=(
  "build-essential|C and C++ compiler, OpenMP"
  "cmake|configures the build"
  "ninja-build|runs the build"
  "ccache|compiles unchanged sources only once, across builds and clones"
  "pkg-config|finds PCRE2, zlib and zstd"
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
  "zlib1g-dev|text compressed as *.gz"
  "libzstd-dev|text compressed as *.zst, expert loads in telemetry.db"
  "libboost-dev|Boost.Math, headers: intervals over seeds"
  "libcli11-dev|the command line"
  "libcpp-httplib-dev|the server of assay watch"
  "libopenmpi-dev|MPI: ranks in several processes"
  "openmpi-bin|starts ranks (mpirun)"
  "catch2|tests"
  "zstd|unpacks recorded runs in the tests"
  "python3-pip|downloads Plotly.js, which draws the charts of assay report"
  "chromium|opens report pages in the tests"
  "chromium-driver|opens report pages in the tests"
  "python3-selenium|opens report pages in the tests"
  "python3-lxml|reads the HTML and XML of tools/get_debian_text.sh"
  "curl|downloads of tools/get_*.sh"
  "ca-certificates|downloads of tools/get_*.sh"
)

# Packages that only the tests use.
test_packages=" ccache clang-format catch2 zstd chromium chromium-driver python3-selenium "

check_only=no with_tests=yes with_peers=no
for argument in "$@"; do
  case "$argument" in
    --check) check_only=yes ;;
    --no-tests) with_tests=no ;;
    --peers) with_peers=yes
             packages+=("python3-venv|.venv-peers: the newest PyTorch"
                        "python3-torch|PyTorch, the peer of bench/peers"
                        "libopenblas0-pthread|matrix products of PyTorch, instead of the slow reference BLAS"
                        "libdnnl-dev|oneDNN, the peer of bench_matmul") ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown argument $argument" >&2; usage >&2; exit 1 ;;
  esac
done

if [[ $with_tests == no ]]; then
  kept=()
  for entry in "${packages[@]}"; do
    if [[ $test_packages != *" ${entry%%|*} "* ]]; then kept+=("$entry"); fi
  done
  packages=("${kept[@]}")
fi

# Plotly.js, taken from the Python package of this version; the build embeds the file in the program
# (lab/CMakeLists.txt).
plotly_version=7.1.0
plotly_wheel_sha256=dbb7fa18afce40d0a8e80d1bf162eceb3faa0ce5a77fe741ad09a74cf78f53f3
plotly_sha256=3b6e15d45dbb7fca5bd2094291e961ddc5472cd887009e6009a56dab668d721f  # plotly.js 4.1.1
plotly_file=$(dirname "$0")/../third_party/plotly/plotly.min.js
plotly_what="charts of assay report (Plotly.js, 4.8 MB)"

is_file() { [[ -f $2 ]] && echo "$1  $2" | sha256sum --check --status; }
has_plotly() { is_file "$plotly_sha256" "$plotly_file"; }

# Downloads with the first pip that works here. A failure is only a warning: without the file, report
# pages load the script from a CDN.
fetch_plotly() (
  reason="pip is not installed"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for pip in "python3 -m pip" "/usr/bin/python3 -m pip" pip3 pip; do
    if ! $pip --version >/dev/null 2>&1; then continue; fi
    echo "setup: $pip download plotly==$plotly_version"
    if $pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" "plotly==$plotly_version" >"$folder/log" 2>&1; then
      wheel=$(echo "$folder"/plotly-*.whl)
      if ! is_file "$plotly_wheel_sha256" "$wheel"; then
        reason="the package has the SHA-256 $(sha256sum "$wheel" | cut -d' ' -f1), not $plotly_wheel_sha256"
        break
      fi
      if ! { mkdir -p "$(dirname "$plotly_file")" &&
        python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("plotly/package_data/plotly.min.js"))' \
          "$wheel" >"$plotly_file.part" && mv "$plotly_file.part" "$plotly_file"; } 2>"$folder/log"; then
        reason=$(tail -1 "$folder/log")
        rm -f "$plotly_file.part" 2>/dev/null || true
        break
      fi
      if has_plotly; then exit 0; fi
      reason="plotly.min.js in the package has an unexpected SHA-256"
      rm -f "$plotly_file"
      break
    fi
    reason=$(tail -1 "$folder/log")
  done
  {
    echo "warning: Plotly.js was not downloaded: $reason"
    echo "hint: report pages will load it from a CDN when they are opened; run this again with a network, or put plotly.min.js here:"
    echo "  $plotly_file"
  } >&2
)

venv=$(dirname "$0")/../.venv-peers
has_newest_pytorch() {
  "$venv/bin/python" -c 'import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ("torch", "numpy"))))' 2>/dev/null
}
# The newest PyTorch of PyPI, beside Debian's. A failure is only a warning: the comparisons then use Debian's.
install_newest_pytorch() {
  echo "setup: pip install --upgrade torch numpy, into .venv-peers"
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check --upgrade torch numpy; }; then
    echo "warning: the newest PyTorch was not installed; bench/peers/run.sh compares with Debian's only" >&2
  fi
}

# version_is_below VERSION LEAST
version_is_below() { [[ $1 != "$2" && $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1) == "$1" ]]; }

# Older systems have packages of these names that are too old. CMake says of the presets only that it cannot read them.
require_versions() {
  local cmake_version compiler=${CXX:-g++} compiler_version
  cmake_version=$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }') || true
  if [[ $cmake_version =~ ^[0-9] ]] && version_is_below "$cmake_version" 3.25; then
    echo "error: cmake is $cmake_version, and the build needs 3.25 or later" >&2
    echo "hint: put a newer one first in PATH: python3 -m pip install --user cmake, or https://cmake.org/download" >&2
    exit 1
  fi
  compiler_version=$("$compiler" -dumpfullversion 2>/dev/null) || true  # clang has no such option
  if [[ $compiler_version =~ ^[0-9] ]] && version_is_below "$compiler_version" 12; then
    echo "error: $compiler is $compiler_version, and the build needs 12 or later" >&2
    echo "hint: install a newer one and name it: apt-get install g++-12, then export CC=gcc-12 CXX=g++-12" >&2
    exit 1
  fi
}

# Downloads: what is not a package.
finish() {
  if ! has_plotly; then fetch_plotly; fi
  if [[ $with_peers == yes ]]; then install_newest_pytorch; fi
}

# requirements: the table of docs/requirements.md, as text.
requirements() {
  awk -F ' *[|] *' '/^\| / && !/^\| what / { gsub("`| [(][[][^)]*[)][)]", ""); printf "  %-24s %-12s %s\n", $2, $3, $6 }' \
    "$(dirname "$0")/../docs/requirements.md"
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}") || true
  {
    echo "error: apt-get was not found, so nothing can be installed automatically${system:+ on $system}"
    echo "hint: install these with your system's package manager (versions from which the build is known to work):"
    requirements
    echo "then: cmake --preset release && cmake --build build --target assay    (tools/demo.sh --skip-setup does it too)"
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

if [[ $check_only == yes ]]; then
  all=${#packages[@]} absent=${#missing[@]}
  # look HAS NAME PURPOSE: of a download.
  look() {
    local state=ok
    all=$((all + 1))
    if ! "$1"; then state=missing absent=$((absent + 1)); fi
    printf '%-8s %-20s %s\n' "$state" "$2" "$3"
  }
  look has_plotly plotly.min.js "$plotly_what"
  downloads=Plotly.js
  if [[ $with_peers == yes ]]; then
    downloads+=" and .venv-peers"
    look has_newest_pytorch .venv-peers "the newest PyTorch and NumPy of PyPI"
  fi
  if [[ $absent -eq 0 ]]; then
    require_versions
    echo "setup: all ${#packages[@]} packages are installed, and $downloads"
    exit 0
  fi
  echo "setup: $absent of $all missing (bash tools/setup.sh installs them)"
  exit 1
fi
if [[ ${#missing[@]} -eq 0 ]]; then
  finish
  require_versions
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "error: ${#missing[@]} packages are missing, and installing them needs root or sudo" >&2
    echo "hint: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} packages with ${as_root[*]:+sudo }apt-get"
case $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") in
  "debian 12"|"debian 13") ;;
  *) echo "setup: only Debian 12 and 13 have been tried; docs/requirements.md lists the versions that are needed" ;;
esac
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
# Other systems with apt do not have all of the tests' packages (Ubuntu: Chromium); the program does not need them.
known=()
for name in "${missing[@]}"; do
  if [[ $test_packages == *" $name "* && -z $(apt-cache madison "$name" 2>/dev/null) ]]; then
    echo "warning: $name is not packaged here: tests that need it will not run" >&2
  else
    known+=("$name")
  fi
done
missing=(${known[@]+"${known[@]}"})
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ${missing[@]+"${missing[@]}"}
finish
require_versions
echo "setup: done"
