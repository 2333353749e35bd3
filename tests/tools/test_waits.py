#!/usr/bin/env python3
"""bench/waits.py with programs in the places of assay and bench_tokenizer: a row that cannot be measured says so, and
the others follow; the tokenizer's table is read as bench_tokenizer prints it; a file that cannot be written is said
first."""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "waits.py"
# Plans nothing, writes no log, prints a list for an evaluation.
ASSAY = """#!/bin/sh
case "$1" in
  --help) echo help ;;
  doctor) echo '{"program": {"version": "1"}}' ;;
  matrix) echo '{"cells": 3}'; exit 1 ;;
  data) echo "a text" ;;
  train) while [ "$1" != --run ]; do shift; done; mkdir -p "$2/checkpoints/step-1"; echo "step 1" >"$2/log.txt" ;;
  eval) echo '[1]' ;;
esac
"""
# The machine's line, then those of two parts.
TOKENIZER = """#!/bin/sh
echo '{"program": "bench_tokenizer", "commit": "1", "modified": false, "cpu": "none", "device": "cpu"}'
echo '{"bench": "pre-split", "mb": 10.0, "runs": 3, "seconds_p50": 0.1, "seconds_min": 0.1, "mb_per_s": 100.0}'
echo '{"bench": "encode", "mb": 10.0, "runs": 3, "seconds_p50": 0.5, "seconds_min": 0.5, "mb_per_s": 20.0}'
"""
failures = []
with tempfile.TemporaryDirectory(prefix="assay-test-waits-") as folder:
    build = pathlib.Path(folder)
    for name, text in (("assay", ASSAY), ("bench_tokenizer", TOKENIZER)):
        (build / name).write_text(text)
        (build / name).chmod(0o755)
    # No plan, an IndexError, a TypeError; then rows that work.
    rows = ("dry-run", "checkpoint", "core", "prepare", "tokenizer", "help")
    done = subprocess.run([sys.executable, "-B", str(SCRIPT), "--build", str(build), "--only", ",".join(rows), "--json",
                           str(build / "rows.json")], capture_output=True, text=True)
    said = done.stderr.splitlines()
    if done.returncode != 1 or len(said) != 3:
        failures.append(f"exit {done.returncode}: {done.stderr}")
    for name, line in zip(rows, said):
        if not line.startswith(f"{name}: not measured: "):
            failures.append(f"{name}: {line}")
    kept = json.loads((build / "rows.json").read_text())["rows"] if (build / "rows.json").exists() else []
    if [row["row"] for row in kept] != ["prepare", "tokenizer", "help"] or "assay --help" not in done.stdout:
        failures.append(f"kept {kept}: {done.stdout}")
    done = subprocess.run([sys.executable, "-B", str(SCRIPT), "--build", str(build), "--only", "help", "--json",
                           str(build / "none" / "rows.json")], capture_output=True, text=True)
    if not is_refusal(done, "error: cannot write "):
        failures.append(f"no such folder: {done}")
print("\n".join(failures) if failures else "waits: ok")
sys.exit(1 if failures else 0)
