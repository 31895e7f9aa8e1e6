"""How the time of a step grows, beside torch: with the batch, width, depth, length, image, chain.

    minigrad bench growth [--only depth] [--plot DIR] [--json]

Each case is a training step, or a chain of small operations and its gradient, over a factor of 64;
both libraries take turns. The slope is that of the logarithm of the time over the upper half of the
sizes: 1 is proportional, 2 quadratic. `threads` is another question: so many Python threads each
launch the same number of operations.
"""

from __future__ import annotations

import argparse
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import measure
import numpy as np
from networks import gpt_model, labels, normal, supervised

import minigrad
from kernels import simt


def mlp(library: ModuleType, width: int, depth: int) -> Any:
    nn = library.nn
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def batch(n: int) -> Callable:
    return supervised(lambda m: mlp(m, 256, 2), (n, 64))


def width(n: int) -> Callable:
    return supervised(lambda m: mlp(m, n, 2), (32, 64))


def depth(n: int) -> Callable:
    return supervised(lambda m: mlp(m, 64, n), (32, 64))


def image(n: int) -> Callable:
    def build(library: ModuleType) -> Any:
        nn = library.nn
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10))

    return supervised(build, (2, 3, n, n))


def length(n: int) -> Callable:
    """A GPT on texts of n characters."""

    def make(library: ModuleType) -> tuple[Any, Callable]:
        model = gpt_model(library, block=n)
        x, y = labels(library, 2, n, classes=28), labels(library, 2 * n, classes=28)

        def step() -> Any:
            model.zero_grad()
            loss = library.nn.functional.cross_entropy(model(x).flatten(0, 1), y)
            loss.backward()
            return loss

        return model, step

    return make


def chain(n: int) -> Callable:
    """n operations in a row, and back."""

    def make(library: ModuleType) -> tuple[Any, Callable]:
        start = normal(library, 4).requires_grad_()

        def step() -> Any:
            start.grad, x = None, start
            for _ in range(n // 2):
                x = x * 1.0001 + 0.001
            loss = x.sum()
            loss.backward()
            return loss

        return None, step

    return make


def threads(n: int) -> Callable:
    """n threads, each of which adds 200 times."""

    def make(library: ModuleType) -> tuple[Any, Callable]:
        a, b = normal(library, 32768), normal(library, 32768, seed=1)

        def launch() -> None:
            for _ in range(200):
                a + b

        def step() -> Any:
            workers = [threading.Thread(target=launch) for _ in range(n)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            return (a + b).sum()

        return None, step

    return make


CASES: dict[str, tuple[Callable[[int], Callable], list[int]]] = {
    "batch": (batch, [8, 32, 128, 512]),
    "width": (width, [16, 64, 256, 1024]),
    "depth": (depth, [2, 8, 32, 128]),
    "length": (length, [8, 32, 128, 512]),
    "image": (image, [8, 32, 128, 512]),
    "chain": (chain, [1600, 6400, 25600, 102400]),
    "threads": (threads, [1, 2, 4, 8]),
}


def run(name: str, n: int, torch: ModuleType | None, turns: int) -> dict:
    """One size of a case. AssertionError where the libraries' results differ."""
    make = CASES[name][0](n)
    minigrad.manual_seed(0)
    model, step = make(minigrad)
    row: dict[str, Any] = {"case": name, "n": n}
    if torch is None:
        return {**row, **measure.side_by_side({"minigrad": step}, turns, 0.05)}
    rival, rival_step = make(torch)
    if model is not None:
        weights = {key: w.numpy().copy() for key, w in rival.state_dict().items()}
        model.load_state_dict({key: minigrad.from_numpy(w) for key, w in weights.items()})
    losses = [float(one().detach()) for one in (step, rival_step)]
    np.testing.assert_allclose(*losses, rtol=1e-3, atol=1e-3, err_msg=f"{name} {n}")
    ours, theirs, ratio = measure.ratio(step, rival_step, turns, 0.05)
    return {**row, "minigrad": ours, "torch": theirs, "ratio": 1 / ratio.median}


def slope(rows: list[dict], library: str) -> float:
    """The exponent of the growth over the upper half of the sizes."""
    upper = rows[len(rows) // 2 - 1 :]
    seconds = [row[library].median for row in upper]
    return float(np.polyfit(np.log([row["n"] for row in upper]), np.log(seconds), 1)[0])


def draw(cases: dict[str, list[dict]], path: Path) -> None:
    """Write the times by size, one panel for each case."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = -(-len(cases) // 4)
    figure = Figure(figsize=(10, 2.8 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(lines, 4, squeeze=False).flat)
    for axes, (name, rows) in zip(panels, cases.items(), strict=False):
        sizes = [row["n"] for row in rows]
        for library, marker in (("minigrad", "o"), ("torch", "s")):
            if library in rows[0]:
                times = [row[library].median * 1e3 for row in rows]
                label = f"{library}, slope {slope(rows, library):.2f}"
                axes.plot(sizes, times, marker=marker, markersize=4, label=label)
        axes.set(xscale="log", yscale="log", title=name)
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=7)
        axes.minorticks_off()
        axes.tick_params(axis="y", labelsize=7)
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    for axes in panels[len(cases) :]:
        axes.set_axis_off()
    figure.supylabel("milliseconds", fontsize=9)
    path.mkdir(parents=True, exist_ok=True)
    figure.savefig(path / "growth.png", dpi=100)
    print(f"drawn: {path / 'growth.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--turns", type=int, default=5, help="turns of each; default: 5")
    parser.add_argument("--threads", type=int, default=1, help="of kernels; default: 1")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    parser.add_argument("--plot", metavar="DIR", help="draw growth.png there")
    args = parser.parse_args()
    simt.set_num_threads(args.threads)
    torch = None
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(args.threads)
    cases: dict[str, list[dict]] = {}
    for name, (_, sizes) in CASES.items():
        if args.only not in name:
            continue
        rows = cases[name] = []
        for n in sizes:
            rows.append(run(name, n, torch, args.turns))
            line = f"{name:<8} {n:>7}  minigrad {rows[-1]['minigrad']}"
            if torch is not None:
                line += f"   torch {rows[-1]['torch']}   ratio {rows[-1]['ratio']:5.2f}"
            print(line, flush=True)
        slopes = {key: slope(rows, key) for key in ("minigrad", "torch") if key in rows[0]}
        print(f"{name:<8} slope    " + ", ".join(f"{k} {v:.2f}" for k, v in slopes.items()))
        for row in rows:
            row |= {f"slope of {key}": value for key, value in slopes.items()}
    if args.json:
        path = measure.results_path(f"growth-{args.threads}-threads")
        measure.write_json(path, args.threads, [row for rows in cases.values() for row in rows])
    if args.plot:
        draw(cases, Path(args.plot))


if __name__ == "__main__":
    main()
