#!/usr/bin/env python3
"""Makes the files that later versions must read (tests/run/test_compat.py), with the program of one version.
Usage: make.py ASSAY NAME: writes tests/compat/NAME.tar.zst. Works in /opt/assay, so that no other path is in the files.

Every version leaves a whole run, half of another with its checkpoint, a corpus, a matrix, and what `eval` says of the
checkpoint. What it leaves beyond that follows from what its program knows: halves of runs of two ranks, with a state in
bf16 and of Muon, and what `dissect` finds."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from core_bundle import write_bundle

PLACE = pathlib.Path("/opt/assay")
MOE = """,
  moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 16, first_dense_layers: 1}"""
CONFIG = """
model: {hidden: 32, layers: 2, heads: 1, head_dim: 32, ffn: 48, vocab_size: 288, tie_embeddings: true""" + MOE + """}
optimizer: {lr: 3e-3}
schedule: {warmup: 2, warmdown: 4}
run: {steps: 12, batch_tokens: 256, sequence: 32, micro_batch: 4, checkpoint_every: 6, keep_checkpoints: 1}
eval: {every: 6, tokens: 512}
telemetry: {window: 4, probe_every: 6}
data: {cache: /opt/assay/cache, synth: {train_tokens: 8000, val_tokens: 2000, vocab_size: 288}}
"""
MATRIX = """
name: family
models:
  mixture: config.yaml
  dense: dense.yaml
contracts: [{kind: activeDN, reference: dense, landings: [0.5, 1]}]
precisions: [fp32]
seeds: [1, 2]
threads: 1
claims:
  - {name: the dense model is ahead, measure: val_loss, of: dense, below: mixture}
set: {schedule.warmup: 0, schedule.warmup_fraction: 0.2, schedule.warmdown: 0, schedule.warmdown_fraction: 0.3, run.checkpoint_every: 0,
  run.keep_checkpoints: 1}
"""
ONE_THREAD = ["--set", "precision.recipe=fp32", "--set", "run.threads=1"]


def call(*arguments, accepted=(0,)):
    done = subprocess.run(["./assay", *map(str, arguments)], cwd=PLACE, capture_output=True, text=True)
    if done.returncode not in accepted:
        sys.exit(f"error: assay {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train_half(run, *settings):
    """Half of a run, as one that was interrupted leaves it: the test goes on with it."""
    call("train", "config.yaml", "--run", run, *ONE_THREAD, *settings, "--stop-after", 6, accepted=(0, 130))  # 130 in 0.1.0


def make_files():
    train_half("run")
    call("receipt", "make", "run")
    # A whole one, without its checkpoints: telemetry, receipt and end.
    call("train", "config.yaml", "--run", "whole", *ONE_THREAD)
    shutil.rmtree(PLACE / "whole" / "checkpoints")
    write_bundle(PLACE / "bundle", absent=(), rows_each=8)
    words = ["--tasks", "loss,bpb,core", "--bundle", "bundle"]
    (PLACE / "eval.json").write_text(call("eval", "run", *words, "--json"))
    # A family: its tables, claims and receipt, and the runs without their checkpoints.
    (PLACE / "dense.yaml").write_text(CONFIG.replace(MOE, ""))
    (PLACE / "matrix.yaml").write_text(MATRIX)
    call("matrix", "matrix.yaml", "--run-dir", "family")
    for checkpoints in (PLACE / "family").glob("*/checkpoints"):
        shutil.rmtree(checkpoints)


def make_what_it_knows():
    fields = call("train", "--help-config")
    if "bf16 with stochastic rounding" in fields:
        train_half("state_in_bf16", "--set", "optimizer.state=bf16", "--set", "precision.recipe=bf16")
    if "of kind muon" in fields:
        train_half("muon", "--set", "optimizer={kind: muon, muon: {}}")
    if "--ranks N" in call("train", "--help"):
        train_half("two_ranks", "--ranks", 2)
    if "damage" in call("dissect", "--help", accepted=range(256)):
        call("dissect", "damage", "run")
        call("dissect", "used", "run")


def main():
    assay, name = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    if PLACE.exists():
        sys.exit(f"error: {PLACE} is there already\nhint: move it away; the files are made there, and then it is removed")
    PLACE.mkdir(parents=True)
    (PLACE / "config.yaml").write_text(CONFIG)
    shutil.copy(assay, PLACE / "assay")
    os.environ["ASSAY_MPI_LIBRARY"] = str(assay.parent / "libassay_mpi.so")
    make_files()
    make_what_it_knows()
    (PLACE / "assay").unlink()
    for lock in PLACE.rglob(".lock"):
        lock.unlink()
    out = pathlib.Path(__file__).parent / f"{name}.tar.zst"
    # zstd -19 finds what the runs have in common: all of them are smaller than its window.
    tar = ["tar", "--use-compress-program=zstd -19", "--owner=0", "--group=0", "--sort=name", "-cf", str(out), "-C", "/opt", "assay"]
    subprocess.run(tar, check=True)
    shutil.rmtree(PLACE)
    print(out, out.stat().st_size, "bytes")


main()
