#!/usr/bin/env python3
"""assay published as a user calls it: in a clone, in another folder, with presets that are damaged.

Usage: test_published_cli.py ASSAY"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from refusals import is_refusal

ASSAY = str(pathlib.Path(sys.argv[1]).resolve())
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
failures = []


def run(*arguments, code=0, cwd=ROOT):
    done = subprocess.run([ASSAY, *arguments], capture_output=True, text=True, cwd=cwd)
    expect(done.returncode == code, f"{arguments} in {cwd}: exit {done.returncode}, wanted {code}\n{done.stdout}{done.stderr}")
    return done


def expect(condition, what):
    if not condition:
        failures.append(what)


def expect_in(text, *parts):
    for part in parts:
        expect(part in text, f"{part!r} is not in\n{text}")


def lists_and_shows():
    expect(run("published", "list").stdout == run("compare", "--published", "list").stdout, "the lists differ")
    for name in json.loads(run("published", "list", "--json").stdout)["published"]:
        expect(run("published", "show", name).stdout == run("compare", "--published", name).stdout, f"show {name} differs")
        expect(run("published", "show", name, "--json").stdout == run("compare", "--published", name, "--json").stdout,
               f"show {name} --json differs")
    # With the digits that the post has.
    expect_in(run("published", "show", "0003").stdout, "3.5950", "0.049430")


def checks():
    text = run("published", "check", "0004").stdout
    expect_in(text, "0004: 30 same, 0 differ, ", "2,836,482,816", "37813", "26.2402175563", "not derivable: measured loss")
    document = json.loads(run("published", "check", "all", "--json").stdout)
    expect(list(document) == ["0003", "0004", "0006", "tiny"], f"studies: {list(document)}")
    for name, study in document.items():
        verdicts = [figure["verdict"] for figure in study["figures"]]
        for key, verdict in (("same", "same"), ("differ", "differs"), ("not_derivable", "not derivable"), ("failed", "failed")):
            expect(study[key] == verdicts.count(verdict), f"{name}: {key} is {study[key]}, {verdicts.count(verdict)} figures")
        text = run("published", "check", name).stdout
        expect_in(text, f"{name}: {study['same']} same, {study['differ']} differ, {study['not_derivable']} cannot be derived\n")
        expect(max(map(len, text.splitlines())) <= 110, f"check {name} is {max(map(len, text.splitlines()))} columns wide")
    expect(run("published", "check", "all").stdout.endswith("cannot be derived\n"), "check all has no count at its end")


def other_folders():
    with tempfile.TemporaryDirectory(prefix="assay-published-") as folder:
        expect(run("published", "check", "all", cwd=folder).stdout == run("published", "check", "all").stdout,
               "the check depends on the folder")
        preset = pathlib.Path(folder) / "models/presets/speedrun/dense.yaml"
        preset.parent.mkdir(parents=True)
        preset.write_text("model: {hidden: 0}\n")
        text = run("published", "check", "0003", code=2, cwd=folder).stdout
        expect_in(text, "failed: ", "models/presets/speedrun/dense.yaml", " failed\n")
        failed = json.loads(run("published", "check", "0003", "--json", code=2, cwd=folder).stdout)["0003"]["failed"]
        expect(failed > 10, f"{failed} derivations failed")


def receipts_of(name):
    """Receipts that say what docs/published says, each place by a second reading of the pattern."""
    study = json.loads((ROOT / "docs" / "published" / f"{name}.json").read_text())
    document = {"post": name, "title": "a title", "status": "complete", "artifacts": [{"kind": "log", "path": "logs/a.log"},
                                                                                     {"kind": "log", "path": "logs/b.log"}]}

    def put(pointer, value):
        *folders, last = pointer.strip("/").split("/")
        place = document
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value

    figures = 0
    for entry in study["receipt_places"]:
        scale = entry.get("per", 1)
        if "figure" in entry:
            printed = next(c["published"] for c in study["checks"] if c.get("what") == entry["figure"])
            put(entry["at"], float(printed.replace(",", "")) * scale)
            figures += 1
            continue
        table = next(t for t in study["tables"] if t["title"] == entry["table"])
        column = len(table["keys"]) + [c["key"] for c in table["columns"]].index(entry["column"])
        for row in table["rows"]:
            keys = [str(cell) for cell in row[:len(table["keys"])]]
            if row[column] is None or entry.get("row", keys) != keys:
                continue
            pointer = entry["at"]
            for key, cell in zip(table["keys"], keys):
                pointer = pointer.replace("{" + key + "}", study.get("receipt_names", {}).get(cell, cell))
            put(pointer, row[column] * scale)
            figures += 1
    return document, figures


def own_receipts():
    with tempfile.TemporaryDirectory(prefix="assay-receipts-") as folder:
        file = pathlib.Path(folder) / "x.receipts.json"
        for name, least in (("0003", 60), ("0004", 6)):
            document, figures = receipts_of(name)
            file.write_text(json.dumps(document))
            expect(figures >= least, f"{name}: {figures} places")
            expect_in(run("published", "receipts", str(file)).stdout, f"{figures} same, 0 differ, 0 absent", "artifacts: 2 named, 0 with a SHA-256")
        document, figures = receipts_of("0003")
        lanes = document["measurements"]["closure_matrix_20260312"]["results"]["bf16"]
        lanes["moe64"]["stop_step"] += 1
        del lanes["dense"]["core"]
        lanes["dense"]["final_valid_loss"] += 0.00004  # below half a unit of the printed digits
        file.write_text(json.dumps(document))
        (pathlib.Path(folder) / "logs").mkdir()
        (pathlib.Path(folder) / "logs" / "a.log").write_text("")
        report = json.loads(run("published", "receipts", str(file), "--artifacts", folder, "--json").stdout)
        expect((report["same"], report["differ"], report["absent"]) == (figures - 2, 1, 1), f"{report['same']} same")
        found = {f["what"]: f for f in report["figures"]}
        expect(found["closure matrix, bf16, moe-64: stop_step"]["verdict"] == "differs", "a changed step")
        expect(found["closure matrix, bf16, dense: core"]["verdict"] == "absent", "a removed score")
        expect(report["missing"] == ["logs/b.log"], f"missing: {report['missing']}")
        expect_in(run("published", "receipts", str(file), "--artifacts", folder).stdout, " 1 are missing, 0 have another SHA-256", "missing: logs/b.log (log)")
        document["artifacts"][0]["sha256"] = "0" * 64
        file.write_text(json.dumps(document))
        report = json.loads(run("published", "receipts", str(file), "--artifacts", folder, "--json").stdout)
        expect(report["differing"] == ["logs/a.log"] and report["missing"] == ["logs/b.log"], f"a wrong hash: {report['differing']}")
        file.write_text('{"post": "0006", "title": "t", "artifacts": []}')
        expect_in(run("published", "receipts", str(file)).stdout, "no figure of the study has a place in its receipts")
        for text, error in (("{", "is not JSON"), ("[]", "lacks post, title or artifacts"), ('{"post": "0003", "title": "t"}', "lacks post"),
                            ('{"post": "0003", "title": "t", "artifacts": [{}]}', "an artifact has no path"),
                            ('{"post": "0009", "title": "t", "artifacts": []}', "there is no published study 0009")):
            file.write_text(text)
            done = run("published", "receipts", str(file), code=1)
            expect(is_refusal(done, error), f"{text}: {done}")


def refusals():
    for word in ("show", "check"):
        done = run("published", word, "003", code=1)
        expect(is_refusal(done, hint="hint: did you mean 0003? ") and
               done.stderr.startswith("error: there is no published study 003\n"), f"{word} 003: {done}")
    expect_in(run("published", "chek", "0003", code=1).stderr, "did you mean check?")


lists_and_shows()
checks()
other_folders()
own_receipts()
refusals()
print("\n".join(failures) or "published: ok")
sys.exit(1 if failures else 0)
