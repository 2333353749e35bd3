#!/usr/bin/env python3
"""A run stopped by Ctrl-C, by kill -9 or by a damaged checkpoint and started again leaves the same bits as one that
was never stopped: last checkpoint, losses, hashes and loads in telemetry.db."""
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, check, newest_model, rows

SAME = ["SELECT step, name, value FROM scalar WHERE name IN ('train_loss_nats', 'gradient_norm', 'hash')"
        " ORDER BY step, name",
        "SELECT step, layer, counts FROM expert_load ORDER BY step, layer",
        "SELECT step, task, metric, value, n FROM eval ORDER BY step, task, metric"]


def wait_for_step(run, step, process):
    deadline = time.time() + 120
    while time.time() < deadline and process.poll() is None:
        try:
            if rows(run, "SELECT max(step) FROM scalar")[0][0] >= step:
                return
        except Exception:  # not there yet
            pass
        time.sleep(0.005)
    sys.exit(f"FAILED: the run did not reach step {step}")


def stop_at(place, name, step, signal_number):
    process = subprocess.Popen(place.command(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_step(place.run(name), step, process)
    process.send_signal(signal_number)
    return process.wait()


def same(place, a, b, what):
    check(newest_model(place.run(a)) == newest_model(place.run(b)), f"{what}: other weights")
    for query in SAME:
        check(rows(place.run(a), query) == rows(place.run(b), query), f"{what}: {query} differs")


def main():
    for moe in (False, True):
        with Workplace(moe) as place:
            place.train("whole")
            check(newest_model(place.run("whole"))[0] == "step-00000060", "the last step has a checkpoint")

            code = stop_at(place, "interrupted", 15, signal.SIGINT)
            check(code == 130, f"Ctrl-C exits 130, not {code}")
            place.train("interrupted")
            same(place, "whole", "interrupted", "Ctrl-C")

            for step in (7, 23, 41):
                stop_at(place, "killed", step, signal.SIGKILL)
            done = place.train("killed")
            same(place, "whole", "killed", "kill -9")

            stop_at(place, "damaged", 33, signal.SIGKILL)
            newest = sorted((place.run("damaged") / "checkpoints").glob("step-*"))[-1]
            with open(newest / "model.safetensors", "r+b") as file:
                file.seek(-5, 2)
                file.write(b"\xff\xff")
            done = place.train("damaged")
            check(newest.name in done.stderr, f"the damaged checkpoint is named: {done.stderr}")
            same(place, "whole", "damaged", "damaged checkpoint")

            again = place.train("whole")
            check("step-00000060" == newest_model(place.run("whole"))[0], "a finished run stays")
            check("60" in again.stderr, "a finished run says so")
    print("resume: ok")


main()
