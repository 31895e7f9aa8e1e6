"""The time of small operations beside torch's: Python and the engine, almost no arithmetic.

    python -m benchmarks.overhead [NAME ...] [--json]

NAME: only these rows. Each row is the least processor time of many turns, ours and torch's in
turns, on one thread: other programs on the machine hardly change it. The worst comes first. The
targets: no row above 3 times torch's time, most under 2, `import minigrad` under 0.3 s.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import measure
import numpy as np

import minigrad
from kernels import simt

Calls = dict[str, Callable[[], object]]


class Operands:
    """The same small tensors in either library."""

    def __init__(self, library: ModuleType) -> None:
        rng = np.random.default_rng(0)

        def normal(*shape: int):
            return library.tensor(rng.standard_normal(shape).astype(np.float32))

        self.library, self.normal = library, normal
        self.a, self.b = normal(8, 8), normal(8, 8)
        self.v, self.x, self.image = normal(8), normal(4, 8), normal(1, 1, 8, 8)
        self.i = library.tensor(rng.integers(0, 8, (4,)))
        self.w = normal(8, 8).requires_grad_()


def pointwise(o: Operands) -> Calls:
    a, b, w, lib = o.a, o.b, o.w, o.library
    relu, gelu = lib.nn.functional.relu, lib.nn.functional.gelu
    return {
        "a + b": lambda: a + b,
        "a + b, with a graph": lambda: w + b,
        "a + 1": lambda: a + 1,
        "a * 2.5": lambda: a * 2.5,
        "1 - a": lambda: 1 - a,
        "-a": lambda: -a,
        "a / b": lambda: a / b,
        "a ** 2": lambda: a**2,
        "a > b": lambda: a > b,
        "a == b": lambda: a == b,
        "where": lambda: lib.where(a > 0, a, b),
        "relu": lambda: relu(a),
        "gelu": lambda: gelu(a),
        "exp": lambda: a.exp(),
        "tanh": lambda: a.tanh(),
        "sigmoid": lambda: a.sigmoid(),
        "clamp": lambda: a.clamp(-1, 1),
        "masked_fill": lambda: a.masked_fill(b > 0, 0.0),
        "to float64": lambda: a.to(lib.float64),
        "long": lambda: a.long(),
    }


def over_dimensions(o: Operands) -> Calls:
    a, b, lib = o.a, o.b, o.library
    index, log_softmax = o.i[:, None], lib.nn.functional.log_softmax
    return {
        "a @ b": lambda: a @ b,
        "a.t() @ b": lambda: a.t() @ b,
        "einsum": lambda: lib.einsum("ij,jk->ik", a, b),
        "sum": lambda: a.sum(),
        "sum, dim 1": lambda: a.sum(1),
        "mean": lambda: a.mean(),
        "max": lambda: a.max(),
        "max, dim 1": lambda: a.max(1),
        "argmax": lambda: a.argmax(1),
        "softmax": lambda: a.softmax(-1),
        "log_softmax": lambda: log_softmax(a, -1),
        "var": lambda: a.var(),
        "norm": lambda: a.norm(),
        "cumsum": lambda: a.cumsum(0),
        "sort": lambda: a.sort(),
        "topk": lambda: a.topk(2),
        "gather": lambda: a.gather(1, index),
        "tril": lambda: lib.tril(a),
        "triu": lambda: lib.triu(a),
        "allclose": lambda: lib.allclose(a, a),
    }


def shapes(o: Operands) -> Calls:
    a, b, v, i, lib = o.a, o.b, o.v, o.i, o.library
    cube, pad = o.normal(3, 8, 4), lib.nn.functional.pad
    return {
        "a.T": lambda: a.T,
        "a[0]": lambda: a[0],
        "a[:, 1]": lambda: a[:, 1],
        "a[1:3]": lambda: a[1:3],
        "a[::2]": lambda: a[::2],
        "a[None]": lambda: a[None],
        "a[..., 0]": lambda: a[..., 0],
        "a[:, None]": lambda: a[:, None],
        "cube[:, i]": lambda: cube[:, i],
        "a[i]": lambda: a[i],
        "a[a > 0]": lambda: a[a > 0],
        "reshape": lambda: a.reshape(4, 16),
        "view": lambda: a.view(-1),
        "permute": lambda: a.permute(1, 0),
        "transpose": lambda: a.transpose(0, 1),
        "unsqueeze": lambda: a.unsqueeze(0),
        "squeeze": lambda: a.squeeze(),
        "expand": lambda: v.expand(8, 8),
        "flip": lambda: a.flip(0),
        "roll": lambda: a.roll(1, 0),
        "pad": lambda: pad(a, (1, 1)),
        "type_as": lambda: a.type_as(b),
        "flatten": lambda: a.flatten(),
        "contiguous": lambda: a.t().contiguous(),
        "clone": lambda: a.clone(),
        "detach": lambda: a.detach(),
        "cat": lambda: lib.cat([a, b]),
        "stack": lambda: lib.stack([a, b]),
        "split": lambda: a.split(2),
        "chunk": lambda: a.chunk(2),
        "list(a)": lambda: list(a),
    }


def making(o: Operands) -> Calls:
    a, lib = o.a, o.library
    return {
        "zeros": lambda: lib.zeros(8, 8),
        "zeros_like": lambda: lib.zeros_like(a),
        "ones": lambda: lib.ones(8),
        "arange": lambda: lib.arange(8),
        "rand": lambda: lib.rand(8, 8),
        "randn": lambda: lib.randn(8, 8),
        "tensor([1.0, 2.0])": lambda: lib.tensor([1.0, 2.0]),
        "tensor(1.0)": lambda: lib.tensor(1.0),
    }


def in_place(o: Operands) -> Calls:
    a, b, v = o.a, o.b, o.v
    return {
        "add_": lambda: a.add_(0.0),
        "mul_": lambda: a.mul_(1.0),
        "copy_": lambda: a.copy_(b),
        "fill_": lambda: v.fill_(1.0),
        "normal_": lambda: v.normal_(),
        "uniform_": lambda: v.uniform_(),
        "a[0] = 1": lambda: a.__setitem__(0, 1.0),
    }


def reading(o: Operands) -> Calls:
    a = o.a
    return {
        "a[0, 0].item()": lambda: a[0, 0].item(),
        "numpy": lambda: a.numpy(),
        "tolist": lambda: a.tolist(),
        "shape": lambda: a.shape,
        "size": lambda: a.size(0),
        "len": lambda: len(a),
        "bool": lambda: bool(a[0, 0] > 0),
        "repr": lambda: repr(a),
    }


def networks(o: Operands) -> Calls:
    lib, a, x, i, image, target = o.library, o.a, o.x, o.i, o.image, o.i
    nn, functional = lib.nn, lib.nn.functional
    linear, layer_norm, embedding = nn.Linear(8, 8), nn.LayerNorm(8), nn.Embedding(8, 8)
    batch_norm, conv, cell = nn.BatchNorm1d(8), nn.Conv2d(1, 2, 3), nn.GRUCell(8, 8)
    q = a[None]
    return {
        "linear": lambda: linear(x),
        "layer_norm": lambda: layer_norm(x),
        "embedding": lambda: embedding(i),
        "batch_norm": lambda: batch_norm(x),
        "conv": lambda: conv(image),
        "GRU cell": lambda: cell(x),
        "cross_entropy": lambda: functional.cross_entropy(x, target),
        "mse_loss": lambda: functional.mse_loss(x, x),
        "dropout": lambda: functional.dropout(a, 0.5),
        "attention": lambda: functional.scaled_dot_product_attention(q, q, q),
    }


def training(o: Operands) -> Calls:
    lib, w, x, y = o.library, o.w, o.x, o.normal(4, 1)
    nn, functional, target = lib.nn, lib.nn.functional, o.i
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    line = nn.Linear(8, 1)
    line_sgd = lib.optim.SGD(line.parameters(), lr=0.01)
    weights = [o.normal(8, 8).requires_grad_() for _ in range(2)]
    for weight in weights:
        weight.grad = o.normal(8, 8)
    sgd = lib.optim.SGD(weights[:1], lr=0.01, momentum=0.9)
    adam = lib.optim.Adam(weights[1:], lr=0.01)

    def step():
        line_sgd.zero_grad()
        functional.mse_loss(line(x), y).backward()
        line_sgd.step()

    def no_grad():
        with lib.no_grad():
            pass

    def small_backward():
        w.grad = None
        (w * w).sum().backward()

    def gradient(function):
        def call():
            w.grad = cube.grad = None
            function().backward(ones)

        ones = lib.ones_like(function())
        return call

    cube, linear = o.normal(3, 8, 8).requires_grad_(), lib.nn.functional.linear

    return {
        "no_grad": no_grad,
        "(a * a).sum().backward()": small_backward,
        "grad of (a * a).sum()": lambda: lib.autograd.grad((w * w).sum(), w),
        "view, backward": gradient(lambda: w.view(-1)),
        "transpose, backward": gradient(lambda: w.transpose(0, 1)),
        "a[:, None], backward": gradient(lambda: w[:, None]),
        "max, dim 1, backward": gradient(lambda: w.max(1)[0]),
        "cube @ w, backward": gradient(lambda: cube @ w),
        "linear, backward": gradient(lambda: linear(cube, w)),
        "MLP, backward": lambda: functional.cross_entropy(model(x), target).backward(),
        "Linear(8, 1), SGD step": step,
        "SGD": sgd.step,
        "Adam": adam.step,
        "zero_grad": lambda: sgd.zero_grad(set_to_none=False),
    }


GROUPS = (pointwise, over_dimensions, shapes, making, in_place, reading, networks, training)


def cases(library: ModuleType) -> Calls:
    """Every operation, by name; each group has operands of its own."""
    return {name: call for group in GROUPS for name, call in group(Operands(library)).items()}


def import_seconds(module: str) -> float:
    """The least processor time to import a module, of five new processes."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=measure.ROOT,
        )
        for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


def operation_rows(libraries: dict[str, ModuleType], names: list[str]) -> list[dict]:
    """Per operation the seconds in each library, and ours over torch's; the worst first."""
    calls = {key: cases(library) for key, library in libraries.items()}
    rows: list[dict] = []
    for name in names or calls["minigrad"]:
        row = {"case": name}
        row |= measure.least_processor_time({key: calls[key][name] for key in calls})
        if "torch" in row:
            row["ratio"] = row["minigrad"] / row["torch"]
        rows.append(row)
    return sorted(rows, key=lambda row: -row.get("ratio", row["minigrad"]))


def show(row: dict) -> None:
    line = f"{row['case']:<26} minigrad {measure.format_seconds(row['minigrad']):>8}"
    if "torch" in row:
        line += f"   torch {measure.format_seconds(row['torch']):>8}   ratio {row['ratio']:5.2f}"
    print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these rows")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    args = parser.parse_args()
    libraries = {"minigrad": minigrad}
    simt.set_num_threads(1)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        libraries["torch"] = torch
    unknown = set(args.names) - set(cases(minigrad))
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}")
    rows = operation_rows(libraries, args.names)
    for row in rows:
        show(row)
    for module in () if args.names else ("numpy", *libraries):
        seconds = import_seconds(module)
        print(f"import {module:<19} {measure.format_seconds(seconds):>9}")
        rows.append({"case": f"import {module}", "seconds": seconds})
    if "torch" not in libraries:
        print("torch is not installed: no ratios (pip install 'minigrad[parity]')")
    if args.json:
        measure.write_json(measure.results_path("overhead"), 1, rows)


if __name__ == "__main__":
    main()
