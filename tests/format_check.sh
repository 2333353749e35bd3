#!/usr/bin/env bash
# clang-format over every source file git knows; exit 1 naming the files that differ.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "format: clang-format is absent (bash tools/setup.sh)"; exit 1; }
git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu' | xargs clang-format --dry-run -Werror
echo "format: ok"
