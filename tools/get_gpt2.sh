#!/usr/bin/env bash
# Downloads the tokenizer of GPT-2: vocab.json and merges.txt.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

base=https://huggingface.co/openai-community/gpt2/resolve/main
folder=data-cache/gpt2
# Of the public release, where these files are also called encoder.json and vocab.bpe.
vocab_sha256=196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783
merges_sha256=1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5

usage() {
  cat <<TEXT
usage: bash tools/get_gpt2.sh [-o DIR] [--base URL]
  -o DIR      folder for vocab.json and merges.txt (default: $folder)
  --base URL  another address with files of the same names

1.5 MB: the tokenizer of all shards in GPT-2 tokens. A run on such shards needs it for bits per byte, for CORE
(eval.core), for samples, and so does assay sample. The presets of models/presets/speedrun and super name its folder.
An interrupted download resumes; a file whose SHA-256 is not that of the release is not kept.
TEXT
}

while (($#)); do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    -o|--output) (($# > 1)) || fail "-o needs a folder" "bash tools/get_gpt2.sh --help"; folder=$2; shift ;;
    --base) (($# > 1)) || fail "--base needs an address" "bash tools/get_gpt2.sh --help"; base=${2%/}; shift ;;
    *) fail "unknown argument $1" "bash tools/get_gpt2.sh --help" ;;
  esac
  shift
done
need curl
make_folder "$folder"

get() {
  if have_pinned "$folder/$1" "$2"; then return; fi
  fetch_pinned "$base/$1" "$folder/$1" "$2" || fail "the download failed: there is no $base/$1" "check the address"
  echo "$folder/$1: $(bytes_of "$folder/$1") bytes, SHA-256 as in the release"
}

get vocab.json "$vocab_sha256"
get merges.txt "$merges_sha256"
cat <<TEXT
In a configuration, beside shards in GPT-2 tokens; for bits per byte, CORE and samples:
  data: {tokenizer: $folder}      # a path is relative to the configuration's folder
On the command line:
  assay train CONFIG --set data.tokenizer=$folder
TEXT
