#!/usr/bin/env python3
"""What happens to a run of several ranks when one of them is killed, stopped, cannot write or is interrupted: who is
named, how soon, with which exit code, that no process is left, and that the run goes on to the bits of an untouched one.
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
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, MPI, SAME, Workplace, assay, at_once, check, checkpoints, rows

RANKS, SILENCE_S = 4, 2
# Steps are short: enough of them that a rank is struck before the last one.
STEPS = 80
SETTINGS = ("--set", "run.micro_batch=2", "--set", f"run.steps={STEPS}", "--set", f"parallel.parts={RANKS}",
            "--set", f"parallel.silence_s={SILENCE_S}", "--device", "cpu")
# Where a run spends most of its time.
PHASES = {
    "step": (),
    "evaluation": ("--set", "run.steps=40", "--set", "eval.every=1", "--set", "eval.tokens=16384"),
    "save": ("--set", "run.steps=40", "--set", "run.checkpoint_every=1"),
}
BANNERS = ("MPI_ABORT", "Primary job", "mpirun noticed", "mpirun detected", "mpirun has exited", "mpirun ended", "ORTE", "----")


def environment(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in text.split(b"\0") if b"=" in entry)


def processes_of(folder):
    """Pids whose command line names this folder; neither this process nor one that has ended."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def ranks_of(folder):
    """{rank: pid}"""
    pids = {}
    for pid in processes_of(folder):
        rank = environment(pid).get(b"OMPI_COMM_WORLD_RANK")
        try:
            if rank is not None and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(ASSAY):
                pids[int(rank)] = pid
        except OSError:  # it ended while we looked
            pass
    return pids


class Launch:
    """A run under way. Its lines of stderr are read as they come. early: it is to be struck while it starts, so it
    measures the limit of matrix products, which takes a second, although the caller knows it."""

    def __init__(self, command, run, early=False, path=""):
        self.run, self.lines, self.times = run, [], []
        self.fresh = any(str(word).startswith("--fresh") for word in command)
        known = {name: value for name, value in os.environ.items() if not early or name != "ASSAY_MATMUL_GFLOPS"}
        known["PATH"] = path + known["PATH"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        stdin=subprocess.DEVNULL, env=known)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.times.append(time.time())
            self.lines.append(line.rstrip("\n"))

    def until(self, holds, what, limit=60):
        """Waits until it holds; False if the launch ended before."""
        end = time.time() + limit
        while time.time() < end:
            value = holds()
            if value:
                return value
            if self.process.poll() is not None:
                return holds()
            time.sleep(0.002)
        return self.fail(f"{limit} s without {what}")

    def until_line(self, begin):
        return self.until(lambda: any(line.startswith(begin) for line in self.lines), f"a line {begin}")

    def until_ranks(self, number=RANKS, besides=()):
        def there():
            pids = ranks_of(self.run)
            return pids if len(pids) == number and not set(pids.values()) & set(besides) else None
        return self.until(there, f"{number} ranks")

    def until_watched(self):
        """Until ranks are missed."""
        def heard():
            try:
                lines = (self.run / "ranks" / "last.txt").read_text().splitlines()[1:]
            except OSError:
                return False
            return len(lines) == RANKS and all(float(line.split("\t")[1]) >= 0 for line in lines)
        return self.until(heard, "last words")

    def end(self, limit=60):
        try:
            self.code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.fail("it does not end")
        self.ended = time.time()
        while left := processes_of(self.run):
            if time.time() > self.ended + 10:
                self.fail(f"processes are left: {left}")
            time.sleep(0.02)
        self.gone = time.time()
        self.reader.join(5)
        self.stdout = self.process.stdout.read()
        return self

    def text(self):
        return "\n".join(self.lines)

    def fail(self, why):
        for pid in processes_of(self.run):
            os.kill(pid, signal.SIGKILL)
        sys.exit(f"FAILED: {why}\nexit {self.process.poll()}\n{self.text()}")

    def require(self, holds, why):
        if not holds:
            self.fail(why)

    def message(self, code):
        """The error and the hint: one line of each, and nothing of mpirun."""
        self.require(self.code == code, f"exit code {self.code}, not {code}")
        errors = [line for line in self.lines if line.startswith("error: ")]
        hints = [line for line in self.lines if line.startswith("hint: ")]
        self.require(len(errors) == len(hints) == 1, f"{len(errors)} errors, {len(hints)} hints")
        self.quiet()
        self.named = self.times[self.lines.index(errors[0])]
        return errors[0], hints[0]

    def quiet(self):
        shown = [banner for banner in BANNERS if banner in self.text()]
        self.require(not shown, f"mpirun's own words are shown: {shown}")


def started(place, name, *more, ranks=RANKS, early=False):
    command = place.command(name, *SETTINGS, *more)
    return Launch(command + ["--ranks", str(ranks)] if ranks > 1 else command, place.run(name), early)


def difference(whole, run):
    for query in SAME:
        a, b = rows(whole, query), rows(run, query)
        if a != b:
            return f"{query}: {next((pair for pair in zip(a, b) if pair[0] != pair[1]), (len(a), len(b)))}"
    return None


class Cases:
    def __init__(self, place, every):
        self.place, self.every = place, every
        for phase, settings in PHASES.items():  # the untouched runs
            started(place, f"whole-{phase}", *settings, ranks=1).end().require(True, "")

    def goes_on(self, name, phase, ranks):
        """The same command ends the run, with the bits of the untouched one."""
        launch = started(self.place, name, *PHASES[phase], ranks=ranks).end()
        launch.require(launch.code == 0, f"{name} goes on with exit code {launch.code}")
        found = difference(self.place.run(f"whole-{phase}"), self.place.run(name))
        launch.require(found is None, f"{name} resumed on {ranks}: {found}")
        return launch


def require_hint(launch, hint):
    """It names the newest checkpoint, what is repeated, and where the command goes on."""
    steps = [int(folder.name.split("-")[1]) for folder in checkpoints(launch.run) if folder.name.startswith("step-")]
    if steps:
        launch.require(f"the last checkpoint is step {steps[-1]}" in hint, f"checkpoints {steps}: {hint}")
        how = "without --fresh goes on" if launch.fresh else "goes on"
        launch.require(f"the same command {how}, on 1, 2 or 4 ranks" in hint, hint)
        launch.require(re.search(r"step \d+(, about \d+ steps? (is|are) repeated)?; ", hint), hint)
    else:
        launch.require("there is no checkpoint yet; the same command begins again, on 1, 2 or 4 ranks" in hint, hint)


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


def kill_one(launch, rank, besides=(), ranks=RANKS, line=None):
    pids = launch.until_ranks(ranks, besides)
    if line:
        launch.until_line(line)
    os.kill(pids[rank], signal.SIGKILL)
    return list(besides) + list(pids.values())


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
        for case in (check_refused, check_kills, check_stops, check_failing_writes, check_failing_evaluation, check_interrupts,
                     check_asked_again, check_two_launches, check_folder_of_one, check_restarts, check_fresh_restarts):
            begin = time.time()
            case(cases)
            print(f"{case.__name__}: {time.time() - begin:.1f} s", flush=True)
    print("faults of ranks: ok")


main()
