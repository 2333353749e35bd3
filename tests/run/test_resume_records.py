#!/usr/bin/env python3
"""What a run goes on with besides its tensors: the best checkpoint although the telemetry is lost, an import that was
killed before it saved, validation with random rounding, a tail in bf16, and a checkpoint that cannot be read."""
import json
import pathlib
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, assay, check, checkpoints, rows, stop_at
from refusals import is_refusal

LOSSES = "SELECT step, value FROM eval WHERE task = 'val' AND metric = 'loss_nats' ORDER BY step"


NOT_KEPT = "SELECT detail FROM event WHERE kind = 'best_not_kept'"


def best_of(place, name):
    return (place.run(name) / "checkpoints" / "best").resolve().name


def check_best_without_telemetry(place):
    settings = []
    for field in ("optimizer.lr=0.3", "run.keep_best=true", "eval.every=5", "schedule.warmup=0", "schedule.warmdown=0"):
        settings += ["--set", field]
    place.train("whole", *settings)
    losses = rows(place.run("whole"), LOSSES)[1:]
    lowest = [min(loss for _, loss in losses[: i + 1]) for i in range(len(losses))]
    found = [i for i in range(len(losses) - 1) if losses[i][1] == lowest[i] < losses[i + 1][1]]
    check(found, f"a loss that rises after a best one: {losses}")
    best, worse = losses[found[0]][0], losses[found[0] + 1][0]
    place.train("lost", *settings, "--stop-after", str(best + 2))
    check(best_of(place, "lost") == f"step-{best:08d}", best_of(place, "lost"))
    (place.run("lost") / "telemetry.db").rename(place.path / "moved.db")
    place.train("lost", *settings, "--stop-after", str(worse - best - 2))
    check(rows(place.run("lost"), LOSSES)[-1] == losses[found[0] + 1], "the losses are those of the whole run")
    check(best_of(place, "lost") == f"step-{best:08d}", f"{best_of(place, 'lost')} is the best, not step {best}: {losses}")
    place.train("lost", *settings)
    check(best_of(place, "lost") == best_of(place, "whole"), f"at the end: {best_of(place, 'lost')} and {best_of(place, 'whole')}")
    # Asked for when the best one may be gone: the telemetry says that a lower loss has no checkpoint.
    keeps = settings.index("run.keep_best=true")
    place.train("asked", *settings[:keeps - 1], *settings[keeps + 1:], "--stop-after", str(worse + 2))
    place.train("asked", *settings, "--stop-after", "1")
    told = rows(place.run("asked"), NOT_KEPT)
    lost = f"the lowest validation loss, {losses[found[0]][1]:.4f} at step {best}, has no checkpoint that is marked as the best one"
    check(told == [(f"{lost}: no checkpoint is marked yet",)], f"{told}, not {lost}")
    place.train("asked", *settings, "--stop-after", "1")
    place.train("asked", *settings, "--stop-after", "1")
    told = rows(place.run("asked"), NOT_KEPT)
    check(len(told) == len(set(told)), f"told once: {told}")
    place.train("whole", *settings)
    check(rows(place.run("whole"), NOT_KEPT) == [], "a run that kept it from the start has lost none")


def check_killed_import(place):
    """Killed before its first checkpoint, it starts again from the imported weights without rows of the first time."""
    place.train("exported", "--steps", "10")
    for words in (("export", place.run("exported"), "-o", place.path / "model"),
                  ("import", place.path / "model", "-o", place.run("imported"), "--config", place.config)):
        done = assay(*words)
        check(done.returncode == 0, done.stderr)
    shutil.copytree(place.run("imported"), place.run("once"))
    command = [str(ASSAY), "train", str(place.run("imported") / "config.yaml"), "--run", str(place.run("imported")),
               "--set", "run.checkpoint_every=1000", "--set", "eval.every=5", "--set", "schedule.warmdown=0"]
    code, said = stop_at([*command, "--set", "run.steps=2000"], 24, signal.SIGKILL)
    check(code == -signal.SIGKILL and len(checkpoints(place.run("imported"))) == 1, f"killed: {code} {said}")
    for name in ("imported", "once"):
        done = assay(*command[1:3], "--run", place.run(name), *command[5:], "--set", "run.steps=12")
        again = "no checkpoint was left: begins again from the imported weights" in done.stderr
        check(again == (name == "imported"), f"{name}: {done.stderr}")
        check(done.returncode == 0 and "finished step 12/12" in done.stderr and "(step" not in done.stderr, done.stderr)
    check(rows(place.run("imported"), LOSSES) == rows(place.run("once"), LOSSES), "nothing of the killed process is left")
    check(rows(place.run("imported"), "SELECT max(step) FROM scalar") == [(12,)], "nor are its steps")
    told = rows(place.run("imported"), "SELECT detail FROM event WHERE kind = 'resume'")
    check(told == [("from the imported weights: nothing was saved yet",)], f"and telemetry says so: {told}")


def check_killed_early(place):
    """Killed before its first checkpoint, a run says that it begins again."""
    early = ("--set", "run.checkpoint_every=0", "--set", "run.steps=2000")
    code, said = stop_at(place.command("early", *early), 12, signal.SIGKILL)
    check(code == -signal.SIGKILL and not checkpoints(place.run("early")), f"killed: {code} {said}")
    for again in (True, False):
        done = place.train("early", *early, "--stop-after", "2")
        check(("no checkpoint was left: begins again at step 1" in done.stderr) == again, done.stderr)
    # What was measured before the first step is measured again: the precision or the files may be others now.
    code, said = stop_at(place.command("other", *early), 12, signal.SIGKILL)
    check(code == -signal.SIGKILL and not checkpoints(place.run("other")), f"killed: {code} {said}")
    for run in ("other", "other-fresh"):
        place.train(run, *early, "--set", "precision.recipe=mxfp8", "--stop-after", "2")
    first = [rows(place.run(run), "SELECT value, n FROM eval WHERE step = 0 AND task = 'val' AND metric = 'loss_nats'")
             for run in ("other", "other-fresh", "early")]
    check(first[0] == first[1] and first[0] != first[2], f"the loss before the first step: {first}")


def check_random_rounding(place):
    """The validation loss of one state is one number, whatever was trained before it in the process."""
    settings = []
    for field in ("precision.recipe=nvfp4", "precision.bf16_last_layers=0", "precision.override=[fprop.input=nvfp4+sr]",
                  "schedule.warmdown=0"):
        settings += ["--set", field]
    place.train("random", *settings, "--set", "run.steps=20")
    place.train("again", *settings, "--stop-after", "20")
    place.train("again", *settings, "--set", "run.steps=20")
    losses = [rows(place.run(name), LOSSES)[-1] for name in ("random", "again")]
    check(losses[0] == losses[1] and losses[0][0] == 20, f"the last validation: {losses}")
    (_, loss), = [row for row in rows(place.run("random"), LOSSES) if row[0] == 20]
    evaluated = [json.loads(assay("eval", place.run(name), "--json").stdout) for name in ("random", "again")]
    check(evaluated[0]["val_loss_nats"] == evaluated[1]["val_loss_nats"] == loss, f"assay eval: {evaluated}, {loss}")


def check_tail(place):
    """Steps that were made in bf16 because the run was to end do not become steps of the recipe."""
    settings = []
    for field in ("precision.recipe=nvfp4", "precision.bf16_tail=0.5", "schedule.warmdown=0"):
        settings += ["--set", field]
    place.train("tail", *settings, "--set", "run.steps=20")
    done = place.train("tail", *settings, "--set", "run.steps=40", expect=1)
    words = "precision.bf16_tail: of the 20 steps done the first 10 were in the recipe's formats, and would have been the first 20"
    check(is_refusal(done, words), done.stderr)
    place.train("tail", *settings, "--set", "run.steps=40", "--set", "precision.bf16_tail=0.75")
    place.train("bf16", "--set", "precision.recipe=bf16", "--set", "precision.bf16_tail=0.5", "--set", "schedule.warmdown=0",
                "--set", "run.steps=20")
    place.train("bf16", "--set", "precision.recipe=bf16", "--set", "precision.bf16_tail=0.5", "--set", "schedule.warmdown=0",
                "--set", "run.steps=40")


def check_automatic_recipe(place):
    """What `auto` is may be another recipe on this machine: a run that has made all its steps says how to show it."""
    place.train("made", "--set", "precision.recipe=fp32", "--steps", "10")
    done = place.train("made", "--set", "precision.recipe=bf16", "--steps", "10", expect=1)
    check("has made its 10 steps in fp32" in done.stderr and "--set precision.recipe=fp32" in done.stderr, done.stderr)
    done = place.train("made", "--set", "precision.recipe=fp32", "--steps", "10")
    check("finished step 10/10" in done.stderr and "recipe: fp32" in (place.run("made") / "config.yaml").read_text(), done.stderr)


def check_finished_run(place):
    """What is set after the last step is not what the steps were made with, and no target that the run stopped at."""
    settings = ["--set", "schedule.warmdown=0", "--set", "run.steps=20"]
    place.train("finished", *settings)
    config = place.run("finished") / "config.yaml"
    made_with = config.read_text()
    hashed = lambda: json.loads((place.run("finished") / "meta.json").read_text())["config_sha256"]
    made_with_hash = hashed()
    for target, met in (("100", "it was met at step 20 ("), ("0.001", "no validation met it")):
        done = place.train("finished", *settings, "--set", "eval.every=5", "--set", f"run.target_loss={target}", "--json")
        check("finished step 20/20" in done.stderr and json.loads(done.stdout)["end"] == "steps", done.stderr)
        said = f"run.target_loss = {target} did not stop the run, which was finished: {met}"
        check(said in done.stderr and f"target {target}" not in done.stderr, done.stderr)
        check(config.read_text() == made_with and hashed() == made_with_hash, config.read_text())
    samples = ("--set", "eval.samples={prompts: [Once], tokens: 4}")
    place.train("finished", *settings, "--set", "eval.every=5", *samples)
    check("prompts: [Once]" in config.read_text() and "every: 20" in config.read_text(), config.read_text())
    place.train("finished", *settings, "--set", "run.steps=25", "--set", "eval.every=5")
    check("  every: 5\n" in config.read_text() and hashed() != made_with_hash, "with another step it has another interval")


def check_other_model(place):
    """A run of another model is refused before any data is made, with the first differences; a preset is named."""
    place.train("runs/moe", "--steps", "10")
    cache = place.path / "no-cache"
    done = place.train("runs/moe", "--steps", "10", "--set", f"data.cache={cache}", "--set", "data.synth.seed=9", "--set",
                       "model.hidden=128", "--set", "model.ffn=256", "--set", "model.layers=3", "--set", "run.seed=5", expect=1)
    check("another configuration: model.hidden: 64 -> 128; " in done.stderr and "; and 2 more" in done.stderr, done.stderr)
    own = place.run("runs/moe")
    check(f"`assay train {own}/config.yaml --run {own}` goes on with the run's own values" in done.stderr, done.stderr)
    check("for these choose another --run, or delete it with --fresh" in done.stderr and not cache.exists(), done.stderr)
    done = place.train("runs/moe", "--steps", "10", "--set", f"data.cache={cache}", "--set", "data.synth.seed=9", expect=1)
    check("data.synth.seed: 1 -> 9" in done.stderr and not cache.exists(), done.stderr)
    done = assay("train", "models/presets/cpu/moe.yaml", cwd=place.path)
    check(done.returncode == 1 and "runs/moe was started with another configuration" in done.stderr, done.stderr)
    check("models/presets/cpu/moe.yaml is not in this folder: taking the preset /" in done.stderr, done.stderr)


def check_damaged_newest(place):
    """A damaged checkpoint from before the run's newest one: no good one goes for it, and no receipt names it."""
    def steps():
        return [int(folder.name[5:]) for folder in checkpoints(place.run("bad"))]

    place.train("bad", "--stop-after", "25")
    file = checkpoints(place.run("bad"))[-1] / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    done = place.train("bad", "--stop-after", "3")
    check("resumes after step 20" in done.stderr and steps() == [20, 23, 25], f"{steps()} {done.stderr}")
    check("another SHA-256" in file.with_name("DAMAGED.txt").read_text(), "the folder says why it was not taken")
    done = assay("receipt", "verify", place.run("bad"))
    check(done.returncode == 0 and "step-00000023/MANIFEST.json" in done.stdout, done.stdout + done.stderr)
    place.train("bad", "--stop-after", "7")
    check(steps() == [23, 25, 30], f"{steps()}")
    place.train("bad", "--stop-after", "1")
    check(steps() == [30, 31], f"{steps()}")


def check_settings_left_out(place):
    """A launch without what --set gave to the one before says what changed, and no checkpoint goes before the next is there."""
    def names():
        return sorted(path.name for path in (place.run("left") / "checkpoints").iterdir())

    def steps(number):
        return ("--set", "schedule.warmdown=0", "--set", f"run.steps={number}")

    keeps = ("--set", "run.keep_checkpoints=9", "--set", "run.keep_best=true")
    place.train("left", *keeps, *steps(2000), "--stop-after", "45")
    before, best = names(), best_of(place, "left")
    check(len(before) == 6 and best != "step-00000045", f"{before}, best {best}")  # with the link
    fewer = "run.keep_checkpoints: 9 -> 2: the next save removes up to 3 checkpoints (--set run.keep_checkpoints=9 keeps them)"
    for launches in (1, 2):  # what the first of them wrote into config.yaml is no reason for the second
        code, said = stop_at(place.command("left", *steps(2000), "--set", "run.checkpoint_every=0"), 46, signal.SIGKILL)
        check(code == -signal.SIGKILL and names() == before, f"killed: {code} {names()} {said}")
        text = (place.run("left") / "log.txt").read_text()
        check(text.count(fewer) == launches, text)
        check(text.count(f"checkpoints/best stays at step {int(best[5:])}, whatever") == launches, text)
    changed = ("changed since the last launch: run.checkpoint_every: 10 -> 0; run.keep_checkpoints: 9 -> 2; "
               "run.keep_best: true -> false\n")
    check(text.count(changed) == text.count("changed since the last launch") == 1, text)
    place.train("left", *steps(2000), "--stop-after", "1")
    check(names() == sorted({"best", best, "step-00000045", "step-00000046"}) and best_of(place, "left") == best, f"{names()}")
    place.train("left", *keeps, *steps(60))
    before = names()
    check(len(before) > 4, f"{before}")
    done = place.train("left", *steps(60))
    check("there is nothing left to train" in done.stderr and "-> 2" not in done.stderr and names() == before, done.stderr)


def check_unreadable(place):
    """A checkpoint that the system does not let one look at is not a damaged one, before which the run would go on."""
    place.train("unreadable", "--stop-after", "20")
    manifest = place.run("unreadable") / "checkpoints" / "step-00000020" / "MANIFEST.json"
    for file in (manifest, manifest.with_name("optimizer.safetensors")):
        file.rename(place.path / "aside")
        file.symlink_to(file.name)  # leads to itself: stat fails
        done = place.train("unreadable", expect=1)
        check(f"cannot read {file}" in done.stderr and "ignoring the checkpoint" not in done.stderr, done.stderr)
        file.unlink()
        (place.path / "aside").rename(file)
    check("resumes after step 20" in place.train("unreadable").stderr, "nothing was lost")


def check_large_intervals(place):
    large = ["--set", "run.log_every=4294967296", "--set", "telemetry.probe_every=4294967296"]
    place.train("large", *large, "--steps", "2")


def main():
    with Workplace() as place:
        check_best_without_telemetry(place)
        check_killed_import(place)
        check_killed_early(place)
        check_random_rounding(place)
        check_tail(place)
        check_automatic_recipe(place)
        check_finished_run(place)
        check_other_model(place)
        check_damaged_newest(place)
        check_settings_left_out(place)
        check_unreadable(place)
        check_large_intervals(place)
    print("resume of records: ok")


main()
