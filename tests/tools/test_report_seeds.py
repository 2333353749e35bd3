#!/usr/bin/env python3
"""assay report: seeds that ended at different steps, and captions of routers, in Chromium. One short run stands for all: the
page is given its data several times, changed."""
import copy
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from chromium import Browser
from harness import Workplace, assay
from report_pages import end, expect, loss_plot, opened, quiet, report, train, WITHOUT_PLOTLY

STEPS = {"run.steps": 20, "eval.every": 2, "schedule.warmdown": 0}
LOSS = ("val", "loss_nats")


def series_of(run):
    """The curves of a run: of its evaluations, of its steps, of their spans."""
    return [*run["evals"], *run["scalars"].values(), *run["spans"].values()]


def losses(run):
    return next(e for e in run["evals"] if (e["task"], e["metric"]) == LOSS)


def page_of(data, seeds):
    """The data of a page of models {name: runs}, each run {up_to: its last step, plus: nats, seconds: of a step}."""
    runs, models = [], []
    for name, members in seeds.items():
        models.append({"name": name, "runs": list(range(len(runs), len(runs) + len(members)))})
        for seed, member in enumerate(members, 1):
            run = copy.deepcopy(data["runs"][0])
            run.update(label=f"{name}-{seed}" if len(members) > 1 else name, path=f"/{name}-{seed}", seed=seed)
            for series in series_of(run):
                kept = [i for i, step in enumerate(series["step"]) if step <= member.get("up_to", 20)]
                series["step"], series["value"] = ([series[key][i] for i in kept] for key in ("step", "value"))
                series["of"] = len(kept)
            losses(run)["value"] = [v + member.get("plus", 0) for v in losses(run)["value"]]
            times = run["scalars"]["train_s"]
            times["value"] = [step * member.get("seconds", 1) for step in times["step"]]
            runs.append(run)
    return {**data, "runs": runs, "models": models, "comparison": None, "differences": []}


def show(browser, data):
    browser.js("assayPage.update(JSON.parse(arguments[0]))", json.dumps(data))
    browser.js("drawPage()")


def check_means(browser, data):
    """The mean and its band end with the first seed that does, on every axis, and never turn back."""
    page = page_of(data, {"moe": [{"seconds": 1}, {"up_to": 10, "plus": 1, "seconds": 10}]})
    show(browser, page)
    at = "plot.data.filter((t) => t.name === 'moe').map((t) => ({x: t.x, y: t.y}))"
    steps = [step for step in losses(page["runs"][0])["step"] if step <= 10]
    values = losses(page["runs"][0])["value"]
    for axis in ("step", "tokens", "seconds", "flops"):
        browser.choose("#x-axis", axis)
        drawn = loss_plot(browser, at)
        expect(len(drawn) == 3 and all(len(line["x"]) == len(line["y"]) == len(steps) for line in drawn), f"{axis}: {drawn}")
        for line, more in zip(drawn, (0, 1, 0.5)):
            expect(line["x"] == sorted(line["x"]), f"{axis} turns back: {line['x']}")
            expect(all(abs(y - v - more) < 1e-9 for y, v in zip(line["y"], values)), f"{axis}: {line['y']}, not {values} and {more}")
    browser.choose("#x-axis", "seconds")
    browser.choose("#loss-which", "training")
    x = loss_plot(browser, "plot.data[2].x")
    expect(x == sorted(x) and abs(x[-1] - 10 * (1 + 10) / 2) < 1e-9, f"the seconds of the training loss: {x}")
    browser.choose("#loss-which", "validation")
    browser.choose("#x-axis", "step")
    note = browser.one("#chart-loss .note").text
    expect("Both end with the first seed that does: moe at step 10." in note, note)
    browser.choose("#seeds-as", "runs")
    lengths = loss_plot(browser, "plot.data.map((t) => t.x.length)")
    expect(lengths == [len(values), len(steps)], f"single runs have all their points: {lengths}")
    browser.choose("#seeds-as", "band")
    # A seed without seconds is left out there, and not the whole mean with it.
    timeless = copy.deepcopy(page)
    times = timeless["runs"][1]["scalars"]["train_s"]
    times["value"] = [None] * len(times["value"])
    show(browser, timeless)
    browser.choose("#x-axis", "seconds")
    expect(len(loss_plot(browser, at)[2]["x"]) == len(values) and "Both end" not in browser.one("#chart-loss .note").text,
           f"the seed that has seconds: {loss_plot(browser, at)}")
    browser.choose("#x-axis", "step")
    show(browser, page_of(data, {"moe": [{}, {"plus": 1}]}))
    expect("Both end" not in browser.one("#chart-loss .note").text, "seeds of one length")


def check_first_view(browser, data):
    """The first view has the last value of every run, also of one that ended before the runs differ."""
    page = page_of(data, {"long": [{}], "other": [{"plus": 0.01}], "short": [{"up_to": 6, "plus": 0.02}]})
    for hidden, first in (([], 6), ([2], 10)):  # without the short run, the last third of the evaluations
        browser.js("shown.hidden = new Set(arguments[0])", hidden)
        show(browser, page)
        ranges = loss_plot(browser, "[plot.layout.xaxis.range, plot.layout.yaxis.range]")
        (left, right), (low, high) = ranges
        for run in [r for i, r in enumerate(page["runs"]) if i not in hidden]:
            step, value = losses(run)["step"][-1], losses(run)["value"][-1]
            expect(left <= step <= right and low <= value <= high, f"{run['label']} ends at {step}, {value}: outside of {ranges}")
        expect(first - 2 < left <= first, f"with {hidden} hidden the view begins at {left}, not {first}")
    browser.js("shown.hidden = new Set()")


def check_captions(browser, data):
    """What captions say of routers is said once for the seeds of a model."""
    page = page_of(data, {"four": [{}, {}, {}], "eight": [{}, {}]})
    for i, run in enumerate(page["runs"]):
        router = run["router"]
        if i > 2:
            router.update(experts=8, cv_ceiling=173.2)
        for measure in ("dead_for", "dead_for_norm"):
            router["measures"]["values"][measure] = [[i % 2] * len(steps) for steps in router["measures"]["values"]["cv"]]
        router["measures"]["of"] = 500 + i
    show(browser, page)
    browser.js("for (const id of ['router-curves', 'ccdf', 'dead']) draw(charts.find(({spec}) => spec.id === id))")
    browser.choose("#router-curves-name", "cv")
    note = browser.one("#chart-router-curves .note").text
    layers = len(page["runs"][0]["router"]["layers"])
    steps = len(page["runs"][0]["router"]["measures"]["steps"])
    expect("Ceilings: four × 3 100 % (100 sqrt((E - K) / K)); eight × 2 173.2 % (100 sqrt((E - K) / K))." in note, note)
    expect(note.count("four × 3") == 3 and "four-" not in note and "eight-" not in note, note)
    expect(f"four × 3 {steps} of 500 to 502; eight × 2 {steps} of 503 to 504 logged steps" in note, note)
    tails = browser.one("#chart-ccdf .note").text
    expect("Ceiling of the load: four × 3 E/K = 2; eight × 2 E/K = 4." in tails, tails)
    dead = browser.one("#chart-dead .note").text
    expect(f"At the end: four × 3 0 to {layers} of {4 * layers} in {layers} layers; eight × 2 0 to {layers} of {8 * layers} in" in dead, dead)
    for run in page["runs"]:
        run.update(router=None, notes=["Its routers are lost."])
    page["runs"][4]["notes"] = ["Its disk is."]
    show(browser, page)
    browser.js("draw(charts.find(({spec}) => spec.id === 'dead'))")
    missing = browser.one("#chart-dead .missing").text
    expect(missing == "No router telemetry. four × 3: Its routers are lost. eight-1: Its routers are lost. eight-2: Its disk is.", missing)


def main():
    with Workplace(moe=True) as w, Browser(w.path) as browser:
        train(w, "moe", STEPS)
        done = report(w, "page.html", w.run("moe"))
        if "need a network" in done.stdout:
            print(WITHOUT_PLOTLY)
        else:
            opened(browser, w.path / "page.html")
            data = json.loads(assay("report", w.run("moe"), "--json").stdout)
            check_means(browser, data)
            check_first_view(browser, data)
            check_captions(browser, data)
            quiet(browser, "the page after all updates")
    end("report_seeds")


main()
