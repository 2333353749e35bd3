#!/usr/bin/env python3
"""Launches that cannot work are refused with one error and one hint, before the first step: numbers of ranks that do not
fit, ranks that were started with different commands, configurations, data or programs, and launchers of another MPI."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import ASSAY, Workplace, check, checkpoints, first_difference, write_corpus

SETTINGS = [word for name, value in {"run.steps": 12, "run.micro_batch": 2, "schedule.warmup": 2, "schedule.warmdown": 4,
                                     "eval.every": 6}.items() for word in ("--set", f"{name}={value}")]
# What `assay train --ranks` sets for its own mpirun.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_mpi_yield_when_idle": "1"}


def mpirun(*ranks):
    """Each of `ranks` is the command line of one rank."""
    words = ["mpirun"]
    for number, command in enumerate(ranks):
        words += [*([":"] if number > 0 else []), "-n", "1", *command]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, **MPI}, timeout=120)


def check_refused(done, error, hint="", code=1):
    lines = done.stderr.splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("error: ")]
    check(done.returncode == code and len(at) == 1, f"exit {done.returncode}, not {code}, with one error: {done.stderr}")
    check(error in lines[at[0]], f"wanted {error!r}: {done.stderr}")
    hints = [line for line in lines if line.startswith("hint: ")]
    check(len(hints) == 1 and hint in hints[0], f"wanted the hint {hint!r}: {done.stderr}")
    check("step 1/" not in done.stderr, f"before the first step: {done.stderr}")


def check_numbers(place):
    def refused(error, hint, *more):
        done = place.train("no", *SETTINGS, *more, expect=1)
        check_refused(done, error, hint)
        check(not place.run("no").exists(), f"{more}: nothing is written")

    refused("3 ranks do not divide the 8 micro-batches of a step", "one of 1, 2, 4, 8 ranks", "--ranks", "3")
    refused("16 ranks do not divide the 8 micro-batches", "one of 1, 2, 4, 8 ranks", "--ranks", "16")
    refused("4 ranks cannot share the 2 parts of a batch", "one of 1, 2 ranks", "--ranks", "4", "--set", "parallel.parts=2")
    refused("parallel.parts = 3 does not divide the 8 micro-batches", "one of 1, 2, 4, 8", "--ranks", "3", "--set", "parallel.parts=3")
    refused("--restarts and --min-ranks need --ranks", "", "--restarts", "2")
    # Six parts on two ranks: three each is no power of two.
    refused("2 ranks cannot share the 6 parts of a batch", "one of 1, 3, 6 ranks", "--ranks", "2", "--set", "parallel.parts=6",
            "--set", "run.batch_tokens=768")
    # By a launcher: the same words, and nothing is written.
    done = mpirun(*[place.command("no", *SETTINGS)] * 3)
    check_refused(done, "3 ranks do not divide the 8 micro-batches of a step", "one of 1, 2, 4, 8 ranks")
    check(not place.run("no").exists(), "nothing is written by ranks of mpirun either")
    done = mpirun(*[place.command("no", *SETTINGS, "--ranks", "2")] * 2)
    check(done.returncode == 1 and "error: --ranks 2 in a process that a launcher of MPI started" in done.stderr, done.stderr)
    check("hint: leave out --ranks" in done.stderr and not place.run("no").exists(), done.stderr)
    # A run keeps its parts.
    place.train("three", *SETTINGS, "--set", "run.batch_tokens=768", "--ranks", "3", "--stop-after", "2")
    done = place.train("three", *SETTINGS, "--set", "run.batch_tokens=768", "--ranks", "2", expect=1)
    check_refused(done, "2 ranks cannot share the 3 parts of a batch", "one of 1, 3 ranks")
    done = place.train("three", *SETTINGS, "--set", "run.batch_tokens=768", "--ranks", "2", "--set", "parallel.parts=2", expect=1)
    check_refused(done, "parallel.parts")
    check(len(checkpoints(place.run("three"))) == 1, "the run stays as it is")
    place.train("three", *SETTINGS, "--set", "run.batch_tokens=768", "--ranks", "3")
    if "cuda" not in subprocess.run([ASSAY, "doctor"], capture_output=True, text=True).stdout.lower():
        refused("GPU", "--device cpu", "--ranks", "2", "--device", "cuda")


def check_different(place):
    """Rank 1 has another command, configuration or program than rank 0."""
    common = place.command("differs", *SETTINGS)

    def refused(error, *more, first=common, code=1):
        done = mpirun(first, [*common, *more])
        check_refused(done, error, code=code)
        check(not checkpoints(place.run("differs")), "nothing is saved")

    # What changes bits, what a resumed run may change, and what changes only which calls a rank makes.
    for setting, said in (("optimizer.lr=1e-3", "optimizer.lr: 0.003 -> 0.001"), ("run.seed=2", "run.seed: 1 -> 2"),
                          ("precision.recipe=mxfp8", "precision.recipe: "), ("run.steps=13", "run.steps: 12 -> 13"),
                          ("run.log_every=2", "run.log_every: 1 -> 2"), ("eval.every=4", "eval.every: 6 -> 4"),
                          ("run.checkpoint_every=7", "run.checkpoint_every: 10 -> 7"), ("run.keep_best=true", "run.keep_best: "),
                          ("eval.samples={prompts: [The]}", "eval.samples: absent -> present"),
                          ("parallel.parts=4", "parallel.parts: 2 -> 4")):
        refused(f"differs in its configuration: {said}", "--set", setting)
    refused("differs in its start", "--fresh")
    refused("rank 1: --set optimizer.lrr=1: unknown key lrr", "--set", "optimizer.lrr=1")
    # The first rank alone knows better.
    refused("differs in its configuration: run.steps: 13 -> 12", first=[*common, "--set", "run.steps=13"])
    # Another program: the same one, and one byte more.
    other = place.path / "program"
    other.mkdir()
    for file in (ASSAY, *ASSAY.parent.glob("libassay_*.so")):
        shutil.copy(file, other / file.name)
    with open(other / ASSAY.name, "ab") as file:
        file.write(b"\0")
    done = mpirun(common, [str(other / ASSAY.name), *common[1:]])
    check_refused(done, "differs in its program, SHA-256: ")
    # What belongs to a machine may differ, and rank 0 says when to stop.
    done = mpirun(common, [*common, "--set", "run.threads=2", "--stop-after", "3"])
    check(done.returncode == 0 and "finished step 12/12" in done.stderr, done.stderr)
    place.train("one", *SETTINGS, "--set", "parallel.parts=2", "--set", "run.threads=1")
    done = subprocess.run([ASSAY, "checkpoint", "merge", place.run("differs")], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    difference = first_difference(place.run("one"), place.run("differs"))
    check(difference is None, difference)


def check_other_data(place):
    """Files of one name and another content on rank 1, as on two machines with disks of their own."""
    words = "the cat sat on a mat and saw two old dogs near the river".split()
    write_corpus(place, "web", words, 700)
    shutil.copytree(place.path / "web", place.path / "copy")
    write_corpus(place, "other", words[::-1], 700)

    def data(folder):
        return ["--set", "data.synth=null", "--set", f"data.tokenizer={place.path}/tokenizer.json", "--set", "model.vocab_size=320",
                "--set", f"data.train=['{place.path}/{folder}/*_train_*.bin']", "--set", f"data.val=['{place.path}/{folder}/*_val_*.bin']"]

    names = [sorted(path.name for path in (place.path / folder).glob("*.bin")) for folder in ("web", "copy", "other")]
    common = place.command("data", *SETTINGS)
    if names[0] != names[2]:
        for have, want in zip(names[2], names[0]):
            (place.path / "other" / have).rename(place.path / "other" / want)
    done = mpirun([*common, *data("web")], [*common, *data("other")])
    check_refused(done, "differs in its data")
    done = mpirun([*common, *data("web")], [*common, *data("missing")])
    check_refused(done, "rank 1", code=done.returncode)
    check(done.returncode in (1, 4), done.stderr)
    done = mpirun([*common, *data("web"), "--stop-after", "2"], [*common, *data("copy"), "--stop-after", "2"])
    check(done.returncode == 0 and len(checkpoints(place.run("data"))) == 1, f"a copy elsewhere is the same data: {done.stderr}")


def check_other_launcher(place):
    """The variables of a launcher whose MPI is not the program's: every process would believe that it is alone."""
    for variables in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, {"PMI_SIZE": "2", "PMI_RANK": "0"}):
        done = subprocess.run(place.command("alone", *SETTINGS), capture_output=True, text=True, env={**os.environ, **MPI, **variables})
        check_refused(done, "the launcher started 2 processes, but MPI sees one", "mpirun of the MPI that this program was built with")
        check(not place.run("alone").exists(), "nothing is written")


def main():
    with Workplace(moe=True) as place:
        check_numbers(place)
        check_different(place)
        check_other_launcher(place)
    with Workplace() as place:
        check_other_data(place)
    print("ranks_errors: ok")


main()
