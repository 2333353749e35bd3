#!/usr/bin/env bash
# The demonstration: trains a mixture of experts, a dense model with as many active parameters and a
# dense model with as many total parameters on the same tokens, and prints one table. Installs
# packages and builds first. When run again, finished runs are kept and interrupted ones resume.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: bash tools/demo.sh [--text FILE] [--long] [--seeds N] [--fresh] [--skip-setup]
  --text FILE   train on your text (documents end with <|endoftext|>, or .jsonl with a "text" field) instead of
                generated stories
  --long        train longer: about 40 minutes instead of about 6
  --seeds N     train every model with N seeds; the table then shows means, spreads and differences (default 1)
  --fresh       delete the demonstration's runs and start over
  --skip-setup  install nothing, for systems without apt
Runs go to runs/demo-*, corpora to data-cache/.
TEXT
}

text='' long=no seeds=1 setup=yes
train_options=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --text) text=${2:?--text needs a FILE}; shift 2 ;;
    --long) long=yes; shift ;;
    --seeds) seeds=${2:?--seeds needs a number}; shift 2 ;;
    --fresh) train_options+=(--fresh); shift ;;
    --skip-setup) setup=no; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown argument $1" >&2; usage >&2; exit 1 ;;
  esac
done
fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }
if [[ ! $seeds =~ ^[1-9][0-9]?$ ]]; then fail "--seeds $seeds is not a number from 1 to 99" "for example --seeds 3"; fi
if [[ -n $text && ! -f $text ]]; then fail "$text: no such file" "give the path of a text or .jsonl file"; fi
if [[ -n $text && ! -s $text ]]; then fail "$text is empty" "give a file with at least a few hundred kilobytes of text"; fi

presets=models/presets/cpu
models=(dense-active moe dense-total)
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

if [[ $setup == yes ]]; then
  say "packages"
  bash tools/setup.sh --no-tests
fi
say "build"
mkdir -p build
if ! { cmake --preset release && cmake --build build --target assay --parallel "$(nproc)"; } >build/demo-build.log 2>&1; then
  tail -40 build/demo-build.log
  fail "the build failed" "all of its output is in build/demo-build.log"
fi
assay=build/assay
began=$SECONDS

# Prefix of the runs, and changes to the presets.
prefix=runs/demo
sets=()
if [[ $long == yes ]]; then
  prefix+=-long
  sets+=(--set run.steps=5000 --set schedule.warmdown=1500 --set run.checkpoint_every=1000)
fi
say "corpus"
if [[ -n $text ]]; then
  name=$(basename "$text" | sed 's/\.[^.]*$//' | tr -c 'A-Za-z0-9\n' '-' | cut -c1-24)-$(sha256sum "$text" | cut -c1-8)
  prefix+=-$name
  corpus=data-cache/$name
  bash tools/text_corpus.sh "$text" "$corpus" "$assay"
  here=$(pwd)
  sets+=(--set data.synth=null --set "data.tokenizer=$here/$corpus/tokenizer.json"
    --set "data.train=['$here/$corpus/corpus_train_*.bin']" --set "data.val=['$here/$corpus/corpus_val_*.bin']")
else
  if [[ $long == yes ]]; then sets+=(--set data.synth.train_tokens=20500000); fi
  corpus=$("$assay" data synth "$presets/moe.yaml" "${sets[@]}" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["folder"])')
fi
echo "$corpus"

say "audit"
configs=()
for model in "${models[@]}"; do configs+=("$presets/$model.yaml"); done
"$assay" audit "${configs[@]}" "${sets[@]}"

run_name() { if [[ $2 == 1 ]]; then echo "$prefix-$1"; else echo "$prefix-$1-seed$2"; fi; }
for ((seed = 1; seed <= seeds; ++seed)); do
  for model in "${models[@]}"; do
    say "train $model, seed $seed"
    "$assay" train "$presets/$model.yaml" --run "$(run_name "$model" "$seed")" "${sets[@]}" --set "run.seed=$seed" \
      ${train_options[@]+"${train_options[@]}"}
  done
done

say "scale: n-gram models on the same text"
eval_tokens=$(sed -n 's/^eval:.*tokens: *\([0-9]*\).*/\1/p' models/presets/family/cpu.yaml)
"$assay" data ngrams "$corpus" --val-tokens "${eval_tokens:-65536}" --json >"$prefix-ngrams.json"
"$assay" audit "${configs[@]}" "${sets[@]}" --json >"$prefix-audit.json"

say "result"
table=(python3 tools/demo_table.py --audit "$prefix-audit.json" --ngrams "$prefix-ngrams.json")
page=("$assay" report -o "$prefix.html")
for model in "${models[@]}"; do
  for ((seed = 1; seed <= seeds; ++seed)); do
    table+=(--run "$model=$(run_name "$model" "$seed")")
    page+=("$(run_name "$model" "$seed")")
  done
done
"${table[@]}" | tee "$prefix-table.txt"
echo
"${page[@]}"
echo "runs: $prefix-*    this table: $prefix-table.txt    a page to open: $prefix.html    $((SECONDS - began)) s after the build"
