#!/usr/bin/env bash
# Checks every source file known to git: clang-format, and its column limit for comments, which clang-format leaves alone.
# Names the functions check_* of the Python tests, too, that nothing in their file calls: they would never run.
# Exits 1 and names what differs. Other versions format otherwise: only version 14, Debian 12's, runs.
#   format_check.sh [FILE...]: FILE (an absolute path) instead of all of them
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# == 0 && ! $(git rev-parse --show-toplevel 2>/dev/null) -ef . ]]; then
  echo "not run: no git repository here"
  exit 0
fi
format=$(command -v clang-format-14 || command -v clang-format || true)
version=""
if [[ -n $format ]]; then version=$("$format" --version | sed -n 's/.*clang-format version \([0-9]*\).*/\1/p'); fi
files=("$@")
if [[ $# == 0 ]]; then mapfile -t files < <(git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu'); fi
if [[ $version == 14 ]]; then
  printf '%s\0' "${files[@]}" | xargs -0 "$format" --dry-run -Werror
elif [[ -z $format ]]; then
  echo "not run: clang-format is absent (bash tools/setup.sh)"
else
  echo "not run: clang-format is version $version, not 14"
fi
printf '%s\0' "${files[@]}" | xargs -0 awk '
  length($0) > 100 && /^[ ]*\/\/ / { printf "%s:%d: a comment of %d columns, the limit is 100\n", FILENAME, FNR, length($0); n++ }
  END { exit n > 0 }'
if [[ $# == 0 ]]; then
  git ls-files -coz --exclude-standard 'tests/*/test_*.py' | xargs -0 -r awk '
    function finish(name) {
      for (name in defined) {
        if (text !~ "[^A-Za-z0-9_]" name "[^A-Za-z0-9_]") { printf "%s:%d: nothing calls %s\n", file, defined[name], name; n++ }
        delete defined[name]
      }
      text = " "
    }
    FNR == 1 { finish(); file = FILENAME }
    /^def check_/ { name = $2; sub(/\(.*/, "", name); defined[name] = FNR; next }
    !/^ *#/ { text = text $0 " " }
    END { finish(); exit n > 0 }'
fi
echo "format: ok"
