#!/usr/bin/env python3
"""What several ranks saved goes on on any number of them, and is read by every command: after a stop, kill -9 of all
processes, signals, and with a damaged checkpoint.
usage: test_ranks_resume.py [--full]: more pairs of layouts, with expert ranks, for the acceptance table."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, at_once, check, checkpoints, first_difference, merge, rows, stop_at, struck_in_time
from refusals import is_refusal

STEPS, STOP = 24, 14
SETTINGS = [word for name, value in {
    "run.steps": STEPS, "run.micro_batch": 2, "schedule.warmup": 2, "schedule.warmdown": 6, "eval.every": 8,
    "telemetry.probe_every": 4, "run.checkpoint_every": 4, "parallel.parts": 4, "precision.recipe": "bf16",
    "run.keep_checkpoints": 3, "run.threads": 1}.items() for word in ("--set", f"{name}={value}")]


def ranks(number):
    return ["--ranks", str(number)] if number > 1 else []


def steps_of(run):
    return [int(folder.name[5:]) for folder in checkpoints(run)]


def copied(place, name, to):
    shutil.copytree(place.run(name), place.run(to), symlinks=True)
    return place.run(to)


def check_same(place, name, what):
    merge(place.run(name))
    difference = first_difference(place.run("whole"), place.run(name))
    check(difference is None, f"{what}: {difference}")


def check_pairs(place):
    """Saved on some number of ranks, loaded on another."""
    files = {}
    for saved in (1, 2, 4):
        name = f"saved-{saved}"
        place.train(name, *SETTINGS, *ranks(saved), "--stop-after", str(STOP))
        merged = copied(place, name, f"merged-{saved}")
        newest = checkpoints(merged)[-1]
        check(newest.name == f"step-{STOP:08d}", newest.name)
        if saved > 1:
            check(not (newest / "model.safetensors").exists(), f"{saved} ranks write slices")
            merge(merged)
        files[saved] = {path.name: path.read_bytes() for path in newest.iterdir() if path.suffix == ".safetensors"}
        check(sorted(files[saved]) == ["model.safetensors", "optimizer.safetensors"], sorted(files[saved]))
        check(files[saved] == files[1], f"merged files of {saved} ranks are those of one")
        states = [json.loads((place.run(f"saved-{n}") / "checkpoints" / newest.name / "state.json").read_text()) for n in (1, saved)]
        for state in states:
            check(state["extra"].pop("train_s") > 0, state)
        other = sorted(key for key in states[0] | states[1] if states[0].get(key) != states[1].get(key))
        check(not other, f"one state, on any number of ranks: {other}")

        def load(loaded):
            other = f"{saved}-to-{loaded}"
            copied(place, name, other)
            done = place.train(other, *SETTINGS, *ranks(loaded))
            check(f"resumes after step {STOP}" in done.stderr, done.stderr)
            if loaded == 1:  # writes format 1, of the same bytes as a run that never had ranks
                check((checkpoints(place.run(other))[-1] / "model.safetensors").exists(), "one rank writes format 1")
            check_same(place, other, f"saved on {saved}, loaded on {loaded}")

        at_once(load, (1, 2, 4))


def processes_below(pid):
    """The descendants of a process, children first found last."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *processes_below(int(child))]
    return found


def ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def kill_all(process):
    every = processes_below(process.pid)
    if len(every) < 3:  # mpirun and two ranks: the run has ended
        return
    for pid in (process.pid, *every):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    end = time.monotonic() + 10
    while not all(map(ended, every)):
        check(time.monotonic() < end, f"processes that outlive kill -9: {every}")
        time.sleep(0.01)


def check_killed(place):
    for step, number, delay in ((3, 2, 0), (8, 4, 0.0), (13, 2, 0.01), (17, 2, 0.005)):
        def kill(process):
            time.sleep(delay)
            kill_all(process)
            process.wait()
            process.stderr.close()

        code, _ = struck_in_time(place.command("killed", *SETTINGS, *ranks(number)), step, kill)
        check(code == -signal.SIGKILL, f"kill -9 of all processes: exit {code}")
    place.train("killed", *SETTINGS, *ranks(4))
    check_same(place, "killed", "kill -9 of all processes")


def check_signals(place):
    long = [*SETTINGS, "--set", "run.steps=3000", "--set", "run.checkpoint_every=0", "--set", "eval.every=1000"]
    place.train("long-whole", *long, "--stop-after", "3", *ranks(2))
    for number, name, asked, rank in ((2, "interrupted", signal.SIGINT, None), (2, "usr1", signal.SIGUSR1, None),
                                      (4, "terminated", signal.SIGTERM, None), (8, "one-of-eight", signal.SIGINT, 5)):
        command = place.command(name, *long, "--set", f"parallel.parts={max(4, number)}", *ranks(number))
        code, said = stop_at(command, 5, asked, rank=rank)
        check(code == 130, f"{asked.name} exits 130, not {code}: {said}")
        saved = steps_of(place.run(name))
        check(len(saved) == 1 and saved[0] >= 5, f"{asked.name}: one checkpoint: {saved}")
        files = sorted(path.name for path in checkpoints(place.run(name))[0].iterdir())
        check(files == sorted(["MANIFEST.json", "state.json", *(f"{kind}.{rank:05d}.safetensors" for kind in ("model", "optimizer")
                                                              for rank in range(number))]), f"of all ranks: {files}")
        check(said.count(f"interrupted at step {saved[0]}/3000") == 1 and "run the same command to resume" in said, said)
        check("error:" not in said and "mpirun" not in said, said)
    # The same schedule, stopped at the same steps, has the same bits whoever stopped it.
    first = min(steps_of(place.run(name))[0] for name in ("interrupted", "usr1"))
    name = next(n for n in ("interrupted", "usr1") if steps_of(place.run(n))[0] == first)
    end = first + 20
    place.train(name, *long, *ranks(2), "--stop-after", "20")
    place.train("long-whole", *long, "--stop-after", str(end - 3))
    merge(place.run(name))
    difference = first_difference(place.run("long-whole"), place.run(name))
    check(difference is None, f"resumed after a signal: {difference}")


def flip(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def resealed(checkpoint):
    """Makes the manifest agree with the files: then only their content can show what is wrong."""
    manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
    for name in manifest["files"]:
        data = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (checkpoint / "MANIFEST.json").write_text(json.dumps(manifest, indent=2) + "\n")


def check_damaged(place):
    def file(folder, kind, rank):
        return folder / f"{kind}.{rank:05d}.safetensors"

    def cut(folder):
        path = file(folder, "optimizer", 0)
        path.write_bytes(path.read_bytes()[:-1000])

    def swapped(folder):
        a, b = file(folder, "model", 0), file(folder, "model", 1)
        first = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(first)

    def doubled(folder):
        shutil.copyfile(file(folder, "model", 0), file(folder, "model", 1))

    def older(folder):  # one rank's file of another step: its bytes are not those of the manifest
        shutil.copyfile(file(folder.parent / "step-00000012", "model", 1), file(folder, "model", 1))

    def doubled_and_sealed(folder):
        doubled(folder)
        resealed(folder)

    def swapped_kinds_and_sealed(folder):
        a, b = file(folder, "model", 1), file(folder, "optimizer", 1)
        first = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(first)
        resealed(folder)

    damages = {"missing": lambda folder: file(folder, "model", 1).unlink(), "flipped": lambda folder: flip(file(folder, "optimizer", 1)),
               "cut": cut, "swapped": swapped, "doubled": doubled, "older": older, "doubled_and_sealed": doubled_and_sealed,
               "swapped_kinds_and_sealed": swapped_kinds_and_sealed,
               "no_manifest": lambda folder: (folder / "MANIFEST.json").unlink()}

    def damaged(numbered):
        number, (damage, apply) = numbered
        run = copied(place, "saved-2", damage)
        newest = checkpoints(run)[-1]
        apply(newest)
        done = place.train(damage, *SETTINGS, *ranks((1, 2, 4)[number % 3]))
        if damage != "no_manifest":  # such a folder was never a checkpoint
            check(done.stderr.count(f"warning: ignoring the checkpoint {newest}: ") == 1, f"{damage} is named once: {done.stderr}")
        check("resumes after step 12" in done.stderr, f"{damage}: {done.stderr}")
        check_same(place, damage, damage)

    at_once(damaged, enumerate(damages.items()))
    run = copied(place, "saved-2", "swapped-whole")  # a name is no promise: slices say what they are
    swapped(checkpoints(run)[-1])
    resealed(checkpoints(run)[-1])
    done = place.train("swapped-whole", *SETTINGS, *ranks(2))
    check(f"resumes after step {STOP}" in done.stderr and "ignoring" not in done.stderr, done.stderr)
    check_same(place, "swapped-whole", "files under other numbers")
    run = copied(place, "saved-2", "all-bad")
    for folder in checkpoints(run):
        flip(file(folder, "model", 0))
    done = place.train("all-bad", *SETTINGS, *ranks(2), expect=1)
    check(is_refusal(done, "error: none of the", said_before=True), done.stderr)


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_commands(place):
    """Commands that read a checkpoint of two ranks say what they say of one rank's."""
    place.train("slices", *SETTINGS, *ranks(2))
    one, two = place.run("whole"), place.run("slices")
    check(not (checkpoints(two)[-1] / "model.safetensors").exists(), "still in slices")
    exported = []
    for run in (one, two):
        out = place.path / f"exported-{run.name}"
        done = assay("export", run, "--out", out)
        check(done.returncode == 0, done.stderr)
        exported.append({str(name): data for name, data in tree(out).items()})
    names = [sorted(e) for e in exported]
    check(names[0] == names[1] and "model.safetensors" in names[0], names)
    check(exported[0]["model.safetensors"] == exported[1]["model.safetensors"], "the exported weights")
    evaluated = [json.loads(assay("eval", run, "--json").stdout) for run in (one, two)]
    losses = [e["val_loss_nats"] for e in evaluated]
    check(losses[0] == losses[1] and 0 < losses[0] < 7, evaluated)
    texts = [json.loads(assay("sample", run, "--prompt", "The", "--tokens", "9", "--json").stdout)["texts"] for run in (one, two)]
    check(texts[0][0]["tokens"] == texts[1][0]["tokens"] and len(texts[0][0]["tokens"]) == 9, texts)
    done = assay("receipt", "verify", two, "--rerun", "6")
    check(done.returncode == 0, f"a receipt of two ranks, rerun on one: {done.stdout}{done.stderr}")
    listed = assay("checkpoint", "list", two).stdout.splitlines()
    check(listed[-1].split()[:3] == [f"step-{STEPS:08d}", "2", "2"] and listed[-1].split()[-1] == "valid", listed)


def check_threads(place):
    """run.threads 0 stays so in config.yaml: each launch takes the cores that it has. A number that is too large is told."""
    place.train("threads", *SETTINGS, "--set", "run.threads=0", "--stop-after", "2")
    run = place.run("threads")
    cores = json.loads((run / "meta.json").read_text())["threads"]
    check(0 < cores <= len(os.sched_getaffinity(0)), f"{cores} threads")

    def goes_on(*more):
        done = assay("train", run / "config.yaml", "--run", run, *ranks(2), "--stop-after", "2", *more)
        check(done.returncode == 0 and "resumes after step" in done.stderr, done.stderr)
        return json.loads((run / "meta.json").read_text()), done.stderr

    meta, said = goes_on()
    check("\n  threads: 0\n" in (run / "config.yaml").read_text(), "all cores, wherever it goes on")
    check(meta["before"][0]["threads"] == cores and meta["threads"] in (max(1, cores // 2), (cores + 1) // 2), meta)
    check((meta["ranks"], meta["nodes"]) == (2, 1) and "run.threads" not in said, f"{meta} {said}")
    meta, said = goes_on("--set", f"run.threads={cores + 1}")
    check(meta["threads"] == cores + 1 and f"warning: run.threads = {cores + 1} and " in said, said)
    if cores > 1:  # each of the two has half of them
        meta, said = goes_on("--set", f"run.threads={cores}")
        check(f"warning: run.threads = {cores} and " in said, said)


# (parts, saved on, loaded on), each as (ranks, expert_ranks).
LAYOUTS = ((4, (4, 2), (4, 4)), (4, (4, 4), (1, 1)), (4, (1, 1), (4, 2)), (4, (4, 2), (2, 1)), (4, (2, 1), (4, 4)), (4, (4, 4), (4, 1)),
           (4, (4, 1), (4, 2)), (4, (4, 4), (4, 2)), (2, (1, 1), (2, 2)), (2, (2, 2), (1, 1)), (2, (2, 2), (2, 1)), (3, (3, 3), (1, 1)),
           (3, (1, 1), (3, 3)), (6, (6, 2), (3, 1)), (6, (3, 1), (6, 2)), (6, (6, 6), (1, 1)), (6, (3, 1), (1, 1)), (6, (6, 1), (3, 1)))
# Shares of the experts are whole pieces of 16384 elements. Saved at step 14; ten steps more.
EXPERTS = [word for name, value in {"run.steps": STEPS, "run.batch_tokens": 768, "schedule.warmup": 2, "schedule.warmdown": 6,
                                    "eval.every": 8, "telemetry.probe_every": 4, "run.checkpoint_every": 100, "run.threads": 1,
                                    "model.moe.experts": 12, "model.moe.expert_ffn": 256, "parallel.expert_rows": 6,
                                    "precision.recipe": "bf16"}.items() for word in ("--set", f"{name}={value}")]


def check_layouts(place):
    """Merged checkpoints of any layout have the bytes of one rank's, and ten more steps on another one have its bits."""
    def on(layout, parts):
        shared = ["--set", f"parallel.expert_ranks={layout[1]}"] if layout[1] > 1 else []
        # One micro-batch for each part.
        return [*EXPERTS, *shared, "--set", f"parallel.parts={parts}", "--set", f"run.micro_batch={12 // parts}", *ranks(layout[0])]

    def tensors(run):
        newest = checkpoints(run)[-1]
        return newest.name, {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}

    for parts in sorted({parts for parts, _, _ in LAYOUTS}):
        one = f"experts-{parts}-1-1"
        place.train(one, *on((1, 1), parts), "--stop-after", str(STOP))
        of_one = tensors(place.run(one))
        whole = copied(place, one, f"experts-{parts}-whole")
        place.train(whole.name, *on((1, 1), parts))
        for saved in sorted({saved for p, saved, _ in LAYOUTS if p == parts}):
            name = f"experts-{parts}-{saved[0]}-{saved[1]}"
            if saved != (1, 1):
                place.train(name, *on(saved, parts), "--stop-after", str(STOP))
                merged = copied(place, name, f"{name}-merged")
                merge(merged)
                check(tensors(merged) == of_one and of_one[0] == f"step-{STOP:08d}", f"the merged checkpoint of {saved}, {parts} parts")
            for loaded in [loaded for p, s, loaded in LAYOUTS if (p, s) == (parts, saved)]:
                other = copied(place, name, f"{name}-to-{loaded[0]}-{loaded[1]}")
                done = place.train(other.name, *on(loaded, parts))
                check(f"resumes after step {STOP}" in done.stderr, done.stderr)
                merge(other)
                difference = first_difference(whole, other, equal_precision=False)
                rounds = rows(other, "SELECT max(value) FROM scalar WHERE name = 'exchange_rounds_max'")
                check(difference is None, f"{parts} parts, saved on {saved}, loaded on {loaded}: {difference}, rounds {rounds}")
                check(tensors(other) == tensors(whole), f"{parts} parts, saved on {saved}, loaded on {loaded}: merged bytes")
                print(f"parts {parts}: saved on {saved[0]} ranks x {saved[1]} expert ranks, loaded on {loaded[0]} x {loaded[1]}: "
                      f"equal bytes at step {STOP}, and after {STEPS - STOP} more", flush=True)
    print(f"{len(LAYOUTS)} pairs of layouts: ok")


def main():
    if sys.argv[1:] == ["--full"]:
        with Workplace(moe=True) as place:
            check_layouts(place)
        return
    with Workplace(moe=True) as place:
        place.train("whole", *SETTINGS)
        check_pairs(place)
        check_damaged(place)
        check_killed(place)
        check_signals(place)
        check_commands(place)
        check_threads(place)
    print("ranks_resume: ok")


main()
