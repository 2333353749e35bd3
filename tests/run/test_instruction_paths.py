#!/usr/bin/env python3
"""Runs on a CPU record the instructions that decide their bits: ranks with others are refused, a rerun is not
available, a resume warns. What another CPU would do is done by this one without its AMX, where it has any; the rest by
edited records.
usage: test_instruction_paths.py [--ranks]: --ranks where the program has MPI."""
import json
import signal
import subprocess
import sys

from harness import (ASSAY, ROOT, Workplace, assay, check, checkpoints, first_difference, merge, mpirun, newest_tensors,
                     stop_at)

SETTINGS = [word for name, value in {"run.steps": 8, "run.micro_batch": 2, "run.checkpoint_every": 4,
                                     "schedule.warmup": 2, "schedule.warmdown": 4, "eval.every": 8,
                                     "precision.recipe": "bf16"}.items()
            for word in ("--set", f"{name}={value}")]
NAMES = {"amx": "AMX", "avx512_bf16": "AVX512-BF16", "avx512": "AVX-512", "avx2": "AVX2", "base": "no vector extension"}
WARNING = "the steps so far were computed with "


def without_amx(*command):
    return [sys.executable, str(ROOT / "tests" / "without_amx.py"), *map(str, command)]


def called(command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    check(done.returncode == code, f"exit {done.returncode}, not {code}: {command}\n{done.stdout}{done.stderr}")
    return done


def path_here():
    """What `assay doctor` says is used, as meta.json names it."""
    used = json.loads(assay("doctor", "--quick", "--json").stdout)["cpu"]["used"]
    for flag, path in (("amx_bf16", "amx"), ("avx512_bf16", "avx512_bf16"), ("avx512f", "avx512"), ("avx2", "avx2")):
        if flag in used:
            return path
    return "base"


def meta_of(run):
    return json.loads((run / "meta.json").read_text())


def edit(run, path):
    """Another record of the instructions; None: none, as of an older version."""
    meta = meta_of(run)
    meta["instructions"] = path
    if path is None:
        del meta["instructions"]
    (run / "meta.json").write_text(json.dumps(meta))


def rerun_of(run, command=()):
    """The line of the rerun, which never drifts here."""
    done = called([*command, str(ASSAY), "receipt", "verify", str(run), "--rerun", "3"])
    return next(line for line in done.stdout.splitlines() if " rerun of 3 steps " in line)


def check_records(place, here):
    other = "avx2" if here != "avx2" else "avx512"
    run = place.run("whole")
    place.train("whole", *SETTINGS)
    check(meta_of(run)["instructions"] == here, f"{meta_of(run)['instructions']}, doctor says {here}")
    receipt = json.loads((run / "receipt.json").read_text())
    check(receipt["environment"]["instructions"] == here, receipt["environment"])
    check("same" in rerun_of(run), "the same instructions")
    edit(run, other)
    line = rerun_of(run)
    check("not available" in line and f"trained on a CPU with {NAMES[other]}, here with {NAMES[here]}" in line, line)
    edit(run, None)
    check("same" in rerun_of(run), "a run of an older version is trained again all the same")

    # A resume.
    place.train("resumed", *SETTINGS, "--stop-after", "3")
    edit(place.run("resumed"), other)
    done = place.train("resumed", *SETTINGS, "--stop-after", "2")
    check(done.stderr.count(f"{WARNING}{NAMES[other]}, these with {NAMES[here]}: other bits") == 1, done.stderr)
    line = rerun_of(place.run("resumed"))
    check("not available" in line and f"with {NAMES[other]}" in line, line)  # these steps were the first launch's
    done = place.train("resumed", *SETTINGS)
    check(WARNING not in done.stderr, f"told once: {done.stderr}")
    done = place.train("resumed", *SETTINGS)
    check(WARNING not in done.stderr, f"no step is left: {done.stderr}")


def check_without_amx(place, ranks):
    amx, none = place.run("whole"), place.run("none")
    called(without_amx(*place.command("none", *SETTINGS)))
    recorded = meta_of(none)["instructions"]
    check(recorded != "amx", recorded)
    check(newest_tensors(amx)[1] != newest_tensors(none)[1], "AMX has other bits: or else none of this is needed")
    edit(amx, "amx")
    for run, command, said in ((none, (), f"with {NAMES[recorded]}, here with AMX"),
                               (amx, without_amx(), f"with AMX, here with {NAMES[recorded]}")):
        line = rerun_of(run, command)
        check("not available" in line and said in line, line)
    check("same" in rerun_of(none, without_amx()), "without AMX again")

    place.train("both", *SETTINGS, "--stop-after", "3")
    done = called(without_amx(*place.command("both", *SETTINGS)))
    check(done.stderr.count(f"{WARNING}AMX, these with {NAMES[recorded]}: other bits") == 1, done.stderr)
    if not ranks:
        return
    command = place.command("ranks", *SETTINGS)
    for first, second, a, b in ((command, without_amx(*command), "AMX", NAMES[recorded]),
                                (without_amx(*command), command, NAMES[recorded], "AMX")):
        done = mpirun(first, second)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        check(done.returncode == 1 and len(errors) == 1, done.stderr)
        check(f"differs in its device: cpu with {a} on rank 0, cpu with {b} there" in done.stderr, done.stderr)
        check("hint: ranks have the same bits only with the same instructions" in done.stderr, done.stderr)
        check(not checkpoints(place.run("ranks")), "nothing is saved")
    done = mpirun(*[without_amx(*command)] * 2)
    check(done.returncode == 0, done.stderr)
    called(without_amx(*place.command("one", *SETTINGS, "--set", "parallel.parts=2")))
    merge(place.run("ranks"))
    difference = first_difference(place.run("one"), place.run("ranks"))
    check(difference is None, difference)


def check_fp32_without_amx(place, ranks):
    """Recipe fp32 has the same bits with AMX and without; Muon's products of bf16 have not."""
    fp32 = [*SETTINGS, "--set", "precision.recipe=fp32"]
    amx, none = place.run("fp32"), place.run("fp32_none")
    place.train("fp32", *fp32)
    called(without_amx(*place.command("fp32_none", *fp32)))
    check(meta_of(amx)["instructions"] == "amx" != meta_of(none)["instructions"], "the records say what was used")
    check(newest_tensors(amx)[1] == newest_tensors(none)[1], "fp32 has the bits of floats")
    check("same" in rerun_of(none), "with AMX")
    check("same" in rerun_of(amx, without_amx()), "without AMX")
    edit(none, "avx2")
    line = rerun_of(none)
    check("not available" in line and "trained on a CPU with AVX2, here with AVX-512" in line, line)

    place.train("fp32_both", *fp32, "--stop-after", "3")
    done = called(without_amx(*place.command("fp32_both", *fp32)))
    check(WARNING not in done.stderr, done.stderr)
    check(newest_tensors(amx)[1] == newest_tensors(place.run("fp32_both"))[1], "as without the stop")

    muon = [*fp32, "--set", "optimizer.kind=muon"]
    place.train("muon", *muon, "--stop-after", "3")
    line = rerun_of(place.run("muon"), without_amx())
    check("not available" in line and "trained on a CPU with AMX, here with " in line, line)
    done = called(without_amx(*place.command("muon", *muon)))
    check(done.stderr.count(f"{WARNING}AMX, these with ") == 1, done.stderr)
    if not ranks:
        return
    command = place.command("fp32_ranks", *fp32)
    done = mpirun(command, without_amx(*command))
    check(done.returncode == 0, done.stderr)
    for run in ("fp32", "muon"):  # evaluations of Muon's checkpoint have no products of bf16
        command = [str(ASSAY), "eval", str(place.run(run)), "--tasks", "loss"]
        done = mpirun(command, without_amx(*command))
        check(done.returncode == 0, done.stderr)
    command = place.command("muon_ranks", *muon)
    done = mpirun(command, without_amx(*command))
    check(done.returncode == 1 and "differs in its device: cpu with AMX on rank 0, cpu with " in done.stderr,
          done.stderr)


def check_illegal_instruction(place):
    """A rank that dies of it, as on a CPU that the program is not for."""
    command = place.command("illegal", *SETTINGS, "--set", "run.steps=400", "--ranks", "2")
    code, said = stop_at(command, 3, signal.SIGILL, rank=1)
    check(code == 4 and "was ended by" in said, f"exit {code}: {said}")
    if "signal 4 (Illegal instruction)" in said:  # else Open MPI did not say which
        check("hint: its CPU may not have all instructions" in said and "looks like a bug" not in said, said)


def main():
    ranks, here = "--ranks" in sys.argv[1:], path_here()
    with Workplace() as place:
        check_records(place, here)
        if ranks:
            check_illegal_instruction(place)
        probe = subprocess.run(without_amx("/bin/true"), capture_output=True, text=True)
        if here == "amx" and probe.returncode == 0:
            check_without_amx(place, ranks)
            check_fp32_without_amx(place, ranks)
        else:
            print("without its AMX: " + (probe.stdout.strip() if here == "amx" else f"skipped, products take {here}"))
    print("instruction paths: ok")


if __name__ == "__main__":
    main()
