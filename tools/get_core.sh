#!/usr/bin/env bash
# Downloads the evaluation bundle of CORE: 22 tasks, their few-shot settings and the scores of
# guessing, which are those of its version 1 (docs/eval.md).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

url=https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip
folder=data-cache/eval_bundle

usage() {
  cat <<TEXT
usage: bash tools/get_core.sh [-o DIR] [--url URL]
  -o DIR      where core.yaml, eval_meta_data.csv and eval_data/ go ($folder)
  --url URL   another address of eval_bundle.zip; file:///path for a local file

DIR may be an empty folder. An interrupted download resumes where it stopped. An existing bundle is kept. Then:
  assay eval runs/moe --tasks core --bundle $folder
TEXT
}

while (($#)); do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    -o|--output) (($# > 1)) || fail "-o needs a folder" "bash tools/get_core.sh --help"; folder=$2; shift ;;
    --url) (($# > 1)) || fail "--url needs an address" "bash tools/get_core.sh --help"; url=$2; shift ;;
    *) fail "unknown argument $1" "bash tools/get_core.sh --help" ;;
  esac
  shift
done
need curl python3
whole=$(realpath -m -- "$folder")
make_folder "$(dirname "$whole")"  # what is not whole yet lies beside $folder
if [[ -f $folder/core.yaml && -f $folder/eval_meta_data.csv && -d $folder/eval_data ]]; then
  echo "$folder: already there"
  exit 0
fi
[[ ! -e $folder || (-d $folder && -z $(ls -A "$folder")) ]] ||
  fail "$folder exists and is not a complete bundle" "remove it, or choose another folder with -o DIR"

part=$whole.zip.part unpacked=$whole.unpacked
echo "eval_bundle.zip: downloading"
fetch "$url" "$part" || fail "the download of $url failed: there is no such file" "check the address"

# Uses only the folder with core.yaml, whatever its name in the archive.
rm -rf "$unpacked"
unpack='
import sys, zipfile
try:
    with zipfile.ZipFile(sys.argv[1]) as archive:
        bad = archive.testzip()
        if bad: sys.exit(f"{bad} is damaged")
        archive.extractall(sys.argv[2])
except zipfile.BadZipFile as e:
    sys.exit(str(e))
'
if ! said=$(python3 -c "$unpack" "$part" "$unpacked" 2>&1); then
  rm -rf "$unpacked" "$part"
  fail "$url is not a good archive: $(tail -1 <<<"$said")" "run the same command again, or check the address"
fi
list=$(find "$unpacked" -name core.yaml -not -path '*/__MACOSX/*' | head -1)
if [[ -z $list || ! -f $(dirname "$list")/eval_meta_data.csv || ! -d $(dirname "$list")/eval_data ]]; then
  rm -rf "$unpacked" "$part"
  fail "$url has no core.yaml with eval_meta_data.csv and eval_data beside it" "check the address"
fi
mkdir -p "$whole"  # which may be the caller's own
find "$(dirname "$list")" -mindepth 1 -maxdepth 1 -exec mv -t "$whole" {} +
rm -rf "$unpacked" "$part"
echo "$folder: $(find "$folder/eval_data" -name '*.jsonl' | wc -l) task files"
