#!/usr/bin/env python3
"""Draws balancing.png from the runs of models/presets/balance/matrix.yaml (docs/studies/balancing.md):
    tar -C build -xf bench/results/epyc-zen4-2core/balance.tar.zst
    python3 docs/images/balancing.py build/balance/runs.csv docs/images/balancing.png
with matplotlib.
"""
import collections
import csv
import math
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


def main():
    runs = collections.defaultdict(dict)
    with open(sys.argv[1], newline="") as file:
        for row in csv.DictReader(file):
            experts, rule = row["model"].split("-", 1)
            runs[int(experts[1:]), rule][row["seed"]] = (float(row["val_loss_nats"]), float(row["worst_max_load_norm"]))
    sizes = sorted({experts for experts, _ in runs})
    figure, panels = plt.subplots(1, len(sizes), figsize=(12, 3.8), sharey=True, constrained_layout=True)
    for panel, experts in zip(panels, sizes):
        without = runs[experts, "none"]
        for rule, (colour, marker) in RULES.items():
            seeds = runs[experts, rule]
            load = [x for _, x in seeds.values()]
            difference = [loss - without[seed][0] for seed, (loss, _) in seeds.items()]
            half = STUDENT_95[len(seeds)] * statistics.stdev(difference) / math.sqrt(len(seeds))
            panel.errorbar(statistics.mean(load), statistics.mean(difference), yerr=half if rule != "none" else None,
                           xerr=[[statistics.mean(load) - min(load)], [max(load) - statistics.mean(load)]], color=colour,
                           marker=marker, linestyle="none", capsize=2, elinewidth=0.8, label=rule if experts == sizes[0] else None)
        panel.axhline(0, color="grey", linewidth=0.6)
        panel.axvline(0.9, color="grey", linewidth=0.6, linestyle=":")
        panel.set_title(f"{experts} experts", fontsize=10)
        panel.set_xlim(0, 1.02)
        panel.set_xlabel("K max_load, worst layer")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("validation loss minus that without\na balancing rule, nats")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
