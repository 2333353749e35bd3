"""A small evaluation bundle of the form of CORE, for tests of runs."""
import json
import random

WORDS = "the cat sat on a mat and saw two old dogs near river while many birds sang over green hills".split()
TASKS = {"choice": ("multiple_choice", 2), "schema": ("schema", 0), "language": ("language_modeling", 1)}
# The 22 tasks of CORE by name, with rows of these kinds.
CORE = {label: kind for label, kind in zip(
    ("hellaswag_zeroshot jeopardy bigbench_qa_wikidata arc_easy arc_challenge copa commonsense_qa piqa openbook_qa lambada_openai "
     "hellaswag winograd winogrande bigbench_dyck_languages agi_eval_lsat_ar bigbench_cs_algorithms bigbench_operators "
     "bigbench_repeat_copy_logic squad coqa boolq bigbench_language_identification").split(), list(TASKS.values()) * 8)}
FOLDERS = {"multiple_choice": "mc", "schema": "schema", "language_modeling": "lm"}


def write_bundle(folder, absent=("absent",), rows_each=40, tasks=TASKS):
    draw = random.Random(7)

    def phrase(count):
        return " ".join(draw.choice(WORDS) for _ in range(count))

    def row(kind):
        if kind == "multiple_choice":
            return {"query": phrase(6), "choices": [phrase(2) for _ in range(3)], "gold": draw.randrange(3)}
        if kind == "schema":
            return {"context_options": [phrase(5), phrase(5)], "continuation": phrase(2), "gold": draw.randrange(2)}
        return {"context": phrase(6), "continuation": phrase(1)}

    yaml, table = ["icl_tasks:"], ["Eval Task,Random baseline"]
    for label, (kind, shots) in {**tasks, **{name: ("schema", 0) for name in absent}}.items():
        yaml += [f"- label: {label}", f"  dataset_uri: {FOLDERS[kind]}/{label}.jsonl", f"  num_fewshot: [{shots}]",
                 f"  icl_task_type: {kind}"]
        table.append(f"{label},{ {'multiple_choice': 33.3, 'schema': 50, 'language_modeling': 0}[kind]}")
        if label in absent:
            continue
        path = folder / "eval_data" / FOLDERS[kind] / f"{label}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row(kind)) + "\n" for _ in range(rows_each)))
    (folder / "core.yaml").write_text("\n".join(yaml) + "\n")
    (folder / "eval_meta_data.csv").write_text("\n".join(table) + "\n")
