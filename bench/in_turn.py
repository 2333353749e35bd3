#!/usr/bin/env python3
"""Runs commands in turn that print a benchmark's JSON object, and compares each of the others with the first: builds, one
process and two ranks, settings. Other work on the machine, and its heat, then fall on all alike."""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time

EXAMPLES = """examples:
  one op of two builds: a ratio below 1 says that the second takes less time
    in_turn.py --key cases.0.p50_us "../before/build/bench_ops --op rope --filter bf16 --json" \\
               "build/bench_ops --op rope --filter bf16 --json"
  two ranks of one thread beside one process of two
    in_turn.py "build/bench_step --json --threads 2 --micro-batches 2" \\
               "mpirun -n 2 build/bench_step --json --threads 1 --micro-batches 2"
  two builds
    in_turn.py "../before/build/bench_step --json" "build/bench_step --json"
  two switches, each against the build as it is
    in_turn.py --name work_lists --name zeros "bench_step --device cuda --json" \\
               "env ASSAY_GPU_PREDECESSORS=work_lists bench_step --device cuda --json" \\
               "env ASSAY_GPU_PREDECESSORS=gradient_zeros bench_step --device cuda --json" """


GRACE_S = 3  # between SIGTERM and SIGKILL; mpirun ends its ranks in about one


class Unmeasured(Exception):
    """A command that failed, or printed no such number."""


def end_group(process):
    """Ends a command with all that it started, which would go on beside the next one. SIGTERM first: mpirun passes it
    on to its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def printed_by(process, limit):
    """Looks up each second: a signal that comes as Python begins to wait is seen only when the wait is over."""
    end = time.monotonic() + (limit or math.inf)
    while True:
        left = max(0, end - time.monotonic())
        try:
            return process.communicate(timeout=min(1, left))[0]
        except subprocess.TimeoutExpired:
            if left <= 1:
                raise


def output_of(command, limit):
    """(what it printed, exit code). Raises TimeoutExpired after so many seconds; 0: none."""
    words, process = shlex.split(command), None
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # until there is a process to end
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True,
                                   preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, held))
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return printed_by(process, limit), process.returncode
    except BaseException:  # Ctrl-C and SIGTERM too
        if process:
            end_group(process)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def printed_object(output):
    """The JSON object in the last line, or over all lines."""
    for text in (output.strip().splitlines()[-1], output):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    raise ValueError("no JSON object")


def number_at(row, key):
    """The number of a key, or at the end of a path: cases.0.p50_us."""
    if key in row:
        return float(row[key])
    for part in key.split("."):
        row = row[int(part)] if isinstance(row, list) else row[part]
    return float(row)


def measured(command, key, limit):
    try:
        output, code = output_of(command, limit)
    except (OSError, ValueError, IndexError) as error:  # no such program, a quote that does not end, nothing at all
        raise Unmeasured(f"error: cannot run {command}: {error}\nhint: each command is one argument, a program and its "
                         "options in quotes; pipes and redirections need sh -c") from error
    except subprocess.TimeoutExpired as error:
        raise Unmeasured(f"error: not done in {limit:g} s: {command}\nhint: run it by hand, or give a longer --limit") from error
    lines = output.strip().splitlines()
    if code != 0 or not lines:
        raise Unmeasured(f"error: exit {code}, {len(lines)} lines of output: {command}\nhint: run it by hand")
    try:
        row = printed_object(output)
        number = number_at(row, key)
        if not math.isfinite(number):
            raise ValueError(f"it is {number}")
        return number, row
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Unmeasured(f"error: no number {key} in what it printed ({error!r}): {command}\nhint: give it --json; --key names "
                         "what is compared") from error


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


class Rounds:
    """What the commands have measured, round by round. A command that fails is said, and left out from then on; without
    the first, or without all others, there is nothing to compare."""

    def __init__(self, commands, key, limit):
        self.commands, self.key, self.limit = commands, key, limit
        self.pairs = {i: [] for i in range(1, len(commands))}  # (number of the first, of this one)
        self.rows = {i: [] for i in self.pairs}
        self.broken = set()

    def over(self):
        return len(self.broken) == len(self.pairs)

    def run(self, turn):
        order = [0, *(i for i in self.pairs if i not in self.broken)]
        if turn % 2:
            order.reverse()  # so that heat and clocks fall on all
        found = {}
        for i in order:
            if self.over():
                break
            try:
                found[i] = measured(self.commands[i], self.key, self.limit)
                if i == 0 and found[i][0] == 0:
                    raise Unmeasured(f"error: {self.key} is 0, and no ratio to it says anything: {self.commands[i]}\nhint: "
                                     "--key names what is compared")
            except Unmeasured as error:
                print(error, file=sys.stderr, flush=True)
                if i == 0:
                    sys.exit(1)
                self.broken.add(i)
        for i in sorted(found.keys() - {0}):
            self.pairs[i].append((found[0][0], found[i][0]))
            self.rows[i].append((found[0][1], found[i][1]))
        return {i: found[i][0] / found[0][0] for i in sorted(found.keys() - {0})}

    def result(self, i, name):
        pairs, rows = self.pairs[i], self.rows[i]
        ratios = [second / first for first, second in pairs]
        result = {"name": name, "key": self.key, "first": self.commands[0], "second": self.commands[i], "pairs": pairs,
                  "median_first": statistics.median(p[0] for p in pairs), "median_second": statistics.median(p[1] for p in pairs),
                  "ratio_median": statistics.median(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios),
                  "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "device": rows[0][1].get("device", "")}
        for field in ("commit", "modified"):  # of each program
            if any(field in row for row in rows[0]):
                result[field] = [row.get(field) for row in rows[0]]
        for field in ("sm_mhz", "watts", "loss", "memory_bytes"):  # of each run
            if any(field in row for pair in rows for row in pair):
                result[field] = [(one.get(field), two.get(field)) for one, two in rows]
        return result


def opened(path):
    """A file that lines are added to. It is opened before anything is measured, so that nothing is lost at the end."""
    try:
        return path.open("a")
    except OSError as error:
        sys.exit(f"error: cannot write {path}: {error.strerror}\nhint: name a file of yours, in a folder that is there")


def report(rounds, names, file):
    """All comparisons as text, then as lines of JSON in the file, if there is one."""
    results = [rounds.result(i, names[i - 1]) for i, pairs in rounds.pairs.items() if pairs]
    for r in results:
        text = (f"{r['name']} {r['key']}: {r['median_first']:.6g} and {r['median_second']:.6g}; second / first: median "
                f"{r['ratio_median']:.4f} of {len(r['pairs'])} pairs ({r['ratio_least']:.4f} to {r['ratio_most']:.4f})")
        print(text.strip(), flush=True)
    if file:
        with file:
            file.writelines(json.dumps(r) + "\n" for r in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a command that prints one JSON object, in its last line or as all of its output")
    parser.add_argument("others", nargs="+", metavar="command", help="the commands that are compared with it")
    parser.add_argument("--pairs", type=int, default=8, help="how often each runs (default: 8)")
    parser.add_argument("--minutes", type=float, default=0, help="no round begins after that (default: no limit)")
    parser.add_argument("--limit", type=float, default=0, help="seconds after which a command counts as failed (default: none)")
    parser.add_argument("--key", default="tokens_per_s", help="the number that is compared (default: tokens_per_s); a path of names and places leads to one inside: "
                        "cases.0.p50_us. Ratios are the other command over the first: above 1 the other is faster where more is "
                        "better (tokens_per_s), below 1 where less is (times)")
    parser.add_argument("--out", type=pathlib.Path, help="adds one line of JSON for each comparison to this file")
    parser.add_argument("--name", action="append", default=[], help="of a comparison, for --out; once for each other command")
    a = parser.parse_args()
    if a.pairs < 1 or not (0 <= a.minutes < math.inf and 0 <= a.limit < math.inf):  # nor NaN
        parser.error("--pairs is at least 1, --minutes and --limit are numbers of at least 0")
    if len(a.name) not in (0, len(a.others)):
        parser.error(f"{len(a.name)} names for {len(a.others)} comparisons")
    names = a.name or ["" if len(a.others) == 1 else str(i) for i in range(1, len(a.others) + 1)]
    file = opened(a.out) if a.out else None
    rounds = Rounds([a.first, *a.others], a.key, a.limit)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what has been measured is still written
    end = time.monotonic() + 60 * a.minutes
    try:
        for turn in range(a.pairs):
            if a.minutes and turn and time.monotonic() > end:
                print(f"{turn} of {a.pairs} rounds in {a.minutes:g} minutes", file=sys.stderr)
                break
            ratios = rounds.run(turn)
            if rounds.over():
                break
            print(f"{turn + 1}/{a.pairs}: " + ", ".join(f"{names[i - 1]} {ratio:.4f}".strip() for i, ratio in ratios.items()),
                  file=sys.stderr, flush=True)
    finally:
        report(rounds, names, file)
    if rounds.broken:
        sys.exit(1)


if __name__ == "__main__":
    main()
