#!/usr/bin/env python3
"""Rank 0 records what each rank did in the logged steps, and the end of a launch and the report name the rank that the
others waited for: a process that is stopped most of the time. Ranks that share the experts count their exchange."""
import csv
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints, merge, newest_tensors, rank_processes, rows

SETTINGS = [word for name, value in {"run.steps": 12, "run.micro_batch": 2, "schedule.warmup": 2, "schedule.warmdown": 4,
                                     "eval.every": 12, "run.threads": 1, "run.log_every": 2, "telemetry.probe_every": 3,
                                     "run.checkpoint_every": 0, "precision.recipe": "bf16"}.items()
            for word in ("--set", f"{name}={value}")]
EXPERTS = ("--set", "parallel.expert_ranks=2", "--set", "parallel.expert_rows=2")
ROWS = "SELECT step, rank, step_ms, wait_ms, bytes_sent, peak_rss_bytes FROM rank_step ORDER BY step, rank"
NAMED = re.compile(r"rank (\d+) holds the others up: they wait for it (\d+)% of a step, median of (\d+) logged")


def masters(run):
    """Number of parameters of the newest checkpoint: 4 bytes each."""
    merge(run)
    data = newest_tensors(run)[1]
    return (len(data) - 8 - int.from_bytes(data[:8], "little")) // 4


def check_one_rank(place):
    done = place.train("one", *SETTINGS)
    check(reported(place.run("one"))["ranks"] is None, "no ranks in the report")
    check(not rows(place.run("one"), ROWS) and not NAMED.search(done.stderr), done.stderr)
    check("rank" not in assay("telemetry", place.run("one")).stdout, "no table of ranks")


def check_rows(place):
    run = place.run("two")
    place.train("two", *SETTINGS, "--ranks", "2")
    found = rows(run, ROWS)
    check([row[:2] for row in found] == [(step, rank) for step in range(2, 13, 2) for rank in (0, 1)], found)
    step_ms = dict(rows(run, "SELECT step, milliseconds FROM span WHERE name = 'step'"))
    for step, rank, took, waited, _, peak in found:
        check(0 < waited < took and peak > 1 << 20, f"step {step} rank {rank}: {waited} of {took} ms, {peak} bytes")
        check(rank != 0 or took == step_ms[step], f"step {step}: {took} ms, not {step_ms[step]}")
    # Both together send every gradient and every master once, 4 bytes each, and a few numbers.
    parameters = masters(run)
    for step in range(2, 13, 2):
        sent = [row[4] for row in found if row[0] == step]
        check(min(sent) > 0 and 8 * parameters <= sum(sent) <= 8 * parameters + 8192,
              f"step {step}: {sent} bytes, {parameters} parameters")
    check(len({row[4] for row in found if row[1] == 1 and row[0] % 6 != 0}) == 1, f"every step sends the same: {found}")
    return found


def check_shared_experts(place):
    """Rows of tokens go there and back, forward and backward: about half of them to the other rank. They are counted,
    beside gradients and masters of what both ranks have."""
    run = place.run("experts")
    place.train("experts", *SETTINGS, *EXPERTS, "--ranks", "2", "--set", "precision.recipe=fp32")
    audit = reported(run)["audit"]
    (rows_of_tokens,), = rows(run, "SELECT sum(assignments) FROM router_layer WHERE step = 12")
    exchanged = 4 * rows_of_tokens * 4 * 64
    for step in range(2, 13, 2):
        sent, = rows(run, f"SELECT sum(bytes_sent) FROM rank_step WHERE step = {step}")[0]
        of_rows = sent - 8 * (audit["total"] - audit["routed_experts"])
        check(exchanged / 4 < of_rows < 3 * exchanged / 4, f"step {step}: {sent} bytes, {of_rows} of rows, {exchanged} if all went")


def reported(run):
    done = assay("report", run, "--json")
    check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["runs"][0]


def check_export(place, found):
    run, folder = place.run("two"), place.path / "export"
    done = assay("telemetry", run, "--csv", folder, "--tensorboard", place.path / "tb")
    check(done.returncode == 0, done.stderr)
    with open(folder / "rank_steps.csv", newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    check(table[0] == ["step", "rank", "step_ms", "wait_ms", "bytes_sent", "peak_rss_bytes"], table[0])
    check([tuple(map(float, row)) for row in table[1:]] == found, "rank_steps.csv has the rows of the database")
    events, = (place.path / "tb").iterdir()
    data = events.read_bytes()
    for rank in (0, 1):
        check(data.count(b"ranks/rank_00%d/wait_ms" % rank) == 6, f"wait_ms of rank {rank} in the event file")


def check_resume(place):
    """Rows after the checkpoint go; one rank adds none."""
    place.train("resumed", *SETTINGS, "--ranks", "2", "--stop-after", "5")
    check(len(checkpoints(place.run("resumed"))) == 1, "one checkpoint")
    with sqlite3.connect(place.run("resumed") / "telemetry.db") as db:
        db.execute("INSERT INTO rank_step VALUES (6, 1, 9.0, 8.0, 7, 6)")
    db.close()
    place.train("resumed", *SETTINGS, "--stop-after", "3")
    check([row[:2] for row in rows(place.run("resumed"), ROWS)] == [(2, 0), (2, 1), (4, 0), (4, 1)], "rows up to step 5")
    place.train("resumed", *SETTINGS, "--ranks", "2")
    check([row[0] for row in rows(place.run("resumed"), ROWS)] == [2, 2, 4, 4, 10, 10, 12, 12], "rows of two ranks")


def slowed(place, slow, *more):
    """What a run says whose rank `slow` is stopped three quarters of the time, many times in a step."""
    command = place.command(f"slow-{slow}", "--fresh", *SETTINGS, "--ranks", "2", "--set", "run.batch_tokens=16384",
                            "--set", "run.steps=12", "--set", "run.log_every=1", *more)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("step 2/"):
                break
        check(process.poll() is None, f"the run is still alive at step 2: {said}")
        pid = rank_processes(process.pid, 2)[slow]
        try:
            while process.poll() is None:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.01)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.003)
        except ProcessLookupError:
            pass
        said += process.communicate()[1]
        check(process.returncode == 0, said)
        return said


def check_slow(place, slow, *more, tries=1):
    """It is named by one of so many runs, and nobody else by any."""
    for _ in range(tries):
        said = slowed(place, slow, *more)
        named = NAMED.findall(said)
        if named:
            break
    waits = rows(place.run(f"slow-{slow}"), "SELECT step, rank, step_ms, wait_ms FROM rank_step")
    check(len(named) == 1 and int(named[0][0]) == slow, f"rank {slow} is named: {said}{waits}")
    check(10 < int(named[0][1]) < 100 and int(named[0][2]) == 12, f"{named}: {waits}")
    ranks = reported(place.run(f"slow-{slow}"))["ranks"]
    check(ranks["slow"] == slow and f"Rank {slow} holds the others up" in ranks["says"] and len(ranks["ranks"]) == 2, ranks)
    check(ranks["says"].endswith(f" {named[0][1]}% of a step."), f"{ranks['says']}, not {named}")


def main():
    with Workplace() as place:
        check_one_rank(place)
        check_export(place, check_rows(place))
        check_resume(place)
        check_slow(place, 1)
        check_slow(place, 0)
    with Workplace(moe=True) as place:
        check_shared_experts(place)
        # Large micro-batches: where ranks exchange often, the slow one is stopped inside of calls too, and seems to wait.
        check_slow(place, 1, *EXPERTS, "--set", "run.micro_batch=32", tries=3)
    print("ranks_slow: ok")


main()
