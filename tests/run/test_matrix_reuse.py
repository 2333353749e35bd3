#!/usr/bin/env python3
"""--reuse of a matrix: runs that another one has trained are copied, those that were trained otherwise are refused, and a copy
that was cut short is made again."""
import csv
import json
import pathlib
import resource
import shutil
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import assay, check, first_difference
from matrix_place import RUNS, Place, trained_in
from refusals import is_refusal

STUDY = """
models: {{plain: dense.yaml, fast: fast.yaml}}
contracts: [{{kind: steps, landings: [0.5, 1]}}]
precisions: [fp32]
seeds: [1]
set: {{run.checkpoint_every: 20, run.steps: 40{set}}}
"""


def check_reused(place):
    """A second matrix reuses the runs that the first has trained, and trains the rest."""
    (place.path / "fast.yaml").write_text((place.path / "dense.yaml").read_text().replace("lr: 3e-3", "lr: 4e-3"))
    whole, folder, taken = place.path / "whole", place.path / "study", "plain-steps-fp32-seed1"
    place.write("study.yaml", text=STUDY)
    plan = json.loads(place.matrix("study.yaml", "study", "--reuse", whole, "--dry-run", "--json").stdout)
    check([(run["reuse"], run["refused"]) for run in plan["runs"]] == [(f"{whole}/{RUNS[0]}", None), (None, None)], plan)
    check(not folder.exists(), "--dry-run copies nothing")
    done = place.matrix("study.yaml", "study", "--reuse", whole, "--json")
    check(f"{taken} is reused from {whole}/{RUNS[0]}" in done.stderr and "1 to train" in done.stderr, done.stderr)
    said = json.loads(done.stdout)["contracts"][0]["rows"]
    check([row["runs"][0]["reused_from"] for row in said] == [f"{whole}/{RUNS[0]}", None], said)
    check(f"- {taken}: reused from {whole}/{RUNS[0]} (commit " in (folder / "summary.md").read_text(), "the table says so")
    check(list(csv.DictReader((folder / "runs.csv").open()))[0]["reused_from"], "and so does runs.csv")
    difference = first_difference(whole / RUNS[0], folder / taken)
    check(difference is None, f"a reused run: {difference}")
    verified = assay("receipt", "verify", folder)
    check(verified.returncode == 0 and f"{taken}/reused.json" in verified.stdout, verified)
    again = place.matrix("study.yaml", "study", "--reuse", whole)
    check("0 to train" in again.stderr and "is reused from" not in again.stderr, f"a run is reused only once: {again.stderr}")
    shutil.rmtree(folder / "fast-steps-fp32-seed1")
    once_more = place.matrix("study.yaml", "study", "--reuse", whole)
    check("1 to train" in once_more.stderr, f"runs still to train do not need {whole}: {once_more.stderr}")
    whole.rename(place.path / "away")
    again = place.matrix("study.yaml", "study", "--reuse", whole)
    check("0 to train" in again.stderr, f"nor do finished runs: {again.stderr}")
    (place.path / "away").rename(whole)
    place.write("study.yaml", text=STUDY, changes=", optimizer.lr: 5e-3")
    place.matrix("study.yaml", "study", "--fresh-changed", "--only", "plain")
    check("reused" not in (folder / "summary.md").read_text(), "a run trained again is not listed as reused")
    place.write("study.yaml", text=STUDY)


def check_renamed(place):
    """A renamed model takes over the runs that the folder has under its old name."""
    folder = place.path / "renamed"
    place.write("study.yaml", text=STUDY)
    place.matrix("study.yaml", "renamed", "--reuse", place.path / "whole", "--only", "plain")
    old, new = "plain-steps-fp32-seed1", "simple-steps-fp32-seed1"
    place.write("study.yaml", text=STUDY.replace("plain: dense.yaml", "simple: dense.yaml"))
    shown = place.matrix("study.yaml", "renamed", "--dry-run")
    note = f"note: 1 waiting cell has the configuration of finished runs of this folder ({new} of {old}): --reuse {folder} copies them"
    check(note in shown.stderr.splitlines(), shown.stderr)
    done = place.matrix("study.yaml", "renamed", "--reuse", folder, "--only", "simple")
    check(f"{new} is reused from {folder}/{old}" in done.stderr and "0 to train" in done.stderr, done.stderr)
    again = place.matrix("study.yaml", "renamed", "--reuse", folder, "--only", "simple")
    check("0 to train" in again.stderr, f"once it is there, nothing of the folder is asked for: {again.stderr}")
    shown = place.matrix("study.yaml", "renamed", "--reuse", folder, "--only", "fast", expect=1)
    check("none of its runs has the configuration of a waiting cell" in shown.stderr, shown.stderr)
    place.write("study.yaml", text=STUDY)


def check_not_reused(place):
    whole = place.path / "whole"

    def copy(name, *files):
        run = place.path / name / RUNS[0]
        shutil.copytree(whole / RUNS[0], run)
        return [run / file for file in files]

    def refused(folder, error, hint, changes=""):
        place.write("study.yaml", text=STUDY, changes=changes)
        done = place.matrix("study.yaml", "not", "--reuse", place.path / folder, expect=1)
        check(is_refusal(done, error, hint), f"{error}: {done.stdout}{done.stderr}")
        check(not trained_in(place.path / "not"), "and copies nothing")
        return done.stderr.splitlines()

    def refused_by_both(folder, error, hint):
        """A dry run reports the same refusal for the same run as the command itself."""
        said, taught = (line.split(": ", 1)[1] for line in refused(folder, error, hint))
        reuse = ("--reuse", place.path / folder)
        shown = place.matrix("study.yaml", "not", *reuse, "--dry-run", expect=1).stdout
        for line in (f"NOT copied from {place.path / folder / RUNS[0]}", f"     refused: {said}\n     hint: {taught}\n",
                     "refused: 1 runs of --reuse cannot be copied"):
            check(line in shown, f"{line!r}: {shown}")
        runs = json.loads(place.matrix("study.yaml", "not", *reuse, "--dry-run", "--json", expect=1).stdout)["runs"]
        check([run["refused"] for run in runs] == [said, None], runs)

    refused("whole", f"{RUNS[0]} is nearest, to plain-steps-fp32-seed1: optimizer.beta1: 0.9 -> 0.8", "leave --reuse out",
            ", optimizer.beta1: 0.8")
    refused("nowhere", "no run in it", "--reuse runs/")
    (no_receipt,) = copy("no-receipt", "receipt.json")
    no_receipt.unlink()
    refused_by_both("no-receipt", "no receipt in", "assay receipt make")
    (telemetry,) = copy("edited", "telemetry.db")
    with sqlite3.connect(telemetry) as db:
        db.execute("UPDATE eval SET value = value - 0.1 WHERE step = 40")
    refused_by_both("edited", "does not verify: input telemetry telemetry.db", "assay receipt verify")
    gpu, than = "cuda: NVIDIA H200", "was trained on other data than plain-steps-fp32-seed1 would be: "
    meta = json.loads((whole / RUNS[0] / "meta.json").read_text())
    path, name_of_path = ("avx2", "AVX2") if meta.get("instructions") != "avx2" else ("avx512", "AVX-512")
    for name, field, error, hint in (("other-build", "program_sha256", "another build of this program", "--reuse-elsewhere"),
                                     ("other-device", "device", f"was trained on {gpu}, this matrix trains on ",
                                      "--reuse-elsewhere"),
                                     ("other-instructions", "instructions",
                                      f"was trained on {meta['device']} with {name_of_path}, this matrix trains on ",
                                      "--reuse-elsewhere"),
                                     ("other-data", "data_sha256", than + "data ", "leave --reuse out"),
                                     ("no-data", "data_sha256", than + "it records none", "leave --reuse out")):
        (meta,) = copy(name, "meta.json")
        said = json.loads(meta.read_text())
        said[field] = {"program_sha256": "0" * 64, "device": gpu, "instructions": path}.get(field) or {
            f"/gone/{path.split('/')[-1]}": "0" * 64 for path in said[field] if name != "no-data"}
        meta.write_text(json.dumps(said))
        (meta.parent / "receipt.json").unlink()
        check(assay("receipt", "make", meta.parent).returncode == 0, f"{name} is sealed")
        refused_by_both(name, error, hint)
    done = place.matrix("study.yaml", "forced", "--reuse", place.path / "other-build", "--force", expect=1)
    check("another build of this program" in done.stderr, f"--force applies only to models that see different data: {done.stderr}")
    forced = place.matrix("study.yaml", "forced", "--reuse", place.path / "other-build", "--reuse-elsewhere")
    check("is reused from" in forced.stderr and "trained on" not in forced.stderr, forced.stderr)
    forced = place.matrix("study.yaml", "forced-device", "--reuse", place.path / "other-device", "--reuse-elsewhere")
    check(f"{RUNS[0]}, trained on {gpu} (this matrix trains on " in forced.stderr, forced.stderr)
    check(f", on {gpu})" in forced.stdout, "the table shows that devices differ: " + forced.stdout)
    copy("imported", "imported.json")[0].write_text("{}")
    refused("imported", "began from imported weights (imported.json)", "begins from its seed")

    # Fields of precision may change at a resume, so the last configuration does not show how a run
    # was trained.
    config, changed = whole / "configs" / f"{RUNS[0]}.yaml", place.path / "changed" / RUNS[0]
    for first in ("precision.recipe=bf16", "precision.products=native", "eval.every=5"):
        shutil.rmtree(changed.parent, ignore_errors=True)
        done = assay("train", config, "--run", changed, "--set", first, "--stop-after", "20")
        check(done.returncode == 0, f"stops halfway: {done.stderr}")
        done = assay("train", config, "--run", changed)
        check(done.returncode == 0, done.stderr)
        error = {"precision.recipe=bf16": "was trained in bf16, and from step 20 on in fp32",
                 "precision.products=native": "was trained in fp32, products in their own formats, and from step 20 on in fp32",
                 "eval.every=5": "changed its configuration after step 20"}[first]
        refused("changed", error, "no cell trains like that")
        if "recipe" not in first:
            continue
        named = assay("receipt", "verify", changed)
        check(named.returncode == 0 and "same           precision  trained in bf16, and from step 20 on in fp32" in named.stdout,
              named.stdout)
        meta = json.loads((changed / "meta.json").read_text())
        # As written by a program that did not record these fields.
        for launch in [meta, *meta["before"]]:
            del launch["precision"], launch["config_sha256"]
        (changed / "meta.json").write_text(json.dumps(meta))
        refused("changed", error, "no cell trains like that")
    # As an earlier version left a finished run that was started again in another recipe.
    shutil.rmtree(changed.parent)
    check(assay("train", config, "--run", changed, "--set", "precision.recipe=bf16").returncode == 0, "trains in bf16")
    resolved = (changed / "config.yaml").read_text()
    (changed / "config.yaml").write_text(resolved.replace("recipe: bf16", "recipe: fp32"))
    check(assay("receipt", "make", changed).returncode == 0, "sealed again")
    relabelled = "its last steps were made in bf16, config.yaml has fp32"
    refused("changed", relabelled, "leave --reuse out")
    drift = assay("receipt", "verify", changed)
    check(drift.returncode == 2 and drift.stderr == f"drift: precision: {relabelled}\n", drift.stderr)
    stopped = place.path / "stopped" / RUNS[0]
    assay("train", config, "--run", stopped, "--set", "run.checkpoint_every=7", "--stop-after", "20")
    check(assay("train", config, "--run", stopped).returncode == 0, "goes on")
    shown = place.matrix("study.yaml", "stopped-study", "--only", "plain", "--reuse", stopped.parent)
    check("is reused from" in shown.stderr, f"stopped and resumed with the same configuration: {shown.stderr}")

    with sqlite3.connect(copy("half", "telemetry.db")[0]) as db:
        db.execute("DELETE FROM event")
    done = place.matrix("study.yaml", "half-study", "--reuse", place.path / "half", "--dry-run")
    check(f"{RUNS[0]}: partial, step 40 of 40" in done.stderr and "copied from" not in done.stdout, done)


def check_copy_cut_short(place):
    """A failed copy: a limit on the size of files simulates a full disk, a leftover copy simulates
    a killed process."""
    place.write("study.yaml", text=STUDY)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))
    whole, folder, taken = place.path / "whole", place.path / "cut", "plain-steps-fp32-seed1"
    part = folder / f"{taken}.part"
    cut = subprocess.run(place.command("study.yaml", folder, "--reuse", whole), capture_output=True, text=True,
                         # SIGXFSZ stays ignored, so that the write fails
                         preexec_fn=limit, restore_signals=False)
    check(cut.returncode == 1 and f"error: cannot copy {whole}" in cut.stderr, f"cannot copy: {cut}")
    check(not part.exists() and not (folder / taken).exists(), "removes its partial copy")
    check((folder / "matrix.json").exists(), "the folder becomes a matrix folder before anything is copied")
    part.mkdir()
    (part / "config.yaml").write_text("of a process that was killed")
    (folder / taken).mkdir()
    (folder / taken / "note.txt").write_text("mine")
    mine = place.matrix("study.yaml", "cut", "--only", "plain", "--reuse", whole, expect=1)
    check(f"{taken} has files but no run in it" in mine.stderr, mine.stderr)
    check(not part.exists(), "the leftover copy is removed")
    shown = place.matrix("study.yaml", "cut", "--only", "plain", "--reuse", whole, "--dry-run", expect=1).stdout
    check(f"refused: {folder / taken} has files but no run in it" in shown, f"a dry run reports it too: {shown}")
    (folder / taken / "note.txt").rename(folder / taken / ".lock")  # as left by a process
    done = place.matrix("study.yaml", "cut", "--only", "plain", "--reuse", whole)
    check(f"{taken} is reused from" in done.stderr, done.stderr)
    difference = first_difference(whole / RUNS[0], folder / taken)
    check(difference is None, f"copied at the second start: {difference}")

    linked = place.path / "linked" / RUNS[0]
    shutil.copytree(place.path / "whole" / RUNS[0], linked)
    (linked / "checkpoints").rename(place.path / "elsewhere")
    (linked / "checkpoints").symlink_to(place.path / "elsewhere")
    place.matrix("study.yaml", "from-linked", "--only", "plain", "--reuse", linked)
    shutil.rmtree(place.path / "elsewhere")
    difference = first_difference(place.path / "whole" / RUNS[0], place.path / "from-linked" / taken)
    check(difference is None, f"a folder that is a link is copied: {difference}")


def main():
    with Place() as place:
        place.matrix("m.yaml", "whole", "--only", "dense")
        check_reused(place)
        check_renamed(place)
        check_not_reused(place)
        check_copy_cut_short(place)
    print("matrix_reuse: ok")


main()
