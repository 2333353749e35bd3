#!/usr/bin/env python3
"""What a step does to the parameters, seen from outside: the learning rate is that of the schedule at this step, the first
update is as large as AdamW's with it, and masked targets count neither in the loss nor in its divisor."""
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bad_input import shard
from harness import Workplace, check, corpora, rows

VOCABULARY, LR, WARMUP, STEPS, WARMDOWN = 512, 1e-3, 5, 16, 4
CONFIG = f"""
model: {{hidden: 64, layers: 1, heads: 2, ffn: 128, vocab_size: {VOCABULARY}}}
optimizer: {{lr: {LR}, weight_decay: 0, clip: 1e9}}
schedule: {{warmup: {WARMUP}, warmdown: {WARMDOWN}, decay: linear}}
run: {{steps: {STEPS}, batch_tokens: 512, sequence: 64, micro_batch: 4, log_every: 1}}
eval: {{every: {STEPS}, tokens: 512}}
telemetry: {{probe_every: 1}}
precision: {{recipe: fp32}}
data: {{train: [batch.bin], val: [batch.bin]}}
"""


def scalar(run, name):
    return dict(rows(run, f"SELECT step, value FROM scalar WHERE name = '{name}' ORDER BY step"))


def share(step):
    """Of the peak, in the step that is the `step`th."""
    if step <= WARMUP:
        return step / WARMUP
    return min(1.0, (STEPS - step + 1) / WARMDOWN)


def check_schedule(place):
    place.train("run")
    lr = scalar(place.run("run"), "lr")
    wrong = {step: rate for step, rate in lr.items() if not math.isclose(rate, LR * share(step), rel_tol=1e-6)}
    check(len(lr) == STEPS and not wrong, wrong)
    # AdamW's first step is lr in every element with a gradient, and gains are 1 before it.
    first = scalar(place.run("run"), "update_ratio/norms")[1]
    check(math.isclose(first, LR * share(1), rel_tol=0.02), f"the first update of the gains is {first}, not {LR * share(1)}")


def check_masked(place, draw):
    """With logits of 0 every target costs ln V, the masked ones nothing: a quarter of them here."""
    with Workplace() as synth:  # for its tokenizer, whose last id ends a text
        synth.train("run", "--steps", "1", "--set", "schedule={warmup: 1, warmdown: 0}")
        tokenizer = corpora()[0] / "tokenizer.json"
    ends = VOCABULARY - 1
    shard(place.path / "batch.bin", [ends if i % 4 == 0 else draw.randrange(ends) for i in range(513)])
    for name, masked in (("masked", "true"), ("all", "false")):
        place.train(name, "--steps", "1", "--set", "schedule={warmup: 1, warmdown: 0}", "--set", "model.head_init=1e-6",
                    "--set", f"data.mask_eos={masked}", "--set", f"data.tokenizer={tokenizer}")
        loss = scalar(place.run(name), "train_loss_nats")[1]
        check(abs(loss - math.log(VOCABULARY)) < 1e-3, f"{name}: the loss over the counted targets is {loss}, not ln {VOCABULARY}")
        check_validation(place.run(name), 384 if masked == "true" else 512)


def check_validation(run, counted):
    """Bits per byte are of the 384 targets that have bytes; those that end a text may count in the loss."""
    values = {metric: (value, n) for metric, value, n in rows(run, "SELECT metric, value, n FROM eval WHERE step = 1")}
    check(values["loss_nats"][1] == counted, f"{run.name}: {values['loss_nats'][1]} targets count, not {counted}")
    bits, size = values["bits_per_byte"]
    texts = bits * math.log(2) * size / math.log(VOCABULARY)
    check(abs(texts / 384 - 1) < 0.05, f"{run.name}: {bits} bits per byte are those of {texts} targets, not of 384")


def main():
    with Workplace() as place:
        draw = random.Random(7)
        shard(place.path / "batch.bin", [draw.randrange(VOCABULARY) for _ in range(513)])
        place.config.write_text(CONFIG)
        check_schedule(place)
        check_masked(place, draw)
    print("trainer: ok")


main()
