#!/usr/bin/env python3
"""Bad input: exit 1, one line `error:` with the value, one line `hint:`, and nothing lost or
changed."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import bad_input
from bad_input import NO_TOKENIZER, config_text, evaluating, moe
from harness import ASSAY, checkpoints

FOLDER = tempfile.TemporaryDirectory(prefix="assay-errors-")
WORK = pathlib.Path(FOLDER.name)
failures = []

# A name, the text of a configuration, and what error and hint must contain.
CONFIGS = [
    ("unknown key", config_text(model="{hiden: 64}"), "unknown key hiden in model", "did you mean hidden"),
    ("unknown section", config_text(modell="{}"), "unknown key modell at the top level", "did you mean model"),
    ("another program's name", config_text(model="{moe: {shared_experts: 1}}"),
     "unknown key shared_experts in model.moe", "did you mean model.moe.shared?"),
    ("misplaced key", config_text(optimizer="{hidden: 64}"), "misplaced key hidden in optimizer", "model.hidden"),
    ("duplicate key", config_text(model="{hidden: 64, hidden: 128}"), "duplicate key model.hidden", "keep one"),
    ("duplicate section", config_text() + "run: {steps: 7}\n", "duplicate key run", "keep one"),
    ("word for a number", config_text(model="{hidden: wide}"), "model.hidden is", "--help-config"),
    ("fraction for an integer", config_text(model="{hidden: 64.5}"), "64.5", "--help-config"),
    ("text for a number", config_text(model='{hidden: "64"}'), 'model.hidden is "64"', "--help-config"),
    ("list for a section", config_text(model="[64]"), "model is a list", ""),
    ("number for a list", config_text(data="{train: {}}"), "data.train is a section", ""),
    ("number for a flag", config_text(data="{mask_eos: 3}"), 'data.mask_eos is "3", not true or false', ""),
    ("not YAML", "model: {hidden: 64\n", "config.yaml", ""),
    ("not a map", "- 1\n- 2\n", "config.yaml", ""),
    ("binary", "\x00\x01\x02", "config.yaml", ""),
    ("include that is missing", "include: nowhere.yaml\n", "nowhere.yaml", ""),
    ("include of itself", "include: config.yaml\n", "config.yaml", ""),
    ("NaN", config_text(optimizer="{lr: .nan}"), "optimizer.lr = .nan is not a finite number", ""),
    ("infinity", config_text(optimizer="{lr: .inf}"), "optimizer.lr = .inf is not a finite number", ""),
    ("negative rate", config_text(optimizer="{lr: -1}"), "optimizer.lr = -1", ""),
    ("negative decay", config_text(optimizer="{weight_decay: -0.1}"), "optimizer.weight_decay = -0.1", ""),
    ("muon for adamw", config_text(optimizer="{muon: {momentum: 0.9}}"),
     "optimizer.muon is given, but optimizer.kind is adamw", "optimizer.kind: muon"),
    ("muon with bf16 state", config_text(optimizer="{kind: muon, state: bf16}"),
     "optimizer.kind is muon, but optimizer.state is bf16", "optimizer.state: fp32"),
    ("beta of one", config_text(optimizer="{beta1: 1}"), "optimizer.beta1 = 1", ""),
    ("negative steps", config_text(run="{steps: -5}"), "run.steps = -5", ""),
    ("negative threads", config_text(run="{threads: -1}"), "run.threads = -1", ""),
    ("no layers", config_text(model="{layers: 0}"), "model.layers = 0", ""),
    ("too large for 64 bits", config_text(run="{steps: 99999999999999999999}"), "99999999999999999999", ""),
    ("negative target", config_text(run="{target_loss: -2}"), "run.target_loss = -2", ""),
    ("negative warmup", config_text(schedule="{warmup: -1}"), "schedule.warmup = -1", ""),
    ("long warmup", config_text(schedule="{warmup: 70}"), "is more than run.steps = 6", "shorten"),
    ("top_k > experts", config_text(model=moe("experts: 4, top_k: 5, expert_ffn: 32")),
     "top_k = 5 is more than model.moe.experts = 4", "once"),
    ("negative aux", config_text(model=moe("experts: 4, router: {aux: switch, aux_alpha: -1}")),
     "aux_alpha = -1", ""),
    ("unknown score", config_text(model=moe("experts: 4, router: {score: tanh}")), "tanh", "softmax"),
    ("heads", config_text(model="{hidden: 64, heads: 3}"), "model.heads = 3 does not divide model.hidden = 64", ""),
    ("head width", config_text(model="{hidden: 48, heads: 2}"), "48 / 2 = 24 is not 32, 64 or 128", ""),
    ("kv heads", config_text(model="{hidden: 128, heads: 4, kv_heads: 3}"), "model.kv_heads = 3", ""),
    ("batch", config_text(run="{batch_tokens: 1000, sequence: 64, micro_batch: 4}"),
     "run.batch_tokens = 1000 is not a multiple", "micro-batches"),
    ("no data", config_text(data=None), "data.train is not given", "data prepare"),
    ("no validation list", config_text(data="{train: ['c/*_train_*.bin'], val: null}"),
     "data.val is null; expected a list of paths", "val: [shards/*.bin]"),
    ("mixture of another length", config_text(data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], mixture: [1, 2]}"),
     "data.mixture has 2 weights, data.train has 1 entries", "each entry one weight"),
    ("weight of nothing", config_text(data="{train: ['c/*_train_*.bin'], mixture: [0]}"), "data.mixture = 0.0", "> 0"),
    ("weight that is no number", config_text(data="{train: ['c/*_train_*.bin'], mixture: [half]}"), "data.mixture", "--help-config"),
    ("weight that is never drawn", config_text(
        data="{train: [large_id.bin, 'c/*_train_*.bin'], val: ['c/*_val_*.bin'], mixture: [1e-15, 1]}"),
     "weight 1e-15 of 1 in all is too small", "raise its weight"),
    ("file in two sources", config_text(
        data="{train: ['c/*_train_*.bin', 'c/*.bin'], val: ['c/*_val_*.bin'], mixture: [1, 1]}"),
     "corpus_train_000001.bin is in two sources of data.mixture, *_train_*.bin and *.bin", "one entry"),
    ("source of one short document", config_text(
        data="{train: ['c/*_train_*.bin', 'one/*_train_*.bin'], val: ['c/*_val_*.bin'], mixture: [1, 1]}"),
     "one/*_train_*.bin is shorter than a sequence", "run.sequence"),
    ("mixture of generated text", config_text(data="{synth: {vocab_size: 300}, mixture: [1]}"),
     "data.mixture and data.synth are both given", "remove one"),
    ("a folder of shards", config_text(data="{train: [c], val: ['c/*_val_*.bin']}"), "c is a folder", "c/*_train_*.bin"),
    ("a folder of validation shards", config_text(data="{train: ['c/*_train_*.bin'], val: [c]}"), "c is a folder", "c/*_val_*.bin"),
    ("shards shorter than a sequence", config_text(
        data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], shuffle: true}",
        run="{batch_tokens: 16384, sequence: 16384, micro_batch: 1}", eval="{tokens: 16384}"),
     "the training data is shorter than a batch", "a smaller run.sequence"),
    ("shards of another tokenizer", config_text(
        data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], tokenizer: tok290.json}"),
     "c/manifest.json was written with another tokenizer (300 tokens, SHA-256 ", "data.check_tokenizer=false"),
    ("validation of another tokenizer", config_text(
        data="{train: ['c/*_train_*.bin'], val: ['other/*_val_*.bin'], tokenizer: c/tokenizer.json}"),
     "other/manifest.json was written with another tokenizer (290 tokens, SHA-256 ", "data.check_tokenizer=false"),
    ("two tokenizers and none given", config_text(
        data="{train: ['c/*_train_*.bin', 'other/*_train_*.bin'], val: ['c/*_val_*.bin'], mixture: [1, 1]}"),
     "other/manifest.json was written with another tokenizer (290 tokens, SHA-256 ", "data.check_tokenizer=false"),
    ("GPT-2's tokenizer that is missing", config_text(
        data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], tokenizer: cache/gpt2}"),
     "cache/gpt2: there is no such folder", "bash tools/get_gpt2.sh"),
    ("more passes than allowed", config_text(data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], max_epochs: 0.001}"),
     " passes over the training data, more than data.max_epochs = 0.001", "--set data.max_epochs=0"),
    ("a target of another text", config_text(
        data=f"{{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], reference: {'0' * 64}}}"),
     "data.reference is " + "0" * 64 + ", but ", "--set data.reference=any --set run.target_loss=0"),
    ("a target of a text without a name", config_text(
        data="{train: ['c/*_train_*.bin'], val: ['c/*_val_*.bin'], reference: kjj0/fineweb10B-gpt2}"),
     "c/reference.json is missing, which would say what the data is", "bash tools/get_fineweb.sh"),
    ("CORE without a bundle", evaluating("core", "every: 2"),
     "eval.core has no bundle", "tools/get_core.sh"),
    ("CORE of a bundle that is missing", evaluating("core", "bundle: nowhere"),
     "nowhere/core.yaml", ""),
    ("CORE of longer prompts", evaluating("core", "bundle: nowhere, max_tokens: 65"),
     "eval.core.max_tokens = 65 is more than run.sequence = 64", "assay eval --max-tokens"),
    ("CORE without a tokenizer", evaluating("core", "bundle: nowhere", data=NO_TOKENIZER),
     "eval.core is set, but there is no tokenizer", "data.tokenizer"),
    ("samples of nothing", evaluating("samples", "tokens: 8"),
     "eval.samples has neither prompts nor file", "prompts: [Once upon a time]"),
    ("samples of two kinds", evaluating("samples", "prompts: [a], file: text.txt"),
     "eval.samples.prompts and eval.samples.file are both given", "one prompt per line"),
    ("samples of an empty prompt", evaluating("samples", 'prompts: [a, ""]'),
     "eval.samples.prompts has an empty text", ""),
    ("samples of a file that is missing", evaluating("samples", "file: nowhere.txt"),
     "cannot read", ""),
    ("samples of a long prompt", evaluating("samples", f"prompts: [a, {'x y ' * 40}]"),
     "eval.samples: prompt 2 has ", "shorter"),
    ("samples without a tokenizer", evaluating("samples", "prompts: [a]", data=NO_TOKENIZER),
     "eval.samples is set, but there is no tokenizer", "data.tokenizer"),
    ("contract without a coefficient", config_text(contract="{kind: totalDN}"),
     "contract.kind is totalDN but contract.coefficient is not given", "contract.reference"),
    ("coefficient and reference", config_text(contract="{kind: flops, coefficient: 1e9, reference: good.yaml}"),
     "are both given", "remove one"),
    ("fraction beyond the run", config_text(contract="{fraction: 1.2}"), "contract.fraction = 1.2", "in (0, 1]"),
    ("landing beyond the horizon", config_text(contract="{landings: [0.5, 1.2]}"), "contract.landings = 1.2", "(0, 1]"),
    ("landing beyond the run", config_text(contract="{fraction: 0.5, landings: [0.2, 0.9]}"),
     "contract.landings has 0.9, but the run ends at contract.fraction = 0.5", "train further"),
    ("contract of no step", config_text(contract="{kind: activeDN, coefficient: 1e-9}"),
     "ends before one step of 256 tokens", "raise contract.coefficient"),
    ("contract of another width", config_text(contract="{kind: active-width, coefficient: 100}"),
     "active FFN width of 100, this one has ffn = 64", "model.ffn"),
    ("contract of endless steps", config_text(contract="{kind: seconds, coefficient: 1e15, step_seconds: 1e-30}"),
     "does not fit", ""),
    ("warm-up beyond the horizon", config_text(contract="{kind: activeDN, coefficient: 0.02}", schedule="{warmup: 70}"),
     "schedule.warmup + schedule.warmdown = 70 + 0 is more than run.steps = ", "shorten"),
    ("two warm-ups", config_text(schedule="{warmup: 1, warmup_fraction: 0.1}"), "are both given", "warmup_fraction: null"),
    ("reference that is missing", config_text(contract="{kind: flops, reference: gone.yaml}"), "there is no ", "relative"),
    ("reference that is no configuration", config_text(contract="{kind: flops, reference: text.txt}"), "text.txt", ""),
    ("reference that is no run", config_text(contract="{kind: flops, reference: folder}"), "is not a run", "train"),
    ("reference to itself", config_text(contract="{kind: flops, reference: config.yaml}"),
     "its own contract flops needs a reference", ""),
    ("seconds of a configuration", config_text(contract="{kind: seconds, reference: good.yaml}"),
     "has no seconds of training", "a run"),
    ("unknown recipe", config_text(precision="{recipe: fp12}"), "fp12", "bf16"),
    ("override of an unknown role", config_text(precision="{recipe: mxfp8, override: [expert=bf16]}"),
     "precision.override 'expert=bf16': no role, product or operand 'expert'", "experts"),
    ("override with an unknown format", config_text(precision="{recipe: mxfp8, override: [experts=fp4]}"),
     "precision.override 'experts=fp4': no format 'fp4'", "nvfp4"),
    ("override of the head", config_text(precision="{recipe: mxfp8, override: [head=mxfp8]}"),
     "the head is not quantised by any recipe", "attention"),
    ("override in fp32", config_text(precision="{recipe: fp32, override: [attention=mxfp8]}"),
     "precision.override with recipe fp32", "bf16"),
    ("one operand rotated", config_text(precision="{recipe: bf16, override: [wgrad.input=nvfp4+rht]}"),
     "only one operand is rotated", "both or none"),
    ("blocks that do not fit", config_text(precision="{recipe: fp8_block}"),
     "attention.fprop in fp8_1x128 needs blocks of 128 along model.hidden = 64", "multiple of 128"),
]

# Training shards: a name, the pattern, and what error and hint must contain.
SHARDS = [
    ("missing", "c/nothing_*.bin", "no file matches", "path"),
    ("a folder", "c", "is a folder", "*.bin"),
    ("cut short", "cut.bin", "cut.bin has", "prepare"),
    ("only a header", "header.bin", "header.bin is not a shard: 100 bytes", "prepare"),
    ("wrong magic", "magic.bin", "magic.bin is not a shard: magic 1234", "prepare"),
    ("wrong version", "version.bin", "version.bin has version 9", "prepare"),
    ("negative length", "negative.bin", "negative.bin has", "prepare"),
    ("no tokens", "no_tokens.bin", "shorter than a batch", "run.sequence"),
    ("one short document", "one/*.bin", "shorter than a batch", "run.sequence"),
    ("id outside the vocabulary", "large_id.bin", "token 500 has id 320, the vocabulary has 320", "model.vocab_size"),
    ("text", "text.txt", "(it looks like text)", "text becomes shards"),
    ("JSON", "list.jsonl", "list.jsonl is not a shard: 22 bytes, but the header alone has 1024 (it looks like JSON)",
     "text becomes shards"),
]

PREPARE = ["data", "prepare", "--tokenizer", "tok.json", "-o", "out"]
TRAIN = ["train", "good.yaml", "--run"]

# Arguments, and what error and hint must contain.
COMMANDS = [
    (["trian"], "unknown command trian", "did you mean train"),
    (["data", "prepair"], "unknown command prepair", "did you mean prepare"),
    ([*TRAIN, "new", "--stpes", "3"], "unknown option --stpes", "did you mean --steps"),
    ([*TRAIN, "new", "more"], "unknown argument more", "--help"),
    *([] if os.path.exists("/dev/nvidiactl") else [([*TRAIN, "new", "--device", "cuda"], "", "--device cpu"),
                                                          (["tune", "good.yaml"], "", "; the hint of assay train: ")]),
    ([*TRAIN, "new", "--device", "tpu"], "tpu", "--help"),
    ([*TRAIN, "new", "--steps", "many"], "many", "--help"),
    ([*TRAIN, "new", "--steps", "-3"], "run.steps = -3", ""),
    ([*TRAIN, "new", "--steps", "9", "--set", "contract={kind: flops, coefficient: 1e12}"],
     "--steps 9, but the contract flops fixes the steps", "contract.fraction"),
    ([*TRAIN, "new", "--steps", "9e3", "--set", "contract={kind: flops, coefficient: 1e12}"],
     "--steps 9000, but the contract flops fixes the steps", "contract.fraction"),
    ([*TRAIN, "new", "--set", "run.steps=9", "--set", "contract={kind: flops, coefficient: 1e12}"],
     "--set run.steps=9, but the contract flops fixes the steps", "contract.fraction"),
    ([*TRAIN, "new", "--set", "contract.horizon=40", "--set", "run={steps: 9}"],
     "--set run={steps: 9}, but the contract steps fixes the steps", "contract.fraction"),
    ([*TRAIN, "new", "--set", "model.hiden=3"], "unknown key hiden", "did you mean hidden"),
    ([*TRAIN, "new", "--set", "optimizer.lr=nan"], "optimizer.lr", ""),
    ([*TRAIN, "new", "--set", "hidden"], "--set hidden", "e.g. --set optimizer.lr"),
    (["train"], "no configuration given", "presets"),
    (["train", "missing.yaml"], "missing.yaml", "path"),
    (["train", "folder"], "folder", ""),
    ([*TRAIN, "text.txt"], "text.txt is a file", "--run"),
    ([*TRAIN, "c"], "c has files but no run in it", "--run"),
    ([*TRAIN, "text.txt/run"], "text.txt/run", ""),
    ([*TRAIN, ""], "name of the run is empty", "--run"),
    ([*TRAIN, "done", "--set", "run.seed=2"], "run.seed: 1 -> 2", "--fresh"),
    ([*TRAIN, "done", "--set", "model.ffn=128"], "model.ffn: 64 -> 128", "--fresh"),
    ([*TRAIN, "damaged"], "none of the 2 checkpoints of the run is valid", "--fresh"),
    ([*TRAIN, "damaged", "--set", "run.steps=8"], "model.safetensors has 5000 bytes", "--fresh"),
    ([*TRAIN, "new", "--set", "data.tokenizer=missing.json"], "missing.json", ""),
    ([*TRAIN, "new", "--set", "data.tokenizer=text.txt"], "text.txt", ""),
    ([*TRAIN, "new", "--set", "model.vocab_size=299"], "model.vocab_size is 299", "model.vocab_size=300"),
    ([*TRAIN, "new", "--set", "data.tokenizer=tok330.json"],
     "c/manifest.json was written with another tokenizer (300 tokens", "data.check_tokenizer=false"),
    ([*TRAIN, "new", "--set", "data.tokenizer=tok330.json", "--set", "data.check_tokenizer=false"],
     "tok330.json has 330 tokens", "--set model.vocab_size=330"),
    ([*TRAIN, "new", "--set", "data.val=[nowhere_*.bin]"], "no file matches",
     "those of --set to the folder in which the command runs"),
    ([*TRAIN, "new", "--set", "data.val=[one/*.bin]"], "validation data is too short", "sequence"),
    ([*TRAIN, "new", "--set", "data.val=[]"], "data.val is not given", "val"),
    (["audit", "missing.yaml"], "missing.yaml", "path"),
    (["audit", "folder"], "folder", ""),
    (["audit", "good.yaml", "--coefficient", "-2"], "-2", "--help"),
    (["audit", "good.yaml", "--set", "contract.kind=seconds"], "contract.coefficient is not given", "contract.reference"),
    (["audit", "good.yaml", "--set", "contract={kind: flops, reference: gone}"], "there is no ", "configuration file"),
    (["match", "--like", "missing.yaml"], "missing.yaml", "path"),
    (["match", "--like", "good.yaml", "--contract", "width"], "width", ""),
    ([*PREPARE, "missing.txt"], "cannot read missing.txt", "path"),
    ([*PREPARE, "folder"], "no text in the folder folder", "*.txt"),
    ([*PREPARE, "empty.txt"], "no document in empty.txt: 0 bytes", "not empty"),
    ([*PREPARE, "one.txt"], "no document is left to train on", "--separator"),
    ([*PREPARE, "text.txt", "--val-share", "0"], "--val-share 0", "between 0 and 1"),
    ([*PREPARE, "text.txt", "--val-share", "half"], "half", "--help"),
    ([*PREPARE, "text.txt", "--val-share", "0.1", "--val", "one.txt"], "--val and --val-share 0.1", "one way"),
    ([*PREPARE, "one.txt", "--val-share", "1e-6"], "no document is held out", "raise --val-share"),
    ([*PREPARE, "cut.jsonl.gz"], "cut.jsonl.gz is cut short: it ends in line 2001", "again"),
    ([*PREPARE, "damaged.jsonl.gz"], "damaged.jsonl.gz is damaged: incorrect data check, found in line 2001", "again"),
    ([*PREPARE, "plain.jsonl.gz"], "plain.jsonl.gz is damaged: incorrect header check, found in line 1", "rename it"),
    ([*PREPARE, "plain.jsonl.zst"], "plain.jsonl.zst is damaged: Unknown frame descriptor", "rename it"),
    ([*PREPARE, "nothing.txt.zst"], "nothing.txt.zst is cut short: it ends in line 1", "again"),
    ([*PREPARE, "list.jsonl"], "list.jsonl line 3 is a list, not a JSON object", "--skip-bad-lines"),
    ([*PREPARE, "number.jsonl"], 'number.jsonl line 3: the field "text" is a number, not a string', "--field"),
    ([*PREPARE, "field.jsonl"], 'field.jsonl line 3 has no field "text"', "--field"),
    ([*PREPARE, "cut.jsonl"], "cut.jsonl line 3 is not JSON: byte 12", "--skip-bad-lines"),
    ([*PREPARE, "latin1.jsonl"], "latin1.jsonl line 3 is not UTF-8: byte 15", "UTF-8"),
    ([*PREPARE, "array.json"], "array.json is one JSON array; expected one object per line", "jq -c '.[]' array.json"),
    ([*PREPARE, "pretty.json"], "pretty.json is JSON over several lines", "jq -c . pretty.json"),
    ([*PREPARE, "loops"], "no text in the folder loops; not readable: loops/loop: Too many levels", "*.txt"),
    ([*PREPARE, "text.txt", "--shuffle", "-3"], "--shuffle", "--help"),
    (["data", "prepare", "text.txt", "--tokenizer", "missing.json", "-o", "out"], "missing.json", ""),
    (["data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "c"], "c already holds a corpus", "--overwrite"),
    (["data", "synth", "-o", "out", "--tokens", "-4"], "-4", "--help"),
    (["data", "inspect", "cut.bin"], "cut.bin has", "prepare"),
    (["data", "inspect", "magic.bin"], "magic.bin is not a shard: magic 1234", "prepare"),
    (["data", "inspect", "folder"], "folder", ""),
    (["data", "verify", "missing"], "missing", ""),
    (["tokenizer", "train", "empty.txt", "-o", "t.json"], "no text to train", "not empty"),
    (["tokenizer", "train", "text.txt", "-o", "tok.json"], "tok.json already exists", "--overwrite"),
    (["tokenizer", "train", "text.txt", "-o", "c/tokenizer.json"],
     "c/tokenizer.json exists and belongs to the corpus of c/manifest.json", "another file"),
    (["tokenizer", "train", "text.txt", "-o", "gpt2", "--format", "gpt2"], "gpt2/vocab.json already exists", "--overwrite"),
    (["tokenizer", "encode", "missing.txt", "--tokenizer", "tok.json"], "cannot read missing.txt", "path"),
    (["tokenizer", "encode", "text.txt", "--tokenizer", "folder"], "folder", ""),
    (["tokenizer", "decode", "--tokenizer", "tok.json", "300"], "id 300 at position 0", ""),
    *[row for name in ("router", "report", "eval", "sample", "precision") for row in (
        ([name, "nowhere"], "no run at nowhere", "train"),
        ([name, "text.txt"], "text.txt is a file", "train"),
        ([name, "c"], "c is not a run", "train"))],
    (["export", "nowhere", "-o", "new"], "no run at nowhere", "train"),
    (["export", "done"], "--out", "assay export --help"),
    (["export", "done", "-o", "c"], "c holds files already", "another --out"),
    (["export", "done", "-o", "text.txt"], "text.txt is a file", "another --out"),
    (["export", "done", "-o", "new", "--dtype", "fp8"], "fp8", "assay export --help"),
    (["export", "done", "-o", "new", "--max-shard-mib", "0"], "--max-shard-mib", "assay export --help"),
    (["export", "done", "-o", "new", "--tokenizer", "missing.json"], "missing.json", ""),
    (["import", "nowhere", "-o", "new"], "nowhere/config.json", "path"),
    (["import", "folder", "-o", "new"], "folder/config.json", "path"),
    (["import", "folder"], "--out", "assay import --help"),
    (["import", "exported", "-o", "new", "--config", "other.yaml"],
     "other/tokenizer.json is another tokenizer (290 tokens", "--set data.check_tokenizer=false"),
    (["import", "exported", "-o", "new", "--config", "other.yaml", "--set", "data.tokenizer=c/tokenizer.json"],
     "other/manifest.json was written with another tokenizer (290 tokens", "--set data.check_tokenizer=false"),
    (["train", "other.yaml", "--run", "imported"],
     "other/tokenizer.json is another tokenizer (290 tokens", "--set data.check_tokenizer=false"),
    (["import", "folder", "-o", "done"], "done holds files already", "another --out"),
    (["import", "folder", "-o", ""], "name of the run is empty", "--out"),
    (["import", "folder", "-o", "text.txt"], "text.txt is a file", "another --out"),
    (["eval", "done", "--tasks", "core"], "CORE needs its bundle", "--bundle"),
    (["eval"], "RUN is missing", "--help"),
    (["eval", "done", "--tasks", "core", "--part", "3/2"], "'3/2' is not a part I/N", "2/4"),
    (["eval", "done", "--tasks", "core", "--part", "0/2"], "'0/2' is not a part I/N", "2/4"),
    (["eval", "done", "--tasks", "core", "--part", "two"], "'two' is not a part I/N", "2/4"),
    (["eval", "done", "--part", "1/2"], "--part works only for core", "--tasks core"),
    (["eval", "done", "--merge", "text.txt"], "--merge takes only files of parts, not done", "--merge PART"),
    (["eval", "--merge", "missing.json"], "missing.json", ""),
    (["eval", "--merge", "text.txt"], "text.txt is not a part of a CORE evaluation", "--part I/N"),
    (["eval", "--merge", "a.json", "--part", "1/2"], "--part", "--help"),
    *[([*command, "overflowed"], "model.safetensors: element 448 of embed.weight is inf", "earlier")
      for command in (["eval"], ["sample", "--prompt", "a"])],
    (["matrix", "good.yaml", "--reuse-elsewhere"], "--reuse-elsewhere", "assay matrix --help"),
    (["precision", "done"], "has no measures of number formats", "precision.recipe"),
    (["router", "done"], "the model is dense", "model.moe"),
]

# The config.json of a folder given to `assay import`, and what error and hint must contain.
CONFIG_JSONS = [
    ("{}", "has neither architectures nor model_type", "LlamaForCausalLM"),
    ("[1]", "is not a JSON object", "config.json"),
    ('{"model_type": ', "is not a JSON object", "config.json"),
    ('{"a": ' * 5000, "is nested too deep", "config.json"),
    ('{"model_type": "gpt2"}', "is of the unknown family model_type gpt2", "MixtralForCausalLM"),
    ('{"model_type": "llama"}', "hidden_size is missing, expected a whole number", "config.json"),
    ('{"model_type": "llama", "architectures": ["Glm4MoeForCausalLM"]}', "but model_type is llama", "config.json"),
]

UNREADABLE = [
    (["train", "closed.yaml"], "closed.yaml: Permission denied", ""),
    (["audit", "closed.yaml"], "closed.yaml: Permission denied", ""),
    ([*PREPARE, "closed.txt"], "closed.txt: Permission denied", ""),
    (["tokenizer", "encode", "closed.txt", "--tokenizer", "tok.json"], "closed.txt: Permission denied", ""),
    (["data", "inspect", "closed.bin"], "closed.bin: Permission denied", ""),
    ([*TRAIN, "new", "--set", "data.train=[closed.bin]"], "closed.bin: Permission denied", ""),
]


def run(arguments, **how):
    return subprocess.run([str(ASSAY), *arguments], cwd=WORK, capture_output=True, **how)


def works(*arguments, **how):
    done = run(arguments, **how)
    if done.returncode != 0:
        sys.exit(f"assay {' '.join(arguments)}: exit {done.returncode}\n{done.stderr.decode()}")
    return done


def check(what, ok, detail=""):
    if not ok:
        failures.append(f"{what}: {detail}")


def refused(what, arguments, error, hint, said_before=False, **how):
    """Requires the error and the hint, that no file changes, and no other output unless
    said_before."""
    before = bad_input.tree(WORK)
    done = run(arguments, **how)
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    ok = (done.returncode == 1 and len(errors) == 1 and error in errors[0] and len(hints) == 1 and hint in hints[0]
          and lines[-2:] == errors + hints and len(hints[0]) > 12)
    noise = [line for line in lines[:-2] if not line.startswith("warning: ")]
    ok = ok and (said_before or (not noise and not done.stdout))
    check(what, ok, f"assay {' '.join(arguments)}: exit {done.returncode}, wanted {error!r}, {hint!r}\n"
          f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
    if not said_before:
        after = bad_input.tree(WORK)
        changed = sorted(k for k in {**before, **after} if before.get(k, "absent") != after.get(k, "absent"))
        check(what, not changed, f"assay {' '.join(arguments)} changed {changed}")


def check_tables():
    for what, text, error, hint in CONFIGS:
        (WORK / "config.yaml").write_text(text)
        refused(what, ["train", "config.yaml", "--run", "new"], error, hint)
    (WORK / "config.yaml").unlink()
    for what, pattern, error, hint in SHARDS:
        refused(what, [*TRAIN, "new", "--set", f"data.train=[{pattern}]"], error, hint)
    for arguments, error, hint in COMMANDS:
        refused("command", arguments, error, hint)
    (WORK / "hf").mkdir()
    for text, error, hint in CONFIG_JSONS:
        (WORK / "hf" / "config.json").write_text(text)
        refused("config.json", ["import", "hf", "-o", "new"], error, hint)


def check_permissions():
    if not bad_input.can_drop_privileges(WORK):
        print("not run: unreadable files and read-only runs, because this user may read and write everything")
        return
    for arguments, error, hint in UNREADABLE:
        refused("unreadable", arguments, error, hint, preexec_fn=bad_input.without_privileges)
    for folder in ("parts/a/c", "parts/b/c"):  # a pattern must not leave one out
        (WORK / folder).mkdir(parents=True)
    shutil.copy(WORK / "c" / "corpus_train_000001.bin", WORK / "parts/a/c/x_0.bin")
    (WORK / "parts/b").chmod(0)
    for pattern, closed in (("parts/*/x_*.bin", "parts/b"), ("parts/*/c/x_*.bin", "parts/b/c"), ("parts/*/c/x_0.bin", "parts/b/c")):
        refused("a closed folder of a pattern", [*TRAIN, "new", "--set", f"data.train=[{pattern}]"],
                f"{closed}: Permission denied", "permissions", preexec_fn=bad_input.without_privileges)
    (WORK / "parts/b").chmod(0o755)
    (WORK / "done").chmod(0)
    for command in (["eval", "done"], ["compare", "done"], ["checkpoint", "list", "done"], [*TRAIN, "done"]):
        refused("a closed run", command, "done/config.yaml: Permission denied", "permissions",
                preexec_fn=bad_input.without_privileges)
    refused("inside a closed folder", ["eval", "done/checkpoints"], "cannot read done/checkpoints: Permission denied",
            "permissions", preexec_fn=bad_input.without_privileges)
    (WORK / "done").chmod(0o755)
    for closed in (["done"], ["done", "done/checkpoints"]):
        for folder in closed:
            (WORK / folder).chmod(0o555)
        refused("read-only run", [*TRAIN, "done", "--steps", "8"], "done", "", preexec_fn=bad_input.without_privileges)
        for folder in closed:
            (WORK / folder).chmod(0o755)
    (WORK / "folder").chmod(0o555)
    refused("read-only place", [*TRAIN, "folder/new"], "folder/new", "", preexec_fn=bad_input.without_privileges)
    refused("read-only output", ["data", "prepare", "text.txt", "--tokenizer", "tok.json", "-o", "folder/out"],
            "folder/out", "", preexec_fn=bad_input.without_privileges)
    (WORK / "folder").chmod(0o755)


def check_raw_bytes():
    works("data", "prepare", "raw.txt", "--tokenizer", "tok.json", "--val-every", "0", "--keep-space", "-o", "raw")
    shard = sorted((WORK / "raw").glob("*_train_*.bin"))[0].read_bytes()[1024:]
    ids = [str(int.from_bytes(shard[i:i + 2], "little")) for i in range(0, len(shard), 2)]
    text = works("tokenizer", "decode", "--tokenizer", "tok.json", *ids).stdout
    check("invalid UTF-8 is kept", text == 2 * (b"<|endoftext|>" + bad_input.RAW), text)


def check_changed_data():
    manifest = WORK / "c" / "manifest.json"
    kept = bad_input.tree(WORK / "c")
    (WORK / "text2.txt").write_text((WORK / "text.txt").read_text().replace("mat", "hat"))
    works("data", "prepare", "text2.txt", "--tokenizer", "tok.json", "-o", "c", "--overwrite")
    check("the corpus has changed", manifest.read_bytes() != kept["manifest.json"])
    refused("data that changed", [*TRAIN, "done", "--steps", "8"],
            "the data of the run has changed: corpus_train", "--fresh")
    for name, content in kept.items():
        (WORK / "c" / name).write_bytes(content)


def check_tokenizer_written_over():
    """The run's tokenizer was replaced by one that is too large for the model: no hint of a larger model."""
    file = WORK / "c" / "tokenizer.json"
    kept = file.read_bytes()
    file.write_bytes((WORK / "tok330.json").read_bytes())
    refused("eval", ["eval", "done"], "the data of the run has changed: ", "--set data.tokenizer=FILE")
    refused("train", [*TRAIN, "new"], "c/manifest.json was written with another tokenizer", "data prepare")
    other = ["--set", "data.tokenizer=tok330.json", "--set", "data.check_tokenizer=false"]
    refused("eval", ["eval", "done", *other], "has 330 tokens", "the tokenizer that its shards were made with")
    file.write_bytes(kept)


def check_no_sampled_step():
    """A run that quantises by overrides alone."""
    works(*TRAIN, "overridden", "--set", "precision.recipe=bf16", "--set", "precision.override=[weight=mxfp8]")
    refused("precision", ["precision", "overridden"], "has no measures of number formats", "took no sampled step")
    shutil.rmtree(WORK / "overridden")


def check_moved_data():
    """The hints name the options that find it again."""
    (WORK / "c").rename(WORK / "moved")
    refused("eval", ["eval", "done"], "data.val: no file matches", "if it has moved: --set data.val=FILE")
    val = ["--set", "data.val=[moved/*_val_*.bin]"]
    refused("eval", ["eval", "done", *val], "c/tokenizer.json", "if it has moved: --set data.tokenizer=FILE")
    works("eval", "done", *val, "--set", "data.tokenizer=moved/tokenizer.json")
    refused("sample", ["sample", "done", "--prompt", "a"], "c/tokenizer.json", "if it has moved: --tokenizer FILE")
    works("sample", "done", "--prompt", "a", "--tokens", "2", "--tokenizer", "moved/tokenizer.json")
    refused("rerun", ["receipt", "verify", "done", "--rerun", "2"], "no file matches", "--data DIR", said_before=True)
    works("receipt", "verify", "done", "--rerun", "2", "--data", "moved")
    (WORK / "moved").rename(WORK / "c")


def check_no_space():
    """A disk that is really full, in a separate mount namespace."""
    size = sum(file.stat().st_size for file in (WORK / "done").rglob("*") if file.is_file())
    weights = (checkpoints(WORK / "done")[-1] / "model.safetensors").stat().st_size
    (WORK / "small").mkdir()
    train = f"{ASSAY} train good.yaml --run small/run --steps 8"
    script = (f"mount -t tmpfs -o size={(size + 3 * weights // 2) // 1024 + 64}k none small || exit 77\n"
              f"cp -r done small/run; {train} 2>first; echo $?; ls small/run/checkpoints\n"
              f"mount -o remount,size=64m small; {train} 2>second; echo $?; ls small/run/checkpoints")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=WORK, capture_output=True, text=True)
    if done.returncode in (1, 77) and not done.stdout:
        print(f"not run: a full disk, this user may not mount: {done.stderr.strip()}")
        return
    said = (WORK / "first").read_text().splitlines()[-2:]
    check("no space", "No space left on device" in said[0] and said[1].startswith("hint: check the disk"), said)
    check("the run continues once there is space", done.stdout.split() ==
          ["1", "step-00000004", "step-00000006", "0", "step-00000006", "step-00000008"], done.stdout)


def check_full_disk():
    refused("full disk, shard", [*PREPARE, "text.txt"], "File too large", "free space",
            preexec_fn=bad_input.full_disk(2000))
    refused("full disk, generated corpus", ["train", "synth.yaml", "--run", "new"], "File too large", "",
            preexec_fn=bad_input.full_disk(5000))
    before = bad_input.tree(WORK / "done" / "checkpoints")
    weights = (checkpoints(WORK / "done")[-1] / "model.safetensors").stat().st_size
    refused("full disk, checkpoint", [*TRAIN, "done", "--steps", "8"], "File too large",
            "df -h done/checkpoints)", said_before=True,
            preexec_fn=bad_input.full_disk(2 * weights))
    check("earlier checkpoints are kept", bad_input.tree(WORK / "done" / "checkpoints") == before, "they differ")
    works(*TRAIN, "whole", "--steps", "8")
    works(*TRAIN, "done", "--steps", "8")
    names = [folder.name for folder in checkpoints(WORK / "done")]
    check("the run continues", names[-1] == "step-00000008", names)
    check("the bits are those of a run with enough space", bad_input.tree(checkpoints(WORK / "done")[-1])["model.safetensors"]
          == bad_input.tree(checkpoints(WORK / "whole")[-1])["model.safetensors"], "other weights")


def check_damaged_checkpoint():
    done = works(*TRAIN, "half").stderr.decode()
    check("falls back", "warning: ignoring the checkpoint half/checkpoints/step-00000006" in done
          and "optimizer.safetensors has 100 bytes" in done and "resumes after step 4" in done, done)


def check_other_tokenizer():
    """The option that the refusal's hint names works."""
    works("import", "exported", "-o", "other-imported", "--config", "other.yaml", "--set", "data.check_tokenizer=false")
    works("train", "other-imported/config.yaml", "--run", "other-imported", "--steps", "2")
    works("train", "imported/config.yaml", "--run", "imported", "--steps", "2")


bad_input.make_files(WORK, works)
for part in (check_tables, check_other_tokenizer, check_permissions, check_raw_bytes, check_changed_data,
             check_tokenizer_written_over, check_no_sampled_step, check_moved_data, check_no_space,
             check_full_disk, check_damaged_checkpoint):
    part()
print("\n".join(failures) or f"errors: ok ({len(CONFIGS) + len(SHARDS) + len(COMMANDS) + len(CONFIG_JSONS)} refusals and more)")
sys.exit(1 if failures else 0)
