#!/usr/bin/env bash
# Downloads shards of FineWeb10B in GPT-2 tokens: the validation shard and as many training shards as a run needs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

base=https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main
folder=data-cache/fineweb10B
last=103
shard_tokens=100000000
last_tokens=55324043
count="" tokens="" steps="" step_tokens=""
dry_run=no verify=no

usage() {
  cat <<TEXT
usage: bash tools/get_fineweb.sh [N | --tokens N | --steps N] [-o DIR] [--dry-run | --verify] [--base URL]
  N           number of training shards, from the first on, at most $last (default: 1); the validation shard is always
              downloaded too
  --tokens N  as many training shards as hold N tokens: 5e9, 5B, 100M, 5000000000
  --steps N   as many as N optimizer steps read once, each shard in whole steps, as with data.shuffle: false
  --tokens-per-step T
              run.batch_tokens of these steps (default: 524288)
  -o DIR      folder for the shards (default: $folder)
  --dry-run   only print the plan and what would be downloaded
  --verify    download nothing: read all shards in DIR, or those of N, again and compare them with DIR/SHA256SUMS
  --base URL  another address with files of the same names

A shard has 100,000,000 tokens in 200,001,024 bytes (the last one 55,324,043 tokens); there are 10,255,324,043 training
tokens, 19,485 steps of 524,288. An interrupted download resumes where it stopped. A file gets its final name only when
its header and its size agree, and its SHA-256 is the one that the server gives, if it gives one. DIR/SHA256SUMS
records every SHA-256; files that are there are compared with it. DIR/reference.json names the text of a validation
shard with the server's SHA-256: the presets' data.reference wants it. For the presets:
  bash tools/get_fineweb.sh --steps 9536       # models/presets/speedrun
  bash tools/get_gpt2.sh                       # the tokenizer of these shards
In a configuration:
  data: {train: [DIR/fineweb_train_*.bin], val: [DIR/fineweb_val_*.bin]}      # model.vocab_size: 50304
TEXT
}

help="bash tools/get_fineweb.sh --help"
while (($#)); do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --dry-run) dry_run=yes ;;
    --verify) verify=yes ;;
    --tokens|--steps|--tokens-per-step)
      (($# > 1)) || fail "$1 needs a number" "$help"
      case "$1" in --tokens) tokens=$2 ;; --steps) steps=$2 ;; *) step_tokens=$2 ;; esac
      shift ;;
    -o|--output) (($# > 1)) || fail "-o needs a folder" "$help"; folder=$2; shift ;;
    --base) (($# > 1)) || fail "--base needs an address" "$help"; base=${2%/}; shift ;;
    -*) fail "unknown option $1" "$help" ;;
    *) [[ -z $count ]] || fail "two numbers of shards: $count and $1" "give one number from 1 to $last"; count=$1 ;;
  esac
  shift
done
given="${count:+number of shards, }${tokens:+--tokens, }${steps:+--steps, }"
[[ $given != *,*,* ]] || fail "more than one size is given: ${given%, }" "give one of them"
[[ -z $step_tokens || -n $steps ]] || fail "--tokens-per-step is given without --steps" "add --steps N"
[[ $dry_run == no || $verify == no ]] || fail "--dry-run and --verify are given" "give one of them"

# whole TEXT WHAT: 5e9, 5B, 1.5M or digits as a whole number of at most 15 digits, rounded up.
whole() {
  local number=""
  if [[ $1 =~ ^[0-9]+(\.[0-9]+)?([eE]\+?[0-9]{1,2}|[kKmMbBgG])?$ ]]; then
    number=$(awk -v text="$1" 'BEGIN {
      scale["k"] = 1e3; scale["m"] = 1e6; scale["b"] = scale["g"] = 1e9
      unit = tolower(substr(text, length(text)))
      n = (unit in scale) ? substr(text, 1, length(text) - 1) * scale[unit] : text + 0
      if (n <= 1e15) printf "%.0f", n == int(n) ? n : int(n) + 1
    }')
    [[ -n $number ]] || fail "$2 $1 is more than the $(grouped $all_tokens) training tokens that exist" "$once_more"
  fi
  [[ -n $number && $number != 0 ]] || fail "$2 $1 is not a number" "for example 5e9, 5B, 100M or 5000000000"
  echo "$number"
}

all_tokens=$(((last - 1) * shard_tokens + last_tokens))
once_more="fetch all of them with: bash tools/get_fineweb.sh $last; a longer run reads them again"
what=""
if [[ -n $tokens ]]; then
  tokens=$(whole "$tokens" --tokens)
  ((tokens <= all_tokens)) ||
    fail "--tokens $(grouped "$tokens") is more than the $(grouped $all_tokens) training tokens that exist" "$once_more"
  count=$(((tokens + shard_tokens - 1) / shard_tokens))
  what="$(grouped "$tokens") tokens: "
elif [[ -n $steps ]]; then
  steps=$(whole "$steps" --steps)
  step_tokens=$(whole "${step_tokens:-524288}" --tokens-per-step)
  # A batch does not cross the end of a shard, and its last target is one token further (data/batch_order.h).
  a_shard=$(((shard_tokens - 1) / step_tokens))
  ((a_shard > 0)) ||
    fail "a step of $(grouped "$step_tokens") tokens does not fit in a shard of $(grouped $shard_tokens)" \
      "with data.shuffle: true, give the tokens of the run instead: --tokens N"
  all_steps=$(((last - 1) * a_shard + (last_tokens - 1) / step_tokens))
  ((steps <= all_steps)) ||
    fail "$(grouped "$steps") steps of $(grouped "$step_tokens") tokens are more than the $(grouped "$all_steps") that \
the $(grouped $all_tokens) training tokens hold" "$once_more"
  count=$(((steps + a_shard - 1) / a_shard))
  what="$(grouped "$steps") steps of $(grouped "$step_tokens") tokens, $(grouped "$a_shard") in a shard: "
fi
given=$count count=${count:-1}
[[ $count =~ ^[0-9]{1,3}$ ]] && ((10#$count >= 1 && 10#$count <= last)) ||
  fail "$count is not a possible number of training shards" "give a number from 1 to $last"
count=$((10#$count))
need curl

names=(fineweb_val_000000.bin)
for ((i = 1; i <= count; ++i)); do
  printf -v name 'fineweb_train_%06d.bin' "$i"
  names+=("$name")
done

# state FILE: prints "complete", "partial" (bytes are missing; the header is good or missing too) or
# what is wrong.
state() {
  local size magic version tokens
  size=$(bytes_of "$1")
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

tokens_of() { od -An -t d4 -j 8 -N 4 "$1" | tr -d ' '; }

# SHA256SUMS is a list for sha256sum -c, with a comment before each line: size and time of the file when it was read.
sums=$folder/SHA256SUMS
declare -A sum_of stamp_of
read_sums() {
  local first second third rest
  [[ -f $sums ]] || return 0
  while read -r first second third rest; do
    if [[ $first == "#" ]]; then
      stamp_of[$rest]="$second $third"
    elif [[ $first =~ ^[0-9a-f]{64}$ && -n $second ]]; then
      sum_of[${second#\*}]=$first
    fi
  done <"$sums"
}

stamp() { stat --format '%s %.Y' "$1"; }

# record NAME SHA256
record() {
  sum_of[$1]=$2 stamp_of[$1]=$(stamp "$folder/$1")
  {
    if [[ -f $sums ]]; then awk -v name="$1" '$NF != name && $NF != "*" name' "$sums"; fi
    printf '# %s %s\n%s  %s\n' "${stamp_of[$1]}" "$1" "$2" "$1"
  } >"$sums.part" || fail "cannot write $sums.part" "free some space and run the same command again"
  keep "$sums.part" "$sums"
}

# name_data NAME SHA256: writes DIR/reference.json, by which a run knows the text (data.reference). NAME is the
# validation shard, and SHA256 the one that the server gives.
reference=$folder/reference.json
name_data() {
  [[ $1 == fineweb_val_* ]] || return 0
  printf '{"name": "kjj0/fineweb10B-gpt2", "from": "%s", "sha256": {"%s": "%s"}}\n' "$base" "$1" "$2" \
    >"$reference.part" || fail "cannot write $reference.part" "free some space and run the same command again"
  keep "$reference.part" "$reference"
}

# check_existing NAME: an existing shard is the one that was recorded, or that the server has.
check_existing() {
  local name=$1 file=$folder/$1 found
  if [[ -n ${sum_of[$name]:-} && ${stamp_of[$name]:-} == "$(stamp "$file")" ]]; then
    if [[ $name == fineweb_val_* && ! -f $reference ]]; then
      look_up "$base/$name"
      [[ $remote_sha256 != "${sum_of[$name]}" ]] || name_data "$name" "$remote_sha256"
    fi
    echo "$name: already there"
    return
  fi
  found=$(sha256_of "$file")
  if [[ -z ${sum_of[$name]:-} ]]; then
    look_up "$base/$name"
    [[ -z $remote_sha256 || $remote_sha256 == "$found" ]] ||
      fail "$file has SHA-256 $found, the server's has $remote_sha256" "remove it and run the same command again"
    [[ -z $remote_sha256 ]] || name_data "$name" "$found"
  elif [[ $found != "${sum_of[$name]}" ]]; then
    fail "$file has SHA-256 $found, $sums says ${sum_of[$name]}" "remove it and run the same command again"
  fi
  record "$name" "$found"
  echo "$name: already there, SHA-256 ${found:0:16}"
}

get() {
  local name=$1 file=$folder/$1 part=$folder/$1.part found how
  if [[ ! -f $part || $(state "$part") != complete ]]; then
    echo "$name: downloading"
    fetch "$base/$name" "$part" || fail "the download failed: there is no $base/$name" "check the address"
  else
    look_up "$base/$name"
  fi
  found=$(state "$part")
  if [[ $found == partial ]]; then
    fail "$part has $(bytes_of "$part") bytes, fewer than its header says" \
      "run the same command again: it resumes where it stopped"
  elif [[ $found != complete ]]; then
    rm -f "$part"
    fail "$base/$name is not a shard: $found" "check the address"
  fi
  found=$(sha256_of "$part")
  how="recorded"
  if [[ -n $remote_sha256 ]]; then
    how="as the server says"
    if [[ $found != "$remote_sha256" ]]; then
      rm -f "$part"
      fail "$base/$name came with SHA-256 $found, the server says $remote_sha256" \
        "run the same command again; the file was not kept"
    fi
  fi
  if [[ -n ${sum_of[$name]:-} && $found != "${sum_of[$name]}" ]]; then
    rm -f "$part"
    fail "$base/$name has SHA-256 $found, $sums says ${sum_of[$name]}" \
      "the file was not kept; if the server's is the one you want, remove the line of $name from $sums"
  fi
  keep "$part" "$file"
  record "$name" "$found"
  [[ -z $remote_sha256 ]] || name_data "$name" "$found"
  job_done=$((job_done + $(bytes_of "$file")))
  echo "$name: $(tokens_of "$file") tokens, SHA-256 ${found:0:16} $how; $(progress 0)"
}

verify_all() {
  local name found wrong=0 path
  if [[ -z $given ]]; then
    names=()
    for path in "$folder"/fineweb_{val,train}_??????.bin; do if [[ -f $path ]]; then names+=("${path##*/}"); fi; done
    ((${#names[@]} > 0)) || fail "$folder has no shards" "bash tools/get_fineweb.sh --help"
  fi
  for name in "${names[@]}"; do
    if [[ ! -f $folder/$name ]]; then
      found="is not there"
    elif found=$(state "$folder/$name"); [[ $found == partial ]]; then
      found="has $(bytes_of "$folder/$name") bytes, fewer than its header says"
    elif [[ $found == complete ]]; then
      found=$(sha256_of "$folder/$name")
      if [[ $found == "${sum_of[$name]:-}" ]]; then
        echo "$name: ok, SHA-256 ${found:0:16}"
        continue
      fi
      found="has SHA-256 $found, SHA256SUMS says ${sum_of[$name]:-nothing of it}"
    fi
    echo "$name: $found"
    wrong=$((wrong + 1))
  done
  ((wrong == 0)) || fail "$wrong of ${#names[@]} shards in $folder are not as recorded" \
    "remove those that are damaged and run the same command without --verify"
  echo "$folder: ${#names[@]} shards are as recorded"
}

read_sums
if [[ $verify == yes ]]; then
  verify_all
  exit 0
fi

# The plan.
present=() missing=() to_come=0
for name in "${names[@]}"; do
  if [[ -f $folder/$name ]]; then
    found=$(state "$folder/$name")
    [[ $found != partial ]] || found="$(bytes_of "$folder/$name") bytes, fewer than its header says"
    [[ $found == complete ]] || fail "$folder/$name is damaged: $found" "remove it and run the same command again"
    present+=("$name")
    job_done=$((job_done + $(bytes_of "$folder/$name")))
  else
    missing+=("$name")
    wanted=$((1024 + 2 * shard_tokens)) came=0
    if [[ $name == *_000$last.bin ]]; then wanted=$((1024 + 2 * last_tokens)); fi
    if [[ -f $folder/$name.part ]]; then came=$(bytes_of "$folder/$name.part"); fi
    job_bytes=$((job_bytes + wanted))
    to_come=$((to_come + (came < wanted ? wanted - came : 0)))
  fi
done
job_bytes=$((job_bytes + job_done)) job_had=$((job_bytes - to_come))
free=$(free_bytes "$folder")
cat <<TEXT
plan: ${what}$count of $last training shards and the validation shard, $(size_text "$job_bytes")
  $folder has ${#present[@]} of ${#names[@]} files; $(size_text "$to_come") to download, $(size_text "$free") free
TEXT
if [[ $dry_run == yes ]]; then
  for name in "${present[@]}"; do echo "$name: already there"; done
  for name in "${missing[@]}"; do echo "would download $base/$name"; done
  ((to_come <= free)) || echo "$(size_text $((to_come - free))) of disk space are missing"
  exit 0
fi
((to_come <= free)) ||
  fail "the download needs $(size_text "$to_come"), but only $(size_text "$free") are free for $folder" \
    "free $(size_text $((to_come - free))), choose another folder with -o DIR, or fewer shards"

make_folder "$folder"
for name in "${present[@]}"; do check_existing "$name"; done
job_began=$SECONDS
for name in "${missing[@]}"; do get "$name"; done
echo "$folder: ${#names[@]} shards, every SHA-256 is in SHA256SUMS"
if [[ ! -f $reference ]]; then
  echo "the server gives no SHA-256: data.reference of the presets refuses these shards; --set data.reference=any accepts them"
fi
