#!/usr/bin/env python3
"""What telemetry.collapse_stop: auto says of itself is what `assay early-warning --rule auto` finds in the recorded runs
of the studies, and so is what docs/early-warning.md shows."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ROOT, Workplace, assay, check

STUDIES = ("0004-mini", "0006-mini", "tiny-mini", "miniseries-mini", "optimizer")


def extract(folder):
    for study in STUDIES:
        archive = ROOT / "bench" / "results" / "posts" / f"{study}.tar.zst"
        done = subprocess.run(["tar", "--zstd", "-xf", archive, "-C", folder], capture_output=True, text=True)
        check(done.returncode == 0, done.stderr)
    return [folder / study for study in STUDIES]


def check_evidence(studies):
    found = json.loads(assay("early-warning", *studies, "--rule", "auto", "--json").stdout)
    counts = found["counts"]
    judged = found["bound_chosen_without_each_configuration"]
    with Workplace(moe=True) as place:
        said = place.train("auto", "--set", "telemetry.collapse_stop=auto", "--plan").stdout
    numbers = re.search(r"on (\d+) recorded runs had (\d+) of (\d+) hits and (\d+) of (\d+) false alarms", said)
    check(numbers, said)
    expected = (len(found["runs"]), judged["hits"], judged["collapsed"], judged["alarms"], judged["others"])
    check(tuple(int(n) for n in numbers.groups()) == expected, f"{numbers.group(0)}, but the runs say {expected}")
    # The bound of auto is the one that its procedure chooses, to three digits, and decides alike.
    check(abs(found["best_bound"] - found["rule"]["bound"]) < 5e-4, f"{found['best_bound']} {found['rule']}")
    return found


def check_copies(found, studies, folder):
    """A copy of a run, as `--reuse` or cp leaves it, is no run of its own."""
    path = found["runs"][0]["run"]
    copy = pathlib.Path(folder) / "copies" / "another-name"
    shutil.copytree(path, copy)
    again = json.loads(assay("early-warning", *studies, copy, "--rule", "auto", "--json").stdout)
    check(again["runs"] == found["runs"] and again["counts"] == found["counts"], "a copy is counted")
    check(f"{copy}: a copy of {path}" in again["left_out"], again["left_out"])


def check_doc(found, studies):
    doc = (ROOT / "docs" / "early-warning.md").read_text()
    for command in ((), ("--rule", "auto")):
        lines = assay("early-warning", *studies, *command).stdout.splitlines()
        shown = [line for line in lines if "    " + line in doc.splitlines()]
        check(len(shown) >= 8, f"docs/early-warning.md shows {len(shown)} lines of early-warning {command}: {lines}")
        check(lines[-1] in shown, f"not in docs/early-warning.md: {lines[-1]}")


def main():
    if not shutil.which("zstd"):
        print("not run: tar needs zstd to unpack the recorded runs")
        return
    with tempfile.TemporaryDirectory(prefix="assay-early-") as folder:
        studies = extract(pathlib.Path(folder))
        found = check_evidence(studies)
        check_doc(found, studies)
        check_copies(found, studies, folder)
    print("early warning: ok")


main()
