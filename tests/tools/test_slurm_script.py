#!/usr/bin/env python3
"""examples/slurm/train.sbatch with a srun and a scontrol that only say what they were called with: which exit codes
queue the job again. It needs no Slurm."""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "slurm" / "train.sbatch"
SRUN = """#!/bin/bash
echo "srun $*"
if [[ -n $SAVES ]]; then mkdir -p "$SAVES"; fi
exit $CODE
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*"
"""


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def run_script(place, code, restarts=0, saves=False):
    """Whether the job is queued again when srun ends with `code`, after so many restarts in a row without a new
    checkpoint, with one or none."""
    run = place / "a run"
    (run / "checkpoints" / "step-00000010").mkdir(parents=True, exist_ok=True)
    new = run / "checkpoints" / "step-00000020"
    if new.exists():
        new.rmdir()
    environment = dict(os.environ, PATH=f"{place}:{os.environ['PATH']}", CODE=str(code), SAVES=str(new) if saves else "",
                       SLURM_JOB_ID="42", ASSAY="my/assay")
    environment.pop("ASSAY_SLURM_MPI", None)
    losses = place / "a run.losses"
    losses.write_text("srun ended with exit code 4\n" * restarts)
    done = subprocess.run(["bash", str(SCRIPT), "a config.yaml", str(run)], env=environment, capture_output=True, text=True)
    check(done.returncode == code and not done.stderr, f"exit {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    lines = done.stdout.splitlines()
    check(lines[0] == f"srun --mpi=pmix --kill-on-bad-exit=1 my/assay train a config.yaml --run {run} --device cpu", lines)
    check(lines[1] == f"srun ended with exit code {code}", lines)
    check(lines[2:] in ([], ["scontrol requeue 42"]), lines)
    return len(lines) == 3


def main():
    with tempfile.TemporaryDirectory(prefix="assay-slurm-") as folder:
        place = pathlib.Path(folder)
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (place / name).write_text(text)
            (place / name).chmod(0o755)
        for code in (0, 1, 2, 3, 139):
            check(not run_script(place, code), f"exit code {code} is not to queue the job again")
        check(run_script(place, 130, restarts=50), "a run that was interrupted is to go on, however often")
        for code in (4, 137, 138):
            check(run_script(place, code), f"exit code {code} at the first start")
            check(run_script(place, code, restarts=4), f"exit code {code} at the fifth start")
            check(not run_script(place, code, restarts=5), f"exit code {code}, five restarts without a checkpoint")
            check(run_script(place, code, restarts=5, saves=True), f"exit code {code}, with a new checkpoint")
            check((place / "a run.losses").read_text().count("\n") == 1, "which begins the count again")
    print("train.sbatch queues itself again when it should")


if __name__ == "__main__":
    main()
