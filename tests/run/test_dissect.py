#!/usr/bin/env python3
"""assay dissect: what planted experts are worth (one dead, one a copy, one with a topic of its own), P_used by hand, the
model without unused experts to the bit, resuming, threads, the emulator, and bad input."""
import array
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, assay, check, checkpoints, corpora, edit_tensors
from refusals import is_refusal

MODEL = ("--set", "model.moe.experts=8", "--set", "run.steps=90", "--set", "run.keep_checkpoints=9", "--set", "eval.tokens=4096")
DEAD, ORIGINAL, COPY, TOPIC = 1, 2, 3, 5
LAYER = 1
TOPIC_IDS = range(300, 400)
EXPERT = 3 * 64 * 32 + 64  # parameters: three matrices and a row of the router


def dissect(*arguments, expect=0, **options):
    done = assay("dissect", *arguments, **options)
    check(done.returncode == expect, f"dissect {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def damage_of(run, *arguments):
    """{(layer, what, removal): change} and the whole result."""
    result = json.loads(dissect("damage", run, "--json", *arguments).stdout)
    check(json.loads((pathlib.Path(run) / "dissect" / "damage.json").read_text()) == result, "the file of the report page")
    return {(c["layer"], c["without"], c.get("removal")): c for c in result["changes"]}, result


def plant(tensors):
    """tensors: name to (values, shape), which are changed in place. The expert TOPIC is chosen by tokens that have a mark
    in the first dimension of their embedding, and by no other, and says that the next token is one of them; DEAD is chosen
    by none; COPY is ORIGINAL once more."""
    layer = f"blocks.{LAYER}.moe."
    bias, _ = tensors[layer + "bias"]
    bias[:] = [0.0] * 8
    bias[DEAD], bias[TOPIC] = -100.0, -0.4
    for name in ("router", "gate_up", "down"):
        values, shape = tensors[layer + name]
        size = len(values) // shape[0]
        values[COPY * size:(COPY + 1) * size] = values[ORIGINAL * size:(ORIGINAL + 1) * size]
    embedding, (_, width) = tensors["embed.weight"]
    for row in range(len(embedding) // width):
        embedding[row * width] = 0.6 if row in TOPIC_IDS else 0.0
    router, _ = tensors[layer + "router"]
    router[TOPIC * width:(TOPIC + 1) * width] = [4.0] + [0.0] * (width - 1)
    for block in range(2):  # nothing else writes to the mark's dimension
        for name in (f"blocks.{block}.attn.out", f"blocks.{block}.moe.shared.down"):
            values, shape = tensors[name]
            values[:shape[1]] = [0.0] * shape[1]
        values, (experts, out, inner) = tensors[f"blocks.{block}.moe.down"]
        for expert in range(experts):
            values[expert * out * inner:expert * out * inner + inner] = [0.0] * inner
    gate_up, (_, rows, _) = tensors[layer + "gate_up"]
    down, (_, _, inner) = tensors[layer + "down"]
    for row in range(rows):  # of the mark alone
        gate_up[(TOPIC * rows + row) * width:(TOPIC * rows + row + 1) * width] = [1.0] + [0.0] * (width - 1)
    down[TOPIC * width * inner:(TOPIC + 1) * width * inner] = [0.003] * inner + [0.0] * (inner * (width - 1))
    head, _ = tensors["head.weight"]
    for row in range(len(head) // width):
        head[row * width] = 0.3 if row in TOPIC_IDS else 0.0


def check_planted(place):
    place.train("run", *MODEL)
    run = place.run("run")
    for later in checkpoints(run)[6:]:
        shutil.rmtree(later)
    edit_tensors(checkpoints(run)[-1], plant)
    damage, result = damage_of(run, "--experts", "all", "--groups", "0", "--layers", str(LAYER))
    check(result["experts"] == 8 and result["tokens"] == 4096, result)

    def of(expert, removal):
        return damage[LAYER, f"expert {expert}", removal]["damage"]["nats"]
    check([of(DEAD, r) for r in ("zero", "next", "mean")] == [0.0, 0.0, 0.0], f"a dead expert has no damage: {damage}")
    load = {e: damage[LAYER, f"expert {e}", "zero"]["load_share"] for e in range(8)}
    check(load[DEAD] == 0 and 0 < load[TOPIC] < 0.5, load)
    # Either of two equal experts can go for the other.
    check(load[ORIGINAL] > 0 and of(ORIGINAL, "next") != 0 and of(ORIGINAL, "next") == of(COPY, "next"), damage)
    check(of(ORIGINAL, "next") not in [of(e, "next") for e in range(8) if e not in (ORIGINAL, COPY)], damage)

    used = json.loads(dissect("used", run, "--json").stdout)
    check(used["layers"][1]["counts"][DEAD] == 0 and used["layers"][1]["used"] == 7, used)
    check(used["layers"][1]["used_after_eighths"][-1] == 7, used)
    unused = sum(8 - layer["used"] for layer in used["layers"])
    check(used["p_used"] == used["p_total"] - unused * EXPERT, f"P_used by hand: {used}")
    check(used["p_active"] < used["p_used"] < used["p_total"], used)
    check(json.loads((run / "dissect" / "used.json").read_text()) == used, "used.json is what is printed")
    near = json.loads(dissect("used", "run", "--json", cwd=place.path).stdout)
    check((near["run"], near["checkpoint"]) == ("run", used["checkpoint"].replace(f"{place.path}/", "")), near)
    inside = json.loads(dissect("used", checkpoints(run)[-1].name, "--json", cwd=run / "checkpoints").stdout)
    check(inside["run"] == str(run.resolve()), inside)
    odd = place.path / os.fsdecode(b"l\xe9") / "run"
    shutil.copytree(run, odd)
    moved = json.loads(dissect("used", odd, "--json").stdout)
    check(moved["layers"] == used["layers"] and moved["run"].endswith("l\ufffd/run"), moved)
    check(json.loads((odd / "dissect" / "used.json").read_text()) == moved, "a folder whose name is not UTF-8")


def write_shard(path, tokens):
    header = array.array("i", next(corpora()[0].glob("**/*val*.bin")).read_bytes()[:1024])
    header[2] = len(tokens)
    path.write_bytes(header.tobytes() + array.array("H", tokens).tobytes())


def check_token_table(place):
    """The table by token is made from the first half alone: what ids that are not there get does not depend on the second."""
    first = [7 + i % 150 for i in range(64)]
    topic, other = ([7] + [low + 7 * i % 100 for i in range(63)] for low in (300, 200))

    def of(name, *halves):
        write_shard(place.path / f"{name}.bin", [*first, *first, *halves[0], *halves[1], 7])
        changes, result = damage_of(place.run("run"), "--shards", place.path / f"{name}.bin", "--tokens", "256", "--experts", "none",
                                    "--groups", "0", "--layers", str(LAYER))
        check(result["tokens"] == 256, result)
        return changes[LAYER, "token-id router", None]["damage"]["nats"]
    both, one, two = of("both", topic, other), of("one", topic, topic), of("two", other, other)
    check(abs(both - (one + two) / 2) < 1e-5 < abs(one - two), f"the table knows its second half: {both}, {one}, {two}")


def check_topic(place):
    """The topic's expert has no damage on text without the topic's tokens, and the most on text of them alone."""
    run = place.run("run")
    shard = next(corpora()[0].glob("**/*val*.bin")).read_bytes()
    ids = array.array("H", shard[1024:])

    def of_text(name, tokens):
        path = place.path / f"{name}.bin"
        write_shard(path, tokens)
        changes, _ = damage_of(run, "--shards", path, "--experts", "all", "--groups", "0", "--removals", "zero", "--layers", str(LAYER))
        return {e: changes[LAYER, f"expert {e}", "zero"] for e in range(8)}
    off = of_text("off", [i for i in ids if i not in TOPIC_IDS])[TOPIC]
    check(off["load_share"] == 0 and off["damage"]["nats"] == 0, f"without the topic: {off}")
    on = of_text("on", [i for i in ids if i in TOPIC_IDS][:4097])
    check(max(on, key=lambda e: on[e]["damage"]["nats"]) == TOPIC, f"on the topic: {on}")
    foreign = place.path / "foreign"
    foreign.mkdir()
    (foreign / "val.bin").write_bytes(shard)
    manifest = json.loads(next(corpora()[0].glob("**/manifest.json")).read_text())
    manifest["tokenizer"]["sha256"] = "0" * 64
    (foreign / "manifest.json").write_text(json.dumps(manifest))
    refused = dissect("damage", run, "--shards", foreign / "val.bin", expect=1)
    check("was written with another tokenizer" in refused.stderr, refused.stderr)


def check_routing(place):
    """Loads of held-out text against telemetry's, by hand."""
    run = place.run("run")
    said = json.loads(dissect("routing", run, "--json").stdout)
    used = json.loads(dissect("used", run, "--json").stdout)
    check([(p["a"], p["b"]) for p in said["pairs"]] == [("training", "held-out")], said)
    check(len(said["pairs"][0]["overlap"]) == 2, said)
    for layer, (overlap, sampling) in enumerate(zip(said["pairs"][0]["overlap"], said["pairs"][0]["sampling"])):
        held_out = used["layers"][layer]["counts"]
        check(0 < overlap <= 1 and 0.9 < sampling < 1 and sum(held_out) == 2 * 4096, said)
    check([(t["name"], t["tokens"]) for t in said["texts"]] == [("training", None), ("held-out", 4096)], said["texts"])
    check(said["training_steps"] == [53, 60], said["training_steps"])
    # A checkpoint on the way is compared with the training before it.
    early = next(c for c in checkpoints(run) if int(c.name.split("-")[1]) < 60)
    step = int(early.name.split("-")[1])
    of_early = json.loads(dissect("routing", early, "--json").stdout)
    first, last = of_early["training_steps"]
    check(of_early["step"] == step and first < last <= step, of_early["training_steps"])
    check(f"the logged steps {first} to {last}" in dissect("routing", early).stdout, "the steps are named")
    # In the layer that was edited after training the tokens go elsewhere.
    check(said["pairs"][0]["overlap"][LAYER] < said["pairs"][0]["overlap"][0], said)


def check_exported(place):
    run, folder = place.run("run"), place.run("smaller")
    done = dissect("used", run, "--export", folder)
    check("to the bit" in done.stdout, done.stdout)
    before, after = (json.loads(assay("eval", r, "--json").stdout) for r in (run, folder))
    check(before["val_loss_nats"] == after["val_loss_nats"], f"{before} {after}")
    experts = max(layer["used"] for layer in json.loads((run / "dissect" / "used.json").read_text())["layers"])
    check(f"{experts} experts in every layer" in done.stdout and f"experts: {experts}" in (folder / "config.yaml").read_text(), done.stdout)
    state = json.loads((checkpoints(folder)[-1] / "state.json").read_text())
    check("router_probe" not in state["extra"], "choices by the numbers of before")
    for command in (("router", folder), ("report", folder, "-o", place.path / "page.html"), ("compare", folder, run), ("dissect", "routing", folder)):
        said = assay(*command)
        check(said.returncode == 1 and "is an export of `assay dissect used`: it has no telemetry" in said.stderr and
              f"hint: give the run that it was made from: {run}\n" in said.stderr and "--fresh" not in said.stderr, f"{command}: {said}")
    seen = assay("watch", folder, "--text", "--once").stdout
    check("an export of `dissect used`" in seen and "not training" not in seen, seen)
    used = run / "dissect" / "used.json"
    used.unlink()
    done = dissect("used", run, "--export", folder, expect=1)
    check(not used.exists(), "refused before anything was read")
    check(is_refusal(done, "holds files already"), done.stderr)


def check_exported_collapsed(place):
    """With as many experts as a token chooses there is nothing left to stop for."""
    stop = ("--set", "telemetry.collapse_stop={at_least: 0.9, for: 3, from: 0.9}")
    place.train("fallen", "--set", "run.steps=4", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0", *stop)

    def let_fall(tensors):
        for name in ("blocks.0.moe.bias", "blocks.1.moe.bias"):
            tensors[name][0][:] = [100.0, 100.0, 0.0, 0.0]
    edit_tensors(checkpoints(place.run("fallen"))[-1], let_fall)
    done = dissect("used", place.run("fallen"), "--export", place.run("rest"))
    config = (place.run("rest") / "config.yaml").read_text()
    check("2 experts in every layer" in done.stdout and "experts: 2" in config and "collapse_stop" not in config, config)


def check_softmax(place):
    """Its sum is over all experts, also those that are removed or left out: it cancels in normalised gates alone."""
    short = ("--set", "run.steps=4", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0",
             "--set", "model.moe.router.score=softmax")
    shares, sums, rest = place.run("shares"), place.run("sums"), place.run("shares-rest")

    def let_fall(tensors):
        for name in ("blocks.0.moe.bias", "blocks.1.moe.bias"):
            tensors[name][0][:] = [100.0, 100.0, 0.0, 0.0]
    place.train("shares", *short, "--set", "model.moe.router.normalize_gates=false")
    edit_tensors(checkpoints(shares)[-1], let_fall)
    done = dissect("used", shares, "--export", rest)
    before, after = (json.loads(assay("eval", r, "--json").stdout)["val_loss_nats"] for r in (shares, rest))
    said = re.search(r"^its mean loss is (\S+) nats, the original's (\S+): it differs at ", done.stdout, re.M)
    check(said and "softmax gates that are not normalised are shares of a sum" in done.stdout, done.stdout)
    check(abs(float(said[1]) - after) < 1e-5 and abs(float(said[2]) - before) < 1e-5 and abs(before - after) > 1e-5,
          f"{done.stdout}{before} {after}")
    few, note = ("--groups", "0", "--experts", "0", "--removals"), "next keeps the removed experts in their sum"
    check(note in dissect("damage", shares, *few, "next").stdout, "of softmax gates that are not normalised")
    check(note not in dissect("damage", shares, *few, "zero").stdout, "without the column")
    check(note not in dissect("damage", place.run("run"), *few, "next").stdout, "of sigmoid gates")

    def three_alike(tensors):  # the last is never among two, and has a share of the sum
        for name in ("blocks.0.moe.router", "blocks.1.moe.router"):
            values, (_, width) = tensors[name]
            for row in (2, 3):
                values[row * width:(row + 1) * width] = values[width:2 * width]
    place.train("sums", *short, "--set", "model.moe.router.bias_rate=0")
    edit_tensors(checkpoints(sums)[-1], three_alike)
    done = dissect("used", sums, "--export", place.run("sums-rest"))
    check("3 experts in every layer" in done.stdout and "to the bit" in done.stdout, done.stdout)


def check_resumed(place):
    run = place.run("run")
    whole = damage_of(run, "--groups", "4")[1]
    files = [f for f in (run / "dissect").glob("damage-*.jsonl") if "group 1" in f.read_text()]
    check(len(files) == 1, f"a file for each checkpoint and text: {files}")
    newest = files[0]
    text = newest.read_text()
    lines = text.splitlines(keepends=True)
    newest.write_text("".join(lines[:5]) + '{"change": 5}\n7\n' + lines[5][:20])  # no results, and killed while it wrote
    check(damage_of(run, "--groups", "4")[1] == whole, "measured again: the same")
    check(set(newest.read_text().splitlines()) <= set(text.splitlines()), "and the same lines")
    newest.unlink()
    one = assay("dissect", "damage", run, "--groups", "4", "--json", env={**os.environ, "OMP_NUM_THREADS": "1"})
    check(json.loads(one.stdout) == whole, "one thread gives the same bits")


def check_unwritable(place):
    """What cannot be recorded in the run is printed all the same, and measured without the results kept there."""
    run, few = place.run("run"), ("--groups", "0", "--experts", "4", "--removals", "zero")
    damage, used = damage_of(run, *few)[1], json.loads(dissect("used", run, "--json").stdout)
    shutil.move(run / "dissect", place.path / "kept")
    (run / "dissect").write_text("")  # no folder can be made there, also by root
    for arguments, measured in ((("damage", run, *few), damage), (("used", run), used)):
        done = dissect(*arguments, "--json")
        check(json.loads(done.stdout) == measured, f"{arguments}: {done.stdout}")
        check(done.stderr.count("warning: not recorded in the run: ") == 1 and done.stderr.count("hint:") == 1, done.stderr)
    (run / "dissect").unlink()
    shutil.move(place.path / "kept", run / "dissect")


def check_emulator(place):
    """The CUDA kernels give the same damage, up to rounding."""
    run, few = place.run("run"), ("--tokens", "256", "--experts", "4", "--groups", "0", "--layers", str(LAYER))
    emulator = ASSAY.parent / "assay_on_executor"
    here = damage_of(run, *few)[1]
    of_cpu = set((run / "dissect").glob("damage-*.jsonl"))
    done = subprocess.run([str(emulator), "dissect", "damage", run, *few, "--device", "cuda", "--json"], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    check(len(set((run / "dissect").glob("damage-*.jsonl")) - of_cpu) == 1, "results of one device are not taken for the other's")
    there = json.loads(done.stdout)
    # A logit rounds to bf16; what rounds alike with and without a change cancels in a damage.
    check(abs(here["loss_nats"] - there["loss_nats"]) < 2 ** -8 * here["loss_nats"], f"{here} {there}")
    for a, b in zip(here["changes"], there["changes"], strict=True):
        check(a["without"] == b["without"] and abs(a["damage"]["nats"] - b["damage"]["nats"]) < 4e-3, f"{a} {b}")


def check_bad_input(place):
    place.train("dense", "--set", "model.moe=null", "--set", "run.steps=2", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0")
    place.train("flat", "--set", "model.moe.first_dense_layers=2", "--set", "run.steps=2", "--set", "schedule.warmup=0",
                "--set", "schedule.warmdown=0")
    run = place.run("run")
    for arguments, words in ((("damage", place.run("dense")), "is a dense model"),
                             (("damage", place.run("flat")), "is a dense model"),
                             (("used", place.run("flat")), "is a dense model"),
                             (("routing", place.run("flat")), "is a dense model"),
                             (("used", place.path / "nothing"), "nothing"),
                             (("damage", run, "--layers", "7"), "layer 7 has no experts"),
                             (("damage", run, "--experts", "9"), "there is no expert 9"),
                             (("damage", run, "--experts", "4294967296"), "is not a number of an expert"),
                             (("damage", run, "--experts", "some"), "is not a number of an expert")):
        done = dissect(*arguments, expect=1)
        check(words in done.stderr and is_refusal(done), f"{arguments}: {done.stderr}")


def main():
    with Workplace(moe=True, sequence=64) as place:
        check_planted(place)
        check_topic(place)
        check_token_table(place)
        check_routing(place)
        check_exported(place)
        check_exported_collapsed(place)
        check_softmax(place)
        check_resumed(place)
        check_unwritable(place)
        check_emulator(place)
        check_bad_input(place)


if __name__ == "__main__":
    main()
