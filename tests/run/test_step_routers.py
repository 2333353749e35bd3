#!/usr/bin/env python3
"""What a step does with the routers, and when its formats change, seen from outside: the bias follows the schedule, the
routers' losses weigh as much in one micro-batch as in four, each layer chooses by a bias of its own, and the steps of a
recipe are as many as the configuration says."""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BATCH_TOKENS, Workplace, assay, check, checkpoints, edit_tensors, rows

ROUTER = "model.moe.router."
PLAIN = ["--set", "precision.recipe=fp32", "--set", "run.log_every=1", "--set", "eval.every=100"]


def scalar(run, name):
    return dict(rows(run, f"SELECT step, value FROM scalar WHERE name = '{name}' ORDER BY step"))


def check_bias(place):
    """Loads are never equal, so the sign rule moves some up and some down by the rate: a range of at most twice of it."""
    place.train("bias", "--set", "run.steps=4", "--set", "schedule={warmup: 4, warmdown: 0}", "--set", f"{ROUTER}bias_rate=1e-2",
                "--set", f"{ROUTER}bias_follows_lr=true", *PLAIN)
    ranges = rows(place.run("bias"), "SELECT bias_range FROM router_layer WHERE step = 1")
    check(len(ranges) == 2 and all(1e-2 / 4 * 0.99 < r <= 2e-2 / 4 * 1.01 for r, in ranges), ranges)


def check_losses(place):
    """mean logsumexp^2 is the same mean over tokens, whatever the micro-batches."""
    norms = []
    for name, micro in (("one", 16), ("four", 4)):
        place.train(name, "--set", "run.steps=1", "--set", "schedule={warmup: 1, warmdown: 0}", "--set", f"run.micro_batch={micro}",
                    "--set", f"{ROUTER}z_alpha=3", "--set", f"{ROUTER}aux=none", *PLAIN)
        norms.append(scalar(place.run(name), "gradient_norm")[1])
    place.train("without", "--set", "run.steps=1", "--set", "schedule={warmup: 1, warmdown: 0}", "--set", f"{ROUTER}aux=none", *PLAIN)
    plain = scalar(place.run("without"), "gradient_norm")[1]
    check(math.isclose(*norms, rel_tol=1e-3), f"the gradient's norm with one micro-batch and with four: {norms}")
    check(norms[0] > 1.1 * plain, f"the z-loss is to be seen in the norm: {norms[0]}, without it {plain}")


def check_own_bias(place):
    """After biases are planted that each make another expert the choice of every token."""
    train = ["own", "--set", "run.steps=4", "--set", "schedule={warmup: 1, warmdown: 0}", "--set", "run.checkpoint_every=2", *PLAIN]
    place.train(*train, "--stop-after", "2")

    def plant(tensors):
        for layer, expert in ((0, 1), (1, 3)):
            values, _ = tensors[f"blocks.{layer}.moe.bias"]
            values[:] = [15.0 if e == expert else 0.0 for e in range(len(values))]

    edit_tensors(checkpoints(place.run("own"))[-1], plant)
    place.train(*train)
    done = assay("telemetry", place.run("own"), "--table", "expert_loads", "--jsonl")
    loads = [json.loads(line) for line in done.stdout.splitlines()]
    for layer, expert in ((0, 1), (1, 3)):
        found = [row["tokens"] for row in loads if row["step"] == 3 and row["layer"] == layer]
        check(found[expert] == max(found) == BATCH_TOKENS, f"layer {layer}: every token chooses expert {expert}: {found}")


def check_phase(place):
    """Operands are measured in the steps of the recipe: of four steps the first two."""
    place.train("phase", "--set", "run.steps=4", "--set", "schedule={warmup: 1, warmdown: 0}", "--set", "precision.recipe=nvfp4",
                "--set", "precision.bf16_tail=0.5", "--set", "precision.bf16_last_layers=0", "--set", "telemetry.probe_every=1",
                "--set", "run.log_every=1", "--set", "eval.every=100")
    steps = [step for step, in rows(place.run("phase"), "SELECT DISTINCT step FROM precision ORDER BY step")]
    check(steps == [1, 2], f"steps in nvfp4: {steps}")


def main():
    with Workplace(moe=True) as place:
        check_bias(place)
        check_losses(place)
        check_own_bias(place)
        check_phase(place)
    print("step of routers: ok")


main()
