#!/usr/bin/env python3
"""The command line of op_check and its sisters: a help with one line for each option, and one line `error:`, one line
`hint:` for what is wrong, before a case runs.

usage: test_op_check_cli.py OP_CHECK...   (op_check, op_check_simt and what else was built)"""
import os
import pathlib
import subprocess
import sys

PROGRAMS = {pathlib.Path(path).name: path for path in sys.argv[1:]}
CASE = ("--op", "rmsnorm", "--filter", "rmsnorm_forward float N=1 C=1")
failures = []


def run(name, *arguments, **environment):
    return subprocess.run([PROGRAMS[name], *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


def expect(condition, what):
    if not condition:
        failures.append(what)


def refused(name, arguments, error, hint, **environment):
    done = run(name, *arguments, **environment)
    said = done.stderr.splitlines()
    expect(done.returncode == 1 and done.stdout == "" and len(said) == 2 and said[0].startswith("error: ") and
           error in said[0] and said[1].startswith("hint: ") and hint in said[1],
           f"{name} {arguments} {environment}: exit {done.returncode}, {done.stdout}{done.stderr}")


def runs(name, arguments, **environment):
    done = run(name, *arguments, **environment)
    expect(done.returncode == 0 and "1 cases, 0 failed" in done.stdout,
           f"{name} {arguments} {environment}: exit {done.returncode}, {done.stdout}{done.stderr}")


for name in PROGRAMS:
    emulator = name in ("op_check_simt", "op_check_race")
    for option in ("--help", "-h"):
        done = run(name, option)
        lines = done.stdout.splitlines()
        expect(done.returncode == 0 and not done.stderr and f"usage: {name} [OPTIONS]" in lines, f"{name} {option}: {done}")
        listed = {line.split()[0].rstrip(",") for line in lines if line.startswith("  -")}
        common = {"-h", "--op", "--filter", "--list", "--small", "--sanitized", "--shard", "--stop-at-failure"}
        expect(listed == common | ({"--gpu", "--image"} if emulator else {"--large"}), f"{name} {option} lists {listed}")
        expect(all(len(line) <= 90 for line in lines), f"{name} {option}: {done.stdout}")
    for arguments, error in ((["--lst"], f"{name}: unknown option --lst"), (["rmsnorm"], f"{name}: unknown option rmsnorm"),
                             (["--op"], f"{name}: --op needs a value"), (["--shard", "4/4"], f"{name}: --shard 4/4 is not"),
                             (["--op", "rope", "--op", "cast"], f"{name}: --op is given twice"),
                             (["--filter", "a", "--filter", "b"], f"{name}: --filter is given twice")):
        refused(name, arguments, error, f"`{name} --help`")
    done = run(name, "--op", "rmsnorm", "--filter", "zzz")  # a family
    expect(done.returncode == 1 and "no case matches" in done.stderr and "no op" not in done.stderr, f"{name}: {done}")
    if not emulator:
        refused(name, ["--gpu", "80"], "unknown option --gpu", "--help")
        continue
    refused(name, ["--large"], "unknown option --large", "--help")
    # Kinds of GPUs and their images, by name; nothing runs as another.
    for bad in ("foo", "8", "8.1", "85", "80x", "-1", "0", ""):
        refused(name, ["--gpu", bad, *CASE], f"--gpu {bad} is no compute capability", "8.0, 8.6, 8.9, 9.0, 10.0")
    refused(name, ["--gpu"], "--gpu needs a value", "--help")
    refused(name, ["--gpu", "80", "--gpu", "90"], "--gpu is given twice", "--help")
    for capability, bad in (("8.9", "foo"), ("89", "90"), ("86", "89"), ("80", "0")):
        refused(name, ["--gpu", capability, "--image", bad, *CASE], f"--image {bad} is no image", "its images: 80")
    for good in (["--gpu", "80"], ["--gpu", "8.0"], ["--gpu", "12.0"], ["--image", "80", "--gpu", "8.9"], ["--image", "90"]):
        runs(name, [*good, *CASE])
        runs(name, [*CASE, *good])
    # The environment, as on a GPU.
    refused(name, CASE, 'ASSAY_GPU_PATH is "bogus"', "set it to mma", ASSAY_GPU_PATH="bogus")
    refused(name, CASE, "ASSAY_GPU_PREDECESSORS", "", ASSAY_GPU_PREDECESSORS="bogus")
    runs(name, CASE, ASSAY_GPU_PATH="mma")

print("\n".join(failures) if failures else f"op_check: ok ({', '.join(PROGRAMS)})")
sys.exit(1 if failures or not PROGRAMS else 0)
