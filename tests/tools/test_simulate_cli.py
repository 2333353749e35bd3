#!/usr/bin/env python3
"""`assay simulate`: a table and JSON that agree and say what they are, links of a file, and what it refuses."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ASSAY = os.environ.get("ASSAY_BINARY", str(ROOT / "build" / "assay"))
SPEEDRUN = ROOT / "models/presets/speedrun"


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def assay(*arguments):
    return subprocess.run([ASSAY, "simulate", *map(str, arguments)], capture_output=True, text=True)


def predicted(*arguments):
    done = assay(*arguments, "--json")
    check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)


def main():
    models = [SPEEDRUN / "dense.yaml", SPEEDRUN / "moe-64.yaml"]
    found = predicted(*models, "--nodes", "1,2", "--expert-ranks", "1,8")
    check(found["status"] == "predicted, not measured" and found["cluster"] == "h200x8", found["status"])
    gpus = {name: [(m["gpus"], m["expert_ranks"]) for m in model["mappings"]] for name, model in found["models"].items()}
    check(gpus == {"dense": [(1, 1), (8, 1), (16, 1)], "moe-64": [(1, 1), (8, 1), (8, 8), (16, 1), (16, 8)]}, gpus)
    for name, model in found["models"].items():
        for m in model["mappings"]:
            check(m["gpus"] * m["micro_batch"] * m["micro_batches"] * 2048 == model["batch_tokens"], f"{name}: {m}")
            check((m["now"] is None) == (m["expert_ranks"] > 1), f"{name}: {m}")
            rate = model["batch_tokens"] / (1e-3 * m["overlapped"]["step_ms"])
            check(abs(rate / m["overlapped"]["tokens_per_s"] - 1) < 1e-9, f"{name}: {m}")
        for number in {m["gpus"] for m in model["mappings"]}:
            best = [m for m in model["mappings"] if m["gpus"] == number and m["best_that_fits"]]
            check(len(best) == 1 and best[0]["fits"], f"{name} on {number}: {best}")

    # A row that a dense model cannot have is named.
    done = assay(*models, "--expert-ranks", "8,2", "--json")
    check(done.returncode == 0 and done.stderr == "note: dense has no experts to share: no row with 8, 2 expert ranks\n", done.stderr)
    check(len(json.loads(done.stdout)["models"]["dense"]["mappings"]) == 1, done.stdout)

    # The memory and the bytes of a mapping are those that train plans.
    def planned(model):
        plan = json.loads(subprocess.run([ASSAY, "train", str(model), "--plan", "--ranks", "8", "--device", "cuda", "--json",
                                          "--set", "data.train=[nowhere.bin]", "--set", "data.val=[nowhere.bin]"],
                                         capture_output=True, text=True).stdout)
        sections = plan["section_bytes"]
        return plan, plan["total_bytes"] - sections["read by the host"] - sections["data"]

    plan, on_device = planned(models[0])
    eight = found["models"]["dense"]["mappings"][1]
    check(eight["memory_bytes"] == on_device, f"{eight['memory_bytes']}, planned {on_device}")
    # Expert ranks are those of the configuration unless they are given; two files of one name keep their folders.
    names = [str(ROOT / "models/presets/super" / name) for name in ("8-gpu/1024.yaml", "1024.yaml")]
    shared = predicted(*names)["models"]
    check(list(shared) == names, list(shared))
    check([[(m["gpus"], m["expert_ranks"]) for m in shared[name]["mappings"]] for name in names] == [[(1, 1), (8, 8)], [(1, 1), (8, 1)]], shared)
    of_plan = planned(names[0])[1]
    check(shared[names[0]]["mappings"][1]["memory_bytes"] == of_plan, f"{shared[names[0]]['mappings'][1]}, planned {of_plan}")
    most = max(plan["sent_bytes_by_rank"]["step"])
    check(eight["sent_bytes"] == most, f"{eight['sent_bytes']}, listed {most}")

    text = assay(*models).stdout
    check(text.startswith("predicted, not measured: NVIDIA H200") and "assumed: NCCL" in text, text)

    with tempfile.TemporaryDirectory() as folder:
        links = pathlib.Path(folder) / "links.json"
        links.write_text('{"node": {"gbyte_per_s": 34, "alpha_us": 20, "from": "measured by bench_comm"}}')
        slower = predicted(models[0], "--links", links)
        check(slower["node"]["from"] == "measured by bench_comm", slower["node"])
        eighth = slower["models"]["dense"]["mappings"][1]
        check(eighth["now"]["exposed_ms"]["gradients"] > 3 * eight["now"]["exposed_ms"]["gradients"], eighth)
        bad = pathlib.Path(folder) / "bad.json"
        bad.write_text('{"node": {"gbyte_per_s": 0, "alpha_us": 20, "from": ""}}')
        misspelt = pathlib.Path(folder) / "misspelt.json"
        link = '{"gbyte_per_s": 34, "alpha_us": 20, "from": "here"}'
        misspelt.write_text(f'{{"node": {link}, "netwrok": {link}}}')
        no_json = pathlib.Path(folder) / "no.json"
        no_json.write_text("{node")
        inner = pathlib.Path(folder) / "inner.json"
        inner.write_text('{"node": ' + link.replace("}", ', "gb_per_s": 50}') + "}")
        idle = predicted(models[1], "--set", "precision.override=[experts.fprop=bf16]")
        check(idle["models"]["moe-64"]["mappings"][0] == found["models"]["moe-64"]["mappings"][0], idle)
        refused = (([models[0], "--links", bad], "gbyte_per_s must be above 0"),
                   ([models[0], "--links", misspelt], "misspelt.json: unknown key netwrok\nhint: did you mean network? links are"),
                   ([models[0], "--links", no_json], "no.json: parse error at line 1, "),
                   ([models[0], "--links", inner], "inner.json: node: unknown key gb_per_s\nhint: "),
                   ([models[1], "--set", "precision.override=[experts=mxfp8]"], "were not measured"),
                   ([models[0], "--measured", links], "--measured takes a results.json"),
                   ([models[0], "--cluster", "tpu"], "one of h100x8, h200x8, b200x8"),
                   ([models[0], "--nodes", "536870912"], "--nodes"),
                   ([models[0], "--nodes", "3"], "24 GPUs do not divide the 256 sequences of a step"),
                   ([models[1], "--expert-ranks", "3"], "3 expert ranks on 8 GPUs"),
                   ([models[0], "--set", "precision.recipe=fp8_block"], "were not measured"),
                   ([models[0], "--set", "optimizer.kind=muon"], "were not measured"))
        for arguments, message in refused:
            done = assay(*arguments)
            check(message in done.stderr and is_refusal(done), f"{message}: {done.stderr}")
            check("json.exception" not in done.stderr, done.stderr)
    print("simulate: ok")


main()
