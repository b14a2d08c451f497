"""Draws the ratios of a campaign against their goals."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from tests.bench.cpu.results import Campaign, compare
from tests.bench.cpu.rows import MODELS, ROWS


def write_plot(path: Path, campaign: Campaign) -> None:
    """One bar a row, upside down where lower is better: longer is always better for Octavo."""
    labels, values, spreads, goals = [], [], [], []
    for name, row in ROWS.items():
        comparison = compare(row, campaign.rows[name]) if name in campaign.rows else None
        if comparison is None:
            continue
        ends = (comparison.low, comparison.high)
        power = -1 if row.metric.lower_is_better else 1
        value = comparison.ratio**power
        low, high = sorted(end**power for end in ends)
        against = f" / {comparison.peer}" if comparison.peer else ""
        labels.append(f"{MODELS[row.model]}, {row.title}\n{comparison.ours}{against}")
        values.append(value)
        spreads.append((max(0.0, value - low), max(0.0, high - value)))
        goals.append(row.goal**power)
    if not values:
        return
    figure, axes = plt.subplots(figsize=(11, 1 + 0.55 * len(values)), layout="constrained")
    places = list(range(len(values)))
    colors = ["#3a7d44" if v >= g else "#b8432f" for v, g in zip(values, goals, strict=True)]
    axes.barh(places, values, color=colors, height=0.6, alpha=0.85)
    axes.errorbar(
        values, places, xerr=list(zip(*spreads, strict=True)), fmt="none", ecolor="#333", capsize=3
    )
    axes.plot(goals, places, "D", color="black", markersize=5, label="goal")
    axes.axvline(1, color="#666", linewidth=0.8)
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(
        "ratio of medians; the thin line spans single rounds (inverted where lower is better)"
    )
    axes.set_title(
        f"Octavo against its peers: {campaign.machine['cpu']}, {campaign.threads} threads"
    )
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)
