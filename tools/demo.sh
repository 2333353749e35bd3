#!/usr/bin/env bash
# The demonstration: trains a mixture of experts, a dense model with as many active parameters and a
# dense model with as many total parameters on the same tokens, and shows what came out: a table, a
# text of each model, a page. Installs packages and builds first. When run again, finished runs are
# kept and interrupted ones resume.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tools/demo.sh [--text PATH] [--quick | --long] [--seeds N] [--fresh]
                          [--skip-setup] [--skip-build]

Builds build/assay and trains three small language models on the same text: a
mixture of experts, a dense model with as many active parameters, and one with
as many total parameters. Then it shows a table, a text that each model wrote,
and a page of curves. After Ctrl-C the same command resumes.

  --text PATH    train on your text instead of generated stories: a file or a
                 folder of *.txt, *.md, *.jsonl, also .gz and .zst; documents
                 end with <|endoftext|>, in JSONL they are the field "text"
  --quick        train for 60 steps instead of 720, to see all of it in about a
                 minute; the losses mean little then. Runs: runs/demo-quick-*
  --long         train for 5000 steps: about 40 minutes instead of about 6
  --seeds N      train every model with N seeds; the table then shows means,
                 spreads and differences (default: 1)
  --fresh        delete the demonstration's runs and start over
  --skip-setup   install nothing, for systems without apt
  --skip-build   use build/assay as it is; installs nothing either

Runs go to runs/demo-*, corpora to data-cache/. Times are those of two cores
with AMX or AVX512-BF16; with AVX2 alone it takes many times as long.
TEXT
}

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

text='' size=standard seeds=1 setup=yes build=yes
train_options=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --text | --seeds)
      [[ -n ${2:-} ]] || fail "$1 needs a value" "bash tools/demo.sh --help"
      declare "${1#--}=$2"
      shift 2 ;;
    --quick | --long) size=${1#--}; shift ;;
    --fresh) train_options+=(--fresh); shift ;;
    --skip-setup) setup=no; shift ;;
    --skip-build) setup=no build=no; shift ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown argument $1" "bash tools/demo.sh --help lists them" ;;
  esac
done
if [[ -n $text ]]; then text=$(realpath -ms -- "$text"); fi  # of the caller's folder
cd "$(dirname "$0")/.."
if [[ ! $seeds =~ ^[1-9][0-9]?$ ]]; then fail "--seeds $seeds is not a number from 1 to 99" "for example --seeds 3"; fi
if [[ -n $text && ! -e $text ]]; then fail "$text: no such file or folder" "give the path of a text or .jsonl file, or of a folder of them"; fi
if [[ -f $text && ! -s $text ]]; then fail "$text is empty" "give a file with at least a few hundred kilobytes of text"; fi

assay=build/assay
presets=models/presets/cpu
models=(dense-active moe dense-total)
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

# build_progress LOG: keeps all output in LOG; on a terminal shows how far the build is.
build_progress() {
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ -t 2 && $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      printf '\r%s of %s files' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" >&2
    fi
  done >"$1"
  if [[ -t 2 ]]; then printf '\r%30s\r' '' >&2; fi
}

if [[ $setup == yes ]]; then
  say "packages"
  bash tools/setup.sh --no-tests
fi
if [[ $build == yes ]]; then
  say "build (the first time takes minutes)"
  mkdir -p build
  if ! { cmake --preset release && cmake --build build --target assay --parallel "$(nproc)"; } 2>&1 |
    build_progress build/demo-build.log; then
    tail -40 build/demo-build.log
    fail "the build failed" "all of its output is in build/demo-build.log"
  fi
elif [[ ! -x $assay ]]; then
  fail "$assay does not exist" "leave out --skip-build"
fi
began=$SECONDS
if [[ $size != quick ]] && "$assay" doctor --quick --json | grep -q '"recipe_of_auto": *"fp32"'; then
  echo "This CPU, or this build, has no fast bf16, so models train in fp32, which takes several"
  echo "times as long. To see all of it soon: bash tools/demo.sh --quick --skip-setup"
fi

# Prefix of the runs, and changes to the presets.
prefix=runs/demo
sets=()
case $size in
  quick)
    prefix+=-quick
    sets+=(--set run.steps=60 --set schedule.warmup=10 --set schedule.warmdown=20 --set eval.every=30
      --set telemetry.window=20) ;;  # the verdict on a router needs a whole window
  long)
    prefix+=-long
    sets+=(--set run.steps=5000 --set schedule.warmdown=1500 --set run.checkpoint_every=1000) ;;
esac

say "corpus"
prompt=()
if [[ -n $text ]]; then
  name=$(bash tools/text_corpus.sh --name "$text")
  prefix+=-$name
  corpus=data-cache/$name
  bash tools/text_corpus.sh "$text" "$corpus" "$assay"
  here=$(pwd)
  here=${here//\'/\'\'}  # as YAML quotes it
  sets+=(--set data.synth=null --set data.shuffle=true --set "data.tokenizer='$here/$corpus/tokenizer.json'"
    --set "data.train=['$here/$corpus/corpus_train_*.bin']" --set "data.val=['$here/$corpus/corpus_val_*.bin']")
else
  prompt=(--prompt "Once upon a time")
  if [[ $size == long ]]; then sets+=(--set data.synth.train_tokens=20500000); fi
  corpus=$("$assay" data synth "$presets/moe.yaml" "${sets[@]}" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["folder"])')
fi
echo "$corpus"

configs=()
for model in "${models[@]}"; do configs+=("$presets/$model.yaml"); done
mkdir -p runs
"$assay" audit "${configs[@]}" "${sets[@]}" --json >"$prefix-audit.json"
say "three models"
python3 tools/demo_table.py --audit "$prefix-audit.json"
echo "more: $assay audit $presets/*.yaml"

run_name() { if [[ $2 == 1 ]]; then echo "$prefix-$1"; else echo "$prefix-$1-seed$2"; fi; }
# The page of all runs that are trained so far.
page() { "$assay" report "$@" -o "$prefix.html"; }

trained=()
for ((seed = 1; seed <= seeds; ++seed)); do
  for model in moe dense-active dense-total; do
    run=$(run_name "$model" "$seed")
    say "train $model, seed $seed ($((${#trained[@]} + 1)) of $((3 * seeds)))"
    "$assay" train "$presets/$model.yaml" --run "$run" "${sets[@]}" --set "run.seed=$seed" \
      ${train_options[@]+"${train_options[@]}"}
    trained+=("$run")
    if [[ ${#trained[@]} == 1 ]]; then
      page "${trained[@]}"
      echo "Open it in a browser while the others train; at the end it has all runs."
    fi
  done
done

say "n-gram models on the same text, for scale"
eval_tokens=$(sed -n 's/^eval:.*tokens: *\([0-9]*\).*/\1/p' models/presets/family/cpu.yaml)
"$assay" data ngrams "$corpus" --val-tokens "${eval_tokens:-65536}" --json >"$prefix-ngrams.json"

say "result"
table=(python3 tools/demo_table.py --audit "$prefix-audit.json" --ngrams "$prefix-ngrams.json"
  --compare "$prefix-compare.json")
runs=()
for model in "${models[@]}"; do
  for ((seed = 1; seed <= seeds; ++seed)); do
    table+=(--run "$model=$(run_name "$model" "$seed")")
    runs+=("$(run_name "$model" "$seed")")
  done
done
"$assay" compare "${runs[@]}" --json >"$prefix-compare.json"
"${table[@]}" | tee "$prefix-table.txt"
page "${runs[@]}" >/dev/null

echo
echo "What they write${prompt[1]+ after \"${prompt[1]}\"}:"
sample_log=$prefix-sample.log  # of interest only if it fails
for model in "${models[@]}"; do
  echo "$model:"
  if ! written=$("$assay" sample "$(run_name "$model" 1)" ${prompt[@]+"${prompt[@]}"} --tokens 60 --json </dev/null 2>"$sample_log"); then
    cat "$sample_log" >&2
    exit 1
  fi
  python3 -c 'import json, sys, textwrap
text = json.load(sys.stdin)["texts"][0]
for line in textwrap.wrap((text["prompt"] + text["text"]).strip(), 76): print("  " + line)' <<<"$written"
done
rm -f "$sample_log"

# The runs in one word, as bash expands it.
these="$prefix-{$(IFS=,; echo "${models[*]}")}"
if [[ $seeds -gt 1 ]]; then
  others=$(seq -f "-seed%g" -s, 2 "$seeds")
  these+="{,$others}"
fi
cat <<TEXT

A page with curves and routers, for a browser: $prefix.html
The table again: $prefix-table.txt    ($((SECONDS - began)) s after the build)

Next:
  # continue what you type
  $assay sample $prefix-moe --interactive
  # did the mixture use its experts?
  $assay router $prefix-moe
  # what may be concluded from the losses?
  $assay compare $these
TEXT
