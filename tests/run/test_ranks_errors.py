#!/usr/bin/env python3
"""Launches that cannot work are refused with one error and one hint, before the first step: numbers of ranks that do not
fit, ranks that were started with different commands, configurations, data or programs, and launchers of another MPI.
usage: test_ranks_errors.py [--many WRITES STARTS [SEED]]: so many failing writes on one rank, and so many launches of ranks
that differ, at random, for the acceptance table."""
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from core_bundle import write_bundle
from harness import ASSAY, MPI, Workplace, assay, at_once, check, checkpoints, first_difference, merge, mpirun, rank_processes, rows, write_corpus

SETTINGS = [word for name, value in {"run.steps": 12, "run.micro_batch": 2, "schedule.warmup": 2, "schedule.warmdown": 4,
                                     "eval.every": 6}.items() for word in ("--set", f"{name}={value}")]


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
    refused("--restarts and --min-ranks need --ranks 2 or more", "nobody restarts", "--ranks", "1", "--restarts", "2")
    for more in (("2",), ("3", "--restarts", "1")):
        refused("--min-ranks needs --restarts", "the fewest ranks", "--ranks", "2", "--min-ranks", *more)
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
    if "cuda" not in assay("doctor").stdout.lower():
        refused("GPU", "--device cpu", "--ranks", "2", "--device", "cuda")


def other_program(place):
    """The same one, and one byte more."""
    other = place.path / "program"
    other.mkdir()
    for file in (ASSAY, *ASSAY.parent.glob("libassay_*.so")):
        shutil.copy(file, other / file.name)
    with open(other / ASSAY.name, "ab") as file:
        file.write(b"\0")
    return str(other / ASSAY.name)


def check_given_limit(place):
    """A limit of matrix products that is given is that of each rank; one that cannot be read is refused."""
    name = "ASSAY_MATMUL_GFLOPS"
    for value in ("fast", "0", "-1", "nan", "1e30"):
        done = assay(*place.command("limit", *SETTINGS)[1:], env={**os.environ, name: value})
        check_refused(done, f"{name}={value} is no number", "`assay doctor` measures it")
    for value, wanted in (("100", "200.0"), (None, None)):
        env = {key: word for key, word in os.environ.items() if key != name} | ({name: value} if value else {})
        done = assay(*place.command("limit", *SETTINGS, "--fresh", "--ranks", "2")[1:], env=env)
        (limit,), = rows(place.run("limit"), "SELECT value FROM meta WHERE key = 'matmul_limit_gflop_per_s'")
        check(done.returncode == 0 and (limit == wanted if value else 0 < float(limit) != 200), f"{value}: {limit} {done.stderr}")


def check_different(place):
    """Rank 1 has another command, configuration or program than rank 0."""
    common = place.command("differs", *SETTINGS)
    # What changes bits, what a resumed run may change, and what changes only which calls a rank makes.
    cases = [(("--set", setting), f"differs in its configuration: {said}") for setting, said in (
        ("optimizer.lr=1e-3", "optimizer.lr: 0.003 -> 0.001"), ("run.seed=2", "run.seed: 1 -> 2"),
        ("precision.recipe=mxfp8", "precision.recipe: "), ("run.steps=13", "run.steps: 12 -> 13"),
        ("run.log_every=2", "run.log_every: 1 -> 2"), ("eval.every=4", "eval.every: 6 -> 4"),
        ("run.checkpoint_every=7", "run.checkpoint_every: 10 -> 7"), ("run.keep_best=true", "run.keep_best: "),
        ("eval.samples={prompts: [The]}", "eval.samples: absent -> present"), ("parallel.parts=4", "parallel.parts: 2 -> 4"),
        ("parallel.expert_ranks=2", "parallel.expert_ranks: 1 -> 2"))]
    cases += [(("--fresh",), "differs in its start"),
              (("--set", "optimizer.lrr=1"), "rank 1: --set optimizer.lrr=1: unknown key lrr")]

    def refused(case):
        more, said = case
        name = "differs-" + "".join(letter for letter in more[-1] if letter.isalnum())
        command = place.command(name, *SETTINGS)
        check_refused(mpirun(command, [*command, *more]), said)
        check(not checkpoints(place.run(name)), "nothing is saved")

    at_once(refused, cases, most=4)  # a refused launch waits a second, so that every rank can say why
    # The first rank alone knows better.
    check_refused(mpirun([*common, "--set", "run.steps=13"], common), "differs in its configuration: run.steps: 13 -> 12")
    other = place.run("elsewhere")
    other.mkdir()
    done = mpirun(common, place.command("elsewhere", *SETTINGS))
    check_refused(done, f"gave up: the run directory {other} is not that of rank 0, {place.run('differs')}")
    check(not list(other.iterdir()) and not list((place.run("differs") / "ranks").glob(".mark*")), "nothing is written there")
    done = mpirun(common, [other_program(place), *common[1:]])
    check_refused(done, "differs in its program, SHA-256: ")
    # What belongs to a machine may differ, and rank 0 says when to stop.
    done = mpirun(common, [*common, "--set", "run.threads=2", "--stop-after", "3"])
    check(done.returncode == 0 and "finished step 12/12" in done.stderr, done.stderr)
    place.train("one", *SETTINGS, "--set", "parallel.parts=2", "--set", "run.threads=1")
    merge(place.run("differs"))
    difference = first_difference(place.run("one"), place.run("differs"))
    check(difference is None, difference)
    # A launch that is refused deletes nothing.
    done = mpirun(place.command("one", *SETTINGS, "--fresh"), place.command("elsewhere", *SETTINGS, "--fresh"))
    check_refused(done, f"gave up: the run directory {other} is not that of rank 0, {place.run('one')}")
    check(checkpoints(place.run("one")) and (place.run("one") / "telemetry.db").exists(), "the run of rank 0 is still there")
    # Open MPI lets a process that it launched join once, so one process does not join.
    evaluation = shlex.join([str(ASSAY), "eval", str(place.run("one"))])
    done = subprocess.run(["mpirun", "-n", "1", "bash", "-c", f"{evaluation} && {evaluation}"], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **MPI})
    check(done.returncode == 0 and done.stdout.count("step 12") == 2, f"two commands of one process: {done}")


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
    place.train("evaluated", *SETTINGS, *data("web"), "--set", "run.checkpoint_every=6")
    check_eval(place, *(sorted((place.path / folder).glob("*_val_*.bin"))[0] for folder in ("web", "other")))


def check_eval(place, text, other):
    """`assay eval` of ranks with working folders of their own, where files of one name are others."""
    here, there = place.path / "here", place.path / "there"
    for folder, shard, rows_each in ((here, text, 40), (there, other, 30)):
        write_bundle(folder / "bundle", rows_each=rows_each)
        shutil.copy(shard, folder / "v.bin")

    def launched(*more):
        one = [str(ASSAY), "eval", str(place.run("evaluated")), *more]
        return subprocess.run(["mpirun", "-n", "1", "-wdir", str(here), *one, ":", "-n", "1", "-wdir", str(there), *one],
                              capture_output=True, text=True, timeout=120, env={**os.environ, **MPI})

    val, core = ["--set", "data.val=[v.bin]"], ["--tasks", "core", "--bundle", "bundle"]
    both = r"[0-9a-f]{16} on rank 0, [0-9a-f]{16} there"
    for words, said in ((val, "data.val, SHA-256: "), (core, "CORE bundle: rows of choice, SHA-256: ")):
        done = launched(*words)
        check_refused(done, f"differs in its {said}", "on the same files")
        check(done.stdout == "" and re.search(f"{re.escape(said)}{both}", done.stderr), done.stdout + done.stderr)
    shutil.copy(here / "v.bin", there / "v.bin")
    shutil.rmtree(there / "bundle")
    shutil.copytree(here / "bundle", there / "bundle")
    for words in (val, core):
        done = launched(*words)
        check(done.returncode == 0 and "step 12" in done.stdout, f"copies are the same: {done.stdout}{done.stderr}")
    # What all ranks find, one says.
    with open(checkpoints(place.run("evaluated"))[-1] / "model.safetensors", "ab") as file:
        file.write(b"x")
    done = launched()
    check(done.returncode == 0 and "step 6\n" in done.stdout and done.stderr.count("warning: ") == 1, done.stdout + done.stderr)
    # A launcher's number counts, also where it started one process.
    for alone in ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, {"PMI_SIZE": "1", "PMI_RANK": "0"}):
        done = assay("eval", place.run("evaluated"), "--ranks", "2", env={**os.environ, **alone})
        check_refused(done, "--ranks 2 in a process that a launcher of MPI started", "leave out --ranks")
        check(done.stdout == "", f"nothing is measured: {done.stdout}")


def check_other_evaluations(place):
    """Prompts and bundles of one name and another content on rank 1."""
    common = place.command("evaluations", *SETTINGS)
    a, b = place.path / "a", place.path / "b"
    samples, core = "eval.samples={file: %s/p.txt, tokens: 4}", "eval.core={bundle: %s/bundle}"

    def launched(*settings):
        return mpirun(*[[*common, *(word for setting in settings for word in ("--set", setting % folder))] for folder in (a, b)])

    def refused(setting, said):
        done = launched(setting)
        check_refused(done, f"differs in its {said}, SHA-256: ")
        check(re.search(r"SHA-256: [0-9a-f]{16} on rank 0, ([0-9a-f]{16}|none) there", done.stderr), done.stderr)
        check(not checkpoints(place.run("evaluations")), "nothing is saved")

    for folder, prompts, rows_each in ((a, "Once\nThe\n", 40), (b, "A king\nThe\n", 600)):
        write_bundle(folder / "bundle", rows_each=rows_each)
        (folder / "p.txt").write_text(prompts)
    refused(samples, "eval.samples: prompts")
    (b / "p.txt").write_text("Once\nThe\nA\n")
    refused(samples, "eval.samples: prompts")
    refused(core, "CORE bundle: rows of choice")
    shutil.rmtree(b / "bundle")
    shutil.copytree(a / "bundle", b / "bundle")
    (b / "bundle" / "eval_data" / "schema" / "schema.jsonl").unlink()
    refused(core, "CORE bundle: rows of schema")
    shutil.copytree(a, b, dirs_exist_ok=True)
    done = launched(samples, core)
    check(done.returncode == 0 and "finished step 12/12" in done.stderr, f"copies elsewhere are the same: {done.stderr}")


def check_memory(place):
    """Two ranks, each of which would fit into the machine alone. Their address space is limited, so that a launch that is
    not refused fails all the same."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def words(vocabulary):
        return [*SETTINGS, "--set", "model.hidden=256", "--set", f"model.vocab_size={vocabulary}", "--set", "parallel.parts=2"]

    def planned(vocabulary):
        done = place.train("memory", *words(vocabulary), "--plan", "--ranks", "2", "--json")
        return json.loads(done.stdout)["total_bytes"]

    few, more = planned(1_000_000), planned(2_000_000)
    vocabulary = int(1_000_000 + (0.6 * machine - few) * 1_000_000 / (more - few))
    limit = int(0.45 * machine)
    done = assay(*place.command("memory", *words(vocabulary), "--ranks", "2")[1:], timeout=120,
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    check_refused(done, "the 2 ranks on the machine of rank 0 need ", "start fewer ranks on a machine")
    check(f"GiB of memory together, it has {machine / 2**30:.1f} GiB" in done.stderr, done.stderr)
    check(len(re.findall(r"^total ", done.stderr, re.M)) == 1, f"one table: {done.stderr}")


def check_other_launcher(place):
    """The variables of a launcher whose MPI is not the program's: every process would believe that it is alone."""
    def alone(variables):
        return subprocess.run(place.command("alone", *SETTINGS), capture_output=True, text=True, env={**os.environ, **MPI, **variables})

    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
             "SLURM_PROCID": "1", "SLURM_NODELIST": "here", "SLURM_STEP_NODELIST": "here"}
    for variables in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, {"PMI_SIZE": "2", "PMI_RANK": "0"}, slurm):
        done = alone(variables)
        check_refused(done, "the launcher started 2 processes, but MPI sees one", "mpirun of the MPI that this program was built with")
        check(not place.run("alone").exists(), "nothing is written")
        check(done.stderr.count("\n") == 2, f"nothing else is said: {done.stderr}")
    # A batch script and an interactive shell are steps too; one task needs nobody.
    for step in ({"SLURM_STEP_ID": "4294967291"}, {"SLURM_STEP_ID": "4294967290"}, {"SLURM_STEP_NUM_TASKS": "1"}):
        done = alone({**slurm, **step})
        check(done.returncode == 0 and "finished step 12/12" in done.stderr, done.stderr)
        shutil.rmtree(place.run("alone"))
    # A program without its library of MPI.
    bare = place.path / "bare"
    bare.mkdir()
    shutil.copy(ASSAY, bare / ASSAY.name)
    for more, said in ((["--ranks", "2"], "--ranks needs MPI, which this program cannot use here"),
                       ([], "several processes need MPI, which cannot be used here")):
        done = subprocess.run([bare / ASSAY.name, *place.command("alone", *SETTINGS, *more)[1:]], capture_output=True, text=True,
                              env={**os.environ, **({} if more else slurm)})
        check_refused(done, f"{said}: there is no libassay_mpi.so in {bare}", "ASSAY_MPI_LIBRARY")
    # Its library is elsewhere.
    ranks = [bare / ASSAY.name, *place.command("alone", *SETTINGS, "--ranks", "2")[1:]]
    done = subprocess.run(ranks, capture_output=True, text=True, env={**os.environ, "ASSAY_MPI_LIBRARY": "/nowhere/libassay_mpi.so"})
    check_refused(done, "ASSAY_MPI_LIBRARY: /nowhere/libassay_mpi.so: cannot open", "or unset ASSAY_MPI_LIBRARY")
    done = subprocess.run(ranks, capture_output=True, text=True,
                          env={**os.environ, "ASSAY_MPI_LIBRARY": str(ASSAY.parent / "libassay_mpi.so")})
    check(done.returncode == 0 and "finished step 12/12" in done.stderr, done.stderr)
    shutil.rmtree(place.run("alone"))
    # One process needs none, where the launcher says that it is one. PMIx alone says its place and no number.
    one_task = {**slurm, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "PMIX_RANK": "0"}
    nameless = {"PMIX_RANK": "0"}
    for variables in ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, {"PMI_SIZE": "1", "PMI_RANK": "0"}, one_task, nameless):
        done = subprocess.run([bare / ASSAY.name, *place.command("one", *SETTINGS)[1:]], capture_output=True, text=True,
                              env={**os.environ, **variables})
        if variables is nameless:
            check_refused(done, "several processes need MPI, which cannot be used here", "ASSAY_MPI_LIBRARY")
            check(not place.run("one").exists(), "nothing is written")
            continue
        check(done.returncode == 0 and "finished step 12/12" in done.stderr, f"{variables}: {done.stderr}")
        shutil.rmtree(place.run("one"))


def failing_write(place, name, draw):
    """A rank that can write no more at a random step: the older checkpoint goes on to equal bits."""
    rank, step, on, limit = draw.randrange(4), draw.randrange(1, 40), draw.choice((1, 2, 4)), draw.choice((0, 512, 4096))
    process = subprocess.Popen(place.command(name, *MANY, "--ranks", "4"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith(f"step {step}/"):
            resource.prlimit(rank_processes(process.pid, 4)[rank], resource.RLIMIT_FSIZE, (limit, limit))
            break
    said += process.communicate()[1]
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    check(process.returncode == 1 and len(errors) == said.count("hint: ") == 1 and "mpirun" not in said, f"{name}, rank {rank}: {said}")
    if rank == 0:  # its telemetry fails first
        check("telemetry.db: cannot be read or written" in errors[0] or "File too large" in errors[0], errors[0])
    else:
        check(errors[0].startswith(f"error: rank {rank}") and "File too large" in errors[0], f"{name}: {said}")
    saved = [int(folder.name[5:]) for folder in checkpoints(place.run(name))]
    check(not saved or step - 10 <= saved[-1] <= step + 10, f"{name}: checkpoints {saved} at step {step}")
    done = place.train(name, *MANY, *(["--ranks", str(on)] if on > 1 else []))
    check("error:" not in done.stderr and "ignoring" not in done.stderr, done.stderr)
    check((f"resumes after step {saved[-1]}" if saved else "step 1/60") in done.stderr, f"{saved}: {done.stderr}")
    merge(place.run(name))
    difference = first_difference(place.run("whole"), place.run(name))
    check(difference is None, f"{name}: rank {rank} at step {step}, resumed on {on}: {difference}")
    shutil.rmtree(place.run(name))
    return bool(saved)


MANY = ("--set", "run.micro_batch=2", "--set", "parallel.parts=4", "--set", "run.threads=1")
# What one rank has otherwise, and what is said about it.
OTHERS = ((["--set", "optimizer.lr=1e-3"], "optimizer.lr: 0.003 -> 0.001"), (["--set", "run.seed=2"], "run.seed: 1 -> 2"),
          (["--set", "precision.recipe=mxfp8"], "precision.recipe: "), (["--set", "run.steps=61"], "run.steps: 60 -> 61"),
          (["--set", "run.log_every=2"], "run.log_every: 1 -> 2"), (["--set", "run.checkpoint_every=7"], "run.checkpoint_every: 10 -> 7"),
          (["--set", "eval.every=4"], "eval.every: 20 -> 4"), (["--set", "model.hidden=128"], "model.hidden: 64 -> 128"),
          (["--set", "model.layers=3"], "model.layers: 2 -> 3"), (["--set", "model.moe.top_k=1"], "model.moe.top_k: 2 -> 1"),
          (["--set", "optimizer.kind=muon"], "optimizer.kind: "), (["--set", "parallel.parts=8"], "parallel.parts: 4 -> 8"),
          (["--set", "parallel.expert_ranks=4"], "parallel.expert_ranks: 1 -> 4"), (["--set", "run.batch_tokens=2048"], "run.batch_tokens: "),
          (["--set", "data.synth.train_tokens=150000"], "data.synth.train_tokens: "), (["--fresh"], "differs in its start"),
          (["--set", "eval.tokens=2048"], "eval.tokens: 4096 -> 2048"), (["--set", "optimizer.state=bf16"], "optimizer.state: "))


def many(place, writes, starts, seed):
    draw = random.Random(seed)
    place.train("whole", *MANY)
    saved = sum(failing_write(place, f"write-{i}", draw) for i in range(writes))
    print(f"{writes} failing writes on one of 4 ranks: {writes} ended with one error that names rank or file; {saved} went on from the "
          f"older checkpoint, {writes - saved} had none yet and began again; {writes} with equal bits", flush=True)
    common = place.command("differs", *MANY)
    other = other_program(place)
    kinds = set()
    for i in range(starts):
        rank = draw.randrange(1, 4)
        words, said = draw.choice([*OTHERS, (None, "differs in its program, SHA-256: ")])
        kinds.add(said)
        command = [other, *common[1:]] if words is None else [*common, *words]
        done = mpirun(*[command if r == rank else common for r in range(4)])
        check_refused(done, said)
        check(re.search(rf"^error: rank {rank} ", done.stderr, re.M), done.stderr)
        check(not checkpoints(place.run("differs")), "nothing is saved")
    print(f"{starts} launches with one of 4 ranks that differs, of {len(kinds)} kinds: {starts} refused before step 0, with the rank and "
          "both values", flush=True)


def main():
    if sys.argv[1:2] == ["--many"]:
        with Workplace(moe=True) as place:
            many(place, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
        return
    with Workplace(moe=True) as place:
        check_numbers(place)
        check_given_limit(place)
        check_memory(place)
        check_different(place)
        check_other_launcher(place)
    with Workplace() as place:
        check_other_data(place)
        check_other_evaluations(place)
    print("ranks_errors: ok")


main()
