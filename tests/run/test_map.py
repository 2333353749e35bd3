#!/usr/bin/env python3
"""assay map: trunks and branches of a matrix are the endpoints of two models; the axes are those of the runs, and what
is missing or cannot be compared is said."""
import json
import math
import os
import pathlib
import re
import shutil
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, BATCH_TOKENS, EVAL_TOKENS, Workplace, assay, check, rows
from refusals import is_refusal

MATRIX = """
name: m
models: {dense: config.yaml, moe: {config: config.yaml, set: {model.moe: {experts: 4, top_k: 2, expert_ffn: 32}}}}
contracts:
  - {kind: activeDN, reference: dense, branches: [0.25, 0.5], branch_warmdown: 0.2}
seeds: [1, 2]
set: {run.steps: 40, schedule.warmdown: 8, telemetry.probe_every: 40}
"""


def map_json(*arguments):
    done = assay("map", *arguments, "--json")
    check(done.returncode == 0, done.stdout + done.stderr)
    return json.loads(done.stdout)


def axis(answer, name):
    return next(a for a in answer["axes"] if a["axis"] == name)


def last_loss(run):
    return rows(pathlib.Path(run), "SELECT value FROM eval WHERE task = 'val' AND metric = 'loss_nats' ORDER BY step")[-1][0]


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


def check_endpoints(answer, matrix):
    dense, moe = answer["models"]
    check([dense["name"], moe["name"]] == ["dense", "moe"], "the models are those of the matrix")
    check([(e["seed"], e["steps"]) for e in dense["endpoints"]] == [(s, n) for s in (1, 2) for n in (10, 20, 40)], dense)
    check(len(moe["endpoints"]) == 6, "two branches and a trunk for each seed")
    for e in moe["endpoints"]:
        tokens = e["steps"] * BATCH_TOKENS
        cost = e["cost"]
        check(e["value"] == last_loss(e["run"]), "the value is the loss at the last step")
        check(cost["tokens"] == tokens and near(cost["flops"], tokens * moe["flops_per_token"]), cost)
        check(near(cost["p_active"], tokens / moe["p_active"]) and near(cost["p_total"], tokens / moe["p_total"]), cost)
        check(cost["seconds"] == rows(pathlib.Path(e["run"]), "SELECT value FROM scalar WHERE name = 'train_s' ORDER BY step")[-1][0], cost)
        check(cost["memory"] > 1e6 and cost["joules"] is None and e["missing"]["joules"] == "no counter of energy was read", e)
    check(answer["left_out"] == [], answer["left_out"])
    check(str(matrix) in dense["endpoints"][0]["run"], dense)


def check_difference(answer):
    """At the tokens of the dense model's middle endpoint: interpolated by hand."""
    dense, moe = answer["models"]
    pair = axis(answer, "tokens")["pairs"][0]
    row = next(b for b in pair["budgets"] if b["cost"] == 20 * BATCH_TOKENS)
    points = {seed: [(e["cost"]["tokens"], e["value"]) for e in moe["endpoints"] if e["seed"] == seed] for seed in (1, 2)}
    differences = []
    for seed in (1, 2):
        of_dense = next(e["value"] for e in dense["endpoints"] if e["seed"] == seed and e["steps"] == 20)
        (x0, y0), (x1, y1) = next((p, q) for p, q in zip(points[seed], points[seed][1:]) if p[0] <= 20 * BATCH_TOKENS <= q[0])
        share = math.log(20 * BATCH_TOKENS / x0) / math.log(x1 / x0)
        differences.append(y0 + share * (y1 - y0) - of_dense)
    mean = sum(differences) / 2
    half = 12.706204736 * abs(differences[0] - differences[1]) / 2  # t(0.975, 1) sd / sqrt(2)
    check(near(row["difference"], mean) and row["seeds"] == [1, 2], (row, mean))
    check(math.isclose(row["interval95"][0], mean - half, abs_tol=1e-6), (row, half))
    check(row["first_interpolated"] is False, row)
    check([s["seed"] for s in pair["by_seed"]] == [1, 2], pair)


def check_text(matrix):
    done = assay("map", matrix)
    check(done.returncode == 0 and "12 endpoints of 2 models" in done.stdout, done.stdout + done.stderr)
    for words in ("tokens per stored parameter", "moe: no dissect/used.json", "no counter of energy was read", "95% interval", "moe - dense",
                  "~: no endpoint within 1%; "):
        check(words in done.stdout, f"{words}: {done.stdout}")
    one = assay("map", matrix, "--axis", "flops", "--models", "moe,dense").stdout
    check("dense - moe" in one and "tokens per" not in one, one)
    page = matrix.parent / "map.html"
    done = assay("map", matrix, "--html", page, "--title", "a <b> title")
    check(done.returncode == 0, done.stderr)
    html = page.read_text()
    check("a &lt;b&gt; title" in html and "<script" not in html and "://" not in html.replace("http://www.w3.org/2000/svg", ""), html[:500])
    check(html.count("<svg") == len([a for a in map_json(matrix)["axes"] if a["absent"] is None]), html.count("<svg"))


def check_used(matrix, place):
    """P_used of the mixtures; of a dense model it is all of its parameters."""
    copy = place.run("used")
    shutil.copytree(matrix, copy)
    answer = map_json(copy)
    moe = answer["models"][1]
    for e in moe["endpoints"]:
        write_used(e, moe["p_total"] // 2, e["steps"])
    pair = axis(map_json(copy), "p_used")["pairs"][0]
    check(pair["absent"] is None and pair["budgets"], pair)
    dense = next(e for m in map_json(copy)["models"] for e in m["endpoints"] if m["name"] == "dense")
    check(dense["cost"]["p_used"] == dense["cost"]["p_total"], dense)
    e = map_json(copy)["models"][1]["endpoints"][0]
    check(near(e["cost"]["p_used"], e["cost"]["tokens"] / (moe["p_total"] // 2)), e)
    for change, words in (({"checkpoint_step": 3}, f"is of step 3, not {moe['endpoints'][0]['steps']}"), ({"text_sha256": "b"}, "on different texts")):
        used = pathlib.Path(moe["endpoints"][0]["run"]) / "dissect" / "used.json"
        before = used.read_text()
        used.write_text(json.dumps({**json.loads(before), **change}))
        missing = map_json(copy)["models"][1]["endpoints"][0]["missing"].get("p_used", "")
        check(words in missing, missing)
        used.write_text(before)
    (pathlib.Path(moe["endpoints"][0]["run"]) / "dissect" / "used.json").write_text("{")
    check("is damaged" in map_json(copy)["models"][1]["endpoints"][0]["missing"]["p_used"], "damaged used.json")


def check_dense_blocks(matrix, place):
    """A mixture without a block of experts uses all of its parameters, and nothing has to count them."""
    copy = place.run("dense-blocks")
    shutil.copytree(matrix, copy)
    for config in copy.glob("moe-*/config.yaml"):
        text = config.read_text()
        check("first_dense_layers: 0" in text, text)
        config.write_text(text.replace("first_dense_layers: 0", "first_dense_layers: 2"))
    moe = map_json(copy)["models"][1]
    check(moe["name"] == "moe" and moe["p_total"] == moe["p_active"], moe)
    for e in moe["endpoints"]:
        check(near(e["cost"]["p_used"] or 0, e["cost"]["p_total"]), e)


def check_energy(matrix, place):
    """Joules are those of the counters at the last step, of one kind in all runs."""
    copy = place.run("energy")
    shutil.copytree(matrix, copy)
    endpoints = [e for m in map_json(copy)["models"] for e in m["endpoints"]]
    for e in endpoints:
        set_joules(e, "cpu_joules", 3.5 * e["steps"])
    answer = map_json(copy, "--axis", "joules")
    check(all(e["cost"]["joules"] == 3.5 * e["steps"] for m in answer["models"] for e in m["endpoints"]), answer["models"])
    check({35, 70} <= {b["cost"] for b in answer["axes"][0]["pairs"][0]["budgets"]}, answer["axes"])
    set_joules(endpoints[0], "gpu_joules", 10)
    e = map_json(copy)["models"][0]["endpoints"][0]
    check(e["cost"]["joules"] is None and "of others the GPU's" in e["missing"]["joules"], e)
    for e in endpoints[1:]:
        set_joules(e, "gpu_joules", 10)
    e = map_json(copy)["models"][0]["endpoints"][0]
    check(e["cost"]["joules"] == 3.5 * e["steps"] + 10, e)


def set_joules(endpoint, name, joules):
    db = sqlite3.connect(pathlib.Path(endpoint["run"]) / "telemetry.db")
    db.execute("INSERT INTO scalar (step, name, value) VALUES (?, ?, ?)", (endpoint["steps"], name, joules))
    db.commit()
    db.close()


CLAIMS = """
- {name: more training helps neither, of: moe, below: dense, along: tokens, at: every}
- {of: moe, below: dense, along: p_total, at: 1}
- {of: moe, overtakes: dense, along: flops, from: 1e9, to: 1e15}
- {of: moe, below: dense, along: joules, at: 1}
"""


def check_claims(matrix, place):
    """Claims are judged on the numbers of the map; what cannot be judged says why."""
    file = place.path / "claims.yaml"
    file.write_text(CLAIMS)
    answer = map_json(matrix, "--claims", file)
    every, at, _, joules = answer["claims"]
    budgets = axis(answer, "tokens")["pairs"][0]["budgets"]
    fails = sum(b["interval95"][0] > 0 for b in budgets)  # moe - dense
    holds = sum(b["interval95"][1] < 0 for b in budgets)
    check(every["why"] == f"{holds} of {len(budgets)} budgets" + (f", fails at {fails}" if fails else ""), (every, budgets))
    check(every["verdict"] == ("fails" if fails else "holds" if holds == len(budgets) else "undecided"), every)
    check(at["verdict"] in ("holds", "fails", "undecided"), at)
    check(joules["verdict"] == "no run" and "no counter of energy was read" in joules["why"], joules)
    done = assay("map", matrix, "--claims", file, "--axis", "tokens", "--html", place.path / "claims.html")
    check("more training helps neither: moe below dense at every budget" in done.stdout and " of 4 claims hold" in done.stdout, done.stdout)
    check("moe overtakes dense" in (place.path / "claims.html").read_text(), "the page has the claims")
    for text, words in (("- {of: moe, below: sparse, along: tokens, at: 1}", "the map has no model sparse"),
                        ("- {of: moe, below: dense, along: token, at: 1}", "did you mean tokens?"),
                        ("claims: [", "claims.yaml:")):
        file.write_text(text + "\n")
        done = assay("map", matrix, "--claims", file)
        check(words in done.stderr and is_refusal(done), done.stderr)
    check("no-such.yaml" in assay("map", matrix, "--claims", place.path / "no-such.yaml").stderr, "an absent file")


def write_used(endpoint, p_used, step):
    folder = pathlib.Path(endpoint["run"]) / "dissect"
    folder.mkdir()
    (folder / "used.json").write_text(json.dumps({"text_sha256": "a", "tokens": 4096, "checkpoint_step": step, "p_used": p_used}))


def check_left_out(matrix, place):
    """Every run that is no endpoint is listed with its reason; the others still count."""
    copy = place.run("damaged")
    shutil.copytree(matrix, copy)
    cells = sorted(path.name for path in copy.glob("moe-*-seed1"))
    (copy / cells[0] / "telemetry.db").write_bytes(b"not a database")
    shutil.rmtree(copy / cells[1])
    config = copy / cells[2] / "config.yaml"
    config.write_text(config.read_text().replace("  steps: ", "  steps: 1"))
    answer = map_json(copy)
    reasons = {pathlib.Path(out["run"]).name: out["reason"] for out in answer["left_out"]}
    check(set(reasons) == set(cells), reasons)
    check("telemetry.db" in reasons[cells[0]] and reasons[cells[1]] == "has not begun", reasons)
    check("not finished: at step" in reasons[cells[2]], reasons)
    check({e["seed"] for e in answer["models"][1]["endpoints"]} == {2}, "the other seed is still there")
    row = axis(answer, "tokens")["pairs"][0]["budgets"][0]
    check(row["seeds"] == [2] and row["interval95"] is None, "one seed has no interval")
    text = assay("map", copy).stdout
    check("(one seed)" in text and "one seed has no interval" in text and "left out: " in text, text)

    # A run that began from imported weights is no endpoint beside runs that began from their seeds.
    imported = copy / cells[0].replace("seed1", "seed2") / "imported.json"
    imported.write_text("{}")
    reasons = {pathlib.Path(out["run"]).name: out["reason"] for out in map_json(copy)["left_out"]}
    check("began from imported weights (imported.json)" in reasons.get(imported.parent.name, ""), reasons)
    imported.unlink()

    # Seconds of two machines are not compared, be it that one run had more threads; the other axes are.
    meta = next(matrix_run for matrix_run in copy.glob("moe-*-seed2")) / "meta.json"
    recorded = json.loads(meta.read_text())
    more = recorded["threads"] + 7
    for change, words in (({"threads": more}, f"{more} threads in"), ({"ranks": 2}, ", 2 ranks, "),
                          ({"cpu": "another"}, "another")):
        meta.write_text(json.dumps({**recorded, **change}))
        answer = map_json(copy)
        absent = axis(answer, "seconds")["absent"]
        check("of different machines" in absent and words in absent, absent)
    check(axis(answer, "flops")["pairs"][0]["budgets"], "FLOPs are the same everywhere")


def check_training_text(matrix, place):
    """Models may have been trained on different texts, which is a note; the curve of one model is that of one text."""
    copy = place.run("other-text")
    shutil.copytree(matrix, copy)
    metas = [run / "meta.json" for run in sorted(copy.glob("moe-*-seed*"))]

    def change(meta):
        said = json.loads(meta.read_text())
        said["data_sha256"] = {path: "0" * 64 if "_train_" in path else sha for path, sha in said["data_sha256"].items()}
        meta.write_text(json.dumps(said))

    change(metas[0])
    done = assay("map", copy)
    check(done.returncode == 1 and "training data: " in done.stderr and "that of one training text" in done.stderr, done)
    for meta in metas[1:]:
        change(meta)
    texts = [c["text"] for c in map_json(copy)["confounds"] if c["name"] == "training_data"]
    check(len(texts) == 1 and texts[0].startswith("training data differs: dense synth_train_"), texts)
    check("moe synth_train_" in texts[0] and texts[0].endswith("0" * 12), texts)
    check("confound: training data differs" in assay("map", copy).stdout, "in the text too")


def check_confounds(matrix, place):
    """What else differs between the models is named as compare does; lengths, branches and their seeds are the subject."""
    names = [c["name"] for c in map_json(matrix)["confounds"]]
    check(names == ["branch_scale"], names)
    copy = place.run("other-rate")
    shutil.copytree(matrix, copy)
    for run in copy.glob("moe-*-seed*"):
        config = run / "config.yaml"
        text, changed = re.subn(r"(?m)^(optimizer:\n(?:  .*\n)*?  lr: ).*$", r"\g<1>0.5", config.read_text())
        check(changed == 1, text)
        config.write_text(text)
    shutil.rmtree(next(run for run in copy.glob("moe-*-seed2") if "-at-" not in run.name))  # its longest run of one seed
    confounds = map_json(copy)["confounds"]
    check([c["name"] for c in confounds] == ["branch_scale", "optimizer"], confounds)
    text = confounds[1]["text"]
    check(text.startswith("optimizer.lr differs: dense ") and text.endswith(", moe 0.5"), text)
    page = place.path / "rates.html"
    done = assay("map", copy, "--html", page)
    check(f"confound: {text}" in done.stdout, done.stdout)
    check("<h2>Confounds</h2>" in page.read_text() and text in page.read_text(), "the page has them")


def check_gpu_memory(matrix, place):
    """The memory of a run's process on the host is not what it takes on a GPU."""
    copy = place.run("gpu")
    shutil.copytree(matrix, copy)
    run = pathlib.Path(map_json(copy)["models"][0]["endpoints"][0]["run"])
    recorded = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**recorded, "device": "cuda: NVIDIA H200"}))
    answer = map_json(copy)
    endpoint = next(e for e in answer["models"][0]["endpoints"] if pathlib.Path(e["run"]) == run)
    check(endpoint["cost"]["memory"] is None, endpoint)
    check(endpoint["missing"]["memory"] == "only the host's memory was logged", endpoint)
    notes = [note for note in answer["notes"] if "no peak memory of" in note]
    check(len(notes) == 1 and "only the host's memory was logged" in notes[0], answer["notes"])


def check_core(matrix, place):
    """CORE is compared where the runs were asked the same questions: prompts of one length, of one bundle."""
    scored = place.run("scored")
    shutil.copytree(matrix, scored)

    def write_config(run, **core):
        text = (matrix / run / "config.yaml").read_text()
        fields = "".join(f"    {name}: {value}\n" for name, value in core.items())
        (scored / run / "config.yaml").write_text(text.replace("\neval:\n", f"\neval:\n  core:\n{fields}"))

    def write_evals(run, rows_each):
        folder = scored / run / "evals"
        folder.mkdir(exist_ok=True)
        tasks = [{"label": "copa", "shots": 0, "rows": rows_each, "baseline_percent": 50, "answers": "1" * rows_each}]
        (folder / f"step-{steps[run]:08d}.json").write_text(json.dumps({"core": {"tasks": tasks}}))

    steps = {}
    for run in sorted(path.parent.name for path in scored.glob("*/config.yaml")):
        steps[run] = rows(scored / run, "SELECT max(step) FROM eval WHERE task = 'val'")[0][0]
        db = sqlite3.connect(scored / run / "telemetry.db")
        db.execute("INSERT INTO eval (step, task, metric, value, n) VALUES (?, 'core', 'core', ?, 9)", (steps[run], 0.1 + steps[run] / 1000))
        db.commit()
        db.close()
        write_config(run, bundle="/data/eval_bundle")
    answer = map_json(scored, "--measure", "core")
    check(answer["measure"] == "core" and near(answer["models"][0]["endpoints"][0]["value"], 0.1 + 10 / 1000), answer)

    def refused(words):
        done = assay("map", scored, "--measure", "core")
        check(done.returncode == 1 and "error: CORE of the runs is not comparable: " in done.stderr and words in done.stderr, done.stderr)
        check(assay("map", scored).returncode == 0, "the losses are compared all the same")

    other = next(run for run in steps if run.startswith("moe"))
    write_config(other, bundle="/data/eval_bundle", max_tokens=16)
    refused(f"was scored with prompts of at most 32 tokens, {scored / other} with 16")
    write_config(other, bundle="/data/eval_bundle/", max_tokens=32)  # that of the others: run.sequence
    map_json(scored, "--measure", "core")
    write_config(other, bundle="/elsewhere/bundle")
    refused(f"was scored on the bundle eval_bundle, {scored / other} on bundle")
    for run in steps:  # what was scored counts more than a name
        write_evals(run, 7)
    map_json(scored, "--measure", "core")
    write_evals(other, 8)
    refused(f"was scored on other tasks or rows than {scored / other}")


def check_errors(matrix, place):
    other = place.run("other")
    shutil.copytree(matrix, other)
    for config in other.glob("moe-*/config.yaml"):
        config.write_text(config.read_text().replace(f"tokens: {EVAL_TOKENS}", "tokens: 1024"))
    stopped = place.run("stopped")
    place.train("stopped", "--set", "run.target_loss=100", "--set", "run.steps=40")
    empty = place.path / "empty"
    empty.mkdir()
    cases = [((empty,), "is no run and holds none"),
             ((stopped,), "none of the runs is an endpoint"),
             ((matrix, "--models", "dense"), "are all of one model, dense"),
             ((matrix, "--models", "dense,mixture"), "there is no model mixture"),
             ((matrix, "--axis", "joule"), "--axis joule is unknown"),
             ((matrix, "--measure", "core"), "none of the runs is an endpoint"),
             ((other,), f"the runs are not comparable: eval.tokens: {EVAL_TOKENS} in")]
    for arguments, words in cases:
        done = assay("map", *arguments)
        check(words in done.stderr and is_refusal(done), f"{arguments}: {done.stdout}{done.stderr}")
    check("stopped at its target loss" in assay("map", stopped).stderr, "the hint has the reason")
    # Without the matrix's record the models are named by what their runs have in common.
    answer = map_json(*sorted(path for path in matrix.glob("*-seed*") if path.is_dir()))
    check(len(answer["models"]) == 2 and answer["models"][0]["name"] == "dense", answer["models"])


def check_unread(matrix, place):
    """What cannot be read at this moment is no run that has not begun: an error, or a warning where others are left out."""
    claims = place.path / "m.yaml"

    def struck(call, how, number, *arguments):
        return assay(*arguments, env={**os.environ, "LD_PRELOAD": str(ASSAY.parent / "libtorture_faults.so"),
                                      "ASSAY_FAULTS_CALL": call, "ASSAY_FAULTS_PATH": "*/moe-*seed2/telemetry.db",
                                      "ASSAY_FAULTS_HOW": how, "ASSAY_FAULTS_NUMBER": str(number)})

    for call, how, number, words in (("open-read", "EMFILE", 1, "ulimit -n"), ("read", "EIO", 1, "disk I/O error"),
                                     ("read", "EIO", 4, "is malformed")):
        done = struck(call, how, number, "published", "scoreboard", matrix, "--claims", claims, "-o", place.path / "s.md")
        check(words in done.stderr and is_refusal(done), f"{call}: {done}")
        done = struck(call, how, number, "matrix", claims, "--run-dir", matrix, "--summary")
        warned = "warning: " in done.stderr and "counts as unfinished" in done.stderr
        check(done.returncode == 0 and (warned or "12 of 12 cells are done." in done.stdout), f"{call}: {done}")
        done = struck(call, how, number, "map", matrix, "--json")
        expected = "warning: left out: " if number == 4 else "error: "
        check(done.returncode == (number != 4) and expected in done.stderr, f"{call}: {done}")


def main():
    os.environ["ASSAY_POWERCAP"] = "/nonexistent"  # as on a machine without counters
    with Workplace() as place:
        (place.path / "m.yaml").write_text(MATRIX)
        matrix = place.run("m")
        done = assay("matrix", place.path / "m.yaml", "--run-dir", matrix)
        check(done.returncode == 0, done.stdout + done.stderr)
        answer = map_json(matrix)
        check_endpoints(answer, matrix)
        check_difference(answer)
        check_text(matrix)
        check_used(matrix, place)
        check_dense_blocks(matrix, place)
        check_energy(matrix, place)
        check_claims(matrix, place)
        check_left_out(matrix, place)
        check_training_text(matrix, place)
        check_confounds(matrix, place)
        check_gpu_memory(matrix, place)
        check_core(matrix, place)
        check_errors(matrix, place)
        check_unread(matrix, place)
    print("map: ok")


if __name__ == "__main__":
    main()
