#!/usr/bin/env python3
"""assay doctor as a user calls it. Usage: test_doctor_cli.py ASSAY"""
import json
import os
import subprocess
import sys

ASSAY = sys.argv[1]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)


def doctor(*arguments):
    done = subprocess.run([ASSAY, "doctor", *arguments], capture_output=True, text=True)
    expect(done.returncode == 0, f"doctor {arguments}: exit {done.returncode}, {done.stderr}")
    return done.stdout


facts = json.loads(doctor("--json"))
expect(facts["cpu"]["cores"] == len(os.sched_getaffinity(0)), f"cores {facts['cpu']['cores']}")
flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
for name in facts["cpu"]["used"] + facts["cpu"]["unused"]:
    expect(name in flags, f"{name} is not among the CPU's flags")
expect(facts["cpu"]["recipe_of_auto"] == ("bf16" if "avx512_bf16" in flags else "fp32"), "recipe of auto")
for name, low in (("copy_gb_per_s", 0.1), ("matmul_fp32_gflop_per_s", 1), ("matmul_bf16_gflop_per_s", 0.5)):
    expect(low < facts["limits"][name] < 1e6, f"{name} = {facts['limits'][name]}")
total = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")) / 2**20
expect(abs(facts["memory"]["total_gib"] - total) < 0.01, f"memory {facts['memory']}")
if not facts["gpu"]["usable"]:
    expect(facts["gpu"]["problem"], "no GPU, but no reason is given")
    expect(any("no GPU" in a["what"] and a["todo"] for a in facts["advice"]), "no GPU, but no advice is given")

quick = json.loads(doctor("--quick", "--json"))
expect("limits" not in quick, "--quick measured the limits")
text = doctor("--quick")
for word in ("program", "cpu", "memory", "gpu", "disk", "not available on this machine", "recipe \"auto\""):
    expect(word in text, f"{word} is not in the text")

print("\n".join(failures) if failures else "doctor: ok")
sys.exit(1 if failures else 0)
