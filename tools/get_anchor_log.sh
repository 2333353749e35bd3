#!/usr/bin/env bash
# Downloads the log of the anchor: the public AdamW run of June 2024 of modded-nanogpt, 3.275959 at step 9536.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

base=https://raw.githubusercontent.com/KellerJordan/modded-nanogpt/master
folder=data-cache/anchor
name=f66d43d7-e449-4029-8adf-e8537bab49ea.log
places=(records/track_1_short/2024-06-06_AdamW records/2024-06-06_AdamW records/060624_AdamW)  # the newest first
sha256=541df2a28d04d71321c16866224a6743fd60c0cc76ea6cde4b9c26d108707de0  # as in lab/compare/anchor_recipe.cpp

usage() {
  cat <<TEXT
usage: bash tools/get_anchor_log.sh [-o DIR] [--base URL]
  -o DIR      folder for $name (default: $folder)
  --base URL  another address of the repository's files

191 kB. The log is looked for where the repository has it and where it had it before; one whose SHA-256 is another
is not kept. Then:
  assay compare --anchor $folder/$name
TEXT
}

while (($#)); do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    -o|--output) (($# > 1)) || fail "-o needs a folder" "bash tools/get_anchor_log.sh --help"; folder=$2; shift ;;
    --base) (($# > 1)) || fail "--base needs an address" "bash tools/get_anchor_log.sh --help"; base=${2%/}; shift ;;
    *) fail "unknown argument $1" "bash tools/get_anchor_log.sh --help" ;;
  esac
  shift
done
need curl
make_folder "$folder"

file=$folder/$name
get() {
  local place
  for place in "${places[@]}"; do
    if fetch_pinned "$base/$place/$name" "$file" "$sha256"; then return; fi
  done
  fail "the download failed: $base has no $name in ${places[*]}" "check the address"
}

if ! have_pinned "$file" "$sha256"; then
  get
  echo "$file: $(bytes_of "$file") bytes, SHA-256 of the published run"
fi
cat <<TEXT
Its losses, and the gap of your runs at every common step:
  assay compare --anchor $file
  assay compare RUN --anchor $file
TEXT
