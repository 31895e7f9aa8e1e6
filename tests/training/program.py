"""A run of `fit` that a test kills and starts again: arguments are its folder, the workers of its
loader and the batches between checkpoints. Prints a line per batch; the history is its output."""

import json
import random
import sys
from pathlib import Path

import numpy as np

import minigrad
from minigrad import nn
from minigrad.training import Callback, Checkpoint, CSVLogger, EarlyStopping
from minigrad.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    """Samples with noise of all three random generators."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int):
        x = minigrad.full((4,), index / 60) + 0.1 * minigrad.randn(4)
        return x + random.random() * 0.1 + np.random.rand() * 0.1, index % 3


class Announce(Callback):
    """A line per batch, for the test to count; an interrupt after `last` of them."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.count = last, 0

    def on_batch_end(self, fit) -> None:
        print(fit.epoch, fit.batch, flush=True)
        self.count += 1
        if self.count == self.last:
            raise KeyboardInterrupt


def main(folder: str, workers: int, every: int, last: int | None = None) -> None:
    for seed in (minigrad.manual_seed, random.seed, np.random.seed):
        seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = minigrad.optim.Adam(model.parameters(), lr=0.02)
    generator = minigrad.Generator().manual_seed(1)
    history = minigrad.fit(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        DataLoader(Noisy(), 8, True, num_workers=workers, generator=generator),
        DataLoader(Noisy(), 30),
        epochs=4,
        metrics=["accuracy"],
        callbacks=[
            Checkpoint(Path(folder, "run.pt"), every or None),
            CSVLogger(Path(folder, "log.csv")),
            EarlyStopping(patience=20, restore_best=True),
            Announce(last),
        ],
        scheduler=minigrad.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=32),
        scheduler_every="batch",
        progress=False,
    )
    for row in history:
        del row["seconds"]
    final = [p.sum().item() for p in model.parameters()]
    Path(folder, "result.json").write_text(json.dumps([history.rows, final]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
