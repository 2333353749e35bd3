#!/usr/bin/env python3
"""The command line's interface: exit codes, one line `error:`, one line `hint:`, help.

Usage: test_cli.py ASSAY BENCH_STEP"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ASSAY, BENCH_STEP = (str(pathlib.Path(program).resolve()) for program in sys.argv[1:3])
work = pathlib.Path(tempfile.mkdtemp())
(work / "a_file").write_text("text")
(work / "empty").mkdir()
(work / "run").mkdir()
(work / "run" / "config.yaml").write_text("model: {}\n")
META = '{"config_sha256": "0"}'  # of a launch
(work / "run" / "meta.json").write_text(META)

# Arguments of `assay`, and what the error line and the hint line must contain.
REFUSED = [
    (["trian", "--help"], "unknown command trian", "did you mean train"),
    (["help", "trian"], "unknown command trian", "did you mean train"),
    ([], "needs a command", "--help"),
    (["ruoter", "x"], "unknown command ruoter", "did you mean router"),
    (["--versoin"], "unknown option --versoin", "did you mean --version"),
    (["router"], "RUN", "assay router --help"),
    (["router", "run"], "no telemetry at run/telemetry.db", "train it first"),
    (["report", "run"], "no telemetry at run/telemetry.db", "train it first"),
]
for command in ("router", "report", "sample", "watch"):
    REFUSED += [
        ([command, "nowhere"], "no run at nowhere", "train"),
        ([command, "a_file"], "a_file is a file", "train"),
        ([command, "empty"], "empty is not a run", "train"),
    ]
(work / "runs" / "mine").mkdir(parents=True)
(work / "runs" / "mine" / "config.yaml").write_text("model: {}\n")
(work / "runs" / "mine" / "meta.json").write_text(META)
(work / "own" / "checkpoints").mkdir(parents=True)
# A configuration of the user's, which no run wrote, beside files of his that are called as a run's.
OWN = {"config.yaml": "model: {}\n", "meta.json": '{"author": "me"}\n', "checkpoints/x.pt": "weights", "log.txt": "mine"}
for name, text in OWN.items():
    (work / "own" / name).write_text(text)
REFUSED += [
    (["router", "mine"], "no run at mine", "did you mean runs/mine?"),
    (["router", "runs/mien"], "no run at runs/mien", "did you mean runs/mine?"),
    (["router", "ran"], "no run at ran", "did you mean run?"),
    (["router", "runs/other"], "no run at runs/other", "runs in runs: "),
    (["router", "runs"], "runs is not a run", "it holds 1 runs: name one, or several if the command takes several: runs/mine"),
    (["router", "runs/mine/checkpoints/step-00000010"], "no run at", "did you mean runs/mine?"),
    (["router", "runs/mine/config.yaml"], "is a file, not a run", "did you mean runs/mine?"),
    (["compare", "runs/"], "runs/ is not a run", "if the command takes several: runs/mine"),
    (["eval", "run", "--batch", "0"], "--batch: 0 is not a whole number from 1 to 16777216", "assay eval --help"),
    (["train", "a.yaml", "--stop-after", "-2"], "--stop-after: -2 is not a number > 0", "assay train --help"),
    (["data", "synth", "--seed", "-1"], "--seed: -1 is not a number >= 0", "assay data synth --help"),
    (["router", "own"], "own is not a run: its config.yaml was not written by one", "did you mean run?"),
    *((["train", "own/config.yaml", "--run", "own", *more], "own has a config.yaml that no run wrote", "--run own/run")
      for more in ([], ["--fresh"])),
    (["train", "run/config.yaml"], "run/config.yaml is the configuration of a run", "--run run; to begin another"),
    (["train", "run/../run/config.yaml", "--ranks", "2"], "is the configuration of a run", "--run run/../run; to begin another"),
    (["audit", "run"], "run is a folder, not a configuration", "give run/config.yaml"),
    (["train", "runs/mine"], "runs/mine is a folder, not a configuration", "assay train runs/mine/config.yaml --run runs/mine"),
]
REFUSED += [
    (["watch"], "RUN", "assay watch --help"),
    (["watch", "run", "./run/"], "./run is given twice", "give every run once"),
    (["watch", "later"], "no run at later", "--wait waits for a run to begin"),
    (["watch", "run", "--once"], "--once requires --text", "assay watch --help"),
    (["watch", "run", "--text", "--port", "1"], "--text excludes --port", "assay watch --help"),
    (["watch", "run", "--port", "70000"], "--port", "assay watch --help"),
    (["watch", "run", "--every", "0"], "--every: 0 is not a number > 0", "assay watch --help"),
    (["watch", "run", "--address", "0.0.0.0"], "0.0.0.0 is not a loopback address", "ssh -L"),
    (["watch", "run", "--address", "example.org"], "example.org is not an IP address", "127.0.0.1"),
    (["watch", "run", "--address", "127.0.0.1", "--port", "1"], "127.0.0.1:1/", "--port") if os.geteuid() != 0 else
    (["watch", "run", "--address", "192.0.2.1", "--allow-remote", "--port", "0"], "cannot serve at http://192.0.2.1", "--address"),
]
# Values and words that the parser does not take.
(work / "steps" / "checkpoints" / "step-00000060").mkdir(parents=True)
(work / "steps" / "config.yaml").write_text("model: {}\n")
(work / "steps" / "meta.json").write_text(META)
REFUSED += [
    (["matrix", "m.yaml", "--dry-run", "--tflops", "0"], "--tflops: 0 is not a number > 0", "assay matrix --help"),
    (["matrix", "m.yaml", "--jobs", "0"], "--jobs: 0 is not a whole number from 1 to 1024", "assay matrix --help"),
    (["watch", "run", "--every", "1e9"], "--every: 1e9 is not a number from 0.01 to 86400", "assay watch --help"),
    (["train", "a.yaml", "--steps", "1.5"], "--steps: 1.5 is not a whole number", "assay train --help"),
    (["train", "a.yaml", "--ranks", "1.5"], "--ranks: 1.5 is not a whole number", "assay train --help"),
    (["data", "prepare", "a_file", "--tokenizer", "t", "-o", "o", "--val-share", "0.5%"],
     "--val-share: 0.5% is not a number", "assay data prepare --help"),
    (["train", "a.yaml", "lr=3"], "unknown argument lr=3", "a field of the configuration: --set optimizer.lr=3"),
    (["matrix", "m.yaml", "--steps", "100"], "unknown option --steps", "configuration: --set run.steps=100"),
    (["train", "a.yaml", "--lr", "3"], "unknown option --lr", "--set optimizer.lr=3"),
    (["train", "a.yaml", "--lr=3"], "unknown option --lr=3", "--set optimizer.lr=3"),
    (["train", "a.yaml", "--lr"], "unknown option --lr", "--set optimizer.lr=VALUE"),
    (["train", "a.yaml", "--set", "optimizer.lr", "3"], "unknown argument 3", "--set optimizer.lr=3"),
    (["train", "a.yaml", "--set", "run.seed=1", "run.steps=2"], "unknown argument run.steps=2", "--set run.steps=2"),
    (["train", "--config", "a.yaml"], "unknown option --config", "the configuration needs no option: assay train FILE"),
    (["train", "--help-config", "moe"], "no section moe", "did you mean model.moe?"),
    (["train", "run"], "run is a folder, not a configuration", "assay train run/config.yaml --run run"),
    (["simulate", "run"], "run is a folder, not a configuration", "give run/config.yaml"),
    (["eval", "steps/checkpoints/step-60"], "no checkpoint at steps/checkpoints/step-60",
     "did you mean steps/checkpoints/step-00000060?"),
    (["eval", "steps/checkpoints/step-61"], "no run at steps/checkpoints/step-61", "did you mean steps?"),
    (["import", "run", "-o", "new"], "run is a run of Assay, which has no config.json",
     "assay train run/config.yaml --run run"),
    (["import", "nowhere", "-o", "new"], "there is no folder nowhere", "config.json"),
]
REFUSED.append((["sample", "run"], "run has no checkpoint yet", "assay train"))

# bench_step refuses shape options together with --config.
BENCH_REFUSED = [(["--config", "run/config.yaml", option, value], f"{option} is given with --config", f"leave {option} out")
                 for option, value in (("--hidden", "128"), ("--model", "moe"), ("--sequence", "64"), ("--experts", "8"))]
BENCH_REFUSED.append((["--products", "native"], "--products native is given, but a CPU multiplies none of the formats",
                      "--device cuda"))
BENCH_REFUSED.append((["--micro-batches", "3", "--parts", "2"], "2 parts do not divide the 3 micro-batches of a step",
                      "choose another --micro-batches or --parts"))

failures = []


def run(arguments, program=ASSAY):
    return subprocess.run([program, *arguments], cwd=work, capture_output=True, text=True)


for program, (arguments, error, hint) in [*((ASSAY, row) for row in REFUSED), *((BENCH_STEP, row) for row in BENCH_REFUSED)]:
    done = run(arguments, program)
    if not is_refusal(done, error, hint):
        failures.append(f"{program} {' '.join(arguments)}: exit {done.returncode}, wanted 1 with {error!r}, {hint!r}\n"
                        f"{done.stdout}{done.stderr}")

for name, text in OWN.items():
    if (work / "own" / name).read_text() != text:
        failures.append(f"training in own changed {name}")

for command in ("audit", "simulate"):
    done = run([command, "run"])
    if done.stderr.splitlines()[1] != "hint: give run/config.yaml":
        failures.append(f"{command} explains assay train: {done.stderr}")

for arguments, wanted in ((["--help"], "First steps"), (["--version"], "assay "), (["router", "--help"], "RUN"),
                          (["help"], "First steps"), (["help", "router"], "RUN"), (["help", "data", "prepare"], "--val-share")):
    done = run(arguments)
    if done.returncode != 0 or wanted not in done.stdout or done.stderr:
        failures.append(f"assay {' '.join(arguments)}: exit {done.returncode}, wanted 0 with {wanted!r} on stdout")

LEAVES = [[word] for word in ("train audit match matrix compare router precision eval report watch sample export import".split())]
LEAVES += [["data", word] for word in ("synth", "prepare", "inspect", "verify", "ngrams")]
LEAVES += [["tokenizer", word] for word in ("train", "encode", "decode")] + [["receipt", word] for word in ("make", "verify")]
LEAVES += [["published", word] for word in ("show", "check")]
for leaf in LEAVES:
    text = run([*leaf, "--help"]).stdout
    for noise in ("First steps", "INT:", "TEXT:", "FLOAT:"):
        if noise in text:
            failures.append(f"assay {' '.join(leaf)} --help has {noise!r} instead of an example\n{text}")

print("\n".join(failures) or f"cli: ok ({len(REFUSED) + len(BENCH_REFUSED)} refusals)")
sys.exit(1 if failures else 0)
