#!/usr/bin/env python3
"""The command line of every bench: one style of help within 80 columns that says whether a GPU is needed, and one line
`error:`, one line `hint:` for what is wrong.

usage: test_bench_help.py BENCH..."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

failures = []


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


for program in sys.argv[1:]:
    name = pathlib.Path(program).name

    def expect(condition, what):
        if not condition:
            failures.append(f"{name}: {what}")

    done = run(program, "--help")
    expect(done.returncode == 0 and not done.stderr, f"--help: exit {done.returncode}, {done.stderr}")
    lines = done.stdout.splitlines()
    expect(f"Usage: {name} [OPTIONS]" in lines, f"no usage line: {done.stdout}")
    head = " ".join(lines[:lines.index("Options:")]) if "Options:" in lines else ""
    expect("Needs no GPU." in head or "Needs a GPU" in head, f"does not say whether it needs a GPU: {head}")
    if name in ("bench_ops", "bench_matmul", "bench_step"):
        expect("the fastest of Assay's own linear products" in " ".join(head.split()) and "not the hardware's peak" in
               " ".join(head.split()), f"does not say what a CPU's limit of products is: {head}")
    expect(any(line.startswith("  -h,--help ") for line in lines), "--help is not listed")
    expect(any(line.startswith("  --json ") for line in lines), "--json is not listed")
    for line in lines:
        expect(len(line) <= 80, f"{len(line)} columns: {line}")
    for arguments, error, hint in ((["--jsno"], f"{name}: unknown option --jsno", "did you mean --json?"),
                                   (["nothing"], f"{name}: unknown option nothing", f"`{name} --help`"),
                                   (["--json=1"], f"{name}: --json takes no value", f"`{name} --help`")):
        done = run(program, *arguments)
        expect(is_refusal(done, error, hint) and done.stderr.startswith(f"error: {error}\n"),
               f"{arguments}: exit {done.returncode}, {done.stderr}")
    # A text may be empty only as a part of a name, and threads have a bound.
    for line in lines:
        option, what = (line.split() + ["", ""])[:2]
        if line.startswith("  --") and what.startswith(("TEXT", "FILE", "NAMES", "{")) and option != "--filter":
            done = run(program, f"{option}=")
            expect(is_refusal(done, f"{name}: {option}: the value is empty"), f"{option}=: {done}")
    if any(line.startswith("  --threads INT") for line in lines):
        done = run(program, "--threads", "1025")
        expect(is_refusal(done, "--threads: 1025 is not an integer of at least 0 and at most 1024"), done)
    for option in ("--iters", "--steps"):
        if any(line.startswith(f"  {option} INT") for line in lines):
            done = run(program, option, "0")
            expect(done.returncode == 1 and f"{option}: 0 is not an integer of at least 1" in done.stderr, done.stderr)
            done = run(program, option)
            expect(done.returncode == 1 and f"{option} needs a value" in done.stderr, done.stderr)

for failure in failures:
    print(f"FAILED: {failure}")
print(f"bench help: {len(sys.argv) - 1} programs, {len(failures)} failures")
sys.exit(bool(failures) or len(sys.argv) < 2)
