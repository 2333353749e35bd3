"""A folder with a dense and a sparse model and a matrix of both, for the tests of matrices."""
import pathlib
import shutil
import tempfile

from harness import ASSAY, MOE, assay, check, configuration, first_difference

MATRIX = """
name: small
models: {{dense: dense.yaml, moe: moe.yaml}}
contracts:
  - {{kind: activeDN, reference: dense, landings: [0.5, 1]}}
  - {{kind: totalDN, reference: dense, landings: [0.5, 1]}}
precisions: [fp32]
seeds: [{seeds}]
set: {{run.checkpoint_every: 10, run.steps: 40{set}}}
threads: 1
"""
# In the order of training, seed by seed; the dense runs are in both tables.
RUNS = [f"{cell}-fp32-seed{seed}" for seed in (1, 2) for cell in ("dense-activeDN", "moe-activeDN", "moe-totalDN")]


class Place:
    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="assay-matrix-"))
        (self.path / "dense.yaml").write_text(configuration())
        (self.path / "moe.yaml").write_text(configuration(MOE))
        self.write("m.yaml")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name, seeds="1, 2", changes="", text=MATRIX):
        (self.path / name).write_text(text.format(seeds=seeds, set=changes))
        return name

    def command(self, name, folder, *more):
        return [str(ASSAY), "matrix", str(self.path / name), "--run-dir", str(self.path / folder), *more]

    def matrix(self, name, folder, *more, expect=0):
        done = assay(*self.command(name, folder, *more)[1:])
        check(done.returncode == expect, f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done

    def same_as_whole(self, folder, what, cells=RUNS):
        for cell in cells:
            difference = first_difference(self.path / "whole" / cell, self.path / folder / cell)
            check(difference is None, f"{what}: {difference}")


def trained_in(folder):
    return sorted(path.parent.name for path in folder.glob("*/telemetry.db"))
