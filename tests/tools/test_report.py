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
    blank = browser.js("""return [...document.querySelectorAll('figure')].filter((f) => {
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
    return dict(browser.js("return [...document.querySelectorAll('figure')].map((f) => [f.id.slice(6), (f.querySelector('.plot').data || []).length])"))


def table(browser, chart):
    return list(csv.DictReader(io.StringIO(browser.download(f"#chart-{chart} .csv", chart + ".csv"))))


def near(a, b, relative):
    return abs(float(a) - float(b)) <= relative * abs(float(b)) + 1e-12


def check_charts(browser, w):
    # Numbers of traces: training and validation; line, lower and upper edge; the bias of one run
    # and the margin of both.
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


def check_hover(browser):
    at = browser.js("""const plot = document.querySelector('#chart-loss .plot'), full = plot._fullLayout, trace = plot.data[3];
        return {x: full._size.l + full.xaxis.d2p(trace.x[1]), y: full._size.t + full.yaxis.d2p(trace.y[1]), loss: trace.y[1], name: trace.name}""")
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
    browser.js("const s = document.querySelector('#loads-step'); s.value = 0; s.dispatchEvent(new Event('input'))")
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
    paper = "return [getComputedStyle(document.body).backgroundColor, document.querySelector('#chart-loss .plot').layout.font.color]"
    browser.prefer("light")
    light = browser.js(paper)
    browser.prefer("dark")
    browser.wait(lambda: browser.js(paper) != light, 20)
    dark = browser.js(paper)
    expect(light[0] != dark[0] and light[1] != dark[1], f"light {light}, dark {dark}")
    browser.click("#theme")
    expect(browser.js(paper) == light, "the chosen theme does not override the preferred one")
    browser.click("#theme")
    expect(browser.js(paper) == dark, "the dark theme cannot be chosen")


def check_phone(browser, page):
    browser.size(390)
    opened(browser, page)
    wide = browser.js("return [...document.querySelectorAll('main *, header *')].filter((e) => e.getBoundingClientRect().right > 391 && "
                      "!e.closest('.table') && !e.closest('pre')).map((e) => e.tagName + e.id + e.className).slice(0, 5)")
    expect(browser.js("return document.documentElement.scrollWidth") == 390 and wide == [], f"wider than a phone: {wide}")
    expect(all(traces(browser).values()), "charts on a phone")
    browser.size(1280)


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
    says = browser.js("return [...document.querySelectorAll('.missing')].map((m) => m.hidden ? '' : m.textContent)")
    expect(len(says) > 5 and all("could not be loaded" in s for s in says), says)
    asked = set(browser.network())
    expect(len(asked) == 1 and asked.pop().startswith("https://cdn.plot.ly/plotly-"), "the link")
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
            check_charts(browser, w)
            check_hover(browser)
            check_slider(browser)
            check_csv(browser, w)
            check_switches(browser)
            quiet(browser, "the page after all interactions")
            check_phone(browser, page)
            check_running(browser, w)
            check_precision(browser, w, keep)
            check_partial(browser, w, keep)
        locked.check()
        if keep:
            shutil.copy(page, keep)


main()
if failures:
    sys.exit("\n".join(failures))
print("report: ok")
