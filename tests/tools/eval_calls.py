"""Calls of assay eval, and a small CORE bundle, for its tests."""
import json
import pathlib
import resource
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import assay
from refusals import is_refusal

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
    expect(is_refusal(done, part, said_before=True), f"eval {arguments}: {done}")


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


def no_file_grows():
    """Called in a child before it starts: every write to a file fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value
