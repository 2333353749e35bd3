#!/usr/bin/env python3
"""optimizer.state bf16 in whole runs: a killed run resumes to the same bits, the checkpoint has bf16
matrices, eval and export read it, and neither state continues a run of the other."""
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, check_resumes, checkpoints, edit_tensors
from refusals import is_refusal

STATE = ("--set", "optimizer.state=bf16", "--set", "precision.recipe=bf16")


def header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def check_types(place):
    folder = checkpoints(place.run("whole"))[-1]
    for name in ("model.safetensors", "optimizer.safetensors"):
        for tensor, entry in header(folder / name).items():
            if tensor == "__metadata__":
                continue
            want = "BF16" if len(entry["shape"]) >= 2 else "F32"
            check(entry["dtype"] == want, f"{tensor} is {entry['dtype']}, not {want}")


def check_read(place):
    done = assay("eval", place.run("whole"))
    check(done.returncode == 0, f"assay eval: {done.stderr}")
    out = place.path / "exported"
    done = assay("export", place.run("whole"), "--out", out)
    check(done.returncode == 0, f"assay export: {done.stderr}")
    ours = header(checkpoints(place.run("whole"))[-1] / "model.safetensors")
    theirs = header(out / "model.safetensors")
    shape = ours["embed.weight"]["shape"]
    check(theirs["model.embed_tokens.weight"]["shape"] == shape, f"the export has the embedding {shape}")


def check_refused(place):
    done = place.train("whole", "--set", "optimizer.state=fp32", "--set", "precision.recipe=bf16", expect=1)
    check(is_refusal(done, "optimizer.state: bf16 -> fp32"), f"bf16 to fp32: {done.stderr}")
    place.train("wide", "--set", "precision.recipe=bf16", "--stop-after", "3")
    done = place.train("wide", *STATE, expect=1)
    check(is_refusal(done, "optimizer.state: fp32 -> bf16"), f"fp32 to bf16: {done.stderr}")
    done = place.train("no", "--set", "optimizer.state=bf16", "--set", "precision.recipe=fp32", expect=1)
    check("error: optimizer.state is bf16, but precision.recipe is fp32" in done.stderr, f"recipe fp32: {done.stderr}")
    check("hint: choose precision.recipe: bf16; only a new run can take optimizer.state: fp32 instead" in done.stderr, f"its hint: {done.stderr}")


def check_not_finite(place):
    """What is advised where finite weights overflow: never fp32, which bf16 masters cannot be computed with in."""
    place.train("large", *STATE, "--steps", "1")

    def edit(tensors):
        values, _ = tensors["final.norm"]
        values[:] = [3e38] * len(values)
    edit_tensors(checkpoints(place.run("large"))[-1], edit)
    sound = "hint: an earlier checkpoint of the run may be sound"
    for sets, recipe, hint in (((), "bf16", sound),
                               (("precision.recipe=mxfp8",), "mxfp8", f"{sound}, or this one with --set precision.recipe=bf16"),
                               (("precision.override=[fprop=mxfp8]",), "bf16",
                                f"{sound}, or this one with --set precision.recipe=bf16 --set 'precision.override=[]'")):
        changes = [word for one in sets for word in ("--set", one)]
        done = assay("eval", place.run("large"), "--tasks", "loss", "--json", *changes)
        check(done.returncode == 0 and json.loads(done.stdout)["val_loss_nats"] is None, f"{sets}: {done}")
        told = done.stderr.splitlines()[-2:]
        check(told == [f"warning: the validation loss is NaN or infinite in {recipe}", hint], f"{sets}: {done.stderr}")


def main():
    with Workplace(moe=True) as place:
        place.train("whole", *STATE)
        check_types(place)
        check_resumes(place, *STATE)
        check_refused(place)
    with Workplace() as place:
        place.train("whole", *STATE)
        check_read(place)
        check_not_finite(place)
    print("bf16 state: ok")


main()
