#!/usr/bin/env python3
"""Plants bugs and counts those that the tests notice (docs/reliability.md; the list: mutants.py)."""
import argparse
import concurrent.futures
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import built
from mutants import ROOT, ListError, flags_of_cpu, read_lists

SHORTEST_LIMIT_S, TIMES_AS_LONG, LONGEST_S = 60, 8, 3600


def arguments():
    parser = argparse.ArgumentParser(prog="tools/mutate.sh", description=__doc__, allow_abbrev=False)
    parser.add_argument("--list", action="store_true", help="print the planted bugs and end")
    parser.add_argument("--check", action="store_true", help="only see that each still has its place in the sources")
    parser.add_argument("--only", metavar="N,N", help="run these numbers")
    parser.add_argument("--random", type=int, metavar="N", help="run N of them, drawn by chance")
    parser.add_argument("--seed", type=int, metavar="S", help="draw the same ones again")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N",
                        help="compile and test with N processes")
    return parser.parse_args()


def of_this_cpu(mutants):
    flags = flags_of_cpu()
    others = [m for m in mutants if m.needs and m.needs not in flags]
    if others:
        print(f"left out, of other CPUs: {', '.join(f'{m.number} (needs {m.needs})' for m in others)}")
    return [m for m in mutants if m not in others]


def chosen(mutants, options):
    if options.only:
        wanted = {int(n) for n in options.only.split(",")}
        missing = wanted - {m.number for m in mutants}
        if missing:
            raise ListError(f"there is no mutant {min(missing)}", "tools/mutate.sh --list shows all")
        mutants = [m for m in mutants if m.number in wanted]
    if not options.list:
        mutants = of_this_cpu(mutants)
    if options.random:
        seed = int(time.time()) if options.seed is None else options.seed
        print(f"drawn with --seed {seed}")
        drawn = random.Random(seed).sample(mutants, min(options.random, len(mutants)))
        mutants = sorted(drawn, key=lambda m: m.number)
    return mutants


class Runner:
    """Runs commands with a mutant, and in an environment of their own."""

    def __init__(self):
        self.locks, self.lock_of_locks = {}, threading.Lock()

    def run(self, command, number, name, limit):
        """(verdict, seconds): how it ended, "passed" if the test noticed nothing."""
        own = built.FOLDER / "tmp" / name
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        environment = {**os.environ, **command.environment, "ASSAY_MUTANT": str(number), "TMPDIR": str(own),
                       "OMP_WAIT_POLICY": "passive"}
        # The reference files of tests lie beside the repository, if they are there; not beside the copy.
        environment.setdefault("ASSAY_TEST_DATA", str(ROOT.parent / "shared" / "data"))
        lock = self.lock(command.lock)
        cache = command.environment.get("ASSAY_TEST_CACHE")
        if cache and number:  # a mutant must not write what other runs read
            shutil.copytree(cache, own / "cache", dirs_exist_ok=True)
            environment["ASSAY_TEST_CACHE"], lock = str(own / "cache"), threading.Lock()
        with lock, open(built.FOLDER / "log" / f"{name}.txt", "w") as log:
            start = time.monotonic()
            process = subprocess.Popen(command.words, cwd=command.folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = process.wait(limit)
                verdict = "passed" if code == 0 else f"exit {code}" if code > 0 else signal.Signals(-code).name
            except subprocess.TimeoutExpired:
                verdict = "hangs"
            try:
                os.killpg(process.pid, signal.SIGKILL)  # with what it left behind
            except ProcessLookupError:
                pass
            process.wait()
            seconds = time.monotonic() - start
        shutil.rmtree(own, ignore_errors=True)
        return verdict, seconds

    def lock(self, name):
        with self.lock_of_locks:
            return self.locks.setdefault(name, threading.Lock()) if name else threading.Lock()


def without_mutant(runner, commands, jobs):
    """Seconds of each test that passes, as it must."""
    seconds = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as several:
        running = {several.submit(runner.run, c, 0, f"without-{i}", LONGEST_S): (test, i)
                   for i, (test, c) in enumerate(commands.items())}
        for done in concurrent.futures.as_completed(running):
            test, i = running[done]
            verdict, took = done.result()
            if verdict == "passed":
                seconds[test] = took
                continue
            print(f"error: without a mutant, {test} does not pass: {verdict}\n"
                  f"hint: see {built.FOLDER}/log/without-{i}.txt; is its --filter still the name of a case?", flush=True)
    return seconds


def verdicts(mutants, jobs):
    """Builds and runs; yields (mutant, verdict, seconds) as they come."""
    for folder in ("log", "tmp"):
        shutil.rmtree(built.FOLDER / folder, ignore_errors=True)
        (built.FOLDER / folder).mkdir(parents=True)
    built.copy_tree(mutants)  # without the others: ccache knows the objects of files without a bug
    start = time.monotonic()
    built.configure()
    ctests = built.ctest_commands()
    commands = {m.test: built.command_of(m, ctests) for m in mutants}
    print(f"building {built.BUILD.relative_to(ROOT)} for {len(commands)} tests", flush=True)
    built.build(commands.values(), jobs)
    print(f"built in {time.monotonic() - start:.0f} s; first the tests without a mutant", flush=True)
    runner = Runner()
    usual = without_mutant(runner, commands, jobs)
    print(f"{len(usual)} of {len(commands)} pass, in {sum(usual.values()):.0f} s", flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as several:
        running = {several.submit(runner.run, commands[m.test], m.number, str(m.number),
                                  max(SHORTEST_LIMIT_S, TIMES_AS_LONG * usual[m.test])): m
                   for m in mutants if m.test in usual}
        for done in concurrent.futures.as_completed(running):
            yield (running[done], *done.result())


def row(m, verdict, seconds):
    found = "MISSED" if verdict == "passed" else f"noticed ({verdict})"
    return f"{m.number:>4}  {m.place():<44} {found:<18} {seconds:6.1f} s  {m.what} | {m.test}"


def report(results, options):
    results.sort(key=lambda r: r[0].number)
    print("\nmissed, or not as the list expects:")
    for m, verdict, seconds in results:
        if verdict != "passed" and m.expect == "noticed":
            continue
        print(row(m, verdict, seconds))
        if (verdict == "passed") != (m.expect == "missed"):
            if m.expect == "missed":
                print("      the list says that no test notices it: remove its expect and why")
        elif m.why:
            print(f"      as expected: {m.why}")
    noticed = sum(verdict != "passed" for _, verdict, _ in results)
    wrong = [m.number for m, verdict, _ in results if verdict == "passed" and m.expect == "noticed"]
    print(f"\nnoticed {noticed} of {len(results)}" + (f"; missed against the list: {wrong}" if wrong else ""))
    if options.json:
        content = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
                   "noticed": noticed, "of": len(results),
                   "mutants": [{"number": m.number, "place": m.place(), "what": m.what, "test": m.test,
                                "expect": m.expect, "verdict": verdict, "seconds": round(seconds, 2)}
                               for m, verdict, seconds in results]}
        with open(options.json, "w") as file:
            json.dump(content, file, indent=1)
    return 2 if wrong else 0


def main():
    options = arguments()
    mutants = read_lists()
    if options.check:
        print(f"mutants: {len(mutants)} apply")
        return 0
    mutants = chosen(mutants, options)
    if options.list:
        for m in mutants:
            print(f"{m.number:>4}  {m.place():<44} {m.what} | {m.test}" + (" | expected to be missed" if m.why else "")
                  + (f" | needs {m.needs}" if m.needs else ""))
        return 0
    if not mutants:
        return 0
    results = []
    for result in verdicts(mutants, max(1, options.jobs)):
        results.append(result)
        print(row(*result), flush=True)
    status = report(results, options)
    return status if len(results) == len(mutants) else 1


try:
    sys.exit(main())
except ListError as error:
    sys.exit(f"error: {error}\nhint: {error.hint}")
