#!/usr/bin/env python3
"""bench/in_turn.py with commands that only print or sleep: what a limit, Ctrl-C and SIGTERM end, and what commands that
cannot be compared say."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "in_turn.py"
failures = []
holder = tempfile.TemporaryDirectory(prefix="assay-in-turn-")
work = pathlib.Path(holder.name)
QUICK = """sh -c 'echo "{\\"tokens_per_s\\": 2}"'"""
# As mpirun: the work is done by a process below.
SLOW = f"bash -c 'sleep 1000 & echo $! >>{work}/below; wait'"
STUBBORN = f"""bash -c 'trap "" TERM; sleep 1000 & echo $! >>{work}/below; wait'"""


def words(*arguments):
    return [sys.executable, "-B", str(SCRIPT), *arguments]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check(what, ok, said):
    left = [int(pid) for pid in (work / "below").read_text().split()] if (work / "below").exists() else []
    left = [pid for pid in left if alive(pid)]
    if not ok or left:
        failures.append(f"{what}: {len(left)} processes are left: {said}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    (work / "below").unlink(missing_ok=True)


done = subprocess.run(words("--pairs", "2", "--out", str(work / "out"), QUICK, QUICK), capture_output=True, text=True)
check("quick", done.returncode == 0 and json.loads((work / "out").read_text())["ratio_median"] == 1, done)
# An object over many lines, as that of bench_ops, and a number inside.
for number in (1, 2):
    (work / f"rows{number}").write_text(json.dumps({"cases": [{"p50_us": 5}, {"p50_us": 4 * number}], "tokens_per_s": 1}, indent=1))
done = subprocess.run(words("--pairs", "2", "--key", "cases.1.p50_us", "--out", str(work / "inside"), f"cat {work}/rows1",
                            f"cat {work}/rows2"), capture_output=True, text=True)
check("many lines", done.returncode == 0 and json.loads((work / "inside").read_text())["ratio_median"] == 2 and
      "cases.1.p50_us: 4 and 8" in done.stdout, done)
# What cannot be written is said before a command runs, and two builds in a line can be told apart.
COUNTED = f"""sh -c 'echo >>{work}/counted; echo "{{\\"tokens_per_s\\": 2}}"'"""
done = subprocess.run(words("--pairs", "2", "--out", str(work / "none" / "out"), COUNTED, QUICK), capture_output=True,
                      text=True)
check("no such folder", is_refusal(done, f"error: cannot write {work}/none/out: No such file") and
      not (work / "counted").exists(), done)
BUILDS = [QUICK.replace("2}", f"2, \\\"commit\\\": \\\"{commit}\\\", \\\"modified\\\": {modified}}}")
          for commit, modified in (("a1", "false"), ("b2", "true"))]
done = subprocess.run(words("--pairs", "2", "--out", str(work / "builds"), *BUILDS, QUICK), capture_output=True,
                      text=True)
rows = [json.loads(line) for line in (work / "builds").read_text().splitlines()]
check("two builds", [(row["commit"], row["modified"]) for row in rows] ==
      [(["a1", "b2"], [False, True]), (["a1", None], [False, None])], (done, rows))
for option in ("--minutes=nan", "--minutes=inf", "--limit=nan", "--limit=inf", "--limit=-1"):
    done = subprocess.run(words(option, COUNTED, QUICK), capture_output=True, text=True)
    check(option, done.returncode == 2 and "are numbers of at least 0" in done.stderr and
          not (work / "counted").exists(), done)
(work / "list").write_text("[{\"tokens_per_s\": 2},\n{\"tokens_per_s\": 3}]")
done = subprocess.run(words("--key", "0.tokens_per_s", f"cat {work}/list", QUICK), capture_output=True, text=True)
check("a list", done.returncode == 1 and "no JSON object" in done.stderr and "Traceback" not in done.stderr, done)
for key in ("cases.2.p50_us", "cases.1", "cases.1.p50_us.x", "cases.first.p50_us", "rows.1"):
    done = subprocess.run(words("--key", key, f"cat {work}/rows1", f"cat {work}/rows2"), capture_output=True, text=True)
    check(f"--key {key}", done.returncode == 1 and done.stderr.startswith(f"error: no number {key} in what it printed") and
          "Traceback" not in done.stderr, done)
for name, command in (("slow", SLOW), ("stubborn", STUBBORN)):
    done = subprocess.run(words("--pairs", "2", "--limit", "0.5", QUICK, command, QUICK), capture_output=True,
                          text=True, timeout=60)
    check(f"{name}, with a limit", done.returncode == 1 and "error: not done in 0.5 s: " in done.stderr and
          done.stderr.count("error:") == 1 and "of 2 pairs" in done.stdout, done)
# What cannot run, and what has no ratio, is an error of two lines; nothing goes on without something to compare.
ZERO, NAN = QUICK.replace("2}", "0}"), QUICK.replace("2}", "NaN}")
for name, commands, error in (("no such program", ["no-such-program --json", QUICK], "error: cannot run no-such-program --json: "),
                              ("an open quote", [QUICK, "sh -c 'echo"], "error: cannot run sh -c 'echo: "),
                              ("nothing", [QUICK, ""], "error: cannot run : "),
                              ("zero first", [ZERO, QUICK], "error: tokens_per_s is 0, "),
                              ("not a number", [QUICK, NAN], "error: no number tokens_per_s ")):
    done = subprocess.run(words("--pairs", "2", *commands), capture_output=True, text=True)
    check(name, is_refusal(done, error), done)
done = subprocess.run(words("--pairs", "1", QUICK, ZERO), capture_output=True, text=True)
check("zero second", done.returncode == 0 and "median 0.0000" in done.stdout, done)
done = subprocess.run(words("--pairs", "5", COUNTED, "false", "false"), capture_output=True, text=True)
check("only the first works", done.returncode == 1 and done.stderr.count("error:") == 2 and
      (work / "counted").read_text() == "\n", (done, (work / "counted").read_text()))
for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)):
    process = subprocess.Popen(words("--pairs", "2", QUICK, SLOW), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    end = time.monotonic() + 30
    while not (work / "below").exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(number)
    out, error = process.communicate(timeout=30)
    check(f"{number!r}", process.returncode == code, (process.returncode, out, error))

print("\n".join(failures) if failures else "in_turn: ok")
sys.exit(1 if failures else 0)
