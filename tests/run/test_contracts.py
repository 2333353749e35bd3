#!/usr/bin/env python3
"""Runs under contracts: their landings, which survive kill -9 to the bit, contracts in seconds, and
the summary."""
import json
import pathlib
import re
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BATCH_TOKENS, Workplace, check, checkpoints, first_difference, rows, stop_at


def sets(**fields):
    return [word for name, value in fields.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]


def resolved(run, field, section="contract"):
    found = re.search(rf"^{section}:\n(?:  .*\n)*?  {field}: (.*)$", (run / "config.yaml").read_text(), re.M)
    return found[1] if found else None


def landed(run):
    return rows(run, "SELECT step, detail FROM event WHERE kind = 'landing' ORDER BY step, rowid")


def check_landings(place):
    # The configuration itself is the reference: 60 steps. Evaluations are sparse, so that those of
    # the landings show.
    contract = [*sets(contract__kind="activeDN", contract__reference=place.config, eval__every=50, run__log_every=7,
                      run__checkpoint_every=25, run__keep_checkpoints=1)]
    done = place.train("whole", *contract)
    run = place.run("whole")
    check("landings of 60 steps: 2% at 2, 5% at 3, 10% at 6, 20% at 12, 50% at 30, 100% at 60" in done.stderr, done.stderr)
    steps = [2, 3, 6, 12, 30, 60]
    check([step for step, _ in landed(run)] == steps, landed(run))
    check(landed(run)[3][1] == "0.2 of activeDN", landed(run))
    evaluated = [step for step, in rows(run, "SELECT step FROM eval WHERE metric = 'loss_nats' AND step > 0 ORDER BY step")]
    check(evaluated == sorted({*steps, 50}), evaluated)
    # Every landing's checkpoint is kept; of the others only the last.
    kept = [int(folder.name[5:]) for folder in checkpoints(run)]
    check(kept == sorted({*steps, 50}), kept)
    seconds = rows(run, "SELECT step, value FROM scalar WHERE name = 'train_s' ORDER BY step")
    check({*evaluated} <= {step for step, _ in seconds}, f"the time of every evaluation is known: {seconds}")
    check(all(a[1] < b[1] for a, b in zip(seconds, seconds[1:])), f"training seconds grow: {seconds}")
    check(resolved(run, "landings") == "[0.02, 0.05, 0.1, 0.2, 0.5, 1.0]", "the resolved configuration lists the landings")
    check("config.yaml: " in resolved(run, "derived_from") and resolved(run, "reference") == '""', "the resolved configuration has the coefficient")

    for step in (7, 12, 35):
        stop_at(place.command("killed", *contract), step, signal.SIGKILL)
    place.train("killed", *contract)
    difference = first_difference(run, place.run("killed"))
    check(difference is None, difference)
    check(landed(place.run("killed")) == landed(run), "every landing is recorded once")
    again = rows(place.run("killed"), "SELECT step, value FROM scalar WHERE name = 'train_s' ORDER BY step")
    check(len(again) == len(seconds) and all(a[1] < b[1] for a, b in zip(again, again[1:])), f"training seconds continue after a kill: {again}")

    # A run without landings, and a fraction of the same horizon.
    place.train("none", *contract, *sets(contract__landings="[]"))
    check(not landed(place.run("none")), "an empty list gives no landings")
    check(first_difference(run, place.run("none")) is not None, "fewer evaluations")
    fifth = place.train("fifth", *contract, *sets(contract__fraction=0.2, schedule__warmdown=2))
    check("finished step 12/12" in fifth.stderr, fifth.stderr)
    check([step for step, _ in landed(place.run("fifth"))] == [2, 3, 6, 12], landed(place.run("fifth")))


def check_passed_landing(place):
    """A landing that is asked for when the run has passed its step is not made, which a line says."""
    asked = sets(contract__landings="[0.25,0.5,1]")
    place.train("passed", "--stop-after", "20")
    done = place.train("passed", *asked, "--stop-after", "20")
    said = "had passed when contract.landings asked for them are not made: 0.25 (step 15)"
    check(f"warning: landings that the run {said}\n" in done.stderr, done.stderr)
    check(landed(place.run("passed")) == [(30, "0.5 of steps")], landed(place.run("passed")))
    place.train("asked-first", *asked, "--stop-after", "40")
    shutil.rmtree(place.run("asked-first") / "checkpoints" / "step-00000015")
    for name, told in (("asked-first", False), ("passed", True)):
        done = place.train(name, *asked, "--stop-after", "1")
        check((said in done.stderr) == told, f"{name}: {done.stderr}")
    (place.run("passed") / "telemetry.db").unlink()  # nobody knows what it had
    done = place.train("passed", *asked, "--stop-after", "1")
    check(said not in done.stderr, done.stderr)


def check_seconds(place):
    quick = sets(contract__kind="seconds", contract__coefficient=1, schedule__warmup=0, schedule__warmdown=0,
                 contract__landings="[]", run__log_every=1000)
    place.train("seconds", *quick)
    run = place.run("seconds")
    step_seconds, steps = float(resolved(run, "step_seconds")), int(resolved(run, "steps", "run"))
    check(0 < step_seconds < 1 and steps in (int(1 / step_seconds), int(1 / step_seconds) + 1), f"{step_seconds} {steps}")
    check("measured" in resolved(run, "derived_from"), "derived_from says that it was measured")
    again = place.train("seconds", *quick)  # finishes with the step duration that it began with
    check(f"finished step {steps}/{steps}" in again.stderr, again.stderr)
    # A run as the reference.
    seconds = rows(run, "SELECT value FROM scalar WHERE name = 'train_s' ORDER BY step DESC LIMIT 1")[0][0]
    place.train("as-long", *sets(contract__kind="seconds", contract__reference=run, contract__step_seconds=seconds / 20,
                                 contract__landings="[]", schedule__warmdown_fraction=0.5, schedule__warmdown=0))
    check(int(resolved(place.run("as-long"), "steps", "run")) == 20, "20 steps, each of 1/20 of the seconds")
    # Steps that are far shorter than the contract went by.
    missed = place.train("missed", *sets(contract__kind="seconds", contract__coefficient=50, contract__step_seconds=5,
                                         contract__landings="[]", schedule__warmup=0, schedule__warmdown=0))
    for words in ("warning: the training took ", " s, not the 50 s of its contract: ", "10 steps were derived from 5 s"):
        check(words in missed.stderr, f"{words!r}: {missed.stderr}")


def check_summary(place):
    done = place.train("target", "--json", *sets(run__target_loss=20, contract__landings="[0.1]"))
    said = json.loads(done.stdout)
    check(said["end"] == "target_loss" and said["step"] == 6, said)
    check(said["capability"] is None and said["pathological_win"] is False, said)
    check(said["target"]["step"] == 6 and said["target"]["tokens"] == 6 * BATCH_TOKENS and said["target"]["seconds"] > 0, said)
    check(said["target"]["flops"] > 1e9 and said["train_s"] == said["target"]["seconds"], said)
    check(0 < said["health"]["worst_max_load_norm"] <= 1, said)
    for part in ("K*max_load", "target 20 reached"):
        check(part in done.stderr, done.stderr)
    check(said["val_step"] == 6 and said["val_loss_nats"] == said["loss_nats"], said)
    early = json.loads(place.train("early", "--json", "--stop-after", "5").stdout)
    check((early["step"], early["val_step"]) == (5, 0) and early["val_loss_nats"] == early["loss_nats"] > 5, early)
    none = json.loads(place.train("unvalidated", "--json", "--stop-after", "5", *sets(eval__at_start="false")).stdout)
    check((none["step"], none["val_step"], none["val_loss_nats"], none["loss_nats"]) == (5, None, None, None), none)


def main():
    with Workplace(moe=True) as place:
        check_landings(place)
        check_passed_landing(place)
        check_seconds(place)
        check_summary(place)
    print("contracts: ok")


main()
