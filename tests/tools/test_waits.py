#!/usr/bin/env python3
"""bench/waits.py with a program in the place of assay: a row that cannot be measured says so, and the others follow."""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "waits.py"
# Plans nothing, prints a tokenizer's table of another form, writes no log.
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
failures = []
with tempfile.TemporaryDirectory(prefix="assay-test-waits-") as folder:
    build = pathlib.Path(folder)
    for name, text in (("assay", ASSAY), ("bench_tokenizer", "#!/bin/sh\necho '[2]'\n")):
        (build / name).write_text(text)
        (build / name).chmod(0o755)
    # No plan, a TypeError, an IndexError, a TypeError again; then a row that works.
    rows = ("dry-run", "prepare", "checkpoint", "core", "help")
    done = subprocess.run([sys.executable, "-B", str(SCRIPT), "--build", str(build), "--only", ",".join(rows), "--json",
                           str(build / "rows.json")], capture_output=True, text=True)
    said = done.stderr.splitlines()
    if done.returncode != 1 or len(said) != 4:
        failures.append(f"exit {done.returncode}: {done.stderr}")
    for name, line in zip(rows, said):
        if not line.startswith(f"{name}: not measured: "):
            failures.append(f"{name}: {line}")
    kept = json.loads((build / "rows.json").read_text())["rows"] if (build / "rows.json").exists() else []
    if [row["row"] for row in kept] != ["help"] or "assay --help" not in done.stdout:
        failures.append(f"kept {kept}: {done.stdout}")
print("\n".join(failures) if failures else "waits: ok")
sys.exit(1 if failures else 0)
