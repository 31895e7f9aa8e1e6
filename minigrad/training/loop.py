"""`fit`: the loop over epochs and batches, and the class of its callbacks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tqdm import tqdm

import minigrad
from minigrad.nn import Module
from minigrad.optim import Optimizer
from minigrad.optim.lr_scheduler import ReduceLROnPlateau
from minigrad.tensor import Tensor
from minigrad.training import randomness
from minigrad.training.history import History, line
from minigrad.utils.data import DataLoader, Dataset, TensorDataset

Metric = Callable[[Any, Any], Any]


class Callback:
    """Called by `fit` at five moments, each with the `Fit` that runs. A subclass defines some.

    A callback that has `state_dict` and `load_state_dict` is part of checkpoints.

    >>> import minigrad
    >>> class Announce(minigrad.training.Callback):
    ...     def on_epoch_end(self, fit):
    ...         print("epoch", fit.epoch, "of", fit.epochs)
    """

    def on_fit_begin(self, fit: Fit) -> None:
        """Before the first epoch; the model is on its device."""

    def on_epoch_begin(self, fit: Fit) -> None:
        """Before an epoch."""

    def on_batch_end(self, fit: Fit) -> None:
        """After the step of a batch: `fit.batch` batches of this epoch are done."""

    def on_epoch_end(self, fit: Fit) -> None:
        """After an epoch: its row is the last of `fit.history`, and `fit.epoch` counts it."""

    def on_fit_end(self, fit: Fit) -> None:
        """After the last epoch, and after an exception."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""


def accuracy(output: Tensor, target: Tensor) -> float:
    """The share of rows whose largest score is at the target's class.

    output: (N, classes, ...); target: (N, ...) of classes. In [0, 1].

    >>> import minigrad
    >>> scores = minigrad.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    >>> round(minigrad.training.accuracy(scores, minigrad.tensor([0, 1, 1])), 4)
    0.6667
    """
    return float((output.argmax(1) == target).numpy(force=True).mean())


def fit(
    model: Module,
    loss: Metric,
    optimizer: Optimizer,
    train: Any,
    valid: Any = None,
    epochs: int = 1,
    metrics: Mapping[str, Metric] | Sequence[str | Metric] = (),
    callbacks: Iterable[Callback] = (),
    *,
    batch_size: int = 32,
    scheduler: Any = None,
    scheduler_every: str = "epoch",
    device: Any = None,
    progress: bool | str = True,
) -> History:
    """Train a model, and measure it after every epoch.

    Args:
        model: called with the inputs of a batch; moved to the device.
        loss: `loss(output, target)`, a tensor of one element: the mean over the batch.
        optimizer: of the parameters of the model.
        train, valid: a DataLoader, a Dataset, or a tuple of tensors or arrays. The last element of
            a batch is the target, those before are the inputs. Of a Dataset or a tuple batches of
            `batch_size` are made, for training in a new random order every epoch.
        epochs: of the whole run, those before a resumed checkpoint included.
        metrics: functions like `loss`, by name, whose means over the samples are columns of the
            history; "accuracy" names the one of this package.
        callbacks: see `minigrad.training.Callback`; checkpoints come after the others.
        scheduler: a schedule of learning rates, stepped after every epoch, or after every batch if
            `scheduler_every` is "batch". `ReduceLROnPlateau` gets the validation loss.
        device: by default a GPU where there is one, else the CPU. Batches are moved to it.
        progress: a bar per epoch (on a terminal), and a line with its results; "bar" for bars only.
    Returns:
        The history: `history["loss"]` and so on; see `History`.
    Raises:
        FloatingPointError: the loss became infinite or NaN.
        TypeError: `train` or `valid` is something else; a batch without a target.

    >>> import minigrad
    >>> from minigrad import nn
    >>> x = minigrad.linspace(-1, 1, 64).reshape(64, 1)
    >>> model = nn.Linear(1, 1)
    >>> sgd = minigrad.optim.SGD(model.parameters(), lr=0.5)
    >>> history = minigrad.fit(model, nn.MSELoss(), sgd, (x, 2 * x), epochs=9, progress=False)
    >>> history["loss"][-1] < 1e-3
    True
    """
    run = Fit(model, loss, optimizer, train, valid, epochs, metrics, callbacks)
    run.train_loader = loader_of(train, batch_size, True)
    run.valid_loader = None if valid is None else loader_of(valid, batch_size, False)
    run.device, run.progress = chosen_device(device), progress
    if scheduler_every not in ("epoch", "batch"):
        raise ValueError(f"fit: scheduler_every is 'epoch' or 'batch', not {scheduler_every!r}")
    run.scheduler, run.scheduler_every = scheduler, scheduler_every
    return run.run()


def loader_of(source: Any, batch_size: int, shuffle: bool) -> Any:
    """A DataLoader of a data set or of arrays; anything else that can be iterated as it is."""
    if isinstance(source, tuple):
        source = TensorDataset(*map(minigrad.as_tensor, source))
    if isinstance(source, minigrad.utils.data.IterableDataset):
        return DataLoader(source, batch_size)
    if isinstance(source, Dataset):
        return DataLoader(source, batch_size, shuffle)
    if not hasattr(source, "__iter__") or isinstance(source, Tensor | Iterator):
        raise TypeError(
            "fit: expected a DataLoader, a Dataset or a tuple of tensors, such as (x, y), got "
            f"{type(source).__name__}"
        )
    return source


def chosen_device(device: Any) -> minigrad.device:
    """The device that is meant: the given one, else a GPU where there is one, else the CPU."""
    if device is None:
        device = "cuda" if minigrad.cuda.is_available() else "cpu"
    return minigrad.device(device)


class Fit:
    """A run of `fit`, which its callbacks are given.

    Attributes:
        model, optimizer, scheduler, device: what trains, and where.
        epoch: how many epochs are done; epochs: how many there shall be.
        batch: how many batches of this epoch are done.
        history: the rows of the epochs that are done.
        stop: a callback sets it, to end the run after this epoch.
    """

    train_loader: Any
    valid_loader: Any
    device: minigrad.device
    progress: bool | str
    scheduler: Any
    scheduler_every: str

    def __init__(
        self,
        model: Module,
        loss: Metric,
        optimizer: Optimizer,
        train: Any,
        valid: Any,
        epochs: int,
        metrics: Any,
        callbacks: Iterable[Callback],
    ) -> None:
        self.model, self.loss, self.optimizer, self.epochs = model, loss, optimizer, epochs
        self.metrics = _named(metrics)
        self.callbacks = sorted(callbacks, key=lambda c: getattr(c, "saves_others", False))
        self.history = History()
        self.epoch = self.batch = 0
        self.stop = False
        self._totals: dict[str, float] = {}
        self._rate = 0.0  # the learning rate at the beginning of the epoch
        self._begin: dict[str, Any] = {}  # the random generators at the beginning of the epoch
        self._resumed: dict[str, Any] | None = None  # and those where it goes on

    def run(self) -> History:
        """Train until `epochs` epochs are done."""
        self.model.to(self.device)
        try:
            self._call("on_fit_begin")
            while self.epoch < self.epochs and not self.stop:
                self._call("on_epoch_begin")
                self._one_epoch()
                self._call("on_epoch_end")
        finally:
            self._call("on_fit_end")
        return self.history

    @property
    def _loaders(self) -> list[Any]:
        return [self.train_loader, self.valid_loader]

    def _call(self, moment: str) -> None:
        for callback in self.callbacks:
            getattr(callback, moment)(self)

    # ---------------------------------------------------------------- an epoch

    def _one_epoch(self) -> None:
        started = time.perf_counter()
        if self._resumed is None:
            self._rate = float(self.optimizer.param_groups[0]["lr"])
        row: dict[str, Any] = {"epoch": self.epoch + 1, **self._train()}
        if self.valid_loader is not None:
            row |= {f"valid_{name}": value for name, value in self._measure().items()}
        row |= {"lr": self._rate, "seconds": time.perf_counter() - started}
        if self.scheduler is not None and self.scheduler_every == "epoch":
            if isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step(row.get("valid_loss", row["loss"]))
            else:
                self.scheduler.step()
        self.history.rows.append(row)
        self.epoch += 1
        self.batch, self._totals = 0, {}
        if self.progress is True:
            tqdm.write(line(row))

    def _train(self) -> dict[str, float]:
        self.model.train()
        batches = self._batches()
        total = len(self.train_loader) if _has_length(self.train_loader) else None
        name = f"epoch {self.epoch + 1}/{self.epochs}"
        hidden = None if self.progress else True  # None: hidden where the output is no terminal
        with tqdm(batches, name, total, initial=self.batch, leave=False, disable=hidden) as bar:
            for batch in bar:
                value = self._step(batch)
                bar.set_postfix(loss=f"{value:.4f}", refresh=False)
                self._call("on_batch_end")
        return self._means()

    def _batches(self) -> Iterator[Any]:
        """The batches of this epoch; after a resume within one, those that are left."""
        if self._resumed is None:
            self._begin = randomness.get_state(self._loaders)
            return iter(self.train_loader)
        # Read again, with the same random numbers, what had been read.
        randomness.set_state(self._begin, self._loaders)
        batches = iter(self.train_loader)
        for _ in islice(batches, self.batch):
            pass
        randomness.set_state(self._resumed, None)
        self._resumed = None
        return batches

    def _step(self, batch: Any) -> float:
        """Train on a batch; its loss."""
        inputs, target = self._split(batch)
        output = self.model(*inputs)
        loss = self.loss(output, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.scheduler is not None and self.scheduler_every == "batch":
            self.scheduler.step()
        value = loss.item()
        self.batch += 1
        if not math.isfinite(value):
            raise FloatingPointError(
                f"fit: the loss became {value} in batch {self.batch} of epoch {self.epoch + 1}; a "
                "smaller learning rate or nn.utils.clip_grad_norm_ may help"
            )
        self._count(value, output, target)
        return value

    def _measure(self) -> dict[str, float]:
        """Means of the loss and the metrics over the validation data."""
        kept, self._totals = self._totals, {}
        self.model.eval()
        with minigrad.no_grad():
            for batch in self.valid_loader:
                inputs, target = self._split(batch)
                output = self.model(*inputs)
                self._count(self.loss(output, target).item(), output, target)
        means, self._totals = self._means(), kept
        return means

    def _split(self, batch: Any) -> tuple[Sequence[Any], Any]:
        """The inputs and the target of a batch, on the device."""
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise TypeError(
                "fit: expected batches of inputs and a target, such as (x, y), got "
                f"{type(batch).__name__}; a collate_fn of the DataLoader can make them"
            )
        *inputs, target = self._moved(list(batch))
        return inputs, target

    def _moved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self.device, non_blocking=True)
        if isinstance(value, dict):
            return {name: self._moved(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            parts = [self._moved(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _count(self, loss: float, output: Any, target: Any) -> None:
        count = len(target) if _has_length(target) else 1
        values = {"loss": loss}
        if self.metrics:
            with minigrad.no_grad():
                output = output.detach() if isinstance(output, Tensor) else output
                values |= {name: float(fn(output, target)) for name, fn in self.metrics.items()}
        for name, value in (values | {"count": 1.0}).items():
            self._totals[name] = self._totals.get(name, 0.0) + value * count

    def _means(self) -> dict[str, float]:
        if not self._totals:
            raise ValueError("fit: there were no batches")
        count = self._totals["count"]
        return {name: total / count for name, total in self._totals.items() if name != "count"}

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on; `minigrad.save` writes it."""
        now = randomness.get_state(self._loaders)
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "stop": self.stop,
            "totals": dict(self._totals),
            "rate": self._rate,
            "history": self.history.rows,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "callbacks": [callback.state_dict() for callback in self.callbacks],
            "random": now,
            "random_begin": self._begin if self.batch else now,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, of a run with the same model, optimiser and callbacks."""
        if len(state["callbacks"]) != len(self.callbacks):
            raise ValueError(
                f"fit: the checkpoint is of a run with {len(state['callbacks'])} callbacks, this "
                f"one has {len(self.callbacks)}"
            )
        if (state["scheduler"] is None) != (self.scheduler is None):
            raise ValueError("fit: only one of this run and its checkpoint has a scheduler")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        for callback, kept in zip(self.callbacks, state["callbacks"]):
            callback.load_state_dict(kept)
        self.history.rows = list(state["history"])
        self.epoch, self.batch, self.stop = state["epoch"], state["batch"], state["stop"]
        self._totals, self._rate = dict(state["totals"]), state["rate"]
        self._begin = state["random_begin"]
        randomness.set_state(state["random"], self._loaders)
        self._resumed = state["random"] if self.batch else None


def _named(metrics: Any) -> dict[str, Metric]:
    """Metrics by name, of a dict or of names and functions."""
    if isinstance(metrics, Mapping):
        return dict(metrics)
    found: dict[str, Metric] = {}
    for metric in metrics or ():
        if metric == "accuracy":
            found["accuracy"] = accuracy
        elif callable(metric):
            found[getattr(metric, "__name__", type(metric).__name__)] = metric
        else:
            raise ValueError(f"fit: expected 'accuracy' or a function as a metric, got {metric!r}")
    return found


def _has_length(value: Any) -> bool:
    try:
        len(value)
    except TypeError:
        return False
    return True
