#!/usr/bin/env python3
"""--restarts of a run of several ranks: on how many ranks, from where and how often it begins again, and to the bits of an
untouched one."""
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints
from ranks_launch import RANKS, SETTINGS, Cases, Launch, difference, kill_one, run_checks, started

def check_restarts(cases):
    restart = "restart {} of {} since the last checkpoint: {}, from {}"
    # Fewer and fewer ranks, while no checkpoint comes.
    launch = started(cases.place, "fewer", "--restarts", "2", "--min-ranks", "1", early=True)
    before = kill_one(launch, 2)
    before = kill_one(launch, 0, before, ranks=2)
    launch.end().require(launch.code == 0, f"exit code {launch.code}")
    wanted = [restart.format(1, 2, "2 ranks", "the beginning"), restart.format(2, 2, "1 rank", "the beginning")]
    launch.require([line for line in launch.lines if line.startswith("restart ")] == wanted, "other restarts")
    found = difference(cases.place.run("whole-step"), launch.run)
    launch.require(found is None, f"restarted on 2 and 1: {found}")
    # The parts of the batch stay those of the first launch, also where it was lost before it had a configuration.
    settings = [word for pair in zip(SETTINGS[::2], SETTINGS[1::2]) if "parallel.parts" not in pair[1] for word in pair]
    for name, ranks in (("parts", "2"), ("parts-one", "1")):
        command = cases.place.command(name, *settings, "--ranks", str(RANKS), "--restarts", "2", "--min-ranks", ranks)
        launch = Launch(command, cases.place.run(name), early=True)
        before = kill_one(launch, 3)
        if ranks == "1":
            kill_one(launch, 1, before, ranks=2)
        launch.end().require(launch.code == 0, f"exit code {launch.code}")
        parts = re.findall(r"^ +parts: (\d+)$", (launch.run / "config.yaml").read_text(), re.M)
        launch.require(parts == [str(RANKS)], f"parts {parts}")
        found = difference(cases.place.run("whole-step"), launch.run)
        launch.require(found is None, f"restarted with parts of its own: {found}")
    # A new checkpoint counts anew.
    launch = started(cases.place, "more", "--restarts", "1")
    before = kill_one(launch, 3, line="step 15/")
    before = kill_one(launch, 1, before, line="step 35/")
    launch.end().require(launch.code == 0, f"exit code {launch.code}")
    launch.require(launch.text().count("\nrestart 1 of 1 since the last checkpoint: 4 ranks, from step ") == 2, "restarts")
    found = difference(cases.place.run("whole-step"), launch.run)
    launch.require(found is None, f"restarted twice: {found}")
    # The launcher itself: its ranks are ended before the folder is taken again.
    launch = started(cases.place, "launcher", "--restarts", "1")
    launch.until_line("step 15/")
    supervisor = launch.process.pid
    for child in pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    launch.end().require(launch.code == 0, f"exit code {launch.code}")
    launch.require(launch.text().count("\nrestart 1 of 1 since") == 1, "one restart")
    # --stop-after counts the steps of all launches together.
    launch = started(cases.place, "stops", "--restarts", "1", "--stop-after", "25")
    kill_one(launch, 1, line="step 15/")
    launch.end().require(launch.code == 0, f"exit code {launch.code}")
    newest = checkpoints(launch.run)[-1].name
    launch.require(newest == "step-00000025", f"stopped at {newest}")
    # No more than asked for.
    launch = started(cases.place, "enough", "--restarts", "1", early=True)
    before = kill_one(launch, 1)
    kill_one(launch, 1, before)
    launch.end().require(launch.code == 4, f"exit code {launch.code}")
    launch.require(launch.text().count("\nerror: rank 1 (") + launch.text().startswith("error: rank 1 (") == 2, "errors")
    # Ctrl-C while it starts again.
    launch = started(cases.place, "enough", "--restarts", "3", early=True)
    kill_one(launch, 0)
    launch.until_line("restart 1 of 3")
    launch.process.send_signal(signal.SIGINT)
    launch.end().require(launch.code in (130, -signal.SIGINT), f"exit code {launch.code}")
    launch.require("restart 2" not in launch.text(), "it goes on")


def check_fresh_restarts(cases):
    """--fresh, of a run with other bits: lost before it was deleted, and afterwards."""
    for spelling in ("--fresh", "--fresh=true"):
        other = cases.place.command("fresh", "--fresh", *SETTINGS, "--set", "run.seed=2", "--stop-after", "12")
        done = assay(*other[1:])
        check(done.returncode == 0, done.stderr)
        launch = started(cases.place, "fresh", spelling, "--restarts", "1", early=True)
        before = kill_one(launch, 2)
        launch.until_line("restart 1 of 1 since the last checkpoint: 4 ranks, from the beginning")
        kill_one(launch, 2, before, line="step 15/")
        launch.end().require(launch.code == 0, f"exit code {launch.code}")
        found = difference(cases.place.run("whole-step"), launch.run)
        launch.require(found is None, f"{spelling} and restarts: {found}")
        deleted = len(re.findall("^step 1/", launch.text(), re.M))
        launch.require(deleted == 1, f"{spelling}: begins {deleted} times")


def main():
    with Workplace(moe=True) as place:
        run_checks(Cases(place, phases=("step",)), (check_restarts, check_fresh_restarts))
    print("restarts of ranks: ok")


main()
