#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the sources of base and session, with the headers they include. Other
# versions have other checks: only version 14, Debian 12's, runs.
#   tidy_check.sh BUILD [PATH...]: a configured build folder; files or folders instead of those layers
set -euo pipefail
build=$(realpath "${1:?usage: tidy_check.sh BUILD [PATH...]}")
shift
cd "$(dirname "$0")/.."

tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "not run: clang-tidy is absent"; exit 0; }
version=$("$tidy" --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
[[ $version == 14 ]] || { echo "not run: clang-tidy is version $version, not 14"; exit 0; }

if [[ ! $(git rev-parse --show-toplevel 2>/dev/null) -ef . ]]; then
  echo "not run: no git repository here"
  exit 0
fi
if [[ $# == 0 ]]; then set -- base session; fi
files=()
for path in "$@"; do
  # A folder that the build compiles together is read together: its headers once, not for each file.
  together=""
  if [[ -d $build/$path ]]; then together=$(find "$build/$path" -path '*.dir/Unity/*' -name '*.cxx' | sort); fi
  if [[ -n $together ]]; then mapfile -t -O ${#files[@]} files <<<"$together"; fi
  while read -r file; do
    [[ -n $together ]] && grep -qF "/$file\"" $together || files+=("$file")
  done < <(git ls-files -- "$path" | grep '\.cpp$')
done
[[ ${#files[@]} -gt 0 ]] || { echo "tidy: no files"; exit 1; }

# The flags of the build, without those that clang does not know, and without the headers that g++ has precompiled.
flags=$(mktemp -d)
trap 'rm -rf "$flags"' EXIT
sed -E 's/ -m(move|store)-max=[0-9]+//g; s/ -Winvalid-pch -include [^ ]*//g' "$build/compile_commands.json" >"$flags/compile_commands.json"

log=$flags/log
if ! "$tidy" --quiet -p "$flags" "${files[@]}" >"$log" 2>&1; then
  grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? generated' "$log"
  exit 1
fi
echo "tidy: ok, ${#files[@]} files"
