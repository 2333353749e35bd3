"""What the tests of whole runs share: a small configuration, a temporary folder, and calls of build/assay."""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ASSAY = pathlib.Path(os.environ.get("ASSAY_BINARY", ROOT / "build" / "assay"))

CONFIG = """
model: {{hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: 512{model}}}
optimizer: {{lr: 3e-3}}
schedule: {{warmup: 5, warmdown: 10}}
run: {{steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8, checkpoint_every: 10}}
eval: {{every: 20, tokens: 4096}}
data:
  cache: {cache}
  synth: {{train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}
"""
MOE = (", moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 32,"
       " router: {score: sigmoid, bias_rate: 1e-3, aux: gates, aux_alpha: 0.01}}")


class Workplace:
    """A temporary folder with config.yaml in it; removed at the end."""

    def __init__(self, moe=False):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="assay-run-"))
        self.config = self.path / "config.yaml"
        cache = pathlib.Path(os.environ.get("ASSAY_TEST_CACHE", ROOT / "build" / "test-cache"))
        self.config.write_text(CONFIG.format(model=MOE if moe else "", cache=cache))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for folder, _, _ in os.walk(self.path):
            os.chmod(folder, 0o755)
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, name):
        return self.path / name

    def command(self, name, *more):
        return [str(ASSAY), "train", str(self.config), "--run", str(self.run(name)), *more]

    def train(self, name, *more, expect=0):
        done = assay(*self.command(name, *more)[1:])
        if done.returncode != expect:
            sys.exit(f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done


def assay(*arguments, **options):
    return subprocess.run([str(ASSAY), *map(str, arguments)], capture_output=True, text=True,
                          cwd=options.pop("cwd", ROOT), **options)


def rows(run, query):
    with sqlite3.connect(run / "telemetry.db") as db:
        return db.execute(query).fetchall()


def newest_model(run):
    folders = sorted((run / "checkpoints").glob("step-*"))
    return (folders[-1].name, (folders[-1] / "model.safetensors").read_bytes())


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")
