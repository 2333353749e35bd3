#!/usr/bin/env python3
"""The same seed gives the same bits for any number of threads; another seed gives others."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, check, first_difference

SHORT = ["--set", "run.steps=20", "--set", "eval.every=10"]


def main():
    for moe in (False, True):
        with Workplace(moe) as place:
            place.train("once", *SHORT, "--set", "run.threads=2")
            for name, setting in (("twice", "run.threads=2"), ("one-thread", "run.threads=1"),
                                  ("three-threads", "run.threads=3")):
                place.train(name, *SHORT, "--set", setting)
                difference = first_difference(place.run("once"), place.run(name))
                check(difference is None, difference)
            place.train("other-seed", *SHORT, "--set", "run.seed=2")
            check(first_difference(place.run("once"), place.run("other-seed")), "another seed changes something")
    print("same bits: ok")


main()
