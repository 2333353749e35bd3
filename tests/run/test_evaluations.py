#!/usr/bin/env python3
"""CORE and samples during training: they change no bit of the run, a stopped run gets the same
ones, CORE equals the score that `assay eval` gives for the checkpoint, and a run that reaches its
target waits for its score."""
import json
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from core_bundle import CORE, TASKS, write_bundle
from harness import Workplace, assay, check, checkpoints, first_difference, newest_tensors, rows, stop_at

MEAN = "mean_of_3_of_4_tasks_of_at_most_30_rows_each"


def trained_alike(a, b):
    """The first difference in tensors or in telemetry other than evaluations, or None."""
    if newest_tensors(a) != newest_tensors(b):
        return "the last checkpoints differ"
    for query in ("SELECT step, name, value FROM scalar WHERE name IN ('hash', 'train_loss_nats', 'gradient_norm')",
                  "SELECT * FROM router_layer", "SELECT * FROM expert_load", "SELECT * FROM precision",
                  "SELECT step, metric, value, n FROM eval WHERE task = 'val'"):
        ours, theirs = rows(a, query), rows(b, query)
        if ours != theirs:
            return f"{query}: {len(ours)} and {len(theirs)} rows, {[r for r in zip(ours, theirs) if r[0] != r[1]][:1]}"
    return None


def samples(run):
    return (run / "samples.jsonl").read_text()


def core_settings(place, **fields):
    core = {"bundle": str(place.path / "bundle"), "max_rows": 30, **fields}
    return ["--set", f"eval.core={json.dumps(core)}"]


PROMPTS = ["Once upon a time", "The", ""]
SAMPLES = ["--set", f"eval.samples={{prompts: {json.dumps(PROMPTS)}, tokens: 12, every: 15}}"]


def check_rows(place, name):
    run = place.run(name)
    core = rows(run, "SELECT step, metric, value, n FROM eval WHERE task = 'core' ORDER BY step, metric")
    check([(step, metric) for step, metric, _, _ in core] ==
          [(step, metric) for step in (25, 50, 60) for metric in (MEAN, "not_scored_rows", "standard_error")],
          f"the mean of part of CORE is not called CORE: {core}")
    check(all(n == 90 for _, _, _, n in core), core)
    tasks = rows(run, "SELECT task, metric, value FROM eval WHERE task LIKE 'core/%' AND step = 60 ORDER BY task, metric")
    check([row[:2] for row in tasks] == [(f"core/{label}", metric) for label in sorted(TASKS)
                                         for metric in ("accuracy", "centered")], tasks)
    check(abs(sum(row[2] for row in tasks if row[1] == "centered") / 3 - core[-3][2]) < 1e-12, "the mean of the tasks")
    drawn = [json.loads(line) for line in samples(run).splitlines()]
    check([(s["step"], s["prompt"]) for s in drawn] ==
          [(step, prompt) for step in (15, 30, 45, 60) for prompt in PROMPTS], drawn)
    check(all(len(s["tokens"]) <= 12 and isinstance(s["text"], str) for s in drawn), drawn)
    compared = json.loads(assay("compare", run, "--json").stdout)["models"][0]["capability"]
    last = [value for _, metric, value, _ in core if metric == MEAN][-1]
    check(compared["names"] == [MEAN] and compared["value"]["mean"] == last and compared["runs"] == 1, f"{compared}, {last}")
    check(f"{MEAN} {last:.4f}, n 1" in assay("compare", run).stdout, "and in its table")


def check_like_eval(place, name):
    """The scores equal those of `assay eval` for the last checkpoint."""
    run = place.run(name)
    recorded, meta = (json.loads((run / name).read_text()) for name in ("evals/step-00000060.json", "meta.json"))
    ours = recorded["core"]
    check(all(part.get(key) == meta[key] for part in (recorded, ours) for key in ("device", "recipe")) and ours["commit"],
          f"who scored CORE: {recorded} in {meta}")
    done = assay("eval", run, "--tasks", "core", "--bundle", place.path / "bundle", "--max-rows", "30", "--json")
    check(done.returncode == 0, done.stderr)
    theirs = json.loads(done.stdout)["core"]
    check(ours["present"] == theirs["present"] and ours["core"] is None, f"{ours['present']} and {theirs['present']}")
    for a, b in zip(ours["tasks"], theirs["tasks"]):
        check({**a, "seconds": 0} == {**b, "seconds": 0}, f"{a} and {b}")
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    done = assay("sample", run, *prompts, "--tokens", "12", "--json")
    check(done.returncode == 0, done.stderr)
    texts = [text["tokens"] for text in json.loads(done.stdout)["texts"]]
    drawn = [json.loads(line)["tokens"] for line in samples(run).splitlines()[-len(PROMPTS):]]
    check(texts == drawn, f"as `assay sample`: {texts}")


def check_stopped(place, settings):
    for after in (7, 18, 25):  # steps 25 and 50 have a score
        place.train("stopped", *settings, "--stop-after", str(after))
    place.train("stopped", *settings)
    code, said = stop_at(place.command("cut", *settings), 25, signal.SIGINT)  # before or during the evaluation of step 25
    check(code == 130, f"exit {code}: {said}")
    place.train("cut", *settings)
    for name in ("stopped", "cut"):
        difference = first_difference(place.run("looked"), place.run(name))
        check(difference is None, f"{name}: {difference}")
        check(samples(place.run("looked")) == samples(place.run(name)), f"{name}: other samples")


def check_target(place):
    losses = rows(place.run("plain"), "SELECT step, value FROM eval WHERE metric = 'loss_nats' AND step > 0 ORDER BY step")
    target = ["--set", f"run.target_loss={(losses[0][1] + losses[1][1]) / 2}"]
    done = place.train("target", *core_settings(place), *target)
    check("reached the target loss at step 40/60" in done.stderr, done.stderr)
    steps = rows(place.run("target"), "SELECT DISTINCT step FROM eval WHERE task = 'core'")
    check(steps == [(40,)], f"the run waits for its score, and has no other: {steps}")
    order = [line.split()[0] for line in done.stderr.splitlines() if line.startswith(("checkpoint", "eval 40/60 mean", "reached the target loss"))]
    check(order[-3:] == ["checkpoint", "eval", "reached"], f"slow evaluations come after the checkpoint: {order}")
    check("capability: mean_of_3_of_4_tasks_of_at_most_30_rows_each " in done.stderr, f"the summary has the score: {done.stderr}")
    again = place.train("target", *core_settings(place), *target)
    check("reached the target loss at step 40/60" in again.stderr and "eval 40/60 mean" not in again.stderr, again.stderr)
    place.train("later", *target)
    late = place.train("later", *core_settings(place), *target)
    check("eval 40/60 mean" in late.stderr, f"a score that is requested later: {late.stderr}")


def check_target_at_other_interval(place):
    """A run that its target ended has ended, also where it is started again to be validated at other steps."""
    target = ("--set", "run.target_loss=20", "--set")
    for every in (9, 10, 9):
        done = place.train("interval", *target, f"eval.every={every}")
        check("reached the target loss at step 9/60" in done.stderr, f"every {every}: {done.stderr}")
        check("target 20 reached" in done.stderr and "at step 9," in done.stderr, f"every {every}: {done.stderr}")
    check(rows(place.run("interval"), "SELECT max(step) FROM scalar") == [(9,)], "no step follows")


def check_asked_later(place):
    """A score requested at resume for the step that the run resumes from, in a run whose last steps
    have another format."""
    tail = ["--set", "precision.recipe=nvfp4", "--set", "precision.bf16_tail=0.5"]
    wanted = [*core_settings(place, every=40), "--set",
              "eval.samples={prompts: [Once, The, A, And], tokens: 48, temperature: 1, every: 40}"]
    place.train("tail", *tail, *wanted)
    place.train("asked", *tail, "--stop-after", "40")
    place.train("asked", *tail, *wanted)
    difference = first_difference(place.run("tail"), place.run("asked"))
    check(difference is None, f"requested when the run resumes: {difference}")
    check(samples(place.run("tail")) == samples(place.run("asked")), "samples use the formats of the last step")
    check(len(rows(place.run("asked"), "SELECT * FROM eval WHERE task = 'core' AND step = 40")) == 3, "the score is recorded")


def check_phase(place):
    """A checkpoint of the last steps, which are in bf16, is measured in bf16, and in other formats if they are named."""
    def measured(*sets, words=()):
        changes = [word for one in sets for word in ("--set", one)]
        done = assay("eval", place.run("tail"), "--json", *(words or ("--tasks", "loss")), *changes)
        check(done.returncode == 0, done.stderr)
        said = json.loads(done.stdout)
        return said if words else (said["val_loss_nats"], said["recipe"], said["phase"], "note: step 60 is" in done.stderr)

    own = measured()
    check(own[1:] == ("nvfp4", "bf16", False), own)
    check(measured("precision.recipe=bf16") == (own[0], "bf16", "recipe", False), "its formats by name")
    here = measured("precision.recipe=auto")  # fp32 or bf16
    check(here == (*measured(f"precision.recipe={here[1]}")[:2], "recipe", False), f"what this machine's recipe is: {here}")
    nvfp4 = measured("precision.bf16_tail=0")
    check(nvfp4[0] != own[0] and nvfp4[1:] == ("nvfp4", "recipe", False), f"{nvfp4}, {own}")
    check(measured("precision.recipe=nvfp4") == (*nvfp4[:3], True), "the recipe by name")
    mxfp8 = measured("precision.recipe=mxfp8")
    check(mxfp8[1:] == ("mxfp8", "recipe", True) and mxfp8[0] not in (own[0], nvfp4[0]), f"another recipe: {mxfp8}")
    check(measured("precision={recipe: mxfp8}")[0] == mxfp8[0], "the recipe in its section")
    check(measured("precision.override=[fprop=bf16]")[0] == own[0], "overrides by name")
    both = measured("precision.recipe=mxfp8", "precision.bf16_tail=0.5")
    check(both == (own[0], "mxfp8", "bf16", False), f"a tail by name: {both}")
    done = assay("eval", place.run("tail"), "--set", "precision.recipe=mxfp8")
    check("note: step 60 is in the run's last steps, in bf16 (precision.bf16_tail = 0.5); "
          "measured in mxfp8, as --set says\n" in done.stderr, done.stderr)

    kept = json.loads((place.run("tail") / "evals" / "step-00000060.json").read_text())
    check(kept["phase"] == "bf16" and kept["recipe"] == "nvfp4", f"the file says so: {kept['phase']}")
    core = json.loads((place.run("tail") / "evals" / "step-00000040.json").read_text())
    check(core["phase"] == core["core"]["phase"] == "bf16", "and that of the run's own evaluation")
    words = ("--tasks", "core", "--bundle", place.path / "bundle", "--max-rows", "3", "--part", "1/1",
             "--output", place.path / "part.json")
    origins = [measured(*sets, words=words)["origin"] for sets in ((), ("precision.bf16_tail=0",))]
    check([o.get("phase") for o in origins] == ["bf16", None], f"parts of two phases are not of one evaluation: {origins}")
    done = assay("sample", place.run("tail"), "--prompt", "The", "--tokens", "2", "--json")
    check(done.returncode == 0 and json.loads(done.stdout)["phase"] == "bf16", f"sample: {done}")


def check_failure(place):
    """An evaluation that cannot be written does not end the run, and is made up for later."""
    place.train("blocked", "--steps", "20")
    (place.run("blocked") / "evals").write_text("")
    done = place.train("blocked", *core_settings(place), "--steps", "20")
    check("warning: no evaluation core at step 20" in done.stderr, done.stderr)
    (place.run("blocked") / "evals").unlink()
    done = place.train("blocked", *core_settings(place), "--steps", "20")
    check("eval 20/20 core " in done.stderr, done.stderr)


def check_abandoned(place):
    """A run that goes on from before a damaged checkpoint puts aside what was measured of that checkpoint's weights."""
    run = place.run("abandoned")
    settings = [*core_settings(place, every=10), *SAMPLES, "--set", "run.keep_checkpoints=2"]
    place.train("abandoned", *settings, "--stop-after", "30")
    at = {step: run / "evals" / f"step-{step:08d}.json" for step in (20, 30)}
    check(all(file.is_file() for file in at.values()), sorted((run / "evals").iterdir()))
    done = assay("eval", run, "--tasks", "loss")
    check(done.returncode == 0, done.stderr)
    at_20, at_30 = (at[step].read_bytes() for step in (20, 30))
    check(b"val_loss_nats" in at_30, "the run itself writes no loss there")
    model = run / "checkpoints" / "step-00000030" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    done = place.train("abandoned", *settings, "--stop-after", "2")
    check(at[20].read_bytes() == at_20 and not at[30].exists(), f"goes on from step 20: {sorted((run / 'evals').iterdir())}")
    steps = {json.loads(line)["step"] for line in samples(run).splitlines()}
    check(steps == {15}, f"texts of steps {steps}")
    check((run / "evals" / "given-up" / at[30].name).read_bytes() == at_30, "what nothing makes again is kept")
    check("warning: what was measured of steps after 20, which are made again, "
          f"is in {run}/evals/given-up now: {at[30].name}\n" in done.stderr, done.stderr)
    logged = (run / "log.txt").read_text()
    check("removed, of steps that are made again: 3 lines of samples.jsonl" in logged, "the log says so")
    done = place.train("abandoned", *settings, "--stop-after", "8")
    check("given-up" not in done.stderr, done.stderr)
    check(b"val_loss_nats" not in at[30].read_bytes(), "the loss is not measured again")
    check({json.loads(line)["step"] for line in samples(run).splitlines()} == {15, 30}, "and measures step 30 again")


def check_landings(place):
    landings = ["--set", "contract.kind=steps", "--set", "contract.landings=[0.25, 1]", "--steps", "24"]
    place.train("landings", *core_settings(place, max_rows=5, at_landings=True), *landings)
    place.train("ends", *core_settings(place, max_rows=5), *landings)
    scored = [rows(place.run(name), "SELECT DISTINCT step FROM eval WHERE task = 'core'") for name in ("landings", "ends")]
    check(scored == [[(6,), (24,)], [(24,)]], f"scores at the landings, if they are asked for: {scored}")


def check_validated_late(place):
    """A run whose last step was made by a process that was to do more: it is validated, and counts as done."""
    settings = ["--set", "run.log_every=5", "--set", "schedule.warmup=0", "--set", "schedule.warmdown=0",
                "--set", "run.keep_best=true"]
    place.train("late", *settings, "--stop-after", "23")
    losses = "SELECT step FROM eval WHERE task = 'val' AND metric = 'loss_nats' ORDER BY step"
    check(rows(place.run("late"), losses)[-1] == (20,), "step 23 is neither logged nor validated yet")
    place.train("late", *settings, "--steps", "23")
    place.train("once", *settings, "--steps", "23")
    values = losses.replace("SELECT step", "SELECT step, value, n")
    check(rows(place.run("late"), values) == rows(place.run("once"), values), "the loss of the end is that of a run of 23 steps")
    late, once = (json.loads(assay("compare", place.run(name), "--json").stdout)["models"][0] for name in ("late", "once"))
    check(late["val_loss_nats"] == once["val_loss_nats"], f"{late} and {once}")
    times = "SELECT step FROM scalar WHERE name = 'train_s' ORDER BY step DESC LIMIT 1"
    check(rows(place.run("late"), times) == [(23,)], "the time of that step is known")
    check((place.run("late") / "checkpoints" / "best").resolve().name == "step-00000023", "and it may be the best one")
    done = assay("receipt", "verify", place.run("late"))
    check(done.returncode == 0, done.stderr)
    done = place.train("reference", "--set", f"contract.reference={place.run('late')}", "--stop-after", "1")
    check("step 1/23" in done.stderr, done.stderr)


def main():
    for moe in (False, True):
        with Workplace(moe) as place:
            write_bundle(place.path / "bundle")
            settings = [*core_settings(place, every=25), *SAMPLES]
            place.train("plain")
            looked = place.train("looked", *settings)
            check(f"eval 60/60 {MEAN} " in looked.stderr and "choice " in looked.stderr, looked.stderr)
            check('\n  "Once upon a time' in looked.stderr, looked.stderr)
            difference = trained_alike(place.run("plain"), place.run("looked"))
            check(difference is None, f"evaluations change nothing: {difference}")
            check_rows(place, "looked")
            check_like_eval(place, "looked")
            check_stopped(place, settings)
            check_target(place)
            done = assay("receipt", "verify", place.run("looked"), "--rerun", "5")
            check(done.returncode == 0, f"the receipt's rerun matches: {done.stdout}{done.stderr}")
            plans = [place.train("plan", *more, "--plan").stdout for more in ([], SAMPLES)]
            check("cache" not in plans[0] and "cache" in plans[1], "the KV cache is planned only if samples are requested")
    with Workplace() as place:
        write_bundle(place.path / "bundle", absent=(), rows_each=6, tasks=CORE)
        for recipe in ("bf16", "mxfp8", "nvfp4"):
            settings = ["--set", f"precision.recipe={recipe}", "--set", "run.log_every=3"]
            place.train(f"plain-{recipe}", *settings)
            place.train(f"looked-{recipe}", *settings, *core_settings(place, every=7, max_rows=0), *SAMPLES)
            difference = trained_alike(place.run(f"plain-{recipe}"), place.run(f"looked-{recipe}"))
            check(difference is None, f"{recipe}: {difference}")
        names = rows(place.run("looked-bf16"), "SELECT DISTINCT metric FROM eval WHERE task = 'core' ORDER BY metric")
        check(names == [("core",), ("not_scored_rows",), ("standard_error",)], f"all tasks, all rows: {names}")
        check_target_at_other_interval(place)
        check_asked_later(place)
        check_phase(place)
        check_failure(place)
        check_abandoned(place)
        check_landings(place)
        check_validated_late(place)
    print("evaluations: ok")


main()
