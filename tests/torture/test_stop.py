#!/usr/bin/env python3
"""tests/torture/torture.py, stopped while it makes what its cases read, and while these run: no process and no folder
is left, and no case is called lost. Also tools/torture.sh with a file of the caller's folder, and strikes that come too
late."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import children

HERE = pathlib.Path(__file__).resolve().parent
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-stop-")
work = pathlib.Path(holder.name)


def processes():
    """Those whose command names the folder of this test."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(work).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def stopped_by(number, code, begun):
    """begun: a pattern of what is there by then."""
    process = subprocess.Popen([sys.executable, "-B", str(HERE / "torture.py"), "--minutes", "10", *OPTIONS],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(work)})
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end and not (processes() and list(work.glob(begun))):
        time.sleep(0.01)
    there = bool(list(work.glob(begun)))
    process.send_signal(number)
    try:
        out, error = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        failures.append(f"{number!r}: no end within 20 s")
    left, folders = processes(), list(work.glob("assay-torture-*"))
    if process.returncode != code or not there or left or folders or "LOST" in error or "Traceback" in error:
        failures.append(f"{number!r} at {begun}: exit {process.returncode}, left: processes {left}, {folders}\n"
                        f"{out}{error}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def taken_by_a_thread():
    """A signal that another thread takes does not wake the main thread, which must see it all the same."""
    program = """
import signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import children
def take(_):
    time.sleep(0.5)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    children.run(["sleep", "60"])
try:
    children.at_once(1, take, range(1))
except KeyboardInterrupt:
    sys.exit(130)
"""
    with subprocess.Popen([sys.executable, "-B", "-c", program, str(HERE)], start_new_session=True) as process:
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            code = "none within 20 s"
            os.killpg(process.pid, signal.SIGKILL)
    if code != 130:
        failures.append(f"a signal taken by a thread: exit {code}")


def orphan():
    """What a killed command has started and nobody ends: it is found by the folder in its command, killed and named."""
    folder = work / "0001-ranks"
    folder.mkdir()
    shutil.copy(shutil.which("sleep"), folder / "mpirun")
    command = ["bash", "-c", f"{folder}/mpirun 1000 & exec sleep 1000"]
    process = children.start(command, stdout=subprocess.PIPE, text=True)
    while [name_of(pid) for pid in (process.pid, *children.processes_below(process.pid))] != ["sleep", "mpirun"]:
        time.sleep(0.01)
    process.kill()
    process.wait()
    names = children.kill_all_of(process, folder)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        failures.append("an orphan holds the pipe")
    children.ended(process)
    if names != ["mpirun"]:
        failures.append(f"orphans: {names}")
    shutil.rmtree(folder)


def table_of_the_caller():
    script = HERE.parents[1] / "tools" / "torture.sh"
    done = subprocess.run(["bash", str(script), "--kills", "1", "--only", "tokenizer", "--json", "table.json"],
                          cwd=work, capture_output=True, text=True)
    if done.returncode != 0 or not (work / "table.json").exists():
        failures.append(f"torture.sh --json: exit {done.returncode}\n{done.stdout}{done.stderr}")


def too_late():
    """Cases that are not struck are no pass: three kills and two faults, of cases with this many strikes."""
    program = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import scenes, strikes, torture
scene, strikes_of = scenes.SCENES[0], {"kill": int(sys.argv[2]), "fault": 1}
strikes.Case.run = lambda case: strikes.Result(case.result.number, scene.name, case.result.kind, strikes_of[case.result.kind])
torture.Torture.prepare = lambda t: (t.round.append(scene), t.undisturbed.update({scene.name: None}))
sys.argv[1:] = ["--kills", "3", "--faults", "2", "--library", sys.executable]
sys.exit(torture.main())
"""
    few = "error: only 0 of 3 kills came before their commands had ended\nhint: "
    for struck, code, words in ((0, 1, few), (1, 0, "")):
        done = subprocess.run([sys.executable, "-B", "-c", program, str(HERE), str(struck)], capture_output=True, text=True)
        if done.returncode != code or not done.stderr.startswith(words) or "fault" in done.stderr:
            failures.append(f"{struck} strikes a case: exit {done.returncode}\n{done.stdout}{done.stderr}")


orphan()
table_of_the_caller()
too_late()
taken_by_a_thread()
OPTIONS = ["--only", "dense,prepare"]
stopped_by(signal.SIGTERM, 143, "assay-torture-*/shared/first")
stopped_by(signal.SIGINT, 130, "assay-torture-*/0001-*")
print("\n".join(failures) if failures else "torture_stop: ok")
sys.exit(1 if failures else 0)
