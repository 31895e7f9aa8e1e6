"""The picture of a training run: loss and accuracy by epoch, as a PNG."""

from __future__ import annotations

import importlib.util

from minigrad.commands import CommandError


def require() -> None:
    """Raise CommandError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: pip install 'minigrad[plot]'")


def curves(history: list, path: str, title: str) -> None:
    """Write the curves of `history` (a list of `train.Epoch`) to the PNG `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    epochs = [epoch.number for epoch in history]
    loss, accuracy = figure.subplots(1, 2)
    loss.plot(epochs, [epoch.train_loss for epoch in history], marker="o", label="train")
    loss.plot(epochs, [epoch.test_loss for epoch in history], marker="o", label="test")
    loss.set(xlabel="epoch", ylabel="cross entropy", yscale="log")
    accuracy.plot(epochs, [100 * epoch.train_accuracy for epoch in history], marker="o")
    accuracy.plot(epochs, [100 * epoch.test_accuracy for epoch in history], marker="o")
    accuracy.set(xlabel="epoch", ylabel="accuracy (%)")
    for axes in (loss, accuracy):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    loss.legend()
    figure.suptitle(title)
    figure.savefig(path, format="png", dpi=120)
