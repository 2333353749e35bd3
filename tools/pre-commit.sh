#!/usr/bin/env bash
# What a commit would add, before it is made: format, layers, and no file over 1 MB. Looks at the index,
# so that a file staged in part is judged by that part. Install it in a clone, once:
#   ln -s ../../tools/pre-commit.sh .git/hooks/pre-commit
# `git commit --no-verify` goes without.
set -euo pipefail
case "${1:-}" in  # git gives none
  "") ;;
  -h | --help)
    echo "usage: bash tools/pre-commit.sh"
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "error: unknown argument $1" >&2
    echo "hint: pre-commit.sh takes none; --help says what it does" >&2
    exit 1
    ;;
esac
cd "$(git rev-parse --show-toplevel)"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git checkout-index --all --prefix="$tree/"
status=0

large=1000000
sources=()
while IFS= read -r -d '' file; do
  bytes=$(git cat-file -s ":$file")
  if [[ $bytes -gt $large ]]; then
    echo "size: $file has $bytes bytes, more than $large"
    status=1
  fi
  case "$file" in *.h | *.cpp | *.cu) sources+=("$tree/$file") ;; esac
done < <(git diff --cached --name-only --diff-filter=ACMR -z)

if [[ ${#sources[@]} -gt 0 ]]; then
  bash tests/format_check.sh "${sources[@]}" 2>&1 | sed "s|$tree/||" || {
    echo "format: clang-format -i FILE mends all but long comments"
    status=1
  }
fi
python3 "$tree/tools/check_layers.py" || status=1
exit $status
