"""Launches of several ranks that tests strike while they run: what they print as it comes, their processes, and whether
the run then goes on to the bits of an untouched one."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from harness import ASSAY, SAME, checkpoints, rows

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
    def __init__(self, place, every=False, phases=tuple(PHASES)):
        self.place, self.every = place, every
        for phase in phases:  # the untouched runs
            launch = started(place, f"whole-{phase}", *PHASES[phase], ranks=1).end()
            launch.require(launch.code == 0, f"exit code {launch.code}")

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


def kill_one(launch, rank, besides=(), ranks=RANKS, line=None):
    pids = launch.until_ranks(ranks, besides)
    if line:
        launch.until_line(line)
    os.kill(pids[rank], signal.SIGKILL)
    return list(besides) + list(pids.values())


def run_checks(cases, checks):
    for one in checks:
        begin = time.time()
        one(cases)
        print(f"{one.__name__}: {time.time() - begin:.1f} s", flush=True)
