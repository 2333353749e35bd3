#!/usr/bin/env python3
"""assay telemetry: every format has the numbers of telemetry.db, to the bit; event files are read
back by a decoder of their own that checks the CRCs."""
import csv
import json
import math
import os
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import ASSAY, Workplace, assay, check, rows
from refusals import is_refusal


def crc32c(data):
    """Bit by bit, from the definition of CRC-32C; the program uses a table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


check(crc32c(b"123456789") == 0xE3069283, "the decoder's own CRC-32C")


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a protocol buffer; bytes, an integer or the raw bytes of a fixed width."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                check(key & 7 == 2, f"wire type {key & 7}")
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def events(path):
    """(wall time, step, {tag: float}) of every record after the first."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        head, = struct.unpack_from("<Q", data, at)
        body = data[at + 12:at + 12 + head]
        check(struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "CRC of a length")
        check(struct.unpack_from("<I", data, at + 12 + head)[0] == masked(body), "CRC of a record")
        at += 16 + head
        event = dict(fields(body))
        if not found and 3 in event:
            check(event[3] == b"brain.Event:2", event)
            continue
        scalars = {}
        for number, value in fields(event[5]):
            check(number == 1, number)
            value = dict(fields(value))
            scalars[value[1].decode()] = struct.unpack("<f", value[2])[0]
        found.append((struct.unpack("<d", event[1])[0], event[2], scalars))
    return found


def refused(error, *arguments):
    done = assay("telemetry", *arguments)
    check(is_refusal(done, error),
          f"telemetry {arguments}: wanted {error!r}\n{done.stdout}{done.stderr}")


def ok(*arguments):
    done = assay("telemetry", *arguments)
    check(done.returncode == 0 and not done.stderr, f"telemetry {arguments}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def plant_odd_values(run):
    """Values that training rarely writes: infinity, NaN (absent), text with quotes and commas."""
    with sqlite3.connect(run / "telemetry.db") as db:
        db.execute("INSERT INTO eval VALUES (20, 'odd', 'inf', 9e999, 7), (20, 'odd', 'minus', -9e999, 7), (20, 'odd', 'nan', NULL, 7),"
                   " (20, 'odd', 'third', 1.0 / 3, 7), (20, 'odd', 'tiny', 5e-324, 7)")
        db.execute("""INSERT INTO event VALUES (20, '', 'note', 'a "b", c' || char(10) || 'd')""")
    db.close()


def check_csv(run, folder):
    scalars = rows(run, "SELECT step, name, value FROM scalar")
    steps = {int(row["step"]): row for row in table(folder / "steps.csv")}
    check(len(steps) == 30 and all(float(steps[step][name]) == value for step, name, value in scalars), "steps.csv")
    check(sum(cell != "" for row in steps.values() for name, cell in row.items() if name != "step" and not name.endswith("_ms"))
          == len(scalars), "steps.csv has a cell for each scalar, and no other")
    check(steps[1]["eta_s"] == "" and all(float(row["eta_s"]) >= 0 for step, row in steps.items() if step > 1), "seconds left")
    spans = rows(run, "SELECT step, name, milliseconds FROM span")
    check(spans and all(float(steps[step][f"{name}_ms"]) == value for step, name, value in spans), "spans in steps.csv")

    cells = {(int(r["step"]), r["task"], r["metric"]): r["value"] for r in table(folder / "evaluations.csv")}
    stored = rows(run, "SELECT step, task, metric, value FROM eval")
    check(len(cells) == len(stored) and all(cells[s, t, m] == "" if v is None else float(cells[s, t, m]) == v for s, t, m, v in stored),
          "evaluations.csv")
    check([cells[20, "odd", name] for name in ("inf", "minus", "nan", "third", "tiny")]
          == ["inf", "-inf", "", "0.3333333333333333", "5e-324"], cells)

    of_layers = table(folder / "router_layers.csv")
    names = list(of_layers[0])
    stored = rows(run, f"SELECT {', '.join(names)} FROM router_layer ORDER BY step, layer")
    check(len(of_layers) == len(stored) and "window_gini" in names, names)
    for row, values in zip(of_layers, stored):
        check([None if row[name] == "" else float(row[name]) for name in names] == list(values), "router_layers.csv")
    check(any(row["detail"] == 'a "b", c\nd' for row in table(folder / "events.csv")), "text with quotes")

    loads = table(folder / "expert_loads.csv")
    assigned = {(int(r["step"]), int(r["layer"])): float(r["assignments"]) for r in of_layers}
    summed = {}
    for row in loads:
        key = int(row["step"]), int(row["layer"])
        summed[key] = summed.get(key, 0) + int(row["tokens"])
    check(len(loads) == 4 * len(of_layers) and summed == assigned, "expert_loads.csv sums to the assignments")


def check_jsonl(run):
    objects = [json.loads(line) for line in ok(run, "--jsonl").splitlines()]
    counts = {}
    for one in objects:
        counts[one["table"]] = counts.get(one["table"], 0) + 1
    listed = json.loads(ok(run, "--json"))["tables"]
    check(counts == {name: t["rows"] for name, t in listed.items() if t["rows"] and name != "expert_loads"}, f"{counts}")
    loss = dict(rows(run, "SELECT step, value FROM scalar WHERE name = 'train_loss_nats'"))
    check({o["step"]: o["train_loss_nats"] for o in objects if o["table"] == "steps"} == loss, "losses in JSON lines")
    odd = {o["metric"]: o["value"] for o in objects if o["table"] == "evaluations" and o["task"] == "odd"}
    check(odd == {"inf": "inf", "minus": "-inf", "nan": None, "third": 1 / 3, "tiny": 5e-324}, odd)
    for name, one in listed.items():
        check(one["text"] and all(c["text"] for c in one["columns"]), f"a column of {name} is not described: {one}")


def check_tensorboard(run, folder):
    file, = folder.glob("events.out.tfevents.*")
    found = events(file)
    # An evaluation before the first step has a record too.
    check([step for _, step, _ in found if step > 0] == list(range(1, 31)), "a record per step")
    walls = [wall for wall, _, _ in found]
    check(walls == sorted(walls) and 0 <= time.time() - walls[-1] < 600, "wall times rise, up to now")
    single = lambda value: struct.unpack("<f", struct.pack("<f", value))[0]
    of_step = {step: scalars for _, step, scalars in found}
    for step, name, value in rows(run, "SELECT step, name, value FROM scalar"):
        tag = {"train_loss_nats": "train/loss", "lr": "lr", "tokens_per_s": "speed/tokens_per_s"}.get(name)
        check(tag is None or of_step[step][tag] == single(value), f"{tag} at {step}")
    for step, value in rows(run, "SELECT step, value FROM eval WHERE task = 'val' AND metric = 'loss_nats'"):
        check(of_step[step]["val/loss"] == single(value), f"val/loss at {step}")
    for step, layer, value in rows(run, "SELECT step, layer, max_load FROM router_layer"):
        check(of_step[step][f"router/layer_{layer:02}/max_load"] == single(value), f"max_load at {step}")
    check(of_step[20]["odd/inf"] == math.inf and "odd/nan" not in of_step[20], "infinity is written, NaN was not measured")
    check(not any("window_" in tag or tag.endswith("hash") for tag in of_step[1]) and "speed/hash_ms" in of_step[1], sorted(of_step[1]))


def check_overwrite(run, work):
    """An earlier event file goes when the new one is there: not with a run that has no step yet."""
    begun, folder = work / "begun", work / "tb"
    shutil.copytree(run, begun)
    database = sqlite3.connect(begun / "telemetry.db")
    with database:
        for table in ("scalar", "span", "eval", "router_layer", "precision", "rank_step"):
            database.execute(f"DELETE FROM {table}")
    database.close()
    earlier = {file.name: file.read_bytes() for file in folder.iterdir()}
    refused("the run has no logged step", begun, "--tensorboard", folder, "--overwrite")
    check({file.name: file.read_bytes() for file in folder.iterdir()} == earlier, "the earlier event file stays")
    (folder / "events.out.tfevents.1234567890.assay").write_bytes(b"of another time")
    (folder / "mine.txt").write_text("kept")
    ok(run, "--tensorboard", folder, "--overwrite")
    check({file.name for file in folder.iterdir()} == {*earlier, "mine.txt"}, "one event file, and what is not ours")


def check_both_or_none(run, work):
    """Where the second of two folders cannot be named, the first goes too: the same command can be given again."""
    both = ("--csv", work / "both-csv", "--tensorboard", work / "both-tb")
    faults = {"LD_PRELOAD": str(ASSAY.parent / "libtorture_faults.so"), "ASSAY_FAULTS_CALL": "rename",
              "ASSAY_FAULTS_PATH": "*/both-tb", "ASSAY_FAULTS_HOW": "EIO"}
    if (ASSAY.parent / "libtorture_faults.so").exists():
        done = subprocess.run([str(ASSAY), "telemetry", str(run), *map(str, both)], capture_output=True, text=True,
                              env={**os.environ, **faults})
        check(done.returncode == 1 and "Input/output error" in done.stderr and not list(work.glob("both-*")),
              f"{done.stderr}{list(work.glob('both-*'))}")
    ok(run, *both)
    check(all(list((work / name).iterdir()) for name in ("both-csv", "both-tb")), "both folders, given again")


def main():
    with Workplace(moe=True) as place:
        run, work = place.run("moe"), place.path
        training = subprocess.Popen(place.command("moe", "--set", "run.steps=30"), stderr=subprocess.DEVNULL)
        while training.poll() is None:  # beside the run
            if (run / "telemetry.db").exists():
                done = assay("telemetry", run, "--table", "steps")
                check(done.returncode == 0 or "not a telemetry database" in done.stderr, done.stderr)
        check(training.returncode == 0, "training")
        plant_odd_values(run)
        before = (run / "telemetry.db").read_bytes()
        ok(run, "--csv", work / "csv", "--expert-loads", "--tensorboard", work / "tb")
        check_csv(run, work / "csv")
        check_jsonl(run)
        check_tensorboard(run, work / "tb")
        check(ok(run, "--table", "steps") == (work / "csv" / "steps.csv").read_text(), "--table on standard output")

        (work / "tb").rename(work / "tb.part")  # as after a kill between the two: the same command goes on
        (work / "csv" / "steps.csv").write_text("")
        ok(run, "--csv", work / "csv", "--expert-loads", "--tensorboard", work / "tb")
        check_csv(run, work / "csv")
        check_tensorboard(run, work / "tb")
        check(not list(work.glob("*.part*")), "no part is left")

        (work / "csv" / "mine.txt").write_text("kept")
        refused("exists and is not empty", run, "--csv", work / "csv")
        refused("exists and is not empty", run, "--tensorboard", work / "tb")
        refused("is a file, not a folder", run, "--csv", work / "csv" / "mine.txt")
        refused("the run has no table stepz", run, "--table", "stepz")
        refused("the same folder", run, "--csv", work / "new", "--tensorboard", work / "new")
        refused("--jsonl is given with a folder", run, "--jsonl", "--csv", work / "new")
        for option, *more in (("--csv", work / "new"), ("--tensorboard", work / "new"), ("--jsonl",), ("--table", "steps"),
                              ("--table", "steps", "--jsonl")):
            last = "--jsonl" if "--jsonl" in (option, *more) else option
            refused(f"--json is given with {last}", run, option, *more, "--json")
        check(json.loads(ok(run, "--tables", "--json")), "--tables --json")
        refused("--tables is given with --table", run, "--tables", "--table", "nosuch")
        refused("--tables is given with --jsonl", run, "--tables", "--jsonl")
        refused("--overwrite is given without --csv or --tensorboard", run, "--overwrite")
        refused("--table is given with --tensorboard", run, "--table", "steps", "--tensorboard", work / "new")
        refused("no run at", work / "nowhere")
        said = ok(run, "--csv", work / "csv", "--overwrite")
        check(re.search(r"^left out: expert_loads, \d+ rows \(--expert-loads adds it\)$", said, re.M), said)
        check(f"removed: {work}/csv/expert_loads.csv, of an earlier export\n" in said and
              not (work / "csv" / "expert_loads.csv").exists(), f"no table of the earlier export is left: {said}")
        (work / "csv" / "rank_steps.csv").write_text("of an earlier run")
        said = ok(run, "--csv", work / "csv", "--table", "steps", "--overwrite")
        check("removed" not in said and (work / "csv" / "rank_steps.csv").exists(), f"--table replaces one table: {said}")
        ok(run, "--csv", work / "csv", "--overwrite")
        check(not (work / "csv" / "rank_steps.csv").exists(), "rank_steps.csv of the earlier export is left")
        ok(run, "--tensorboard", work / "tb", "--overwrite")
        check((work / "csv" / "mine.txt").read_text() == "kept" and not (work / "new").exists(), "other files stay")
        check(len(list((work / "tb").iterdir())) == 1, "one event file")
        check_overwrite(run, work)
        check_both_or_none(run, work)
        run.chmod(0o555)
        ok(run, "--tables")
        check((run / "telemetry.db").read_bytes() == before, "the run is not changed")
    print("telemetry: ok")


main()
