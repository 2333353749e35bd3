#!/usr/bin/env python3
"""What earlier versions wrote is read, or refused with the version: every tests/compat/COMMIT.tar.zst has a whole run, half
of another with its checkpoint, and a corpus, as that version left them (tests/compat/make.py)."""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ROOT, assay, check, rows


def call(place, *arguments):
    done = assay(*arguments, cwd=place)
    check(done.returncode == 0, f"{place.name}: assay {' '.join(map(str, arguments))}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def last_loss(run):
    return rows(run, "SELECT value FROM eval WHERE task = 'val' AND metric = 'loss_nats' ORDER BY step")[-1][0]


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
    call(place, "train", "config.yaml", "--run", "run", "--set", "precision.recipe=fp32", "--set", "run.threads=1",
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
