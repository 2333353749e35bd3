#!/usr/bin/env python3
"""assay doctor as a user calls it, in a build without CUDA, and with the SIMT emulator for the GPU.
Usage: test_doctor_cli.py ASSAY WITHOUT_CUDA ON_EXECUTOR"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from cores import usable_cores

ASSAY, WITHOUT_CUDA, ON_EXECUTOR = sys.argv[1:]
HAS_CUDA = WITHOUT_CUDA != ASSAY  # a build without CUDA has no other program without it, and measures no GPU
PRESETS = f"{ROOT}/models/presets/"
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)


def doctor(*arguments):
    done = subprocess.run([ASSAY, "doctor", *arguments], capture_output=True, text=True)
    expect(done.returncode == 0, f"doctor {arguments}: exit {done.returncode}, {done.stderr}")
    return done.stdout


facts = json.loads(doctor("--json"))
expect(facts["cpu"]["cores"] == usable_cores(), f"cores {facts['cpu']['cores']}")
flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
for name in facts["cpu"]["used"] + facts["cpu"]["unused"]:
    expect(name in flags, f"{name} is not among the CPU's flags")
used, intel = facts["cpu"]["used"], "GenuineIntel" in open("/proc/cpuinfo").read()
fast_bf16 = "amx_bf16" in used or ("avx512_bf16" in used and not intel)
expect(facts["cpu"]["recipe_of_auto"] == ("bf16" if fast_bf16 else "fp32"), "recipe of auto")
for name, low in (("copy_gb_per_s", 0.1), ("matmul_fp32_gflop_per_s", 1), ("matmul_bf16_gflop_per_s", 0.5)):
    expect(low < facts["limits"][name] < 1e6, f"{name} = {facts['limits'][name]}")
total = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal")) / 2**20
expect(abs(facts["memory"]["total_gib"] - total) < 0.01, f"memory {facts['memory']}")
# Where a cgroup limits it.
limit = facts["memory"].get("limit_gib", total + 0.01)
expect(0 < facts["memory"]["available_gib"] <= limit <= total + 0.01, f"memory {facts['memory']}")
if not facts["gpu"]["usable"]:
    expect(facts["gpu"]["problem"], "no GPU, but no reason is given")
    expect(any("no GPU" in a["what"] and a["todo"] for a in facts["advice"]), "no GPU, but no advice is given")

quick = json.loads(doctor("--quick", "--json"))
expect("limits" not in quick, "--quick measured the limits")
text = doctor("--quick")
for word in ("program", "cpu", "memory", "gpu", "disk", "not available on this machine", "recipe \"auto\""):
    expect(word in text, f"{word} is not in the text")



def called(program, *arguments, expect_status=0, **environment):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env={**os.environ, **environment})
    expect(done.returncode == expect_status, f"{program} {arguments}: exit {done.returncode}, {done.stderr}")
    return done


# A build without CUDA has no GPU, and can plan for one.
built_without = "this program was built without CUDA"
facts = json.loads(called(WITHOUT_CUDA, "doctor", "--quick", "--json").stdout)
expect(facts["gpu"] == {"usable": False, "problem": built_without}, f"without CUDA: {facts}")
expect("gpu" not in facts["energy"], f"without CUDA: {facts}")
expect(sum(built_without in a["what"] for a in facts["advice"]) == 1, f"without CUDA: {facts['advice']}")
expect("energy" in called(WITHOUT_CUDA, "doctor", "--quick").stdout, "--quick without CUDA")
on_gpu = ("--device", "cuda")
plan = ("train", PRESETS + "tiny/moe.yaml", "--plan", "--json", *on_gpu)
planned = [json.loads(called(program, *plan).stdout)["total_bytes"] for program in (WITHOUT_CUDA, ON_EXECUTOR)]
expect(planned[0] == planned[1], f"planned bytes without CUDA, with a GPU: {planned}")
text = called(WITHOUT_CUDA, "matrix", PRESETS + "posts/tiny.yaml", "--dry-run", "--memory", "139GiB", *on_gpu).stdout
expect("moe" in text, f"matrix --dry-run without CUDA: {text}")
done = called(WITHOUT_CUDA, "train", PRESETS + "tiny/moe.yaml", "--run", "/nowhere/run", *on_gpu, expect_status=1)
expect(f"error: {built_without}\nhint: use --device cpu" in done.stderr, f"train without CUDA: {done.stderr}")

# A GPU is as hot as in bench_limits when it is measured: the emulator's limits are the seconds of heat.
facts = json.loads(called(ON_EXECUTOR, "doctor", "--json").stdout)["gpu"]
# A build for other GPUs alone cannot use the emulator's, of 9.0.
measured = HAS_CUDA and "sm_90a" in facts["images"]
expect(facts["usable"] == ("sm_90a" in facts["images"]), f"the emulator: {facts}")
for name in ("copy_tb_per_s", "matmul_bf16_tflop_per_s"):
    expect((name in facts) == measured and abs(facts.get(name, 1) - 1) < 1e-9, f"heat: {facts}")
# A GPU without room for the measurements is usable all the same.
facts = json.loads(called(ON_EXECUTOR, "doctor", "--json", ASSAY_FAKE_FULL_GPU="1").stdout)
if measured:
    why = facts["gpu"].get("not_measured", "")
    expect(facts["gpu"]["usable"] and "cannot allocate 1.00 GiB" in why, f"full: {facts}")
    expect(any("was not measured" in a["what"] and "--quick" in a["todo"] for a in facts["advice"]), f"full: {facts}")
else:
    expect(not {"not_measured", "copy_tb_per_s"} & set(facts["gpu"]), f"a full GPU: {facts['gpu']}")

print("\n".join(failures) if failures else "doctor: ok")
sys.exit(1 if failures else 0)
