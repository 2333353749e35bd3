#!/usr/bin/env python3
"""Draws docs/images/number-grids.png and rounding-error.png from the program's own numbers, with matplotlib:
build/bench_quantise --grids | python3 docs/images/number_grids.py"""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = pathlib.Path(__file__).parent
COLOURS = {"E2M1": "#d55e00", "E4M3": "#0072b2", "E5M2": "#008f68"}
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
                     "axes.edgecolor": "#888", "text.color": "#222", "xtick.color": "#444", "ytick.color": "#444"})


def lines(axis, numbers, colour):
    """A number line: a stroke for every number."""
    axis.vlines(numbers, 0, 1, color=colour, linewidth=1.1 if len(numbers) > 20 else 2)
    axis.set_ylim(0, 1.25)
    axis.set_yticks([])


def number_grids(formats):
    figure, axes = plt.subplots(len(formats), 2, figsize=(10, 3.6), gridspec_kw={"hspace": 0.95, "wspace": 0.16})
    for (linear, logarithmic), f in zip(axes, formats):
        numbers, colour = f["numbers"], COLOURS[f["name"]]
        lines(linear, numbers, colour)
        linear.set_xlim(-0.01 * numbers[-1], 1.01 * numbers[-1])
        ticks = [0, 1, 2, 3, 4, 6] if numbers[-1] == 6 else [0, numbers[-1] / 4, numbers[-1] / 2, numbers[-1]]
        linear.set_xticks(ticks, [f"{t:,.0f}" for t in ticks])
        linear.text(0, 1.32, f"{f['name']}: {len(numbers)} numbers from 0 to {numbers[-1]:,.0f}", fontweight="bold", color=colour)
        lines(logarithmic, numbers[1:], colour)
        logarithmic.set_xscale("log", base=2)
        logarithmic.set_xlim(2**-17, 2**16.5)
        logarithmic.set_xticks([2**p for p in range(-16, 17, 4)])
        logarithmic.minorticks_off()
    axes[-1][0].set_xlabel("linear, each to its own largest")
    axes[-1][1].set_xlabel("logarithmic, one axis, without 0")
    figure.savefig(HERE / "number-grids.png", dpi=130, bbox_inches="tight", facecolor="white")


def rounding_error(formats):
    figure, axis = plt.subplots(figsize=(10, 3.4))
    for f in reversed(formats):
        x = [a for a, _ in f["rounded"]]
        error = [100 * abs(b - a) / a for a, b in f["rounded"]]
        axis.plot(x, error, color=COLOURS[f["name"]], linewidth=0.9, label=f["name"])
    axis.spines["left"].set_visible(True)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(0.2, 150)
    axis.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3%", "1%", "3%", "10%", "30%", "100%"])
    axis.set_xlim(2**-20, 2**18)
    axis.set_xticks([2**p for p in range(-20, 19, 2)])
    axis.minorticks_off()
    axis.grid(color="#ddd", linewidth=0.6)
    axis.set_xlabel("magnitude, scale 1")
    axis.set_ylabel("error of rounding to nearest")
    axis.legend(loc="upper center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 1.16))
    figure.savefig(HERE / "rounding-error.png", dpi=130, bbox_inches="tight", facecolor="white")


formats = json.load(sys.stdin)
number_grids(formats)
rounding_error(formats)
