#!/usr/bin/env python3
"""A training step of llm.c's CPU trainer (train_gpt2.c, fp32) and of Assay, in turn on this machine.

llm.c trains GPT-2, 4 sequences of 64 tokens a step; its weights come from a file, which this script writes with random
numbers. Assay trains its own dense model of the same width, depth, heads and vocabulary, whose head is the embedding as
in GPT-2. It has SwiGLU of 8/3 of the width in place of GELU of 4, so the products have as many multiplications, and
neither biases nor vectors of positions: 123.6 million parameters beside 123.9 of llm.c. The source of llm.c is not part
of this repository: git clone it, and name its folder."""
import argparse
import array
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from cores import usable_cores
from in_turn import opened

BATCH, SEQUENCE = 4, 64  # fixed in llm.c's main()
MODEL_MAGIC, MODEL_VERSION, TOKENS_MAGIC = 20240326, 3, 20240520
# Vocabulary, layers, heads, width.
SHAPES = {"gpt2": (50257, 12, 12, 768), "small": (8192, 6, 8, 256)}
LONGEST = 256  # positions of the written model


def header(*numbers):
    return array.array("i", list(numbers) + [0] * (256 - len(numbers)))


def padded(vocab):
    return -(-vocab // 128) * 128


def their_parameters(shape):
    """Those that write_weights writes."""
    vocab, layers, _, width = shape
    return (padded(vocab) + LONGEST) * width + layers * (12 * width * width + 13 * width) + 2 * width


def write_weights(path, shape):
    """A file as llm.c's train_gpt2.py writes: tensors in the order of its struct ParameterTensors. Norms have weight 1,
    biases 0, the others numbers of standard deviation 0.02, the same hundred thousand over and over."""
    vocab, layers, heads, width = shape
    chance = random.Random(1)
    drawn = array.array("f", (chance.gauss(0, 0.02) for _ in range(100003)))

    def weights(count):
        for begin in range(0, count, len(drawn)):
            drawn[:min(len(drawn), count - begin)].tofile(file)

    def same(value, count):
        (array.array("f", [value]) * count).tofile(file)

    with path.open("wb") as file:
        header(MODEL_MAGIC, MODEL_VERSION, LONGEST, vocab, layers, heads, width, padded(vocab)).tofile(file)
        weights(padded(vocab) * width)
        weights(LONGEST * width)
        for outputs, inputs in ((0, 0), (3 * width, width), (width, width), (0, 0), (4 * width, width), (width, 4 * width)):
            if outputs == 0:  # a norm
                same(1, layers * width)
                same(0, layers * width)
            else:
                weights(layers * outputs * inputs)
                same(0, layers * outputs)
        same(1, width)
        same(0, width)


def write_tokens(path, vocab):
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 64 * BATCH * SEQUENCE + 1
    chance = random.Random(2)
    with path.open("wb") as file:
        header(TOKENS_MAGIC, 1, count).tofile(file)
        array.array("H", (chance.randrange(vocab) for _ in range(count))).tofile(file)


def build(source, folder):
    """A copy of the source, built by its own Makefile."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git"))
    done = subprocess.run(["make", "-C", str(folder), "train_gpt2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"error: llm.c was not built: {done.stdout.strip().splitlines()[-1]}\nhint: make -C {source} train_gpt2")


def their_step_ms(folder, steps, threads):
    """The median of `steps` steps, without the first."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    times = []
    with subprocess.Popen(["./train_gpt2"], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment) as run:
        for line in run.stdout:
            if found := re.search(r"step \d+: train loss .*\(took ([0-9.]+) ms\)", line):
                times.append(float(found[1]))
                if len(times) > steps:
                    run.kill()
                    break
    if len(times) <= steps:
        sys.exit(f"error: llm.c ended after {len(times)} steps\nhint: run it by hand in a copy of its folder")
    return statistics.median(times[1:])


def our_step(shape, bench, recipe, steps, threads):
    vocab, layers, heads, width = shape
    ffn = round(8 * width / 3 / 16) * 16
    command = [str(bench), "--json", "--recipe", recipe, "--steps", str(steps), "--layers", str(layers), "--hidden", str(width),
               "--heads", str(heads), "--ffn", str(ffn), "--vocab", str(vocab), "--tie", "--sequence", str(SEQUENCE),
               "--batch", str(BATCH), "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"error: exit {done.returncode}: {' '.join(command)}\nhint: run it by hand")
    return json.loads(done.stdout.strip().splitlines()[-1])


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", type=pathlib.Path, help="a clone of llm.c")
    p.add_argument("--model", choices=SHAPES, default="gpt2",
                   help="GPT-2 with 124 million parameters, or 6.9 million (small)")
    p.add_argument("--rounds", type=int, default=3, help="how often each is measured, in turn (default: 3)")
    p.add_argument("--steps", type=int, default=5, help="measured steps each time (default: 5)")
    p.add_argument("--recipe", nargs="+", default=["fp32", "auto"], help="Assay's recipes (default: fp32 auto)")
    p.add_argument("--bench", type=pathlib.Path, default=ROOT / "build" / "bench_step", help="Assay's program")
    p.add_argument("--out", type=pathlib.Path, help="add every measurement to this file, a line of JSON each")
    a = p.parse_args()
    if min(a.rounds, a.steps) < 1:
        p.error("--rounds and --steps are at least 1")
    if not (a.source / "train_gpt2.c").is_file():
        p.error(f"{a.source} has no train_gpt2.c")
    if not a.bench.is_file():
        p.error(f"{a.bench} is not there: cmake --preset release && cmake --build build --target bench_step")
    return a


def main():
    a = arguments()
    shape, threads = SHAPES[a.model], usable_cores()
    theirs, ours, out = [], {recipe: [] for recipe in a.recipe}, opened(a.out) if a.out else None

    def keep(row):
        if out:
            print(json.dumps(row), file=out, flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "llm.c"
        build(a.source, folder)
        write_weights(folder / "gpt2_124M.bin", shape)
        for part in ("train", "val"):
            write_tokens(folder / "dev" / "data" / "tinyshakespeare" / f"tiny_shakespeare_{part}.bin", shape[0])
        for i in range(a.rounds):
            theirs.append(BATCH * SEQUENCE * 1e3 / their_step_ms(folder, a.steps, threads))
            keep({"who": "llm.c", "model": a.model, "tokens_per_s": theirs[-1], "threads": threads,
                  "parameters_total": their_parameters(shape)})
            for recipe in a.recipe:
                row = our_step(shape, a.bench, recipe, a.steps, threads)
                ours[recipe].append(row["tokens_per_s"])
                keep({"who": "assay", **row, "model": a.model})
            print(f"round {i + 1}/{a.rounds}: llm.c {theirs[-1]:.0f} tokens/s, Assay " +
                  ", ".join(f"{recipe} {speeds[-1]:.0f}" for recipe, speeds in ours.items()), file=sys.stderr)
    print(f"{a.model}: {their_parameters(shape) / 1e6:.1f} million parameters in llm.c, "
          f"{row['parameters_total'] / 1e6:.1f} in Assay")
    for recipe, speeds in ours.items():
        ratio = [o / t for o, t in zip(speeds, theirs)]
        print(f"{a.model}: Assay {recipe} is {statistics.median(ratio):.2f} ({min(ratio):.2f} - {max(ratio):.2f}) times as fast as "
              f"llm.c: {statistics.median(speeds):.0f} and {statistics.median(theirs):.0f} tokens/s, medians of {a.rounds} round{'s' * (a.rounds > 1)}")


if __name__ == "__main__":
    main()
