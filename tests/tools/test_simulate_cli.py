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


def changed(results, change):
    """A copy of results.json in which change() has altered a value."""
    copy = json.loads(json.dumps(results))
    change(copy)
    return copy


def row(results, op):
    """Of the profile of dense."""
    return next(r for r in results["steps_of_models"]["profile_dense"]["profile"] if r["op"] == op)


def check_measured(folder):
    """--measured: shares of the clusters' limits, whatever the file's own; bf16 profiles alone; no nonsense."""
    heated = json.loads((ROOT / "bench/results/h200/2026-11-27/steps.json").read_text())
    file = folder / "results.json"
    dense = SPEEDRUN / "dense.yaml"

    def run(change=lambda results: None, *more):
        file.write_text(json.dumps(changed(heated, change)))
        return assay(dense, "--measured", file, *more)

    def models(done):
        check(done.returncode == 0, done.stderr)
        return json.loads(done.stdout)["models"]

    done = run(lambda results: None, "--json")
    assumed = ["cast", "rope_backward", "swiglu_backward", "tree_sum"]
    told = f"note: {file} has no times of {', '.join(assumed)}: 0.85 of the limit is assumed\n"
    check(done.stderr == told, done.stderr)
    check(json.loads(done.stdout)["assumed_share"] == {"share": 0.85, "ops": assumed}, done.stdout[:2000])
    as_it_is = models(done)
    step = heated["steps_of_models"]["step_dense"]["step_ms_p50"]
    found = as_it_is["dense"]["mappings"][0]["now"]["step_ms"]
    check(abs(found / step - 1) < 0.07, f"{found} ms, measured {step}")

    def cold(results):
        results["limits"].update(matmul_tflop_per_s=802.05, copy_tb_per_s=3.9595)

    def fp8(results):
        other = json.loads(json.dumps(results["steps_of_models"]["profile_dense"]))
        other["recipe"] = "fp8_block"
        for one in other["profile"]:
            one["ms"] *= 3
        results["steps_of_models"]["profile_dense_fp8_block_native"] = other

    check(models(run(cold, "--json")) == as_it_is, "limits of a cold card give other times")
    check(models(run(fp8, "--json")) == as_it_is, "a profile of fp8 gives other times")

    def other_gpu(results):
        results["limits"]["device"] = "NVIDIA Imagined"

    def too_fast(results):
        for name, profile in results["steps_of_models"].items():
            for one in profile.get("profile", []) if name.startswith("profile_") else []:
                if one["op"] == "linear_wgrad":
                    one["gflop_per_s"] *= 3

    check("note: " in (noted := run(other_gpu).stderr) and "no cluster has limits of NVIDIA Imagined" in noted, noted)
    check("linear_wgrad reached " in (noted := run(too_fast).stderr) and "of the limit of products" in noted, noted)
    nonsense = ((lambda r: row(r, "linear_forward").update(ms=0), "linear_forward: 0 ms"),
                (lambda r: row(r, "linear_forward").update(ms=-1), "linear_forward: -1 ms"),
                (lambda r: row(r, "zero").update(gbyte_per_s=0, gflop_per_s=0), "zero: "),
                (lambda r: r["limits"].update(matmul_tflop_per_s=0), "limits must be above 0"),
                (lambda r: r["limits"].update(matmul_tflop_per_s=-802), "limits must be above 0"),
                (lambda r: r.update(commit="a\u001b[31m"), "commit is not one line of text"),
                (lambda r: r.update(steps_of_models={}), "no profile of a step in recipe bf16"))
    for change, message in nonsense:
        done = run(change)
        check(is_refusal(done, error=message, hint="--measured takes a results.json"), f"{message}: {done.stderr}")


def check_sizes():
    dense, sparse = SPEEDRUN / "dense.yaml", SPEEDRUN / "moe-64.yaml"
    found = predicted(sparse, "--nodes", "1,1", "--expert-ranks", "8,8")["models"]["moe-64"]["mappings"]
    check([(m["gpus"], m["expert_ranks"]) for m in found] == [(1, 1), (8, 8)], found)
    wide = [part for field in ("hidden=65536", "heads=512", "head_dim=128", "layers=120", "ffn=262144")
            for part in ("--set", "model." + field)]
    more = ["--nodes", "512", "--set", "run.batch_tokens=8388608", "--set", "run.micro_batch=1"]
    many = [SPEEDRUN / "moe-256.yaml", "--set", "model.moe.experts=16384", *more]
    refused = (([dense, *wide], "can be simulated", "smaller model"), (many, "on 4096 GPUs", "fewer --nodes"))
    for arguments, error, hint in refused:
        done = assay(*arguments)
        check(is_refusal(done, error=error, hint=hint), f"{arguments}: {done.stderr}")


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
    check("ops without a measured share, 0.85 assumed: cast, tree_sum\n" in text and "at commit f7148fb" in text, text)
    check_sizes()

    with tempfile.TemporaryDirectory() as folder:
        check_measured(pathlib.Path(folder))
        links = pathlib.Path(folder) / "links.json"
        links.write_text('{"node": {"gbyte_per_s": 34, "alpha_us": 20, "from": "measured by nccl-tests"}}')
        slower = predicted(models[0], "--links", links)
        check(slower["node"]["from"] == "measured by nccl-tests", slower["node"])
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
        strange = {"huge": '1e305, "alpha_us": 20, "from": "a"', "tiny": '1e-320, "alpha_us": 20, "from": "a"',
                   "slow": '34, "alpha_us": 1e300, "from": "a"', "escape": r'34, "alpha_us": 20, "from": "a\u001b[31m"',
                   "lines": r'34, "alpha_us": 20, "from": "a\nb"'}
        for name, link in strange.items():
            (pathlib.Path(folder) / name).write_text(f'{{"node": {{"gbyte_per_s": {link}}}}}')
            done = assay(models[0], "--links", pathlib.Path(folder) / name)
            lines = name in ("escape", "lines")
            problem = "from must be one line" if lines else "gbyte_per_s must be from 1e-6 to 1e6, alpha_us from 0"
            check(is_refusal(done, error=problem, hint="links are"), f"{name}: {done.stderr}")
        link = '{"gbyte_per_s": 34, "alpha_us": 20, "from": "here"}'
        idle = predicted(models[1], "--set", "precision.override=[experts.fprop=bf16]")
        check(idle["models"]["moe-64"]["mappings"][0] == found["models"]["moe-64"]["mappings"][0], idle)
        refused = (([models[0], "--links", bad], "gbyte_per_s must be from 1e-6 to 1e6"),
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
                   ([models[0], "--nodes", "513"], "--nodes"),
                   ([models[0], "--set", "optimizer.kind=muon"], "were not measured: it has optimizer.kind muon\n"),
                   ([models[0], "--set", "optimizer.state=bf16"], "were not measured: it has optimizer.state bf16\n"))
        for arguments, message in refused:
            done = assay(*arguments)
            check(message in done.stderr and is_refusal(done), f"{message}: {done.stderr}")
            check("json.exception" not in done.stderr, done.stderr)
    print("simulate: ok")


main()
