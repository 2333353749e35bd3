#!/usr/bin/env python3
"""What commands print: a failed write is an error, a closed pipe is not, and every --json is UTF-8,
also where the names of files are not."""
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import ASSAY, Workplace, check

ODD = b"\xffrun"
failures = []


def run(arguments, work, **options):
    return subprocess.run([str(ASSAY), *arguments], cwd=work, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def documents(work):
    """The commands that print JSON, with odd names wherever they take one. Earlier ones make what
    later ones read."""
    config = work / os.fsdecode(b"\xff.yaml")
    config.write_text((work / "config.yaml").read_text())
    (work / "text.txt").write_text("Once upon a time there was a cat.<|endoftext|>The cat sat.<|endoftext|>" * 200)
    (work / "matrix.yaml").write_text("models: {a: config.yaml}\ncontracts: [{kind: steps}]\nprecisions: [auto]\nseeds: [1]\n")
    train = ["train", config, "--run", ODD, "--set", "run.steps=20", "--set", "precision.recipe=mxfp8", "--json"]
    return [
        train,
        [*train[:-1], "--plan", "--json"],
        ["tokenizer", "train", "text.txt", "--vocab-size", "280", "-o", b"\xfftok.json", "--json"],
        ["tokenizer", "encode", "--tokenizer", b"\xfftok.json", "--text", b"caf\xe9", "--json"],
        ["data", "prepare", "text.txt", "--tokenizer", b"\xfftok.json", "--val-share", "0.2", "-o", b"\xffdata", "--json"],
        ["data", "inspect", b"\xffdata", "--json"],
        ["data", "verify", b"\xffdata", "--json"],
        ["data", "ngrams", b"\xffdata", "--json"],
        ["audit", config, "--json"],
        ["audit", config, "--plan", "--json"],
        ["simulate", config, "--json"],
        ["match", "--like", config, "--json"],
        ["router", ODD, "--json"],
        ["precision", ODD, "--json"],
        ["compare", ODD, "--json"],
        ["compare", "--published", "list", "--json"],
        ["published", "list", "--json"],
        ["published", "show", "0003", "--json"],
        ["published", "check", "all", "--json"],
        ["eval", ODD, "--json"],
        ["eval", ODD, "--plan", "--json"],
        ["sample", ODD, "--prompt", "Once", "--tokens", "4", "--json"],
        ["receipt", "verify", ODD, "--json"],
        ["checkpoint", "list", ODD, "--json"],
        ["checkpoint", "merge", ODD, "--json"],
        ["export", ODD, "-o", b"\xffout", "--json"],
        ["import", b"\xffout", "-o", b"\xffimported", "--json"],
        ["telemetry", ODD, "--json"],
        ["doctor", "--quick", "--json"],
    ]


TEXTS = [["--help"], ["--version"], ["version"], ["train", "--help"], ["train", "--help-config"], ["train", "--example-config"],
         ["completion", "bash"], ["completion", "zsh"], ["man"], ["router", ODD], ["precision", ODD], ["compare", ODD],
         ["audit", "config.yaml"], ["audit", "config.yaml", "--plan"], ["simulate", "config.yaml"],
         ["train", "config.yaml", "--plan"], ["eval", ODD], ["sample", ODD, "--prompt", "Once", "--tokens", "4"], ["receipt", "verify", ODD], ["checkpoint", "list", ODD], ["data", "verify", b"\xffdata"],
         ["data", "inspect", b"\xffdata"], ["tokenizer", "encode", "--tokenizer", b"\xfftok.json", "--text", "cat"],
         ["matrix", "matrix.yaml", "--dry-run"], ["telemetry", ODD], ["telemetry", ODD, "--jsonl"], ["telemetry", ODD, "--table", "steps"], ["watch", ODD, "--text", "--once"],
         ["published", "list"], ["published", "show", "tiny"], ["published", "check", "all"], ["doctor", "--quick"]]
# They refuse to write twice, so that a second call has nothing to print.
ONCE = (["export"], ["import"], ["data", "prepare"], ["tokenizer", "train"])


def fail(arguments, why, done):
    failures.append(f"assay {arguments}: {why}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")


def check_json(arguments, work):
    done = run(arguments, work, stdout=subprocess.PIPE)
    try:
        json.loads(done.stdout.decode())
    except ValueError as error:
        return fail(arguments, f"not JSON in UTF-8 ({error})", done)
    if done.returncode != 0:
        fail(arguments, "failed", done)


def check_full(arguments, work):
    with open("/dev/full", "w") as full:
        done = run(arguments, work, stdout=full)
    lines = done.stderr.decode(errors="replace").splitlines()
    wanted = "error: cannot write to standard output: No space left on device"
    if done.returncode != 1 or lines.count(wanted) != 1 or lines[-2] != wanted or not lines[-1].startswith("hint: "):
        fail(arguments, "no error on a full disk", done)


def check_closed_pipe(arguments, work, with_signal):
    reader, writer = os.pipe()
    os.close(reader)
    ignore = None if with_signal else lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    done = run(arguments, work, stdout=writer, preexec_fn=ignore, restore_signals=with_signal)
    os.close(writer)
    if done.returncode not in ((-signal.SIGPIPE,) if with_signal else (141,)) or b"error" in done.stderr:
        fail(arguments, "not quiet on a closed pipe", done)


def main():
    with Workplace(moe=True) as place:
        work = place.path
        commands = documents(work)
        for arguments in commands:
            check_json(arguments, work)
        for arguments in TEXTS + [a for a in commands if not any(a[:len(once)] == once for once in ONCE)]:
            check_full(arguments, work)
        for with_signal in (True, False):
            for arguments in (["completion", "bash"], ["audit", "config.yaml"], ["compare", ODD, "--json"]):
                check_closed_pipe(arguments, work, with_signal)
        done = subprocess.run(["bash", "-c", f"set -o pipefail; '{ASSAY}' man | head -1"], capture_output=True, text=True)
        check(done.returncode in (0, 141) and not done.stderr and done.stdout.count("\n") == 1, f"| head -1: {done}")
        done = subprocess.run(["bash", "-c", f"'{ASSAY}' audit config.yaml >&-"], cwd=work, capture_output=True, text=True)
        check(done.returncode == 1 and "cannot write to standard output: Bad file descriptor" in done.stderr, f">&-: {done}")
    check(not failures, "\n".join(failures))
    print(f"output: ok ({len(commands)} JSON documents, {len(TEXTS)} texts)")


main()
