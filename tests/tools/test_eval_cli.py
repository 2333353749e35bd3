#!/usr/bin/env python3
"""assay eval as a user calls it: a run, a checkpoint, a small CORE bundle, and what cannot be evaluated."""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import Workplace, assay, rows

failures = []

CORE = """icl_tasks:
- {label: colours, dataset_uri: a/colours.jsonl, num_fewshot: [2], icl_task_type: multiple_choice}
- {label: who, dataset_uri: a/who.jsonl, num_fewshot: [0], icl_task_type: schema}
- {label: next, dataset_uri: a/next.jsonl, num_fewshot: [1], icl_task_type: language_modeling, continuation_delimiter: "\\nAnswer: "}
"""
META = 'Eval Task,Category,Random baseline\ncolours,"x, y",25\nwho,z,50\nnext,z,0\nabsent,z,50\n'


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def refused(part, *arguments):
    done = assay("eval", *arguments)
    lines = done.stderr.splitlines()[-2:]
    expect(done.returncode == 1 and len(lines) == 2 and lines[0].startswith("error: ") and
           lines[1].startswith("hint: ") and part in lines[0], f"eval {arguments}: {done.returncode} {done.stderr}")


def evaluated(*arguments):
    done = assay("eval", *arguments, "--json")
    expect(done.returncode == 0, f"eval {arguments}: exit {done.returncode}\n{done.stderr}")
    if done.returncode != 0:
        sys.exit("\n".join(failures))
    return json.loads(done.stdout)


def write_bundle(folder, core=CORE, choices=12):
    data = folder / "eval_data" / "a"
    data.mkdir(parents=True, exist_ok=True)
    (folder / "core.yaml").write_text(core)
    (folder / "eval_meta_data.csv").write_text(META)
    names = ["red", "blue", "green", "white"]
    (data / "colours.jsonl").write_text("".join(json.dumps(
        {"query": f"The ball number {i} was", "choices": names, "gold": i % 4}) + "\n" for i in range(choices)))
    (data / "who.jsonl").write_text("".join(json.dumps(
        {"context_options": [f"Ann saw {i} dogs and she", f"Ben saw {i} dogs and he"], "continuation": "was happy.",
         "gold": i % 2}) + "\n" for i in range(9)))
    (data / "next.jsonl").write_text("".join(json.dumps(
        {"context": f"One, two, {i} ", "continuation": str(i + 1)}) + "\n" for i in range(7)))


def check_loss(w):
    """The same figures as the run's own last evaluation."""
    said = evaluated(w.run("moe"))
    for metric in ("loss_nats", "bits_per_byte"):
        trained = rows(w.run("moe"), "SELECT value FROM eval WHERE task = 'val' AND step = 60 AND metric = "
                                     f"'{metric}'")[0][0]
        expect(said.get("val_" + metric) == trained, f"{metric}: {said} is not {trained}")
    at40 = evaluated(w.run("moe") / "checkpoints" / "step-00000050", "--tasks", "loss")
    expect(at40.get("step") == 50 and "val_bits_per_byte" not in at40, at40)


def check_core(w):
    bundle = w.path / "bundle"
    write_bundle(bundle)
    said = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle)
    core = said["core"]
    expect(core["core"] is not None and core["missing"] == [], core)
    labels = {t["label"]: t for t in core["tasks"]}
    expect({k: (t["rows"], t["scored"]) for k, t in labels.items()} ==
           {"colours": (12, 12), "who": (9, 9), "next": (7, 7)}, labels)
    mean = sum(t["centered"] for t in core["tasks"]) / 3
    expect(math.isclose(core["core"], mean), core)
    for t in core["tasks"]:
        b = t["baseline_percent"] / 100
        expect(math.isclose(t["centered"], (t["accuracy"] - b) / (1 - b), abs_tol=1e-12), t)
    expect(core["prompts"] == 12 * 4 + 9 * 2 + 7, core)
    expect(core["rows_computed"] < 0.6 * core["prompt_tokens"], core)
    # One prompt at a time: the same answers, nothing shared.
    alone = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--one-at-a-time")["core"]
    expect([t["accuracy"] for t in alone["tasks"]] == [t["accuracy"] for t in core["tasks"]], alone)
    expect(alone["rows_computed"] == alone["prompt_tokens"] - alone["prompts"], alone)
    # What was measured before stays beside it.
    kept = json.loads((w.run("moe") / "evals" / "step-00000060.json").read_text())
    expect("val_loss_nats" in kept and kept["core"]["core"] == alone["core"], kept.keys())
    verified = assay("receipt", "verify", w.run("moe"))
    expect(verified.returncode == 0, verified.stdout + verified.stderr)


def check_partial(w):
    bundle = w.path / "partial"
    write_bundle(bundle, CORE + "- {label: absent, dataset_uri: a/absent.jsonl, num_fewshot: [0], "
                                "icl_task_type: schema}\n")
    done = assay("eval", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--max-tokens", "20")
    expect(done.returncode == 0 and "This is not CORE: 1 tasks have no file" in done.stdout and
           "mean of 3 of 4 tasks" in done.stdout, done.stdout + done.stderr)
    some = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "who", "--max-rows", "4")
    expect(some["core"]["core"] is None and len(some["core"]["missing"]) == 3 and
           some["core"]["tasks"][0]["rows"] == 4, some)
    # An answer that does not fit is counted, not scored wrong.
    short = evaluated(w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "who", "--max-tokens", "2")
    expect(short["core"]["tasks"][0]["accuracy"] is None and len(short["core"]["tasks"][0]["not_scored"]) == 9, short)


def check_refused(w):
    bundle = w.path / "bundle"
    refused("CORE needs its bundle", w.run("moe"), "--tasks", "core")
    refused("no CORE bundle in", w.run("moe"), "--tasks", "core", "--bundle", w.path)
    refused("no task chess", w.run("moe"), "--tasks", "core", "--bundle", bundle, "--core-tasks", "chess")
    refused("no run", w.path / "none")
    write_bundle(bundle, choices=2)
    refused("colours: 2 examples before each question, and 2 rows", w.run("moe"), "--tasks", "core", "--bundle", bundle)
    (bundle / "eval_data/a/who.jsonl").write_text('{"continuation": "x"}\n')
    write_again = bundle / "eval_data/a/colours.jsonl"
    write_again.write_text(write_again.read_text() * 6)
    refused("who.jsonl:1: the row has no 'context_options'", w.run("moe"), "--tasks", "core", "--bundle", bundle)


def main():
    with Workplace(moe=True) as w:
        w.train("moe")
        check_loss(w)
        check_core(w)
        check_partial(w)
        check_refused(w)
    if failures:
        sys.exit("\n".join(failures))
    print("eval: ok")


if __name__ == "__main__":
    main()
