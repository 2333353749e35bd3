#!/usr/bin/env python3
"""A run records the joules of the CPU's counters: they grow from step to step, go on after a kill, and nothing is recorded
where there is no counter."""
import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, rows, stop_at

RANGE = 10_000_000_000  # microjoules; the counter starts just below, so that it begins again at 0 within the run


class Counter:
    """A package whose counter a thread moves, in a folder like Linux's powercap."""

    def __init__(self, folder):
        self.zone = folder / "intel-rapl:0"
        self.zone.mkdir(parents=True)
        (self.zone / "name").write_text("package-0\n")
        (self.zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.used, self.ended = 0, False
        self.write()
        self.thread = threading.Thread(target=self.count)

    def write(self):
        file = self.zone / "next"
        file.write_text(f"{(RANGE - 1000 + self.used) % RANGE}\n")
        file.rename(self.zone / "energy_uj")

    def count(self):
        while not self.ended:
            self.used += 1000
            self.write()
            time.sleep(0.0005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()


def joules(run, name="cpu_joules"):
    return rows(run, f"SELECT step, value FROM scalar WHERE name = '{name}' ORDER BY step")


def check_counted(place, counter):
    before = counter.used
    place.train("whole")
    used = 1e-6 * (counter.used - before)
    counted = joules(place.run("whole"))
    check([step for step, _ in counted] == list(range(1, 61)), counted)
    check(all(a <= b for (_, a), (_, b) in zip(counted, counted[1:])), counted)
    check(0 < counted[-1][1] < used, (counted[-1], used))
    check(joules(place.run("whole"), "gpu_joules") == [], "it trained on the CPU")
    log = (place.run("whole") / "log.txt").read_text()
    check("energy: counted of the CPU's package-0" in log, log)
    receipt = json.loads((place.run("whole") / "receipt.json").read_text())
    claim = next(c for c in receipt["claims"] if c["name"] == "train_cpu_joules")
    check(claim["value"] == counted[-1][1] and claim["unit"] == "J", claim)
    check(assay("receipt", "verify", place.run("whole")).returncode == 0, "the receipt recomputes itself")


def check_resumed(place):
    stop_at(place.command("killed"), 25, signal.SIGKILL)
    state = json.loads((place.run("killed") / "checkpoints" / "step-00000020" / "state.json").read_text())
    place.train("killed")
    counted = dict(joules(place.run("killed")))
    # A step may be shorter than the counter moves.
    check(len(counted) == 60 and 0 < counted[20] <= state["extra"]["cpu_joules"] <= counted[21] < counted[60],
          (counted[20], counted[21], counted[60], state["extra"]))


def check_absent(place):
    os.environ["ASSAY_POWERCAP"] = str(place.path / "nothing")
    place.train("absent", "--steps", "5")
    check(joules(place.run("absent")) == [], "no counter, no rows")
    log = (place.run("absent") / "log.txt").read_text()
    check("energy: not counted (of the CPU: " in log and "has no counter of a package (RAPL)" in log, log)


def check_doctor(place):
    facts = json.loads(assay("doctor", "--quick", "--json").stdout)
    check(facts["energy"]["cpu"] == "package-0", facts["energy"])
    check(not any("CPU's energy" in a["what"] for a in facts["advice"]), facts["advice"])


def main():
    with Workplace() as place:
        with Counter(place.path / "powercap") as counter:
            os.environ["ASSAY_POWERCAP"] = str(place.path / "powercap")
            check_doctor(place)
            check_counted(place, counter)
            check_resumed(place)
        check_absent(place)
        facts = json.loads(assay("doctor", "--quick", "--json").stdout)
        check(facts["energy"]["cpu"] == "not counted" and any("CPU's energy" in a["what"] for a in facts["advice"]), facts)
    print("energy: ok")


if __name__ == "__main__":
    main()
