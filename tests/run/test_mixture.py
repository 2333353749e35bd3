#!/usr/bin/env python3
"""A run on a mixture of sources: the reported shares, the plan, and equal bits after a stop and a
restart."""
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BATCH_TOKENS, Workplace, assay, check, first_difference, rows, write_corpus


def last(place, name, scalar):
    return rows(place.run(name), f"SELECT step, value FROM scalar WHERE name = '{scalar}' ORDER BY step")[-1][1]


def check_unread_sources(place, name, data, moe, unread, routed):
    """Held-out text that has nothing of a source or a folder says so, once, and nothing is pruned by it."""
    place.train(name, *data, *moe, "--steps", "2", "--set", "eval.tokens=64")
    few, said = place.run(name), ("the held-out text is the first 64 tokens in the order of the files (data.val), which have none of "
                                  f"{unread}\nhint: --")
    whole = None
    for command, *more in ((("dissect", "used", few),), (("dissect", "damage", few, "--groups", "0", "--experts", "none"),),
                           (("dissect", "routing", few),), (("dissect", "seeds", few, place.run("moe")), "--tokens", "64"), (("eval", few),)):
        done = assay(*command, *more)
        check(done.returncode == 0 and done.stderr.count("warning: " + said) == 1, f"{command}: {done.stderr}")
        whole = done.stderr.split(said)[1].split(" reads some of each; ")[0].replace("=", " ").split()[-1]
        again = assay(*command, *(["--set", f"eval.tokens={whole}"] if command[0] == "eval" else ["--tokens", whole]))
        check(again.returncode == 0 and "the held-out text is" not in again.stderr, f"{command} with {whole}: {again.stderr}")
    routing = assay("dissect", "routing", few)
    check(f"held-out: has nothing of {unread}, {routed[0]}\n" in routing.stdout, routing.stdout)
    as_json = json.loads(assay("dissect", "routing", few, "--json").stdout)
    check({key: value for key, value in as_json.items() if key.startswith("unread_") and value} == {routed[1]: [unread]}, f"{as_json}")
    shard = next(place.path.glob("code/*_val_*.bin"))
    check("the held-out text is" not in assay("dissect", "used", few, "--shards", shard).stderr, "of shards that were named")

    export = place.run(f"{name}-export")
    done = assay("dissect", "used", few, "--export", export)
    check(done.returncode == 1 and f"error: an export would lose experts that only text of {unread} uses: {said}" in done.stderr
          and done.stderr.count("\n") == 2 and not export.exists(), done.stderr)
    done = assay("dissect", "used", few, "--export", export, "--tokens", whole)
    check(done.returncode == 0, done.stderr)


def check_longer_validation(place, moe):
    """Validation data of one folder may be longer than eval.tokens: no warning, and an export as always."""
    place.train("one-folder", *moe, "--set", "data.synth=null", "--set", f"data.tokenizer={place.path}/tokenizer.json",
                "--set", f"data.train=['{place.path}/web/*_train_*.bin']", "--set", f"data.val=['{place.path}/web/*_val_*.bin']",
                "--steps", "2", "--set", "eval.tokens=64")
    done = assay("dissect", "used", place.run("one-folder"), "--export", place.run("one-export"))
    check(done.returncode == 0 and "held-out text is" not in done.stderr and place.run("one-export").exists(), done.stderr)


with Workplace() as place:
    write_corpus(place, "web", "the cat sat on a mat and saw two old dogs near the river".split(), 2000)
    write_corpus(place, "code", "if x then y else z = 1 while true print end".split(), 30)
    sources = ["--set", "data.synth=null", "--set", f"data.tokenizer={place.path}/tokenizer.json",
               "--set", f"data.train=['{place.path}/web/*_train_*.bin', '{place.path}/code/*_train_*.bin']",
               "--set", f"data.val=['{place.path}/web/*_val_*.bin', '{place.path}/code/*_val_*.bin']"]
    mixed = [*sources, "--set", "data.mixture=[3, 1]"]

    plan = place.train("whole", *mixed, "--plan").stdout
    row = next(line.split() for line in plan.splitlines() if line.startswith("code/*_train_*.bin"))
    check(row[1] == "25.000%" and 24 < float(row[2][:-1]) < 26, f"the plan has weight and share: {row}")
    check(abs(int(row[4]) / (60 * BATCH_TOKENS) - float(row[2][:-1]) / 100) < 1e-5, f"the plan has the tokens drawn: {row}")
    check(abs(float(row[5]) - int(row[4]) / int(row[3])) < 0.01, f"the plan has the epochs: {row}")
    check(float(row[5]) > 2, f"the small source starts over: {row}")

    whole = place.train("whole", *mixed)
    check("\ndata: epoch 2 of code/*_train_*.bin begins" in whole.stderr, f"an epoch is no warning: {whole.stderr}")
    check("data.val: the validation loss" not in whole.stderr, f"both sources are validated: {whole.stderr}")
    few = place.train("few", *mixed, "--set", "eval.tokens=64", "--stop-after", "1").stderr
    check("data.val: the validation loss is of the first 64 tokens in the order of the files (eval.tokens), which have none of "
          "web/*_train_*.bin; the loss of its own: val/web/*_train_*.bin" in few, few)
    check(f"of {60 * BATCH_TOKENS} tokens in 60 steps" in whole.stderr, "the table is in the log too")
    check(abs(last(place, "whole", "source_share/code/*_train_*.bin") - float(row[2][:-1]) / 100) < 1e-5, "the share in telemetry")
    check(abs(last(place, "whole", "source_epochs/code/*_train_*.bin") - float(row[5])) < 0.01, "the epochs in telemetry")
    check(abs(last(place, "whole", "source_share/web/*_train_*.bin") + last(place, "whole", "source_share/code/*_train_*.bin")
              - 1) < 1e-9, "shares sum to 1")

    # The loss of a source equals that of a run which validates only on its shards. It changes no
    # bit of training.
    only_code = ["--set", f"data.val=['{place.path}/code/*_val_*.bin']", "--set", "eval.tokens=512"]
    place.train("only-code", *mixed, *only_code)
    place.train("asked", *mixed, "--set", "eval.source_tokens=512")
    check("eval 60/60 val/code/*_val" not in whole.stderr and "eval 60/60 val/code/*_train_*.bin loss_nats" in whole.stderr, whole.stderr)
    loss = "SELECT step, metric, value, n FROM eval WHERE task = '{}' AND step > 0 ORDER BY step, metric"
    of_code = rows(place.run("asked"), loss.format("val/code/*_train_*.bin"))
    check(len(of_code) == 6 and of_code == rows(place.run("only-code"), loss.format("val")), f"the loss of a source: {of_code}")
    check(len(rows(place.run("asked"), loss.format("val/web/*_train_*.bin"))) == 6, "every source has a loss")
    hashes = [rows(place.run(name), "SELECT step, value FROM scalar WHERE name = 'hash'") for name in ("whole", "asked", "only-code")]
    check(len(hashes[0]) == 60 and hashes[0] == hashes[1] == hashes[2], "the losses of sources change nothing")

    # Routing by source, also without the training shards.
    moe = ["--set", "model.moe={experts: 4, top_k: 2, expert_ffn: 32}"]
    place.train("moe", *mixed, *moe, "--steps", "2")
    shards = list(place.path.glob("*/*_train_*.bin"))
    for gone in (False, True):
        for shard in shards if gone else []:
            shard.rename(shard.with_suffix(".gone"))
        done = assay("dissect", "routing", place.run("moe"), "--json")
        names = [text["name"] for text in json.loads(done.stdout)["texts"]]
        check(names[-2:] == ["web/*_train_*.bin", "code/*_train_*.bin"], f"routing by source: {names}")
    for shard in shards:
        shard.with_suffix(".gone").rename(shard)
    check_unread_sources(place, "unread", mixed, moe, "web/*_train_*.bin", ("which training read", "unread_sources"))
    check_unread_sources(place, "folders", sources, moe, f"{place.path}/web", ("a folder of data.val", "unread_folders"))
    check_longer_validation(place, moe)

    # Stopped twice between checkpoints, and resumed.
    for after in (7, 23):
        place.train("stopped", *mixed, "--stop-after", str(after))
    place.train("stopped", *mixed)
    difference = first_difference(place.run("whole"), place.run("stopped"))
    check(difference is None, f"a stopped mixture: {difference}")

    place.train("seed", *mixed, "--set", "run.seed=2", "--steps", "20")
    place.train("first", *mixed, "--steps", "20")
    losses = [rows(place.run(name), "SELECT value FROM scalar WHERE name = 'train_loss_nats'") for name in ("seed", "first")]
    check(losses[0] != losses[1], "another seed draws differently")

    for weights, said in (("[1, 1]", "data.mixture: [3.0, 1.0] -> [1.0, 1.0]"), ("null", "data.mixture: [3.0, 1.0] -> absent")):
        done = place.train("stopped", *sources, "--set", f"data.mixture={weights}", "--steps", "70", expect=1)
        check(said in done.stderr, f"other weights are refused: {done.stderr}")

    # Files have a part and a place: the same ones in another role or order are other data.
    def entry(name, split):
        return f"'{place.path}/{name}/*_{split}_*.bin'"

    def given(train, val, *more):
        return ["--set", "data.synth=null", "--set", f"data.tokenizer={place.path}/tokenizer.json", "--set", f"data.train=[{train}]",
                "--set", f"data.val=[{val}]", *more, "--steps", "62"]
    both_val = entry("web", "val") + ", " + entry("code", "val")
    even = ["--set", "data.mixture=[1, 1]"]
    place.train("roles", *given(entry("web", "train") + ", " + entry("code", "train"), both_val, *even), "--stop-after", "3")
    done = place.train("roles", *given(entry("code", "train") + ", " + entry("web", "train"), both_val, *even), expect=1)
    check("the data of the run has another order: file 1 of data.train, source 1 is " in done.stderr
          and "/code/corpus_train_000001.bin, was " in done.stderr and "hint: the order of the files' paths" in done.stderr, done.stderr)
    place.train("plain", *given(entry("web", "train"), entry("code", "train")), "--stop-after", "3")
    done = place.train("plain", *given(entry("code", "train"), entry("web", "train")), expect=1)
    check("data.train" in done.stderr and done.stderr.count("\n") == 2, f"training and validation data are exchanged: {done.stderr}")

    # Moved together, in an order of their own: shards that two folders have under one name may move, in their order.
    def moved(*names):
        for number, name in enumerate(names):
            folder = place.path / f"moved-{number}"
            folder.mkdir(exist_ok=True)
            for split in ("train", "val"):
                for shard in sorted((place.path / name).glob(f"*_{split}_*.bin")):
                    shutil.copy(shard, folder / f"shard_{split}_{shard.stem[-6:]}.bin")
        return given(f"'{place.path}/moved-*/*_train_*.bin'", f"'{place.path}/moved-0/*_val_*.bin'")
    place.train("moved", *moved("web", "code"), "--stop-after", "3")
    for number in (0, 1):
        (place.path / f"moved-{number}").rename(place.path / f"moved-1{number}")
    elsewhere = given(f"'{place.path}/moved-1*/*_train_*.bin'", f"'{place.path}/moved-10/*_val_*.bin'")
    place.train("moved", *elsewhere, "--stop-after", "1")
    (place.path / "moved-10").rename(place.path / "moved-12")
    exchanged = given(f"'{place.path}/moved-1*/*_train_*.bin'", f"'{place.path}/moved-12/*_val_*.bin'")
    done = place.train("moved", *exchanged, expect=1)
    check("the data of the run has" in done.stderr, f"moved folders that sort the other way round: {done.stderr}")

    done = assay("receipt", "verify", place.run("whole"), "--rerun", "5")
    check(done.returncode == 0, f"the rerun of a mixture's receipt matches: {done.stdout}{done.stderr}")

print("mixture: ok")
