#!/usr/bin/env python3
"""Draws balancing.png from the runs of models/presets/balance/matrix.yaml (docs/studies/balancing.md), and prints its table
of loads by the number of experts:
    tar -C build -xf bench/results/epyc-zen4-2core/balance.tar.zst
    python3 docs/images/balancing.py build/balance docs/images/balancing.png
with matplotlib.
"""
import collections
import csv
import json
import math
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RULES = {  # colour, marker
    "none": ("black", "x"), "fixed-1e-4": ("tab:red", "v"), "fixed-1e-3": ("tab:red", "o"), "fixed-1e-2": ("tab:red", "^"),
    "auto-300": ("tab:blue", "v"), "auto": ("tab:blue", "o"), "auto-30": ("tab:blue", "^"),
    "proportional": ("tab:green", "o"), "aux": ("tab:orange", "o")}
STUDENT_95 = {2: 12.706, 3: 4.303}  # two-sided, by the number of seeds
AXES = {"max_load": "K max_load, worst layer", "effective": "exp(H) / E, worst layer"}


def measures(path):
    """Of a run's routers, over the window: those of its worst layer, and the dead experts of all layers."""
    run = json.loads(path.read_text())
    worst = max(run["layers"], key=lambda layer: layer["max_load_norm"])
    entropy = min(layer["entropy_norm"] for layer in run["layers"])
    return {"max_load": worst["max_load_norm"], "largest": worst["max_load"] * run["experts"],
            "effective": run["experts"] ** (entropy - 1),
            "dead": statistics.mean(layer["dead"] for layer in run["layers"]) / run["experts"]}


def read(folder):
    """By number of experts and rule, the runs' losses and loads by seed."""
    runs = collections.defaultdict(dict)
    with open(folder / "runs.csv", newline="") as file:
        for row in csv.DictReader(file):
            experts, rule = row["model"].split("-", 1)
            loads = measures(folder / "routers" / f"{row['run']}.json")
            runs[int(experts[1:]), rule][row["seed"]] = {"loss": float(row["val_loss_nats"]), **loads}
    return runs


def print_table(runs, sizes):
    for rule in RULES:
        for what, text in (("max_load", "{:.2f}"), ("largest", "{:.1f}"), ("effective", "{:.2f}"), ("dead", "{:.1%}")):
            cells = [text.format(statistics.mean(seed[what] for seed in runs[experts, rule].values())) for experts in sizes]
            print(f"{rule:14}{what:10}" + "".join(f"{cell:>8}" for cell in cells))


def draw(panel, runs, experts, axis, labels):
    without = runs[experts, "none"]
    for rule, (colour, marker) in RULES.items():
        seeds = runs[experts, rule]
        load = [run[axis] for run in seeds.values()]
        difference = [run["loss"] - without[seed]["loss"] for seed, run in seeds.items()]
        half = STUDENT_95[len(seeds)] * statistics.stdev(difference) / math.sqrt(len(seeds))
        mean = statistics.mean(load)
        panel.errorbar(mean, statistics.mean(difference), yerr=half if rule != "none" else None,
                       xerr=[[mean - min(load)], [max(load) - mean]], color=colour, marker=marker, linestyle="none",
                       capsize=2, elinewidth=0.8, label=rule if labels else None)
    panel.axhline(0, color="grey", linewidth=0.6)
    if axis == "max_load":
        panel.axvline(0.9, color="grey", linewidth=0.6, linestyle=":")
        panel.set_xlim(0, 1.02)
    else:
        panel.set_xscale("log")
        panel.set_xlim(0.008, 1.3)
    panel.set_xlabel(AXES[axis])
    panel.spines[["top", "right"]].set_visible(False)


def main():
    runs = read(pathlib.Path(sys.argv[1]))
    sizes = sorted({experts for experts, _ in runs})
    print_table(runs, sizes)
    figure, rows = plt.subplots(2, len(sizes), figsize=(12, 6.8), sharey=True, constrained_layout=True)
    for panels, axis in zip(rows, AXES):
        for panel, experts in zip(panels, sizes):
            draw(panel, runs, experts, axis, axis == "max_load" and experts == sizes[0])
        panels[0].set_ylabel("validation loss minus that without\na balancing rule, nats")
    for panel, experts in zip(rows[0], sizes):
        panel.set_title(f"{experts} experts", fontsize=10)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
