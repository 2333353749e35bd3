#!/usr/bin/env python3
"""assay train with the CUDA kernels on the SIMT emulator (build/assay_on_executor): a complete run
with --device cuda except for the GPU itself. Slow, so everything is tiny."""
import json
import os
import sys

from harness import ASSAY, Workplace, assay, checkpoints, first_difference, rows

SMALL = ["--set", "model.layers=1", "--set", "run.steps=4", "--set", "run.batch_tokens=64", "--set", "run.micro_batch=1",
         "--set", "run.checkpoint_every=2", "--set", "eval.every=2", "--set", "eval.tokens=128",
         "--set", "telemetry.probe_tokens=64", "--set", "schedule.warmup=1", "--set", "schedule.warmdown=1",
         "--set", "precision.recipe=bf16"]
MASKED = ["--set", "data.mask_eos=true"]  # so that micro-batches have different numbers of targets
PARTS = ["--set", "parallel.parts=2"]
LOSS = "SELECT step, value FROM scalar WHERE name = 'train_loss_nats' ORDER BY step"


def cut(workplace, name):
    """Cuts a run back to its state after two steps."""
    for folder in checkpoints(workplace.run(name))[1:]:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def train_with(workplace, name, variable, value, *more):
    os.environ[variable] = value
    workplace.train(name, "--device", "cuda", *SMALL, *more)
    del os.environ[variable]


failures = []
# A step's graph belongs to its phase: half of these steps have nvfp4's products, half bf16's.
NVFP4 = ["--set", "precision.recipe=nvfp4", "--set", "precision.bf16_tail=0.5", "--set", "precision.bf16_last_layers=0"]
with Workplace() as w:
    w.train("phases", "--device", "cuda", *SMALL, *NVFP4)
    train_with(w, "one-by-one", "ASSAY_SYNC_LAUNCHES", "1", *NVFP4)
    difference = first_difference(w.run("phases"), w.run("one-by-one"))
    if difference:
        failures.append(f"two phases in graphs against one by one: {difference}")
# precision.products: auto. A GPU of 9.0 has products of its own for this recipe, one of 8.0 has none.
FP8 = ["--set", "precision.recipe=fp8_tensor"]
with Workplace(moe=True) as w:
    def products(name):
        return [line.split(":")[1].strip() for line in (w.run(name) / "config.yaml").read_text().splitlines() if line.startswith("  products:")]

    w.train("native", "--device", "cuda", *SMALL, *FP8)
    train_with(w, "one-by-one", "ASSAY_SYNC_LAUNCHES", "1", *FP8)
    w.train("again", "--device", "cuda", *SMALL, *FP8, "--stop-after", "2")
    w.train("again", "--device", "cuda", *SMALL, *FP8)
    for other in ("one-by-one", "again"):
        difference = first_difference(w.run("native"), w.run(other))
        if difference:
            failures.append(f"native products against {other}: {difference}")
    train_with(w, "decoded", "SIMT_GPU", "80", *FP8, "--stop-after", "2")
    w.train("decoded", "--device", "cuda", *SMALL, *FP8)  # goes on as it began, though this GPU has such products
    found = [products(name) for name in ("native", "one-by-one", "again", "decoded")]
    if found != [["native"]] * 3 + [["decoded"]]:
        failures.append(f"precision.products: auto became {found}")
    plans = []
    for capability, *more in (("80",), ("80", "--set", "precision.products=decoded"), ("90",)):
        os.environ["SIMT_GPU"] = capability
        done = w.train(f"plan-{len(plans)}", "--device", "cuda", *SMALL, *FP8, *more, "--plan", "--json")
        plans.append(json.loads(done.stdout)["total_bytes"])
    del os.environ["SIMT_GPU"]
    refused = w.train("wide", "--device", "cuda", *SMALL, "--set", "model.moe.experts=20000", "--plan", expect=1)
    if "error: a router of 20000 experts does not fit into the shared memory of this GPU\nhint: use fewer" not in refused.stderr:
        failures.append(f"a plan of 20000 experts: {refused.stderr}")
    if not plans[0] == plans[1] < plans[2]:
        failures.append(f"planned memory of a GPU of 8.0, the same with decoded products, of 9.0: {plans}")
os.environ["ASSAY_GPU_PATH"] = "mma"
doctor = json.loads(assay("doctor", "--quick", "--json").stdout)
del os.environ["ASSAY_GPU_PATH"]
if "sm_90a" in doctor["gpu"]["images"]:  # a build for other GPUs alone cannot use the emulator's, of 9.0
    if not (doctor["gpu"]["kind"].startswith("mma.sync, 227 KB") and "unset ASSAY_GPU_PATH" in str(doctor["advice"])):
        failures.append(f"doctor with ASSAY_GPU_PATH=mma: {doctor}")
elif "this program was built for" not in doctor["gpu"]["problem"]:
    failures.append(f"doctor without an image for the emulator: {doctor}")
for moe in (False, True):
    with Workplace(moe=moe) as w:
        w.train("gpu", "--device", "cuda", *SMALL)
        w.train("again", "--device", "auto", *SMALL)  # auto uses the GPU if there is one
        difference = first_difference(w.run("gpu"), w.run("again"))
        if difference:
            failures.append(f"moe {moe}: the same run twice: {difference}")
        cut(w, "again")
        w.train("again", "--device", "cuda", *SMALL)
        difference = first_difference(w.run("gpu"), w.run("again"))
        if difference:
            failures.append(f"moe {moe}: resumed after 2 of 4 steps: {difference}")
        w.train("masked", "--device", "cuda", *SMALL, *MASKED)
        train_with(w, "one-by-one", "ASSAY_SYNC_LAUNCHES", "1", *MASKED)
        train_with(w, "late", "SIMT_STREAM", "late", *MASKED)
        for other in ("one-by-one", "late"):
            difference = first_difference(w.run("masked"), w.run(other))
            if difference:
                failures.append(f"moe {moe}: kernels in a graph against {other}: {difference}")
        if rows(w.run("masked"), LOSS) == rows(w.run("gpu"), LOSS):
            failures.append(f"moe {moe}: no target of these steps was masked")
        w.train("parts", "--device", "cuda", *SMALL, *PARTS)
        train_with(w, "parts-late", "SIMT_STREAM", "late", *PARTS)
        difference = first_difference(w.run("parts"), w.run("parts-late"))
        if difference:
            failures.append(f"moe {moe}: two parts, on a late stream: {difference}")
        pairs = list(zip(rows(w.run("gpu"), LOSS), rows(w.run("parts"), LOSS)))
        if len(pairs) != 4 or max(abs(a[1] - b[1]) for a, b in pairs) > 1e-3:
            failures.append(f"moe {moe}: losses of one and of two parts: {pairs}")
        # A GPU without TMA and wgmma. Its dense FFN rounds the inner gradient to bf16, where one of 9.0 does not.
        train_with(w, "ampere", "SIMT_GPU", "80")
        pairs = list(zip(rows(w.run("gpu"), LOSS), rows(w.run("ampere"), LOSS)))
        if len(pairs) != 4 or max(abs(a[1] - b[1]) for a, b in pairs) > 5e-3:
            failures.append(f"moe {moe}: losses with compute capability 9.0 and 8.0: {pairs}")
        os.environ["ASSAY_GPU_PATH"] = "fast"
        refused = w.train("refused", "--device", "cuda", *SMALL, expect=1)
        del os.environ["ASSAY_GPU_PATH"]
        if 'ASSAY_GPU_PATH is "fast"' not in refused.stderr:
            failures.append(f"moe {moe}: ASSAY_GPU_PATH=fast: {refused.stderr}")
        w.train("cpu", "--device", "cpu", *SMALL)
        pairs = list(zip(rows(w.run("gpu"), LOSS), rows(w.run("cpu"), LOSS)))
        worst = max(abs(a[1] - b[1]) for a, b in pairs)
        if len(pairs) != 4 or worst == 0 or worst > 0.02:
            failures.append(f"moe {moe}: {len(pairs)} steps, losses {worst} nats from those of the CPU")
        if '"device": "cuda' not in (w.run("gpu") / "meta.json").read_text():
            failures.append(f"moe {moe}: meta.json does not name the GPU")
# A GPU that another process has for itself is refused; with auto too, or the runs of a matrix would be of both devices.
with Workplace() as w:
    on_gpu = "on cuda: executor" in w.train("auto", "--device", "auto", *SMALL).stderr
    os.environ["SIMT_IN_USE"] = "1"
    for device in ("cuda", "auto") if on_gpu else ("cuda",):
        refused = w.train("in-use", "--device", device, *SMALL, expect=1)
        if "error: the GPU is in use: " not in refused.stderr or "hint: nvidia-smi shows the process" not in refused.stderr:
            failures.append(f"{device}, of a GPU in use: {refused.stderr}")
    del os.environ["SIMT_IN_USE"]

print("\n".join(failures) if failures else f"{ASSAY.name}: ok")
sys.exit(1 if failures else 0)
