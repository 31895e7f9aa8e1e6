"""Callbacks of `fit`: early stopping, checkpoints, logs, plots."""

from __future__ import annotations

import math
import os
from typing import Any

from minigrad import serialization
from minigrad.training.loop import Callback, Fit
from minigrad.utils.tensorboard import SummaryWriter


def is_better(value: float, best: float, mode: str, least: float = 0.0) -> bool:
    """Whether a value improves on the best one by more than `least`."""
    return value > best + least if mode == "max" else value < best - least


def _mode(mode: str | None, monitor: str, owner: str) -> str:
    if mode is None:
        return "max" if monitor.endswith("accuracy") else "min"
    if mode not in ("min", "max"):
        raise ValueError(f"{owner}: mode must be 'min' or 'max', got {mode!r}")
    return mode


def _monitored(fit: Fit, monitor: str, owner: str) -> float:
    row = fit.history.rows[-1]
    if monitor not in row:
        raise KeyError(f"{owner}: the history has no column {monitor!r}; there are {[*row]}")
    return float(row[monitor])


class EarlyStopping(Callback):
    """Ends the run when a column of the history has not improved for `patience` epochs.

    Args:
        monitor: the column.
        patience: epochs without an improvement after which the run ends.
        min_delta: what counts as an improvement: more than this.
        mode: "min" or "max"; by default "max" for columns that end in "accuracy", else "min".
        restore_best: give the model the parameters of its best epoch at the end.

    Attributes:
        best, best_epoch: the best value, and its epoch (from 1).
    """

    def __init__(
        self,
        monitor: str = "valid_loss",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore_best: bool = False,
    ) -> None:
        if patience < 1:
            raise ValueError(f"EarlyStopping: patience must be at least 1, got {patience}")
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self.mode = _mode(mode, monitor, "EarlyStopping")
        self.restore_best = restore_best
        self.best = -math.inf if self.mode == "max" else math.inf
        self.best_epoch = 0
        self._weights: dict[str, Any] | None = None

    def on_epoch_end(self, fit: Fit) -> None:
        """Compare; stop the run after `patience` epochs."""
        value = _monitored(fit, self.monitor, "EarlyStopping")
        if is_better(value, self.best, self.mode, self.min_delta):
            self.best, self.best_epoch = value, fit.epoch
            if self.restore_best:
                state = fit.model.state_dict()
                self._weights = {name: value.clone() for name, value in state.items()}
        elif fit.epoch - self.best_epoch >= self.patience:
            fit.stop = True

    def on_fit_end(self, fit: Fit) -> None:
        """Restore the best parameters, if asked for."""
        if self._weights is not None:
            fit.model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """The best value so far, its epoch, and its parameters."""
        return {"best": self.best, "best_epoch": self.best_epoch, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        self._weights = state["weights"]


class Checkpoint(Callback):
    """Saves the whole run after every epoch; a run that finds the file goes on from it.

    The file holds the model, the optimiser, the schedule, the history, the random generators and
    the other callbacks, so the resumed run gives the same losses as one that was never interrupted.
    It is replaced atomically: a kill at any moment leaves a complete one.

    Args:
        path: the file, which `minigrad.load` reads.
        every: also save after each that many batches of an epoch. A resumed run then reads the
            batches before again, without training on them. A dataset whose samples depend on more
            than their index and the process's random generators gives others.
        resume: go on from the file if it exists; False begins anew.
        best: another file, for the state dict of the model of the best epoch.
        monitor, mode: the column that says which is best, see `EarlyStopping`.
    """

    saves_others = True  # after them, so that their state is that of this moment

    def __init__(
        self,
        path: str | os.PathLike,
        every: int | None = None,
        resume: bool = True,
        best: str | os.PathLike | None = None,
        monitor: str = "valid_loss",
        mode: str | None = None,
    ) -> None:
        if every is not None and every < 1:
            raise ValueError(f"Checkpoint: every must be at least 1, got {every}")
        self.path, self.every, self.resume, self.best = os.fspath(path), every, resume, best
        self.monitor, self.mode = monitor, _mode(mode, monitor, "Checkpoint")
        self._best = -math.inf if self.mode == "max" else math.inf

    def on_fit_begin(self, fit: Fit) -> None:
        """Restore the run that the file holds."""
        if self.resume and os.path.exists(self.path):
            fit.load_state_dict(serialization.load(self.path, map_location=fit.device))

    def on_batch_end(self, fit: Fit) -> None:
        """Save, if it is time."""
        if self.every is not None and fit.batch % self.every == 0:
            serialization.save(fit.state_dict(), self.path)

    def on_epoch_end(self, fit: Fit) -> None:
        """Save."""
        if self.best is not None:
            value = _monitored(fit, self.monitor, "Checkpoint")
            if is_better(value, self._best, self.mode):
                self._best = value
                serialization.save(fit.model.state_dict(), self.best)
        serialization.save(fit.state_dict(), self.path)

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"best": self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._best = state["best"]


class CSVLogger(Callback):
    """Writes the history to a file of comma-separated values after every epoch."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = path

    def on_epoch_end(self, fit: Fit) -> None:
        """Write all rows."""
        fit.history.to_csv(self.path)


class TensorBoard(Callback):
    """Writes the columns of the history as scalars for TensorBoard, by epoch.

    log_dir: the folder, by default one in `runs`, as `SummaryWriter` does.
    """

    def __init__(self, log_dir: str | os.PathLike | None = None) -> None:
        self.log_dir = log_dir
        self._writer: SummaryWriter | None = None

    def on_fit_begin(self, fit: Fit) -> None:
        """Open the file."""
        self._writer = SummaryWriter(self.log_dir)

    def on_epoch_end(self, fit: Fit) -> None:
        """Add the last row."""
        assert self._writer is not None
        for name, value in fit.history.rows[-1].items():
            if name != "epoch":
                self._writer.add_scalar(name, value, fit.epoch)

    def on_fit_end(self, fit: Fit) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


class Plot(Callback):
    """Draws the curves of the history to a file (.png, .svg, ...) after every epoch."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = path

    def on_epoch_end(self, fit: Fit) -> None:
        """Draw all rows."""
        fit.history.plot(self.path)
