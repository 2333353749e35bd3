#!/usr/bin/env python3
"""telemetry.collapse_stop: a rule that holds stops the run with exit code 3, a checkpoint and the
analysis; a rule that never holds changes nothing; a stopped run stays stopped until the rule is
changed, and then continues to the same bits; `from` and `auto`."""
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Workplace, assay, check, checkpoints, first_difference, rows

# With top 2 of 4 experts, every layer's largest load is at least half of its ceiling, so this rule
# always holds.
ALWAYS = "telemetry.collapse_stop={measure: max_load_norm, at_least: 0.5, layers: all, for: 12}"
FORCED = "telemetry.collapse_stop={measure: max_load_norm, at_least: 0.1}"
NEVER = "telemetry.collapse_stop={measure: active_norm, at_most: 0.5, layers: any, for: 2}"
OFF = "telemetry.collapse_stop=null"


def events(run):
    return rows(run, "SELECT step, kind, detail FROM event WHERE kind IN ('collapse_stop', 'end') ORDER BY rowid")


def check_stops(place):
    done = place.train("stopped", "--set", ALWAYS, "--fresh", expect=3)
    check("run the same command without --fresh, with --set telemetry.collapse_stop=null" in done.stderr, done.stderr)
    shutil.rmtree(place.run("stopped"))
    done = place.train("stopped", "--set", ALWAYS, "--json", expect=3)
    run = place.run("stopped")
    said = json.loads(done.stdout)
    why = said["collapse_stop"]
    check(said["end"] == "collapse_stop" and said["step"] == 12, said)
    check("max_load_norm of every layer" in why and "at least 0.5 for 12 logged steps" in why, why)
    check(events(run) == [(12, "collapse_stop", why), (12, "end", "collapse_stop")], events(run))
    check(checkpoints(run)[-1].name == "step-00000012", f"saves a checkpoint when it stops: {checkpoints(run)}")
    lines = done.stderr.splitlines()
    error = next(i for i, line in enumerate(lines) if line.startswith("error: "))
    check(why in lines[error] and lines[error + 1].startswith("hint: ") and
          "run the same command, with --set telemetry.collapse_stop=null" in lines[error + 1], lines[error:])
    for part in ("by layer, over the last W", "verdict: ", "x K"):
        check(part in done.stderr, f"the analysis is printed: {part!r}\n{done.stderr}")
    check(json.loads(assay("router", run, "--json").stdout)["ended_by"] == "collapse_stop", "assay router reports how the run ended")
    marked = assay("compare", run)
    check("stopped by its guard, collapse_stop, at step 12" in marked.stdout, marked.stdout + marked.stderr)
    check(assay("receipt", "verify", run).returncode == 0, "its receipt verifies")


def check_stays(place):
    again = place.train("stopped", "--set", ALWAYS, expect=3)
    check("step 13/" not in again.stderr, f"a stopped run trains no further step: {again.stderr}")
    # A changed rule applies to later and to earlier logged steps.
    longer = ALWAYS.replace("for: 12", "for: 15")
    place.train("stopped", "--set", longer, expect=3)
    check(events(place.run("stopped"))[-1] == (15, "end", "collapse_stop"), events(place.run("stopped")))


def check_goes_on(place):
    place.train("whole", "--set", NEVER)
    check(events(place.run("whole")) == [(60, "end", "steps")], events(place.run("whole")))
    place.train("free")
    check(first_difference(place.run("whole"), place.run("free")) is None, "a rule that never holds changes no bit")
    done = place.train("stopped", "--set", OFF)
    check("resumes after step 15" in done.stderr, done.stderr)
    difference = first_difference(place.run("whole"), place.run("stopped"))
    check(difference is None, f"stopped twice and resumed: {difference}")


def check_killed_in_between(place):
    """Logged steps before a resume count towards the rule."""
    place.train("counted", "--set", ALWAYS, "--stop-after", "7")
    place.train("counted", "--set", ALWAYS, expect=3)
    check(events(place.run("counted"))[-1] == (12, "end", "collapse_stop"), events(place.run("counted")))


def check_from(place):
    """With `from`, logged steps before that share of the steps do not count, also across a resume."""
    late = ALWAYS.replace("for: 12", "for: 12, from: 0.5")
    place.train("late", "--set", late, "--stop-after", "35")
    done = place.train("late", "--set", late, expect=3)
    check("counted from step 30 on" in done.stderr, done.stderr)
    check(events(place.run("late"))[-1] == (41, "end", "collapse_stop"), events(place.run("late")))
    place.train("late", "--set", OFF)
    check(first_difference(place.run("late"), place.run("free")) is None, "it trains as without a rule")


# One expert a token, nothing that balances, and a router that learns fast.
COLLAPSES = ("--set", "model.moe={experts: 16, top_k: 1, expert_ffn: 32, router: {bias_rate: 0, aux: none}}",
             "--set", "optimizer.router_lr=0.5")
AUTO = "telemetry.collapse_stop=auto"
RULE = """  collapse_stop:
    measure: entropy_norm
    at_most: 0.848
    layers: mean
    for: 10
    from: 0.1
"""


def check_auto(place):
    said = "collapse_stop: auto is entropy_norm <= 0.848 in the mean over the layers for 10 logged steps"
    done = place.train("auto", *COLLAPSES, "--set", AUTO, expect=3)
    run = place.run("auto")
    check(RULE in (run / "config.yaml").read_text(), (run / "config.yaml").read_text())
    check(said in done.stderr and "which on 83 recorded runs had " in done.stderr, done.stderr)
    check(events(run)[-1] == (15, "end", "collapse_stop"), f"ten logged steps from step 6 on: {events(run)}")
    check("counted from step 6 on" in events(run)[-2][2], events(run))
    # The rule by its name is the rule of config.yaml: the run stays stopped.
    place.train("auto", *COLLAPSES, "--set", AUTO, expect=3)
    planned = place.train("planned", *COLLAPSES, "--set", AUTO, "--plan")
    check(said in planned.stdout and not place.run("planned").exists(), planned.stdout)
    # A rule that even routers meet is known before a run of hours begins.
    forced = place.train("planned", "--set", FORCED, "--plan", "--json")
    check("warning: telemetry.collapse_stop holds however even the routers are" in forced.stderr, forced.stderr)
    check("total_bytes" in json.loads(forced.stdout), forced.stdout)
    even = place.train("even", "--set", AUTO)
    check("finished step 60/60" in even.stderr, even.stderr)
    check(first_difference(place.run("even"), place.run("free")) is None, "a router that stays even is not stopped")
    wrong = place.train("wrong", "--set", "telemetry.collapse_stop=atuo", expect=1)
    check("hint: did you mean auto?" in wrong.stderr, wrong.stderr)


MATRIX = """
name: guarded
models: {{dense: dense.yaml, moe: config.yaml}}
contracts: [{{kind: steps}}]
precisions: [fp32]
seeds: [1]
set: {{{rule}}}
"""


def check_routers(runs, text):
    """The routers of a stopped run are in the tables, as they are in claims and in the receipt."""
    table = json.loads((runs / "summary.json").read_text())["contracts"][0]
    moe = table["rows"][1]
    check(moe["finished"] == 0 and moe["val_loss_nats"] is None and moe["measures"]["val_loss"] is None, moe)
    load = moe["measures"]["max_load_worst"]["mean"]
    check(moe["worst_max_load_norm"] == load >= 0.5 and moe["measures"]["saturated_layers"]["n"] == 1, moe)
    check("Routers: mean" in text and f" {load:.3f} |" in text and f"{load:.2f} collapsed (1 of 1) |" in text, text)
    check("experts over the last 8 logged steps" in text, text)
    claims = {claim["name"]: claim["value"] for claim in json.loads((runs / "receipt.json").read_text())["claims"]}
    check(claims["steps.moe.fp32.max_load_worst.mean"] == load and "steps.moe.fp32.val_loss.mean" not in claims, claims)
    done = assay("receipt", "verify", runs)
    check(done.returncode == 0, done.stdout + done.stderr)


def check_matrix(place):
    text = place.config.read_text()
    (place.path / "dense.yaml").write_text(text[:text.index(", moe:")] + text[text.index("}}}") + 2:])
    matrix = place.path / "m.yaml"

    def train(rule, expect, folder="runs"):
        matrix.write_text(MATRIX.format(rule=rule))
        done = assay("matrix", matrix, "--run-dir", place.path / folder)
        check(done.returncode == expect, f"exit {done.returncode}, not {expect}: {done.stdout}{done.stderr}")
        return done

    rule = ("telemetry.collapse_stop.measure: max_load_norm, telemetry.collapse_stop.at_least: 0.5, "
            "telemetry.collapse_stop.layers: all, telemetry.collapse_stop.for: ")
    for _ in range(2):  # the second time it is not tried again
        done = train(rule + "12", 3)
        check("moe-steps-fp32-seed1 (exit 3: " in done.stderr, done.stderr)
        check("stopped by its guard (collapse_stop), step 12 of 60" in done.stdout, done.stdout)
        check("INCOMPLETE" in done.stdout, "a stopped cell does not count as finished")
        check_routers(place.path / "runs", done.stdout)
    done = train("run.checkpoint_every: 20", 0)  # without the rule it continues
    check("moe-steps-fp32-seed1 resumes after step 12" in done.stderr and "2 of 2 cells are done" in done.stdout,
          done.stderr + done.stdout)
    done = train(rule + "12", 0)
    check("0 to train" in done.stderr, f"finished cells are not trained again: {done.stderr}")
    train("telemetry.collapse_stop: auto", 0, folder="by-name")
    for cell in ("dense", "moe"):  # no effect in the dense model
        config = (place.path / "by-name" / f"{cell}-steps-fp32-seed1" / "config.yaml").read_text()
        check(RULE in config, config)


def main():
    with Workplace(moe=True, sequence=64) as place:
        check_stops(place)
        check_stays(place)
        check_goes_on(place)
        check_killed_in_between(place)
        check_from(place)
        check_auto(place)
        check_matrix(place)
    print("collapse_stop: ok")


main()
