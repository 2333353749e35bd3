#!/usr/bin/env python3
"""Receipts of real runs: `assay receipt verify` names every change, reports no drift without a
change, and --rerun trains the first steps again to the same bits."""
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, assay, check
from refusals import is_refusal


class Runs:
    """A finished run with its own shards, another run with other weights, and copies of the first
    to damage."""

    def __init__(self, place):
        self.place = place
        self.shards = place.path / "shards"
        done = assay("data", "synth", "-o", self.shards, "--tokens", 120000, "--val-tokens", 20000,
                     "--vocab-size", 512)
        check(done.returncode == 0, done.stderr)
        self.data = ["--set", "data.synth=null", "--set", f"data.train=['{self.shards}/*_train_*.bin']",
                     "--set", f"data.val=['{self.shards}/*_val_*.bin']",
                     "--set", f"data.tokenizer={self.shards}/tokenizer.json", "--steps", "30"]
        self.whole = self.train("whole")
        self.other = self.train("other", "--set", "run.seed=2")
        self.copies = 0

    def train(self, name, *more, expect=0):
        self.place.train(name, *self.data, *more, expect=expect)
        return self.place.run(name)

    def copy(self):
        self.copies += 1
        return pathlib.Path(shutil.copytree(self.whole, self.place.run(f"copy-{self.copies}")))

    def shard(self):
        return sorted(self.shards.glob("*_train_*.bin"))[0]


def verify(*arguments):
    return assay("receipt", "verify", *arguments)


def sql(run, statement):
    db = sqlite3.connect(run / "telemetry.db")
    db.execute(statement)
    db.commit()
    db.close()


def replace(path, old, new):
    text = path.read_text()
    check(old in text, f"{path} has {old}")
    path.write_text(text.replace(old, new, 1))


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[:len(data) * 2 // 3])


def claim(run, name):
    return next(c for c in json.loads((run / "receipt.json").read_text())["claims"] if c["name"] == name)


def edit_claim(run, name, value):
    line = next(line for line in (run / "receipt.json").read_text().splitlines() if f'"name": "{name}"' in line)
    replace(run / "receipt.json", line, line.replace(f'"value": {claim(run, name)["value"]}', f'"value": {value}'))


def swap_checkpoint(runs, run):
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(runs.other / "checkpoints", run / "checkpoints")


def remove_claim(run, name):
    path = run / "receipt.json"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if f'"name": "{name}"' not in line))


NEWEST = "checkpoints/step-00000030"

# A name, a change to a copy of the run, and what verify must name.
CHANGES = [
    ("a validation loss", lambda r, run: sql(run, "UPDATE eval SET value = value - 1e-9 WHERE metric = 'loss_nats'"),
     ["input telemetry telemetry.db", "claim val_loss_final", "claim val_loss_best"]),
    ("a training loss", lambda r, run: sql(run, "UPDATE scalar SET value = value + 1e-9 WHERE step = 7 AND "
                                           "name = 'train_loss_nats'"), ["input telemetry telemetry.db"]),
    ("a router's load", lambda r, run: sql(run, "UPDATE router_layer SET max_load_norm = 0.99 WHERE step = 9"),
     ["input telemetry telemetry.db", "claim layer_0_saturated_at_step"]),
    ("the configuration", lambda r, run: replace(run / "config.yaml", "expert_ffn: 32", "expert_ffn: 64"),
     ["input config config.yaml", "claim parameters_total", "claim parameters_active", "claim flops_per_token"]),
    ("the learning rate", lambda r, run: replace(run / "config.yaml", "lr: 0.003", "lr: 0.004"),
     ["input config config.yaml"]),
    ("another checkpoint", swap_checkpoint,
     [f"input checkpoint {NEWEST}/MANIFEST.json", f"input checkpoint {NEWEST}/model.safetensors"]),
    ("config.yaml cut short", lambda r, run: cut(run / "config.yaml"), ["input config config.yaml"]),
    ("telemetry.db cut short", lambda r, run: cut(run / "telemetry.db"), ["input telemetry telemetry.db"]),
    ("weights cut short", lambda r, run: cut(run / NEWEST / "model.safetensors"),
     [f"input checkpoint {NEWEST}/model.safetensors"]),
    ("moments cut short", lambda r, run: cut(run / NEWEST / "optimizer.safetensors"),
     [f"input checkpoint {NEWEST}/optimizer.safetensors"]),
    ("state cut short", lambda r, run: cut(run / NEWEST / "state.json"), [f"input checkpoint {NEWEST}/state.json"]),
    ("manifest cut short", lambda r, run: cut(run / NEWEST / "MANIFEST.json"),
     [f"input checkpoint {NEWEST}/MANIFEST.json"]),
    ("receipt cut short", lambda r, run: cut(run / "receipt.json"), ["receipt: the file is damaged"]),
    ("a claimed loss", lambda r, run: edit_claim(run, "val_loss_final", 1.5), ["claim val_loss_final", "receipt: edited"]),
    ("a claimed count", lambda r, run: edit_claim(run, "parameters_total", 7), ["claim parameters_total"]),
    ("a claim taken away", lambda r, run: remove_claim(run, "val_loss_final"), ["claim val_loss_final"]),
]

# Arguments, and what error and hint must contain.
REFUSALS = [
    (["verify", "nowhere"], "nowhere does not exist", "receipt.json"),
    (["verify", "shards"], "no receipt in shards", "receipt make"),
    (["verify", "config.yaml"], "config.yaml is not a receipt", "receipt make"),
    (["verify", "whole/meta.json"], "meta.json is not a receipt", "receipt make"),
    (["verify", "newer.json"], "newer.json has schema 2", "newer"),
    (["verify", "whole", "--data", "nowhere"], "--data nowhere is not a folder", "shards"),
    (["verify", "whole", "--rerun", "0"], "--rerun 0", "1"),
    (["verify", "whole", "--rerun", "31"], "has 30 steps", "--rerun 30"),
    (["verify", "whole", "--rerun", "many"], "many", "--help"),
    (["verify"], "RECEIPT", "--help"),
    (["make", "shards"], "shards is not a run", "run"),
    (["make", "whole", "-o", "shards/receipt.json"], "is not in shards", "above"),
    ([], "needs a command", "--help"),
]


def check_changes(runs):
    for what, change, named in CHANGES:
        run = runs.copy()
        change(runs, run)
        done = verify(run)
        check(done.returncode == 2, f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        for name in named:
            check(any(line.startswith("drift: ") and name in line for line in done.stderr.splitlines()),
                  f"{what}: {name} is named\n{done.stderr}")
        shutil.rmtree(run)


def check_shards(runs):
    shard = runs.shard()
    whole = shard.read_bytes()
    for what, changed in (("swapped", whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:]), ("cut short", whole[:2000])):
        shard.write_bytes(changed)
        done = verify(runs.whole)
        check(done.returncode == 2 and f"drift: input data {shard.name}" in done.stderr,
              f"a shard {what}: exit {done.returncode}\n{done.stderr}")
    shard.write_bytes(whole)


def same(what, *arguments):
    done = verify(*arguments)
    check(done.returncode == 0, f"{what}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_same(runs):
    said = same("untouched", runs.whole)
    check("0 not available, 0 drift" in said, said)
    run = runs.copy()
    away = runs.place.path / "away"
    away.mkdir()
    moved = shutil.move(run, away / "renamed")
    check("0 not available, 0 drift" in same("moved", moved), "everything is available")
    hidden = shutil.move(runs.shards, runs.place.path / "hidden")
    said = same("without data", moved)
    check("not available  input data" in said and "0 drift" in said, said)
    check("0 not available, 0 drift" in same("data elsewhere", moved, "--data", hidden), "found")
    check("bit for bit" in same("rerun on data elsewhere", moved, "--data", hidden, "--rerun", 3), "rerun")
    shutil.move(hidden, runs.shards)
    (moved / "evals").mkdir()
    (moved / "evals" / "core.json").write_text("{}")
    same("a later evaluation", moved)
    shutil.rmtree(moved / "checkpoints")
    check("not available  input checkpoint" in same("without its checkpoint", moved), "reports the missing checkpoint")
    shutil.rmtree(moved)


def check_damaged_meta(runs):
    """A finished run whose meta.json was damaged is given a receipt that verifies when it is started again."""
    run = runs.train("no-meta")
    (run / "meta.json").write_text("{}")
    same("with a damaged meta.json", run)
    runs.train("no-meta")
    said = same("after another start", run)
    check("same           input data" in said and "0 drift" in said, said)


def check_lost_meta(runs):
    """What nobody knows of a run that lost its meta.json is said when it goes on, is sealed and is verified."""
    run = runs.train("lost-meta", "--stop-after", "20")
    (run / "meta.json").unlink()
    told = "by which program its steps were made is unknown"
    done = assay("train", runs.place.config, "--run", run, *runs.data)
    check(done.returncode == 0 and done.stderr.count(told) == 1, done.stderr)
    said = same("after the launch that went on", run)
    check("has no launch of the first 20 steps" in said, said)
    (run / "meta.json").unlink()
    done = assay("receipt", "make", run)
    warned = f"warning: there is no {run}/meta.json" in done.stderr and told in done.stderr
    check(done.returncode == 0 and warned, done.stderr)
    said = same("sealed without meta.json", run)
    check("the receipt was made without it, and lists no data" in said and "1 not available" in said, said)


def check_rerun(runs):
    check("rerun of 5 steps" in same("rerun", runs.whole, "--rerun", 5), "reports the rerun")
    run = runs.copy()
    replace(run / "config.yaml", "lr: 0.003", "lr: 0.004")
    check(assay("receipt", "make", run).returncode == 0, "sealed again with a new hash")
    same("without a rerun the edit is not detected", run)
    done = verify(run, "--rerun", 5)
    check(done.returncode == 2 and "drift: rerun of 5 steps: " in done.stderr, f"{done.returncode} {done.stderr}")


def check_rerun_device(runs):
    """A rerun trains on the device of the run. One that is not here is not available, which is no drift."""
    run, other = runs.copy(), "cuda: of another machine"
    meta = json.loads((runs.whole / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**meta, "device": other}))
    said = same("rerun of another device", run, "--rerun", 5)
    check(f"not available  rerun of 5 steps  these steps were trained on {other}" in said, said)
    first = {key: value for key, value in meta.items() if key != "before"}
    (run / "meta.json").write_text(json.dumps({**first, "device": other, "first_step": 10, "before": [first]}))
    check("bit for bit" in same("rerun of the steps before another device", run, "--rerun", 5), "the first device")
    said = same("rerun of steps on two devices", run, "--rerun", 20)
    check(f"trained on {first['device']}, then {other}, a rerun has one device" in said, said)


def check_rerun_precision(runs):
    """A rerun trains in the precision of the launches that made these steps, not in what the run changed to later."""
    run = runs.train("precision", "--set", "precision.recipe=bf16", "--stop-after", "8")
    runs.train("precision", "--set", "precision.recipe=fp32")
    check("bit for bit" in same("rerun of the first precision", run, "--rerun", 8), "bf16")
    said = same("rerun of steps in two precisions", run, "--rerun", 12)
    check("not available  rerun of 12 steps  these steps were trained in bf16, then fp32, a rerun has one precision" in said, said)


def check_stopped_rerun(runs):
    """A rerun that somebody stops proves nothing, although each value that it reached is the run's."""
    verifying = subprocess.Popen([str(ASSAY), "receipt", "verify", str(runs.whole), "--rerun", "30"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
    children = []
    while not children and verifying.poll() is None:
        children = [int(pid) for task in pathlib.Path(f"/proc/{verifying.pid}/task").glob("*/children")
                    for pid in task.read_text().split()]
    command = []
    while "--stop-after" not in command and verifying.poll() is None:  # not yet the copy of its parent
        command = pathlib.Path(f"/proc/{children[0]}/cmdline").read_text().split("\0")
    device = json.loads((runs.whole / "meta.json").read_text())["device"].split(":")[0]
    check(f"--device {device}" in " ".join(command), f"the device of the run: {command}")
    os.kill(children[0], signal.SIGTERM)
    said = verifying.communicate()[1]
    check(verifying.returncode == 1 and "did not train: exit 1" in said, f"{verifying.returncode} {said}")


def without_hashed(run):
    """A receipt without how the files of data were hashed: by the last launch, which may find them in the cache."""
    receipt = json.loads((run / "receipt.json").read_text())
    for one in receipt["inputs"]:
        one.pop("hashed", None)
    return receipt | {"seal": None}


def check_stops(runs):
    """A stopped and resumed run has a receipt of its state at each end, and the same results."""
    run = runs.train("stopped", "--stop-after", "12")
    check(claim(run, "steps_done")["value"] == 12 and claim(run, "planned_steps")["value"] == 30, "sealed at the step where it stopped")
    same("stopped", run)
    runs.train("stopped")
    check(claim(run, "steps_done")["value"] == 30, "sealed again at the end")
    same("resumed", run)
    results = [next(i for i in json.loads((r / "receipt.json").read_text())["inputs"] if i["kind"] == "telemetry")
               for r in (run, runs.whole)]
    check(results[0]["results_sha256"] == results[1]["results_sha256"], "the same results to the bit")
    before = without_hashed(run)
    runs.train("stopped")
    check(without_hashed(run) == before, "starting a finished run again changes nothing")


def check_output(runs):
    done = verify(runs.whole, "--json")
    answer = json.loads(done.stdout)
    check(answer["counts"]["drift"] == 0 and answer["kind"] == "run" and len(answer["checks"]) > 30, done.stdout)
    above = runs.place.path / "above.json"
    done = assay("receipt", "make", runs.whole, "-o", above)
    check(done.returncode == 0 and json.loads(above.read_text())["run"] == "whole", done.stderr)
    same("a receipt above the run", above)


def check_refusals(runs):
    text = (runs.whole / "receipt.json").read_text()
    (runs.place.path / "newer.json").write_text(text.replace('"assay_receipt": 1', '"assay_receipt": 2'))
    for arguments, error, hint in REFUSALS:
        done = assay("receipt", *arguments, cwd=runs.place.path)
        check(is_refusal(done, error, hint, printed="--rerun" in arguments),
              f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def check_no_receipt(runs):
    """A receipt that cannot be written gives a warning and does not affect the run."""
    run = runs.copy()
    (run / "receipt.json").unlink()
    (run / "receipt.json").mkdir()
    done = subprocess.run([*runs.place.command(run.name), *runs.data], capture_output=True, text=True)
    check(done.returncode == 0 and "warning: no receipt: " in done.stderr, f"{done.returncode} {done.stderr}")


def main():
    with Workplace(moe=True) as place:
        runs = Runs(place)
        for part in (check_same, check_changes, check_shards, check_damaged_meta, check_lost_meta, check_rerun,
                     check_rerun_device, check_rerun_precision, check_stopped_rerun, check_stops, check_output,
                     check_refusals, check_no_receipt):
            part(runs)
    print(f"receipt: ok ({len(CHANGES) + 2} changes named, {len(REFUSALS)} refusals)")


main()
