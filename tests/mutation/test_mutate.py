#!/usr/bin/env python3
"""tests/mutation/mutate.py with tests that only sleep: what Ctrl-C and SIGTERM end, in which order mutants run, two calls
at once, refusals."""
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-mutate-")
work = pathlib.Path(holder.name)

# mutate.py in a folder of this test, without its build: eight mutants, whose tests sleep.
DRIVER = """
import os, pathlib, runpy, sys
sys.path.insert(0, sys.argv[1])
import built, mutants
built.FOLDER, place = pathlib.Path(sys.argv[2]), sys.argv[3]
sleeps = 'if [[ $ASSAY_MUTANT != 0 ]]; then echo $$ >>"$0"; sleep 1000 & echo $! >>"$0"; wait; fi'
script, cache = os.environ.get("TEST_SCRIPT", sleeps), os.environ.get("TEST_CACHE")
given = {"ASSAY_TEST_CACHE": cache} if cache else {}
built.copy_tree = built.build = lambda *_: None
built.configure, built.ctest_commands = lambda: None, dict
built.command_of = lambda m, _: built.Command(["bash", "-c", script, place, m.test], given, folder=built.FOLDER)
built.BUILD = mutants.ROOT / "build-mutants"
mutants.read_lists = lambda: [mutants.Mutant(n, "a.cpp", "a.txt:1", what="a bug", test=f"test {n}")
                              for n in range(1, 9)]
del sys.argv[1:4]
runpy.run_path(str(pathlib.Path(mutants.__file__).with_name("mutate.py")), run_name="__main__")
"""


def words(*arguments):
    return [sys.executable, "-B", "-c", DRIVER, str(HERE), str(work / "build"), str(work / "processes"), *arguments]


def processes():
    path = work / "processes"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def stopped_by(number, code):
    (work / "processes").unlink(missing_ok=True)
    process = subprocess.Popen(words("--jobs", "2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while len(processes()) < 4 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    begun = processes()
    process.send_signal(number)
    try:
        out, error = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        failures.append(f"{number!r}: no end within 20 s")
    time.sleep(0.1)
    left = [pid for pid in processes() if alive(pid)]
    if (process.returncode != code or left or processes() != begun or len(begun) != 4 or error or
            list((work / "build/tmp").iterdir())):
        failures.append(f"{number!r}: exit {process.returncode}, {len(left)} of {len(processes())} processes are left\n"
                        f"{out}{error}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


# Test 1, without a mutant, ends when a mutant of test 2 has run; or it sees that none has begun.
BESIDE = """if [[ $ASSAY_MUTANT != 0 ]]; then echo $ASSAY_MUTANT >>"$0"; exit 1; fi
for ((i = 0; i < 400; ++i)); do if [[ $1 == "test 2" || -s $0 ]]; then exit 0; fi; sleep 0.05; done
exit 1"""
AFTER = """if [[ $ASSAY_MUTANT != 0 ]]; then echo $ASSAY_MUTANT >>"$0"; exit 1; fi
if [[ $1 == "test 1" ]]; then sleep 1; fi
[[ ! -s $0 ]]"""


def in_turn(script, **more):
    """Mutants do not wait for the tests of others, but for all that write the cache of their own."""
    (work / "processes").unlink(missing_ok=True)
    done = subprocess.run(words("--jobs", "2", "--only", "1,2"), capture_output=True, text=True, timeout=60,
                          env={**os.environ, "TEST_SCRIPT": script, **more})
    if done.returncode != 0 or "noticed 2 of 2\n" not in done.stdout or "2 of 2 pass without a mutant" not in done.stdout:
        failures.append(f"in turn {more}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refused(error, hint, command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    if not (done.returncode == 1 and len(lines) == 2 and lines[0].startswith("error: ") and error in lines[0] and
            lines[1].startswith("hint: ") and hint in lines[1]):
        failures.append(f"wants {error!r}: exit {done.returncode}\n{done.stdout}{done.stderr}")


stopped_by(signal.SIGINT, 130)
stopped_by(signal.SIGTERM, 143)
(work / "cache").mkdir()
in_turn(BESIDE)
in_turn(AFTER, TEST_CACHE=str(work / "cache"))
for arguments, error, hint in (
        (["--only", "abc"], '--only abc: "abc" is not the number of a mutant', "--list"),
        (["--only", "1,,2"], '"" is not the number', "--list"),
        (["--only", ""], '"" is not the number', "--list"),
        (["--only", "99"], "there is no mutant 99", "--list"),
        (["--random", "-1"], "--random -1 is not a whole number above 0", "--random 2"),
        (["--random", "0"], "--random 0 is not", "--random 2"),
        (["--jobs", "0"], "--jobs 0 is not", "--jobs 2")):
    refused(error, hint, words(*arguments))
with open(work / "build/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    (work / "build/log/kept.txt").write_text("of the call that runs")
    refused("another call of tools/mutate.sh is running", "wait for it to end", words())
    if not (work / "build/log/kept.txt").exists():
        failures.append("a second call removes the log of the first")

print("\n".join(failures) if failures else "mutate: ok")
sys.exit(1 if failures else 0)
