#!/usr/bin/env python3
"""Prints the demonstration's table: models side by side, from the audit and the runs' telemetry. Without runs it says
what the models are. Fits 80 columns. Standard library only.

  demo_table.py --audit audit.json
  demo_table.py --audit audit.json --ngrams ngrams.json --compare compare.json \\
      --run moe=runs/demo-moe --run moe=runs/demo-moe-seed2 ...

A model given several times is shown as mean and spread (lowest to highest) over its runs.
"""
import argparse
import json
import pathlib
import sqlite3
import statistics
import sys
import textwrap


def fail(message, hint):
    sys.exit(f"error: {message}\nhint: {hint}")


def read_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", "bash tools/demo.sh writes it")
    except ValueError:
        fail(f"{path} is not JSON", "bash tools/demo.sh writes it again")


def read_run(folder):
    path = pathlib.Path(folder) / "telemetry.db"
    if not path.is_file():
        fail(f"{folder}: no telemetry.db", "train it first, for example with bash tools/demo.sh")
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    try:
        loss = db.execute("SELECT value FROM eval WHERE task='val' AND metric='loss_nats' ORDER BY step DESC LIMIT 1")
        loss = loss.fetchone()
        if loss is None:
            fail(f"{folder}: no validation loss yet", "train it to the end")
        speed = [v for (v,) in db.execute("SELECT value FROM scalar WHERE name='tokens_per_s'")]
        tokens = db.execute("SELECT max(value) FROM scalar WHERE name='tokens'").fetchone()[0]
        # The last window of steps: the counts of a single step are noisy.
        load = db.execute("SELECT max(window_max_load_norm) FROM router_layer"
                          " WHERE step = (SELECT max(step) FROM router_layer)").fetchone()[0]
    except sqlite3.Error as error:
        fail(f"{path}: {error}", "is this a run of another version of assay?")
    finally:
        db.close()
    return {"loss": loss[0], "speed": statistics.median(speed), "tokens": tokens, "load": load}


def millions(n):
    return "%.2fM" % (n / 1e6)


def spread(values):
    if len(values) == 1:
        return "%.4f" % values[0]
    return "%.4f (%.4f-%.4f)" % (statistics.mean(values), min(values), max(values))


def print_table(groups, rows):
    """The first row is the heading. `groups` are titles above it: (first column, columns, title)."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    above = ""
    for first, columns, title in groups:
        above = above.ljust(sum(widths[:first]) + 2 * first)
        above += title.center(sum(widths[first:first + columns]) + 2 * (columns - 1))
    print(above.rstrip())
    for row in rows[:1] + [["-" * w for w in widths]] + rows[1:]:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def print_models(audit):
    """One line per model, and what is held fixed."""
    for name, model in audit.items():
        params = model["params"]
        text = f"  {name:12}  {millions(params['total'])} parameters, "
        if params["active"] == params["total"]:
            text += "all of them used by every token"
        else:
            text += f"{millions(params['active'])} of them used per token"
        print(text)
    print("All see the same tokens in the same number of steps.")


def print_scale(ngrams, runs):
    """The losses of n-gram models beside those of the runs."""
    print("val loss: nats per token, over %s validation tokens. N-gram models of\n%s training tokens have:"
          % (f"{ngrams['val_tokens']:,}", millions(ngrams["train_tokens"])))
    names = ["unigram", "bigram", "3-gram", "4-gram", "5-gram"]
    print("  " + "  ".join("%s %.3f" % pair for pair in zip(names, ngrams["nats"])))
    worst = max(r["loss"] for rs in runs.values() for r in rs)
    gap = ngrams["nats"][-1] - worst
    if gap > 0:
        print("Even the worst run beats the 5-gram by %.3f nats." % gap)
    else:
        print("The worst run does not beat the 5-gram: it is %.3f nats above it." % -gap)


def print_result(audit, ngrams, sentence, runs):
    rows = [["model", "total", "active", "total", "active", "val loss", "tok/s", "load"]]
    for model, rs in runs.items():
        params, tokens = audit[model]["params"], rs[0]["tokens"]
        load = max((r["load"] for r in rs if r["load"] is not None), default=None)
        rows.append([model, millions(params["total"]), millions(params["active"]),
                     "%.2f" % (tokens / params["total"]), "%.2f" % (tokens / params["active"]),
                     spread([r["loss"] for r in rs]), "%.1fk" % (statistics.median(r["speed"] for r in rs) / 1e3),
                     "-" if load is None else "%.2f" % load])
    print_table([(1, 2, "parameters"), (3, 2, "tokens/param.")], rows)
    first = next(iter(runs.values()))[0]
    print("Each run saw %s tokens. load: K * max_load of the worst layer; 1 means that\n"
          "one expert is chosen by every token." % millions(first["tokens"]))
    print_scale(ngrams, runs)
    print()
    print(textwrap.fill(sentence, 80, break_on_hyphens=False))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--audit", required=True, help="the output of assay audit --json")
    p.add_argument("--ngrams", help="the output of assay data ngrams --json")
    p.add_argument("--compare", help="the output of assay compare --json")
    p.add_argument("--run", action="append", metavar="MODEL=DIR", help="a run of a model of the audit; repeatable")
    a = p.parse_args()
    audit = read_json(a.audit)["models"]
    if not a.run:
        print_models(audit)
        return
    if not a.ngrams or not a.compare:
        fail("with --run, --ngrams and --compare are needed", "bash tools/demo.sh writes their files")
    runs = {}
    for item in a.run:
        model, _, folder = item.partition("=")
        if model not in audit:
            fail(f"{a.audit} has no model {model}", "it has " + ", ".join(audit))
        runs.setdefault(model, []).append(read_run(folder))
    print_result(audit, read_json(a.ngrams), read_json(a.compare)["sentence"], runs)


if __name__ == "__main__":
    main()
