#!/usr/bin/env python3
"""assay tune, and runs with its file, with the CUDA kernels on the SIMT emulator and cuBLASLt's files on a library of ours
(build/assay_on_cublaslt, tests/cuda/fake_cublaslt.cpp): the choice, its bits, resume, evaluation, receipts, refusals."""
import json
import os
import signal
import subprocess
import sys

from harness import ASSAY, Workplace, assay, check, checkpoints, first_difference, newest_tensors
from refusals import is_refusal

SMALL = ["--set", "model.layers=1", "--set", "run.steps=4", "--set", "run.batch_tokens=64", "--set", "run.micro_batch=1",
         "--set", "run.checkpoint_every=2", "--set", "eval.every=4", "--set", "eval.tokens=128",
         "--set", "telemetry.probe_tokens=64", "--set", "schedule.warmup=1", "--set", "schedule.warmdown=1",
         "--set", "precision.recipe=bf16"]
GPU = ["--device", "cuda"]


def with_environment(variable, value, call):
    os.environ[variable] = value
    try:
        return call()
    finally:
        del os.environ[variable]


def tuned(w, name, *more):
    done = with_environment("ASSAY_FAKE_CUBLASLT_TIMED", "1", lambda: assay(
        "tune", w.config, *SMALL, "-o", w.path / name, "--rounds", "3", "--heat", "0", *more))
    check(done.returncode == 0, done.stderr)
    return done, json.loads((w.path / name).read_text())


def cut(run):
    """Cuts a run back to its state after two steps."""
    for folder in checkpoints(run)[1:]:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def products(run):
    return json.loads((run / "products.json").read_text())["devices"]


def refused(done, *parts):
    check(is_refusal(done, said_before=True, printed=True), done.stderr)
    for part in parts:
        check(part in done.stderr, f"no {part!r} in {done.stderr}")


with Workplace() as w:
    # The file: the fastest for each product, of this GPU and library.
    done, file = tuned(w, "tune.json", "--workspace", "32")
    check((file["gpu"], file["capability"], file["cublaslt"], file["workspace_bytes"]) ==
          ("executor on the CPU", 90, 130100, 32 << 20), file)
    check(len(file["products"]) > 8 and all(p["algorithm"]["split_k"] == 2 and p["algorithm"]["reduction"] == 2 and
          p["us"] < p["first"]["us"] and p["first"]["algorithm"]["tile"] == 20 and p["proposals"] == 3 for p in file["products"]), file)
    check(f"1/{len(file['products'])} (" in done.stderr and "eta" in done.stderr and "wrote" in done.stdout, done.stdout + done.stderr)
    kinds = {(p["product"]["result"], p["product"]["added"], p["product"]["a"]["form"]) for p in file["products"]}
    # Those of the first micro-batch, which stores gradients, and of the others, which add.
    check(all((result, added, form) in kinds for result, added, form in
              (("float", "nothing", "transposed"), ("float", "in_place", "transposed"), ("bf16", "other", "plain"))), kinds)
    # A larger workspace lets in another one, and a run plans it.
    done, large = tuned(w, "large.json", "--json")
    said = json.loads(done.stdout)
    check(said["workspace_bytes"] == 128 << 20 and said["products"] == len(large["products"]) == said["changed"] and
          said["micro_batch_us"] < said["micro_batch_first_us"], said)
    check(all(p["algorithm"]["id"] == 70 and p["workspace_bytes"] == 64 << 20 for p in large["products"]), large)

    def planned(*more):
        done = assay("train", w.config, *SMALL, *GPU, "--plan", "--json", *more)
        check(done.returncode == 0, done.stderr)
        return next(b["bytes"] for b in json.loads(done.stdout)["buffers"] if b["name"] == "workspace")
    check((planned(), planned("--tune", w.path / "tune.json"), planned("--tune", w.path / "large.json")) ==
          (32 << 20, 32 << 20, 128 << 20), "the workspace that is planned")

    # Without a file the record says what the library proposed; with one the bits are those of its choices, each time.
    w.train("plain", *GPU, *SMALL)
    device = products(w.run("plain"))[0]
    check(device["tune_sha256"] == "" and all(p["by"] == "library" and p["algorithm"]["tile"] == 20 for p in device["products"]), device)
    check(not (w.run("plain") / "tune.json").exists(), "a tune file without --tune")
    for name in ("one", "two"):
        w.train(name, *GPU, *SMALL, "--tune", str(w.path / "tune.json"))
    check(first_difference(w.run("one"), w.run("two")) is None, "the same run twice")
    check(newest_tensors(w.run("one"))[1:] != newest_tensors(w.run("plain"))[1:], "the choices change the bits")
    check((w.run("one") / "tune.json").read_bytes() == (w.path / "tune.json").read_bytes(), "the copy")
    meta = json.loads((w.run("one") / "meta.json").read_text())
    device = products(w.run("one"))[0]
    check(meta["products_library"] == "cuBLASLt 13.1.0" and meta["tune_sha256"] == device["tune_sha256"] and
          len(meta["tune_sha256"]) == 64 and sum(p["by"] == "tuning" for p in device["products"]) >= len(file["products"]) - 2, device)
    receipt = json.loads((w.run("one") / "receipt.json").read_text())
    check([i["path"] for i in receipt["inputs"] if i["kind"] == "products"] == ["tune.json", "products.json"] and
          receipt["environment"]["tune_sha256"] == meta["tune_sha256"], receipt["inputs"])
    done = assay("receipt", "verify", w.run("one"), "--rerun", "2")
    check("rerun of 2 steps" in done.stdout and "drift" not in done.stdout.lower().split("rerun of 2 steps")[1].split("\n")[0], done.stdout + done.stderr)

    # A run goes on with its own choices, without the file and whatever the library now prefers.
    (w.path / "moved.json").write_bytes((w.path / "tune.json").read_bytes())
    for name, more in (("two", []), ("two", ["--tune", str(w.path / "moved.json")]), ("plain", [])):
        whole = newest_tensors(w.run(name))
        cut(w.run(name))
        with_environment("ASSAY_FAKE_CUBLASLT_ORDER", "reversed", lambda: w.train(name, *GPU, *SMALL, *more))
        check(newest_tensors(w.run(name)) == whole, f"{name} {more}: resumed after 2 of 4 steps")

    # Its evaluation takes them too.
    def evaluated(name):
        done = assay("eval", w.run(name), *GPU, "--json")
        check(done.returncode == 0, done.stderr)
        return done.stdout
    before = evaluated("one")
    (w.run("one") / "tune.json").rename(w.path / "away.json")
    (w.run("one") / "products.json").rename(w.path / "away-products.json")
    check(evaluated("one") != before, "an evaluation without the choices of its run")
    (w.path / "away.json").rename(w.run("one") / "tune.json")
    (w.path / "away-products.json").rename(w.run("one") / "products.json")
    check(evaluated("one") == before, "an evaluation with the choices of its run")

    # Another file than the run's, a file of another library, a damaged one, none where there is nothing to choose.
    refused(w.train("one", *GPU, *SMALL, "--tune", str(w.path / "large.json"), expect=1), "tune.json is SHA-256", "large.json is SHA-256")
    refused(w.train("plain", *GPU, *SMALL, "--tune", str(w.path / "tune.json"), expect=1), "began without a tune file")
    refused(w.train("cpu", "--device", "cpu", *SMALL, "--tune", str(w.path / "tune.json"), expect=1), "this runs on the CPU")
    other = with_environment("ASSAY_FAKE_CUBLASLT_VERSION", "130201",
                             lambda: w.train("other", *GPU, *SMALL, "--tune", str(w.path / "tune.json"), expect=1))
    refused(other, "is of executor on the CPU (9.0), cuBLASLt 13.1.0; here is executor on the CPU (9.0), cuBLASLt 13.2.1")
    (w.path / "damaged.json").write_text((w.path / "tune.json").read_text()[:1000])
    refused(w.train("other", *GPU, *SMALL, "--tune", str(w.path / "damaged.json"), expect=1), "damaged.json: it is no JSON object")
    refused(w.train("other", *GPU, *SMALL, "--tune", str(w.path / "none.json"), expect=1), "none.json")
    check(not (w.run("other") / "config.yaml").exists(), "a refused run began")
    # With the choices of an algorithm that is none.
    text = (w.path / "tune.json").read_text()
    (w.path / "strange.json").write_text(text.replace('"id": 66,\n    "tile": 18', '"id": 66,\n    "tile": 19'))
    check((w.path / "strange.json").read_text() != text, "nothing was replaced")
    refused(w.train("strange", *GPU, *SMALL, "--tune", str(w.path / "strange.json"), expect=1), "is refused by cuBLASLt")

    # A run that goes on with another library: a warning, and its first proposals.
    for name, warning in (("one", "first proposals instead"), ("plain", "their bits may differ")):
        cut(w.run(name))
        done = with_environment("ASSAY_FAKE_CUBLASLT_VERSION", "130201", lambda: w.train(name, *GPU, *SMALL))
        check(warning in done.stderr and "cuBLASLt 13.2.1" in done.stderr, done.stderr)
        check([d["cublaslt"] for d in products(w.run(name))] == [130100, 130201], products(w.run(name)))

    # A run of a version that planned a larger workspace goes on with the algorithms that need it.
    w.train("wide", *GPU, *SMALL)
    record = json.loads((w.run("wide") / "products.json").read_text())
    for product in record["devices"][0]["products"]:
        product.update(workspace_bytes=64 << 20, algorithm={**product["algorithm"], "id": 70, "tile": 5, "split_k": 8, "reduction": 2})
    (w.run("wide") / "products.json").write_text(json.dumps(record))
    cut(w.run("wide"))
    w.train("wide", *GPU, *SMALL)
    check(all(p["algorithm"]["id"] == 70 for p in products(w.run("wide"))[0]["products"]), products(w.run("wide")))

    # A library without products of quantised operands: auto is not native, and native is refused.
    fp8 = ["--set", "precision.recipe=fp8_tensor"]
    with_environment("ASSAY_FAKE_CUBLASLT_VERSION", "120805", lambda: w.train("fp8", *GPU, *SMALL, *fp8))
    check("products: decoded" in (w.run("fp8") / "config.yaml").read_text(), (w.run("fp8") / "config.yaml").read_text())
    done = with_environment("ASSAY_FAKE_CUBLASLT_VERSION", "120805", lambda: w.train(
        "native", *GPU, *SMALL, *fp8, "--set", "precision.products=native", expect=1))
    refused(done, "need cuBLASLt 12.9 or newer, this is 12.8.5", "precision.products: decoded")

    # --fresh begins without the old choices.
    w.train("one", *GPU, *SMALL, "--fresh")
    check(not (w.run("one") / "tune.json").exists() and len(products(w.run("one"))) == 1, "--fresh")

    # Ctrl-C leaves the file as it is.
    kept = (w.path / "tune.json").read_bytes()
    process = subprocess.Popen([str(ASSAY), "tune", str(w.config), *SMALL, "-o", str(w.path / "tune.json"), "--rounds", "20"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began = process.stderr.readline()  # of the first product: then it is measuring, and handles the signal
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    check(began.startswith("1/") and process.returncode == 130 and (w.path / "tune.json").read_bytes() == kept,
          f"{process.returncode} {began}{err}")
    check([p.name for p in w.path.glob("tune.json*")] == ["tune.json"], list(w.path.iterdir()))
    # What cannot be written is said at once.
    refused(assay("tune", w.config, *SMALL, "-o", w.path / "no/such/tune.json"), "no/such")

print(f"{ASSAY.name}: ok")
sys.exit(0)
