"""What the tests of `assay report` share: runs to show, pages in Chromium, and what a page has."""
import csv
import io
import pathlib
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "run"))
from harness import assay
from refusals import is_refusal

failures = []
LARGEST = 12_000_000
COLLAPSE = {"model.moe.experts": 320, "model.moe.expert_ffn": 16, "model.moe.router.aux": "none", "model.moe.router.aux_alpha": 0,
            "model.moe.router.bias_rate": 0, "model.layers": 3, "optimizer.lr": 0.03, "schedule.warmdown": 0, "run.steps": 30,
            "telemetry.window": 4, "eval.every": 10}
DENSE = {"model.moe": "null", "run.steps": 20, "schedule.warmdown": 0}
WITHOUT_PLOTLY = "not run: charts in Chromium, this program was built without Plotly.js (bash tools/setup.sh fetches it)"


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
    expect(is_refusal(done, part), f"report {arguments}, wanted {part!r}: {done}")


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


def loss_plot(browser, what):
    return browser.js(f"const plot = document.querySelector('#chart-loss .plot'); return {what}")


def text_of(browser):
    return browser.js("return document.body.innerText")


def check_phone(browser, page):
    browser.blank()
    browser.size(390)
    opened(browser, page)
    wide = browser.js("return [...document.querySelectorAll('main *, header *')].filter((e) => e.getBoundingClientRect().right > 391 && "
                      "!e.closest('.table') && !e.closest('pre')).map((e) => e.tagName + e.id + e.className).slice(0, 5)")
    expect(browser.js("return document.documentElement.scrollWidth") == 390 and wide == [], f"wider than a phone: {wide}")
    expect(all(traces(browser).values()), "charts on a phone")
    browser.blank()
    browser.size(1280)


def contrast(a, b):
    """Of two colours, #rrggbb, as WCAG counts it: 1 to 21."""
    light = lambda c: sum(share * (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4) for share, v in
                          zip((0.2126, 0.7152, 0.0722), (int(c[i:i + 2], 16) / 255 for i in (1, 3, 5))))
    low, high = sorted((light(a), light(b)))
    return (high + 0.05) / (low + 0.05)


def change(run, statement):
    db = sqlite3.connect(run / "telemetry.db")
    db.execute(statement)
    db.commit()
    db.close()


def end(name):
    """Ends the test: with what has failed, if anything has."""
    if failures:
        sys.exit("\n".join(failures))
    print(f"{name}: ok")
