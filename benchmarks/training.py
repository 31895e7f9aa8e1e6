"""Training steps of minigrad beside torch on the CPU, with the same number of threads.

    python -m benchmarks.training [--threads 1] [--only cnn] [--json]

A step is zero_grad, forward, loss, backward and the optimiser's update of one fixed batch. Both
train the same network from the same weights. The losses after the same number of steps are
compared, so that both do equal work. Without torch, only minigrad's times are shown.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import measure
import numpy as np

import minigrad
from kernels import simt
from minigrad.commands import models

CHECK_STEPS = 5


@dataclass
class Case:
    """One network, its input, its loss and its optimiser (with torch's names)."""

    name: str
    build: Callable[[ModuleType], object]
    input_shape: tuple[int, ...]
    loss: str
    optimizer: str


def deep_mlp(nn: ModuleType):
    layers = []
    for _ in range(49):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


CASES = [
    Case(
        "cnn 28x28, batch 32", lambda nn: models.cnn(nn, 1, 28, 28), (32, 1, 28, 28), "ce", "Adam"
    ),
    Case(
        "cnn 28x28, batch 256", lambda nn: models.cnn(nn, 1, 28, 28), (256, 1, 28, 28), "ce", "Adam"
    ),
    # the size of `minigrad train`'s digits; small planes use other versions than large ones
    Case("cnn 8x8, batch 64", lambda nn: models.cnn(nn, 1, 8, 8), (64, 1, 8, 8), "ce", "Adam"),
    Case(
        "mlp 784-512-256-10, batch 128",
        lambda nn: models.mlp(nn, 1, 28, 28),
        (128, 1, 28, 28),
        "ce",
        "Adam",
    ),
    Case("linear 10-1, batch 32", lambda nn: nn.Linear(10, 1), (32, 10), "mse", "SGD"),
    Case("mlp of 50 layers of 64, batch 64", deep_mlp, (64, 64), "ce", "Adam"),
]


def batch(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(case.input_shape, dtype=np.float32)
    if case.loss == "mse":
        return x, rng.standard_normal((len(x), 1), dtype=np.float32)
    return x, rng.integers(0, 10, len(x))


def make_step(library: ModuleType, case: Case, weights: dict[str, np.ndarray] | None):
    """The step as a function that returns the loss, and the model that it trains."""
    model = case.build(library.nn)
    if weights is not None:
        model.load_state_dict({name: library.from_numpy(w) for name, w in weights.items()})
    optimizer = getattr(library.optim, case.optimizer)(model.parameters(), lr=1e-3)
    x, y = (library.from_numpy(array) for array in batch(case))
    functional = library.nn.functional
    loss_of = functional.mse_loss if case.loss == "mse" else functional.cross_entropy

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def run(case: Case, torch: ModuleType | None, turns: int) -> dict:
    minigrad.manual_seed(0)
    weights = None
    if torch is not None:
        torch.manual_seed(0)
        model = case.build(torch.nn)
        weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    steps = {"minigrad": make_step(minigrad, case, weights)[0]}
    if torch is not None:
        steps["torch"] = make_step(torch, case, weights)[0]
    losses = {
        name: [float(step().item()) for _ in range(CHECK_STEPS)] for name, step in steps.items()
    }
    row = {"case": case.name, **measure.side_by_side(steps, turns=turns)}
    if torch is not None:
        row["ratio"] = row["minigrad"].median / row["torch"].median
        row["loss_difference"] = max(
            abs(a - b) / abs(b) for a, b in zip(losses["minigrad"], losses["torch"], strict=True)
        )
    return row


def show(row: dict) -> None:
    line = f"{row['case']:<34} minigrad {row['minigrad']}"
    if "torch" in row:
        line += f"   torch {row['torch']}   ratio {row['ratio']:5.2f}"
        line += f"   losses differ by {row['loss_difference']:.0e}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--turns", type=int, default=15, help="turns of each; default: 15")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    simt.set_num_threads(args.threads)
    torch = None
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(args.threads)
    print(f"backend {minigrad.backends.get()}, {args.threads} thread(s)")
    rows = []
    for case in CASES:
        if args.only in case.name:
            rows.append(run(case, torch, args.turns))
            show(rows[-1])
    if torch is None:
        print("torch is not installed: no ratios (pip install 'minigrad[parity]')")
    if args.json:
        measure.write_json(
            measure.results_path(f"training-{args.threads}-threads"), args.threads, rows
        )


if __name__ == "__main__":
    main()
