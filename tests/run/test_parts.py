#!/usr/bin/env python3
"""parallel.parts in whole runs: a killed run resumes to the same bits, any number of threads gives them, one part is
what a run without the setting computes, and a number that does not divide the batch is refused."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, check_resumes, first_difference, rows
from refusals import is_refusal

# Eight micro-batches a step; six make a tree that is not a power of two.
EIGHT = ("--set", "run.micro_batch=2", "--set", "run.steps=40")
SIX = ("--set", "run.batch_tokens=768", "--set", "run.micro_batch=2", "--set", "run.steps=40")


def hashes(run):
    return rows(run, "SELECT step, value FROM scalar WHERE name = 'hash' ORDER BY step")


def parts(number):
    return ("--set", f"parallel.parts={number}")


def check_one(place):
    place.train("default", *EIGHT)
    place.train("one", *EIGHT, *parts(1))
    difference = first_difference(place.run("default"), place.run("one"))
    check(difference is None, f"one part: {difference}")
    check("parallel:\n  parts: 1" in (place.run("default") / "config.yaml").read_text(), "config.yaml names the parts")


def check_others(place):
    for number in (2, 4, 8):
        place.train(f"parts-{number}", *EIGHT, *parts(number))
    place.train("parts-4-again", *EIGHT, *parts(4), "--set", "run.threads=1")
    difference = first_difference(place.run("parts-4"), place.run("parts-4-again"))
    check(difference is None, f"one thread: {difference}")
    runs = {name: tuple(hashes(place.run(name))) for name in ("default", "parts-2", "parts-4", "parts-8")}
    check(len(set(runs.values())) == 4, "another number of parts rounds in another order")
    losses = [rows(place.run(name), "SELECT value FROM eval WHERE metric = 'loss_nats' ORDER BY step DESC LIMIT 1")[0][0]
              for name in runs]
    check(max(losses) - min(losses) < 0.05, f"and hardly changes the loss: {losses}")
    done = place.train("parts-4", *EIGHT, *parts(2), expect=1)
    check(is_refusal(done, "parallel.parts: 4 -> 2"), f"resumed with other parts: {done.stderr}")


def check_refused(place):
    done = place.train("no", *EIGHT, *parts(3), expect=1)
    check("error: parallel.parts = 3 does not divide the 8 micro-batches of a step" in done.stderr, done.stderr)
    check("choose one of 1, 2, 4, 8\n" in done.stderr, done.stderr)
    done = place.train("no", *EIGHT, *parts(16), expect=1)
    check("choose one of 1, 2, 4, 8, or --set run.micro_batch=1\n" in done.stderr, done.stderr)
    done = place.train("no", *parts(-1), expect=1)
    check(is_refusal(done, "parallel.parts"), done.stderr)
    done = assay("train", place.config, "--plan", *EIGHT, *parts(8))
    check(done.returncode == 0 and "sums of parts" in done.stdout and "parts.level2" in done.stdout, done.stdout + done.stderr)
    done = assay("train", place.config, "--plan", *EIGHT)
    check("parts.level" not in done.stdout, done.stdout)


def main():
    with Workplace(moe=True) as place:
        check_one(place)
        check_others(place)
        check_refused(place)
    with Workplace(moe=True) as place:
        place.train("whole", *SIX, *parts(6))
        check_resumes(place, *SIX, *parts(6))
    print("parts: ok")


main()
