#!/usr/bin/env python3
"""Ctrl-C and Ctrl-Z of a run of several ranks: it stops with a checkpoint, or stands still until it is continued."""
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, checkpoints
from ranks_launch import RANKS, SETTINGS, SILENCE_S, Cases, Launch, difference, ranks_of, run_checks, started

def check_interrupts(cases):
    for name, strike in (("one", lambda launch, pids: os.kill(pids[2], signal.SIGINT)),
                         ("all", lambda launch, pids: launch.process.send_signal(signal.SIGINT))):
        launch = started(cases.place, f"interrupt-{name}", "--json")
        pids = launch.until_ranks()
        launch.until_line("step 25/")
        strike(launch, pids)
        launch.end().require(launch.code == 130, f"exit code {launch.code}")
        launch.quiet()
        launch.require("error:" not in launch.text(), "an error")
        launch.require("interrupted at step" in launch.text(), "no result")
        launch.require(launch.stdout.startswith("{") and launch.stdout.endswith("}\n"), f"stdout: {launch.stdout}")
        steps = [folder.name for folder in checkpoints(launch.run) if folder.name.startswith("step-")]
        stopped = re.search(r"interrupted at step (\d+)", launch.text()).group(1)
        launch.require(int(steps[-1][5:]) == int(stopped), f"stopped at {stopped}, saved {steps}")
        cases.goes_on(f"interrupt-{name}", "step", RANKS)
    # Before there is anything to save.
    launch = started(cases.place, "interrupt-start", early=True)
    launch.until_ranks()
    launch.process.send_signal(signal.SIGINT)
    launch.end().require(launch.code == 130, f"exit code {launch.code}")
    launch.quiet()
    cases.goes_on("interrupt-start", "step", RANKS)


# As an mpirun that has not started the ranks when it is asked to stop, and ranks that print all the time.
DEAF = """#!/bin/sh
heard=0 step=0
trap 'heard=$((heard + 1))' USR1
while [ $step -lt 500 ]; do
  step=$((step + 1))
  echo "step $step/500 loss 1.000" >&2
  sleep 0.02
  if [ $heard -ge 2 ]; then
    echo "stopping after this step, with a checkpoint; to stop now press Ctrl-C again after a second" >&2
    exit 130
  fi
done
"""


def check_asked_again(cases):
    """A request that mpirun did not pass on is repeated, also while lines come without a pause."""
    folder = cases.place.path / "deaf-mpirun"
    folder.mkdir()
    (folder / "mpirun").write_text(DEAF)
    (folder / "mpirun").chmod(0o755)
    launch = Launch(cases.place.command("deaf", *SETTINGS) + ["--ranks", str(RANKS)], cases.place.run("deaf"),
                    path=f"{folder}:")
    launch.until_line("step 1/")
    launch.process.send_signal(signal.SIGINT)
    launch.end().require(launch.code == 130, f"exit code {launch.code}")


def state_of(pid):
    """The letter of /proc/PID/stat: T = stopped."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def check_paused(cases):
    """Ctrl-Z stops the ranks too, for longer than a rank may be silent; after `fg` they go on."""
    launch = started(cases.place, "paused")
    pids = [launch.process.pid, *launch.until_ranks().values()]
    launch.until_line("step 15/")
    launch.process.send_signal(signal.SIGTSTP)
    launch.until(lambda: all(state_of(pid) == "T" for pid in pids), "a pause")
    time.sleep(0.2)
    said = len(launch.lines)
    time.sleep(SILENCE_S + 2)
    launch.require(len(launch.lines) == said, "it trains on")
    launch.process.send_signal(signal.SIGCONT)
    launch.end().require(launch.code == 0, f"exit code {launch.code}")
    found = difference(cases.place.run("whole-step"), launch.run)
    launch.require(found is None, f"paused: {found}")
    # What ends a stopped job ends its ranks.
    launch = started(cases.place, "paused-and-stopped")
    launch.until_ranks()
    launch.until_line("step 15/")
    launch.process.send_signal(signal.SIGTSTP)
    launch.until(lambda: all(state_of(pid) == "T" for pid in ranks_of(launch.run).values()), "a pause")
    launch.process.send_signal(signal.SIGTERM)
    launch.process.send_signal(signal.SIGCONT)
    launch.end().require(launch.code == 130, f"exit code {launch.code}")
    launch.require("interrupted at step" in launch.text(), "no result")


def main():
    with Workplace(moe=True) as place:
        run_checks(Cases(place, phases=("step",)), (check_interrupts, check_asked_again, check_paused))
    print("signals of ranks: ok")


main()
