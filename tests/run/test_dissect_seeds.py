#!/usr/bin/env python3
"""assay dissect seeds: experts that were renamed by hand are found, those of two seeds are compared with chance, and bad
input is refused."""
import array
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints, corpora, edit_tensors
from refusals import is_refusal

EXPERTS, LAYER = 8, 1
MODEL = ("--set", f"model.moe.experts={EXPERTS}", "--set", "run.keep_checkpoints=9", "--set", "eval.tokens=4096")
NEW_NAME = [3, 6, 0, 7, 1, 4, 2, 5]


def dissect(*arguments, expect=0):
    done = assay("dissect", *arguments)
    check(done.returncode == expect, f"dissect {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def seeds(*arguments):
    return json.loads(dissect("seeds", *arguments, "--json").stdout)


def rename(tensors):
    """Expert e of LAYER becomes NEW_NAME[e]."""
    for name in ("router", "gate_up", "down", "bias"):
        values, _ = tensors[f"blocks.{LAYER}.moe.{name}"]
        size, before = len(values) // EXPERTS, list(values)
        for e, now in enumerate(NEW_NAME):
            values[now * size:(now + 1) * size] = before[e * size:(e + 1) * size]


def check_renamed(place):
    place.train("first", *MODEL)
    first, renamed = place.run("first"), place.run("renamed")
    shutil.copytree(first, renamed)
    edit_tensors(checkpoints(renamed)[-1], rename)
    said = seeds(first, renamed)
    check((said["experts"], said["top_k"], said["tokens"], said["differences"]) == (EXPERTS, 2, 4096, []), said)
    same, changed = said["pairs"][0]["layers"]
    check({p["a"]: p["b"] for p in same["experts"]} == {e: e for e in range(EXPERTS)}, f"layer 0 was left: {same}")
    check({p["a"]: p["b"] for p in changed["experts"]} == dict(enumerate(NEW_NAME)), f"renamed: {changed}")
    check(same["similarity"] == same["agreement"] == 1, same)
    # Scores that round to the same number are ordered by expert, and they have other numbers now.
    check(changed["similarity"] > 0.99 and changed["agreement"] > 0.99, changed)
    for layer in (same, changed):
        check(layer["above_chance"] == EXPERTS and layer["chance"]["similarity"] < 0.9, layer)
        check(abs(layer["above_if_unrelated"] - EXPERTS / 20) < 1e-12, layer)
    used = json.loads(dissect("used", first, "--json").stdout)
    for layer, counts in zip((same, changed), used["layers"], strict=True):
        check(all(p["tokens_a"] == counts["counts"][p["a"]] for p in layer["experts"]), f"counts of `used`: {layer} {counts}")


def check_seeds(place):
    place.train("second", *MODEL, "--set", "run.seed=2")
    runs = [place.run(name) for name in ("first", "second", "renamed")]
    said = seeds(*runs)
    check([(p["a"], p["b"]) for p in said["pairs"]] == [(0, 1), (0, 2), (1, 2)], said)
    check([r["seed"] for r in said["runs"]] == [1, 2, 1] and said["differences"] == [], said)
    for pair in said["pairs"]:
        check([layer["layer"] for layer in pair["layers"]] == [0, 1], pair)
    for layer in said["pairs"][0]["layers"]:
        check(0 < layer["chance"]["similarity"] < layer["similarity"] < 1, f"two seeds: {layer}")
        check(0 < layer["chance"]["agreement"] < layer["agreement"] < 1, f"two seeds: {layer}")
        mean = sum(p["similarity"] for p in layer["experts"]) / len(layer["experts"])
        check(abs(layer["similarity"] - mean) < 1e-12, layer)
        both = sum(p["tokens_both"] for p in layer["experts"])
        check(abs(layer["agreement"] - both / (2 * 4096)) < 1e-12, layer)
        for p in layer["experts"]:
            check(abs(p["similarity"] - p["tokens_both"] / (p["tokens_a"] * p["tokens_b"]) ** 0.5) < 1e-12, p)
    # Layer 0 of the renamed run is the first's.
    check(said["pairs"][2]["layers"][0]["similarity"] == said["pairs"][0]["layers"][0]["similarity"], said)
    text = dissect("seeds", *runs).stdout
    for row in ("1, 2  ", "1, 3  ", "2, 3  "):
        check(sum(line.startswith(row) for line in text.splitlines()) == 2, f"two layers of {row}: {text}")
    check("layer 0: " in text and f"3  {runs[2]}, step 60, seed 1" in text, text)
    one = assay("dissect", "seeds", *runs, "--json", env={**os.environ, "OMP_NUM_THREADS": "1"})
    check(json.loads(one.stdout) == said, "one thread gives the same")
    few = seeds(*runs[:2], "--shuffles", "3", "--tokens", "1024")
    check(few["tokens"] == 1024 and few["pairs"][0]["layers"][0]["above_if_unrelated"] == EXPERTS / 4, few)
    check(not (runs[0] / "dissect" / "seeds.json").exists(), "nothing is written")


def check_checkpoints(place):
    """A run with itself at an earlier step."""
    steps = checkpoints(place.run("first"))
    said = seeds(steps[0], steps[-2], steps[-1])
    early, late = said["pairs"][1]["layers"], said["pairs"][2]["layers"]
    check([r["step"] for r in said["runs"]] == [10, 50, 60], said)
    check(len(early) == len(late) == 2 and all(a["agreement"] < b["agreement"] for a, b in zip(early, late)),
          f"the last steps change little: {said}")


def check_other_text(place):
    place.train("shorter", *MODEL, "--set", "run.seed=3", "--set", "eval.tokens=2048", "--set", "optimizer.lr=2e-3")
    first, shorter = place.run("first"), place.run("shorter")
    done = dissect("seeds", first, shorter, expect=1)
    check("held-out text" in done.stderr and "--shards" in done.stderr, done.stderr)
    said = seeds(first, shorter, "--tokens", "1024")
    check(said["tokens"] == 1024 and said["differences"] == ["eval.tokens", "optimizer.lr"], said)
    text = dissect("seeds", first, shorter, "--tokens", "1024").stdout
    check("note: the runs differ not only in their seed: eval.tokens optimizer.lr" in text, text)
    shards = [shard for folder in corpora() for shard in folder.glob("**/*val*.bin")]  # perhaps also of other vocabularies
    shard = next(s for s in shards if max(array.array("H", s.read_bytes()[1024:])) < 512)
    said = seeds(first, shorter, "--tokens", "512", "--shards", shard)
    check(said["tokens"] == 512, said)


def check_bad_input(place):
    short = ("--set", "run.steps=2", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0")
    place.train("dense", "--set", "model.moe=null", *short)
    place.train("fewer", *short)
    first, second = place.run("first"), place.run("second")
    copied = place.run("copied")
    shutil.copytree(first, copied)
    for arguments, words in (((first,), "two runs or more, not 1"),
                             ((first, first), "are the same checkpoint"),
                             ((first, second, copied), "are the same checkpoint"),
                             ((first, place.run("dense")), "is a dense model"),
                             ((first, place.path / "nothing"), "nothing"),
                             ((first, place.run("fewer")), "model.moe.experts differs: 8 in")):
        done = dissect("seeds", *arguments, expect=1)
        check(words in done.stderr and is_refusal(done), f"{arguments}: {done.stderr}")
    check(assay("dissect", "seeds", first, second, "--shuffles", "0").returncode != 0, "no shuffles")


def main():
    with Workplace(moe=True) as place:
        check_renamed(place)
        check_seeds(place)
        check_checkpoints(place)
        check_other_text(place)
        check_bad_input(place)


if __name__ == "__main__":
    main()
