#!/usr/bin/env python3
"""A matrix of runs: one file gives one table. Killed at any moment, it resumes to the same bits;
edited, it trains what is new and refuses what changed; a failed run does not stop the others."""
import contextlib
import csv
import fcntl
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
from harness import ROOT, assay, check
from matrix_place import MATRIX, RUNS, Place, trained_in
from refusals import is_refusal


def check_whole(place):
    done = place.matrix("m.yaml", "whole", "--json")
    whole = place.path / "whole"
    check(trained_in(whole) == sorted(RUNS), f"identical runs are trained once: {trained_in(whole)}")
    said = json.loads(done.stdout)
    check(said == json.loads((whole / "summary.json").read_text()), "stdout is summary.json")
    check(said["complete"] and said["cells"] == 8 and said["done"] == 8, said)
    differ = [[c["name"] for c in contract["confounds"]] for contract in said["contracts"]]
    check(differ == [["branch_scale"]] * 2 and said["shared_order"] is None, f"what else differs: {differ}")
    rows = list(csv.DictReader((whole / "summary.csv").open()))
    check([(r["contract"], r["model"]) for r in rows] ==
          [(c, m) for c in ("activeDN", "totalDN") for m in ("dense", "moe")], rows)
    runs = list(csv.DictReader((whole / "runs.csv").open()))
    check(len(runs) == 8 and all(r["end"] == "steps" for r in runs), runs)
    for row in rows:
        losses = [float(r["val_loss_nats"]) for r in runs if (r["contract"], r["model"]) == (row["contract"], row["model"])]
        mean = sum(losses) / 2
        sd = (sum((x - mean) ** 2 for x in losses)) ** 0.5
        half = 12.706204736432095 * sd / 2 ** 0.5  # t(0.975, 1)
        check(abs(float(row["val_loss_nats"]) - mean) < 1e-12, f"mean {mean}: {row}")
        check(abs(float(row["val_loss_sd"]) - sd) < 1e-12, f"sd {sd}: {row}")
        check(abs(float(row["val_loss_high95"]) - mean - half) < 1e-9, f"interval {half}: {row}")
    check(rows[0]["val_loss_nats"] == rows[2]["val_loss_nats"], "the dense model is the same under both contracts")
    first, moe = ([float(r["val_loss_nats"]) for r in runs if (r["contract"], r["model"]) == ("totalDN", model)]
                  for model in ("dense", "moe"))
    check(abs(float(rows[3]["difference_nats"]) - (moe[0] - first[0] + moe[1] - first[1]) / 2) < 1e-12, rows[3])
    check(rows[0]["difference_nats"] == "" and int(float(rows[0]["steps"])) == 40, rows[0])
    check(float(rows[0]["target_steps"]) > 0 and float(rows[0]["tokens_per_s"]) > 0, rows[0])
    text = (whole / "summary.md").read_text()
    for words in ("8 of 8 cells are done.", "Ranking under activeDN", "Ranking under totalDN", "tokens/P_active",
                  "Another contract may rank them differently", "- confound: routed and shared branch at initialisation"):
        check(words in text, f"summary.md has {words!r}:\n{text}")
    # As if the run was killed before its receipt was written.
    (whole / RUNS[2] / "receipt.json").unlink()
    # As if it was killed when it was trained further: its receipt is of fewer steps.
    early = whole / RUNS[1] / "receipt.json"
    stale = json.loads(early.read_text())
    early.write_text(json.dumps({**stale, "sealed_step": stale["sealed_step"] - 1}))
    again = place.matrix("m.yaml", "whole")
    made = early.read_text()
    check(json.loads(made)["sealed_step"] == stale["sealed_step"], "the receipt of other steps is made anew")
    check("0 to train" in again.stderr and "edited" not in again.stderr, f"finished runs are kept: {again.stderr}")
    check(again.stdout == text, "the table is on stdout")
    verified = assay("receipt", "verify", whole, "--rerun", "1")
    reruns = [line for line in verified.stdout.splitlines() if "rerun of 1 steps" in line]
    check(len(reruns) == len(RUNS) and all("bit for bit" in line for line in reruns), f"every run is trained again: {reruns}")
    check(verified.returncode == 0 and "totalDN.moe.fp32.val_loss_minus_first.mean" in verified.stdout, verified)
    early.write_text(made[:900])
    damaged = place.matrix("m.yaml", "whole", "--summary", expect=1)
    check(is_refusal(damaged, f"{early}: the file is damaged", f"assay receipt make {early.parent}", said_before=True), damaged.stderr)
    early.write_text(made)
    (whole / "summary.csv").write_text((whole / "summary.csv").read_text().replace("moe", "mow"))
    edited = assay("receipt", "verify", whole, "-q")
    check(edited.returncode == 2 and [line.split()[0] for line in edited.stdout.splitlines()[1:-1]] == ["DRIFT"],
          f"a table edited by hand is detected: {edited}")
    place.matrix("m.yaml", "whole", "--summary")
    again = assay("receipt", "verify", whole, "-q")
    check(again.returncode == 0 and again.stdout.count("\n") == 2 and again.stdout.endswith(" 0 drift\n"),
          f"--summary writes it again: {again}")


def check_summary(place):
    """--summary also prints what it cannot write, and refuses what it would not obey."""
    whole = place.path / "whole"
    text = (whole / "summary.md").read_text()
    (whole / "summary.md").unlink()
    (whole / "summary.md").mkdir()  # a read-only folder does not stop root
    done = place.matrix("m.yaml", "whole", "--summary")
    check(done.stdout == text, done.stdout)
    check(f"warning: the tables are only printed: cannot write {whole}/summary.md" in done.stderr, done.stderr)
    (whole / "summary.md").rmdir()
    place.matrix("m.yaml", "whole", "--summary")
    part = place.matrix("m.yaml", "whole", "--summary", "--only", "moe").stdout
    check("2 of 4 rows are shown" in part and "| moe " in part and "| dense " not in part, part)
    check((whole / "summary.md").read_text() == text, "the files have all rows")
    part = json.loads(place.matrix("m.yaml", "whole", "--summary", "--only", "moe", "--json").stdout)
    check([[row["model"] for row in contract["rows"]] for contract in part["contracts"]] == [["moe"]] * 2, part)
    check(part["only"] == ["moe"], part)
    for more in (("--dry-run",), ("--reuse", "elsewhere"), ("--until-decided", "3"), ("--stop-on-failure",),
                 ("--fresh-changed",)):
        error, hint = place.matrix("m.yaml", "whole", "--summary", *more, expect=1).stderr.splitlines()
        check(error == f"error: --summary does not go with {more[0]}" and hint.startswith("hint: it prints the tables"), (error, hint))


def check_by_hand(place):
    cell = RUNS[1]
    config = place.path / "whole" / "configs" / f"{cell}.yaml"
    done = assay("train", config, "--run", place.path / "hand" / cell)
    check(done.returncode == 0, done.stderr)
    place.same_as_whole("hand", "assay train by hand", [cell])


TO_TARGET = """
models: {{plain: dense.yaml, fast: fast.yaml, slow: slow.yaml}}
contracts: [{{kind: steps, landings: [1]}}]
precisions: [fp32]
seeds: [1, 2]
claims: [{{measure: target_steps, of: fast, below: plain}}, {{measure: target_flops, of: slow, above: 0}}]
set: {{run.steps: 40, run.target_loss: 5, eval.every: 2, eval.at_start: false{set}}}
"""


def check_target(place):
    """Runs that stop at a target are ranked by the steps that it took them, not by the loss there."""
    dense = (place.path / "dense.yaml").read_text()
    (place.path / "fast.yaml").write_text(dense.replace("lr: 3e-3", "lr: 6e-3"))
    (place.path / "slow.yaml").write_text(dense.replace("lr: 3e-3", "lr: 1e-6"))
    place.write("target.yaml", text=TO_TARGET)
    table = json.loads(place.matrix("target.yaml", "target", "--json").stdout)
    steps = {row["model"]: row["time_to_target"]["steps"] for row in table["contracts"][0]["rows"]}
    check(steps["fast"]["mean"] < steps["plain"]["mean"] < 40 and steps["slow"] is None, steps)
    contract = table["contracts"][0]
    check(contract["ranked_by"] == "target_steps" and [place["model"] for place in contract["ranking"]] == ["fast", "plain"], contract["ranking"])
    fast = contract["rows"][1]["time_to_target"]["steps_difference_to_first"]
    check(fast["mean"] == steps["fast"]["mean"] - steps["plain"]["mean"], fast)
    check([claim["verdict"] for claim in table["claims"]][1] == "undecided", table["claims"])
    text = (place.path / "target" / "summary.md").read_text()
    for words in (f"(mean steps to 5 nats, fewest first): fast {steps['fast']['mean']:.0f} ", "target steps minus plain",
                  "Not ranked: slow, which reached the target in 0 of 2 runs."):
        check(words in text, f"summary.md has {words!r}:\n{text}")


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"no {what} within {seconds} s")
        time.sleep(0.01)


def has_line(log, beginning):
    return log.exists() and any(line.startswith(beginning) for line in log.read_text().splitlines())


def start(place, folder, *more):
    return subprocess.Popen(place.command("m.yaml", folder, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def holder_is_gone(run):
    try:
        os.kill(int((run / ".lock").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def check_killed(place):
    folder = place.path / "killed"
    for cell, step in ((RUNS[0], 5), (RUNS[1], 33), (RUNS[4], 12)):
        process = start(place, "killed")
        wait_for(lambda: has_line(folder / "logs" / f"{cell}.log", f"step {step}/"), f"step {step} of {cell}")
        process.kill()
        process.communicate()
        if cell == RUNS[0]:  # restarts at once: runs of the killed matrix may still be running
            continue
        wait_for(lambda: holder_is_gone(folder / cell), "end of the runs whose matrix was killed", 5)
    part = place.matrix("m.yaml", "killed", "--summary")
    check("INCOMPLETE" in part.stdout and f"{RUNS[4]}: partial, step" in part.stdout, part.stdout)
    check(f"{RUNS[5]}: waiting" in part.stdout, part.stdout)
    done = place.matrix("m.yaml", "killed")
    check("resumes after step" in done.stderr and "edited" not in done.stderr, done.stderr)
    place.same_as_whole("killed", "kill -9")
    whole = (place.path / "whole" / "runs.csv").read_text().splitlines()
    losses = [[line.split(",")[i] for i in (0, 6, 7, 8, 9, 10)] for line in whole]
    check(losses == [[line.split(",")[i] for i in (0, 6, 7, 8, 9, 10)]
                     for line in (folder / "runs.csv").read_text().splitlines()], "the losses are the same to the digit")


def check_killed_unsaved(place):
    """Without checkpoints the steps that telemetry has are made again, and the matrix says so."""
    more = ("--only", "dense", "--set", "run.checkpoint_every=0", "--set", "run.steps=400")
    run, log = place.path / "unsaved" / RUNS[0], place.path / "unsaved" / "logs" / f"{RUNS[0]}.log"
    process = start(place, "unsaved", *more)
    wait_for(lambda: has_line(log, "step 50/"), f"step 50 of {RUNS[0]}")
    process.kill()
    process.communicate()
    wait_for(lambda: holder_is_gone(run), "end of the run whose matrix was killed", 5)
    shown = place.matrix("m.yaml", "unsaved", *more, "--dry-run").stdout
    check(re.search(RUNS[0] + r" .*  partial \(step \d+, begins again\)\n", shown), shown)
    process = start(place, "unsaved", *more)
    said = next((line for line in process.stderr if line.startswith(f"{RUNS[0]} ")), "")
    process.kill()
    process.communicate()
    wait_for(lambda: holder_is_gone(run), "end of the run whose matrix was killed", 5)
    begins = r" begins again \(no checkpoint; its telemetry ends at step \d+\), 400 steps\n"
    check(re.fullmatch(RUNS[0] + begins, said), said)


def check_forgotten_set(place):
    """A --set that a later command leaves out is named by the tables and the refusal; nothing is deleted."""
    folder, given = place.path / "sets", ("--set", "run.steps=20")
    place.matrix("m.yaml", "sets", *given, "--only", "dense")
    done = place.matrix("m.yaml", "sets", "--summary")
    command = f"assay matrix {place.path}/m.yaml --run-dir {folder}"
    taken, deletes = "--fresh-changed takes", ": it deletes 2 runs (2 of them finished) and trains them again\n"
    for words in ("    run.steps: 20 -> 40 (2 cells: ", "2 runs (2 of them finished) of another configuration",
                  f"they were trained with --set run.steps=20: give it again: {command} --summary --set run.steps=20\n",
                  f"{command} {taken} the edit over{deletes}"):
        check(words in done.stderr, f"{words!r}: {done.stderr}")
    for only in (("--only", "moe"), ("--only=moe",)):
        said = place.matrix("m.yaml", "sets", "--summary", *only).stderr
        check(f"; {command} {taken} the edit over{deletes}" in said, f"--only takes over a part: {said}")
    place.write("claimed.yaml", text=MATRIX + "claims: [{{measure: val_loss, of: moe, below: dense}}]\n")
    said = place.matrix("claimed.yaml", "sets", "--summary", "--late-claims", expect=1).stderr
    check(f"--late-claims {taken} both over{deletes}" in said, said)
    check(len(done.stderr.splitlines()) < 14, f"one line for all cells of a difference: {done.stderr}")
    refused = place.matrix("m.yaml", "sets", expect=1)
    check("hint: they were trained with --set run.steps=20: give it again; else undo the edit" in refused.stderr,
          refused.stderr)
    done = place.matrix("m.yaml", "sets", *given, "--summary")
    check("edited" not in done.stderr and "4 of 8 cells are done" in done.stdout, done.stderr + done.stdout)
    place.write("own.yaml", text=MATRIX.replace("moe: moe.yaml", "moe: {{config: moe.yaml, set: {{optimizer.lr: 2e-3}}}}"))
    noted = place.matrix("own.yaml", "noted", "--set", "optimizer.lr=1e-3", "--dry-run").stderr
    check("note: --set optimizer.lr=1e-3 replaces what 1 model sets itself, and is given to the 1 other too" in noted, noted)


def check_retrained_set(place):
    """matrix.json keeps the --set of runs until they are trained again with another one."""
    place.write("one.yaml", seeds="1")
    record = place.path / "retrained" / "matrix.json"
    old, new = "run.steps=20", "run.steps=18"
    for given, more, recorded in ((old, (), [old]), (new, ("--fresh-changed", "--only", "moe"), [old, new]),
                                  (new, ("--fresh-changed",), [new])):
        place.matrix("one.yaml", "retrained", "--set", given, *more)
        check(json.loads(record.read_text())["sets"] == recorded, record.read_text())


def check_lost_files(place):
    """A run without its telemetry or its config.yaml is not one that made no steps."""
    folder, more = place.path / "sets", ("--set", "run.steps=20", "--only", "dense")
    dense = [cell for cell in RUNS if cell.startswith("dense")]
    (folder / dense[0] / "telemetry.db").unlink()
    (folder / dense[1] / "config.yaml").unlink()
    shown = place.matrix("m.yaml", "sets", *more, "--dry-run").stdout
    check("trained, its telemetry is lost\n" in shown and "delete its folder and train it again" in shown, shown)
    check(f"FAILS: {folder / dense[1]} has files but no run in it\n" in shown, shown)
    done = place.matrix("m.yaml", "sets", *more, expect=1)
    check(f"warning: the telemetry of {dense[0]} is lost" in done.stderr and f"delete {folder / dense[0]} and" in done.stderr,
          done.stderr)


def check_interrupted(place):
    folder = place.path / "interrupted"
    process = start(place, "interrupted", "--jobs", "2")
    wait_for(lambda: all(has_line(folder / "logs" / f"{cell}.log", "step 7/") for cell in RUNS[:2]), "two runs")
    process.send_signal(signal.SIGINT)
    said = process.communicate()
    check(process.returncode == 130, f"Ctrl-C exits 130, not {process.returncode}: {said}")
    for cell in RUNS[:2]:
        check(list((folder / cell / "checkpoints").glob("step-*")), f"{cell} has a checkpoint")
    check(not (folder / RUNS[2]).exists(), "no new run was started")
    place.matrix("m.yaml", "interrupted", "--jobs", "3", "--threads", "3")
    place.same_as_whole("interrupted", "Ctrl-C, and several at once")


def check_edited(place):
    folder = place.path / "whole"
    before = {cell: (folder / cell / "telemetry.db").stat().st_mtime_ns for cell in RUNS}
    place.write("m.yaml", seeds="1, 3")
    done = place.matrix("m.yaml", "whole")
    for words in ("the matrix was edited since it was started", "new:", "removed: kept on the disk", "3 to train"):
        check(words in done.stderr, f"{words!r}: {done.stderr}")
    check(before == {cell: (folder / cell / "telemetry.db").stat().st_mtime_ns for cell in RUNS}, "old runs stay")
    check("seed2" not in (folder / "runs.csv").read_text(), "removed runs are in no table")
    history = json.loads((folder / "matrix.json").read_text())["edits"]
    check(len(history) == 1 and f"dense-activeDN-fp32-seed3" in history[0]["added"], history)

    place.write("m.yaml", seeds="1, 3", changes=", optimizer.lr: 1e-3")
    refused = place.matrix("m.yaml", "whole", expect=1)
    check("optimizer.lr: 0.003 -> 0.001" in refused.stderr and "6 runs of" in refused.stderr, refused.stderr)
    check("--fresh-changed" in refused.stderr.splitlines()[-1], refused.stderr)
    shown = place.matrix("m.yaml", "whole", "--dry-run", expect=1).stderr
    check("0.003 -> 0.001" in shown and "refused: 6 runs of " in shown, f"--dry-run reports it too: {shown}")
    place.matrix("m.yaml", "whole", "--dry-run", "--fresh-changed")
    place.matrix("m.yaml", "whole", "--fresh-changed", "--only", "dense")
    config = (folder / "dense-activeDN-fp32-seed1" / "config.yaml").read_text()
    check("lr: 0.001" in config, "the run was trained again")
    place.write("m.yaml")


def check_failing(place):
    (place.path / "wild.yaml").write_text((place.path / "dense.yaml").read_text().replace("lr: 3e-3", "lr: 1e30"))
    text = MATRIX.replace("moe: moe.yaml", "wild: wild.yaml")
    place.write("wild_m.yaml", seeds="1", text=text)
    for again in range(2):  # a run stopped by its guard is not tried again
        done = place.matrix("wild_m.yaml", "wild", expect=3)
        error = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        check(len(error) == 1 and "wild-activeDN-fp32-seed1 (exit 3" in error[0], done.stderr)
    check((place.path / "wild" / "dense-activeDN-fp32-seed1" / "telemetry.db").exists(), "the other was trained")
    check("stopped by its guard" in (place.path / "wild" / "summary.md").read_text(), "the table says so")
    rows = csv.DictReader((place.path / "wild" / "summary.csv").open())
    check({r["model"]: r["stopped"] for r in rows} == {"dense": "0", "wild": "1"}, "and the file")

    # So is a run that only its last validation shows to be gone, and one that an older version finished.
    text = (MATRIX.replace("moe: moe.yaml", "gone: gone.yaml").replace("run.steps: 40", "run.steps: 1")
            .replace("{{kind: activeDN, reference: dense, landings: [0.5, 1]}}", "{{kind: steps}}")
            .replace("  - {{kind: totalDN, reference: dense, landings: [0.5, 1]}}\n", ""))
    short = (place.path / "dense.yaml").read_text().replace("{warmup: 5, warmdown: 10}", "{warmup: 0, warmdown: 0}")
    (place.path / "short.yaml").write_text(short)
    (place.path / "gone.yaml").write_text(short.replace("{lr: 3e-3}", "{lr: 1e38, clip: 0}"))
    place.write("gone_m.yaml", seeds="1", text=text.replace("dense.yaml", "short.yaml"))
    for again in range(2):
        place.matrix("gone_m.yaml", "gone", expect=3)
    stopped = place.path / "gone" / "gone-steps-fp32-seed1" / "telemetry.db"
    with contextlib.closing(sqlite3.connect(stopped)) as db, db:
        for end in ("non_finite", "steps"):
            db.execute("UPDATE event SET detail = ? WHERE kind = 'end'", (end,))
            db.commit()
            table = json.loads(place.matrix("gone_m.yaml", "gone", "--summary", "--json").stdout)
            rows = {row["model"]: row for row in table["contracts"][0]["rows"]}
            check(rows["gone"]["stopped"] == ["non_finite"] and rows["dense"]["finished"] == 1, f"{end}: {rows}")
            check(table["done"] == 1 and [place["model"] for place in table["contracts"][0]["ranking"]] == ["dense"], table)

    broken = place.path / "broken"
    (broken / "configs").mkdir(parents=True)
    (broken / RUNS[0]).mkdir()
    (broken / RUNS[0] / "note.txt").write_text("mine")
    done = place.matrix("m.yaml", "broken", "--stop-on-failure", expect=1)
    check(f"{RUNS[0]} (exit 1:" in done.stderr and "has files but no run in it" in done.stderr, done.stderr)
    check(not (broken / RUNS[1]).exists(), "--stop-on-failure starts no further run")

    linked, victim = place.path / "linked", place.path / "victim"
    (linked / "configs").mkdir(parents=True)
    (linked / "logs").mkdir()
    victim.write_text("mine")
    (linked / "logs" / f"{RUNS[0]}.log").symlink_to(victim)
    done = place.matrix("m.yaml", "linked", "--stop-on-failure", expect=1)
    check(f"{RUNS[0]}.log is a link" in done.stderr and victim.read_text() == "mine", done.stderr)


def check_refusals(place):
    def refused(text, error, *more, hint=""):
        (place.path / "bad.yaml").write_text(text)
        done = place.matrix("bad.yaml", "bad", *more, expect=1)
        told = is_refusal(done, error, "hint: " + hint)
        if "--dry-run" in more:  # part of the plan, the rest of which is on standard output
            said, taught = done.stderr.splitlines()
            told = said.startswith("refused: ") and error in said and taught.startswith("hint: " + hint)
        check(told, f"{error}: {done.stdout}{done.stderr}")
        check(not (place.path / "bad").exists(), "and leaves nothing behind")

    good = (place.path / "m.yaml").read_text()
    refused(good.replace("[1, 2]", "[1, 2, 1]"), "bad.yaml:8: seed 1 is listed twice")
    refused(good.replace("[1, 2]", "3"), "bad.yaml:8: seeds is the number 3, not a list",
            hint="seeds is a list: [1, 2, 3], or [3] for the one seed 3")
    refused(good.replace("[1, 2]", "three"), "bad.yaml:8: seeds is three, not a list")
    refused(good.replace("seeds:", "seed:"), "bad.yaml:8: unknown key seed")
    refused(good.replace("reference: dense, landings: [0.5, 1]}\n  - {kind: t", "fraction: 0.5}\n  - {kind: t"),
            "bad.yaml:5: contract activeDN has no coefficient")
    for little in ("1MiB", "1 mib", "1m", "1Mi"):
        refused(good, "the memory budget is 0.00 GiB", "--memory", little)
    refused(good, "the memory budget is 0.00 GiB", "--memory", "1MiB", "--dry-run")
    for wrong, said in (("8", "has no unit: that would be bytes"), ("8Q", "is not an amount of memory"),
                        ("G", "is not an amount of memory"), ("0G", "is not an amount of memory")):
        refused(good, f"--memory {wrong} {said}", "--memory", wrong, hint="a number with a unit, e.g. --memory 8GiB")
    refused(good, "--only sparse is not a model or precision", "--only", "sparse")
    (place.path / "wide.yaml").write_text("include: dense.yaml\nmodel: {heads: 3}\n")
    # What is wrong with a model that --only leaves out is said to be so, and nothing else is.
    for text, error, models in ((good + "claims: [{measure: max_load, of: moe, below: 50}]\n", "has below: 50, but max_load", ()),
                                (good + "claims: [{measure: max_load, of: dense, below: 1}]\n", "has no experts", ("moe",)),
                                (good.replace("moe.yaml", "wide.yaml"), "model moe: model.heads = 3 does not", ("dense",))):
        for only in ("dense", "moe"):
            (place.path / "bad.yaml").write_text(text)
            said = place.matrix("bad.yaml", "bad", "--only", only, expect=1).stderr
            check(error in said and ("that --only leaves out" in said) == (only in models), (only, said))
    (place.path / "other.yaml").write_text((place.path / "moe.yaml").read_text().replace("val_tokens: 20000",
                                                                                         "val_tokens: 30000"))
    other = good.replace("moe.yaml", "other.yaml")
    refused(other, "the models cannot be compared: data.synth.val_tokens of moe")
    refused(other, "refused: the models cannot be compared: data.synth.val_tokens of moe", "--dry-run")
    plan = json.loads(place.matrix("bad.yaml", "bad", "--dry-run", "--json", expect=1).stdout)
    check(len(plan["refused"]) == 1 and plan["refused"][0].startswith("the models cannot be compared: "), plan["refused"])
    plan = json.loads(place.matrix("bad.yaml", "bad", "--dry-run", "--json", "--force").stdout)
    check(plan["refused"] == [], plan["refused"])
    # A recipe of a model's own, where the matrix would train it in auto.
    (place.path / "full.yaml").write_text((place.path / "moe.yaml").read_text() + "precision: {recipe: fp32}\n")
    full = good.replace("moe.yaml", "full.yaml").replace("precisions: [fp32]\n", "")
    for more in ([], ["--dry-run"]):
        refused(full, "model moe names precision.recipe fp32, but ", *more, hint="precisions: [fp32] trains every model in it")
    (place.path / "bad.yaml").write_text(full + "precisions: [auto]\n")
    place.matrix("bad.yaml", "bad", "--dry-run")
    (place.path / "seven.yaml").write_text("include: dense.yaml\nrun: {seed: 7}\n")
    (place.path / "bad.yaml").write_text("models: {dense: seven.yaml}\n")
    said = place.matrix("bad.yaml", "bad", "--dry-run").stderr
    check(said.startswith("note: model dense names run.seed 7, but ") and "seeds: [7]" in said, said)
    (place.path / "held").mkdir()
    with open(place.path / "held" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place.matrix("m.yaml", "held", expect=1)
        check("held is in use by another process" in done.stderr, done.stderr)


def check_dry_run(place):
    text = place.write("future.yaml", text=MATRIX.replace("[fp32]", "[fp32, fp8_block]"))
    shown = place.matrix(text, "future", "--dry-run").stdout
    check(shown.count("precision fp8_block: attention.fprop in fp8_1x128 needs blocks of 128 along model.hidden") == 8, shown)
    check("= dense-totalDN-fp32-seed1" in shown and "hours" not in shown, shown)
    hours = place.matrix(text, "future", "--dry-run", "--tflops", "0.001").stdout
    flops = float(hours.split(" FLOPs, ")[0].split()[-1])
    check(f"at 0.001 TFLOP/s: {flops / 1e9 / 3600:.2f} hours" in hours, hours)
    plan = json.loads(place.matrix(text, "future", "--dry-run", "--json").stdout)
    check([run["cell"] for run in plan["runs"]] == RUNS and len(plan["unavailable"]) == 8, plan)
    check(all(run["memory_bytes"] > 0 and run["steps"] > 0 and run["state"] == "waiting" for run in plan["runs"]), plan)
    left = sum(run["checkpoint_bytes"] * run["kept_checkpoints"] for run in plan["runs"])
    one_more = max(run["checkpoint_bytes"] * (run["most_checkpoints"] - run["kept_checkpoints"]) for run in plan["runs"])
    check(one_more > 0, plan)
    check(plan["checkpoint_bytes_left"] == left + one_more and plan["free_disk_bytes"] > 0, plan)
    check(f"\ncheckpoints: up to {(left + one_more) / 2**20:.0f} MiB more on disk, which has " in shown, shown)
    noted = place.matrix("m.yaml", "future", "--set", "telemetry.window=1000", "--dry-run").stderr
    said = "note: the routers of moe under activeDN stay too early to judge: a verdict needs telemetry.window = 1000 "
    check(said in noted, noted)
    check(not (place.path / "future").exists(), "--dry-run writes nothing")
    done = place.matrix(text, "future", "--only", "dense", expect=1)
    check("warning: dense-activeDN-fp8_block-seed1: precision fp8_block: attention.fprop" in done.stderr, done.stderr)
    check(trained_in(place.path / "future") == sorted(c for c in RUNS if c.startswith("dense")), "the other runs are trained")
    presets = ROOT / "models" / "presets"
    gpu = ["matrix", presets / "posts" / "0003.yaml", "--dry-run", "--device", "cuda", "--run-dir", place.path / "preset"]
    planned = assay(*gpu, "--memory", "139GiB")
    check(planned.returncode == 0 and "1 at a time on cuda" in planned.stdout, planned.stdout + planned.stderr)
    unplanned = assay(*gpu)
    check(unplanned.returncode == 0 or "has no GPU whose memory could be planned" in unplanned.stderr, unplanned.stderr)
    for preset in [*presets.glob("matrix/*.yaml"), *presets.glob("posts/*.yaml"), *presets.rglob("matrix*.yaml")]:
        done = assay("matrix", preset, "--dry-run", "--run-dir", place.path / "preset")
        check(done.returncode == 0, f"{preset}: {done.stderr}")


def main():
    with Place() as place:
        check_whole(place)
        check_summary(place)
        check_by_hand(place)
        check_target(place)
        check_killed(place)
        check_killed_unsaved(place)
        check_forgotten_set(place)
        check_retrained_set(place)
        check_lost_files(place)
        check_interrupted(place)
        check_edited(place)
        check_failing(place)
        check_refusals(place)
        check_dry_run(place)
    print("matrix: ok")


main()
