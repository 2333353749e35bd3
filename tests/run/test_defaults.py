#!/usr/bin/env python3
"""What a first configuration of one's own gets from the defaults: balanced routers, a first loss that
the log explains, a schedule that fits, and warnings where it asks for something it may not mean."""
import json
import math
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, rows

OWN = """
data: {{cache: {cache}, synth: {{train_tokens: 400000, val_tokens: 20000, vocab_size: 512}}}}
model: {{hidden: 128, layers: 2, vocab_size: 512, moe: {{experts: 8, top_k: 2}}}}
run: {{steps: 300, batch_tokens: 1024, sequence: 128}}
eval: {{tokens: 8192}}
"""


def own_config(place, more=""):
    cache = next(line.split("cache: ")[1] for line in place.config.read_text().splitlines() if "cache: " in line)
    place.config.write_text(OWN.format(cache=cache) + more)


def check_balanced(place):
    done = place.train("own", "--json")
    check("warning" not in done.stderr, f"no warning: {done.stderr}")
    check(re.search(r"\ntraining data: [\d,]+ tokens, 0\.\d\d passes in 300 steps\n", done.stderr),
          f"passes: {done.stderr[:1500]}")
    check("routers: healthy" in done.stderr, f"healthy by default: {done.stderr[-600:]}")
    first = rows(place.run("own"), "SELECT value FROM eval WHERE step = 0 AND task = 'val' AND metric = 'loss_nats'")
    check(len(first) == 1 and abs(first[0][0] - math.log(512) - 0.5) < 0.1, f"the first loss: {first}")
    check("ln V = 6.238 nats; the first logits have a standard deviation of 1 (model.head_init)" in done.stderr, done.stderr)
    verdict = assay("router", place.run("own")).stdout
    check("verdict: healthy" in verdict, f"one word everywhere: {verdict}")


def check_unbalanced(place):
    done = place.train("none", "--steps", "10", "--set", "model.moe.router.bias_rate=0", "--set", "model.moe.router.aux=none",
                       "--set", "model.moe.router.bias_steps=7")
    check("warning: the routers are not balanced" in done.stderr, done.stderr)
    check("model.moe.router.bias_steps = 7 is not used: bias_rate is 0" in done.stderr, done.stderr)
    check("routers: too early" in done.stderr, done.stderr)
    check("window = 100 logged steps, and the run logs at most 10 (--set telemetry.window=10;" in done.stderr, done.stderr)
    verdict = assay("router", place.run("none")).stdout
    check("10 logged steps, fewer than W = 100 (" in verdict and "with a smaller window" in verdict, verdict)
    done = place.train("dense", "--steps", "3", "--set", "model.moe.first_dense_layers=2", "--set", f"run.threads={os.cpu_count() + 1}")
    check("no block has experts" in done.stderr and f"run.threads = {os.cpu_count() + 1} on" in done.stderr, done.stderr)


def check_repeated(place):
    planned = place.train("planned", "--plan", "--set", "run.steps=3000").stdout
    check(re.search(r"\ntraining data: [\d,]+ tokens, (\d\.\d\d) passes in 3000 steps\n"
                    r"warning: \1 passes over the training data: about 4 ", planned), planned)
    few = place.train("planned", "--plan", "--set", "run.steps=1000").stdout
    check("passes in 1000 steps" in few and "warning" not in few, few)


def check_disk(place):
    """What checkpoints will take: known before, warned of where the disk has less, and what they took."""
    plan = json.loads(place.train("disk", "--plan", "--json").stdout)["disk"]
    check(plan["most_checkpoints"] == plan["kept_checkpoints"] + 1 == 3 and plan["free_bytes"] > 0, plan)
    said = place.train("disk", "--plan").stdout
    check(f"\ncheckpoints: {plan['checkpoint_bytes'] / 2**20:.1f} MiB each, at most 3 at a time: " in said, said)
    done = place.train("disk", "--stop-after", "1")
    check("MiB free" not in done.stderr, done.stderr)
    tensors = sum(file.stat().st_size for file in place.run("disk").glob("checkpoints/step-*/*.safetensors"))
    check(0 <= tensors - plan["checkpoint_bytes"] < 64 * 1024, f"{tensors} bytes of files, planned {plan}")
    many = ("--set", "run.steps=2000000000", "--set", "run.milestone_every=1", "--stop-after", "1")
    done = place.train("full", *many)
    check(re.search(r"warning: the disk of \S+ has [\d.]+ MiB free, and checkpoints may take [\d.]+ MiB more: .* at most "
                    r"2000000003 at a time", done.stderr), done.stderr)


def check_wild(place):
    done = place.train("wild", "--steps", "20", "--set", "optimizer.lr=3")
    check(re.search(r"warning: val loss [\d.]+ is above ln V = 6\.24 nats: .*a smaller optimizer\.lr, which is 3,",
                    done.stderr), done.stderr)
    for steps in ("1", "20"):
        done = place.train(f"tame-{steps}", "--steps", steps)
        check("is above ln V" not in done.stderr, f"{steps} steps: {done.stderr}")


def check_short(place):
    place.config.write_text(place.config.read_text() + "schedule: {warmup: 30, warmdown: 90}\n")
    done = place.train("short", "--steps", "20")
    check("--steps 20 shortens the schedule in proportion: schedule.warmup=2, schedule.warmdown=6" in done.stderr, done.stderr)
    check("finished step 20/20" in done.stderr, done.stderr)
    done = place.train("shortest", "--steps", "1")
    check("schedule.warmup=1, schedule.warmdown=0" in done.stderr, done.stderr)
    done = place.train("given", "--steps", "10", "--set", "schedule.warmup=8")
    check("schedule.warmdown=2" in done.stderr, done.stderr)
    done = place.train("kept", "--steps", "20", "--set", "schedule.warmup=20", "--set", "schedule.warmdown=0")
    check("shortens" not in done.stderr, done.stderr)
    done = place.train("no-warmup", "--steps", "6", "--set", "schedule.warmup=0", "--set", "schedule.warmup_fraction=0")
    check("in proportion: schedule.warmdown=2 (" in done.stderr and "finished step 6/6" in done.stderr, done.stderr)
    done = place.train("cosine", "--steps", "10", "--set", "schedule.warmup=2", "--set", "schedule.warmdown=0", "--set",
                       "schedule.decay=cosine")
    rates = [value for (value,) in rows(place.run("cosine"), "SELECT value FROM scalar WHERE name = 'lr' ORDER BY step")]
    check(rates[1:] == sorted(rates[1:], reverse=True) and rates[-1] == 0, f"a cosine decays to the end: {rates}")


def main():
    with Workplace() as place:
        own_config(place)
        check_balanced(place)
        check_unbalanced(place)
        check_repeated(place)
        check_disk(place)
        check_wild(place)
        check_short(place)
    print("defaults: ok")


main()
