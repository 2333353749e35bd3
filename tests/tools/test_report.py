#!/usr/bin/env python3
"""assay report: the page of a dense, a healthy and a collapsed run in Chromium, from disk; and its
messages for incomplete runs. --keep FOLDER keeps the pages there."""
import csv
import io
import json
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from chromium import Browser
from harness import ASSAY, BATCH_TOKENS, Workplace, assay, rows
from report_pages import (change, check_phone, COLLAPSE, contrast, DENSE, end, expect, loss_plot, near, opened, quiet, refused,
                          report, slide, table, text_of, traces, train, WITHOUT_PLOTLY)


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
    expect(badges[0] == "dense" and badges[1] in ("router: healthy", "router: recovered", "router: restless", "router: uneven") and
           badges[2] == "router: collapsed", badges)
    card = browser.one("#runs").text
    expect(card.count(" s, median ") == 3 and card.count(" tokens/s") == 3, f"rates without the word of which: {card}")
    browser.choose("#router-curves-name", "cv")
    note = browser.one("#chart-router-curves .note").text
    expect("Ceilings: healthy 100 % (100 sqrt((E - K) / K)); collapsed 1261 %" in note and "Sampling floor of cv" in note, note)
    for name, in rows(w.run("healthy"), "SELECT name FROM pragma_table_info('router_layer') WHERE pk = 0 AND name NOT LIKE '%assignments'"):
        browser.choose("#router-map-name", name)
        z = browser.js("return document.querySelector('#chart-router-map .plot').data[0].z")
        steps = [s for s, in rows(w.run("healthy"), f"SELECT DISTINCT step FROM router_layer WHERE {name} IS NOT NULL ORDER BY step")]
        stored = [[v for v, in rows(w.run("healthy"), f"SELECT {name} FROM router_layer WHERE layer = {layer} AND {name} IS NOT NULL ORDER BY step")]
                  for layer in (0, 1)]
        expect([len(row) for row in z] == [len(row) for row in stored] == [len(steps)] * 2 and
               all(near(a, b, 1e-4) for row, of in zip(z, stored) for a, b in zip(row, of)),
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
    expect(after[0] == before and len(after[1]) == len(average) > 10 and
           all(near(a, b, 1e-6) for a, b in zip(after[1], average)), f"smoothing over 10 steps: {after}, not {average}")
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


def check_means(browser, w):
    """A thinned curve is drawn by its extremes, smoothed and compared by the means of its stretches."""
    whole = assay("report", *[w.run(name) for name in ("dense", "healthy", "collapsed")], "--json").stdout
    data = json.loads(whole)
    curve = data["runs"][1]["scalars"]["train_loss_nats"]
    end, mean = curve["step"][-1], 3.5
    extremes = {"step": [1, 10, 11, 30, 31, end], "value": [3, 9, 3, 9, 3, 9]}
    data["runs"][1]["scalars"]["train_loss_nats"] = {**extremes, "of": 5000, "means": {"step": [15, 30, 45], "value": [mean] * 3}}
    update = "assayPage.update(JSON.parse(arguments[0]))"
    browser.js(update, json.dumps(data))
    slide(browser, "#loss-smooth", 3)
    raw, smooth = loss_plot(browser, "plot.data.filter((t) => t.name.includes('healthy, training')).map((t) => ({x: t.x, y: t.y}))")
    expect(raw["y"] == extremes["value"] and smooth["x"] == [15, 30, 45] and all(near(v, mean, 1e-12) for v in smooth["y"]), f"{raw}, {smooth}")
    note = browser.one("#chart-loss .note").text
    expect("the lowest and the highest of each stretch of their 5,000 logged values" in note, note)
    slide(browser, "#loss-smooth", 0)
    browser.js(update, whole)


def check_steps(browser, w):
    """A run whose routers logged more steps than the page has: every chart of them says how many, and which."""
    whole = assay("report", *[w.run(name) for name in ("dense", "healthy", "collapsed")], "--json").stdout
    data = json.loads(whole)
    data["runs"][1]["router"]["measures"]["of"] = 7000
    steps = len(data["runs"][1]["router"]["measures"]["steps"])
    update = "assayPage.update(JSON.parse(arguments[0]))"
    browser.js(update, json.dumps(data))
    for chart in ("router-curves", "router-map", "dead", "bias"):
        browser.js("document.querySelector('#chart-' + arguments[0]).scrollIntoView()", chart)
        note = lambda: browser.one(f"#chart-{chart} .note").text
        wanted = f"{steps} of 7,000 logged steps: of each stretch those with the lowest and the highest max load"
        expect(browser.wait(lambda: wanted in note(), 20), f"{chart}: {note()}")
    browser.js(update, whole)
    about = browser.one("#about").text
    expect("Router measures have at most 200 logged steps, keeping the peaks of max load" in about, about)


def check_incomparable(browser, w):
    """Where runs are validated on other texts, the charts of losses say so, and bits per byte are not called comparable."""
    whole = assay("report", *[w.run(name) for name in ("dense", "healthy", "collapsed")], "--json").stdout
    data = json.loads(whole)
    data["comparison"] = {"refused": "the runs are not comparable", "incomparable": ["validation data: a.bin 12 in dense, b.bin 34 in healthy", "model.vocab_size"]}
    update, notes = "assayPage.update(JSON.parse(arguments[0]))", lambda: [browser.one(f"#chart-{chart} .note").text for chart in ("loss", "bits-per-byte")]
    said = f"Not comparable: {data['comparison']['incomparable'][0]} (and 1 more)."
    browser.js(update, json.dumps(data))
    browser.js("drawPage()")
    expect(all(said in note and "Comparable across" not in note for note in notes()) and "of different vocabularies" in notes()[1], notes())
    browser.js(update, whole)
    browser.js("drawPage()")
    loss, bits = notes()
    expect("Not comparable" not in loss and "Comparable across vocabularies." in bits, (loss, bits))


def check_themes(browser):
    """Experts without work are seen on the card of either theme."""
    before = browser.js("return shown.theme")
    for theme in ("light", "dark"):
        browser.js("shown.theme = arguments[0]; applyTheme()", theme)
        none, card = browser.js("return [document.querySelector('#chart-loads .plot').data[0].colorscale[0][1], css('--card')]")
        expect(contrast(none, card) > 3, f"{theme}: experts without work are {none} on {card}")
    browser.js("shown.theme = arguments[0]; applyTheme()", before)


def check_print(browser):
    """On a sheet of paper no table is cut, the bar is there as the legend, and drawings fit."""
    browser.command("Emulation.setEmulatedMedia", media="print")
    wide = "[...document.querySelectorAll('.scroller')].filter((s) => getComputedStyle(s).overflowX !== 'visible').length"
    legend, hidden, scrolling, exact = browser.js("return [document.querySelector('#legend').offsetHeight, document.querySelector('#axes').offsetHeight, "
                                                  f"{wide}, getComputedStyle(document.querySelector('#legend button')).printColorAdjust]")
    expect(legend > 10 and hidden == 0 and scrolling == 0 and exact == "exact", f"on paper: {legend}, {hidden}, {scrolling}, {exact}")
    browser.js("document.body.style.width = '720px'")  # a sheet, without the event of a smaller window
    over = browser.js("return [...document.querySelectorAll('table, .plot:not([hidden]) .main-svg')].filter((n) => n.offsetParent !== null || n.ownerSVGElement === null)"
                      ".filter((n) => n.getBoundingClientRect().right > 721).map((n) => n.closest('[id]').id)")
    expect(over == [], f"wider than a sheet: {over}")
    browser.js("document.body.style.width = ''")
    browser.command("Emulation.setEmulatedMedia", media="")


def check_many_values(browser):
    """Axes of more values than a call takes arguments."""
    seen = browser.js("""const values = Array.from({length: 200000}, (_, i) => i + 1);
        return [wholeRange({traces: []}, values, 'xaxis', 'linear', {fromZero: true}), spanOf(values),
          rangesFrom(0, [{run: runs[0], series: {step: values, value: values}}], false).y];""")
    whole, span, loss = seen
    expect(near(whole[1], 203000, 1e-9) and span[0] == 0 and near(span[1], 5.30103, 1e-5) and loss[1] > 200000, f"200,000 values: {seen}")


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
    expect([len(line) for line in middle] == [len(single)] * 3 and len(single) > 2 and
           all(near(v, s + d, 1e-5) for line, d in zip(middle, (0, 0.5, 0.25)) for v, s in zip(line, single)),
           f"{middle}, not the range and mean of {single}")
    expect("one seed" in text_of(browser) and "band: from the lowest to the highest seed" in text_of(browser), "band")
    sample = browser.one(".sample").text
    expect(sample == "Once upon <b>60</b>", f"sample {sample!r}")
    browser.choose("#seeds-as", "runs")
    expect(len(browser.one("#legend").find_elements("tag name", "button")) == 3 and traces(browser)["loss"] == 3, "single runs")
    check_paints(browser)
    check_phone(browser, w.path / "seeds.html")


def check_paints(browser):
    """No two lines of a page look alike, whether the seeds of its models are drawn together or not; nor do their names' swatches."""
    many = """const data = JSON.parse(document.getElementById('report-data').textContent), [count, seeds] = arguments;
        const model = (m) => ({name: 'model-' + m, runs: Array.from({length: seeds}, (_, s) => m * seeds + s)});
        const run = (i) => ({...data.runs[1], label: 'run-' + i, path: '/run-' + i, seed: i % seeds});
        assayPage.update({...data, comparison: null, differences: [], models: Array.from({length: count}, (_, m) => model(m)),
          runs: Array.from({length: count * seeds}, (_, i) => run(i))});"""
    seen = """const lines = (chart) => document.querySelector('#chart-' + chart + ' .plot').data.filter((t) => t.showlegend !== false && t.line.width > 0);
        const swatches = (place) => [...document.querySelectorAll(place + ' .swatch')];
        const pairs = {loss: lines('loss').map(({line: {color, dash}}) => color + ' ' + dash.replace(/px/g, '')),
          routers: lines('router-curves').map(({line: {color, dash}}) => color + ' ' + dash.replace(/px/g, ''))};
        for (const place of ['#legend', '#runs']) pairs[place] = swatches(place).map((s) => s.style.getPropertyValue('--run') + ' ' +
          s.querySelector('line').getAttribute('stroke-dasharray').replace('none', 'solid'));
        return pairs;"""
    for count, seeds, drawn in ((30, 1, None), (8, 2, "band"), (8, 2, "runs"), (3, 14, "runs")):
        browser.js(many, count, seeds)
        if drawn:
            browser.choose("#seeds-as", drawn)
        browser.js("drawPage()")
        pairs, together = browser.js(seen), count if drawn == "band" else count * seeds
        wanted = {"loss": together, "routers": count * seeds, "#legend": together, "#runs": count * seeds}
        expect({place: len(set(of)) for place, of in pairs.items()} == {place: len(of) for place, of in pairs.items()} == wanted,
               f"{count} models of {seeds} seeds, {drawn}: {pairs}")
        expect(pairs["loss"] == pairs["#legend"] and pairs["routers"] == pairs["#runs"], f"other swatches than lines: {pairs}")
        named = browser.js("return document.querySelector('#chart-router-curves .plot').layout.showlegend")
        expect(named == (drawn == "band"), f"a legend where the bar has other lines: {named}, {drawn}")


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
        expect(int(row["tokens"]) == BATCH_TOKENS * int(row["step"]) and near(row["train_s"], seconds, 1e-6), row)
    browser.choose("#loads-order", "id")
    loads = table(browser, "loads")
    for step, layer, assignments, share in rows(w.run("healthy"), "SELECT step, layer, assignments, max_load FROM router_layer"):
        counts = [int(r["assignments"]) for r in loads if (r["step"], r["layer"]) == (str(step), str(layer))]
        expect(len(counts) == 4 and sum(counts) == assignments and near(max(counts) / sum(counts), share, 1e-9), f"loads.csv {step} {layer}: {counts}")
    for chart in traces(browser):
        got = table(browser, chart)
        odd = [r for r in got if None in r or None in r.values()]  # more cells than names, or fewer
        expect(got and not odd, f"{chart}.csv has {len(got)} rows, of which {odd[:3]}")
    audit = {r[""]: r for r in csv.DictReader(io.StringIO(browser.download("#table-audit .csv", "audit.csv")))}
    counted = json.loads(assay("audit", w.run("healthy") / "config.yaml", "--json").stdout)
    total = next(iter(counted["models"].values()))["params"]["total"]
    expect(audit["P_total"]["healthy"] == str(total), f"{audit['P_total']}, not {total}")


def check_switches(browser):
    browser.choose("#x-axis", "tokens")
    expect(browser.js("return document.querySelector('#chart-loss .plot').data[0].x.slice(0, 2)") == [BATCH_TOKENS, 2 * BATCH_TOKENS], "x in tokens")
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


def check_markup(browser, name):
    """A name with markup is shown as it is written, in the title of an axis, the legend and the text of a point too."""
    options = "[...document.querySelectorAll('#loss-reference option')].map((o) => [o.textContent, o.value])"
    browser.choose("#loss-reference", dict(browser.js("return " + options))[name])
    titles = loss_plot(browser, "[...plot.querySelectorAll('.annotation-text')].map((t) => t.textContent)")
    expect(f"loss minus that of {name} (nats per token)" in titles, f"the title of the axis: {titles}")
    browser.choose("#loss-reference", "")
    legend = loss_plot(browser, "[...plot.querySelectorAll('.legendtext')].map((t) => t.textContent)")
    expect(any(name in text for text in legend), f"the legend of the losses: {legend}")
    hovered = loss_plot(browser, "(Plotly.Fx.hover(plot, [{curveNumber: plot.data.findIndex((t) => t.name.startsWith('a&lt;b')), "
                                 "pointNumber: 0}]), [...plot.querySelectorAll('.hovertext')].map((t) => t.textContent))")
    expect(any(name in text for text in hovered), f"the text of a point: {hovered}")


def check_partial(browser, w, keep):
    """Pages of incomplete runs: each states what is missing, none has a blank chart."""
    train(w, "one", {"run.steps": 1, "schedule.warmup": 0, "schedule.warmdown": 0})
    w.train("between", "--set", "run.log_every=10", "--stop-after", "14")
    w.train("broken", "--set", "optimizer.lr=1e30", expect=3)
    shutil.copytree(w.run("dense"), w.run("lossless"))
    change(w.run("lossless"), "UPDATE eval SET value = NULL WHERE step = 20")
    shutil.copytree(w.run("dense"), w.run("unvalidated"))
    change(w.run("unvalidated"), "DELETE FROM eval")
    shutil.copytree(w.run("healthy"), w.run("missing"))
    (w.run("missing") / "telemetry.db").unlink()
    shutil.copytree(w.run("healthy"), w.run("newer"))
    change(w.run("newer"), "PRAGMA user_version = 99")
    shutil.copytree(w.run("healthy"), w.run("damaged"))
    change(w.run("damaged"), "UPDATE expert_load SET counts = x'00' WHERE step = 30 AND layer = 1")
    strange = w.run('a<b>&"c%{y}')
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
        (["between"], [], ["between stopped after 14 of 60 steps; its last validation loss is ", " nats (step 0)", " up to step 10, "]),
        (["broken"], [], ["broken stopped by its guard (NaN or infinite) after ", "; its last validation loss is ", " nats (step 0)"]),
        (["lossless"], [], ["lossless stopped by its guard (NaN or infinite) after 20 of 20 steps; its last validation loss is NaN or infinite."]),
        (["unvalidated"], ["No validation loss was measured yet."], ["unvalidated has no validation loss after 20 of 20 steps."]),
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
        if names == ["between"]:
            times = browser.js("return document.querySelector('#table-times').textContent")
            expect("training time up to step" in times, times)
        if strange.name in names:
            check_markup(browser, strange.name)
        if keep:
            shutil.copy(page, keep)


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
            print(WITHOUT_PLOTLY)
        else:
            opened(browser, page)
            check_answer(browser, w)
            check_charts(browser, w)
            check_hover(browser)
            check_loss(browser)
            check_slider(browser)
            check_csv(browser, w)
            check_switches(browser)
            check_means(browser, w)
            check_steps(browser, w)
            check_incomparable(browser, w)
            check_many_values(browser)
            check_themes(browser)
            check_print(browser)
            check_update(browser, w)
            quiet(browser, "the page after all interactions")
            check_phone(browser, page)
            check_seeds(browser, w)
            check_running(browser, w)
            check_partial(browser, w, keep)
        locked.check()
        if keep:
            shutil.copy(page, keep)
    end("report")


main()
