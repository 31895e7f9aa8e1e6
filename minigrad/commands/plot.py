"""Plots a training run: loss and accuracy by epoch, as a PNG."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from minigrad.commands import CommandError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minigrad.training import History


def require(option: str) -> None:
    """Raise CommandError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError(f"{option} needs matplotlib: pip install 'minigrad[plot]'")


def curves(history: History, path: str, title: str) -> None:
    """Write the curves of a run to the PNG `path`."""
    figure(history, title).savefig(path, format="png", dpi=120)


def figure(history: History, title: str) -> Figure:
    """The curves of `history`: cross entropy and accuracy, of training and test, by epoch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter, MaxNLocator

    class Plain(LogFormatter):
        """0.06 instead of 6e-02, at the ticks that LogFormatter labels."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    drawing = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(drawing)
    epochs = history["epoch"]
    loss, accuracy = drawing.subplots(1, 2)
    loss.plot(epochs, history["loss"], marker="o", label="train")
    loss.plot(epochs, history["valid_loss"], marker="o", label="test")
    loss.set(xlabel="epoch", ylabel="cross entropy", yscale="log")
    accuracy.plot(epochs, [100 * x for x in history["accuracy"]], marker="o")
    accuracy.plot(epochs, [100 * x for x in history["valid_accuracy"]], marker="o")
    accuracy.set(xlabel="epoch", ylabel="accuracy (%)")
    loss.yaxis.set_major_formatter(Plain())
    loss.yaxis.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))
    for axes in (loss, accuracy):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
    loss.legend()
    drawing.suptitle(title)
    return drawing
