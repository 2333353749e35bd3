#!/usr/bin/env bash
# Downloads shards of FineWeb10B in GPT-2 tokens: the validation shard and the first N training shards.
set -euo pipefail

base=https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main
folder=data-cache/fineweb10B
last=103
count=""
dry_run=no

usage() {
  cat <<TEXT
usage: bash tools/get_fineweb.sh [N] [-o DIR] [--dry-run] [--base URL]
  N           number of training shards, from the first on, at most $last (default: 1); the validation shard is always
              downloaded too
  -o DIR      folder for the shards (default: $folder)
  --dry-run   only print what would be downloaded
  --base URL  another address with files of the same names

A shard has 100,000,000 tokens in 200,001,024 bytes (the last one 55,324,043 tokens). Existing files are checked and
kept; an interrupted download resumes where it stopped. A file gets its final name only when its header and its size
agree. In a configuration:
  data: {train: [DIR/fineweb_train_*.bin], val: [DIR/fineweb_val_*.bin]}      # model.vocab_size: 50304
TEXT
}

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

while (($#)); do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --dry-run) dry_run=yes ;;
    -o|--output) (($# > 1)) || fail "-o needs a folder" "bash tools/get_fineweb.sh --help"; folder=$2; shift ;;
    --base) (($# > 1)) || fail "--base needs an address" "bash tools/get_fineweb.sh --help"; base=${2%/}; shift ;;
    -*) fail "unknown option $1" "bash tools/get_fineweb.sh --help" ;;
    *) [[ -z $count ]] || fail "two numbers of shards: $count and $1" "give one number from 1 to $last"; count=$1 ;;
  esac
  shift
done
count=${count:-1}
[[ $count =~ ^[0-9]{1,3}$ ]] && ((10#$count >= 1 && 10#$count <= last)) ||
  fail "$count is not a possible number of training shards" "give a number from 1 to $last"
command -v curl >/dev/null || fail "curl is not installed" "apt-get install curl ca-certificates"

# state FILE: prints "complete", "partial" (bytes are missing; the header is good or missing too) or
# what is wrong.
state() {
  local size magic version tokens
  size=$(stat -c %s "$1")
  if ((size < 1024)); then echo partial; return; fi
  read -r magic version tokens < <(od -An -t d4 -N 12 "$1" | tr -s ' \n' ' ')
  if ((magic != 20240520 || version != 1)); then
    echo "magic $magic, version $version; a shard has 20240520, 1"
  elif ((size < 1024 + 2 * tokens)); then
    echo partial
  elif ((size > 1024 + 2 * tokens)); then
    echo "$size bytes, but the header says $tokens tokens = $((1024 + 2 * tokens)) bytes"
  else
    echo complete
  fi
}

get() {
  local name=$1 file=$folder/$1 part=$folder/$1.part found
  if [[ -f $file ]]; then
    found=$(state "$file")
    [[ $found == complete ]] || fail "$file is damaged: $found" "remove it and run the same command again"
    echo "$name: already there"
    return
  fi
  if [[ $dry_run == yes ]]; then
    echo "would download $base/$name"
    return
  fi
  mkdir -p "$folder" || fail "cannot create the folder $folder" "choose another folder with -o DIR"
  local show=(--silent --show-error)
  if [[ -t 2 ]]; then show=(--progress-bar); fi
  if [[ ! -f $part || $(state "$part") != complete ]]; then
    echo "$name: downloading"
    curl --fail --location --retry 5 --retry-delay 2 --continue-at - "${show[@]}" --output "$part" "$base/$name" ||
      fail "the download of $base/$name failed" "run the same command again: it resumes where it stopped"
  fi
  found=$(state "$part")
  if [[ $found == partial ]]; then
    fail "$part has $(stat -c %s "$part") bytes, fewer than its header says" \
      "run the same command again: it resumes where it stopped"
  elif [[ $found != complete ]]; then
    rm -f "$part"
    fail "$base/$name is not a shard: $found" "check the address"
  fi
  mv "$part" "$file"
  echo "$name: $(od -An -t d4 -j 8 -N 4 "$file" | tr -d ' ') tokens"
}

get fineweb_val_000000.bin
for ((i = 1; i <= 10#$count; ++i)); do
  get "$(printf 'fineweb_train_%06d.bin' "$i")"
done
