#!/usr/bin/env python3
"""Draws a phase diagram of balancing from the runs of models/presets/balance/matrix-phase.yaml, and prints its table:
    python3 docs/images/phase.py runs/phase/runs.csv phase.png
with matplotlib.
"""
import collections
import csv
import math
import re
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STUDENT_95 = {2: 12.706, 3: 4.303}  # two-sided, by the number of seeds


def read(path):
    cells = collections.defaultdict(dict)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            experts, bias, aux = re.fullmatch(r"e(\d+)-b([^a]+)-a(.+)", row["model"]).groups()
            if row["val_loss_nats"]:
                cells[int(experts), bias, aux][row["seed"]] = (float(row["val_loss_nats"]), float(row["worst_max_load_norm"]))
    return cells


def difference(seeds, without):
    """Mean and half of the 95% interval of the loss minus that without a rule, seed by seed."""
    values = [loss - without[seed][0] for seed, (loss, _) in seeds.items() if seed in without]
    half = STUDENT_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), half


def main():
    cells = read(sys.argv[1])
    sizes = sorted({experts for experts, _, _ in cells})
    rates = sorted({bias for _, bias, _ in cells}, key=float)
    weights = sorted({aux for _, _, aux in cells}, key=float)
    figure, panels = plt.subplots(1, len(sizes), figsize=(3.6 * len(sizes) + 1, 3.4), constrained_layout=True, squeeze=False)
    for panel, experts in zip(panels[0], sizes):
        loads = [[statistics.mean(load for _, load in cells[experts, bias, aux].values()) for aux in weights] for bias in rates]
        image = panel.imshow(loads, vmin=0, vmax=1, cmap="RdYlGn_r", origin="lower")
        for y, bias in enumerate(rates):
            for x, aux in enumerate(weights):
                mean, half = difference(cells[experts, bias, aux], cells[experts, "0", "0"])
                text = f"{loads[y][x]:.2f}" + ("" if (bias, aux) == ("0", "0") else f"\n{mean:+.3f}\n±{half:.3f}")
                panel.text(x, y, text, ha="center", va="center", fontsize=8)
                print(f"E = {experts}, bias {bias}, aux {aux}: K max_load {loads[y][x]:.2f}, loss {mean:+.3f} +- {half:.3f}")
        panel.set_xticks(range(len(weights)), weights)
        panel.set_yticks(range(len(rates)), rates)
        panel.set_title(f"{experts} experts", fontsize=10)
        panel.set_xlabel("weight of the auxiliary loss")
    panels[0][0].set_ylabel("bias rate")
    figure.colorbar(image, ax=panels, label="K max_load, worst layer", shrink=0.9)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
