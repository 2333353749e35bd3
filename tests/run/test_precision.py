#!/usr/bin/env python3
"""Runs in quantised recipes. The errors of their formats are recorded; a non-finite operand ends
the run with its name, but only warns in an evaluation unless it is the last; a stopped and restarted run has the same
bits, also across the switch to bf16 at its end; another recipe resumes from the fp32 masters with a
message; a matrix lists formats that its widths do not allow."""
import contextlib
import json
import pathlib
import re
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints, first_difference, plant_infinity, rows

# Allowed relative RMS error of activations; for normal numbers it is 2.65%, 2.65%, 9.5%, 11.5%.
ERRORS = {"fp8_tensor": (0.02, 0.04), "mxfp8": (0.02, 0.04), "nvfp4": (0.07, 0.12), "mxfp4_nmoe": (0.09, 0.14)}


def recipe(name, *more):
    return ["--set", f"precision.recipe={name}", *more]


def check_resume(place, name, *more):
    whole, stopped = f"{name}-whole", f"{name}-stopped"
    done = place.train(whole, *recipe(name, *more))
    check(f"recipe {name}, on" in done.stderr and "experts        fprop" in done.stderr, f"prints its recipe: {done.stderr}")
    meta = json.loads((place.run(whole) / "meta.json").read_text())
    check(meta["recipe"] == name, f"records its recipe: {meta['recipe']}")
    asked = assay("precision", place.run(whole), "--json")
    losses = json.loads(asked.stdout)["losses"]
    check(all(0 <= l["flushed"] < 0.5 and 0 < l["error"] < 0.3 and l["tensors"] > 0 for l in losses), asked.stdout)
    check(all(0 <= l["zero_blocks"] <= l["blocks"] and l["low_scales"] + l["high_scales"] <= l["blocks"] and
              0 < l["scale_max"] < 1e9 and l["scale_min"] <= l["scale_max"] for l in losses), asked.stdout)
    check(all((l["flips"] is not None) == l["operand"].endswith(".weight") and (l["flips"] or 0) < 1 for l in losses) and
          any(l["flips"] for l in losses), asked.stdout)
    inputs = [l["error"] for l in losses if l["role"] == "experts" and l["operand"] == "fprop.input"]
    low, high = ERRORS[name]
    check(len(inputs) == 1 and low < inputs[0] < high, f"{name}: the error of its format: {inputs}")
    for after in (7, 26):  # within the recipe; after the switch to bf16, if there is one
        place.train(stopped, *recipe(name, *more), "--stop-after", str(after))
    place.train(stopped, *recipe(name, *more))
    difference = first_difference(place.run(whole), place.run(stopped))
    check(difference is None, f"{name}: {difference}")


def check_not_finite(place):
    """A learning rate that overflows ends the run with the operand's name; the previous step's
    checkpoint is complete."""
    for name in ("fp8_tensor", "nvfp4"):
        run = f"{name}-overflow"
        done = place.train(run, *recipe(name, "--set", "optimizer.lr=1e37", "--set", "schedule.warmup=0", "--set", "run.checkpoint_every=1",
                                        "--set", "optimizer.weight_decay=0", "--set", "run.log_every=7"), expect=3)
        told = re.search(r"error: step (\d+): (blocks\.\S+), (\w+\.\w+) \((\w+), block (\d), (\S+)\): its largest magnitude is -?(inf|nan)\n"
                         r"hint: .*(the checkpoint \S+ is kept|there is no checkpoint yet)", done.stderr)
        check(told, f"{name}: {done.stderr}")
        step, weight, layer = int(told[1]), told[2], told[5]
        check(weight.startswith(f"blocks.{layer}."), told[0])
        (detail,), = rows(place.run(run), "SELECT detail FROM event WHERE kind = 'non_finite'")
        check(f"; {weight}, {told[3]} (" in detail, detail)
        newest = checkpoints(place.run(run))
        check(int(newest[-1].name[5:]) == step - 1 if newest else step == 1, f"{step}: {newest}")
        if newest:
            again = place.train(run, *recipe(name, "--set", "optimizer.lr=1e37", "--set", "schedule.warmup=0", "--set", "run.checkpoint_every=1",
                                             "--set", "optimizer.weight_decay=0", "--set", "run.log_every=7"), expect=3)
            check(f"resumes after step {step - 1}" in again.stderr and told[0] in again.stderr, f"a restart ends the same way: {again.stderr}")


def check_not_finite_evaluation(place):
    """An operand that overflows on validation data only: a warning names it, and training continues
    to the same bits. After the last step there is no loss, so the run is not finished; its checkpoint is kept."""
    place.train("corpus", "--stop-after", "1")
    unseen, data = 515, {}  # a token that the tokenizer does not have
    for path in json.loads((place.run("corpus") / "meta.json").read_text())["data_sha256"]:
        kind = next((kind for kind in ("train", "val") if f"_{kind}_" in path), None)
        if kind is None:
            continue
        shard = bytearray(pathlib.Path(path).read_bytes())
        if kind == "val":
            shard[1024 + 2 * 5:1024 + 2 * 6] = unseen.to_bytes(2, "little")
        data[kind] = place.path / f"{kind}.bin"
        data[kind].write_bytes(shard)
    more = ["--set", "data.synth=null", "--set", f"data.train=[{data['train']}]", "--set", f"data.val=[{data['val']}]",
            "--set", "model.vocab_size=520"]
    for name in ("mxfp8", "fp8_tensor"):
        for run in ("sound", "planted"):
            place.train(f"{name}-{run}", *recipe(name, *more), "--stop-after", "30")
        planted = checkpoints(place.run(f"{name}-planted"))[-1]
        plant_infinity(planted, unseen)
        first = f"element {unseen * 64} of embed.weight is inf"
        asked = assay("eval", place.run(f"{name}-planted"))
        check(asked.returncode == 1 and f"error: {planted}/model.safetensors: {first}\nhint: the run overflowed" in asked.stderr,
              f"a model that is not finite is not evaluated: {asked}")
        place.train(f"{name}-sound", *recipe(name, *more))
        done = place.train(f"{name}-planted", *recipe(name, *more), expect=3)
        check(f"warning: the checkpoint {planted} is not finite: {first}; " in done.stderr, f"resuming warns with the place: {done.stderr}")
        overflow = r"blocks\.0\.attn\.qkv, fprop\.input \(attention, block 0, \S+\): its largest magnitude is nan"
        for step, after in ((40, "; training continues"), (60, "")):
            check(re.search(rf"warning: evaluation val at step {step} is not finite: {overflow}{after}\n", done.stderr), done.stderr)
        end = rf"error: step 60: the validation loss is NaN or infinite: {overflow}\nhint: .*step-00000060 is kept"
        check(re.search(end, done.stderr), done.stderr)
        check(losses(place, f"{name}-sound") == losses(place, f"{name}-planted"), "training has the same losses")
        told = rows(place.run(f"{name}-planted"), "SELECT step, detail FROM event WHERE kind = 'not_finite_evaluation'")
        check([step for step, _ in told] == [40, 60] and all(text.startswith("val: blocks.0.") for _, text in told), told)
        values = rows(place.run(f"{name}-planted"), "SELECT step, value FROM eval WHERE metric = 'loss_nats' AND step > 0")
        check([value is None for _, value in values] == [False, True, True], values)
        again = place.train(f"{name}-planted", *recipe(name, *more), expect=3)
        check("there is nothing left to train" in again.stderr and "the validation loss is NaN or infinite" in again.stderr, again.stderr)


def check_not_finite_end(place):
    """The last update overflows the weights: only the validation after it can see that."""
    wild = ["--set", "precision.recipe=fp32", "--set", "optimizer.lr=1e38", "--set", "optimizer.clip=0", "--set",
            "schedule={warmup: 0, warmdown: 0}"]
    for again in range(2):
        done = place.train("end", *wild, "--set", "run.steps=1", "--json", expect=3)
        check("eval 1/1 val loss_nats nan" in done.stderr and "-nan" not in done.stderr, done.stderr)
        check("stopped at step 1/1, NaN or infinite" in done.stderr and
              "error: step 1: the validation loss is NaN or infinite\nhint: " in done.stderr, done.stderr)
        result = json.loads(done.stdout)
        check(result["end"] == "non_finite" and result["not_finite"] == "the validation loss is NaN or infinite", result)
        check(checkpoints(place.run("end")) == [], "no checkpoint is saved")
        told = rows(place.run("end"), "SELECT step, kind FROM event WHERE kind IN ('non_finite', 'landing', 'checkpoint')")
        check(set(told) == {(1, "non_finite")}, told)
    rerun = assay("receipt", "verify", place.run("end"), "--rerun", "1")
    check(rerun.returncode == 0 and "bit for bit" in rerun.stdout, f"a rerun ends the same way: {rerun}")
    # A run that an older version called finished is not finished either.
    place.train("old", "--set", "run.steps=2", "--set", "schedule={warmup: 0, warmdown: 0}")
    with contextlib.closing(sqlite3.connect(place.run("old") / "telemetry.db")) as db, db:
        db.execute("UPDATE eval SET value = NULL WHERE step = 2")
    done = place.train("old", "--set", "run.steps=2", "--set", "schedule={warmup: 0, warmdown: 0}", expect=3)
    check("error: step 2: the validation loss is NaN or infinite" in done.stderr and "step-00000002 is kept" in done.stderr, done.stderr)


def losses(place, name):
    return dict(rows(place.run(name), "SELECT step, value FROM scalar WHERE name = 'train_loss_nats'"))


def check_tail(place):
    check_resume(place, "nvfp4", "--set", "precision.bf16_tail=0.5")
    place.train("no-tail", *recipe("nvfp4"))
    tail, whole = losses(place, "nvfp4-whole"), losses(place, "no-tail")
    check(all(tail[s] == whole[s] for s in range(1, 31)), "the first half is the recipe's")
    check(all(tail[s] != whole[s] for s in range(32, 61)), "the second half is not")


def check_other_recipe(place):
    place.train("changed", *recipe("bf16"), "--stop-after", "20")
    done = place.train("changed", *recipe("mxfp8", "--set", "precision.override=[experts.wgrad=bf16]"))
    check("precision: the checkpoint was trained in bf16, the run continues in mxfp8 with experts.wgrad=bf16; "
          "the weights are quantised again from the checkpoint's masters" in done.stderr,
          f"reports that the recipe changed: {done.stderr}")
    check("resumes after step 20" in done.stderr, done.stderr)
    again = place.train("changed", *recipe("mxfp8", "--set", "precision.override=[experts.wgrad=bf16]"))
    check("was trained in" not in again.stderr, f"reports the change only once: {again.stderr}")
    # No step is left: another recipe would only be written over the one in which the run was trained.
    files = [place.run("changed") / name for name in ("config.yaml", "meta.json", "receipt.json")]
    before = [file.read_bytes() for file in files]
    refused = place.train("changed", *recipe("bf16"), expect=1).stderr.splitlines()
    check("changed has made its 60 steps in mxfp8 with experts.wgrad=bf16: there is none left to make in bf16" in refused[-2] and
          refused[-1].startswith("hint: give the precision that it was trained in (--set precision.recipe=mxfp8; "), refused)
    check(before == [file.read_bytes() for file in files], "a refused recipe changes no file")


def main():
    with Workplace(moe=True) as place:
        for name in ERRORS:
            if name != "nvfp4":
                check_resume(place, name)
        check_tail(place)
        check_other_recipe(place)
        check_not_finite(place)
        check_not_finite_evaluation(place)
        check_not_finite_end(place)
        done = place.train("plain", *recipe("bf16", "--set", "precision.override=[experts.fprop=bf16, dense_ffn.wgrad=bf16]"))
        check("warning: precision.override 'dense_ffn.wgrad=bf16' has no effect: the model has no such products" in done.stderr and
              done.stderr.count("has no effect") == 1, done.stderr)
        asked = assay("precision", place.run("plain"))
        check(asked.returncode == 1 and "has no measures of number formats" in asked.stderr, asked.stderr)
        done = place.train("native", *recipe("mxfp8", "--set", "precision.products=native"))
        check("precision.products: native: a CPU has native products for none of these formats" in done.stderr, done.stderr)
        check(losses(place, "native") == losses(place, "mxfp8-whole"), "and simulates them, with the same losses")
        done = place.train("narrow", *recipe("fp8_block"), expect=1)
        check("error: attention.fprop in fp8_1x128 needs blocks of 128 along model.hidden = 64" in done.stderr and
              "hint: make it a multiple of 128, or keep that product in bf16" in done.stderr, done.stderr)
        check(not place.run("narrow").exists(), "and leaves nothing behind")
    print("precision: ok")


main()
