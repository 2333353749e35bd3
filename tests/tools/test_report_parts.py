#!/usr/bin/env python3
"""assay report: the parts of a page that only some runs have, in Chromium: a matrix and its studies, a public run's losses,
formats, what `assay dissect` found, ranks. --keep FOLDER keeps the pages there."""
import csv
import io
import json
import math
import pathlib
import shutil
import sqlite3
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from chromium import Browser
from harness import Workplace, assay, rows
from report_pages import (change, check_phone, DENSE, end, expect, loss_plot, near, opened, quiet, refused, report, table,
                          text_of, traces, train, WITHOUT_PLOTLY)

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
    labels = browser.js("""return joinedLabels([{label: 'a', x: 0, y: 1}, {label: 'b', x: 0, y: 1.01}, {label: 'c', x: 0, y: 2},
                                                 {label: 'd', x: 5, y: 1}], 1, 0.1)""")
    expect(labels == ["b<br>a", "", "c", "d"], f"labels that would lie on each other: {labels}")
    steps = {r["lane"]: float(r["last_step"]) for r in table(browser, "matrix-published")}
    expect(near(steps["0004: active-like, moe-64"], 5760 / 8320, 1e-9), steps)
    expect(near(steps["moe, total"], rows["total", "moe"]["steps"]["mean"] / rows["total", "dense"]["steps"]["mean"], 1e-9), steps)
    browser.choose("#matrix-published-measure", "last_val_loss")
    lanes = {r["lane"]: r for r in table(browser, "matrix-published")}
    expect(near(lanes["0004: active-like, moe-64"]["last_val_loss"], 3.2769 - 3.2725, 1e-9), lanes)
    ours = rows["active", "moe"]["difference_to_first"]
    expect(near(lanes["moe, active"]["last_val_loss"], ours["mean"], 1e-9) and near(lanes["moe, active"]["low95"], ours["interval95"][0], 1e-9), lanes)
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
    note = browser.one("#chart-loss .note").text
    expect("NOT COMPARABLE with it: dense: other tokenizer (vocabulary " in note and "; healthy: other tokenizer" in note, note)
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
    done = assay("matrix", w.path / f"{study}.yaml", "--run-dir", folder, "--reuse", w.path / "matrix")
    expect(done.returncode == 0 and "0 to train" in done.stderr, done.stderr)
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


def check_markup(browser, data):
    """Names with markup are shown as they are written, as ticks and in titles too."""
    name = "<b>moe</b> &lt;"
    whole = json.dumps(data)
    marked = whole
    for key, before, after in (("model", "moe", name), ("model", "dense", "a&amp;b"), ("name", "active", "<i>active")):
        marked = marked.replace(f'"{key}": "{before}"', f'"{key}": "{after}"')
    browser.js("assayPage.update(JSON.parse(arguments[0]))", marked)
    ticks = {}
    for chart, axis in (("matrix-points", "y"), ("matrix-published", "y"), ("matrix-contracts", "x")):
        browser.js("document.querySelector('#chart-' + arguments[0]).scrollIntoView()", chart)
        read = f"return [...document.querySelectorAll('#chart-{chart} .{axis}tick text')].map((t) => t.textContent)"
        browser.wait(lambda: any("<i>" in text for text in browser.js(read)), 20)
        ticks[chart] = browser.js(read)
    expect(f"{name}, <i>active" in ticks["matrix-points"] and f"{name}, <i>active" in ticks["matrix-published"], ticks)
    expect("<i>active" in ticks["matrix-contracts"], ticks)
    titles = browser.js("return [...document.querySelectorAll('.annotation-text')].map((t) => t.textContent)")
    expect("loss minus a&amp;b's (nats per token)" in titles, titles)
    browser.js("assayPage.update(JSON.parse(arguments[0]))", whole)


def check_steps(browser, data):
    """Seeds that planned numbers of steps of their own have a range, also without a contract of the matrix; those that
    stopped at a target have a mean."""
    whole = json.dumps(data)
    contract = data["matrix"]["contracts"][0]
    row = contract["rows"][1]
    for kind, planned, shown in (("", (6, 8), "3 to 5"), ("seconds", (8, 8), "4")):
        contract["kind"], row["steps"]["mean"] = kind, 4
        for run, done, plan in zip(row["runs"], (3, 5), planned):
            run["steps"], run["planned_steps"] = done, plan
        browser.js("assayPage.update(JSON.parse(arguments[0]))", json.dumps(data))
        cells = "return [...document.querySelectorAll('#table-contract-active tbody tr:nth-child(2) td')].map((t) => t.textContent)"
        expect(browser.wait(lambda: shown in browser.js(cells), 20), f"{planned} steps: {browser.js(cells)}")
    browser.js("assayPage.update(JSON.parse(arguments[0]))", whole)


def check_gap(browser, data):
    """Points read between two evaluations are open, and the note ends as a sentence without a trend."""
    whole = json.dumps(data)
    contract = data["matrix"]["contracts"][0]
    points = contract["gaps"][0]["points"]
    for gap in contract["gaps"]:
        gap["trend_per_doubling"] = None
        for point in gap["points"]:
            point["interpolated"] = False
    points[0]["interpolated"] = True
    browser.js("assayPage.update(JSON.parse(arguments[0]))", json.dumps(data))
    browser.js("document.querySelector('#chart-matrix-gap').scrollIntoView()")
    note = lambda: browser.one("#chart-matrix-gap .note").text
    wanted = ("Line: mean over the seeds that both have; band: Student's 95% interval. "
              "Open points: a loss was read between two evaluations.")
    expect(browser.wait(lambda: note() == wanted, 20), note())
    symbols = browser.js("return document.querySelector('#chart-matrix-gap .plot').data[2].marker.symbol")
    expect(symbols == ["circle-open"] + ["circle"] * (len(points) - 1), symbols)
    browser.js("assayPage.update(JSON.parse(arguments[0]))", whole)


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
    check_markup(browser, json.loads(assay("report", folder, "--json").stdout))
    check_gap(browser, json.loads(assay("report", folder, "--json").stdout))
    check_steps(browser, json.loads(assay("report", folder, "--json").stdout))
    browser.click("#table-contract-active tbody tr:last-child .link")
    pressed = [b.text for b in browser.one("#legend").find_elements("css selector", "[aria-pressed=true]")]
    expect(len(pressed) == 1 and pressed[0].startswith("moe-active"), f"the curves of one row: {pressed}")
    shutil.copytree(folder, w.path / "damaged-matrix")
    (w.path / "damaged-matrix" / "matrix.json").write_text("{")
    refused("is damaged: it is not the record of a matrix", w.path / "damaged-matrix")
    unread = w.path / "unread-matrix"
    shutil.copytree(folder, unread)
    lost = sorted(unread.glob("*/telemetry.db"))[0]
    lost.write_bytes(lost.read_bytes()[:20000])
    said = report(w, "unread.html", unread).stderr
    expect(f"warning: {lost.parent} counts as unfinished: " in said, said)
    check_phone(browser, w.path / "matrix.html")


def check_experts(browser, w):
    """Runs of several numbers of experts open at the measure that compares them, and shares of a ceiling say that they do not."""
    measure = lambda: browser.js("return document.querySelector('#router-curves-name').value")
    note = lambda: browser.one("#chart-router-curves .note").text
    report(w, "one.html", w.run("healthy"))
    opened(browser, w.path / "one.html")
    expect(measure() == "max_load_norm" and "differ in their number" not in note(), f"one run: {measure()}, {note()}")
    train(w, "wide", {"model.moe.experts": 8, "run.steps": 20, "schedule.warmdown": 0})
    page = w.path / "experts.html"
    report(w, page.name, w.run("healthy"), w.run("wide"))
    opened(browser, page)
    expect(measure() == "window_e_eff_norm" and "differ in their number" not in note(), f"two numbers of experts: {measure()}, {note()}")
    shown = {(r["run"], r["layer"], r["step"]): r["window_e_eff_norm"] for r in table(browser, "router-curves")}
    for name, step in (("healthy", 60), ("wide", 20)):
        for layer, stored in rows(w.run(name), f"SELECT layer, window_e_eff_norm FROM router_layer WHERE step = {step}"):
            expect(near(shown[name, str(layer), str(step)], stored, 1e-4), f"{name}, layer {layer}: {stored}")
    expect("exp(H) / E" in browser.js("return document.querySelector('#section-routers').textContent"), "the table by layer")
    check_drawing(browser)
    check_misleading(browser, note, "their number of experts", ("max_load_norm", "max_load", "cv_norm", "entropy_norm"), ("gini", "cv"))
    quiet(browser, page.name)
    train(w, "one-of-4", {"model.moe.top_k": 1, "run.steps": 20, "schedule.warmdown": 0})
    page = w.path / "top-k.html"
    report(w, page.name, w.run("healthy"), w.run("one-of-4"))
    opened(browser, page)
    expect(measure() == "window_e_eff_norm" and "differ in" not in note(), f"two K: {measure()}, {note()}")
    check_misleading(browser, note, "K", ("max_load_norm", "window_max_load_norm", "cv_norm"), ("max_load", "entropy_norm", "cv"))
    quiet(browser, page.name)


def check_misleading(browser, note, differs, misleading, comparable):
    for name in misleading + comparable:
        browser.choose("#router-curves-name", name)
        said = f"These runs differ in {differs}: this measure does not say which is more even; effective experts / E does." in note()
        expect(said == (name in misleading) and said == ("differ in" in note()), f"{name}: {note()}")


def check_drawing(browser):
    """The button SVG: the chart as it is seen, with the names of its lines, which the bar has on the page; the chart stays."""
    state = "const p = document.querySelector('#chart-router-curves .plot'); return JSON.stringify([p.data, p.layout])"
    before = browser.js(state)
    text = browser.download("#chart-router-curves .svg", "router-curves.svg")
    drawing = xml.etree.ElementTree.fromstring(text)
    expect(drawing.tag.endswith("}svg") and float(drawing.get("width")) > 300, text[:300])
    names = ["".join(node.itertext()) for node in drawing.iter() if node.get("class") == "legendtext"]
    expect(names == ["healthy", "wide"] and "effective experts / E" in "".join(drawing.itertext()), names)
    expect("font-family: inherit" not in text and browser.js(state) == before, "the fonts of the drawing, or a changed chart")


def check_names(browser, w):
    """Of many lines with long names the drawing of a narrow chart shows every name: nothing scrolls in it."""
    page = w.path / "names.html"
    report(w, page.name, w.run("dense"))
    opened(browser, page)
    browser.js("""const data = JSON.parse(document.getElementById('report-data').textContent), [run] = data.runs;
                  data.runs = [...Array(26).keys()].map((i) => ({...run, path: 'r' + i, label: 'dense-seed-' + i + (i % 2 ? ' of a name that is long' : '')}));
                  data.models = data.runs.map(({label}, i) => ({...data.models[0], name: label, runs: [i]}));
                  assayPage.update(data)""")
    browser.js("document.querySelector('#chart-scalars').scrollIntoView()")
    expect(browser.wait(lambda: traces(browser)["scalars"] == 26, 20), traces(browser))
    text = browser.download("#chart-scalars .svg", "scalars.svg")
    found = browser.js("""document.body.insertAdjacentHTML('beforeend', '<div id="drawn"></div>');
        const holder = document.getElementById('drawn');
        holder.innerHTML = arguments[0];
        const svg = holder.querySelector('svg'), legend = svg.querySelector('.legend .bg').getBoundingClientRect(), whole = svg.getBoundingClientRect();
        const inside = (inner, outer) => inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1 && inner.left >= outer.left - 1 && inner.right <= outer.right + 1;
        const names = [...svg.querySelectorAll('.legendtext')].map((t) => t.getBoundingClientRect());
        const plot = svg.querySelector('.cartesianlayer').getBoundingClientRect();
        const result = [names.length, names.filter((name) => inside(name, legend)).length, inside(legend, whole), plot.bottom <= legend.top, plot.height];
        holder.remove();
        return result""", text)
    expect(found[:4] == [26, 26, True, True] and found[4] > 100, f"names, those seen, legend in the drawing, below the plot, height of that: {found}")
    quiet(browser, page.name)


def check_dissect(browser, w, keep):
    """What assay dissect found out, from its files: a bar for each layer and part, and P_used."""
    folder = w.run("healthy") / "dissect"
    folder.mkdir()
    changes = [{"layer": layer, "without": f"decile {n}", "removal": removal, "experts": 2, "load_share": 0.5 / n,
                "damage": {"nats": 0.25 / n + layer, "standard_error": 0.01, "targets": 64}}
               for layer in (0, 1) for n in (1, 2, 3) for removal in ("zero", "next")]
    part = "shared <b>&amp; expert"
    changes += [{"layer": 0, "without": part, "damage": {"nats": -0.125, "standard_error": None, "targets": 64}},
                {"layer": "no row"}]
    (folder / "damage.json").write_text(json.dumps({"step": 40, "tokens": 4096, "loss_nats": 3.5, "experts": 6, "top_k": 2, "changes": changes}))
    (folder / "used.json").write_text(json.dumps({"p_used": 1234, "p_total": 5678, "p_active": 910, "checkpoint_step": 20, "tokens": 2048}))
    page = w.path / "dissect.html"
    report(w, page.name, w.run("healthy"))
    opened(browser, page)
    drawn = traces(browser)
    expect((drawn.get("damage-groups"), drawn.get("damage-parts")) == (2, 1), drawn)
    found = table(browser, "damage-groups")
    expect(len(found) == 6 and all(r["removal"] == "zero" for r in found), found)
    wanted = [1 + 0.25 / n for n in (1, 2, 3)]
    damage = [float(r["damage_nats"]) for r in found if r["layer"] == "1"]
    expect(len(damage) == len(wanted) and all(near(d, w, 1e-6) for d, w in zip(damage, wanted)), found)
    said = [browser.one(f"#chart-damage-groups {part}").text for part in ("h3", ".note")]
    expect(said[0] == "Without a group of the experts" and said[1].startswith("3 groups of 2 experts. Step 40"), said)
    expect("groups" not in browser.one("#chart-damage-parts .note").text, browser.one("#chart-damage-parts .note").text)
    browser.choose("#damage-groups-removal", "next")
    expect(all(r["removal"] == "next" for r in table(browser, "damage-groups")), "the other removal")
    parts = [(r["without"], float(r["damage_nats"])) for r in table(browser, "damage-parts")]
    expect(parts == [(part, -0.125)], parts)
    ticks = "[...document.querySelectorAll('#chart-damage-parts .xtick text')].map((t) => t.textContent)"
    expect(browser.js("return " + ticks) == [part], browser.js("return " + ticks))
    expect("step 20: 2,048 held-out tokens reach 1,234 of 5,678 parameters" in browser.js("return document.querySelector('#section-dissect').textContent"), "P_used")
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


def check_unknown_times(browser):
    """Seconds that are NULL are unknown, not 0, and so is what would lie between them and others."""
    browser.choose("#x-axis", "seconds")
    drawn = {name: x for name, x in loss_plot(browser, "plot.data.map((t) => [t.name.split(',')[0], t.x])")}
    expect(all(x is None for x in drawn["odd"]) and all(x >= 0 for x in drawn["healthy"]) and drawn["healthy"][-1] > 0, drawn)
    expect({r["train_s"] for r in table(browser, "loss") if r["run"] == "odd"} == {""}, "seconds in the CSV")
    note = browser.one("#chart-loss .note").text
    expect("A run without recorded seconds is left out." in note, note)
    times = browser.js("""const run = {scalars: {train_s: {step: [10, 20, 30], value: arguments[0]}}};
                          return [5, 10, 15, 20, 25, 30, 31].map((step) => secondsAt(run, step))""", [1, None, 3])
    expect(times == [0.5, 1, None, None, None, 3, None], times)
    steps = browser.js("""const run = {seed: 1, scalars: {train_s: {step: [10, 20], value: [1, 2]}}}, series = {step: [10, 20, 30], value: [4, 3, 2]};
                          return differencesTo({runs: [run]}, [{run, of: 'loss', series}])[0].series.step""")
    expect(steps == [10, 20], f"a difference to a run whose last time is unknown: {steps}")
    browser.choose("#x-axis", "step")


def check_odd_rows(browser, w):
    """Rows that no run writes, a part's name that objects of the page have by themselves, a time that is NULL, are shown; what a page
    does not expect leaves a sentence, and the other parts."""
    shutil.copytree(w.run("healthy"), w.run("odd"))
    for name in ("constructor", "__proto__"):
        change(w.run("odd"), f"INSERT INTO span SELECT step, '{name}', 7 FROM scalar WHERE name = 'train_s'")
        change(w.run("odd"), f"INSERT INTO scalar SELECT step, '{name}', 7 FROM scalar WHERE name = 'train_s'")
        change(w.run("odd"), f"ALTER TABLE router_layer ADD COLUMN {name} REAL")
        change(w.run("odd"), f"UPDATE router_layer SET {name} = 7")
    change(w.run("odd"), "UPDATE scalar SET value = NULL WHERE name IN ('train_s', 'tokens_per_s')")
    page = w.path / "odd.html"
    report(w, page.name, w.run("healthy"), w.run("odd"))
    opened(browser, page)
    told = list(csv.DictReader(io.StringIO(browser.download("#table-times .csv", "times.csv"))))
    spans = {row[""]: (row["healthy"], row["odd"]) for row in told if row[""].startswith(("constructor", "__proto__"))}
    expect(spans == {"constructor, median (ms)": ("", "7"), "__proto__, median (ms)": ("", "7")}, told)
    expect("cannot be drawn" not in text_of(browser), "a part of the page is missing")
    for chart, name in (("scalars", "constructor"), ("spans", "__proto__"), ("router-curves", "constructor"), ("router-map", "__proto__")):
        browser.choose(f"#{chart}-{'span' if chart == 'spans' else 'name'}", name)
        if chart == "router-map":
            note = browser.js("return document.querySelector('#chart-router-map .missing').textContent")
            expect(note == "healthy did not log   proto  .", note)
            browser.choose("#router-map-of", "1")
        shown = table(browser, chart)
        expect({r["run"] for r in shown} == {"odd"} and all(7 in map(float, filter(None, list(r.values())[2:])) for r in shown), f"{chart}: {shown[:3]}")
    check_unknown_times(browser)
    labels = browser.js("return [...document.querySelectorAll('#scalars-name option, #router-curves-name option')].map((o) => o.textContent)")
    expect("constructor" in labels and not any("undefined" in label or "native" in label for label in labels), labels)
    browser.js("""const data = JSON.parse(document.getElementById('report-data').textContent);
                  data.runs[1].summary = null; data.runs[1].router.loads = null; assayPage.update(data)""")
    told = browser.complaints()
    expect(told and all("TypeError" in one for one in told), f"the console says where: {told}")
    facts = browser.js("return [...document.querySelectorAll('#runs .run')].map((card) => card.innerText)")
    expect("validation loss" in facts[0] and "cannot be drawn" not in facts[0] and "This part cannot be drawn: " in facts[1], facts)
    expect(traces(browser)["scalars"] and traces(browser)["router-curves"], "the other charts")
    quiet(browser, page.name)


def main():
    keep = pathlib.Path(sys.argv[2]) if sys.argv[1:2] == ["--keep"] else None
    with Workplace(moe=True) as w, Browser(w.path) as browser:
        train(w, "dense", DENSE)
        train(w, "healthy", {})
        if "need a network" in report(w, "page.html", w.run("dense")).stdout:
            print(WITHOUT_PLOTLY)
            end("report_parts")
            return
        check_odd_rows(browser, w)
        check_matrix(browser, w)
        check_study_of(browser, w, "0003", ["stop_step", "val_loss", "step_ms", "train_minutes", "k_tokens_per_s"], "0003: bf16, moe-64", 5760 / 8320)
        check_study_of(browser, w, "tiny", ["best_val_loss"], "tiny: MoE", 1.5788 - 1.6545)
        check_anchor(browser, w, keep)
        check_precision(browser, w, keep)
        check_experts(browser, w)
        check_names(browser, w)
        check_dissect(browser, w, keep)
        check_ranks(browser, w, keep)
    end("report_parts")


main()
