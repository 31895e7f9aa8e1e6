"""`History`: what was measured in each epoch of a run."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minigrad.serialization import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class History:
    """A row per epoch: a dict with "epoch" (from 1), losses, metrics, "lr", "seconds".

    "lr" is that of the first batch; "seconds" of an epoch that was resumed are those since then.

    `history["loss"]` is the list of that column, one number per epoch (None where it has none).

    >>> from minigrad.training import History
    >>> history = History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    >>> history["loss"], len(history)
    ([0.5, 0.25], 2)
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows: list[dict[str, Any]] = list(rows or ())

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which they appeared."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            raise KeyError(f"history has no column {name!r}; there are {self.columns}")
        return [row.get(name) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return "\n".join(map(line, self.rows)) or "History()"

    def to_csv(self, path: str | os.PathLike) -> None:
        """Write the table, with its header, to a file (atomically)."""
        with atomic_file(os.fspath(path)) as file:
            text = io.StringIO()
            writer = csv.DictWriter(text, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            file.write(text.getvalue().encode())

    def plot(self, path: str | os.PathLike | None = None) -> Figure:
        """Curves by epoch, one picture for the losses and one for each metric.

        path: a file to write, of a format that matplotlib knows. Needs the extra `plot`.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
            from matplotlib.ticker import MaxNLocator
        except ImportError:
            raise ImportError(
                "History.plot needs matplotlib: pip install 'minigrad[plot]'"
            ) from None
        hidden = ("epoch", "lr", "seconds")
        names = [n for n in self.columns if n not in hidden and not n.startswith("valid_")]
        drawing = Figure(figsize=(4.5 * max(1, len(names)), 3.6), layout="constrained")
        FigureCanvasAgg(drawing)
        epochs = self["epoch"] if self.rows else []
        for place, name in zip(drawing.subplots(1, max(1, len(names)), squeeze=False)[0], names):
            for column, label in ((name, "train"), (f"valid_{name}", "valid")):
                if column in self.columns:
                    place.plot(epochs, self[column], marker="o", label=label)
            place.set(xlabel="epoch", ylabel=name)
            place.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            place.grid(alpha=0.3)
            place.legend()
        if path is not None:
            drawing.savefig(os.fspath(path), dpi=120)
        return drawing


def line(row: dict[str, Any]) -> str:
    """A row as text: `epoch 3  loss 0.1234  valid_loss 0.2345`."""
    return "  ".join(f"{name} {_number(name, value)}" for name, value in row.items())


def _number(name: str, value: Any) -> str:
    if name == "seconds":
        return f"{value:.1f}"
    if name == "lr":
        return f"{value:g}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
