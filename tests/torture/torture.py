#!/usr/bin/env python3
"""Kills and faults at random moments of assay's commands. After each the same command must go on to what an undisturbed
one leaves, to the byte. Called by tools/torture.sh."""
import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import calls
import children
import scenes
import strikes

MOST_MISSED = 4  # cases for each strike that is wanted: some end before they are struck


def arguments():
    names = [scene.name for scene in scenes.SCENES]
    parser = argparse.ArgumentParser(prog="torture.sh", description=__doc__, epilog=f"KIND: {', '.join(names)}. Exit code 0: "
                                     "nothing was lost; 2: something was, and its folder is named; 1: it could not be tried, or not as "
                                     "often as asked.")
    parser.add_argument("--kills", type=int, metavar="N", help="kills (default: 30; with --faults alone: 0)")
    parser.add_argument("--faults", type=int, metavar="N", help="faults (default: 20; with --kills alone: 0)")
    parser.add_argument("--minutes", type=float, metavar="N", help="kills and faults in turn for so long, instead")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="what is struck, and where (default: 1)")
    parser.add_argument("--only", metavar="KIND,...", help="only these commands")
    parser.add_argument("--json", metavar="FILE", help="the table as JSON")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="cases at a time (default: 2)")
    parser.add_argument("--library", type=pathlib.Path, default=scenes.ASSAY.parent / "libtorture_faults.so", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.minutes is None and a.kills is None and a.faults is None:
        a.kills, a.faults = 30, 20
    a.kills, a.faults = a.kills or 0, a.faults or 0
    a.only = a.only.split(",") if a.only else names
    unknown = [name for name in a.only if name not in names]
    if unknown:
        fail(f"--only {unknown[0]} is no kind", f"one of {', '.join(names)}")
    a.library = a.library.resolve()
    for path in (scenes.ASSAY, a.library):
        if not path.exists():
            fail(f"{path} is not there", "cmake --preset release && cmake --build build --target assay torture_faults")
    return a


def fail(error, hint):
    print(f"error: {error}\nhint: {hint}", file=sys.stderr)
    sys.exit(1)


class Torture:
    def __init__(self, a, place):
        self.a, self.place = a, place
        self.lock = threading.Lock()
        self.began = self.said = time.monotonic()
        self.number = 0
        self.wanted = {"kill": a.kills, "fault": a.faults}
        self.done = collections.Counter()     # strikes by kind
        self.flying = collections.Counter()   # cases that run, by kind
        self.cases = collections.Counter()
        self.results = []
        self.undisturbed = {}
        self.round = []

    def prepare(self):
        scenes.make_shared(self.place / "shared")
        chosen = [scene for scene in scenes.SCENES if scene.name in self.a.only]
        ran = children.at_once(self.a.jobs, lambda scene: calls.undisturbed(scene, self.place, self.a.library), chosen)
        for scene, whole in zip(chosen, ran):
            try:
                self.undisturbed[scene.name] = whole.result()
            except ValueError as lost:
                if scene.name not in ("ranks", "merge") or (self.place / "shared" / "several" / "checkpoints").exists():
                    fail(str(lost), "build assay and try its command by hand")
                print(f"torture: {scene.name} is left out: this assay has no MPI", file=sys.stderr)
                continue
            self.round += [scene] * scene.weight
        if not self.round:
            fail("nothing is left to torture", "give other kinds to --only")
        strikes.random.Random(self.a.seed).shuffle(self.round)

    def next_case(self):
        """(number, scene, kind), or None when all has been tried."""
        with self.lock:
            if self.a.minutes is not None:
                if time.monotonic() - self.began > 60 * self.a.minutes:
                    return None
                kinds = ("kill", "fault")
            else:
                kinds = [kind for kind, wanted in self.wanted.items() if self.done[kind] + self.flying[kind] < wanted
                         and self.cases[kind] < MOST_MISSED * wanted]
            if not kinds:
                return None
            kind = min(kinds, key=lambda k: self.cases[k])
            scene = self.round[self.cases[kind] % len(self.round)]
            self.number += 1
            self.cases[kind] += 1
            self.flying[kind] += 1
            return self.number, scene, kind

    def work(self):
        while (case := self.next_case()) is not None:
            number, scene, kind = case
            result = strikes.Case(number, scene, kind, self.a.seed, self.place, self.a.library, self.undisturbed[scene.name]).run()
            with self.lock:
                self.flying[kind] -= 1
                self.done[kind] += result.strikes
                self.results.append(result)
                self.say(result)

    def say(self, result):
        now = time.monotonic()
        lost = sum(1 for r in self.results if r.lost)
        if result.lost:
            print(f"torture: LOST {result.scene}, case {result.number} ({'; '.join(result.what)}): {result.lost}", file=sys.stderr)
        if now - self.said < 5:
            return
        self.said = now
        if self.a.minutes is not None:
            left = 60 * self.a.minutes - (now - self.began)
        else:
            done = sum(min(self.done[kind], wanted) for kind, wanted in self.wanted.items())
            left = (now - self.began) / max(done, 1) * (sum(self.wanted.values()) - done)
        print(f"torture: {len(self.results)} cases, {self.done['kill']} kills, {self.done['fault']} faults, {lost} lost, "
              f"eta {max(left, 0):.0f} s", file=sys.stderr)

    def run(self):
        for worker in children.at_once(self.a.jobs, lambda _: self.work(), range(self.a.jobs)):
            worker.result()

    def tried(self):
        """The exit code where nothing was lost: 0 if so much was struck as was asked for."""
        few = [f"{self.done[kind]} of {wanted} {kind}s" for kind, wanted in self.wanted.items() if self.done[kind] < wanted]
        if self.a.minutes is not None or not few:
            return 0
        print(f"error: only {' and '.join(few)} came before their commands had ended\n"
              "hint: give another --seed, or, on a busy machine, --jobs 1", file=sys.stderr)
        return 1

    def table(self):
        rows = []
        for scene in scenes.SCENES:
            for kind in ("kill", "fault"):
                mine = [r for r in self.results if (r.scene, r.kind) == (scene.name, kind)]
                if mine:
                    rows.append({"command": scene.name, "kind": kind, "cases": len(mine), "strikes": sum(r.strikes for r in mine),
                                 "starts": sum(r.starts for r in mine), "equal": sum(1 for r in mine if not r.lost),
                                 "lost": sum(1 for r in mine if r.lost)})
        return rows


def print_table(rows):
    columns = list(rows[0])
    total = {"command": "all", "kind": ""} | {c: sum(row[c] for row in rows) for c in columns[2:]}
    print("  ".join(f"{c:>8}" if c in columns[2:] else f"{c:<10}" for c in columns))
    for row in [*rows, total]:
        print("  ".join(f"{row[c]:>8}" if c in columns[2:] else f"{row[c]:<10}" for c in columns))


def main():
    a = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = pathlib.Path(tempfile.mkdtemp(prefix="assay-torture-"))
    torture = Torture(a, place)
    try:
        torture.prepare()
        torture.run()
    except (KeyboardInterrupt, SystemExit):
        children.stop()
        end = time.monotonic() + 5  # for ranks, which end after the processes that are waited for
        while place.exists() and time.monotonic() < end:
            shutil.rmtree(place, ignore_errors=True)
        raise
    rows, lost = torture.table(), [r for r in torture.results if r.lost]
    print_table(rows)
    seconds = time.monotonic() - torture.began
    print(f"{torture.done['kill']} kills and {torture.done['fault']} faults in {seconds:.0f} s, seed {a.seed}: {len(lost)} lost")
    if a.json:
        cases = [{"case": r.number, "command": r.scene, "kind": r.kind, "what": r.what, "lost": r.lost} for r in lost]
        pathlib.Path(a.json).write_text(json.dumps({"seed": a.seed, "seconds": seconds, "rows": rows, "lost": cases}, indent=1) + "\n")
    if not lost:
        shutil.rmtree(place, ignore_errors=True)
        return torture.tried()
    print(f"error: {len(lost)} commands did not go on to equal bytes", file=sys.stderr)
    print(f"hint: each has a folder in {place} with commands.sh, which starts them again, and output.txt", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
