#!/usr/bin/env python3
"""parallel.expert_ranks in whole runs: ranks that share the experts have the bits of one rank with as many parts, in
fp32 and bf16; a run goes on with other expert groups; evaluations have the same values; rows that exceed the planned
ones take more rounds; what does not divide, or is not computed, is refused."""
import json
import math
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from core_bundle import write_bundle
from harness import Workplace, assay, at_once, check, checkpoints, merge, newest_tensors, plant_infinity, rows
from refusals import is_refusal

# Four micro-batches a step, one for each of four ranks. Shares of the experts are whole pieces of 16384 elements.
MODEL = (", moe: {experts: 8, top_k: 2, shared: 1, expert_ffn: 128,"
         " router: {score: sigmoid, bias_rate: auto, aux: gates, aux_alpha: 0.01}}")
FOUR = ("--set", "run.micro_batch=4", "--set", "run.steps=16", "--set", "schedule.warmdown=4", "--set", "eval.every=8",
        "--set", "run.checkpoint_every=8", "--set", "run.threads=1", "--set", "parallel.parts=4",
        "--set", "parallel.expert_rows=4")  # room for all rows: one round


def shared(ranks, expert_ranks):
    return ("--ranks", str(ranks), "--set", f"parallel.expert_ranks={expert_ranks}")


def recipe(name):
    return ("--set", f"precision.recipe={name}")


def hashes(run):
    return rows(run, "SELECT step, value FROM scalar WHERE name = 'hash' ORDER BY step")


def values(run):
    return rows(run, "SELECT step, task, metric, value, n FROM eval ORDER BY step, task, metric")


def routers(run):
    return rows(run, "SELECT * FROM router_layer ORDER BY step, layer")


def check_equal(place, one, other):
    a, b = place.run(one), place.run(other)
    check(len(hashes(a)) == 16, f"{one}: {len(hashes(a))} hashes")
    check(hashes(a) == hashes(b), f"hashes of {one} and {other}: {[p for p in zip(hashes(a), hashes(b)) if p[0] != p[1]][:1]}")
    check(values(a) == values(b) and values(a), f"evaluations of {one} and {other}")
    check(routers(a) == routers(b) and routers(a), f"routers of {one} and {other}")


def check_bits(place, name):
    place.train(f"{name}-one", *FOUR, *recipe(name))
    at_once(lambda number: place.train(f"{name}-{number}", *FOUR, *recipe(name), *shared(4, number)), (1, 2, 4))
    for expert_ranks in (1, 2, 4):
        check_equal(place, f"{name}-one", f"{name}-{expert_ranks}")


def check_rerun(place):
    """One rank trains the first steps of a receipt again where it has the bits of the ranks, and says where not."""
    done = assay("receipt", "verify", place.run("fp32-2"), "--rerun", "4")
    check(done.returncode == 0 and "rerun of 4 steps  14 values, bit for bit" in done.stdout, done.stdout + done.stderr)


def check_not_rerun(place):
    """Bits that one rank cannot have. The exit code is not asked for: a checkpoint that was merged is not the receipt's."""
    for name, why in (("rounds", "rounds, which one rank does not"),
                      ("borders-2", "a share of blocks.1.moe.down is no multiple")):
        done = assay("receipt", "verify", place.run(name), "--rerun", "2")
        check("not available  rerun of 2 steps" in done.stdout and why in done.stdout, f"{name}: {done.stdout}")


def check_rerun_of_changed(place):
    """Ranks shared the experts in one launch and not in the other: each counts for its own steps."""
    def changed(numbers):
        name = f"then-{numbers[1]}"
        for expert_ranks in numbers:
            place.train(name, *FOUR, *recipe("fp32"), "--set", "run.micro_batch=2", *shared(4, expert_ranks), "--stop-after", "2")
        return [assay("receipt", "verify", place.run(name), "--rerun", steps) for steps in ("2", "4")]

    own = "not available  rerun of {} steps  the bits are those of 4 ranks that share the experts: a rank has more than one micro-batch"
    (first, both), (second, after) = at_once(changed, ((2, 1), (1, 2)))
    for done, said in ((first, own.format(2)), (both, own.format(4)), (second, " values, bit for bit"), (after, own.format(4))):
        check(done.returncode == 0 and said in done.stdout, f"{said}: {done.stdout}{done.stderr}")


def check_resumed(place):
    """Saved by expert groups of two, gone on with groups of four, with one rank, and with none."""
    def moved(case):
        name, before, after = case
        place.train(name, *FOUR, *recipe("fp32"), *before, "--stop-after", "8")
        place.train(name, *FOUR, *recipe("fp32"), *after)
        check_equal(place, "fp32-one", name)

    two = shared(4, 2)
    at_once(moved, (("four", two, shared(4, 4)), ("one", two, ()), ("none", two, shared(4, 1)), ("to-two", (), two)))


def check_used(place):
    """A run of ranks that shared the experts is evaluated and continued in text by one, and evaluated by two."""
    evaluated = [assay("eval", place.run("fp32-2"), "--json", *more) for more in ((), ("--ranks", "2"))]
    check([done.returncode for done in evaluated] == [0, 0], evaluated[0].stderr + evaluated[1].stderr)
    check(evaluated[0].stdout == evaluated[1].stdout and "loss" in evaluated[0].stdout, evaluated[0].stdout + evaluated[1].stdout)
    done = assay("sample", place.run("fp32-2"), "--prompt", "Once", "--tokens", "4")
    check(done.returncode == 0 and done.stdout.startswith("Once"), done.stdout + done.stderr)


def check_rounds(place):
    """A tenth of the average rows: ten rounds at least, with the same loss but for rounding."""
    few = ("--set", "parallel.expert_rows=0.1")
    at_once(lambda name: place.train(name, *FOUR, *recipe("fp32"), *shared(4, 4), *few), ("rounds", "rounds-again"))
    check(hashes(place.run("rounds")) == hashes(place.run("rounds-again")), "rounds give the same bits again")
    most = [rows(place.run(name), "SELECT max(value) FROM scalar WHERE name = 'exchange_rounds_max'")[0][0]
            for name in ("fp32-one", "fp32-1", "fp32-4", "rounds")]
    check(most[:3] == [None, None, 1] and most[3] >= 10, f"rounds: {most}")
    one, more = values(place.run("fp32-one")), values(place.run("rounds"))
    check(len(one) == len(more) > 0 and all(math.isclose(a[3], b[3], rel_tol=1e-3) for a, b in zip(one, more)),
          f"{one} {more}")


def check_words(place):
    """Two expert groups that exchange in other numbers of rounds have come equally far at the end."""
    place.train("words", *FOUR[:-2], "--set", "parallel.expert_rows=1.1", *recipe("fp32"), *shared(4, 2))
    most, = rows(place.run("words"), "SELECT max(value) FROM scalar WHERE name = 'exchange_rounds_max'")[0]
    check(most > 1, f"{most} rounds: the rows fit into one")
    words = [line.split("\t") for line in (place.run("words") / "ranks" / "last.txt").read_text().splitlines()[1:]]
    check(len(words) == 4 and len({word[3] for word in words}) == 1, f"calls: {words}")


def check_scored(place):
    """CORE and texts, whose passes all ranks of an expert group compute: the values of one rank."""
    write_bundle(place.path / "bundle", absent=())
    core = json.dumps({"bundle": str(place.path / "bundle"), "max_rows": 7, "every": 8})
    more = ("--set", f"eval.core={core}", *recipe("bf16"), "--set",
            "eval.samples={prompts: [Once upon a time, The, A], tokens: 8, every: 8, temperature: 1}")
    place.train("scored-one", *FOUR, *more)
    at_once(lambda number: place.train(f"scored-{number}", *FOUR, *more, *shared(4, number)), (2, 4))
    texts = (place.run("scored-one") / "samples.jsonl").read_text()
    scores = [row for row in values(place.run("scored-one")) if row[1] == "core"]
    check([row[0] for row in scores if row[2] == scores[0][2]] == [8, 16] and texts.count("\n") >= 6, f"{scores} {texts}")
    for number in (2, 4):
        check_equal(place, "scored-one", f"scored-{number}")
        check((place.run(f"scored-{number}") / "samples.jsonl").read_text() == texts, f"texts on {number} expert ranks")


def check_failing_texts(place):
    """A text that cannot be drawn is a warning, as on one rank: a token's embedding is infinite that no other data has."""
    place.train("odd", *FOUR, *recipe("fp32"), "--stop-after", "4")
    read = json.loads((place.run("odd") / "meta.json").read_text())["data_sha256"]
    tokenizer = next(path for path in read if path.endswith("tokenizer.json"))
    unseen = json.loads(assay("tokenizer", "encode", "--tokenizer", tokenizer, "--text", "\u00e9", "--json").stdout)["ids"][0]
    plant_infinity(checkpoints(place.run("odd"))[-1], unseen)
    more = ("--set", "eval.samples=" + json.dumps({"prompts": ["Once", "\u00e9"], "tokens": 4, "every": 8}))
    for number in (2, 4):
        run = place.run(f"odd-{number}")
        shutil.copytree(place.run("odd"), run)
        done = place.train(run.name, *FOUR, *recipe("fp32"), *more, *shared(4, number))
        why = r"(rank 1: )?prompt 2: the model's logit of token \d+ at position \d+ is nan"
        told = re.findall(rf"warning: no evaluation samples at step (\d+): {why}", done.stderr)
        failed = rows(run, "SELECT step FROM event WHERE kind = 'no_evaluation' ORDER BY step")
        check([step for step, _ in told] == ["8", "16"] and failed == [(8,), (16,)], f"{failed}: {done.stderr}")


def check_borders(place):
    """Shares of the experts that are no whole pieces: only the gradient norm is added in another order, so without
    clipping the parameters are those of one rank."""
    more = ("--set", "model.moe.expert_ffn=96", "--set", "optimizer.clip=0", *recipe("fp32"))
    place.train("borders-one", *FOUR, *more)
    at_once(lambda number: place.train(f"borders-{number}", *FOUR, *more, *shared(4, number)), (2, 4))
    for number in (2, 4):
        run = place.run(f"borders-{number}")
        said = "the bits are of this number of ranks alone: a share of blocks.1.moe.down is no multiple of 16384 elements"
        check(said in (run / "log.txt").read_text(), f"{number} expert ranks are told")
        merge(run)
        check(newest_tensors(run) == newest_tensors(place.run("borders-one")), f"parameters and moments on {number} expert ranks")
        check(values(run) == values(place.run("borders-one")), f"evaluations on {number} expert ranks")
        norms = [rows(place.run(name), "SELECT value FROM scalar WHERE name = 'gradient_norm' ORDER BY step") for name in
                 ("borders-one", run.name)]
        check(len(norms[0]) == len(norms[1]) == 16 and
              all(math.isclose(a, b, rel_tol=1e-6) for (a,), (b,) in zip(*norms)), f"norms: {norms}")


def check_refused(place):
    done = place.train("no", *FOUR, *shared(4, 3), expect=1)
    check("error: parallel.expert_ranks = 3 does not divide 4 ranks" in done.stderr, done.stderr)
    check("choose one of 1, 2, 4" in done.stderr, done.stderr)
    done = place.train("no", *FOUR, "--set", "parallel.expert_ranks=2", expect=1)
    check(is_refusal(done, "does not divide 1 rank"), done.stderr)
    done = place.train("no", *FOUR, *shared(4, 4), "--set", "model.moe.experts=6", expect=1)
    check("does not divide 6 experts" in done.stderr and "choose one of 1, 2\n" in done.stderr, done.stderr)
    done = place.train("no", *FOUR, *shared(4, 2), "--set", "model.moe.first_dense_layers=2", expect=1)
    check("error: parallel.expert_ranks = 2, but the model has no experts" in done.stderr, done.stderr)
    done = place.train("no", *FOUR, *shared(4, 4), *recipe("fp8_block"), expect=1)
    check("quantises the experts' products" in done.stderr, done.stderr)
    done = place.train("no", *FOUR, *shared(4, 4), "--set", "optimizer.kind=muon", expect=1)
    check("optimizer.kind muon" in done.stderr, done.stderr)


def check_plan(place):
    """A share of the experts, and rows to exchange, are in the plan."""
    def plan(expert_ranks):
        done = assay("train", place.config, "--plan", "--json", *FOUR, "--set", f"parallel.expert_ranks={expert_ranks}")
        check(done.returncode == 0, done.stderr)
        return {b["name"]: b["bytes"] for b in json.loads(done.stdout)["buffers"] if b["section"] != "activations"}
    whole, share = plan(1), plan(4)
    name = "blocks.1.moe.gate_up"
    check(4 * share[name] == whole[name], f"{share[name]} of {whole[name]} bytes of experts")
    check("exchange.computed" in share and "exchange.sources.level1" in share, list(share))
    check("exchange.computed" not in whole, list(whole))


def main():
    with Workplace(moe=True) as place:
        place.config.write_text(place.config.read_text().replace(
            ", moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 32,"
            " router: {score: sigmoid, bias_rate: 1e-3, aux: gates, aux_alpha: 0.01}}", MODEL))
        check("experts: 8" in place.config.read_text(), "the model has eight experts")
        check_refused(place)
        check_plan(place)
        check_bits(place, "fp32")
        check_bits(place, "bf16")
        check_used(place)
        check_rerun(place)
        check_resumed(place)
        check_rounds(place)
        check_words(place)
        check_scored(place)
        check_failing_texts(place)
        check_borders(place)
        check_not_rerun(place)
        check_rerun_of_changed(place)
    print("ranks_expert: ok")


main()
