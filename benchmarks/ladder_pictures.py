"""The pictures of `benchmarks.ladders`: percent of the limit by version, and the rooflines."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

COLORS = {"Numba": "#1f77b4", "CUDA C": "#2ca02c", "NumPy": "#ff7f0e", "torch": "#d62728"}


def draw(rows: list[dict], folder: Path) -> None:
    """Write `ladders.png` and `roofline.png` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    timed = [row for row in rows if "time" in row]
    for name, figure in (("ladders", ladders(timed)), ("roofline", roofline(timed))):
        FigureCanvasAgg(figure)
        figure.savefig(folder / f"{name}.png", dpi=100)
        print(f"drawn: {folder / name}.png")


def by_problem(rows: list[dict]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in rows:
        title = row["operation"] + ("" if row["dtype"] == "float32" else f", {row['dtype']}")
        found.setdefault(title, []).append(row)
    return found


def ladders(rows: list[dict]) -> Figure:
    """A bar for each version, as long as its share of the limit; those of libraries below."""
    problems = by_problem(rows)
    columns = 2
    lines = -(-len(problems) // columns)
    heights = [
        max(len(group) for group in list(problems.values())[i * columns : (i + 1) * columns]) + 3
        for i in range(lines)
    ]
    figure = Figure(figsize=(10, 0.2 * sum(heights) + 0.9), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, height_ratios=heights)
    for axes in grid.flat[len(problems) :]:
        axes.set_axis_off()
    for axes, (title, group) in zip(grid.flat, problems.items(), strict=False):
        _bars(axes, group)
        size = " x ".join(map(str, group[0]["size"]))
        axes.set_title(f"{title}  ({size}; by {group[0]['limited by']})", fontsize=9)
    figure.suptitle("Percent of the limit, by version (logarithmic)", fontsize=11)
    shown = [name for name in COLORS if any(row["by"] == name for row in rows)]
    keys = [Patch(color=COLORS[name], label=name) for name in shown]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(shown), fontsize=8)
    return figure


def _bars(axes: Any, group: list[dict]) -> None:
    names = [row["version"] or row["by"] for row in group]
    shares = [100 * row["share"] for row in group]
    colors = [COLORS[row["by"]] for row in group]
    places = range(len(group))
    axes.barh(places, shares, left=0.005, color=colors, height=0.75)
    for place, share in zip(places, shares, strict=True):
        axes.text(
            share * 1.1,
            place,
            f"{share:.3g}" if share < 100 else f"{share:.0f}",
            va="center",
            fontsize=7,
        )
    axes.set_yticks(places, names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.01, 600)
    axes.axvline(100, color="black", linewidth=0.8)
    axes.set_xticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"], fontsize=7)
    axes.tick_params(axis="x", which="minor", length=0)


def roofline(rows: list[dict]) -> Figure:
    """The fastest version of each dialect, and of torch, under the roofs of copy and product."""
    figure = Figure(figsize=(9.8, 5.2), layout="constrained")
    axes = figure.subplots()
    product = statistics.median([row["product GFLOP/s"] for row in rows])
    copy = statistics.median([row["copy GB/s"] for row in rows])
    ridge = product / copy
    axes.plot([1e-2, ridge, 1e4], [1e-2 * copy, product, product], color="black", linewidth=1)
    axes.text(0.012, 0.012 * copy * 1.5, f"copy: {copy:.0f} GB/s", fontsize=8, rotation=32)
    axes.text(1e4, product * 1.1, f"product: {product:,.0f} GFLOP/s", fontsize=8, ha="right")
    key = []
    for title, group in by_problem(rows).items():
        work, moved = group[0]["flops"], group[0]["bytes"]
        if not work:
            continue  # a transpose computes nothing
        best: dict[str, float] = {}
        for row in group:
            speed = work / row["time"]["median"] / 1e9
            best[row["by"]] = max(best.get(row["by"], 0.0), speed)
        for name, speed in best.items():
            axes.scatter(work / moved, speed, s=22, color=COLORS[name], zorder=3)
        key.append(f"{len(key) + 1:>2} {title}")
        lowest = (work / moved, min(best.values()))
        axes.annotate(str(len(key)), lowest, (0, -12), textcoords="offset points", fontsize=8,
                      ha="center")  # fmt: skip
    figure.text(0.76, 0.5, "\n".join(key), fontsize=8, va="center", family="monospace")
    figure.get_layout_engine().set(rect=(0, 0, 0.73, 1))
    for name, color in COLORS.items():
        if any(row["by"] == name for row in rows):
            axes.scatter([], [], s=22, color=color, label=name)
    axes.legend(fontsize=8, loc="upper left")
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")
    axes.set_title("The fastest versions under the roofs of this machine")
    axes.grid(alpha=0.3)
    return figure
