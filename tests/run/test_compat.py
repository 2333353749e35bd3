#!/usr/bin/env python3
"""What earlier versions wrote is read, or refused with the version: every tests/compat/COMMIT.tar.zst has a whole run, half
of another with its checkpoint, a corpus and more, as that version left them (tests/compat/make.py)."""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, ROOT, assay, check, rows


def call(place, *arguments):
    done = assay(*arguments, cwd=place)
    check(done.returncode == 0, f"{place.name}: assay {' '.join(map(str, arguments))}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def last_loss(run):
    return rows(run, "SELECT value FROM eval WHERE task = 'val' AND metric = 'loss_nats' ORDER BY step")[-1][0]


def check_evaluation(place):
    """`eval` of the checkpoint says what that version said: the losses, and which questions of the small bundle are right."""
    then = json.loads((place / "eval.json").read_text())
    here = f"data.cache={place / 'cache'}"  # not /opt/assay, where the files were made
    now = json.loads(call(place, "eval", "run", "--tasks", "loss,bpb,core", "--bundle", "bundle", "--set", here, "--json"))
    for name in ("val_loss_nats", "val_bits_per_byte"):
        check(math.isclose(now[name], then[name], rel_tol=1e-4), f"{name}: {now[name]}, that version's was {then[name]}")
    for a, b in zip(then["core"]["tasks"], now["core"]["tasks"], strict=True):
        same = all(a[key] == b[key] for key in ("label", "kind", "shots", "rows", "scored", "rows_sha256") if key in a)
        # One of eight rows may be decided by the last bit of a sum.
        check(same and abs(a["accuracy"] - b["accuracy"]) <= 0.126, f"{a}, now {b}")


def check_matrix(place):
    """Its tables come out as they were, and so does its receipt; its cells are done and not trained again, or it is said which
    defaults are others since."""
    then = json.loads((place / "family" / "summary.json").read_text())
    counts = json.loads(call(place, "receipt", "verify", "family", "--json"))["counts"]
    check(counts["drift"] == 0 and counts["same"] > 100, counts)
    done = assay("matrix", "matrix.yaml", "--run-dir", "family", cwd=place)
    if has_todays_defaults(place):
        check(done.returncode == 0 and "4 of them done; 0 to train" in done.stderr, f"a cell was trained again: {done.stderr}")
    else:
        changed = "seed1: data.shuffle: false -> true (and 9 more)"
        check(done.returncode == 1 and changed in done.stderr, f"{done.returncode}: {done.stderr}")
        call(place, "matrix", "matrix.yaml", "--run-dir", "family", "--summary")
    now = json.loads((place / "family" / "summary.json").read_text())
    check(losses_of(now) == losses_of(then), f"{losses_of(now)}, that version's were {losses_of(then)}")


def has_todays_defaults(place):
    """Of the fields that the configurations here do not name: 0.1.0 and 0.2.0 did not shuffle and did not balance."""
    return "shuffle: true" in (place / "run" / "config.yaml").read_text()


def losses_of(summary):
    return [{row["model"]: [run["val_loss_nats"] for run in row["runs"]] for row in contract["rows"]} for contract in summary["contracts"]]


def check_half(place, run, *how):
    """A run of that version goes on to its end."""
    before = last_loss(place / run)
    call(place, "train", "config.yaml", "--run", run, "--set", "run.threads=1", "--set", f"data.cache={place / 'cache'}", *how)
    check(last_loss(place / run) < before - 0.05, f"{run}: {before} and then {last_loss(place / run)}")


def check_what_it_knew(place):
    if (place / "state_in_bf16").exists():
        check_half(place, "state_in_bf16", "--set", "precision.recipe=bf16", "--set", "optimizer.state=bf16")
    if (place / "muon").exists():
        check_half(place, "muon", "--set", "precision.recipe=fp32", "--set", "optimizer={kind: muon, muon: {}}")
    if (place / "two_ranks").exists():
        shutil.copytree(place / "two_ranks", place / "one_rank")
        check_half(place, "one_rank", "--set", "precision.recipe=fp32")
        if ASSAY.with_name("libassay_mpi.so").exists():
            check_half(place, "two_ranks", "--set", "precision.recipe=fp32", "--ranks", "2")
    if (place / "run" / "dissect").exists():
        call(place, "report", "run", "-o", "dissect.html")
        page = (place / "dissect.html").read_text()
        check('"p_used":29984,"p_total":29984' in page, "the page has what dissect found")


def check_version(archive, place):
    subprocess.run(["tar", "--zstd", "-xf", str(archive), "-C", str(place)], check=True)
    place = place / "assay"
    cache = next(place.glob("cache/synth-*"))
    tokenizer = cache / "tokenizer.json"
    # Telemetry, its routers, a page of it, and the receipt, whose claims are recomputed from it.
    tables = json.loads(call(place, "telemetry", "whole", "--json"))["tables"]
    columns = {c["name"] for c in tables["steps"]["columns"]}
    check({"train_loss_nats", "lr", "gradient_norm", "train_s"} <= columns and tables["steps"]["rows"] == 12, tables["steps"])
    router = json.loads(call(place, "router", "whole", "--json"))
    check(router["last_step"] == 12 and router["experts"] == 4, router)
    call(place, "report", "whole", "-o", "page.html")
    counts = json.loads(call(place, "receipt", "verify", "whole", "--data", cache, "--json"))["counts"]
    check(counts["drift"] == 0 and counts["same"] > 30, counts)
    # The corpus and its tokenizer.
    call(place, "data", "verify", cache)
    ids = call(place, "tokenizer", "encode", "--tokenizer", tokenizer, "--text", "Mia lived").split()
    check(call(place, "tokenizer", "decode", "--tokenizer", tokenizer, *ids).strip() == "Mia lived", ids)
    # The checkpoint: listed, sampled from, exported, and trained to the end, which is about where that version ended.
    check("valid" in call(place, "checkpoint", "list", "run"), "its state")
    call(place, "sample", "run", "--tokenizer", tokenizer, "--prompt", "Mia", "--tokens", "4")
    call(place, "export", "run", "-o", "exported", "--tokenizer", tokenizer)
    if (place / "eval.json").exists():
        check_evaluation(place)
        check_matrix(place)
    check_what_it_knew(place)
    config = "config.yaml"
    if not has_todays_defaults(place):
        refused = assay("train", config, "--run", "run", "--set", "precision.recipe=fp32", cwd=place)
        check(refused.returncode == 1 and "`assay train run/config.yaml --run run` goes on" in refused.stderr, refused.stderr)
        config = "run/config.yaml"
    call(place, "train", config, "--run", "run", "--set", "precision.recipe=fp32", "--set", "run.threads=1",
         "--set", f"data.cache={place / 'cache'}")
    ends = last_loss(place / "run"), last_loss(place / "whole")
    check(math.isclose(*ends, rel_tol=2e-3), f"{archive.name}: the loss at the end is {ends[0]}, that version's was {ends[1]}")


def main():
    archives = sorted((ROOT / "tests" / "compat").glob("*.tar.zst"))
    check(archives, "no archives")
    if not shutil.which("zstd"):
        print("not run: tar needs zstd to unpack what earlier versions wrote")
        return
    for archive in archives:
        place = pathlib.Path(tempfile.mkdtemp(prefix="assay-compat-"))
        try:
            check_version(archive, place)
        finally:
            shutil.rmtree(place)
        print(f"{archive.name.split('.')[0]}: read")


main()
