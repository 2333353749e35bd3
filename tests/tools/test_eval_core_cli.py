#!/usr/bin/env python3
"""assay eval --tasks core as a user calls it: small bundles, in one process and in parts, and refusals."""
import json
import math
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
import core_bundle
from eval_calls import CORE, evaluated, expect, failures, no_file_grows, refused, without_seconds, write_bundle
from harness import ASSAY, ROOT, Workplace, assay, write_corpus


def check_core(w):
    bundle = w.path / "bundle"
    write_bundle(bundle)
    evaluated(w.run("moe"), "--tasks", "loss")
    said = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle)
    core = said["core"]
    expect(core["core"] is None and core["subsets"] == {} and core["missing"] == [], f"three tasks are not CORE: {core}")
    labels = {t["label"]: t for t in core["tasks"]}
    expect({k: (t["rows"], t["scored"]) for k, t in labels.items()} ==
           {"colours": (12, 12), "who": (9, 9), "next": (7, 7)}, labels)
    mean = sum(t["centered"] for t in core["tasks"]) / 3
    expect(math.isclose(core["present"]["mean_centered"], mean), core)
    shown = assay("eval", w.run("moe"), "--tasks", "core", "--bundle", bundle).stdout
    expect(f"mean of 3 of 3 tasks: {mean:.4f}" in shown and f"This is not CORE: the tasks of {bundle} are not its 22" in shown and
           "CORE-1" not in shown, shown)
    for t in core["tasks"]:
        b = t["baseline_percent"] / 100
        expect(math.isclose(t["centered"], (t["accuracy"] - b) / (1 - b), abs_tol=1e-12), t)
    expect(core["prompts"] == 12 * 4 + 9 * 2 + 7, core)
    expect(core["rows_computed"] < 0.6 * core["prompt_tokens"], core)
    # One prompt at a time gives the same answers and shares nothing.
    alone = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--one-at-a-time")["core"]
    expect([t["accuracy"] for t in alone["tasks"]] == [t["accuracy"] for t in core["tasks"]], alone)
    expect(alone["rows_computed"] == alone["prompt_tokens"] - alone["prompts"], alone)
    # Earlier measurements are kept in the same file.
    kept = json.loads((w.run("moe") / "evals" / "step-00000060.json").read_text())
    expect("val_loss_nats" in kept and kept["core"]["present"] == alone["present"], kept.keys())
    verified = assay("receipt", "verify", w.run("moe"))
    expect(verified.returncode == 0, verified.stdout + verified.stderr)
    check_origin(w)
    check_unreadable(w)
    check_all_tasks(w)


def check_all_tasks(w):
    """CORE is the mean of its 22 tasks, and its published parts are those of 18 and of 16 of them."""
    core_bundle.write_bundle(w.path / "all", absent=(), rows_each=4, tasks=core_bundle.CORE)
    options = [w.run("moe"), "--tasks", "core", "--bundle", w.path / "all", "--set", "run.threads=1"]
    core = evaluated(*options)["core"]
    mean = sum(t["centered"] for t in core["tasks"]) / 22
    expect(math.isclose(core["core"], mean) and [s["tasks"] for s in core["subsets"].values()] == [18, 16], core)
    shown = assay("eval", *options).stdout
    expect(f"\nCORE {mean:.4f} +- " in shown and "\nCORE-18 (" in shown and "\nCORE-16 (" in shown and "not CORE" not in shown, shown)
    # Examples of three rows alone are others: not CORE, and called as in training.
    three = (*options, "--max-rows", "3")
    few, shown = evaluated(*three)["core"], assay("eval", *three).stdout
    mean = sum(t["centered"] for t in few["tasks"]) / 22
    expect(few["core"] is None and math.isclose(few["present"]["mean_centered"], mean), few)
    expect(f"\ncore_of_at_most_3_rows_each {mean:.4f} +- " in shown and "\nCORE " not in shown and "which is not CORE" in shown and
           re.search(r"^CORE-18 .*, at most 3 rows each ", shown, re.M), shown)
    # A limit that leaves out no row is none: CORE, to the bit.
    same = evaluated(*options, "--max-rows", "4")["core"]
    expect(without_seconds(same) == without_seconds(core), f"--max-rows of all rows: {same}")
    some = evaluated(*options, "--core-tasks", ",".join(label for label in core_bundle.CORE if label != "squad"))["core"]
    expect(some["core"] is None and [s["tasks"] for s in some["subsets"].values()] == [18, 16] and some["missing"] == ["squad"], some)


def check_unreadable(w):
    """Rows are kept, and what was measured is printed with exit code 0, if the run's own record cannot even be read."""
    file, rows = w.run("moe") / "evals" / "step-00000060.json", w.path / "unrecorded.jsonl"
    kept = file.rename(file.with_suffix(".kept"))
    file.symlink_to(file.name)  # which leads to itself: root could read all else
    done = assay("eval", w.run("moe"), "--tasks", "core", "--bundle", w.path / "bundle", "--rows", rows)
    expect(done.returncode == 0 and f"warning: not recorded in the run: cannot read {file}: " in done.stderr and
           "mean of 3 of 3 tasks: " in done.stdout and "recorded in" not in done.stdout, done)
    expect(rows.exists() and rows.read_text().count("\n") == 12 + 9 + 7, "the rows are lost")
    kept.rename(file)


def check_origin(w):
    """What is kept in the file is not said to be of a later command, which measured something else."""
    file = w.run("moe") / "evals" / "step-00000060.json"
    keys = ("checkpoint", "commit", "device", "recipe", "phase")
    kept = json.loads(file.read_text())
    expect({k: kept["core"].get(k) for k in keys} == {k: kept[k] for k in keys}, kept)
    # As by another program, on another device: of CORE, and of the loss.
    core, loss = {k: f"core {k}" for k in keys}, {k: f"loss {k}" for k in keys}
    file.write_text(json.dumps({**kept, **loss, "core": {**kept["core"], **core}}))
    evaluated(w.run("moe"), "--tasks", "core", "--bundle", w.path / "bundle", "--max-rows", "4")
    later = json.loads(file.read_text())
    expect({k: later[k] for k in keys} == loss and {k: later["core"][k] for k in keys} == core, later)
    said = evaluated(w.run("moe"))
    later = json.loads(file.read_text())
    expect({k: later[k] for k in keys} == {k: said[k] for k in keys}, later)
    expect({k: later["core"][k] for k in keys} == core, later["core"])


def check_partial(w):
    bundle = w.path / "partial"
    write_bundle(bundle, CORE + "- {label: absent, dataset_uri: a/absent.jsonl, num_fewshot: [0], "
                                "icl_task_type: schema}\n")
    done = assay("eval", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--max-tokens", "20")
    expect(done.returncode == 0 and "This is not CORE: 1 tasks were not chosen, or have no file" in done.stdout and
           "mean of 3 of 4 tasks" in done.stdout, done.stdout + done.stderr)
    some = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "who", "--max-rows", "4")
    expect(some["core"]["core"] is None and len(some["core"]["missing"]) == 3 and
           some["core"]["tasks"][0]["rows"] == 4, some)
    kept = json.loads((w.run("moe") / "evals" / "step-00000060.json").read_text())
    expect(sum(task["rows"] for task in kept["core"]["tasks"]) > 4 and not kept["core"]["max_rows_per_task"], f"replaced by 4 rows: {kept}")
    done = assay("eval", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "who", "--max-rows", "4")
    expect("keeps its CORE, of more rows or longer prompts" in done.stderr and "recorded in" not in done.stdout, done)
    # An answer that does not fit is counted as not scored, not as wrong.
    short = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "who", "--max-tokens", "2")
    expect(short["core"]["tasks"][0]["accuracy"] is None and len(short["core"]["tasks"][0]["not_scored"]) == 9, short)


def check_parts(w):
    """Three parts of every third row each, merged, give the report of one process to the bit."""
    bundle = w.path / "parts"
    write_bundle(bundle)
    with (bundle / "eval_data/a/next.jsonl").open("a") as file:
        file.writelines(json.dumps({"context": f"Six, {i}", "continuation": ""}) + "\n" for i in range(4))
    core = ["--tasks", "core", "--bundle", bundle]
    files = []
    for i in (1, 2, 3):
        said = evaluated(w.run("moe"), *core, "--part", f"{i}/3")
        files.append(w.run("moe") / "evals" / f"step-00000060.core-{i}-of-3.json")
        expect(json.loads(files[-1].read_text()) == said and said["core_part"] == f"{i}/3", said)
    whole = evaluated(w.run("moe"), *core)["core"]
    # Some rows have no answer, so that the positions of unscored rows are tested too.
    expect([len(t["not_scored"]) for t in whole["tasks"]] == [0, 0, 4] and
           {r["why"] for r in whole["tasks"][2]["not_scored"]} == {"the answer is empty"}, whole)
    merged = evaluated("--merge", files[2], files[0], files[1])["core"]
    expect(without_seconds(merged) == without_seconds(whole), f"{merged}\n{whole}")
    expect(merged["present"]["standard_error"] == whole["present"]["standard_error"], merged)
    one = evaluated(w.run("moe"), *core, "--part", "1/1")
    expect(without_seconds(evaluated("--merge", w.run("moe") / "evals/step-00000060.core-1-of-1.json")["core"]) ==
           without_seconds(whole), one)
    elsewhere = w.path / "part.json"
    own = files[1].read_text()
    otherwise = [w.run("moe"), *core, "--part", "2/3", "--set", "precision.recipe=fp32"]
    refused("--set measures otherwise than the run, which keeps parts of its own score", *otherwise)
    evaluated(*otherwise, "--output", elsewhere)
    expect(json.loads(elsewhere.read_text())["origin"]["recipe"] == "fp32" and files[1].read_text() == own, "--part with --set")
    # The same recipe with other blocks in bf16: refused in either order.
    evaluated(*otherwise[:-1], "precision.bf16_first_layers=1", "--output", elsewhere)
    said = json.loads(elsewhere.read_text())["origin"]
    expect(said["precision"] == f"{said['recipe']}, first 1 blocks in bf16", said)
    expect("precision" not in json.loads(own)["origin"], "the plain recipe, as in parts of earlier versions")
    refused(f'precision is "{said["precision"]}", not null', "--merge", files[0], elsewhere, files[2])
    refused(f'precision is null, not "{said["precision"]}"', "--merge", elsewhere, files[0], files[2])
    evaluated(w.run("moe"), *core, "--part", "2/3", "--output", elsewhere)
    second = without_seconds(json.loads(files[1].read_text()))
    expect(without_seconds(json.loads(elsewhere.read_text())) == second, "--output")
    full = assay("eval", w.run("moe"), *core, "--part", "2/3", "--output", w.path / "full.json", preexec_fn=no_file_grows)
    expect(full.returncode == 1 and "on standard output instead" in full.stderr and not (w.path / "full.json").exists() and
           without_seconds(json.loads(full.stdout)) == second, full)
    text = assay("eval", "--merge", *files)
    expect(text.returncode == 0 and f"mean of 3 of 3 tasks: {whole['present']['mean_centered']:.4f}" in text.stdout, text)

    refused("part 2 of 3 is missing", "--merge", files[0], files[2])
    refused("parts 2, 3 of 3 are missing", "--merge", files[0])
    refused("are both part 1 of 3", "--merge", files[0], files[0], files[1], files[2])
    refused("is part 1/3", "--merge", files[0], w.run("moe") / "evals/step-00000060.core-1-of-1.json", files[1])

    def with_change(change):
        part = json.loads(files[1].read_text())
        change(part)
        changed = w.path / "changed.json"
        changed.write_text(json.dumps(part))
        return "--merge", files[0], changed, files[2]

    def change_answer(part):
        part["tasks"][0]["answers"] += "1"

    def change_mark(part):
        part["tasks"][0]["answers"] = "?" + part["tasks"][0]["answers"][1:]

    for part, change in [
            ("is not of the same evaluation as", lambda p: p.update(max_tokens=30)),
            ("is not of the same evaluation as", lambda p: p.update(step=50)),
            ("model.safetensors is \"0\", not", lambda p: p["origin"].update({"model.safetensors": "0"})),
            ("rows of who is \"0\", not", lambda p: p["origin"].update({"rows of who": "0"})),
            ("its task who differs", lambda p: p["tasks"][1].update(rows=8)),
            ("is damaged: colours has", change_answer),
            ("is damaged: answers of colours", change_mark),
            ("is damaged: 'answers' is missing", lambda p: p["tasks"][2].pop("answers")),
            ("is damaged: it has fewer tasks", lambda p: p["tasks"].pop()),
            ("is damaged: 'prompts' is missing", lambda p: p.update(prompts="many")),
            ("is damaged: 'origin' is missing", lambda p: p.pop("origin")),
            ("is damaged: core_part is 2", lambda p: p.update(core_part=2)),
            ("changed.json is damaged: '2 of 3' is not a part I/N", lambda p: p.update(core_part="2 of 3")),
            ("is not a part of a CORE evaluation", lambda p: p.pop("core_part"))]:
        refused(part, *with_change(change))
    (w.path / "changed.json").write_text(files[1].read_text()[:200])
    refused("is not a part of a CORE evaluation", "--merge", files[0], w.path / "changed.json", files[2])


def check_shared_scales(w):
    """Where rows that are computed together share a scale, a part has whole blocks of 256 rows, as one process."""
    bundle, file = w.path / "shared", w.path / "shared.jsonl"
    write_bundle(bundle, choices=600)
    options = [w.run("moe"), "--tasks", "core", "--bundle", bundle, "--device", "cpu", "--set", "precision.recipe=fp8_tensor"]
    whole = evaluated(*options, "--rows", file)["core"]
    said, of_parts, parts = file.read_text().splitlines(), [], [w.path / f"shared-{i}.json" for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        origin = evaluated(*options, "--part", f"{i}/2", "--rows", file, "--output", part)["origin"]
        expect((origin["block"], origin["batch"]) == (256, 2048), origin)
        of_parts += file.read_text().splitlines()
    expect(sorted(of_parts) == sorted(said), "the scores of the rows, to the bit")
    merged = evaluated("--merge", *parts)["core"]
    expect(without_seconds(merged) == without_seconds(whole), f"{merged}\n{whole}")

    def as_before(part, block):
        """An earlier version's, with every second row instead of every second block."""
        content = json.loads(part.read_text())
        for key in ("block", "batch"):
            content["origin"].pop(key)
        if block is not None:
            content["origin"]["block"] = block
        for task in content["tasks"]:
            answers = next(t["answers"] for t in whole["tasks"] if t["label"] == task["label"])
            task["answers"] = answers[int(content["core_part"][0]) - 1::2]
        before = part.with_suffix(".before")
        before.write_text(json.dumps(content))
        return before
    merged = evaluated("--merge", *(as_before(part, None) for part in parts))["core"]
    expect(without_seconds(merged) == without_seconds(whole), f"{merged}\n{whole}")
    refused("block is null, not 256", "--merge", parts[0], as_before(parts[1], None))
    refused("is damaged: block is 0", "--merge", *(as_before(part, 0) for part in parts))
    for more, batch in ((("--batch", "1024"), "1024"), (("--one-at-a-time",), '"one prompt"')):
        evaluated(*options, "--part", "2/2", *more, "--output", parts[1])
        refused(f"batch is {batch}, not 2048", "--merge", *parts)


def check_rows(w):
    """Each row's answer, with what decides it, adds up to the report; the same file from two processes."""
    bundle, file = w.path / "parts", w.path / "rows.jsonl"
    options = [w.run("moe"), "--tasks", "core", "--bundle", bundle, "--rows", file]
    core = evaluated(*options)["core"]
    said = file.read_text()
    for task in core["tasks"]:
        own = [row for row in map(json.loads, said.splitlines()) if row["task"] == task["label"]]
        expect(sorted(row["line"] for row in own) == list(range(1, task["rows"] + 1)), own)
        marks = "".join("-" if "not_scored" in row else str(int(row["right"])) for row in own)
        expect(marks == task["answers"], f"{marks}, {task}")
        for row in own:
            expect(row["kind"] == task["kind"], row)
            if "not_scored" in row:
                expect(row["not_scored"] == "the answer is empty" and "right" not in row, row)
            elif row["kind"] == "language_modeling":
                expect(len(row["nats_per_token"]) == len(row["tokens"]) == 1 and "chosen" not in row, row)
            else:
                nats = row["nats_per_token"]
                expect(len(nats) == len(row["tokens"]) == {"colours": 4, "who": 2}[row["task"]], row)
                expect(row["chosen"] == nats.index(min(nats)) and row["right"] == (row["chosen"] == row["gold"]) and
                       row["gold"] == (row["line"] - 1) % len(nats), row)
    if (ASSAY.parent / "libassay_mpi.so").exists():
        evaluated(*options, "--ranks", "2")
        expect(file.read_text() == said, "the rows of two processes")
    evaluated(*options, "--part", "2/3")
    expect(file.read_text().count("\n") == (12 + 2) // 3 + 9 // 3 + (11 + 1) // 3, "the rows of a part")
    refused("--rows is only for core", w.run("moe"), "--rows", file)
    refused("nowhere", *options[:-1], w.path / "nowhere" / "rows.jsonl")


def check_tokenizer(w):
    """CORE in the tokens of another tokenizer is no figure of the run: it is compared with what is left of the run's."""
    core = ["--tasks", "core", "--bundle", w.path / "bundle"]
    write_corpus(w, "words", "the small cat sat on a red mat and saw two big dogs run home".split(), 300)
    other, own, words = w.path / "other.json", w.path / "tokenizer.json", w.path / "words"
    done = assay("tokenizer", "train", ROOT / "README.md", "--vocab-size", "400", "-o", other)
    expect(done.returncode == 0, done)

    def rewritten(tokenizer, name):
        """The same tokenizer in other bytes."""
        (w.path / name).write_text(json.dumps(json.loads(tokenizer.read_text()), indent=3))
        return w.path / name

    # Of generated text the corpus has it.
    refused("other.json is another tokenizer than the run's, ", w.run("moe"), *core, "--tokenizer", other)
    read = json.loads((w.run("moe") / "meta.json").read_text())["data_sha256"]
    corpus = next(pathlib.Path(path) for path in read if path.endswith("tokenizer.json"))
    done = assay("eval", w.run("moe"), *core, "--tokenizer", rewritten(corpus, "synth.json"))
    expect(done.returncode == 0 and "mean of 3 of 3 tasks: " in done.stdout, done)
    # A corpus that is not in the cache any more is not made again for this.
    cache = w.path / "own-cache"
    w.train("emptied", "--steps", "1", "--set", f"data.cache={cache}")
    corpus = next(cache.glob("synth-*"))
    given = rewritten(corpus / "tokenizer.json", "emptied.json")
    shutil.rmtree(corpus)
    done = assay("eval", w.run("emptied"), *core, "--tokenizer", given)
    expect(done.returncode == 0 and "nothing is left to compare" in done.stderr and not list(cache.glob("synth-*")), done)
    # Of files their manifest knows it, when the tokenizer's own file is gone.
    run, record = w.run("own"), w.run("own") / "evals" / "step-00000002.json"
    w.train("own", *(word for one in ("data.synth=null", f"data.tokenizer={own}", f"data.train=[{words}/*_train_*.bin]",
                                      f"data.val=[{words}/*_val_*.bin]", "eval.tokens=64", "run.steps=2", "schedule.warmup=0",
                                      "schedule.warmdown=0") for word in ("--set", one)))
    kept, again = own.rename(w.path / "kept.json"), rewritten(w.path / "kept.json", "again.json")
    for given in (kept, again):
        evaluated(run, *core, "--tokenizer", given)
        expect(record.exists(), f"CORE with {given} is not recorded")
        record.unlink(missing_ok=True)
    refused("other.json is another tokenizer than the run's, ", run, *core, "--tokenizer", other)
    # Without it only the run's own bytes are known.
    (words / "manifest.json").unlink()
    evaluated(run, *core, "--tokenizer", kept)
    expect(record.exists(), "CORE with the run's tokenizer is not recorded")
    before = record.read_text()
    for given in (other, again):
        done = assay("eval", run, *core, "--tokenizer", given)
        expect(done.returncode == 0 and "warning: CORE is not recorded in the run: nothing is left to compare" in done.stderr and
               "recorded in" not in done.stdout and record.read_text() == before, done)
    refused("and the run has not read it", run, *core, "--tokenizer", other, "--part", "1/2")
    kept.rename(own)


def check_refused(w):
    bundle = w.path / "bundle"
    refused("CORE needs its bundle", w.run("moe"), "--tasks", "core")
    refused("--output is only for --part", w.run("moe"), "--output", w.path / "x.json")
    for option in (["--bundle", bundle], ["--core-tasks", "who"], ["--max-rows", "5"], ["--max-tokens", "9"], ["--one-at-a-time"],
                   ["--batch", "64"], ["--tokenizer", w.path / "none"]):
        refused(f"{option[0]} is only for core", w.run("moe"), *option)
    refused("--part 1/2 is of one process", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--part", "1/2", "--ranks", "2")
    for option in (["--max-rows", "5"], ["--tasks", "loss"], ["--set", "precision.recipe=fp32"], ["--ranks", "2"],
                   ["--device", "cpu"], ["--plan"]):
        refused(f"--merge takes no {option[0]}", "--merge", w.path / "x.json", *option)
    refused("no CORE bundle in", w.run("moe"), "--tasks", "core", "--bundle", w.path)
    refused("no task chess", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "chess")
    write_bundle(bundle, choices=2)
    refused("colours: 2 examples before each question, and 2 rows", w.run("moe"), "--tasks", "core", "--bundle", bundle)
    (bundle / "eval_data/a/who.jsonl").write_text('{"continuation": "x"}\n')
    write_again = bundle / "eval_data/a/colours.jsonl"
    write_again.write_text(write_again.read_text() * 6)
    refused("who.jsonl:1: the row has no 'context_options'", w.run("moe"), "--tasks", "core", "--bundle", bundle)


def main():
    with Workplace(moe=True, sequence=64) as w:
        w.train("moe")
        check_core(w)
        check_partial(w)
        check_parts(w)
        check_shared_scales(w)
        check_rows(w)
        check_tokenizer(w)
        check_refused(w)
    if failures:
        sys.exit("\n".join(failures))
    print("eval of CORE: ok")


if __name__ == "__main__":
    main()
