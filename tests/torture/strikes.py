"""Strikes a command: kills it, makes one of its calls to the system fail, or spoils what it meets. Then the same command
is started until it ends, and what it leaves is compared with what an undisturbed one left."""
import dataclasses
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
import children
import scenes
from bad_input import without_privileges
from calls import CHANGES, NO_ERROR, READS, full_pattern, last_error
from left import defect_in, defect_left, difference, left_in, telemetry

LONGEST_S = 120  # of one start: a hang
PATIENCE_S = 30  # for a folder that a killed command's processes still hold
BUSY = ("in use by another process", "being written by another process")
SPOILED = ("locked", "locked for good", "deleted", "read-only")

# What a training says that saved because its data could not be read.
SAVED = re.compile(r"; the checkpoint of step (\d+) has what was trained before")


class Lost(Exception):
    """The command did not do what it must."""


@dataclasses.dataclass
class Result:
    number: int
    scene: str
    kind: str  # kill or fault
    strikes: int = 0
    starts: int = 0
    lost: str = ""
    what: list = dataclasses.field(default_factory=list)


class Case:
    """One folder with one command, struck some times."""

    def __init__(self, number, scene, kind, seed, place, library, undisturbed):
        self.scene, self.place, self.library, self.undisturbed = scene, place, library, undisturbed
        self.draw = random.Random(f"{seed}/{number}/{scene.name}/{kind}")
        self.here = place / f"{number:04d}-{scene.name}"
        self.result = Result(number, scene.name, kind)
        self.lines, self.output = [], ""

    def run(self):
        self.scene.fresh(self.here, self.place / "shared")
        try:
            if self.result.kind == "kill":
                self.kills()
            else:
                self.fault()
        except Lost as lost:
            self.result.lost = str(lost)
            self.keep()
        else:
            shutil.rmtree(self.here, ignore_errors=True)
            self.mark().unlink(missing_ok=True)
        return self.result

    # One start of the command.

    def mark(self):
        return self.place / f"{self.here.name}.struck"

    def start(self, faults=None, more=(), **options):
        self.result.starts += 1
        command = self.scene.command(self.here, self.place / "shared") + list(more)
        extra = {}
        if faults:
            self.mark().unlink(missing_ok=True)
            extra = {f"ASSAY_FAULTS_{key}": str(value) for key, value in faults.items()}
            extra |= {"ASSAY_FAULTS_MARK": str(self.mark()), "LD_PRELOAD": str(self.library)}
        self.lines.append(" ".join([f"{key}={shlex.quote(value)}" for key, value in extra.items()] + [shlex.join(command)]))
        if self.scene.output:
            self.lines[-1] += f" > {shlex.quote(str(self.here / self.scene.output))}"
        with self.scene.output_in(self.here) as output:
            return children.start(command, stdout=output, stderr=subprocess.PIPE if self.scene.output else subprocess.STDOUT,
                                  text=True, errors="replace", env=scenes.environment(self.place / "shared") | extra, **options)

    def end_of(self, process, kill_after=None):
        """The exit code and the output, which must show no defect. kill_after: (seconds, whom) for a SIGKILL."""
        timer = None
        if kill_after:
            seconds, whom = kill_after
            self.lines[-1] = f"timeout -s KILL {seconds:.3f} {self.lines[-1]}"
            timer = threading.Timer(seconds, lambda: self.kill(process, whom))
            timer.start()
        try:
            said = "".join(text or "" for text in process.communicate(timeout=LONGEST_S))
        except subprocess.TimeoutExpired:
            killed = process.poll() == -signal.SIGKILL  # what it had started holds the pipe
            left = children.kill_all_of(process, self.here)
            said = "".join(text or "" for text in process.communicate())
            # Open MPI's mpirun may hang in its own end (pmix_thread_join()), where nobody is left who would end it.
            if not killed or set(left) != {"mpirun"}:
                self.output += said
                raise Lost(f"no end within {LONGEST_S} s") from None
        finally:
            if timer:
                timer.cancel()
            children.ended(process)
        self.output += f"$ {self.lines[-1]}\n{said}exit {process.returncode}\n"
        if (line := defect_in(said) or defect_left(self.here)) is not None:
            raise Lost(f"a message looks like a defect: {line[:200]}")
        return process.returncode, said

    @staticmethod
    def kill(process, whom):
        """whom: from 0, the process itself, to 1, any of those below it."""
        below = children.processes_below(process.pid) if whom > 0.5 else []
        target = below[int((whom - 0.5) * 2 * len(below)) % len(below)] if below else process.pid
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            pass

    # Strikes.

    def drawn_call(self, among, for_good=False):
        """A call of the undisturbed command: every file has the same chance, then each of its calls."""
        wanted = sorted((call, path) for call, path in self.undisturbed.calls if call in among)
        if not for_good:  # what cannot be removed is left over if no later start opens its folder
            wanted = [(call, path) for call, path in wanted if not self.for_good(call, path)]
        call, path = self.draw.choice(wanted)
        return call, path, self.draw.randint(1, self.undisturbed.calls[call, path])

    def for_good(self, call, path):
        removes = call == "remove" or "/.tmp-old-" in path
        return removes and (self.scene.words[0] == "matrix" or path.endswith(".lock"))

    def kills(self):
        for _ in range(self.draw.randint(1, 3)):
            kill_after = faults = None
            if self.draw.random() < 0.4 or not self.changes():
                kill_after = (self.draw.uniform(0.005, self.undisturbed.seconds), self.draw.random())
                self.result.what.append(f"SIGKILL after {kill_after[0]:.3f} s")
            else:
                call, path, number = self.drawn_call(CHANGES, for_good=True)
                how = self.draw.choice(("kill", "kill-after"))
                faults = {"CALL": call, "PATH": full_pattern(self.here, path), "NUMBER": number, "HOW": how}
                self.result.what.append(f"{how} at {call} {number} of {path}")
            process = self.start(faults)
            code, said = self.end_of(process, kill_after)
            if code != -signal.SIGKILL and code != 0 and not self.ended_before(code, said):
                if not any(words in said for words in BUSY):
                    self.check_refusal(code, said)  # a process below it was killed
            self.result.strikes += code == -signal.SIGKILL or self.mark().exists() or (kill_after is not None and code != 0)
        self.finish()

    def fault(self):
        if self.scene.name in ("dense", "mixture") and self.draw.random() < 0.25:
            self.spoil(self.draw.choice(SPOILED))
            return
        faults = self.drawn_fault()
        call, how = faults["CALL"], faults["HOW"]
        where = faults.get("PATH", "").replace(f"{self.here}/", "").replace(f"{self.place}/", "../")
        self.result.what.append(f"{call} {faults['NUMBER']} of {where}: {how}")
        code, said = self.end_of(self.start(faults))
        self.result.strikes += self.mark().exists() or call == "clock"
        if how in NO_ERROR and code != 0:
            raise Lost(f"exit {code}: {how} is no error: {last_error(said)}")
        if code != 0:
            self.check_refusal(code, said)
        elif " as the best checkpoint: " in said:  # it kept the one before, and so other steps
            code, said = self.end_of(self.start())
            if code != 0:
                raise Lost(f"the same command again: exit {code}: {last_error(said)}")
            self.verify()
            return
        elif self.scene.makes and "warning: not recorded in the run: " in said:
            shutil.rmtree(self.here / self.scene.makes)  # to be recorded it is made again
        elif call in READS and "warning:" not in said:  # what it could not read has changed nothing
            self.compare_with(self.undisturbed.left, self.left(self.undisturbed.left))  # what is left over may go later
        self.finish()

    def drawn_fault(self):
        drawn = self.draw.random()
        if drawn < 0.08:
            seconds = self.draw.choice((-86400 * 400, -3600, -5, 5, 3600, 86400 * 4000))
            return {"CALL": "clock", "HOW": seconds, "NUMBER": self.draw.randint(1, 60)}
        reads = drawn < 0.45 or not self.changes()
        call, path, number = self.drawn_call(READS if reads else CHANGES)
        how = self.draw.choice((READS if reads else CHANGES)[call])
        if how == "full":
            return {"CALL": call, "PATH": f"{self.here}/*", "NUMBER": self.draw.randint(1, self.writes()), "HOW": how}
        return {"CALL": call, "PATH": full_pattern(self.here, path), "NUMBER": number, "HOW": how}

    def changes(self):
        return any(call in CHANGES for call, _ in self.undisturbed.calls)

    def writes(self):
        return sum(count for (call, _), count in self.undisturbed.calls.items() if call == "write")

    def check_refusal(self, code, said):
        if code not in self.scene.codes:
            raise Lost(f"exit {code}, not one of {self.scene.codes}")
        if not re.search(r"^error: ", said, re.M) or not re.search(r"^hint: ", said, re.M):
            raise Lost(f"exit {code} without a line error: and a line hint:")

    def ended_before(self, code, said):
        return code == 1 and self.scene.done != "" and self.scene.done in said

    # What a run meets when it goes on.

    def spoil(self, how):
        self.result.what.append(f"telemetry.db or run: {how}")
        code, said = self.end_of(self.start(more=("--stop-after", "9")))
        if code != 0:
            raise Lost(f"exit {code} of --stop-after")
        run = self.here / self.scene.trains
        self.result.strikes += 1
        if how == "deleted":
            (run / "telemetry.db").unlink()
            code, said = self.end_of(self.start())
            if code != 0:
                raise Lost(f"exit {code} without telemetry.db")
            if "warning:" not in said:
                raise Lost("the telemetry of 9 steps is gone, and no warning says so")
            self.compare_after(9)
            return
        if how == "read-only":
            self.read_only(run)
        else:
            self.locked(run / "telemetry.db", how)
        self.finish()

    def read_only(self, run):
        for path in [run, *run.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        code, said = self.end_of(self.start(preexec_fn=without_privileges))
        for path in [run, *run.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        if code == 0:
            raise Lost("exit 0 in a folder that cannot be written")
        self.check_refusal(code, said)

    def locked(self, database, how):
        """Another process, here a connection of this one, holds the database: before the run starts, or later."""
        if self.draw.random() < 0.5:
            holder = sqlite3.connect(database, isolation_level=None)
            holder.execute("BEGIN EXCLUSIVE")
            process = self.start()
        else:
            process = self.start()
            holder = self.held_while(process, database)
            if holder is None:  # it has ended before
                self.end_of(process)
                return
        if how == "locked":
            time.sleep(self.draw.uniform(0.5, 3))
            holder.close()
            code, said = self.end_of(process)
            if code != 0:
                raise Lost(f"exit {code}: a lock of some seconds ended the run")
            return
        code, said = self.end_of(process)
        holder.close()
        if code == 0:
            raise Lost("exit 0 with a telemetry.db that was locked all the time")
        self.check_refusal(code, said)

    @staticmethod
    def held_while(process, database):
        """A connection that has taken the database from a running process; None if that has ended."""
        holder = sqlite3.connect(database, isolation_level=None, timeout=0)
        while process.poll() is None:
            try:
                if database.with_name("telemetry.db-wal").exists():  # it has opened it
                    holder.execute("BEGIN IMMEDIATE")
                    return holder
            except sqlite3.OperationalError:
                pass
            time.sleep(0.001)
        holder.close()
        return None

    # The end.

    def finish(self):
        """The command without a strike, until it ends; then what is left must be equal."""
        end = time.monotonic() + PATIENCE_S
        while True:
            code, said = self.end_of(self.start())
            if code == 0 or self.ended_before(code, said):
                break
            if not any(words in said for words in BUSY):
                raise Lost(f"the same command again: exit {code}: {last_error(said)}")
            if time.monotonic() > end:
                raise Lost(f"still held after {PATIENCE_S} s: {last_error(said)}")
            time.sleep(0.2)
        self.compare_with(*self.without_own_save(dict(self.undisturbed.left), self.left()))
        self.verify()

    def without_own_save(self, wanted, left):
        """A training whose data cannot be read saves the step before, which others of its checkpoints may make room for: one
        that an undisturbed run has, and has not."""
        for step in SAVED.findall(self.output):
            own = f"{self.scene.trains}/checkpoints/step-{int(step):08}/"
            if own not in left or own in wanted:
                continue
            gone = [name for name in wanted if name.endswith("/") and "/checkpoints/step-" in name and name not in left][:1]
            wanted = {name: value for name, value in wanted.items() if not name.startswith(tuple(gone))}
            left = {name: value for name, value in left.items() if not name.startswith(own)}
        return wanted, left

    def verify(self):
        """The receipt of what was trained."""
        if not self.scene.trains:
            return
        command = [str(scenes.ASSAY), "receipt", "verify", str(self.here / self.scene.trains)]
        done = children.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                            env=scenes.environment(self.place / "shared"))
        self.output += f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}exit {done.returncode}\n"
        if done.returncode != 0:
            raise Lost(f"receipt verify: exit {done.returncode}: {last_error(done.stdout + done.stderr)}")

    def left(self, only=None):
        try:
            return left_in(self.here, only)
        except ValueError as error:
            raise Lost(str(error)) from None

    @staticmethod
    def compare_with(wanted, left):
        found = difference(wanted, left)
        if found:
            raise Lost(found)

    def compare_after(self, step):
        """As compare(), but the rows of steps up to this one are gone."""
        name = f"{self.scene.trains}/telemetry.db"
        left, wanted = self.left(), dict(self.undisturbed.left)
        rows, whole = (telemetry(path, step) for path in (self.here / name, self.place / f"whole-{self.scene.name}" / name))
        for which in (4,) if self.scene.windows else (0, 4):  # scalars, evaluations
            if rows[which] != whole[which]:
                raise Lost(f"rows after step {step} differ: {whole[which][:150]} / {rows[which][:150]}")
        wanted[name] = left[name]
        if self.scene.windows:  # probes of routers count from the first step that is in the telemetry
            for found in (left, wanted):
                for path in [path for path in found if path.endswith("/state.json")]:
                    found[path] = {**found[path], "extra": {**found[path]["extra"], "router_probe": ""}}
        self.compare_with(wanted, left)

    def keep(self):
        """Leaves what is needed to see it again."""
        here, shared = str(self.here), str(self.place / "shared")
        lines = ["#!/usr/bin/env bash", "# The starts of this case, one after the other; what they left is beside this file.",
                 f"# Lost: {self.result.lost}", *(f"# {what}" for what in self.result.what),
                 'cd "$(dirname "$0")"', "export ASSAY_MATMUL_GFLOPS=100 OMP_NUM_THREADS=1",
                 f"export XDG_CACHE_HOME={shlex.quote(shared + '/xdg')}", 'rm -rf again && mkdir again']
        lines += [f"cp -r {shlex.quote(f'{shared}/{source}')} again/{name}" for source, name in self.scene.copies]
        lines += ["rm -f struck; " + line.replace(str(self.mark()), "$PWD/struck").replace(here, "$PWD/again") for line in self.lines]
        (self.here / "commands.sh").write_text("\n".join(lines) + "\n")
        (self.here / "output.txt").write_text(self.output)
