#!/usr/bin/env python3
"""Whole runs on several ranks have the bits of one rank that cuts its batches into as many parts: hashes of all steps,
evaluations, router figures, loads, precision measures, samples, and the checkpoint, once its files are merged.
usage: test_ranks_bits.py [--full]: the mappings of the acceptance table, 60 steps each."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from core_bundle import write_bundle
from harness import Workplace, at_once, check, checkpoints, first_difference, merge, rows, write_corpus

STEPS = 12
SHORT = {"run.steps": STEPS, "run.micro_batch": 2, "schedule.warmup": 2, "schedule.warmdown": 4, "eval.every": 5,
         "telemetry.probe_every": 3, "run.checkpoint_every": 5}


def settings(fields):
    return [word for name, value in {**SHORT, **fields}.items() for word in ("--set", f"{name}={value}")]


def ranks(number):
    return ["--ranks", str(number)] if number > 1 else []


def events(run):
    return rows(run, "SELECT step, kind, detail FROM event WHERE kind NOT IN ('checkpoint', 'resume') AND detail != 'stop_after'"
                     " ORDER BY step, rowid")


def check_same(place, one, other):
    merge(place.run(other))
    # Squared errors of operands are added in the order of micro-batches, on several ranks of ranks.
    difference = first_difference(place.run(one), place.run(other), equal_precision=False)
    check(difference is None, difference)
    check(events(place.run(one)) == events(place.run(other)), f"{other}: {events(place.run(one))} {events(place.run(other))}")
    samples = [place.run(name) / "samples.jsonl" for name in (one, other)]
    check(samples[0].exists() == samples[1].exists(), f"{other}: samples of one run only")
    if samples[0].exists():
        check(samples[0].read_text() == samples[1].read_text(), f"{other}: other samples")


def check_mappings(place, name, fields, mappings=(2, 4), parts=4, more=(), expect=0):
    """Returns what one rank said. more: settings of the runs on several ranks only."""
    fields = {**fields, "parallel.parts": parts}
    one = f"{name}-1"
    done = place.train(one, *settings(fields), expect=expect)
    hashes = rows(place.run(one), "SELECT step FROM scalar WHERE name = 'hash' ORDER BY step")
    check(hashes and hashes[-1][0] == int(checkpoints(place.run(one))[-1].name[5:]), f"{one}: hashes of {hashes}")
    at_once(lambda number: place.train(f"{name}-{number}", *settings(fields), *more, *ranks(number), expect=expect), mappings)
    for number in mappings:
        several = f"{name}-{number}"
        files = sorted(path.name for path in checkpoints(place.run(several))[-1].iterdir())
        check(f"model.{number - 1:05d}.safetensors" in files and "model.safetensors" not in files, f"{several}: {files}")
        check_same(place, one, several)
    return done.stderr


def mixture(place, documents=700):
    """Two sources, and masked targets, of which every part has another number."""
    write_corpus(place, "web", "the cat sat on a mat and saw two old dogs near the river".split(), documents)
    write_corpus(place, "code", "if x then y else z = 1 while true print end".split(), 60)
    return {"data.synth": "null", "data.tokenizer": f"{place.path}/tokenizer.json", "model.vocab_size": 320,
            "data.train": f"['{place.path}/web/*_train_*.bin', '{place.path}/code/*_train_*.bin']",
            "data.val": f"['{place.path}/web/*_val_*.bin', '{place.path}/code/*_val_*.bin']", "data.mixture": "[3, 1]",
            "data.mask_eos": "true"}


def check_dense(place):
    """A mixture with masked targets, landings, two threads a rank."""
    files = {**mixture(place), "contract.kind": "steps", "contract.landings": "[0.25, 1]", "run.keep_best": "true",
             "precision.recipe": "fp32"}
    check_mappings(place, "dense", files, more=["--set", "run.threads=2"])
    landed = rows(place.run("dense-2"), "SELECT step FROM event WHERE kind = 'landing' ORDER BY step")
    check(landed == [(3,), (STEPS,)], landed)
    best = [(place.run(name) / "checkpoints" / "best").resolve().name for name in ("dense-1", "dense-2", "dense-4")]
    check(len(set(best)) == 1, f"the best checkpoints: {best}")


def check_evaluated(place):
    """bf16 state, CORE and samples while training, and a stop in between."""
    write_bundle(place.path / "bundle", absent=())
    core = json.dumps({"bundle": str(place.path / "bundle"), "max_rows": 7, "every": 5})
    fields = {"optimizer.state": "bf16", "precision.recipe": "bf16", "eval.core": core,
              "eval.samples": "{prompts: [Once upon a time, The, A], tokens: 8, every: 4, temperature: 1}"}
    check_mappings(place, "state", fields)
    scores = rows(place.run("state-4"), "SELECT DISTINCT step FROM eval WHERE task = 'core' ORDER BY step")
    check(scores == [(5,), (10,), (STEPS,)], scores)
    fields["parallel.parts"] = 4
    for number, steps in ((2, 3), (4, 4), (1, 2)):
        place.train("moved", *settings(fields), *ranks(number), "--stop-after", str(steps))
    place.train("moved", *settings(fields), *ranks(2))
    check_same(place, "state-1", "moved")


def check_experts(place):
    router = "model.moe.router"
    check_mappings(place, "sequence", {f"{router}.aux": "switch", f"{router}.aux_scope": "sequence", f"{router}.z_alpha": 1e-3,
                                       "optimizer.kind": "muon", "precision.recipe": "fp32"})
    check_mappings(place, "step", {f"{router}.aux_scope": "step", "optimizer.expert_lr": 1e-3, "optimizer.clip": 0.5,
                                   "precision.recipe": "bf16", "run.micro_batch": 1, "run.log_every": 2})
    check_mappings(place, "rows", {"precision.recipe": "mxfp8", "optimizer.kind": "muon"}, mappings=(4,))
    # The gradients of experts and other weights are rounded at random; the last steps are in bf16.
    check_mappings(place, "random", {"precision.recipe": "nvfp4", "precision.bf16_tail": 0.3, "model.moe.first_dense_layers": 1})


def check_target(place):
    losses = rows(place.run("sequence-1"), "SELECT step, value FROM eval WHERE metric = 'loss_nats' AND step > 0 ORDER BY step")
    target = (losses[0][1] + losses[1][1]) / 2
    said = check_mappings(place, "target", {"model.moe.router.aux": "switch", "model.moe.router.aux_scope": "sequence",
                                            "model.moe.router.z_alpha": 1e-3, "optimizer.kind": "muon",
                                            "precision.recipe": "fp32", "run.target_loss": target}, mappings=(2,))
    check("reached the target loss at step 10/12" in said, said)
    done = place.train("target-2", *settings({"parallel.parts": 4, "model.moe.router.aux": "switch", "optimizer.kind": "muon",
                                              "model.moe.router.aux_scope": "sequence", "model.moe.router.z_alpha": 1e-3,
                                              "precision.recipe": "fp32", "run.target_loss": target}), *ranks(4))
    check("reached the target loss at step 10/12" in done.stderr, f"and it stays so: {done.stderr}")


def check_guards(place):
    """Routers that collapse, and operands that are not finite, end the run on all ranks alike."""
    rule = "{measure: max_load_norm, at_least: 0.5, layers: all, for: 6}"
    fields = {"telemetry.collapse_stop": rule, "precision.recipe": "bf16"}
    check_mappings(place, "collapsed", fields, mappings=(2, 4), expect=3)
    check(checkpoints(place.run("collapsed-4"))[-1].name == "step-00000006", checkpoints(place.run("collapsed-4")))
    done = place.train("collapsed-4", *settings({**fields, "parallel.parts": 4}), *ranks(2), expect=3)
    check("step 7/" not in done.stderr and done.stderr.count("error:") == 1, f"it stays stopped: {done.stderr}")
    # No checkpoint: what such a step leaves is useless.
    fields = {"precision.recipe": "nvfp4", "optimizer.lr": 1e37, "optimizer.weight_decay": 0, "schedule.warmup": 0,
              "parallel.parts": 4, "run.checkpoint_every": 0}
    wild = at_once(lambda number: place.train(f"wild-{number}", *settings(fields), *ranks(number), expect=3), (1, 2, 4))
    for number, done in zip((1, 2, 4), wild):
        check(done.stderr.count("error:") == 1 and not checkpoints(place.run(f"wild-{number}")), done.stderr)
    ends = [events(place.run(f"wild-{number}")) for number in (1, 2, 4)]
    check(ends[0] == ends[1] == ends[2] and "its largest magnitude is" in ends[0][0][2] and len(ends[0]) == 2, ends)


def check_other_parts(place):
    """Three and six ranks, and the parts of a run whose configuration does not name them."""
    six = {"run.batch_tokens": 768, "precision.recipe": "bf16"}
    check_mappings(place, "six", six, mappings=(3, 6), parts=6)
    place.train("none", *settings(six), *ranks(3), "--stop-after", "5")
    check("parallel:\n  parts: 3\n" in (place.run("none") / "config.yaml").read_text(), "one part for each rank")
    place.train("none", *settings(six))  # on one rank
    check("parallel:\n  parts: 3\n" in (place.run("none") / "config.yaml").read_text(), "and a resumed run keeps them")
    place.train("three", *settings({**six, "parallel.parts": 3}))
    difference = first_difference(place.run("three"), place.run("none"))
    check(difference is None, difference)
    hashes = [rows(place.run(name), "SELECT value FROM scalar WHERE name = 'hash'") for name in ("three", "six-1")]
    check(hashes[0] != hashes[1], "other parts are other roundings")


# (recipe, (ranks, expert_ranks) each). Recipes that quantise the experts share none.
DENSE = (("fp32", ((2, 1), (4, 1))), ("bf16", ((2, 1), (4, 1))), ("fp8_block", ((2, 1), (4, 1))))
SPARSE = (("fp32", ((2, 1), (4, 1), (4, 2), (4, 4))), ("bf16", ((2, 1), (4, 1), (4, 2), (4, 4))), ("fp8_block", ((2, 1), (4, 1))))


def check_full(place, model, recipes, fields):
    """Four parts of one micro-batch each, over whole schedules."""
    done = 0
    for recipe, mappings in recipes:
        common = ["--set", f"precision.recipe={recipe}", "--set", "parallel.parts=4", "--set", "run.micro_batch=4"]
        if recipe == "fp8_block":  # blocks of 128
            fields = {**fields, "model.hidden": 128}
        common += [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
        one = f"{model}-{recipe}"
        place.train(one, *common, "--set", "run.threads=1")
        for number, shared in mappings:
            name = f"{one}-{number}-{shared}"
            place.train(name, *common, "--set", f"parallel.expert_ranks={shared}", *ranks(number))
            hashes = rows(place.run(name), "SELECT count(DISTINCT step), max(step) FROM scalar WHERE name = 'hash'")
            check(hashes == [(60, 60)], f"{name}: hashes of {hashes}")
            check_same(place, one, name)
            done += 1
            print(f"{model}, {recipe}, {number} ranks, {shared} expert ranks: 60 of 60 hashes, evaluations, routers and the merged "
                  "checkpoint equal one rank's", flush=True)
    return done


def full():
    with Workplace() as place:
        done = check_full(place, "dense", DENSE, mixture(place, 2000))
    with Workplace(moe=True) as place:  # shares of the experts are whole pieces of 16384 elements
        done += check_full(place, "moe", SPARSE, {"model.moe.experts": 8, "model.moe.expert_ffn": 128, "parallel.expert_rows": 4})
    print(f"ranks_bits: {done} mappings over 60 steps")


def main():
    if sys.argv[1:] == ["--full"]:
        full()
        return
    with Workplace() as place:
        check_dense(place)
        check_evaluated(place)
    with Workplace(moe=True) as place:
        check_experts(place)
        check_target(place)
        check_guards(place)
        check_other_parts(place)
    print("ranks_bits: ok")


main()
