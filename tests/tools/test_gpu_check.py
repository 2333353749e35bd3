#!/usr/bin/env python3
"""tools/gpu_check.sh with programs that only pretend: the order of its steps, what fits into the time, what is left, how
another call goes on, failures, signals and exit codes."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from comma_locale import comma_locale

ROOT = pathlib.Path(__file__).resolve().parents[2]
failures = []
folder = tempfile.TemporaryDirectory(prefix="assay-gpu-check-")
work = pathlib.Path(folder.name).resolve()
place = work / "bundle"

# Every program writes its name and arguments to calls. FAKE_FAIL and FAKE_HANG name one that fails or does not end.
HEAD = """#!/usr/bin/env bash
name=$(basename "$0")
echo "$name $*" >>"$FAKE_CALLS"
if [[ ${FAKE_HANG:-} == "$name" ]]; then exec sleep 1000; fi
if [[ ${FAKE_FAIL:-} == "$name" ]]; then echo "broken as planned" >&2; exit 7; fi
"""
# FAKE_SKIP names an op that the GPU has no kernels for.
OP_CHECK = """if [[ "$*" == *--list ]]; then
  if [[ "$*" == *--op* ]]; then seq 37; else seq 2000; fi
  exit
fi
if [[ "$*" == *"--op ${FAKE_SKIP:-none} "* ]]; then echo "0 cases, 0 failed, 18 skipped"; exit 77; fi
echo "ok   a case"
echo "2 cases, 0 failed"
"""
# FAKE_NO_NCCL: a machine without it.
NCCL_CHECK = """if [[ -n ${FAKE_NO_NCCL:-} ]]; then
  printf 'error: rank 0: NCCL cannot be used\\nhint: install it\\n' >&2
  exit 77
fi
echo ranks: ok
"""
BENCH = 'echo "{\\"program\\": \\"$name\\", \\"cases\\": [\n]}"\n'
# Another build is half as fast.
STEP = """speed=2000
if [[ $0 == also/* ]]; then speed=1000; fi
echo "{\\"tokens_per_s\\":$speed,\\"losses\\":${FAKE_LOSSES:-[10.5,10,9.5,9.25]},\\"loss\\":9.25}"
"""
# A run that is stopped after 30 steps goes on with the other 30. FAKE_GPU_LOSS is what a run on the GPU says.
TRAIN = """if [[ $1 == tune ]]; then
  echo "{}" >"${@: -1}"
  echo "dense products of a micro-batch: 1 ms"
  exit
fi
if [[ $1 != train ]]; then exit; fi
first=1 last=60
loss=4.5000
if [[ $* == *"--device cuda"* ]]; then loss=${FAKE_GPU_LOSS:-$loss}; fi
if [[ $* == *--stop-after* ]]; then last=30; fi
while [[ $1 != --run ]]; do shift; done
if [[ -d $2 ]]; then first=31; fi
mkdir -p "$2"
for ((i = first; i <= last; ++i)); do echo "step $i/60 loss $loss and more #1f09c3aa"; done
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text)
    path.chmod(0o755)


for name in ("tools/gpu_check.sh", "tools/gpu_check", "bench/in_turn.py"):
    copied = place / name
    copied.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copied)
(place / "MANIFEST").write_text("# assay bundle\n# commit abc123\n")
program(place / "bin/op_check_cuda", OP_CHECK)
program(place / "bin/test_device", "echo all passed\n")
program(place / "bin/test_wrappers_cuda", "echo all passed\n")
program(place / "bin/nccl_check", NCCL_CHECK)
program(place / "bin/assay", TRAIN)
for name in ("limits", "attention", "gemm", "grouped", "head", "memory_ops", "optimizer", "router", "quantisers"):
    program(place / f"bin/bench_{name}", BENCH)
program(place / "bin/bench_step", STEP)
program(place / "also/before/bin/bench_step", STEP)
# PyTorch, where PYTHONPATH names it, and its programs.
PEER = """import os, sys
name = os.path.basename(__file__)
open(os.environ["FAKE_CALLS"], "a").write(" ".join([name, *sys.argv[1:]]) + "\\n")
"""
(place / "bench/peers").mkdir()
(work / "torch").mkdir()
for path in (place / "bench/peers/torch_gpu.py", place / "bench/peers/torch_gpu_step.py"):
    path.write_text(PEER + "print('{}')\n")
(work / "torch/torch.py").write_text(PEER + "class cuda:\n    is_available = staticmethod(lambda: True)\n")
with_torch = {"PYTHONPATH": str(work / "torch"), "PYTHONDONTWRITEBYTECODE": "1"}
program(work / "path/nvidia-smi", "echo \"NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, ${FAKE_CAPABILITY:-9.0}\"\n")
program(work / "path/compute-sanitizer", "echo 'ok   a case'\necho '2 cases, 0 failed'\n")
program(work / "path/nproc", "echo ${FAKE_CORES:-1}\n")


def start(*arguments, prebuilt="bin", cwd=place, **environment):
    calls = work / "calls"
    calls.write_text("")
    plain = {k: v for k, v in os.environ.items() if k not in ("OUT", "ASSAY_NCCL_LIBRARY")}
    plain.update(PATH=f"{work / 'path'}:{os.environ['PATH']}", FAKE_CALLS=str(calls), **environment)
    return subprocess.Popen(["bash", str(place / "tools/gpu_check.sh"), "--prebuilt", prebuilt, *arguments], env=plain, cwd=cwd,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments, **environment):
    process = start(*arguments, **environment)
    out, error = process.communicate()
    calls = [line.split()[0] for line in (work / "calls").read_text().splitlines() if not (line.startswith("nproc") or line.endswith("--list"))]
    return process.returncode, out + error, calls


def results(out):
    return json.loads((work / out / "results.json").read_text())


def statuses(out):
    return {row["name"]: row["status"] for row in results(out)["steps"]}


def check(true, what, text=""):
    if not true:
        failures.append(f"{what}\n{text}")


# Everything, in its order.
code, text, calls = run("--minutes", "9000", "--out", str(work / "all"))
r = results("all")
order = [row["name"] for row in r["steps"]]
check(code == 0 and set(statuses("all").values()) == {"0"} and r["left"] == [], "all is ok", text)
wanted = ["device", "limits", "op_check_grouped_scaled", "op_check_attention", "op_check_mma_grouped_scaled", "parity_fp32", "parity_muon", "losses",
          "op_check", "ab_before_dense", "ab_switches_dense", "step_dense", "profile_moe-256", "ranks", "bench_attention", "racecheck"]
check([n for n in order if n in wanted] == wanted, "the order of the steps", str(order))
check(all(n.startswith("torch") or n in ("ranks_2", "ranks_4", "ranks_train") for n in r["not_here"]) and "torch" in r["not_here"], "not here",
      str(r["not_here"]))
check(r["commit"] == "abc123" and r["gpu"].startswith("NVIDIA H200") and r["limits"]["program"] == "bench_limits" and
      r["benches"]["bench_head"]["program"] == "bench_head" and r["steps_of_models"]["step_dense"]["loss"] == 9.25 and
      r["op_check"] == "2 cases, 0 failed" and r["losses_decoded_native"]["moe-64_fp8_block"]["apart"] == [0, 0] and
      r["parity_bf16"].startswith("60 steps:") and r["tune_dense"] == "dense products of a micro-batch: 1 ms", "results.json", json.dumps(r))
# Every step says how many micro-batches it has; those with 4096 experts have as many as their preset.
steps = [line + " " for line in (work / "calls").read_text().splitlines() if line.startswith("bench_step ")]
of_4096 = [line for line in steps if "/super/one-gpu/" in line and "--profile" not in line and "--batch " not in line]
check(all("--micro-batches " in line for line in steps) and len(of_4096) > 2 and
      all("--micro-batches 4 " in line for line in of_4096), "micro-batches", "\n".join(steps))
pairs = {row["name"]: row["ratio_median"] for row in r["in_turn"]}
check(pairs["before_moe-64"] == 0.5 and pairs["tuned_dense"] == 1 and pairs["64_sequences_moe-256"] == 1 and
      pairs["gradient_zeros_moe-256"] == 1, "builds and switches in turn", str(pairs))
check(sorted(path.name for path in (work / "all").iterdir()) == ["logs.tgz", "results.json"], "what is left in --out")

# Only what fits: the op check of everything is expected to take longer than the time, the bench after it does not wait.
some = "device|limits|op_check|step_dense|bench_quantisers"
code, text, calls = run("--minutes", "1", "--only", some, "--out", str(work / "part"))
check(code == 3 and statuses("part") == {"device": "0", "limits": "0", "bench_quantisers": "0", "op_check": "left", "step_dense": "0"},
      "what does not fit is left", text)
check(calls == ["nvidia-smi", "test_device", "bench_limits", "bench_quantisers", "bench_step"] and results("part")["left"] == ["op_check"],
      "what was called", str(calls))
rest = f"bash tools/gpu_check.sh --prebuilt 'bin' --only '{some}' --minutes 2 --continue {work / 'part'}"
check(rest in text and "--only 'op_check'" in text and "FAILED" not in text, "the call that does the rest", text)

# The rest, into a folder of its own: only that runs, and the results are those of both calls.
code, text, calls = run("--minutes", "2", "--only", some, "--continue", str(work / "part"), "--out", str(work / "whole"))
check(code == 0 and calls == ["nvidia-smi", "op_check_cuda"] and set(statuses("whole").values()) == {"0"}, "--continue", f"{calls} {text}")
r = results("whole")
check(len(r["steps"]) == 5 and r["limits"]["program"] == "bench_limits" and r["op_check"] == "2 cases, 0 failed" and
      r["steps_of_models"]["step_dense"]["tokens_per_s"] == 2000, "results of both calls", json.dumps(r))
# Folders are those of the caller.
(work / "elsewhere").mkdir()
code, text, calls = run("--only", "limits", "--out", "mine", prebuilt="../bundle/bin", cwd=work / "elsewhere")
check(code == 0 and calls == ["nvidia-smi", "bench_limits"] and statuses("elsewhere/mine") == {"limits": "0"}, "from elsewhere", text)
code, text, calls = run("--minutes", "0.1", "--only", "limits|op_check", "--continue", "mine", prebuilt="../bundle/bin", cwd=work / "elsewhere")
check(code == 3 and calls == ["nvidia-smi"] and statuses("elsewhere/mine") == {"limits": "0", "op_check": "left"} and
      f"--prebuilt 'bin' --only 'limits|op_check' --minutes 2 --continue {work}/elsewhere/mine" in text, "--continue from elsewhere", text)
# A third call, into the same folder, has nothing to do.
code, text, calls = run("--only", some, "--continue", str(work / "whole"))
check(code == 0 and calls == ["nvidia-smi"] and len(results("whole")["steps"]) == 5, "nothing is left to do", text)

# A step that fails is said and does not stop the others; another call does it again.
code, text, calls = run("--only", "limits|bench_head|bench_router", "--out", str(work / "broken"), FAKE_FAIL="bench_head")
check(code == 1 and statuses("broken") == {"limits": "0", "bench_head": "7", "bench_router": "0"} and
      "gpu_check: failed: bench_head" in text and "broken as planned" in text, "a failure", text)
check("bench_head" not in results("broken")["benches"], "no figures of a failure")
code, text, calls = run("--only", "limits|bench_head|bench_router", "--continue", str(work / "broken"))
check(code == 0 and calls == ["nvidia-smi", "bench_head"] and "bench_head" in results("broken")["benches"], "a failure again", text)
# Losses are compared if the steps are there. In all steps that are left none fails.
code, text, calls = run("--minutes", "0.2", "--only", "step_dense_fp8_.*|losses", "--out", str(work / "none"))
check(code == 3 and set(statuses("none").values()) == {"left"} and "losses" in results("none")["left"] and calls == ["nvidia-smi"],
      "losses wait for their steps", text)

# A loss that is no number is missing.
code, text, calls = run("--only", "step_dense_fp8_.*|losses", "--out", str(work / "nan"), FAKE_LOSSES="[10.5,10,9.5,null]")
check(code == 1 and statuses("nan")["losses"] == "1" and results("nan")["losses_decoded_native"] == {}, "a loss that is no number", text)

# Losses that differ, also where numbers have a decimal comma.
comma = comma_locale(work)
if comma is None:
    print("not run: a decimal comma, localedef cannot make de_DE.UTF-8")
for environment in [{}] + [comma] * (comma is not None):
    apart = f"apart{len(environment)}"
    code, text, calls = run("--only", "step_dense_fp8_.*|losses|parity_fp32", "--out", str(work / apart), FAKE_GPU_LOSS="4.9000", **environment)
    check(code == 1 and statuses(apart)["parity_fp32"] == "1" and results(apart)["parity_fp32"] ==
          "60 steps: |loss on the CPU - on the GPU| 0.400 at step 1, at most 0.400 (step 1)" and
          results(apart)["losses_decoded_native"]["dense_fp8_tensor"]["decoded"] == [10.5, 9.25], f"losses apart {environment}", text)

# What the end of the time stops is left, not failed, and its output is kept.
code, text, calls = run("--minutes", "0.05", "--only", "device|ranks", "--out", str(work / "cut"), FAKE_HANG="test_device")
check(code == 3 and statuses("cut") == {"device": "left", "ranks": "left"}, "stopped by the end of the time", text)
kept = subprocess.run(["tar", "-tzf", work / "cut/logs.tgz"], capture_output=True, text=True).stdout
check("logs/device.log" in kept, "the log of what was stopped", kept)

# A signal ends the step that runs and keeps what there is.
process = start("--only", "limits|bench_.*", "--out", str(work / "signal"), FAKE_HANG="bench_quantisers")
while "bench_quantisers" not in (work / "calls").read_text() and process.poll() is None:
    time.sleep(0.02)
process.send_signal(signal.SIGTERM)
out, error = process.communicate()
check(process.returncode == 143 and statuses("signal")["limits"] == "0" and statuses("signal")["bench_quantisers"] == "left" and
      "bench_head" in results("signal")["left"], "SIGTERM", out + error)

# PyTorch's whole steps plan with the seconds that they have: 330, or what is left of the time.
for minutes, most in (("9000", 5.25), ("5.1", 4.85)):
    code, text, calls = run("--minutes", minutes, "--only", "torch_step_moe-64", "--out", str(work / f"peers{minutes}"), **with_torch)
    (line,) = [line for line in (work / "calls").read_text().splitlines() if line.startswith("torch_gpu_step.py ")]
    given = dict(zip(line.split()[1::2], line.split()[2::2]))
    check(code == 0 and given["--model"] == "moe-64" and given["--bench"] == "bin/bench_step" and
          most - 0.1 < float(given["--minutes"]) <= most, f"the minutes of PyTorch's steps in {minutes}", f"{line} {text}")

# PyTorch starts for its own steps only: not for those of others, nor where its own are ok in an earlier call.
for arguments, wanted in ((["--only", "limits|ranks", "--out", str(work / "others")], ["bench_limits", "nccl_check"]),
                          (["--only", "torch|limits", "--out", str(work / "starts")], ["bench_limits", "torch.py", "torch_gpu.py"]),
                          (["--only", "torch|limits|ranks", "--continue", str(work / "starts")], ["nccl_check"]),
                          (["--only", "torch.*", "--continue", str(work / "starts")], ["torch.py", *4 * ["torch_gpu_step.py"]])):
    code, text, calls = run(*arguments, **with_torch)
    check(code == 0 and calls == ["nvidia-smi", *wanted], f"what starts with {arguments}", f"{calls} {text}")
check(sorted(statuses("starts"))[:4] == ["limits", "ranks", "torch", "torch_step_dense"] and len(statuses("starts")) == 7,
      "a call for some steps keeps those of others", str(statuses("starts")))

# Op checks have a process per core, but only for eight cases each, and at most 16: each opens the GPU.
for cores, of_one, of_all in ((1, 1, 1), (4, 4, 4), (12, 5, 12), (96, 5, 16)):
    code, text, calls = run("--only", "op_check|op_check_muon", "--out", str(work / f"shards{cores}"), FAKE_CORES=str(cores))
    called = [line.split() for line in (work / "calls").read_text().splitlines() if "--shard" in line]
    found = [sorted(line[-1] for line in called if ("--op" in line) == one) for one in (True, False)]
    check(code == 0 and found == [sorted(f"{i}/{n}" for i in range(n)) for n in (of_one, of_all)] and
          results(f"shards{cores}")["op_check_muon"] == f"{2 * of_one} cases, 0 failed", f"processes on {cores} cores", f"{found} {text}")

# Another kind of GPU: an op whose cases it skips and the wrappers are not here, and that is no failure.
few = ("--only", "wrappers|op_check_swiglu_codes|op_check_attention", "--out")
code, text, calls = run(*few, str(work / "other"), FAKE_CAPABILITY="12.0", FAKE_SKIP="swiglu_codes")
check(code == 0 and statuses("other") == {"op_check_attention": "0"} and "test_wrappers_cuda" not in calls and
      results("other")["not_here"] == ["wrappers", "op_check_swiglu_codes"] and "not here: 0 cases, 0 failed, 18 skipped" in text and
      "not here: the wrappers are for 9.0, this GPU has 12.0" in text, "what another GPU has not", text)
# A machine without NCCL: its reason, not what to do.
code, text, calls = run("--only", "ranks|limits", "--out", str(work / "no nccl"), FAKE_NO_NCCL="yes")
check(code == 0 and results("no nccl")["not_here"] == ["ranks"] and statuses("no nccl") == {"limits": "0"} and
      "not here: rank 0: NCCL cannot be used\n" in text, "no NCCL", text)
code, text, calls = run(*few, str(work / "no image"), FAKE_CAPABILITY="11.0")
check(code == 1 and calls == ["nvidia-smi"] and "error: this GPU has compute capability 11.0" in text, "a GPU without an image", text)

# The build has the image of this GPU.
program(work / "path/cmake", 'echo "$*"\n')
for capability, image in (("8.0", "80"), ("8.6", "80"), ("8.9", "89"), ("9.0", "90a"), ("10.3", "100"), ("12.1", "120")):
    environment = {**os.environ, "PATH": f"{work / 'path'}:{os.environ['PATH']}", "FAKE_CALLS": str(work / "calls"),
                   "build": str(work / "built"), "capability": capability}
    text = subprocess.run(["bash", "-c", f"source {ROOT}/tools/gpu_check/steps.sh && build_all"], env=environment, text=True,
                          capture_output=True).stdout
    check(f"-DASSAY_GPUS={image}\n" in text, f"the image of {capability}", text)

# Errors, before anything runs.
(place / "MANIFEST").write_text("# assay bundle\n# commit def456\n")
for arguments, words in ((["--minutes", "soon"], "--minutes soon is not a number"), (["--minutes", "0"], "--minutes 0 is not"),
                         (["--continue", str(work / "nowhere")], "has no results.json"),
                         (["--continue", str(work / "whole")], "are of commit abc123, these programs of def456")):
    code, text, calls = run(*arguments)
    lines = text.splitlines()
    check(code == 1 and len(lines) == 2 and lines[0].startswith("error: ") and words in lines[0] and
          lines[1].startswith("hint: ") and calls == [], f"{arguments}", text)

(place / "MANIFEST").write_text("# assay bundle\n# commit abc123\n")

# --only without a step, a folder that cannot be written: said before anything is done to what an earlier call left.
def held(out):
    return {path.name: path.read_bytes() for path in (work / out).iterdir()}


(work / "file").write_text("mine")
before = held("whole")
for arguments, error, hint in (
        (["--only", "limit", "--out", str(work / "whole")], "--only limit matches no step", "device, wrappers, limits, "),
        (["--only", "limit", "--dry-run"], "--only limit matches no step", "device, wrappers, limits, "),
        (["--only", "lim(", "--out", str(work / "whole")], "--only lim( is not a regular expression", "limits|step_"),
        (["--out", str(work / "file/b")], f"{work}/file/b cannot be written", "another --out"),
        (["--out", str(work / "whole")], f"{work}/whole has a results.json already", f"--continue {work}/whole goes on from"),
        (["--only", "device", "--continue", str(work / "part"), "--out", str(work / "whole")],
         f"{work}/whole has a results.json already", "another --out")):
    code, text, calls = run(*arguments)
    lines = text.splitlines()
    check(code == 1 and len(lines) == 2 and lines[0].startswith("error: ") and error in lines[0] and
          lines[1].startswith("hint: ") and hint in lines[1] and set(calls) <= {"nvidia-smi"}, f"{arguments}", text)
check(held("whole") == before, "the results of an earlier call stay", str(held("whole").keys()))

# Files of the user in --out stay: a folder logs, which logs.tgz has, and a logs.tgz.
(work / "home/logs").mkdir(parents=True)
(work / "home/logs/mine.txt").write_text("precious")
code, text, calls = run("--only", "limits", "--out", str(work / "home"))
check(code == 0 and (work / "home/logs/mine.txt").read_text() == "precious" and
      sorted(path.name for path in (work / "home").iterdir()) == ["logs", "logs.tgz", "results.json"], "a folder logs of the user", text)
(work / "home/results.json").unlink()
before_home = (work / "home/logs.tgz").read_bytes()
code, text, calls = run("--only", "limits", "--out", str(work / "home"))
check(code == 1 and f"error: {work}/home has a logs.tgz already\n" in text and calls == ["nvidia-smi"] and
      (work / "home/logs.tgz").read_bytes() == before_home, "a logs.tgz without results", text)
# A number with a zero before it is no octal one, and no number of JSON.
code, text, calls = run("--minutes", "08.50", "--only", "limits", "--out", str(work / "eight"))
check(code == 0 and results("eight")["minutes"] == 8.5, "--minutes 08.50", text)

# A full disk at the end: said, and what an earlier call left stays. The logs of this one stay too.
shutil.copytree(work / "whole", work / "full")
(work / "full/results.json.part").symlink_to("/dev/full")
code, text, calls = run("--only", "bench_head", "--continue", str(work / "full"))
check(code == 1 and f"error: the results cannot be written to {work}/full: No space left on device\nhint: " in text and
      "steps ok" not in text, "a full disk", text)
check({"limits.json", "bench_head.json"} <= {path.name for path in (work / "full").glob("unfinished-*/logs/*")} and
      {name: (work / "full" / name).read_bytes() for name in before} == before, "what a full disk leaves", text)

# Sources without a repository, in a folder of another one: their commit is not known.
(place / "MANIFEST").unlink()
subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "-q", work], check=True)
subprocess.run(["git", "-C", work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty",
                "-m", "of another"], check=True)
code, text, calls = run("--only", "limits", "--out", str(work / "bare"))
check(code == 0 and results("bare")["commit"] == "unknown", "the commit of another repository", text)

# The agenda, without a GPU.
code, text, calls = run("--dry-run", "--minutes", "3")
check(code == 0 and calls == [] and "-- what no GPU has executed" in text and "another call does them: --minutes" in text and
      not (place / "gpu-check").exists(), "--dry-run", text)

print("\n".join(failures) if failures else "gpu_check: ok")
sys.exit(1 if failures else 0)
