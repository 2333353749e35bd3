#!/usr/bin/env python3
"""The peak resident memory of a run is within 15% + 64 MB of the printed plan, and --plan prints
the plan and stops. A run that does not fit is refused before it changes a folder."""
import fcntl
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, check, checkpoints, rows

TOO_LARGE = [word for field in ("hidden=1048576", "head_dim=64", "layers=200") for word in ("--set", f"model.{field}")]  # 5 TB


def check_refused(place):
    """--fresh deletes no run for one that cannot begin, and a new one leaves nothing that its next launch would go on from."""
    steps = ("--steps", "4")
    place.train("begun", *steps)
    files = sorted(path for path in place.run("begun").rglob("*"))
    done = place.train("begun", *steps, *TOO_LARGE, "--fresh", expect=1)
    check("error: the run needs " in done.stderr and done.stderr.count("hint: ") == 1, done.stderr)
    check(sorted(path for path in place.run("begun").rglob("*")) == files and checkpoints(place.run("begun")), "the run is there")
    with open(place.run("begun") / ".lock", "a", encoding="ascii") as lock:  # as the process that trains there
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place.train("begun", *steps, *TOO_LARGE, "--fresh", expect=1)
        check("begun is in use by another process" in done.stderr and "the run needs" not in done.stderr, done.stderr)
    place.train("new", *steps, *TOO_LARGE, expect=1)
    check(not place.run("new").exists(), "no folder is made")
    check("finished step 4/4" in place.train("new", *steps).stderr, "the same --run takes a smaller model")


def main():
    with Workplace(moe=True) as place:
        large = ["--set", "model.hidden=256", "--set", "model.vocab_size=8192", "--set", "run.steps=4",
                 "--set", "schedule.warmup=1", "--set", "schedule.warmdown=1"]
        plan = place.train("planned", "--plan", *large)
        planned = int(re.search(r"^total\s+(\d+) B", plan.stdout, re.M)[1])
        check(not (place.run("planned") / "checkpoints").exists(), "--plan trains nothing")
        check(planned > 50e6, f"the plan is large enough to mean something: {planned} B")
        place.train("real", *large)
        peak = rows(place.run("real"), "SELECT value FROM scalar WHERE name = 'peak_rss_bytes' ORDER BY step")[-1][0]
        check(abs(peak - planned) <= 0.15 * planned + 64e6, f"planned {planned} B, peak {peak} B")
        check_refused(place)
        print(f"memory: planned {planned / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB")


main()
