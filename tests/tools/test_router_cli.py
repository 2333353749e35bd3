#!/usr/bin/env python3
"""assay router as a user calls it: on a finished run, on one that is training, and refusals."""
import contextlib
import json
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import ASSAY, Workplace, assay, rows
from refusals import is_refusal

failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)


def analysis(run, *more):
    done = assay("router", run, *more, "--json")
    expect(done.returncode == 0 and done.stderr == "", f"router {run} {more}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def refused(part, *arguments):
    done = assay("router", *arguments)
    expect(is_refusal(done, part), f"router {arguments}: {done}")


def check_finished(w):
    w.train("moe")
    run = w.run("moe")
    said = analysis(run)
    expect(said["last_step"] == 60 and said["logged_steps"] == 60 and said["ended_by"] == "steps", said)
    expect([layer["layer"] for layer in said["layers"]] == [0, 1], said["layers"])
    for layer in said["layers"]:
        stored = rows(run, "SELECT window_cv, window_max_load_norm, window_gini FROM router_layer "
                           f"WHERE step = 60 AND layer = {layer['layer']}")[0]
        expect((layer["cv"], layer["max_load_norm"], layer["gini"]) == stored, f"{layer} is not {stored}")
        expect(layer["bias_range"] > 0 and 0 < layer["margin"] <= layer["lead"] and 0 <= layer["overlap"] <= 1, layer)
        expect(0 < layer["turnover"] < 1, layer)
        effective = rows(run, f"SELECT window_e_eff_norm FROM router_layer WHERE step = 60 AND layer = {layer['layer']}")[0][0]
        expect(layer["e_eff_norm"] == effective and 0.25 <= effective <= 1, f"{layer} is not {effective}")
    for step in said["steps"]:
        worst = rows(run, f"SELECT max(max_load_norm) FROM router_layer WHERE step = {step['step']}")[0][0]
        expect(step["max_load_norm_worst"] == worst, step)
        least = rows(run, f"SELECT min(e_eff_norm) FROM router_layer WHERE step = {step['step']}")[0][0]
        expect(step["e_eff_norm_min"] == least, step)
    expect([s["step"] for s in analysis(run, "--steps", "7,60")["steps"]] == [7, 60], "the steps asked for")
    text = assay("router", run).stdout
    for part in ("E = 4 experts, K = 2", "by layer", "exp(H)/E", "share of the experts", "verdict: "):
        expect(part in text, f"{part!r} is not in\n{text}")


def check_restless(w):
    """Even over the window, uneven at every step, and a layer saturated earlier: the word is not recovered."""
    run = w.run("restless")
    shutil.copytree(w.run("moe"), run)
    db = sqlite3.connect(run / "telemetry.db")
    db.execute("UPDATE router_layer SET window_max_load_norm = 0.6, window_entropy_norm = 0.99, window_active_norm = 1, "
               "window_cv = 5, cv = 60, cv_floor = 2, overlap = 0.5, max_load_norm = CASE WHEN step = 9 THEN 0.95 ELSE 0.7 END")
    db.commit()
    said = analysis(run)
    expect([(l["step_cv"], l["step_cv_floor"], l["step_max_load_norm"]) for l in said["layers"]] == [(60, 2, 0.7)] * 2, said["layers"])
    expect(all(abs(l["swing"] - (60 ** 2 - 2 ** 2 - 5 ** 2) ** 0.5) < 1e-9 for l in said["layers"]), said["layers"])
    verdict = said["verdict"]
    expect(verdict["state"] == "restless" and "first saturated at step 9" in verdict["because"], verdict)
    expect(verdict["advice"][0]["rule"] == "scores_move" and "50% of the choices on fixed tokens stay" in verdict["because"], verdict)
    for command in ("compare", "router"):
        expect("restless" in assay(command, run).stdout, command)
    # The last W = 8 logged steps decide, all of which have a probe here: 0.08 is under a quarter of the swing.
    db.execute("UPDATE router_layer SET overlap = 0.99 WHERE step > 52")
    db.commit()
    db.close()
    said = analysis(run)
    expect(said["verdict"]["state"] == "recovered" and [l["overlap_median"] for l in said["layers"]] == [0.99] * 2, said["verdict"])
    expect("restless in" not in assay("compare", run).stdout, "compare")
    # Half of the experts dead is what one token gives, which chooses two of four, but not what 4000 tokens give.
    with contextlib.closing(sqlite3.connect(run / "telemetry.db")) as db:
        for assignments, state in ((2, "recovered"), (8000, "uneven")):
            db.execute("UPDATE router_layer SET window_active_norm = 0.5, window_entropy_norm = 0.5, "
                       f"window_assignments = {assignments}")
            db.commit()
            said = analysis(run)["verdict"]
            ended = json.loads(assay("early-warning", run, "--json").stdout)["runs"][0]["end"]
            expect(said["state"] == ended == state, f"{assignments} assignments: {said}, {ended}")
    shutil.rmtree(run)


def check_early_warning(w):
    """One run that ended: counted, with its end, and nothing to judge; what is no run is refused."""
    done = assay("early-warning", w.run("moe"), "--json")
    expect(done.returncode == 0, f"early-warning: {done}")
    said = json.loads(done.stdout)
    verdict = analysis(w.run("moe"))["verdict"]["state"]
    expect([r["end"] for r in said["runs"]] == [verdict] and said["rules"] == [], f"early-warning: {said}")
    expect("nothing to judge" in assay("early-warning", w.path).stdout, "a folder of runs")
    done = assay("early-warning", w.run("moe"), "--rule", "{measure: active_norm, at_least: 0.1, for: 5, from: 0.5}", "--json")
    expect(done.returncode == 0, f"early-warning --rule: {done}")
    said = json.loads(done.stdout)
    expect(said["rule"]["from"] == 0.5 and said["rule"]["direction"] == "at_least", said["rule"])
    expect([r["stops_at"] for r in said["runs"]] == [34] and said["runs"][0]["saved"] == 26 / 60, f"steps 30 to 34: {said}")
    expect(said["counts"]["collapsed"] + said["counts"]["others"] == 1 and list(said["by_study"]) == [str(w.path.resolve())], said)
    text = assay("early-warning", w.run("moe"), "--rule", "auto").stdout
    expect("rule: entropy_norm <= " in text and "no bound to choose" in text, text)
    for rule, part in (("{measure: cv, at_least: 0.1}", "collapse_stop.measure = cv is not a choice"),
                       ("{at_least: 0.1, from: 1}", "collapse_stop.from = 1.0 is out of range"), ("null", "null is no rule")):
        done = assay("early-warning", w.run("moe"), "--rule", rule)
        expect(is_refusal(done, part) and "--rule" in done.stderr, f"{rule}: {done}")
    (w.path / "broken").mkdir()
    (w.path / "broken" / "telemetry.db").write_bytes(b"no database")
    shutil.copy(w.run("moe") / "config.yaml", w.path / "broken")
    done = assay("early-warning", w.path, w.run("moe"), "--json")
    expect(done.returncode == 0, f"a damaged run: {done}")
    said = json.loads(done.stdout)
    expect(len(said["runs"]) == 1 and len(said["left_out"]) == 1, f"named twice, counted once; damaged, left out: {said}")
    # A mixture whose blocks are all dense, and loads that do not unpack: left out, and the others are judged.
    for name in ("flat", "loads"):
        shutil.copytree(w.run("moe"), w.path / "odd" / name)
    config = w.path / "odd" / "flat" / "config.yaml"
    text = config.read_text()
    config.write_text(re.sub(r"first_dense_layers: \d+", "first_dense_layers: 2", text))
    expect(config.read_text() != text, "the blocks are dense now")
    with sqlite3.connect(w.path / "odd" / "loads" / "telemetry.db") as database:
        database.execute("UPDATE expert_load SET counts = x'ff' WHERE step > 5")
    done = assay("early-warning", w.path / "odd", w.run("moe"), "--json")
    expect(done.returncode == 0, f"odd runs: {done}")
    said = json.loads(done.stdout)
    expect(len(said["runs"]) == 1 and [left.endswith("flat: dense") for left in sorted(said["left_out"])] == [True, False], said["left_out"])
    (w.path / "empty").mkdir()
    done = assay("early-warning", w.path / "empty")
    expect(is_refusal(done, "is no run and holds none"), f"early-warning: {done}")


def check_matrix(w):
    """The folder of a matrix: one line per run, in its order, over numbers of experts; what has no router is named."""
    (w.path / "dense.yaml").write_text("include: config.yaml\nmodel: {moe: null}\n")
    file = w.path / "experts.yaml"
    file.write_text("name: experts\nmodels: {dense: dense.yaml, e4: config.yaml, e8: {config: config.yaml, set: {model.moe.experts: 8}}}\n"
                    "contracts: [{kind: steps}]\nprecisions: [fp32]\nseeds: [1]\n"
                    "set: {run.steps: 12, schedule.warmup: 0, schedule.warmdown: 0, eval.every: 6}\n")
    folder = w.path / "matrix"
    done = assay("matrix", file, "--run-dir", folder)
    expect(done.returncode == 0, f"matrix: {done}")
    shutil.copytree(w.run("moe"), folder / "e16-steps-fp32-seed1")  # of no cell
    done = assay("router", folder, "--json")
    expect(done.returncode == 0 and done.stderr == f"note: left out: {folder}/dense-steps-fp32-seed1: the model is dense\n", f"router: {done}")
    said = json.loads(done.stdout)
    expect([(r["run"], r["experts"], r["top_k"]) for r in said] == [("e4-steps-fp32-seed1", 4, 2), ("e8-steps-fp32-seed1", 8, 2)], said)
    for run in said:
        whole = analysis(folder / run["run"])
        layers = whole["layers"]
        worst = max(layers, key=lambda layer: layer["max_load_norm"])
        expect((run["state"], run["max_load_norm_worst"], run["worst_layer"]) ==
               (whole["verdict"]["state"], worst["max_load_norm"], worst["layer"]), f"{run}, not {layers}")
        expect(abs(run["effective_share"] - min(layer["e_eff_norm"] for layer in layers)) < 1e-9, run)
        expect(abs(run["dead_share"] - sum(layer["dead"] for layer in layers) / len(layers) / run["experts"]) < 1e-9, run)
        expect((run["last_step"], run["planned_steps"], run["ended_by"]) == (12, 12, "steps"), run)
    text = assay("router", f"{folder}/").stdout
    expect(re.search(r"^run +E +K +verdict +dead +exp\(H\)/E +worst K max_load +layer +step\ne4\S+ +4 +2 .*\ne8\S+ +8 +2 ", text, re.M), text)
    expect(f"left out: {folder}/dense-steps-fp32-seed1: the model is dense\n" in text, text)
    refused("--steps with", folder, "--steps", "3")
    for cell in ("e4", "e8"):
        shutil.rmtree(folder / f"{cell}-steps-fp32-seed1")
    refused("none of its 1 runs has a router to show", folder)
    shutil.rmtree(folder / "e16-steps-fp32-seed1")
    check_compare_of_matrix(file, folder)
    shutil.rmtree(folder)


def check_compare_of_matrix(file, folder):
    """`compare` takes the folder of a matrix: the runs that have made a step and can be read. Folders of a matrix that are no runs
    are left out, also by `report` and `watch`."""
    done = assay("matrix", file, "--run-dir", folder, "--only", "e4")
    expect(done.returncode == 0, f"matrix: {done}")
    names = [folder / name for name in ("dense-steps-fp32-seed1", "e4-steps-fp32-seed1")]
    wanted = assay("compare", *names).stdout
    done = assay("compare", folder)
    expect(wanted and (done.returncode, done.stdout, done.stderr) == (0, wanted, ""), f"compare with the folder: {done}")
    (folder / "e8-steps-fp32-seed1").mkdir()
    shutil.copy(folder / "configs" / "e8-steps-fp32-seed1.yaml", folder / "e8-steps-fp32-seed1" / "config.yaml")
    done = assay("compare", folder)
    expect(done.stdout == wanted and done.stderr.startswith(f"note: left out: {folder}/e8-steps-fp32-seed1: no telemetry at "), f"compare: {done}")
    done = assay("compare", *names, f"{folder}/configs/", f"{folder}/logs/")
    notes = "".join(f"note: left out: {folder}/{name}/: no run, but a folder of its matrix\n" for name in ("configs", "logs"))
    expect((done.returncode, done.stdout, done.stderr) == (0, wanted, notes), f"compare with configs/: {done}")
    for command in (["compare"], ["report", "--json"], ["watch", "--text", "--once"]):
        done = assay(*command, *names, f"{folder}/configs/", f"{folder}/logs/")
        expect(done.returncode == 0 and done.stderr.startswith(notes) and "dense-" in done.stdout, f"{command} with configs/: {done}")
        done = assay(*command, f"{folder}/logs")
        expect(done.returncode == 1 and re.search(r"^error: nothing is left: .*\nhint: ", done.stderr, re.M), f"{command} of logs/: {done}")
    (names[0] / "meta.json").unlink()
    (names[0] / "meta.json").mkdir()
    done = assay("compare", folder)
    expect(done.returncode == 0 and f"note: left out: {names[0]}: " in done.stderr and "e4" in done.stdout, f"compare with an unreadable meta.json: {done}")


def check_running(w):
    with subprocess.Popen(w.command("long", "--set", "run.steps=100000"), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as training:
        try:
            for _ in range(600):
                time.sleep(0.1)
                if (w.run("long") / "telemetry.db").exists() and rows_or_none(w.run("long")):
                    break
            said = analysis(w.run("long"))
            expect(said["ended_by"] is None and said["last_step"] > 0, said["last_step"])
        finally:
            training.send_signal(signal.SIGKILL)


def rows_or_none(run):
    try:
        return rows(run, "SELECT 1 FROM router_layer WHERE step >= 12 LIMIT 1")
    except sqlite3.OperationalError:
        return None


class Locked:
    """A run whose database another program holds. The reader waits ten seconds, once, so it runs beside the other checks, in
    a folder that they do not read."""

    def __init__(self, w):
        self.folder = tempfile.TemporaryDirectory(prefix="assay-locked-")
        run = pathlib.Path(self.folder.name) / "run"
        shutil.copytree(w.run("moe"), run)
        self.db = sqlite3.connect(run / "telemetry.db", isolation_level=None)
        self.db.execute("PRAGMA user_version = 1")  # of an older program: the reader adds what is new
        self.db.execute("BEGIN EXCLUSIVE")
        self.began = time.monotonic()
        self.router = subprocess.Popen([ASSAY, "router", run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       text=True)

    def check(self):
        said = self.router.communicate()[1]
        took = time.monotonic() - self.began
        expect(took < 19, f"locked: refused after {took:.1f} s")
        expect(self.router.returncode == 1 and re.fullmatch("error: .*database is locked.*\nhint: .*\n", said),
               f"locked: exit {self.router.returncode}, {said}")
        self.db.close()
        self.folder.cleanup()


def check_refusals(w):
    run = w.run("moe")
    refused("no run", w.run("nowhere"))
    refused("1 to 60", run, "--steps", "61")
    refused("1 to 60", run, "--steps", "0")
    refused("99999999999999999999 is not a whole number", run, "--steps", "7,99999999999999999999")
    damaged = w.run("damaged")
    shutil.copytree(run, damaged)
    db = sqlite3.connect(damaged / "telemetry.db")
    db.execute("UPDATE expert_load SET counts = x'00' WHERE step = 30 AND layer = 1")
    db.commit()
    db.close()
    refused("step 30, layer 1", damaged)
    (damaged / "telemetry.db").unlink()
    refused("no telemetry", damaged)
    newer = w.run("newer")
    shutil.copytree(run, newer)
    db = sqlite3.connect(newer / "telemetry.db")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    refused("found 99", newer)
    db.close()


def check_one_step(w):
    w.train("one", "--set", "run.steps=1", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0")
    said = analysis(w.run("one"))
    expect(said["logged_steps"] == 1 and said["verdict"]["state"] == "too_early", said["verdict"])
    expect([step["step"] for step in said["steps"]] == [1], said["steps"])
    expect(all(layer["turnover"] is None and layer["dead"] is None for layer in said["layers"]), said["layers"])
    expect("over the last logged step: " in said["verdict"]["because"] and "1 logged step, fewer" in said["verdict"]["rule"], said["verdict"])
    text = assay("router", w.run("one")).stdout
    expect(", 1 logged step up to 1 of 1, finished" in text, text)


with Workplace(moe=True) as w:
    check_finished(w)
    locked = Locked(w)
    check_early_warning(w)
    check_restless(w)
    check_matrix(w)
    check_running(w)
    check_refusals(w)
    check_one_step(w)
with Workplace() as w:
    w.train("dense", "--set", "run.steps=5", "--set", "schedule.warmdown=0")
    refused("the model is dense", w.run("dense"))
locked.check()
if failures:
    sys.exit("\n".join(map(str, failures)))
