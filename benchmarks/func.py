"""Transformations of functions beside torch: `vmap`, and what is made of it.

    python -m benchmarks.func [--only PART,PART] [--json]

One thread, float32, the least processor time of many turns. The third column calls the function for
each element, as vmap does where it cannot call it for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import measure
import numpy as np

import minigrad
from kernels import simt
from minigrad.batching import vmap


def numbers(t: Any, *shape: int) -> Any:
    """A tensor of a library, the same in both."""
    draw = np.random.default_rng(sum(shape))
    return t.tensor(0.3 * draw.standard_normal(shape, np.float32))


def cnn(t: Any) -> Any:
    nn = t.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 25, 10)),
    )


def mlp(t: Any) -> Any:
    nn = t.nn
    return nn.Sequential(
        *(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10))
    )


def parameters(t: Any, model: Any) -> dict[str, Any]:
    return {name: numbers(t, *p.shape) for name, p in model.named_parameters()}


def gradients_per_sample(t: Any, model: Any, x: Any) -> Callable:
    own, y = parameters(t, model), t.arange(len(x)) % 10

    def loss(own: dict, x: Any, y: Any) -> Any:
        out = t.func.functional_call(model, own, (x.unsqueeze(0),))
        return t.nn.functional.cross_entropy(out, y.unsqueeze(0))

    each = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))
    return lambda: each(own, x, y)["0.weight"]


def ensemble(t: Any) -> Callable:
    model, x = mlp(t), numbers(t, 32, 64)
    own = {name: numbers(t, 10, *p.shape) for name, p in model.named_parameters()}
    call = t.func.vmap(lambda own: t.func.functional_call(model, own, (x,)))
    return lambda: call(own)


def masks(t: Any) -> Callable:
    padding = numbers(t, 4, 64) > 0
    call = lambda b, h, q, k: (k <= q) & padding[b, k]  # noqa: E731
    for place in (3, 2, 1, 0):
        call = t.func.vmap(call, tuple(0 if i == place else None for i in range(4)))
    indices = [t.arange(n) for n in (4, 1, 64, 64)]
    return lambda: call(*indices)


def laplacian(t: Any) -> Callable:
    """A step of a network that solves a differential equation."""
    nn, points = t.nn, numbers(t, 200, 2)
    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    own = {name: p.requires_grad_() for name, p in parameters(t, model).items()}

    def at(own: dict, x: Any) -> Any:
        return t.func.functional_call(model, own, (x,)).squeeze()

    second = t.func.vmap(lambda own, x: t.func.hessian(at, 1)(own, x).trace(), (None, 0))

    def step() -> Any:
        loss = (second(own, points) - 1).pow(2).mean()
        return t.autograd.grad(loss, own["0.weight"])[0]

    return step


def cases(t: Any) -> Iterator[tuple[str, Callable]]:
    """(name, a function that gives a tensor) of a library."""
    yield "gradients of 64 samples, CNN", gradients_per_sample(t, cnn(t), numbers(t, 64, 1, 28, 28))
    yield "gradients of 64 samples, MLP", gradients_per_sample(t, mlp(t), numbers(t, 64, 64))
    yield "ensemble of 10 MLPs", ensemble(t)
    w, x, rows = numbers(t, 50, 50), numbers(t, 50), numbers(t, 16, 50)
    second = t.func.hessian(lambda x: (t.tanh(w @ x) ** 2).sum())
    yield "hessian, 50 inputs", lambda: second(x)
    yield "vmap of it, 16 points", lambda: t.func.vmap(second)(rows)
    yield "jacrev, 50 x 50", lambda: t.func.jacrev(lambda x: t.tanh(w @ x))(x)
    jacobian = t.autograd.functional.jacobian
    yield "jacobian(vectorize)", lambda: jacobian(lambda x: t.tanh(w @ x), x, vectorize=True)
    yield "mask of 4 x 1 x 64 x 64", masks(t)
    yield "Laplacian at 200 points, step", laplacian(t)


def for_each(function: Callable) -> Any:
    """The result where vmap calls functions for each element."""
    kept, vmap._can_be_batched = vmap._can_be_batched, lambda flat, dims: False
    try:
        return function()
    finally:
        vmap._can_be_batched = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--turns", type=int, default=9, help="turns of each; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/...")
    options = parser.parse_args()
    import torch

    simt.set_num_threads(1)
    torch.set_num_threads(1)
    rows = []
    for (name, ours), (_, theirs) in zip(cases(minigrad), cases(torch), strict=True):
        if not any(part in name for part in options.only.split(",")):
            continue
        wanted = theirs().detach().numpy()
        np.testing.assert_allclose(ours().detach().numpy(), wanted, rtol=2e-3, atol=1e-5)
        timed = {"minigrad": ours, "torch": theirs}
        found = measure.least_processor_time(timed, options.turns)
        slow = {"for each element": lambda ours=ours: for_each(ours)}
        found |= measure.least_processor_time(slow, min(3, options.turns))
        rows.append({"case": name, **found, "ratio": found["minigrad"] / found["torch"]})
        times = "   ".join(f"{key} {seconds * 1e3:8.3f} ms" for key, seconds in found.items())
        print(f"{name:<30} {times}   x{rows[-1]['ratio']:5.2f}", flush=True)
    if options.json:
        measure.write_json(measure.results_path("func"), 1, rows)


if __name__ == "__main__":
    main()
