"""A GPT trained on texts of many lengths, epoch by epoch, minigrad beside torch on the CPU.

    python -m benchmarks.lengths [--lengths 200] [--epochs 5] [--threads 1] [--json]

Each step has a batch of 4 texts of another length, in another order each epoch, so that each epoch
has as many shapes as there are lengths. The first epochs meet shapes that are new, or were met
once; kernels are compiled before, on texts of a few lengths. A time is the mean of its steps.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from types import ModuleType

import measure
import numpy as np
from networks import RATE, gpt_model, labels

import minigrad
from kernels import simt

SHORTEST = 10
WARM_UP = (5, 6, 7, 8, 9, 9, 9)


def step_of(library: ModuleType, longest: int):
    """A function of a length that trains a GPT on texts of it."""
    library.manual_seed(0)
    model = gpt_model(library, block=longest)
    update = library.optim.AdamW(model.parameters(), lr=RATE)
    texts = labels(library, 4, longest + 1, classes=28)

    def step(length: int) -> None:
        scores, wanted = model(texts[:, :length]), texts[:, 1 : length + 1]
        update.zero_grad()
        library.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten()).backward()
        update.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, default=200, help="how many; default: 200")
    parser.add_argument("--epochs", type=int, default=5, help="default: 5")
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    simt.set_num_threads(args.threads)
    libraries = {"minigrad": minigrad}
    if importlib.util.find_spec("torch"):
        libraries["torch"] = importlib.import_module("torch")
        libraries["torch"].set_num_threads(args.threads)
    lengths = np.arange(SHORTEST, SHORTEST + args.lengths)
    steps = {name: step_of(library, lengths[-1]) for name, library in libraries.items()}
    for step in steps.values():
        for length in (*WARM_UP, lengths[-1]):
            step(int(length))
    rng, rows = np.random.default_rng(0), []
    for epoch in range(args.epochs):
        order, row = rng.permutation(lengths).tolist(), {"epoch": epoch + 1}
        for name, step in steps.items():
            started = time.perf_counter()
            for length in order:
                step(length)
            row[name] = (time.perf_counter() - started) / len(order)
        rows.append(row)
        times = [f"{name} {measure.format_seconds(row[name]):>8}" for name in steps]
        print(f"epoch {epoch + 1}: {'   '.join(times)} a step", flush=True)
    if args.json:
        measure.write_json(
            measure.results_path(f"lengths-{args.threads}-threads"), args.threads, rows
        )


if __name__ == "__main__":
    main()
