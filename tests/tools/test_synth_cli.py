#!/usr/bin/env python3
"""assay data synth and assay data ngrams as a user calls them. Usage: test_synth_cli.py ASSAY"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ASSAY = str(pathlib.Path(sys.argv[1]).resolve())
folder = tempfile.TemporaryDirectory()
work = pathlib.Path(folder.name)
(work / "synth.yaml").write_text(
    "data: {cache: cache, synth: {train_tokens: 20000, val_tokens: 3000, vocab_size: 600, seed: 4}}\n")
(work / "files.yaml").write_text("data: {train: [a.bin], val: [b.bin]}\n")
(work / "empty").mkdir()
failures = []


def check(what, ok, done):
    if not ok:
        failures.append(f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def run(*arguments):
    return subprocess.run([ASSAY, "data", *arguments], cwd=work, capture_output=True, text=True)


def works(*arguments):
    done = run(*arguments)
    check(" ".join(arguments), done.returncode == 0, done)
    return done.stdout


def refused(error, hint, *arguments):
    done = run(*arguments)
    check(f"{' '.join(arguments)} wants {error!r}, {hint!r}", is_refusal(done, error, hint), done)


small = ("--tokens", "20000", "--val-tokens", "3000", "--vocab-size", "600", "--seed", "4")
made = json.loads(works("synth", "-o", "corpus", *small, "--ngrams", "--json"))
cached = json.loads(works("synth", "synth.yaml", "--json"))
done = run("verify", "corpus")
check("verify", done.returncode == 0, done)
for kind in ("train", "val"):
    ours, theirs = ((work / c[kind][0]).read_bytes() for c in (made, cached))
    if ours != theirs:
        failures.append(f"{kind}: the config's corpus differs from that of equal arguments")
nats = json.loads(works("ngrams", "corpus", "--json"))["nats"]
if nats != made["ngrams"]["nats"] or not nats[0] > nats[1] + 0.5 or not nats[1] > nats[4] + 0.3:
    failures.append(f"n-gram losses {nats}, {made['ngrams']['nats']}")
first = json.loads(works("ngrams", "corpus", "--val-tokens", "1000", "--json"))
if first["val_tokens"] != 1000:
    failures.append(f"--val-tokens 1000 gave {first['val_tokens']}")
if works("synth", "--stories", "3", "--seed", "4").count("<|endoftext|>") != 3:
    failures.append("--stories 3 did not print three stories")
of_seed = {seed: works("synth", "--stories", "2", "--seed", seed) for seed in ("1", "4", "7")}
if len(set(of_seed.values())) != 3:
    failures.append("seeds with the same stories")
if works("synth", "synth.yaml", "--stories", "2") != of_seed["4"]:
    failures.append("CONFIG --stories are not of the configuration's seed")
if works("synth", "synth.yaml", "--set", "data.synth.seed=7", "--stories", "2") != of_seed["7"]:
    failures.append("--set data.synth.seed=7 --stories are not of seed 7")
refused("missing.yaml", "", "synth", "missing.yaml", "--stories", "2")
refused("data.synth is absent", "data.synth", "synth", "files.yaml", "--stories", "2")
for other in (("--out", "c2"), ("--ngrams",), ("--json",), ("--overwrite",), ("--tokens", "20000"), ("--val-tokens", "3000"),
              ("--vocab-size", "600")):
    refused(other[0], "", "synth", "--stories", "2", *other)

refused("corpus", "--overwrite", "synth", "-o", "corpus", *small)
works("synth", "-o", "corpus", *small, "--overwrite")
refused("neither", "--out", "synth")
refused("data.synth is absent", "data.synth", "synth", "files.yaml")
refused("--tokens", "", "synth", "-o", "c2", "--tokens", "10")
refused("--set", "", "synth", "-o", "c2", "--set", "data.synth.train_tokens=100000")
refused("--tokens", "", "synth", "files.yaml", "--tokens", "100000")
refused("--seed", "", "synth", "-o", "c2", "--seed", "-1")
refused("missing.yaml", "", "synth", "missing.yaml")
refused("manifest.json", "", "ngrams", "empty")

print("\n".join(failures) if failures else "synth_cli: ok")
sys.exit(1 if failures else 0)
