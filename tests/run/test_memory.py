#!/usr/bin/env python3
"""The peak resident memory of a run is within 15% + 64 MB of the printed plan, and --plan prints
the plan and stops."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, check, rows


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
        print(f"memory: planned {planned / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB")


main()
