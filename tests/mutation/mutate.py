#!/usr/bin/env python3
"""Plants bugs and counts those that the tests notice (docs/reliability.md; the list: mutants.py)."""
import argparse
import collections
import concurrent.futures
import datetime
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import built
from mutants import ROOT, ListError, Mutant, flags_of_cpu, read_lists

sys.path.insert(0, str(ROOT / "tests" / "run"))
import waiting

SHORTEST_LIMIT_S, SHORT_LIMIT_S, TIMES_AS_LONG, LONGEST_S = 20, 60, 8, 3600


def count(option):
    """The type of an option that is a whole number above 0."""
    def read(text):
        if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
            raise ListError(f"{option} {text} is not a whole number above 0", f"for example {option} 2")
        return int(text)
    return read


def numbers(text):
    """The type of --only."""
    wrong = [word for word in text.split(",") if not re.fullmatch("[0-9]{1,9}", word)]
    if wrong:
        raise ListError(f"--only {text}: \"{wrong[0]}\" is not the number of a mutant",
                        "for example --only 214,404; --list shows all")
    return {int(word) for word in text.split(",")}


def arguments():
    parser = argparse.ArgumentParser(prog="tools/mutate.sh", description=__doc__, allow_abbrev=False)
    parser.add_argument("--list", action="store_true", help="print the planted bugs and end")
    parser.add_argument("--check", action="store_true", help="only see that each still has its place in the sources")
    parser.add_argument("--only", type=numbers, metavar="N,N", help="run these numbers")
    parser.add_argument("--random", type=count("--random"), metavar="N", help="run N of them, drawn by chance")
    parser.add_argument("--seed", type=int, metavar="S", help="draw the same ones again")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--jobs", type=count("--jobs"), default=len(os.sched_getaffinity(0)), metavar="N",
                        help="compile and test with N processes")
    return parser.parse_args()


def of_this_cpu(mutants):
    flags = flags_of_cpu()
    others = [m for m in mutants if m.needs and m.needs not in flags]
    if others:
        print(f"left out, of other CPUs: {', '.join(f'{m.number} (needs {m.needs})' for m in others)}")
    return [m for m in mutants if m not in others]


def chosen(mutants, options):
    if options.only is not None:
        missing = options.only - {m.number for m in mutants}
        if missing:
            raise ListError(f"there is no mutant {min(missing)}", "tools/mutate.sh --list shows all")
        mutants = [m for m in mutants if m.number in options.only]
    if not options.list:
        mutants = of_this_cpu(mutants)
    if options.random is not None:
        seed = int(time.time()) if options.seed is None else options.seed
        print(f"drawn with --seed {seed}")
        drawn = random.Random(seed).sample(mutants, min(options.random, len(mutants)))
        mutants = sorted(drawn, key=lambda m: m.number)
    return mutants


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Runner:
    """Runs commands with a mutant, some at a time, and in an environment of their own."""

    def __init__(self, jobs):
        self.several = concurrent.futures.ThreadPoolExecutor(jobs)
        self.locks, self.lock_of_locks = {}, threading.Lock()
        self.running, self.lock_of_running, self.stopped = set(), threading.Lock(), False

    def submit(self, *arguments):
        return self.several.submit(self.run, *arguments)

    def stop(self):
        """Ends what runs and begins nothing more."""
        self.several.shutdown(wait=False, cancel_futures=True)
        with self.lock_of_running:
            self.stopped = True
            for process in self.running:
                end_group(process)

    def start(self, command, environment, log):
        with self.lock_of_running:
            if self.stopped:
                raise concurrent.futures.CancelledError
            process = subprocess.Popen(command.words, cwd=command.folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            self.running.add(process)
            return process

    def end(self, process):
        """With what it left behind."""
        with self.lock_of_running:
            end_group(process)
            self.running.discard(process)
        process.wait()

    def run(self, command, number, name, limit):
        """(verdict, seconds): how it ended, "passed" if the test noticed nothing."""
        own = built.FOLDER / "tmp" / name
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        try:
            return self.run_in(own, command, number, name, limit)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def run_in(self, own, command, number, name, limit):
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
            process = self.start(command, environment, log)
            try:
                code = process.wait(limit)
                verdict = "passed" if code == 0 else f"exit {code}" if code > 0 else signal.Signals(-code).name
            except subprocess.TimeoutExpired:
                verdict = "hangs"
            self.end(process)
            return verdict, time.monotonic() - start

    def lock(self, name):
        with self.lock_of_locks:
            return self.locks.setdefault(name, threading.Lock()) if name else threading.Lock()


def limit_of(usual):
    """Seconds after which a test with a mutant hangs, which usually takes so many."""
    return max(SHORTEST_LIMIT_S if usual < 2 else SHORT_LIMIT_S, TIMES_AS_LONG * usual)


class InTurn:
    """Runs each test without a mutant, and when it has passed, as it must, with its mutants."""

    def __init__(self, mutants, runner, commands):
        self.mutants, self.runner, self.commands = mutants, runner, commands
        self.usual = {}  # seconds of each test that has passed
        self.left = collections.Counter(map(self.cache_of, commands))  # tests without a mutant, still to end, by cache
        self.running = {runner.submit(command, 0, f"without-{i}", LONGEST_S): (test, i)
                        for i, (test, command) in enumerate(commands.items())}

    def cache_of(self, test):
        return self.commands[test].environment.get("ASSAY_TEST_CACHE")

    def ended(self, test, i, verdict, took):
        self.left[self.cache_of(test)] -= 1
        if verdict == "passed":
            self.usual[test] = took
        else:
            print(f"error: without a mutant, {test} does not pass: {verdict}\n"
                  f"hint: see {built.FOLDER}/log/without-{i}.txt; is its --filter still the name of a case?", flush=True)
        if not any(self.left.values()):
            print(f"{len(self.usual)} of {len(self.commands)} pass without a mutant, in {sum(self.usual.values()):.0f} s",
                  flush=True)

    def ready(self, test):
        """The mutants that may run when this test has ended: a cache is copied when no test without a mutant writes it."""
        cache = self.cache_of(test)
        if cache is None:
            tests = [test]
        else:
            tests = [other for other in self.commands if self.cache_of(other) == cache and self.left[cache] == 0]
        return [m for m in self.mutants if m.test in tests and m.test in self.usual]

    def verdicts(self):
        """(mutant, verdict, seconds) as they come."""
        for done in waiting.as_completed(self.running):
            what, (verdict, took) = self.running[done], done.result()
            if isinstance(what, Mutant):
                yield what, verdict, took
                continue
            self.ended(*what, verdict, took)
            for m in self.ready(what[0]):
                limit = limit_of(self.usual[m.test])
                self.running[self.runner.submit(self.commands[m.test], m.number, str(m.number), limit)] = m


def verdicts(mutants, runner, jobs):
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
    print(f"built in {time.monotonic() - start:.0f} s; each test first without a mutant", flush=True)
    yield from InTurn(mutants, runner, commands).verdicts()


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


def only_call():
    """The lock of the build folder, whose tree, logs and temporary files belong to one call at a time."""
    built.FOLDER.mkdir(parents=True, exist_ok=True)
    lock = open(built.FOLDER / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ListError(f"another call of tools/mutate.sh is running in {ROOT}",
                        "give one call all numbers, or --jobs; wait for it to end, or stop it") from None
    return lock


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
    held = only_call()
    runner, results = Runner(options.jobs), []
    try:
        for result in verdicts(mutants, runner, options.jobs):
            results.append(result)
            print(row(*result), flush=True)
    finally:
        runner.stop()
        held.close()
    status = report(results, options)
    return status if len(results) == len(mutants) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except ListError as error:
        sys.exit(f"error: {error}\nhint: {error.hint}")
    except KeyboardInterrupt:
        sys.exit(130)
