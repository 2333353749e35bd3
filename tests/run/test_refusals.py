#!/usr/bin/env python3
"""What the tests take for a refusal, refusals.py."""
import pathlib
import sys
from subprocess import CompletedProcess

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import check
from refusals import is_refusal

TOLD = "error: --steps many is no number\nhint: see --help\n"
WARNED, SAID = "warning: it is late\n", "step 1/6\n"
# What it is given, standard error, standard output, exit code, and whether it is one.
CASES = [
    ({}, TOLD, "", 1, True),
    ({}, TOLD.encode(), b"", 1, True),
    ({}, TOLD, None, 1, True),
    ({"error": "many", "hint": "--help"}, TOLD, "", 1, True),
    ({"error": ("many", "no number")}, TOLD, "", 1, True),
    ({"error": "error: --steps", "hint": "hint: see"}, TOLD, "", 1, True),
    ({"warned": True}, WARNED + TOLD, "", 1, True),
    ({"said_before": True}, SAID + WARNED + TOLD, "", 1, True),
    ({"printed": True}, TOLD, "a table\n", 1, True),
    ({}, TOLD, "", 3, False),
    ({}, TOLD, "", 0, False),
    ({}, TOLD, "", -11, False),
    ({}, "", "", 1, False),
    ({}, "error: no hint\n", "", 1, False),
    ({}, "hint: see --help\nerror: the other order\n", "", 1, False),
    ({}, "error: an empty hint\nhint: \n", "", 1, False),
    ({}, "error: a short one\nhint: none.\n", "", 1, False),
    ({}, "no word\nhint: see --help\n", "", 1, False),
    ({}, TOLD + SAID, "", 1, False),
    ({"said_before": True}, TOLD + SAID, "", 1, False),
    ({}, TOLD, "a table\n", 1, False),
    ({}, TOLD.encode(), b"a table\n", 1, False),
    ({}, WARNED + TOLD, "", 1, False),
    ({"warned": True}, SAID + TOLD, "", 1, False),
    ({"warned": True}, WARNED + TOLD, "a table\n", 1, False),
    ({"said_before": True}, SAID + TOLD, "a table\n", 1, False),
    ({"printed": True}, WARNED + TOLD, "a table\n", 1, False),
    ({"said_before": True}, TOLD + TOLD, "", 1, False),
    ({"said_before": True}, "hint: another one\n" + TOLD, "", 1, False),
    ({"error": "--help"}, TOLD, "", 1, False),
    ({"error": ("many", "seven")}, TOLD, "", 1, False),
    ({"hint": "many"}, TOLD, "", 1, False),
    ({"error": "error: many"}, TOLD, "", 1, False),
    ({"error": "error: many"}, "error: said error: many\nhint: see --help\n", "", 1, False),
]

for options, stderr, stdout, code, wanted in CASES:
    done = CompletedProcess([], code, stdout, stderr)
    check(is_refusal(done, **options) == wanted, f"not {wanted}: {options}, {done}")
print("refusals: ok")
