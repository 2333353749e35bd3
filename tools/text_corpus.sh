#!/usr/bin/env bash
# Makes a corpus from your text: a tokenizer with a vocabulary of 4096 trained on it, and shards for
# training and validation. Makes nothing if the corpus of this text exists, and refuses that of another.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/text_corpus.sh TEXT FOLDER [ASSAY]
       bash tools/text_corpus.sh --name TEXT
  TEXT     a file or a folder of *.txt, *.text, *.md, *.jsonl, *.ndjson, also .gz and .zst:
           documents that end with <|endoftext|>, .jsonl with a "text" field, or a few long texts
  FOLDER   where tokenizer.json, corpus_train_*.bin, corpus_val_*.bin, manifest.json and
           text_corpus.sha256 (of which text they are) are written; other files in it stay
  ASSAY    the program (default: build/assay of this clone)
  --name   only print a name for the corpus: that of TEXT and a hash of what it contains

Every twentieth document is for validation. Of fewer than 20 documents it is the last twentieth of
each file, from the beginning of a character. A FOLDER that has the corpus of TEXT stays as it is;
one that has that of another text is refused.
TEXT
}

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

# first_names: of the names of files in its input, each ended by a zero byte, the first one of each file.
first_names() {
  local entry id
  local -A seen=()
  while IFS= read -r -d '' entry; do
    id=${entry%% *}
    if [[ -n ${seen[$id]:-} ]]; then continue; fi
    seen[$id]=1
    printf '%s\0' "${entry#* }"
  done < <(xargs -0 -r stat -L --printf '%d:%i %n\0')
}

# The files that `assay data prepare` reads, in its order, each ended by a zero byte: extensions in any case, links to files
# but not to folders, a file with several names once.
files_of() {
  if [[ ! -d $1 ]]; then printf '%s\0' "$1"; return; fi
  (cd "$1" && LC_ALL=C find . -xtype f -regextype posix-extended \
    -iregex '.*[^/]\.((txt|text|md|jsonl|ndjson)(\.(gz|zst))?|json\.(gz|zst))' -print0 2>/dev/null | LC_ALL=C sort -z |
    first_names)
}

hash_of() {
  if [[ -d $1 ]]; then
    files_of "$1" | (cd "$1" && xargs -0 -r sha256sum) | sha256sum
  else
    sha256sum "$1"
  fi | cut -d ' ' -f 1
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage; exit 0; fi
# require_text PATH: an error if there is no text.
require_text() {
  [[ -d $1 || -s $1 ]] || fail "$1: no such file or folder, or an empty file" "give the path of a text or .jsonl file, or of a folder of them"
}

if [[ ${1:-} == --name && $# -eq 2 ]]; then
  named=$2
  require_text "$named"
  if [[ -d $named ]]; then named=$(cd "$named" && pwd); fi  # of "." too
  echo "$(basename "$named" | sed 's/\.[^.]*$//' | tr -c 'A-Za-z0-9\n' '-' | cut -c1-24)-$(hash_of "$2" | cut -c1-8)"
  exit 0
fi
if [[ $# -lt 2 || $# -gt 3 ]]; then usage >&2; exit 1; fi
text=$1 corpus=$2 assay=${3:-$(dirname "$0")/../build/assay}
require_text "$text"
[[ -n $corpus ]] || fail "FOLDER is empty" "name the folder of the corpus, as in bash tools/text_corpus.sh TEXT data-cache/mine"
[[ -x $assay ]] || fail "$assay: no such program" "build it (README.md), or give its path as the third argument"

# The folder belongs to one call at a time. A file system without locks has none.
mkdir -p "$corpus" 2>/dev/null || fail "$corpus: the folder cannot be made" "give another folder"
exec {corpus_lock}<"$corpus"
locked=0
flock --nonblock "$corpus_lock" || locked=$?
((locked != 1)) || fail "another call that makes the corpus in $corpus is still running" "wait until it ends, or give another folder"

# text_corpus.sha256 says of which text the corpus is, and of which manifest.json that is said.
manifest=$corpus/manifest.json
record=$corpus/text_corpus.sha256
text_hash=$(hash_of "$text")
record_text() { printf '%s  text\n%s  manifest.json\n' "$1" "$(hash_of "$manifest")"; }

# recorded_text: the hash of the text of the corpus; nothing if that is not known.
recorded_text() {
  local hash
  if [[ ! -f $record ]]; then return; fi
  hash=$(head -n 1 "$record" | cut -d ' ' -f 1)
  if [[ $(<"$record") == "$(record_text "$hash")" ]]; then echo "$hash"; fi
}

# is_cut FILE: true of the beginning of a manifest, as a power cut leaves it, also of an empty file.
is_cut() {
  local begin='{"format":"assay-corpus-' text last
  if [[ ! -f $1 ]]; then return 1; fi
  text=$(head -c 100 "$1" | tr -d '[:space:]\0')
  if [[ $begin == "$text"* ]]; then return 0; fi
  last=$(tail -n 1 "$1" | tr -d '\0')
  [[ $text == "$begin"* && $last != '}' && $last != '{'*'}' ]]
}

remove_first="first remove manifest.json, tokenizer.json and corpus_*.bin from this one"
if [[ -e $manifest ]]; then
  if is_cut "$manifest"; then
    fail "$manifest is cut short: what is beside it may not be a whole corpus" "give another folder, or $remove_first"
  fi
  grep -qs '"format": *"assay-corpus-' "$manifest" ||
    fail "$manifest is of another program, and a corpus has its own file of that name" "give another folder"
  was=$(recorded_text)
  if [[ -z $was ]]; then
    echo "$corpus: a corpus is already there; of which text it was made is not recorded, so it is not compared"
  elif [[ $was != "$text_hash" ]]; then
    fail "$corpus has the corpus of another text than $text" \
      "give another folder, or $remove_first"
  else
    echo "$corpus: the corpus of this text is already there"
  fi
  exit 0
fi

# Before the training, which may take minutes. With manifest.json.part a command was killed that may be given again.
foreign_tokenizer() {
  fail "$corpus/tokenizer.json is not the tokenizer that is made of $text" "give another folder, or move that file away"
}
if [[ ! -e $manifest.part ]]; then
  for shard in "$corpus"/corpus_{train,val}_[0-9][0-9][0-9][0-9][0-9][0-9]*.bin; do
    if [[ -e $shard ]]; then
      fail "$shard is there, but not the manifest.json of its corpus" "give another folder, or first remove corpus_*.bin from this one"
    fi
  done
fi
if [[ -e $corpus/tokenizer.json ]]; then
  "$assay" tokenizer encode --tokenizer "$corpus/tokenizer.json" --text a >/dev/null 2>&1 || foreign_tokenizer
fi

# documents_in FILE: how many documents are in a text; white space behind the last separator is none.
documents_in() {
  local separators last begin=1
  read -r separators last < <(LC_ALL=C grep -abo '<|endoftext|>' "$1" | awk -F: '{ last = $1 } END { print NR, last }') || true
  if [[ $separators -gt 0 ]]; then begin=$((last + 14)); fi  # bytes count from 0, those of tail from 1
  if LC_ALL=C grep -aq '[^[:space:]]' < <(tail -c +$begin "$1"); then separators=$((separators + 1)); fi
  echo "$separators"
}

# whole_documents: true if the text has 20 documents or more, or files that cannot be cut.
whole_documents() {
  local file documents=0
  while IFS= read -r -d '' file; do
    case ${file,,} in *.jsonl | *.ndjson | *.json | *.gz | *.zst) return 0 ;; esac
    if [[ -d $text ]]; then file=$text/$file; fi
    documents=$((documents + $(documents_in "$file")))
    if [[ $documents -ge 20 ]]; then return 0; fi
  done < <(files_of "$text")
  return 1
}

# begins_character FILE BYTE: false if that byte (from 0) goes on with a character of UTF-8.
begins_character() { [[ $(od -An -tx1 -j "$2" -N 1 "$1") != \ [89ab]? ]]; }

# Only this folder is removed: whatever else is in $corpus is the user's.
scratch=$corpus/.text_corpus
rm -rf "$scratch"
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"
prepare=("$assay" data prepare --tokenizer "$scratch/tokenizer.json" -o "$corpus")
"$assay" tokenizer train "$text" --vocab-size 4096 -o "$scratch/tokenizer.json"
if [[ -e $corpus/tokenizer.json ]]; then
  cmp -s "$corpus/tokenizer.json" "$scratch/tokenizer.json" || foreign_tokenizer
fi
if whole_documents; then
  "${prepare[@]}" "$text"
else
  # A few long texts: the last twentieth of each becomes validation text.
  mkdir "$scratch/train" "$scratch/val"
  number=0
  while IFS= read -r -d '' file; do
    if [[ -d $text ]]; then file=$text/$file; fi
    number=$((number + 1))
    bytes=$(stat -L -c %s "$file")
    cut=$((bytes - bytes / 20))
    for _ in 1 2 3; do begins_character "$file" $cut || cut=$((cut - 1)); done
    head -c $cut "$file" >"$scratch/train/$(printf %02d $number).txt"
    tail -c +$((cut + 1)) "$file" >"$scratch/val/$(printf %02d $number).txt"
  done < <(files_of "$text")
  "${prepare[@]}" "$scratch/train" --val "$scratch/val"
fi
record_text "$text_hash" >"$record"
