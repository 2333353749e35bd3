#!/usr/bin/env bash
# Checks every source file known to git with clang-format; exits 1 and names the files that differ.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "format: clang-format is absent (bash tools/setup.sh)"; exit 1; }
git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu' | xargs clang-format --dry-run -Werror
echo "format: ok"
