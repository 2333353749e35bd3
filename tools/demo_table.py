#!/usr/bin/env python3
"""Prints the demonstration's table: models side by side, from the audit and the runs' telemetry. Standard library only.

  demo_table.py --audit audit.json --ngrams ngrams.json --run moe=runs/demo-moe --run moe=runs/demo-moe-seed2 ...

A model given several times is shown as mean and spread (lowest to highest) over its runs, and compared with the first
model run by run: runs at the same place in the lists had the same seed.
"""
import argparse
import json
import pathlib
import sqlite3
import statistics
import sys


def read_run(folder):
    path = pathlib.Path(folder) / "telemetry.db"
    if not path.is_file():
        sys.exit("error: %s: no telemetry.db\nhint: train it first, for example with bash tools/demo.sh" % folder)
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    try:
        loss = db.execute("SELECT value FROM eval WHERE task='val' AND metric='loss_nats' ORDER BY step DESC LIMIT 1")
        loss = loss.fetchone()
        if loss is None:
            sys.exit("error: %s: no validation loss yet\nhint: train it to the end" % folder)
        speed = [v for (v,) in db.execute("SELECT value FROM scalar WHERE name='tokens_per_s'")]
        tokens = db.execute("SELECT max(value) FROM scalar WHERE name='tokens'").fetchone()[0]
        # The last window of steps: the counts of a single step are noisy.
        load = db.execute("SELECT max(window_max_load_norm) FROM router_layer"
                          " WHERE step = (SELECT max(step) FROM router_layer)").fetchone()[0]
    except sqlite3.Error as e:
        sys.exit("error: %s: %s\nhint: is this a run of another version of assay?" % (path, e))
    return {"loss": loss[0], "speed": statistics.median(speed), "tokens": tokens, "load": load}


def millions(n):
    return "%.2fM" % (n / 1e6)


def spread(values, form):
    if len(values) == 1:
        return form % values[0]
    return (form + " (" + form + " - " + form + ")") % (statistics.mean(values), min(values), max(values))


def print_table(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for i, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())
        if i == 0:
            print("  ".join("-" * w for w in widths))


def print_comparison(runs):
    """Prints how far each model is above the best one, with the standard error over the seeds."""
    mean = {m: statistics.mean(r["loss"] for r in rs) for m, rs in runs.items()}
    order = sorted(mean, key=mean.get)
    best = order[0]
    seeds = min(len(rs) for rs in runs.values())
    for other in order[1:]:
        gaps = [b["loss"] - a["loss"] for a, b in zip(runs[best], runs[other])]
        line = "%s is %.4f nats below %s" % (best, mean[other] - mean[best], other)
        if seeds > 1:
            error = statistics.stdev(gaps) / len(gaps) ** 0.5
            line += ", +- %.4f (standard error over %d seeds); lower in %d of %d" % (
                error, len(gaps), sum(g > 0 for g in gaps), len(gaps))
        print(line)
    if seeds == 1:
        print("one seed each: the seed alone can cause such differences (--seeds 3 shows how large)")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--audit", required=True)
    p.add_argument("--ngrams", required=True)
    p.add_argument("--run", action="append", required=True, metavar="MODEL=DIR")
    a = p.parse_args()
    audit = json.load(open(a.audit))["models"]
    ngrams = json.load(open(a.ngrams))
    runs = {}
    for item in a.run:
        model, _, folder = item.partition("=")
        runs.setdefault(model, []).append(read_run(folder))

    rows = [["model", "P_total", "P_active", "tokens", "tok/P_total", "tok/P_active", "val loss", "tokens/s",
             "worst K*max_load"]]
    for model, rs in runs.items():
        params, tokens = audit[model]["params"], rs[0]["tokens"]
        load = max((r["load"] for r in rs if r["load"] is not None), default=None)
        rows.append([model, millions(params["total"]), millions(params["active"]), millions(tokens),
                     "%.2f" % (tokens / params["total"]), "%.2f" % (tokens / params["active"]),
                     spread([r["loss"] for r in rs], "%.4f"), "%.0f" % statistics.median(r["speed"] for r in rs),
                     "-" if load is None else "%.2f" % load])
    print_table(rows)
    print("val loss in nats per token of %d validation tokens; for scale, n-gram models of %s training tokens:"
          % (ngrams["val_tokens"], millions(ngrams["train_tokens"])))
    names = ["unigram", "bigram", "3-gram", "4-gram", "5-gram"]
    print("  " + "  ".join("%s %.3f" % pair for pair in zip(names, ngrams["nats"])))
    worst = max(r["loss"] for rs in runs.values() for r in rs)
    gap = ngrams["nats"][-1] - worst
    print("the worst run is %.3f nats %s the 5-gram" % (abs(gap), "below" if gap > 0 else "ABOVE"))
    print()
    print_comparison(runs)


if __name__ == "__main__":
    main()
