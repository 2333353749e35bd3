#!/usr/bin/env python3
"""What happens to a run of several ranks when one of them is killed, stopped or cannot write: who is named, how soon, with
which exit code, that no process is left, and that the run goes on to the bits of an untouched one.
usage: test_ranks_faults.py [--all | --many KILLS STOPS [SEED]]. --all: also the kills and stops that only repeat a way at
another moment. --many: so many of them at random, for the acceptance table."""
import json
import os
import pathlib
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, MPI, Workplace, assay, at_once, check, rows
from ranks_launch import (PHASES, RANKS, SETTINGS, SILENCE_S, STEPS, Cases, difference, ranks_of, require_hint, run_checks,
                          started)

def require_killed(launch, rank, pid):
    error, hint = launch.message(4)
    launch.require(re.fullmatch(rf"error: rank {rank} \(\S+(, pid {pid})?\) was ended by (signal 9 \(Killed\)|a signal); its last "
                                r"word: (nothing yet|the end of its run|step \d+, .+)", error), error)
    require_hint(launch, hint)


def require_stopped(launch, rank, pid):
    error, hint = launch.message(4)
    launch.require(re.fullmatch(rf"error: rank {rank} \(\S+, pid {pid}\) has said nothing for {SILENCE_S} s; its last word: "
                                r"(the end of its run|step \d+, .+)", error), error)
    launch.require(hint.startswith("hint: see that rank's output and its machine; "), hint)
    require_hint(launch, hint)


def struck(launch, number, pid):
    """False if the process has ended by itself."""
    launch.struck = time.time()
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def through(launch):
    """Whether the run was complete when the rank was struck: all ranks had agreed on its end."""
    return launch.code == 0 or "error: the run has ended, but MPI has not" in launch.text()


def struck_in_time(cases, name, phase, rank, line, number):
    """The end of a launch whose rank is struck behind this line (None: as soon as there are processes), and the pid. On a
    busy machine the run may be through by then: it begins again."""
    for attempt in range(5):
        launch = started(cases.place, name, *PHASES[phase], "--fresh", early=line is None)
        pids = launch.until_ranks()
        if line and pids:
            launch.until_line(line)
        if pids and struck(launch, number, pids[rank]) and not through(launch.end()):
            return launch, pids[rank]
        launch.end()
    return launch.fail("struck too late five times")


# Phase, rank, the line behind which it is struck, and on how many ranks the run goes on.
KILLS = [("step", 3, None, 4), ("evaluation", 2, "step 15/", 2), ("save", 0, "step 5/", 1), ("step", 1, f"step {STEPS}/", 2)]
MORE_KILLS = [("step", 0, "step 25/", 1), ("save", 1, "step 5/", 4), ("save", 3, "step 15/", 1)]
STOPS = [("evaluation", 0, "step 5/", 2), ("save", 3, "step 15/", 1), ("step", 2, "step 25/", 4)]
MORE_STOPS = [("step", 1, "step 1/", 1)]


def check_kills(cases):
    for phase, rank, line, ranks in KILLS + (MORE_KILLS if cases.every else []):
        name = f"kill-{rank}-{phase}-{line and line[5:7]}"
        launch, pid = struck_in_time(cases, name, phase, rank, line, signal.SIGKILL)
        require_killed(launch, rank, pid)
        launch.require(launch.gone - launch.struck < 10, "processes stay for 10 s")
        cases.goes_on(name, phase, ranks)


def check_stops(cases):
    def stop(case):
        phase, rank, line, ranks = case
        name = f"stop-{rank}-{phase}"
        launch, pid = struck_in_time(cases, name, phase, rank, line, signal.SIGSTOP)
        require_stopped(launch, rank, pid)
        cases.goes_on(name, phase, ranks)

    at_once(stop, STOPS + (MORE_STOPS if cases.every else []))  # they wait for a silence


def check_failing_writes(cases):
    for rank in (0, 3):
        name = f"write-{rank}"
        launch = started(cases.place, name)
        pids = launch.until_ranks()
        launch.until_line("step 25/")
        resource.prlimit(pids[rank], resource.RLIMIT_FSIZE, (4096, 4096))
        error, _ = launch.end().message(1)
        if rank == 0:  # its telemetry fails first
            launch.require("telemetry.db: cannot be read or written" in error, error)
        else:
            launch.require(error.startswith(f"error: rank {rank}") and "File too large" in error, error)
        cases.goes_on(name, "step", 2)


def check_failing_evaluation(cases):
    """An evaluation that fails on one rank does not end the run, as on one alone, and is made up for later."""
    samples = ("--set", f"eval.samples={{prompts: [Once, The], tokens: 4, every: {STEPS // 2}}}")
    blocked = cases.place.run("unsampled") / "samples.jsonl"
    blocked.mkdir(parents=True)
    launch = started(cases.place, "unsampled", *samples).end()
    launch.require(launch.code == 0 and "error:" not in launch.text(), f"exit code {launch.code}")
    failed = rows(launch.run, "SELECT step FROM event WHERE kind = 'no_evaluation' ORDER BY step")
    launch.require(failed == [(STEPS // 2,), (STEPS,)] == [(int(step),) for step in re.findall(
        r"warning: no evaluation samples at step (\d+): rank 0: .*samples.jsonl", launch.text())], f"events {failed}")
    found = difference(cases.place.run("whole-step"), launch.run)
    launch.require(found is None, f"a failed evaluation changes nothing: {found}")
    blocked.rmdir()
    launch = started(cases.place, "unsampled", *samples).end()
    steps = [json.loads(line)["step"] for line in blocked.read_text().splitlines()]
    launch.require(launch.code == 0 and steps == [STEPS, STEPS], f"exit code {launch.code}, texts of steps {steps}")


def check_two_launches(cases):
    first = started(cases.place, "twice")
    first.until_ranks()
    first.until_line("step 5/")
    second = assay(*cases.place.command("twice", *SETTINGS, "--ranks", str(RANKS))[1:])
    check(second.returncode == 1 and re.fullmatch(r"error: .*twice is in use by another process \(pid \d+\)\nhint: .*\n",
                                                  second.stderr), second.stderr)
    first.end().require(first.code == 0, f"exit code {first.code}")
    found = difference(cases.place.run("whole-step"), first.run)
    first.require(found is None, f"disturbed by another launch: {found}")


def check_folder_of_one(cases):
    """A rank in another folder, with a relative --run."""
    here, there = cases.place.run("here"), cases.place.run("there")
    here.mkdir(), there.mkdir()
    one = [str(ASSAY), "train", str(cases.place.config), "--run", "relative", *SETTINGS]
    done = subprocess.run(["mpirun", "-n", "1", "-wdir", str(here), *one, ":", "-n", "1", "-wdir", str(there), *one],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, **MPI})
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    check(done.returncode == 1 and len(errors) == 1 and re.fullmatch(
        r"error: rank 1 \(\S+, pid \d+\) gave up: the run directory relative is not there for this rank", errors[0]),
        f"exit {done.returncode}: {done.stderr}")


def check_refused(cases):
    done = cases.place.train("refused", "--set", "parallel.silence_s=1", "--ranks", "2", expect=1)
    check(re.fullmatch(r"error: .*parallel\.silence_s.*\nhint: .*\n", done.stderr), done.stderr)
    done = assay(*cases.place.command("refused", *SETTINGS, "--ranks", "4")[1:], env={**os.environ, "PATH": "/nonexistent"})
    check(done.returncode == 1 and re.fullmatch(r"error: cannot start mpirun, .*\nhint: .*\n", done.stderr), done.stderr)
    done = assay(*cases.place.command("refused", *SETTINGS, "--ranks", "4")[1:],
                 env={**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "0", "OMPI_MCA_orte_set_default_slots": "1"})
    check(done.returncode in (0, 1) and "----" not in done.stderr, done.stderr)


def many(cases, kills, stops, seed):
    """Random times, ranks and phases; counts for the acceptance table."""
    draw = random.Random(seed)
    for number, count in ((signal.SIGKILL, kills), (signal.SIGSTOP, stops)):
        named, gone, ends = [], [], 0
        for i in range(count):
            phase, rank, on = draw.choice(list(PHASES)), draw.randrange(RANKS), draw.choice((1, 2, 4))
            name, at = f"{number.name}-{i}", draw.random() * 2
            launch = started(cases.place, name, *PHASES[phase], early=True)
            begin = time.time()
            pids = launch.until_ranks()
            if number == signal.SIGSTOP:
                launch.until_watched()
            time.sleep(max(0.0, begin + at - time.time()))
            if launch.process.poll() is None and pids and ranks_of(launch.run).get(rank) == pids[rank]:
                struck(launch, number, pids[rank])
            if through(launch.end()):
                ends += 1
            else:
                (require_killed if number == signal.SIGKILL else require_stopped)(launch, rank, pids[rank])
                named.append(launch.named - launch.struck)
                gone.append(launch.gone - launch.struck)
                if named[-1] > (1 if number == signal.SIGKILL else SILENCE_S + 1):
                    print(f"{name}: {phase}, rank {rank} after {at:.2f} s, named in {named[-1]:.2f} s: {launch.message(4)[0]}",
                          flush=True)
            cases.goes_on(name, phase, on)
            subprocess.run(["rm", "-r", launch.run], check=True)
        if named:
            print(f"{number.name}: {count} runs, {ends} through before it; {len(named)} named the rank, in "
                  f"{statistics.median(named):.2f} s (most {max(named):.2f}), all processes gone in "
                  f"{statistics.median(gone):.2f} s (most {max(gone):.2f}); {count} resumed to equal bits", flush=True)


def main():
    with Workplace(moe=True) as place:
        cases = Cases(place, every=sys.argv[1:2] == ["--all"])
        if sys.argv[1:2] == ["--many"]:
            many(cases, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
            return
        run_checks(cases, (check_refused, check_kills, check_stops, check_failing_writes, check_failing_evaluation,
                           check_two_launches, check_folder_of_one))
    print("faults of ranks: ok")


main()
