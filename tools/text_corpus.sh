#!/usr/bin/env bash
# Makes a corpus from your text: a tokenizer with a vocabulary of 4096 trained on it, and shards for
# training and validation. Does nothing if the corpus exists.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/text_corpus.sh FILE FOLDER [ASSAY]
  FILE     documents that end with <|endoftext|>, .jsonl with a "text" field, or one long text
  FOLDER   where tokenizer.json, corpus_train_*.bin, corpus_val_*.bin and manifest.json are written
  ASSAY    the program (default: build/assay of this clone)
TEXT
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage; exit 0; fi
if [[ $# -lt 2 || $# -gt 3 ]]; then usage >&2; exit 1; fi
text=$1 corpus=$2 assay=${3:-$(dirname "$0")/../build/assay}
fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }
[[ -s $text ]] || fail "$text: no such file, or an empty one" "give the path of a text or .jsonl file"
[[ -x $assay ]] || fail "$assay: no such program" "build it (README.md), or give its path as the third argument"
if [[ -f $corpus/manifest.json ]]; then exit 0; fi

mkdir -p "$corpus"
"$assay" tokenizer train "$text" --vocab-size 4096 -o "$corpus/tokenizer.json"
prepare=("$assay" data prepare --tokenizer "$corpus/tokenizer.json" -o "$corpus")
documents=$({ grep -o '<|endoftext|>' "$text" || true; } | wc -l)
if [[ $text == *.jsonl || $text == *.gz || $text == *.zst || $documents -ge 20 ]]; then
  "${prepare[@]}" "$text"
else
  # One long text: the last twentieth becomes the validation text.
  bytes=$(stat -c %s "$text")
  head -c $((bytes - bytes / 20)) "$text" >"$corpus/train.txt"
  tail -c $((bytes / 20)) "$text" >"$corpus/val.txt"
  "${prepare[@]}" "$corpus/train.txt" --val "$corpus/val.txt"
fi
