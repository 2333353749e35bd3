#!/usr/bin/env python3
"""Draws collapse-damage.png from the JSON of `assay dissect` (docs/studies/collapse-damage.md):
    tar -C build -xf bench/results/epyc-zen4-2core/collapse-damage.tar.zst
    python3 docs/images/collapse_damage.py build/collapse-damage docs/images/collapse-damage.png
with matplotlib.
"""
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MODELS = {"baseline": ("collapsed (bias rate 1e-4)", "tab:blue"), "bias-1e-2": ("balanced (bias rate 1e-2)", "tab:orange")}
PARTS = ("all routed experts", "shared expert")


def main():
    folder, output = pathlib.Path(sys.argv[1]), sys.argv[2]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1, 1.6), constrained_layout=True)
    for m, (model, (label, colour)) in enumerate(MODELS.items()):
        used = [json.loads((folder / f"used-{model}-seed{seed}.json").read_text()) for seed in (1, 2, 3)]
        damage = [json.loads((folder / f"damage-{model}-seed{seed}.json").read_text()) for seed in (1, 2, 3)]
        for layer in range(3):
            shares = [u["layers"][layer]["used"] / u["layers"][layer]["experts"] for u in used]
            left.bar(layer + 0.4 * m, 100 * statistics.mean(shares), 0.38, color=colour, label=label if layer == 0 else None)
        for p, part in enumerate(PARTS):
            for layer in range(3):
                nats = [next(c["damage"]["nats"] for c in d["changes"] if c["layer"] == layer and c["without"] == part)
                        for d in damage]
                right.bar(layer + 4 * p + 0.4 * m, statistics.mean(nats), 0.38, yerr=statistics.stdev(nats), capsize=3, color=colour)
    left.set_xticks([0.2, 1.2, 2.2], ["layer 0", "1", "2"])
    left.set_ylabel("experts that text uses, %")
    left.legend(loc="upper right", bbox_to_anchor=(1, 1.22), frameon=False, fontsize=9)
    right.set_xticks([0.2, 1.2, 2.2, 4.2, 5.2, 6.2], ["layer 0", "1", "2", "layer 0", "1", "2"])
    right.set_ylabel("damage without it, nats per token")
    right.text(1.2, 1.03, "without all routed experts", ha="center", transform=right.get_xaxis_transform())
    right.text(5.2, 1.03, "without the shared expert", ha="center", transform=right.get_xaxis_transform())
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
