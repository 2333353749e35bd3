#!/usr/bin/env python3
"""Makes the files that later versions must read (tests/run/test_compat.py), with the program of one version.
Usage: make.py ASSAY NAME: writes tests/compat/NAME.tar.zst. Works in /opt/assay, so that no other path is in the files."""
import pathlib
import shutil
import subprocess
import sys

CONFIG = """
model: {hidden: 32, layers: 2, heads: 1, head_dim: 32, ffn: 48, vocab_size: 288, tie_embeddings: true,
  moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 16, first_dense_layers: 1}}
optimizer: {lr: 3e-3}
schedule: {warmup: 2, warmdown: 4}
run: {steps: 12, batch_tokens: 256, sequence: 32, micro_batch: 4, checkpoint_every: 6, keep_checkpoints: 1}
eval: {every: 6, tokens: 512}
telemetry: {window: 4, probe_every: 6}
data: {cache: /opt/assay/cache, synth: {train_tokens: 8000, val_tokens: 2000, vocab_size: 288}}
"""


def main():
    assay, name = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    place = pathlib.Path("/opt/assay")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(CONFIG)
    shutil.copy(assay, place / "assay")
    call = ["./assay", "train", "config.yaml", "--run", "run", "--set", "precision.recipe=fp32", "--set", "run.threads=1"]
    # Half of it, as a run that was interrupted leaves it: the test goes on with it.
    subprocess.run([*call, "--stop-after", "6"], cwd=place)
    subprocess.run(["./assay", "receipt", "make", "run"], cwd=place, check=True)
    # A whole one, without its checkpoints: telemetry, receipt and end.
    subprocess.run([*call[:4], "whole", *call[5:]], cwd=place, check=True)
    shutil.rmtree(place / "whole" / "checkpoints")
    (place / "assay").unlink()
    for lock in place.rglob(".lock"):
        lock.unlink()
    out = pathlib.Path(__file__).parent / f"{name}.tar.zst"
    subprocess.run(["tar", "--zstd", "--owner=0", "--group=0", "-cf", str(out), "-C", "/opt", "assay"], check=True)
    shutil.rmtree(place)
    print(out, out.stat().st_size, "bytes")


main()
