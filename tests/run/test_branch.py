#!/usr/bin/env python3
"""assay branch: the bits of a branch are those of a run that had stopped there by its configuration (dense, mixture,
nvfp4, under a contract, after kill -9), and bad input."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, assay, check, first_difference, newest_tensors, rows, stop_at
from refusals import is_refusal

TRUNK = ("--set", "run.keep_checkpoints=9", "--set", "telemetry.probe_every=5")
VARIANTS = {
    "plain": (),
    "nvfp4": ("--set", "precision.recipe=nvfp4", "--set", "precision.bf16_tail=0.1", "--set", "model.hidden=128",
              "--set", "model.ffn=128"),
    "contract": ("--set", "contract.kind=activeDN", "--set", "contract.coefficient=0.3", "--set", "contract.landings=[0.2,0.5,1]",
                 "--set", "schedule.warmdown=10"),
    "fraction": ("--set", "contract.fraction=0.5"),  # the trunk ends at 30 of 60 steps, its branch at 32
}


def branch(*arguments, expect=0):
    done = assay("branch", *arguments)
    check(done.returncode == expect, f"branch {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def check_same(place, name, what):
    """The branch `name` against a run of its configuration from the first step."""
    folder = place.run(name)
    done = assay("train", folder / "config.yaml", "--run", place.run("stopped"), "--fresh")
    check(done.returncode == 0, done.stderr)
    difference = first_difference(place.run("stopped"), folder)
    check(difference is None, f"{what}: {difference}")


def check_bits(place, what):
    variant = (*TRUNK, *VARIANTS[what])
    place.train(what, *variant)
    trunk = place.run(what)
    if what == "contract":
        share = ("--at", "0.2", "--warmdown", "0.3")
    else:
        share = ("--at-step", "20", "--warmdown-steps", "12")
    plan = branch(trunk, *share, "--run", place.run("b"), "--dry-run")
    check(f"{7 if what == 'contract' else 12} steps more with a warm-down" in plan.stdout, plan.stdout)
    planned = json.loads(branch(trunk, *share, "--run", place.run("b"), "--dry-run", "--json").stdout)
    wanted = {"run": str(place.run("b")), "trunk": str(trunk)}
    if what == "plain":
        wanted |= {"step": 20, "share_of_contract": 20 / 60, "warmdown_steps": 12, "steps": 32}
    check({name: planned[name] for name in wanted} == wanted, f"{planned}, not {wanted}")
    check(pathlib.Path(planned["checkpoint"]).parent.parent == trunk, planned)
    check(not place.run("b").exists(), "a dry run writes nothing")
    branch(trunk, *share, "--run", place.run("b"))
    check_same(place, "b", what)
    last, = rows(place.run("b"), "SELECT max(step) FROM scalar WHERE name = 'hash'")
    check(last[0] == planned["steps"], f"{what}: the branch has {last[0]} steps, planned were {planned['steps']}")
    return trunk, share


def check_from_last_step(place):
    """A branch that leaves after the last step of a constant rate: its bits are those of a run of its own, and it keeps the
    rows of that step, which such a run does not log or validate (docs/branch.md)."""
    seldom = ("--set", "run.log_every=7", "--set", "eval.every=9", "--set", "schedule.warmdown=0", "--steps", "30")
    place.train("constant", *TRUNK, *seldom)
    folder = place.run("from-last")
    branch(place.run("constant"), "--at-step", "30", "--warmdown-steps", "10", "--run", folder)
    done = assay("train", folder / "config.yaml", "--run", place.run("of-its-own"))
    check(done.returncode == 0, done.stderr)
    check(newest_tensors(place.run("of-its-own")) == newest_tensors(folder), "the bits of a branch from the last step")
    scalars = "scalar WHERE name IN ('hash', 'lr', 'train_loss_nats')"
    for table, columns in ((scalars, "step, name, value"), ("eval WHERE true", "step, task, metric, value")):
        others = f"SELECT {columns} FROM {table} AND step != 30 ORDER BY {columns}"
        check(rows(folder, others) == rows(place.run("of-its-own"), others) != [], f"{table}, but of step 30")
        last = f"SELECT {columns} FROM {table} AND step = 30"
        check(rows(folder, last) != [] == rows(place.run("of-its-own"), last), f"{table} of step 30")


def check_killed(place, trunk, share):
    folder = place.run("killed")
    command = [str(ASSAY), "branch", str(trunk), *share, "--run", str(folder)]
    stop_at(command, 26, signal.SIGKILL)
    branch(trunk, *share, "--run", folder)
    difference = first_difference(place.run("b"), folder)
    check(difference is None, f"kill -9 in the branch: {difference}")
    # Killed before it trained: the folder is the trunk's at the checkpoint.
    before = rows(folder, "SELECT value FROM eval WHERE step = 20 AND metric = 'loss_nats'")
    check(before == rows(trunk, "SELECT value FROM eval WHERE step = 20 AND metric = 'loss_nats'"), "evaluations of the trunk")
    for command in (("receipt", "verify", folder), ("compare", trunk, folder), ("report", folder, "-o", place.path / "r.html")):
        done = assay(*command)
        check(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
    origin = json.loads((folder / "branch.json").read_text())
    check(origin["trunk"] == str(trunk.resolve()) and origin["step"] == 20 and origin["steps"] == 32, origin)


def check_moved(place, trunk, share):
    """A branch goes on although its trunk's folder has moved."""
    folder = place.run("moved-branch")
    stop_at([str(ASSAY), "branch", str(trunk), *share, "--run", str(folder)], 24, signal.SIGKILL)
    moved = trunk.rename(place.run("moved-trunk"))
    branch(moved, *share, "--run", folder)
    moved.rename(trunk)
    difference = first_difference(place.run("b"), folder)
    check(difference is None, f"a trunk that moved: {difference}")
    done = assay("branch", trunk, *share, "--run", place.run("under-a-launcher"), env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
    check(done.returncode == 1 and "trains in one process" in done.stderr, f"under a launcher: {done.stderr}")


def check_measured(place, trunk, share):
    """A branch has what was measured of its trunk up to the checkpoint: the telemetry says that it was."""
    lines = [json.dumps({"step": step, "prompt": "A", "text": f" text {step}"}) + "\n" for step in (10, 20, 30)]
    (trunk / "samples.jsonl").write_text("".join(lines))
    (trunk / "evals").mkdir(exist_ok=True)
    names = ["step-00000010.json", "step-00000020.core-1-of-2.json", "step-00000020.json"]
    for name in (*names, "step-00000030.json", "mine.json"):
        (trunk / "evals" / name).write_text(json.dumps({"of": name}))
    folder = place.run("measured")
    branch(trunk, *share, "--run", folder)
    check((folder / "samples.jsonl").read_text() == "".join(lines[:2]), "the samples up to the checkpoint")
    check(sorted(path.name for path in (folder / "evals").iterdir()) == names, f"{list((folder / 'evals').iterdir())}")
    check(all(json.loads((folder / "evals" / name).read_text()) == {"of": name} for name in names), "the evaluations")
    (trunk / "samples.jsonl").unlink()
    shutil.rmtree(trunk / "evals")


def check_pruned(place, share):
    """A branch goes on although its trunk has removed the checkpoint."""
    place.train("rolling", "--set", "telemetry.probe_every=5", "--stop-after", "20")
    trunk, folder = place.run("rolling"), place.run("of-rolling")
    stop_at([str(ASSAY), "branch", str(trunk), *share, "--run", str(folder)], 24, signal.SIGKILL)
    place.train("rolling", "--set", "telemetry.probe_every=5", "--set", "run.keep_checkpoints=1")
    check(not (trunk / "checkpoints" / "step-00000020").exists(), "the trunk has removed it")
    done = branch(trunk, *share, "--run", place.run("another"), expect=1)
    check("has no checkpoint of step 20" in done.stderr, done.stderr)
    done = branch(trunk, "--at-step", "20", "--warmdown-steps", "13", "--run", folder, expect=1)
    check("has no checkpoint of step 20" in done.stderr, f"another branch in the same folder: {done.stderr}")
    branch(trunk, *share, "--run", folder)
    difference = first_difference(place.run("b"), folder)
    check(difference is None, f"a trunk without the checkpoint: {difference}")
    place.train("rolling", "--set", "telemetry.probe_every=5", "--fresh", "--set", "precision.recipe=nvfp4", "--stop-after", "20")
    done = branch(trunk, *share, "--run", folder, expect=1)
    check("are not those of this branch" in done.stderr, f"a trunk that was trained again, in another format: {done.stderr}")


def check_bad_input(place, trunk, share):
    used = place.run("b")
    cases = [((place.path / "none", *share), "none"),
             ((trunk, "--at-step", "1000000000000000000", "--warmdown", "0.9"), "the run has 60 steps"),
             ((trunk, "--at-step", "20", "--warmdown-steps", "9000000000000000000"), "the run has 60 steps"),
             ((trunk, "--at-step", "25", "--warmdown-steps", "5"), "has no checkpoint of step 25"),
             ((trunk, "--at-step", "60", "--warmdown-steps", "5"), "inside the trunk's own warm-down"),
             ((trunk, "--at-step", "20"), "the warm-down is missing"),
             ((trunk, "--warmdown", "0.2"), "where to branch is missing"),
             ((trunk, "--at", "0.5", "--at-step", "20", "--warmdown", "0.2"),
              "--at 0.5 and --at-step 20 are both given"),
             ((trunk, "--at-step", "20", "--warmdown", "0.1", "--warmdown-steps", "1"),
              "--warmdown 0.1 and --warmdown-steps 1 are both given"),
             ((trunk, "--at", "0", "--warmdown", "0.2"), "--at: 0 is not a number > 0 and <= 1"),
             ((trunk, "--at", "nan", "--warmdown", "0.2"), "--at: nan is not a number > 0 and <= 1"),
             ((trunk, "--at-step", "20", "--warmdown", "1"), "--warmdown: 1 is not a number > 0 and <= 0.999"),
             ((trunk, "--at-step", "30", "--warmdown-steps", "5", "--run", used), "are not those of this branch")]
    for arguments, words in cases:
        done = branch(*arguments, expect=1)
        check(words in done.stderr and is_refusal(done, printed="--run" in arguments), f"{arguments}: {done.stderr}")
    longer = branch(trunk, "--at-step", "20", "--warmdown-steps", "58", "--dry-run")
    check("58 steps more with a warm-down, 78 in all" in longer.stdout, f"longer than its trunk: {longer.stdout}")
    check("20 (33.3%)" in branch(trunk, "--at-step", "25", "--warmdown-steps", "5", expect=1).stderr, "the hint lists checkpoints")
    imported = place.run("imported")
    shutil.copytree(trunk, imported)
    (imported / "imported.json").write_text("{}")
    shutil.copytree(imported / "checkpoints/step-00000020", imported / "checkpoints/step-00000000")
    branch(imported, *share, "--run", place.run("of-imported"))
    for name in ("imported.json", "checkpoints/step-00000000/MANIFEST.json"):
        check((place.run("of-imported") / name).exists(), f"a branch of an imported run has no {name}")
    shutil.copytree(trunk, place.run("early"))
    done = branch(place.run("early"), "--at", "0.05", "--warmdown", "0.2", expect=1)
    check("has no checkpoint of step 3" in done.stderr, done.stderr)


MATRIX = """
name: m
models: {dense: config.yaml, moe: {config: config.yaml, set: {model.moe: {experts: 4, top_k: 2, expert_ffn: 32}}}}
contracts:
  - {kind: activeDN, reference: dense, branches: [0.25, 0.5], branch_warmdown: 0.3}
seeds: [1]
claims: [{measure: val_loss, of: moe, below: dense, across: [activeDN-at-0.25, activeDN]}]
"""


def check_branch_taken_out(place, command):
    """Trunks that have landings for a branch that is gone are what the matrix asks for. A landing more is another run."""
    whole = place.path / "m.yaml"
    whole.write_text(MATRIX.replace("branches: [0.25, 0.5]", "branches: [0.25]"))
    done = assay(*command)
    check(done.returncode == 0 and "0 to train" in done.stderr and "changed after" not in done.stderr, done.stderr)
    check("removed: kept on the disk" in done.stderr and "| moe" in done.stdout, done.stderr + done.stdout)
    check(assay("receipt", "verify", place.run("m")).returncode == 0, "the receipt without the branch")
    whole.write_text(MATRIX.replace("branches: [0.25, 0.5]", "branches: [0.25, 0.4]"))
    done = assay(*command)
    check(done.returncode == 1 and "contract.landings: [" in done.stderr, f"a landing that no trunk has: {done.stderr}")
    whole.write_text(MATRIX)


def check_matrix(place):
    (place.path / "m.yaml").write_text(MATRIX)
    command = ("matrix", place.path / "m.yaml", "--run-dir", place.run("m"))
    plan = json.loads(assay(*command, "--dry-run", "--json").stdout)
    cells = {run["cell"]: run for run in plan["runs"]}
    check(cells["moe-activeDN-at-0.5-auto-seed1"]["branch_of"] == "moe-activeDN-auto-seed1", plan)
    check("of separate runs" in assay(*command, "--dry-run").stdout, "the plan says what branches save")

    process = subprocess.Popen([str(ASSAY), *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    branch_log = place.run("m") / "logs" / "dense-activeDN-at-0.5-auto-seed1.log"
    end = time.monotonic() + 60
    while not (branch_log.exists() and "step " in branch_log.read_text()) and process.poll() is None:
        check(time.monotonic() < end, "the matrix comes to its branches")
        time.sleep(0.01)
    process.kill()
    process.wait()
    done = assay(*command)
    check(done.returncode == 0, done.stdout + done.stderr)
    check("a branch of activeDN that ends at 25%" in done.stdout, done.stdout)
    for name in ("dense-activeDN-at-0.5-auto-seed1", "moe-activeDN-at-0.25-auto-seed1"):
        config = place.run("m") / "configs" / f"{name}.yaml"
        done = assay("train", config, "--run", place.run("stopped"), "--fresh")
        check(done.returncode == 0, done.stderr)
        difference = first_difference(place.run("stopped"), place.run("m") / name)
        check(difference is None, f"{name} and a run of its configuration: {difference}")
    check(assay("receipt", "verify", place.run("m")).returncode == 0, "the matrix's receipt")
    done = assay(*command)
    check("0 to train" in done.stderr, f"nothing is left: {done.stderr}")
    check_branch_taken_out(place, command)
    for text, words in (("branches: [1]", "a branch ends at 1"), ("branches: [0.95], branch_warmdown: 0.05", "inside the trunk's own warm-down"),
                        ("branch_warmdown: 0.9, branches: [0.2]", "inside the warm-up")):
        (place.path / "bad.yaml").write_text(MATRIX.split("claims:")[0].replace("branches: [0.25, 0.5], branch_warmdown: 0.3", text))
        done = assay("matrix", place.path / "bad.yaml", "--dry-run")
        check(words in done.stderr and is_refusal(done), f"{text}: {done.stderr}")


def main():
    with Workplace() as place:
        trunk, share = check_bits(place, "plain")
        check_killed(place, trunk, share)
        check_moved(place, trunk, share)
        check_measured(place, trunk, share)
        check_pruned(place, share)
        check_from_last_step(place)
        check_bad_input(place, trunk, share)
        check_matrix(place)
    for what in VARIANTS:
        with Workplace(moe=True) as place:
            check_bits(place, what)


if __name__ == "__main__":
    main()
