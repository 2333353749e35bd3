#!/usr/bin/env python3
"""Runs two commands in turn that print a benchmark's JSON object, and compares what they measure: two builds, one
process and two ranks, two settings. Other work on the machine then falls on both alike."""
import argparse
import datetime
import json
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

EXAMPLES = """examples:
  two ranks of one thread beside one process of two
    in_turn.py "build/bench_step --json --threads 2 --micro-batches 2" \\
               "mpirun -n 2 build/bench_step --json --threads 1 --micro-batches 2"
  two builds
    in_turn.py "../before/build/bench_step --json" "build/bench_step --json" """


def measured(command, key):
    run = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True)
    lines = run.stdout.strip().splitlines()
    if run.returncode != 0 or not lines:
        sys.exit(f"error: exit {run.returncode}, {len(lines)} lines of output: {command}\nhint: run it by hand")
    try:
        row = json.loads(lines[-1])
        return float(row[key]), row
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"error: no number {key} in what it printed ({error!r}): {command}\nhint: give it --json; --key names what "
                 "is compared")


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a command that prints one JSON object in its last line")
    parser.add_argument("second", help="the command that is compared with it")
    parser.add_argument("--pairs", type=int, default=8, help="how often each runs (default: 8)")
    parser.add_argument("--key", default="tokens_per_s", help="the number that is compared (default: tokens_per_s)")
    parser.add_argument("--out", type=pathlib.Path, help="adds one line of JSON to this file")
    parser.add_argument("--name", default="", help="of the comparison, for --out")
    a = parser.parse_args()
    if a.pairs < 1:
        parser.error("--pairs is at least 1")
    pairs, rows = [], []
    for i in range(a.pairs):
        # Who goes first changes, so that heat and clocks fall on both.
        if i % 2 == 0:
            first, one = measured(a.first, a.key)
            second, two = measured(a.second, a.key)
        else:
            second, two = measured(a.second, a.key)
            first, one = measured(a.first, a.key)
        pairs.append((first, second))
        rows.append((one, two))
        print(f"{i + 1}/{a.pairs}: {pairs[-1][0]:.6g} {pairs[-1][1]:.6g} ratio {pairs[-1][1] / pairs[-1][0]:.3f}",
              file=sys.stderr, flush=True)
    ratios = [second / first for first, second in pairs]
    result = {"name": a.name, "key": a.key, "first": a.first, "second": a.second, "pairs": pairs,
              "median_first": statistics.median(p[0] for p in pairs), "median_second": statistics.median(p[1] for p in pairs),
              "ratio_median": statistics.median(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios),
              "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "device": rows[0][1].get("device", "")}
    for name in ("sm_mhz", "watts"):  # of a GPU during each run
        result[name] = [(one.get(name), two.get(name)) for one, two in rows]
    print(f"{a.key}: {result['median_first']:.6g} and {result['median_second']:.6g}; second / first: median "
          f"{result['ratio_median']:.3f} of {a.pairs} pairs ({result['ratio_least']:.3f} to {result['ratio_most']:.3f})")
    if a.out:
        with a.out.open("a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
