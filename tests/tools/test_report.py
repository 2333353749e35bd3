#!/usr/bin/env python3
"""assay report: the page of a dense, a healthy and a collapsed run in Chromium, from disk; and its
messages for incomplete runs. --keep FOLDER keeps the pages there."""
import csv
import io
import json
import math
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from chromium import Browser
from harness import ASSAY, Workplace, assay, rows

failures = []
LARGEST = 12_000_000
COLLAPSE = {"model.moe.experts": 320, "model.moe.expert_ffn": 16, "model.moe.router.aux": "none", "model.moe.router.aux_alpha": 0,
            "model.moe.router.bias_rate": 0, "model.layers": 3, "optimizer.lr": 0.03, "schedule.warmdown": 0, "run.steps": 30,
            "telemetry.window": 4, "eval.every": 10}
DENSE = {"model.moe": "null", "run.steps": 20, "schedule.warmdown": 0}


def expect(condition, what):
    if not condition:
        failures.append(str(what))


def train(w, name, changes):
    w.train(name, *[part for key, value in changes.items() for part in ("--set", f"{key}={value}")])


def report(w, page, *arguments):
    done = assay("report", *arguments, "-o", w.path / page)
    expect(done.returncode == 0, f"report {arguments}: exit {done.returncode}\n{done.stderr}")
    size = (w.path / page).stat().st_size
    expect(size < LARGEST, f"{page} has {size} bytes")
    return done


def refused(part, *arguments):
    done = assay("report", *arguments)
    lines = done.stderr.splitlines()
    expect(done.returncode == 1 and len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ") and
           part in lines[0], f"report {arguments}, wanted {part!r}: {done.returncode} {done.stderr}")


def opened(browser, page):
    """Opens a page and expects no console messages, no network requests and no blank chart."""
    expect(browser.open(page), f"{page.name}: the script did not finish")
    blank = browser.js("""return [...document.querySelectorAll('figure')].filter((f) => f.offsetParent).filter((f) => {
        const plot = f.querySelector('.plot'), svg = plot.querySelector('svg.main-svg');
        return plot.hidden ? f.querySelector('.missing').textContent.length < 20 : !svg || svg.getBoundingClientRect().height < 100;
      }).map((f) => f.id)""")
    expect(blank == [], f"{page.name}: blank charts {blank}")
    quiet(browser, page.name)


def quiet(browser, what):
    complaints, network = browser.complaints(), browser.network()
    expect(complaints == [], f"{what}: the console has {complaints}")
    expect(network == [], f"{what}: asked the network for {network}")


def traces(browser):
    return dict(browser.js("return [...document.querySelectorAll('figure')].filter((f) => f.offsetParent).map((f) => [f.id.slice(6), (f.querySelector('.plot').data || []).length])"))


def slide(browser, selector, position):
    browser.js("const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('input'))", selector, position)


def table(browser, chart):
    return list(csv.DictReader(io.StringIO(browser.download(f"#chart-{chart} .csv", chart + ".csv"))))


def near(a, b, relative):
    return abs(float(a) - float(b)) <= relative * abs(float(b)) + 1e-12


def check_charts(browser, w):
    # Numbers of traces: training and validation; line, lower and upper edge; the bias of one run
    # and the margin of both.
    shown = browser.js("return [document.querySelector('#loss-which').value, document.querySelector('#chart-loss output').textContent]")
    expect(shown[0] == "validation", f"the loss opens with {shown}")
    browser.choose("#loss-which", "both")
    slide(browser, "#loss-from", 0)
    wanted = {"loss": 6, "bits-per-byte": 3, "scalars": 3, "router-curves": 6, "router-map": 1, "loads": 1, "ccdf": 2, "dead": 6,
              "bias": 5, "throughput": 3, "spans": 3}
    expect(traces(browser) == wanted, traces(browser))
    expect([b.text for b in browser.one("#legend").find_elements("tag name", "button")] == ["dense", "healthy", "collapsed"], "legend")
    badges = [b.text for b in browser.one("#runs").find_elements("class name", "badge")]
    expect(badges[0] == "dense" and badges[1] in ("router: healthy", "router: recovered", "router: uneven") and
           badges[2] == "router: collapsed", badges)
    browser.choose("#router-curves-name", "cv")
    note = browser.one("#chart-router-curves .note").text
    expect("Ceilings: healthy 100 % (100 sqrt((E - K) / K)); collapsed 1261 %" in note and "Sampling floor of cv" in note, note)
    for name, in rows(w.run("healthy"), "SELECT name FROM pragma_table_info('router_layer') WHERE pk = 0 AND name NOT LIKE '%assignments'"):
        browser.choose("#router-map-name", name)
        z = browser.js("return document.querySelector('#chart-router-map .plot').data[0].z")
        steps = [s for s, in rows(w.run("healthy"), f"SELECT DISTINCT step FROM router_layer WHERE {name} IS NOT NULL ORDER BY step")]
        stored = [[v for v, in rows(w.run("healthy"), f"SELECT {name} FROM router_layer WHERE layer = {layer} AND {name} IS NOT NULL ORDER BY step")]
                  for layer in (0, 1)]
        expect([len(row) for row in z] == [len(steps)] * 2 and all(near(a, b, 1e-4) for row, of in zip(z, stored) for a, b in zip(row, of)),
               f"the map of {name} differs from the telemetry")


def check_answer(browser, w):
    """The page says what assay compare says; times.csv has numbers; verdict badges explain themselves."""
    runs = [w.run(name) for name in ("dense", "healthy", "collapsed")]
    said = json.loads(assay("compare", *runs, "--json").stdout)
    answer = browser.one("#answer").text
    expect(said["sentence"] in answer and all(note in answer for note in said["notes"]), f"{answer}, not {said['sentence']}")
    rows_of = {r["model"]: r for r in csv.DictReader(io.StringIO(browser.download("#table-comparison .csv", "comparison.csv")))}
    for model in said["models"]:
        expect(rows_of[model["name"]]["validation loss"] == f"{model['val_loss_nats']['mean']:.4f}", f"{rows_of}, not {model}")
    times = list(csv.DictReader(io.StringIO(browser.download("#table-times .csv", "times.csv"))))
    expect(len(times) > 4 and all(float(r["dense"]) > 0 for r in times if r["dense"]), f"times.csv has texts: {times}")
    expect("Rule:" in browser.one("#runs .badge.collapsed").get_attribute("title"), "the badge has no tooltip")
    fields = {r["field"]: r for r in csv.DictReader(io.StringIO(browser.download("#table-differences .csv", "differences.csv")))}
    expect(fields["model.layers"]["collapsed"] == "3" and fields["model.moe"]["dense"] == "absent" and "model.hidden" not in fields, fields)


def loss_plot(browser, what):
    return browser.js(f"const plot = document.querySelector('#chart-loss .plot'); return {what}")


def check_loss(browser):
    """Differences, smoothing and the first step of the view; a zoom stays, the button ends it."""
    browser.choose("#loss-reference", "r0")
    differences = table(browser, "loss")
    expect(all(float(r["value"]) == 0 for r in differences if r["run"] == "dense") and any(float(r["value"]) for r in differences if r["run"] != "dense"),
           "a difference to a run is 0 for itself alone")
    expect(browser.one("#chart-loss .note").text.startswith("Below 0: a lower loss than dense"), browser.one("#chart-loss .note").text)
    browser.choose("#loss-reference", "")
    before = loss_plot(browser, "plot.data.find((t) => t.name.includes('healthy, training')).y")
    slide(browser, "#loss-smooth", 3)
    after = loss_plot(browser, "plot.data.filter((t) => t.name.includes('healthy, training')).map((t) => t.y)")
    average = [sum(before[:n + 1][::-1][i] * 0.9 ** i for i in range(n + 1)) / sum(0.9 ** i for i in range(n + 1)) for n in range(len(before))]
    expect(after[0] == before and all(near(a, b, 1e-6) for a, b in zip(after[1], average)), "smoothing over 10 steps")
    slide(browser, "#loss-smooth", 0)
    slide(browser, "#loss-from", 3)  # after the validations of steps 0 and 10
    low, high = loss_plot(browser, "plot.layout.xaxis.range")
    label = browser.js("return document.querySelector('#loss-from').nextElementSibling.textContent")
    expect(label == "step 20" and 18 < low <= 20 and 60 <= high < 62, f"from {label}: {low} to {high}")
    loss_plot(browser, "Plotly.relayout(plot, {'xaxis.range[0]': 30, 'xaxis.range[1]': 50})")
    browser.click("#loss-logY")
    expect(loss_plot(browser, "plot.layout.xaxis.range") == [30, 50], "log y ends the zoom of the x axis")
    browser.click("#loss-logY")
    browser.click("#loss-reset")
    expect(loss_plot(browser, "plot.layout.xaxis.range") != [30, 50], "the zoom is not reset")
    slide(browser, "#loss-from", 0)


def check_update(browser, w):
    """New data in place: what the reader chose stays, also where runs come and go."""
    def update(*names):
        return browser.js("assayPage.update(JSON.parse(arguments[0]))", assay("report", *[w.run(name) for name in names], "--json").stdout)
    state = """return {focus: document.activeElement.textContent, scroll: scrollY, x: document.querySelector('#chart-loss .plot').layout.xaxis.range,
        which: document.querySelector('#loss-which').value, pressed: [...document.querySelectorAll('#legend button')].map((b) => b.textContent + ' ' + b.getAttribute('aria-pressed')),
        colours: [...document.querySelectorAll('#legend .swatch')].map((s) => s.style.getPropertyValue('--run')), step: document.querySelector('#chart-loads output').textContent,
        open: document.querySelector('#section-configurations details').open}"""
    browser.choose("#x-axis", "step")
    browser.js("document.querySelector('#section-configurations details').open = true")
    browser.choose("#loads-of", "2")
    slide(browser, "#loads-step", 0)
    browser.one("#legend button:nth-child(2)").send_keys(" ")  # by keyboard
    browser.js("scrollTo(0, document.querySelector('#chart-loss').getBoundingClientRect().top + scrollY - 100)")
    loss_plot(browser, "Plotly.relayout(plot, {'xaxis.range[0]': 5, 'xaxis.range[1]': 15})")
    before = browser.js(state)
    expect(before["focus"] == "healthy" and before["pressed"] == ["dense true", "healthy false", "collapsed true"], f"after a space key on a name: {before}")
    update("dense", "healthy", "collapsed")
    expect(browser.js(state) == before, f"an update with the same data changes {before} to {browser.js(state)}")
    update("healthy", "collapsed")
    after = browser.js(state)
    expect(after["pressed"] == ["healthy false", "collapsed true"] and after["colours"] == before["colours"][1:] and after["x"] == [5, 15] and
           after["step"] == "step 1" and after["which"] == "both", f"a run less: {after}")
    update("dense", "healthy", "collapsed")
    expect(browser.js(state)["pressed"] == before["pressed"], "the run that came back")
    browser.click("#legend button:nth-child(2)")
    browser.choose("#loads-of", "1")


def check_seeds(browser, w):
    """Two seeds of a model: one colour, a mean and a band between them, or two lines; samples."""
    shutil.copytree(w.run("healthy"), w.run("healthy-seed2"))
    config = w.run("healthy-seed2") / "config.yaml"
    config.write_text(config.read_text().replace("\n  seed: 1\n", "\n  seed: 2\n"))
    change(w.run("healthy-seed2"), "UPDATE eval SET value = value + 0.5 WHERE metric = 'loss_nats'")
    texts = [{"step": step, "prompt": "Once", "text": f" upon <b>{step}</b>"} for step in (20, 60)]
    (w.run("healthy-seed2") / "samples.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts) + '{"step": 61, "pro')
    report(w, "seeds.html", w.run("dense"), w.run("healthy"), w.run("healthy-seed2"))
    opened(browser, w.path / "seeds.html")
    expect([b.text for b in browser.one("#legend").find_elements("tag name", "button")] == ["dense", "healthy × 2"], "models in the legend")
    middle = loss_plot(browser, "plot.data.filter((t) => t.name === 'healthy').map((t) => t.y)")
    single = [v for v, in rows(w.run("healthy"), "SELECT value FROM eval WHERE metric = 'loss_nats' ORDER BY step")]
    expect(all(near(v, s + d, 1e-5) for line, d in zip(middle, (0, 0.5, 0.25)) for v, s in zip(line, single)), f"{middle}, not the range and mean of {single}")
    expect("one seed" in text_of(browser) and "band: from the lowest to the highest seed" in text_of(browser), "band")
    sample = browser.one(".sample").text
    expect(sample == "Once upon <b>60</b>", f"sample {sample!r}")
    browser.choose("#seeds-as", "runs")
    expect(len(browser.one("#legend").find_elements("tag name", "button")) == 3 and traces(browser)["loss"] == 3, "single runs")
    check_phone(browser, w.path / "seeds.html")


MATRIX = """
name: 0004-small
models: {dense: dense.yaml, moe: config.yaml}
contracts: [{kind: activeDN, reference: dense, landings: [1], name: active}, {kind: totalDN, reference: dense, landings: [1], name: total}]
precisions: [fp32]
seeds: [1, 2]
claims: [{name: odd claim, measure: val_loss, of: moe, below: dense}, {measure: val_loss, of: moe, above: 0}]
set: {run.steps: 8, schedule.warmup: 0, schedule.warmdown: 0, eval.every: 4}
"""


def check_studies(browser, summary):
    """The charts that the studies drew, for a matrix whose name says which study it tests."""
    rows = {(c["name"], r["model"]): r for c in summary["contracts"] for r in c["rows"]}
    lines = {(r["contract"], r["model"]): r["mean"] for r in table(browser, "matrix-contracts")}
    expect(float(lines["active", "dense"]) == 0 and near(lines["total", "moe"], rows["total", "moe"]["difference_to_first"]["mean"], 1e-12), lines)
    points = {r["contract"]: r for r in table(browser, "matrix-tokens")}
    share = float(points["active"]["tokens_per_expert"]) / rows["active", "moe"]["tokens"]
    expect(0 < share < 1 and near(points["active"]["mean"], rows["active", "moe"]["val_loss_nats"]["mean"], 1e-12), points)
    expect(near(points["total"]["tokens_per_expert"], share * rows["total", "moe"]["tokens"], 1e-6), "the same share K / E")
    steps = {r["lane"]: float(r["stop_step"]) for r in table(browser, "matrix-published")}
    expect(near(steps["0004: active-like, moe-64"], 5760 / 8320, 1e-9), steps)
    expect(near(steps["moe, total"], rows["total", "moe"]["steps"]["mean"] / rows["total", "dense"]["steps"]["mean"], 1e-9), steps)
    browser.choose("#matrix-published-measure", "val_loss")
    lanes = {r["lane"]: r for r in table(browser, "matrix-published")}
    expect(near(lanes["0004: active-like, moe-64"]["val_loss"], 3.2769 - 3.2725, 1e-9), lanes)
    ours = rows["active", "moe"]["difference_to_first"]
    expect(near(lanes["moe, active"]["val_loss"], ours["mean"], 1e-9) and near(lanes["moe, active"]["low95"], ours["interval95"][0], 1e-9), lanes)
    expect(not any(lane.startswith("0004: totalDN") for lane in lanes), f"a group without the study's dense model: {lanes}")


def check_anchor(browser, w, keep):
    """The losses of a public run, dotted over steps; other axes and differences go without."""
    log = w.path / "public.log"
    log.write_text("".join(f"s:{step} tel:{loss:.6f}\n" for step, loss in ((0, 5.5), (10, 5), (20, 4.25), (60, 4.125))) + "s:1 trl:5.500000\n")
    page = w.path / "anchor.html"
    report(w, page.name, w.run("dense"), w.run("healthy"), "--anchor", log)
    opened(browser, page)
    shown = lambda: [t["y"] for t in loss_plot(browser, "plot.data.map((t) => ({name: t.name, y: t.y}))") if t["name"] == "a public run, log of modded-nanogpt"]
    expect(shown() == [[5.5, 5, 4.25, 4.125]], f"the anchor's curve: {shown()}")
    stored = {int(r["step"]): float(r["value"]) for r in table(browser, "loss") if r["run"] == "public.log"}
    expect(stored == {0: 5.5, 10: 5, 20: 4.25, 60: 4.125}, stored)
    browser.choose("#x-axis", "tokens")
    expect(shown() == [] and "public.log has validations by step alone" in browser.one("#chart-loss .note").text, "the anchor over tokens")
    browser.choose("#x-axis", "step")
    browser.choose("#loss-reference", "r0")
    expect(shown() == [], "a difference beside the anchor's loss")
    quiet(browser, page.name)
    if keep:
        shutil.copy(page, keep)
    refused("No such file", w.run("dense"), "--anchor", w.path / "absent.log")


def check_study_of(browser, w, study, offered, lane, value):
    """A study may publish measures that no matrix has; the page offers the others."""
    (w.path / f"{study}.yaml").write_text(MATRIX.replace("0004-small", f"{study}-small").replace("seeds: [1, 2]", "seeds: [1]"))
    folder = w.path / f"matrix-{study}"
    done = assay("matrix", w.path / f"{study}.yaml", "--run-dir", folder)
    expect(done.returncode == 0, done.stderr)
    report(w, f"matrix-{study}.html", folder)
    opened(browser, w.path / f"matrix-{study}.html")
    measures = browser.options("#matrix-published-measure")
    expect(measures == offered, f"measures of {study}: {measures}")
    for measure in measures:
        browser.choose("#matrix-published-measure", measure)
        lanes = {r["lane"]: float(r[measure]) for r in table(browser, "matrix-published")}
        expect("moe, active" in lanes and all(map(math.isfinite, lanes.values())), f"{study}, {measure}: {lanes}")
    browser.choose("#matrix-published-measure", measures[0])
    lanes = {r["lane"]: float(r[measures[0]]) for r in table(browser, "matrix-published")}
    expect(near(lanes[lane], value, 1e-9), f"{study}: {lanes}")
    quiet(browser, f"matrix-{study}.html")


def check_matrix(browser, w):
    (w.path / "dense.yaml").write_text("include: config.yaml\nmodel: {moe: null}\n")
    (w.path / "m.yaml").write_text(MATRIX)
    folder = w.path / "matrix"
    done = assay("matrix", w.path / "m.yaml", "--run-dir", folder, "--json")
    expect(done.returncode == 0, done.stderr)
    summary = json.loads(done.stdout)
    refused("is the folder of a matrix, given beside others", folder, w.run("dense"))
    report(w, "matrix.html", folder)
    opened(browser, w.path / "matrix.html")
    for contract in summary["contracts"]:
        cells = browser.one(f"#table-contract-{contract['name']}").text
        for row in contract["rows"]:
            expect(row["model"] in cells and f"{row['val_loss_nats']['mean']:.4f}" in cells, f"{row} is not in {cells}")
    claims = browser.one("#table-claims").text
    expect(all(claim["name"] in claims and claim["verdict"] in claims for claim in summary["claims"]), claims)
    points = {(r["contract"], r["model"]): r for r in table(browser, "matrix-points")}
    row = summary["contracts"][0]["rows"][1]
    expect(near(points["active", "moe"]["mean"], row["val_loss_nats"]["mean"], 1e-12) and near(points["active", "moe"]["low95"], row["val_loss_nats"]["interval95"][0], 1e-12), points)
    check_studies(browser, summary)
    browser.click("#table-contract-active tbody tr:last-child .link")
    pressed = [b.text for b in browser.one("#legend").find_elements("css selector", "[aria-pressed=true]")]
    expect(len(pressed) == 1 and pressed[0].startswith("moe-active"), f"the curves of one row: {pressed}")
    shutil.copytree(folder, w.path / "damaged-matrix")
    (w.path / "damaged-matrix" / "matrix.json").write_text("{")
    refused("is damaged: it is not the record of a matrix", w.path / "damaged-matrix")
    check_phone(browser, w.path / "matrix.html")


def check_hover(browser):
    at = browser.js("""const plot = document.querySelector('#chart-loss .plot'), full = plot._fullLayout, trace = plot.data[3], i = trace.x.indexOf(40);
        return {x: full._size.l + full.xaxis.d2p(trace.x[i]), y: full._size.t + full.yaxis.d2p(trace.y[i]), loss: trace.y[i], name: trace.name}""")
    browser.hover("#chart-loss .plot", at["x"], at["y"])
    seen = []
    browser.wait(lambda: seen.append(browser.js("return document.querySelector('#chart-loss .hoverlayer').textContent")) or seen[-1], 20)
    expect("step 40" in seen[-1] and "nats" in seen[-1] and f"{at['loss']:.5g}" in seen[-1], f"hover over {at} says {seen[-1]!r}")
    at = browser.js("const s = document.querySelector('#chart-loads .plot')._fullLayout._size; return [s.l + 20, s.t + 20]")
    browser.hover("#chart-loads .plot", *at)
    browser.wait(lambda: seen.append(browser.js("return document.querySelector('#chart-loads .hoverlayer').textContent")) or seen[-1], 20)
    expect("times the mean load" in seen[-1] and "assignments" in seen[-1], f"hover over the loads says {seen[-1]!r}")


def check_slider(browser):
    state = "const p = document.querySelector('#chart-loads .plot').data[0]; return [p.z, document.querySelector('#chart-loads output').textContent]"
    browser.choose("#loads-of", "2")
    last, label = browser.js(state)
    expect(label == "step 30" and len(last) == 3 and len(last[0]) == 160, f"{label}: {len(last)} layers of {len(last[0])}")
    slide(browser, "#loads-step", 0)
    first, label = browser.js(state)
    expect(label == "step 1" and first != last, f"the slider at its start: {label}, loads equal: {first == last}")
    expect(all(row == sorted(row, reverse=True) for row in first), "experts are not sorted by load")
    browser.choose("#loads-order", "id")
    expect(browser.js(state)[0] != first, "the order of the experts has no effect")
    browser.choose("#loads-of", "1")


def check_csv(browser, w):
    loss = table(browser, "loss")
    for name in ("dense", "healthy", "collapsed"):
        for series, query in (("train_loss_nats", "SELECT step, value FROM scalar WHERE name = 'train_loss_nats' ORDER BY step"),
                              ("val_loss_nats", "SELECT step, value FROM eval WHERE metric = 'loss_nats' ORDER BY step")):
            seen = [(int(r["step"]), float(r["value"])) for r in loss if (r["run"], r["series"]) == (name, series)]
            stored = rows(w.run(name), query)
            expect(len(seen) == len(stored) and all(a[0] == b[0] and near(a[1], b[1], 1e-6) for a, b in zip(seen, stored)),
                   f"loss.csv, {name} {series}: {seen[:3]}, not {stored[:3]}")
    for row in loss[:5]:
        seconds = rows(w.run("dense"), f"SELECT value FROM scalar WHERE name = 'train_s' AND step = {row['step']}")[0][0]
        expect(int(row["tokens"]) == 1024 * int(row["step"]) and near(row["train_s"], seconds, 1e-6), row)
    browser.choose("#loads-order", "id")
    loads = table(browser, "loads")
    for step, layer, assignments, share in rows(w.run("healthy"), "SELECT step, layer, assignments, max_load FROM router_layer"):
        counts = [int(r["assignments"]) for r in loads if (r["step"], r["layer"]) == (str(step), str(layer))]
        expect(len(counts) == 4 and sum(counts) == assignments and near(max(counts) / sum(counts), share, 1e-9), f"loads.csv {step} {layer}: {counts}")
    for chart in traces(browser):
        got = table(browser, chart)
        expect(len(got) > 0 and all(None not in r for r in got), f"{chart}.csv has {len(got)} rows")
    audit = {r[""]: r for r in csv.DictReader(io.StringIO(browser.download("#table-audit .csv", "audit.csv")))}
    counted = json.loads(assay("audit", w.run("healthy") / "config.yaml", "--json").stdout)
    total = next(iter(counted["models"].values()))["params"]["total"]
    expect(audit["P_total"]["healthy"] == str(total), f"{audit['P_total']}, not {total}")


def check_switches(browser):
    browser.choose("#x-axis", "tokens")
    expect(browser.js("return document.querySelector('#chart-loss .plot').data[0].x.slice(0, 2)") == [1024, 2048], "x in tokens")
    for axis in ("seconds", "flops", "step"):
        browser.choose("#x-axis", axis)
        expect(browser.js("return document.querySelector('#chart-loss .plot').data[0].x.every((x) => x > 0)"), f"x in {axis}")
    browser.click("#log-x")
    expect(browser.js("return document.querySelector('#chart-loss .plot').layout.xaxis.type") == "log", "log x")
    browser.click("#log-x")
    browser.click("#legend button:first-child")
    expect(traces(browser)["loss"] == 4, "a hidden run still has a curve")
    browser.click("#legend button:first-child")
    browser.js("document.querySelector('#chart-loss').scrollIntoView()")  # charts are drawn when they come near
    paper = "return [getComputedStyle(document.body).backgroundColor, document.querySelector('#chart-loss .plot').layout.font.color]"
    browser.prefer("light")
    light = browser.js(paper)
    browser.prefer("dark")
    browser.wait(lambda: browser.js(paper) != light, 20)
    dark = browser.js(paper)
    expect(light[0] != dark[0] and light[1] != dark[1], f"light {light}, dark {dark}")
    browser.click("#theme")
    expect(browser.wait(lambda: browser.js(paper) == light, 20), "the chosen theme does not override the preferred one")
    browser.click("#theme")
    expect(browser.wait(lambda: browser.js(paper) == dark, 20), "the dark theme cannot be chosen")


def check_phone(browser, page):
    browser.size(390)
    opened(browser, page)
    wide = browser.js("return [...document.querySelectorAll('main *, header *')].filter((e) => e.getBoundingClientRect().right > 391 && "
                      "!e.closest('.table') && !e.closest('pre')).map((e) => e.tagName + e.id + e.className).slice(0, 5)")
    expect(browser.js("return document.documentElement.scrollWidth") == 390 and wide == [], f"wider than a phone: {wide}")
    expect(all(traces(browser).values()), "charts on a phone")
    browser.size(1280)


def check_dissect(browser, w, keep):
    """What assay dissect found out, from its files: a bar for each layer and part, and P_used."""
    folder = w.run("healthy") / "dissect"
    folder.mkdir()
    changes = [{"layer": layer, "without": f"decile {n}", "removal": removal, "experts": 2, "load_share": 0.5 / n,
                "damage": {"nats": 0.25 / n + layer, "standard_error": 0.01, "targets": 64}}
               for layer in (0, 1) for n in (1, 2, 3) for removal in ("zero", "next")]
    changes += [{"layer": 0, "without": "shared expert", "damage": {"nats": -0.125, "standard_error": None, "targets": 64}}, {"layer": "no row"}]
    (folder / "damage.json").write_text(json.dumps({"step": 40, "tokens": 4096, "loss_nats": 3.5, "experts": 6, "top_k": 2, "changes": changes}))
    (folder / "used.json").write_text(json.dumps({"p_used": 1234, "p_total": 5678, "p_active": 910}))
    page = w.path / "dissect.html"
    report(w, page.name, w.run("healthy"))
    opened(browser, page)
    drawn = traces(browser)
    expect((drawn.get("damage-groups"), drawn.get("damage-parts")) == (2, 1), drawn)
    found = table(browser, "damage-groups")
    expect(len(found) == 6 and all(r["removal"] == "zero" for r in found), found)
    wanted = [1 + 0.25 / n for n in (1, 2, 3)]
    expect(all(near(float(r["damage_nats"]), w, 1e-6) for r, w in zip([r for r in found if r["layer"] == "1"], wanted)), found)
    browser.choose("#damage-groups-removal", "next")
    expect(all(r["removal"] == "next" for r in table(browser, "damage-groups")), "the other removal")
    expect([(r["without"], float(r["damage_nats"])) for r in table(browser, "damage-parts")] == [("shared expert", -0.125)], "parts")
    expect("reaches 1,234 of 5,678 parameters" in browser.js("return document.querySelector('#section-dissect').textContent"), "P_used")
    if keep:
        browser.picture(keep / "dissect.png", browser.js("return document.querySelector('#section-dissect').getBoundingClientRect().top + scrollY - 20"))
    check_phone(browser, page)
    quiet(browser, page.name)
    (folder / "damage.json").write_text("{")
    (folder / "used.json").unlink()
    report(w, page.name, w.run("healthy"))
    opened(browser, page)
    expect(browser.js("return document.querySelector('#section-dissect').hidden"), "damaged files show nothing")
    shutil.rmtree(folder)


def check_precision(browser, w, keep):
    """A quantised run next to an unquantised one: the shown errors equal the telemetry's, on a
    phone too."""
    train(w, "nvfp4", {"precision.recipe": "nvfp4", "precision.bf16_last_layers": 0, "telemetry.probe_every": 5})
    page = w.path / "precision.html"
    report(w, page.name, w.run("healthy"), w.run("nvfp4"))
    opened(browser, page)
    drawn = traces(browser)
    # fprop and dgrad share one copy of the weight.
    expect((drawn.get("precision"), drawn.get("scales")) == (5, 10), drawn)
    roles = browser.js("return [...document.querySelectorAll('#precision-role option')].map((o) => o.value)")
    expect(roles == ["attention", "experts", "shared_experts", "all"], roles)
    for role in roles[:-1]:
        browser.choose("#precision-role", role)
        for measure in ("error", "flushed", "saturated", "flips"):
            browser.choose("#precision-name", measure)
            for row in table(browser, "precision"):
                _, operand, _, name = row["series"].split()
                (stored,), = rows(w.run("nvfp4"), f"SELECT avg({measure}) FROM precision WHERE step = {row['step']} AND role = '{role}' AND operand = '{operand}'")
                expect(name == measure and (near(row["value"], stored, 1e-4) if stored is not None else row["value"] == ""), f"{row}, not {stored}")
    browser.choose("#precision-role", "all")
    browser.choose("#scales-role", "experts")
    expect(traces(browser)["precision"] == 3, "flips of the weights of three roles")
    largest = [float(r["value"]) for r in table(browser, "scales") if r["series"].endswith("nvfp4_2d scale_max")]
    expect(len(largest) == 12 and all(v == 448 for v in largest), f"the block with a tensor's amax must have the largest scale: {largest}")
    browser.choose("#precision-name", "error")
    for theme in ("light", "dark"):
        browser.prefer(theme)
        if keep:
            browser.picture(keep / f"precision-{theme}.png", browser.js("return document.querySelector('#chart-precision').getBoundingClientRect().top + scrollY - 90"))
    check_phone(browser, page)
    quiet(browser, page.name)
    if keep:
        shutil.copy(page, keep)


def check_ranks(browser, w, keep):
    """A run with twenty ranks, of which one is slow, beside one that had none: the page names it, and the CSV has all."""
    shutil.copytree(w.run("dense"), w.run("ranks"))
    db = sqlite3.connect(w.run("ranks") / "telemetry.db")
    for step in range(1, 21):
        db.executemany("INSERT INTO rank_step VALUES (?, ?, 250, ?, 1048576, ?)",
                       [(step, rank, 20 if rank == 13 else 100 + rank + step % 3, 1 << 30) for rank in range(20)])
    db.commit()
    db.close()
    page = w.path / "ranks.html"
    report(w, page.name, w.run("healthy"), w.run("ranks"))
    opened(browser, page)
    panels = browser.js("return [...document.querySelectorAll('#section-ranks .panel')].map((p) => p.innerText)")
    expect(len(panels) == 1 and "Rank 13 holds the others up: it waits least, and they wait for it 36% of a step." in panels[0] and
           "Medians over 20 logged steps (1 to 20)" in panels[0] and "Of 20 ranks the 8 that wait least and the 8 that wait most" in panels[0], panels)
    cells = browser.js("return [...document.querySelectorAll('#section-ranks tbody tr')].map((r) => [r.className, ...[...r.cells].map((c) => c.textContent)])")
    expect(len(cells) == 16 and [row for row in cells if row[0]] == [["sum", "rank 13", "250", "20", "8.0%", "1.00 MiB", "1.00 GiB"]], cells)
    told = list(csv.DictReader(io.StringIO(browser.download("#section-ranks .csv", "ranks-1.csv"))))
    expect([int(r["rank"]) for r in told] == list(range(20)) and
           all(float(r["wait_ms"]) == (20 if r["rank"] == "13" else 101 + int(r["rank"])) for r in told), told)
    if keep:
        browser.picture(keep / "ranks.png", browser.js("return document.querySelector('#section-ranks').getBoundingClientRect().top + scrollY - 90"))
        shutil.copy(page, keep)
    check_phone(browser, page)
    quiet(browser, page.name)


def text_of(browser):
    return browser.js("return document.body.innerText")


def check_partial(browser, w, keep):
    """Pages of incomplete runs: each states what is missing, none has a blank chart."""
    train(w, "one", {"run.steps": 1, "schedule.warmup": 0, "schedule.warmdown": 0})
    shutil.copytree(w.run("healthy"), w.run("missing"))
    (w.run("missing") / "telemetry.db").unlink()
    shutil.copytree(w.run("healthy"), w.run("newer"))
    change(w.run("newer"), "PRAGMA user_version = 99")
    shutil.copytree(w.run("healthy"), w.run("damaged"))
    change(w.run("damaged"), "UPDATE expert_load SET counts = x'00' WHERE step = 30 AND layer = 1")
    strange = w.run('a<b>&"c')
    shutil.copytree(w.run("dense"), strange)
    shutil.copytree(w.run("dense"), w.run("other") / "dense")
    refused("no telemetry at", w.run("missing"))
    refused("a later version (found 99", w.run("newer"))
    refused("no run at", w.run("healthy"), w.run("nowhere"))
    refused("is given twice", w.run("dense"), f"{w.run('dense')}/")
    refused("nowhere/page.html", w.run("dense"), "-o", w.path / "nowhere" / "page.html")
    some = ["healthy", "missing", "newer", "damaged", "dense", "other/dense", strange.name]
    pages = [
        # Runs, expected texts on stderr, expected texts on the page.
        (["dense"], [], ["No routed experts: the model is dense."]),
        (["one"], [], ["1 of 1 steps"]),
        (some, ["missing has no curves: no telemetry at", "found 99", "step 30, layer 1"],
         ["No curves: no telemetry at", "found 99", "The routers cannot be shown: ", "other/dense", strange.name]),
    ]
    for names, warnings, sentences in pages:
        page = w.path / f"{names[0]}-partial.html"
        done = report(w, page.name, *[w.run(name) for name in names])
        lines = done.stderr.splitlines()
        expect(len(lines) == len(warnings) and all(part in line for part, line in zip(warnings, lines)), f"{names}: stderr {done.stderr!r}")
        opened(browser, page)
        for sentence in sentences:
            expect(sentence in text_of(browser), f"{names}: {sentence!r} is not on the page")
        if keep:
            shutil.copy(page, keep)


def change(run, statement):
    db = sqlite3.connect(run / "telemetry.db")
    db.execute(statement)
    db.commit()
    db.close()


def check_running(browser, w):
    with subprocess.Popen(w.command("long", "--set", "run.steps=100000"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        try:
            for _ in range(300):
                time.sleep(0.1)
                if assay("report", w.run("long"), "--json").returncode == 0:
                    break
            done = report(w, "long.html", w.run("long"))
            expect("No end is recorded" in done.stderr, done.stderr)
        finally:
            training.send_signal(signal.SIGKILL)
    opened(browser, w.path / "long.html")
    expect("No end is recorded: the run is still training, or was killed." in text_of(browser), "no message for a run that is still training")


def check_link(browser, w):
    done = report(w, "link.html", w.run("dense"), w.run("healthy"), "--plotly", "link")
    expect("its charts need a network" in done.stdout and (w.path / "link.html").stat().st_size < 1_000_000, done.stdout)
    browser.command("Network.enable")
    browser.command("Network.setBlockedURLs", urls=["*://*/*"])
    browser.open(w.path / "link.html")
    text = text_of(browser)
    expect("The charts of this page need a network" in text, text[:300])
    says = browser.js("return [...document.querySelectorAll('figure .missing')].filter((m) => m.offsetParent).map((m) => m.textContent)")
    expect(len(says) > 5 and all("could not be loaded" in s for s in says), says)
    asked = set(browser.network())
    expect(len(asked) == 1 and asked.pop().startswith("https://cdn.plot.ly/plotly-"), "the link")
    browser.choose("#loss-which", "both")
    expect(len(table(browser, "loss")) > 40, "the data is absent without Plotly.js")
    browser.command("Network.setBlockedURLs", urls=[])


class Locked:
    """A report of a run whose database another program holds. The reader waits ten seconds, so it
    runs in parallel."""

    def __init__(self, w):
        shutil.copytree(w.run("dense"), w.run("locked"))
        self.db = sqlite3.connect(w.run("locked") / "telemetry.db", isolation_level=None)
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.db.execute("BEGIN EXCLUSIVE")
        self.db.execute("DELETE FROM meta")
        self.report = subprocess.Popen([ASSAY, "report", w.run("locked"), "-o", w.path / "locked.html"], stderr=subprocess.PIPE, text=True)

    def check(self):
        said = self.report.communicate()[1]
        expect(self.report.returncode == 1 and "locked" in said and "hint: another program holds the file" in said, f"locked: {said}")
        self.db.close()


def main():
    keep = pathlib.Path(sys.argv[2]) if sys.argv[1:2] == ["--keep"] else None
    with Workplace(moe=True) as w, Browser(w.path) as browser:
        train(w, "dense", DENSE)
        locked = Locked(w)
        train(w, "healthy", {})
        train(w, "collapsed", COLLAPSE)
        page = w.path / "page.html"
        done = report(w, page.name, *[w.run(name) for name in ("dense", "healthy", "collapsed")])
        check_link(browser, w)
        if "need a network" in done.stdout:
            print("not run: charts in Chromium, this program was built without Plotly.js (bash tools/setup.sh fetches it)")
        else:
            opened(browser, page)
            check_answer(browser, w)
            check_charts(browser, w)
            check_hover(browser)
            check_loss(browser)
            check_slider(browser)
            check_csv(browser, w)
            check_switches(browser)
            check_update(browser, w)
            quiet(browser, "the page after all interactions")
            check_phone(browser, page)
            check_seeds(browser, w)
            check_matrix(browser, w)
            check_study_of(browser, w, "0003", ["stop_step", "val_loss", "step_ms", "train_minutes", "k_tokens_per_s"], "0003: bf16, moe-64", 5760 / 8320)
            check_study_of(browser, w, "tiny", ["best_val_loss"], "tiny: MoE", 1.5788 - 1.6545)
            check_anchor(browser, w, keep)
            check_running(browser, w)
            check_precision(browser, w, keep)
            check_dissect(browser, w, keep)
            check_ranks(browser, w, keep)
            check_partial(browser, w, keep)
        locked.check()
        if keep:
            shutil.copy(page, keep)


main()
if failures:
    sys.exit("\n".join(failures))
print("report: ok")
