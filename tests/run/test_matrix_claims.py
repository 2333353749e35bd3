#!/usr/bin/env python3
"""Claims of a matrix: about changes across contracts and shares of the runs, in the receipt, sealed
before the first run."""
import contextlib
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import MOE, assay, check, configuration
from refusals import is_refusal

MATRIX = """
name: claims
models: {dense: dense.yaml, moe: moe.yaml}
contracts:
  - {kind: activeDN, reference: dense, landings: [0.5, 1]}
  - {kind: totalDN, reference: dense, landings: [0.5, 1]}
precisions: [fp32]
seeds: [1, 2]
set: {run.steps: 40, eval.every: 4}
claims:
"""
CONTRACTS = '  - {name: contract, measure: val_loss, of: moe, below: dense, across: [activeDN, totalDN]}\n'
SHARES = '  - {name: grows, measure: val_loss, of: moe, below: dense, across: [0.5, 1], contract: activeDN}\n'
LATE = '  - {name: found later, measure: max_load, of: moe, above: 0}\n'


class Place:
    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="assay-claims-"))
        (self.path / "dense.yaml").write_text(configuration())
        (self.path / "moe.yaml").write_text(configuration(MOE))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def matrix(self, claims, *more, expect=0):
        (self.path / "m.yaml").write_text(MATRIX + claims)
        done = assay("matrix", self.path / "m.yaml", "--run-dir", self.path / "runs", *more)
        check(done.returncode == expect, f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done


def losses(table, contract, model):
    rows = [c for c in table["contracts"] if c["name"] == contract][0]["rows"]
    return [run["val_loss_nats"] for row in rows if row["model"] == model for run in row["runs"]]


def check_never_judged(place):
    """A claim that no run can decide is refused before anything is trained, with what would give its measure."""
    for claim, why, hint in (
            ("measure: max_load, of: dense, below: 1", "dense-activeDN-fp32-seed1 has no experts", "are measures of every run"),
            ("measure: max_load, of: moe, below: dense", "dense-activeDN-fp32-seed1 has no experts", "are measures of every run"),
            ("measure: core, of: moe, below: dense", "dense-activeDN-fp32-seed1 does not score CORE (eval.core)", "docs/evaluations.md"),
            ("measure: target_steps, of: moe, below: dense", "dense-activeDN-fp32-seed1 has no run.target_loss", "set it in"),
            ("measure: val_loss, of: moe, below: dense, at: 0.35", "has no evaluation near 35% of its 40 steps (eval.every = 4)",
             "make eval.every smaller, or add a landing"),
            ("measure: val_loss, of: moe, below: dense, across: [0.35, 1], contract: totalDN",
             "dense-totalDN-fp32-seed1 has no evaluation near 35% of its 40 steps", "make eval.every smaller")):
        for more in ((), ("--dry-run",)):
            done = place.matrix(f"  - {{name: never, {claim}}}\n", *more, expect=1)
            never = ("m.yaml:11: the claim \"never\" can never be judged: ", why)
            check(is_refusal(done, never, hint), done.stdout + done.stderr)
    done = place.matrix(LATE, "--set", "telemetry.window=50", expect=1)
    check(is_refusal(done, "logs fewer steps than telemetry.window = 50 (run.steps = ", "over a whole window"), done)
    check(not (place.path / "runs").exists(), "nothing is written")
    shown = place.matrix(CONTRACTS + SHARES + LATE, "--dry-run").stdout
    check("  claim found later: max_load of moe > 0\n" in shown and
          "  claim grows: val_loss of moe - dense, 100% minus 50%, < 0, under activeDN\n" in shown, shown)
    plan = json.loads(place.matrix(SHARES, "--dry-run", "--json").stdout)
    check([claim["name"] for claim in plan["claims"]] == ["grows"], plan["claims"])


def check_one_seed(place):
    """One seed decides no claim: the plan and the start say so."""
    said = "note: one seed decides no claim: add seeds, or --until-decided N\n"
    name = place.path / "one.yaml"
    one = MATRIX.replace("seeds: [1, 2]", "seeds: [1]")

    def stderr(text, *more):
        name.write_text(text)
        done = assay("matrix", name, "--run-dir", place.path / "one", *more)
        check(done.returncode == 0, done.stdout + done.stderr)
        return done.stderr
    check(stderr(one + CONTRACTS, "--dry-run").count(said) == 1, "the plan")
    check(said not in stderr(one + CONTRACTS, "--dry-run", "--until-decided", "3"), "seeds may be added")
    check(said not in stderr(one.replace("claims:\n", ""), "--dry-run"), "no claims")
    check(said not in stderr(MATRIX + CONTRACTS, "--dry-run"), "two seeds")
    check(stderr(one + CONTRACTS, "--only", "dense").count(said) == 1, "the start")
    check(said not in stderr(one + CONTRACTS, "--summary"), "the tables")


def check_judged(place):
    table = json.loads(place.matrix(CONTRACTS + SHARES, "--json").stdout)
    contract, grows = table["claims"]
    gaps = [[m - d for m, d in zip(losses(table, c, "moe"), losses(table, c, "dense"))] for c in ("totalDN", "activeDN")]
    change = sum(t - a for t, a in zip(*gaps)) / 2
    check(contract["contract"] == "activeDN to totalDN" and abs(contract["compared"]["mean"] - change) < 1e-12, contract)
    check(abs(contract["value"]["mean"] - sum(gaps[0]) / 2) < 1e-12, contract)
    check(contract["verdict"] in ("holds", "fails", "undecided") and 0 <= contract["p"] <= contract["p_holm"] <= 1, contract)
    gap = [g for g in table["contracts"][0]["gaps"] if g["model"] == "moe"][0]["points"]
    at = {round(point["share"], 6): point["mean"] for point in gap}
    check(len(gap) >= 5 and abs(at[1] - sum(gaps[1]) / 2) < 1e-12, gap)
    check(abs(grows["compared"]["mean"] - (at[1] - at[0.5])) < 1e-12, (grows, at))
    seal = table["claims_seal"]
    check(seal["runs_begun"] == 0 and seal["edits"] == [] and contract["added_after_runs"] is None, seal)
    text = (place.path / "runs" / "summary.md").read_text()
    for words in ("Gap over training", "Sealed before the first run (", seal["sha256"][:16], "p (Holm)"):
        check(words in text, f"{words!r}: {text}")
    check_sizes(scoreboard_rows(assay("published", "scoreboard", place.path / "runs").stdout))
    return seal


def scoreboard_rows(page):
    """The cells of each claim's row, by the claim."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| ").strip(): [cell.strip(" |") for cell in line.split(" | ")] for line in lines}


def check_sizes(rows):
    """A claim across two contracts has the sizes of the runs under both: the mixture has fewer tokens than the dense
    model under activeDN, and more under totalDN."""
    across, within = rows["contract"][4].split(", ")[1], rows["grows"][4].split(", ")[1]
    fewest, most = within.removesuffix(" tokens").split(" to ")
    check(across.startswith(fewest + " to ") and most not in across, f"{across}, under activeDN {within}")


def check_receipt(place, seal):
    runs = place.path / "runs"
    receipt = json.loads((runs / "receipt.json").read_text())
    check(receipt["environment"]["claims_seal"]["sha256"] == seal["sha256"], receipt["environment"])
    names = {claim["name"]: claim["value"] for claim in receipt["claims"]}
    for name in ("claim.activeDN to totalDN.fp32.contract.verdict", "claim.activeDN.fp32.grows.mean",
                 "activeDN.moe.fp32.max_load.mean", "totalDN.dense.fp32.val_loss_trend.mean"):
        check(name in names, f"{name}: {sorted(names)}")
    check(names["claim.activeDN to totalDN.fp32.contract.verdict"] in ("holds", "fails", "undecided"), names)
    done = assay("receipt", "verify", runs)
    check(done.returncode == 0 and "contract.verdict" in done.stdout, done.stdout + done.stderr)
    # A run's own receipt that is damaged: drift, and the other runs are trained again.
    own = runs / "dense-activeDN-fp32-seed1" / "receipt.json"
    whole = own.read_text()
    own.write_text(whole[:900])
    done = assay("receipt", "verify", runs, "--rerun", "2")
    check(done.returncode == 2 and "rerun of 2 steps" in done.stdout and "its receipt: the file is damaged" in done.stdout,
          done.stdout + done.stderr)
    check("bug" not in done.stderr, done.stderr)
    own.write_text(whole)


def check_stopped(place):
    """A model of which a guard stopped a run has no rank, and claims about its loss are undecided."""
    runs, guarded = place.path / "runs", place.path / "guarded"
    shutil.copytree(runs, guarded)
    with contextlib.closing(sqlite3.connect(guarded / "moe-activeDN-fp32-seed2" / "telemetry.db")) as db, db:
        db.execute("UPDATE event SET detail = 'non_finite' WHERE kind = 'end'")
    command = ("matrix", place.path / "m.yaml", "--run-dir", guarded, "--summary")
    table = json.loads(assay(*command, "--json").stdout)
    active, total = table["contracts"]
    check([place["model"] for place in active["ranking"]] == ["dense"] and len(total["ranking"]) == 2, table["contracts"])
    dense, moe = active["rows"]
    check(moe["stopped"] == ["non_finite"] and moe["not_ranked"] == "had 1 of 2 runs stopped by a guard (non_finite)" and
          moe["finished"] == 1 and dense["stopped"] == [] and dense["not_ranked"] is None, moe)
    why = "1 of 2 runs of moe was stopped by a guard (non_finite)"
    check([(c["verdict"], c["why"]) for c in table["claims"]] == [("undecided", why)] * 2, table["claims"])
    text = assay(*command).stdout
    for words in ("\nNot ranked: moe, which had 1 of 2 runs stopped by a guard (non_finite).", f"undecided: {why}",
                  "stopped by its guard (non_finite), step 36 of 36"):
        check(words in text, f"{words!r}: {text}")
    page = assay("published", "scoreboard", guarded).stdout
    check("\n2 undecided, " in page and f"undecided: {why}" in page, page)
    verified = assay("receipt", "verify", guarded)
    check(verified.returncode == 0, verified.stdout)
    receipt, whole = (json.loads((folder / "receipt.json").read_text()) for folder in (guarded, runs))
    check(receipt["environment"]["not_finite_runs"] == ["moe-activeDN-fp32-seed2"] and "not_finite_runs" not in whole["environment"],
          receipt["environment"])
    check([i["name"] for i in whole["inputs"] if i not in receipt["inputs"] and i["kind"] == "run"] == ["moe-activeDN-fp32-seed2"], receipt["inputs"])


def check_sealed(place):
    edited = place.matrix(CONTRACTS + LATE, expect=1)
    check(is_refusal(edited, "were edited after a run had begun; new: found later; gone: grows",
                     "hint: undo the edit; --late-claims", said_before=True), edited.stderr)
    check("new: found later" in place.matrix(CONTRACTS + LATE, "--summary", expect=1).stderr, "--summary neither")
    shown = place.matrix(CONTRACTS + LATE, "--dry-run", "--json", expect=1)
    (why,) = json.loads(shown.stdout)["refused"]
    check("new: found later" in why and f"refused: {why}\nhint: undo the edit; --late-claims" in shown.stderr, shown)
    place.matrix(CONTRACTS + LATE, "--dry-run", "--late-claims")
    check("0 to train" in place.matrix(CONTRACTS + SHARES).stderr, "the sealed claims are accepted")
    # Of a file with other cells the tables are printed only, and its late claims are not taken for sealed ones.
    name, summary = place.path / "other.yaml", place.path / "runs" / "summary.json"
    before = summary.read_bytes()
    other = MATRIX.replace("seeds: [1, 2]", "seeds: [1, 2, 9]")
    name.write_text(other + CONTRACTS + SHARES)
    done = assay("matrix", name, "--run-dir", place.path / "runs", "--summary")
    check(done.returncode == 0 and "are left as they are" in done.stderr and summary.read_bytes() == before, done.stderr)
    name.write_text(other + CONTRACTS + LATE)
    done = assay("matrix", name, "--run-dir", place.path / "runs", "--summary", "--late-claims")
    check(done.returncode == 1 and "has other claims and other cells" in done.stderr, done.stdout + done.stderr)
    table = json.loads(place.matrix(CONTRACTS + LATE, "--late-claims", "--json").stdout)
    check([claim["added_after_runs"] for claim in table["claims"] if claim["name"] == "found later"] == [6, 6], table["claims"])
    check([claim["added_after_runs"] for claim in table["claims"] if claim["name"] == "contract"] == [None], table["claims"])
    text = (place.path / "runs" / "summary.md").read_text()
    for words in ("found later (late)", "when 6 runs had finished: added \"found later\"; removed \"grows (activeDN)\""):
        check(words in text, f"{words!r}: {text}")
    check("late" not in place.matrix(CONTRACTS + LATE, "--summary").stderr, "an accepted edit is no edit any more")
    hint = assay("telemetry", place.path / "runs").stderr.splitlines()[-1]
    check(hint.endswith("; `assay matrix FILE --summary` prints the tables of the matrix"), hint)
    page = place.path / "page.html"
    done = assay("report", place.path / "runs", "-o", page)
    check(done.returncode == 0 and "found later" in page.read_text(), done.stderr)


def check_until_decided(place):
    """An undecided claim adds seeds up to the limit, a decided one none; they stay in later calls."""
    values = losses(json.loads(place.matrix(CONTRACTS + LATE, "--json").stdout), "activeDN", "moe")
    sure = "  - {name: sure, measure: val_loss, of: moe, above: 0, contract: activeDN}\n"
    undecided = f"  - {{name: open, measure: val_loss, of: moe, below: {sum(values) / 2!r}, contract: activeDN}}\n"
    done = place.matrix(sure, "--until-decided", "4", "--only", "moe", expect=1)
    check(is_refusal(done, "--until-decided does not go with --only", "of every model that a claim compares"), done.stderr)
    done = place.matrix(sure, "--until-decided", "4", "--late-claims")
    check("is added" not in done.stderr, done.stderr)
    done = place.matrix(sure + undecided, "--until-decided", "3", "--late-claims", "--json")
    check("undecided: open; seed 3 is added, of at most 3 seeds" in done.stderr and "3 to train" in done.stderr, done.stderr)
    check(json.loads(done.stdout)["extra_seeds"] == [3], "one JSON object, of the last round")
    record = json.loads((place.path / "runs" / "matrix.json").read_text())
    check("was edited" not in done.stderr and not any(edit["added"] for edit in record["edits"]), (done.stderr, record["edits"]))
    again = place.matrix(sure + undecided, "--json")
    table = json.loads(again.stdout)
    check("0 to train" in again.stderr and table["extra_seeds"] == [3], again.stderr)
    check(table["contracts"][0]["rows"][0]["planned"] == 3 and table["complete"], table["contracts"][0]["rows"][0])
    plan = place.matrix(sure + undecided, "--until-decided", "5", "--dry-run").stdout
    check("\nat most 15 runs: claims that stay undecided add seeds, up to 5\n" in plan, plan)
    check("Seeds 3 were added because" in (place.path / "runs" / "summary.md").read_text(), "the table says so")
    # Also when the file has them by now.
    name = place.path / "three.yaml"
    name.write_text(MATRIX.replace("seeds: [1, 2]", "seeds: [1, 2, 3]") + sure + undecided)
    done = assay("matrix", name, "--run-dir", place.path / "runs", "--json")
    check(done.returncode == 0 and json.loads(done.stdout)["extra_seeds"] == [3], done.stderr)


def check_tampered(place):
    """Claims edited in matrix.json and in the file alike are not those that were sealed."""
    record = place.path / "runs" / "matrix.json"
    text = record.read_text()
    sure = "  - {name: sure, measure: val_loss, of: moe, above: 0, contract: activeDN}\n"
    place.matrix(sure, "--late-claims")
    sealed = record.read_text()
    record.write_text(sealed.replace('"number": 0.0', '"number": 1.0'))
    changed = sure.replace("above: 0", "above: 1")
    for more in ((), ("--summary",), ("--summary", "--late-claims")):
        error = place.matrix(changed, *more, expect=1).stderr
        check("its claims are not those that were sealed" in error, error)
    scoreboard = assay("published", "scoreboard", place.path / "runs")
    check(scoreboard.returncode == 1 and "its claims are not those that were sealed" in scoreboard.stderr, scoreboard.stderr)
    record.write_text(text)


def check_reused_claims(place):
    """Claims that come with --reuse were written when the runs had finished."""
    name = place.path / "second.yaml"
    name.write_text((place.path / "m.yaml").read_text().replace("name: sure", "name: known"))
    done = assay("matrix", name, "--run-dir", place.path / "second", "--reuse", place.path / "runs")
    check(done.returncode == 0 and "0 to train" in done.stderr, done.stderr)
    check("known (late)" in done.stdout and "Recorded when 6 runs had begun" in done.stdout, done.stdout)


def check_seconds(place):
    """Cells under a contract in seconds are done when their runs are, and stay so."""
    (place.path / "seconds.yaml").write_text("""
models: {dense: dense.yaml, moe: moe.yaml}
contracts: [{kind: seconds, coefficient: 2}]
precisions: [fp32]
set: {schedule.warmup: 0, schedule.warmdown: 0}
""")
    arguments = ("matrix", place.path / "seconds.yaml", "--run-dir", place.path / "seconds")
    done = assay(*arguments)
    check(done.returncode == 0 and "2 of 2 cells are done." in done.stdout, done.stdout + done.stderr)
    again = assay(*arguments)
    check(again.returncode == 0 and "0 to train" in again.stderr, again.stderr)
    verified = assay("receipt", "verify", place.path / "seconds")
    check(verified.returncode == 0, verified.stdout)


def check_not_held(place):
    """Equal steps of other lengths are not what the contract steps holds fixed: the ranking and the claims say so."""
    (place.path / "lengths.yaml").write_text("""
models: {short: dense.yaml, long: {config: dense.yaml, set: {run.batch_tokens: 1024}}}
contracts: [{kind: steps}]
precisions: [fp32]
seeds: [1, 2]
set: {run.steps: 20}
claims:
  - {name: longer, measure: val_loss, of: long, below: short}
""")
    done = assay("matrix", place.path / "lengths.yaml", "--run-dir", place.path / "lengths")
    said = "Not held fixed: tokens per step: 512 in short-steps-fp32-seed1, 1024 in long-steps-fp32-seed1."
    check(done.returncode == 0 and f"\n{said}\n" in done.stdout, done.stdout + done.stderr)
    table = json.loads((place.path / "lengths" / "summary.json").read_text())
    check(table["contracts"][0]["not_held"] == said and table["claims"][0]["not_held"] == said, table)
    verified = assay("receipt", "verify", place.path / "lengths")
    check(verified.returncode == 0, verified.stdout)


def check_fraction(place):
    """Runs of a fraction of a horizon take as many steps as the plan says."""
    (place.path / "half.yaml").write_text("""
models: {dense: dense.yaml}
contracts: [{kind: steps, fraction: 0.5, name: half}, {kind: totalDN, reference: dense, fraction: 0.25, name: quarter}]
precisions: [fp32]
seeds: [1]
set: {run.steps: 40, eval.every: 10, schedule.warmup: 0, schedule.warmdown: 0}
""")
    arguments = ("matrix", place.path / "half.yaml", "--run-dir", place.path / "half", "--json")
    done = assay(*arguments)
    check(done.returncode == 0, done.stderr)
    steps = {c["name"]: c["rows"][0]["runs"][0]["steps"] for c in json.loads(done.stdout)["contracts"]}
    check(steps == {"half": 20, "quarter": 10}, steps)
    check("0 to train" in assay(*arguments).stderr, "the runs are those of the plan")


def check_scoreboard(place):
    """Every claim of the trained matrix and of matrices without runs, on one page."""
    named = place.path / "0003-small"
    shutil.copytree(place.path / "runs", named)
    record = json.loads((named / "matrix.json").read_text())
    (named / "matrix.json").write_text(json.dumps({**record, "matrix": "0003-small"}))
    full = place.path / "0003.yaml"
    full.write_text('name: "0003"\n' + (place.path / "m.yaml").read_text().split("\n", 2)[2].replace("name: sure", "name: at full size"))
    page = place.path / "docs" / "scoreboard.md"
    page.parent.mkdir()

    def scoreboard(*more, expect=0):
        done = assay("published", "scoreboard", *more)
        check(done.returncode == expect, f"exit {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}")
        return done

    scoreboard(named, "--claims", full, "-o", page)
    lines = page.read_text().splitlines()
    rows = scoreboard_rows(page.read_text())
    check(rows["sure"][1:4] == ["post", "val_loss of moe > 0", "0003-small, activeDN, fp32"], rows)
    check(rows["sure"][5].startswith("holds") and rows["sure"][6] == "3", rows)
    check("parameters, " in rows["sure"][4] and rows["at full size"][5] == "untested", rows)
    marked = "1 holds not after Holm" in page.read_text()
    check(marked == (rows["sure"][5] == "holds, not after Holm"), "a marked verdict is counted apart")
    check(any(line.startswith("## 0003. ") for line in lines), "the study has its title")
    counts = next(line for line in lines if "untested" in line and line.endswith("."))
    check("1 holds" in counts and "2 untested" in counts, counts)
    check("docs/matrix.md has the rules" in page.read_text(), "no links to pages that are not beside it")
    (page.parent / "reproduce.md").write_text("")
    # Whose claim it is: as its file says now, which the runs were trained before.
    sourced = place.path / "0003-small.yaml"
    sourced.write_text('name: "0003-small"\n' + (place.path / "m.yaml").read_text().split("\n", 2)[2].replace(
        "name: sure", "source: ours, name: sure"))
    check(scoreboard_rows(scoreboard(named, "--claims", sourced).stdout)["sure"][1] == "ours", "the file's source")
    scoreboard(named, "--claims", full, place.path / "m.yaml", "-o", page)
    check("[reproduce.md](reproduce.md)" in page.read_text(), "links where it lies beside the documentation")
    here = assay("published", "scoreboard", ".", "--claims", full, cwd=named)
    check(here.returncode == 0 and "[0003-small](" in here.stdout, here.stderr)
    check("0003-small: [0003-small](../0003-small). Sealed" in page.read_text(), page.read_text())

    packed = place.path / "packed"
    packed.mkdir()
    refused = scoreboard(named, "--claims", full, "--evidence", packed, expect=1).stderr.splitlines()
    check("0003-small.tar.zst does not exist" in refused[-2] and "tar --zstd --exclude=checkpoints" in refused[-1], refused)
    (packed / "0003-small.tar.zst").write_text("")
    check("[0003-small.tar.zst](../packed/0003-small.tar.zst)" in
          scoreboard(named, "--claims", full, "--evidence", packed, "-o", page).stderr + page.read_text(), "links start from the page")
    check("two of the folders have a matrix 0003-small" in scoreboard(named, named, expect=1).stderr, "twice")
    check("matrix" in scoreboard(place.path, expect=1).stderr, "a folder without a matrix")
    shutil.copy(page, before := place.path / "before.md")
    (named / "matrix.json").write_text("{")
    check("hint: " in scoreboard(named, "-o", page, expect=1).stderr, "a damaged matrix")
    check(page.read_text() == before.read_text(), "the page is as it was")
    every = scoreboard().stdout
    check("## 0006. " in every and "## tiny. " in every and "| holds" not in every, every)


def main():
    with Place() as place:
        check_never_judged(place)
        check_one_seed(place)
        seal = check_judged(place)
        check_receipt(place, seal)
        check_stopped(place)
        check_sealed(place)
        check_until_decided(place)
        check_scoreboard(place)
        check_reused_claims(place)
        check_tampered(place)
        check_seconds(place)
        check_not_held(place)
        check_fraction(place)
    print("matrix_claims: ok")


main()
