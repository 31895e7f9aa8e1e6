"""torch's samples of its operators in other ways than `op_db` runs them.

strided: of tensors with gaps between their elements. second: gradients of gradients. forward:
products of the Jacobian with a vector, in forward mode. compiled: `minigrad.compile` of the
operator, called several times with other values, beside the operator itself. As a program,
`python -m tests.engine.op_db_ways strided [name ...]` prints all differences.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minigrad
from minigrad import backends
from tests.engine import op_db

CLOSE = 1e-6


def run(
    way: str, entry: Any, dtype: str = "float64", backend: str = "numpy", limit: int | None = None
) -> Iterator[tuple[str, str]]:
    """(sample, what differs) of the samples of an entry that both compute."""
    with backends.use(backend):
        for count, sample in enumerate(op_db.samples(entry, dtype, errors=False)):
            if count == limit:
                return
            if not op_db.undefined(entry, sample):
                found = WAYS[way](entry, sample)
                if found:
                    yield op_db.described(sample), found


def _tensors(result: Any) -> list:
    return [part for part in op_db.flat(result) if op_db.is_tensor(part)]


def _different(mine: Any, theirs: Any, relative: float = CLOSE) -> str | None:
    """How two tensors differ, or tensors and None, which stands for zeros."""
    if mine is None or theirs is None:
        other = theirs if mine is None else mine
        return None if other is None or not op_db.as_numpy(other).any() else "None on one side"
    a, b = op_db.as_numpy(mine), op_db.as_numpy(theirs)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{list(a.shape)} of {a.dtype}, and {list(b.shape)} of {b.dtype}"
    if b.dtype.kind in "fc":
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        a, b = a / scale, b / scale
    return op_db.unequal(a, b, relative)


def _called(entry: Any, sample: Any) -> tuple[list, list, list, list] | None:
    """(tensors of minigrad's result, of torch's, leaves, arguments), or None where one refuses."""
    leaves: list = []
    theirs = sample.input, tuple(sample.args), dict(sample.kwargs)
    try:
        given, args, kwargs = op_db.from_torch(theirs, leaves)
    except (TypeError, RuntimeError, AttributeError, ValueError):
        return None
    expected, refusal = op_db.outcome(lambda: entry.op(theirs[0], *theirs[1], **theirs[2]))
    result, error = op_db.outcome(lambda: op_db.operator(entry)(given, *args, **kwargs))
    if refusal is not None or error is not None:
        return None
    return _tensors(result), _tensors(expected), leaves, [given, args, kwargs]


# --- ways ---


def _strided(entry: Any, sample: Any) -> str | None:
    def same_strides(tensor: Any) -> Any:
        import torch

        tensor = tensor.detach().resolve_conj().resolve_neg()
        storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        whole = minigrad.from_numpy(storage.numpy().copy())
        place = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        return whole.as_strided(*place).detach()

    try:
        apart = sample.noncontiguous()
    except Exception:  # made for dense tensors of one element each
        return None
    found = op_db.of_sample(op_db.operator(entry), entry.op, apart, same_strides)
    return found and ": ".join(found)


def _second(entry: Any, sample: Any) -> str | None:
    import torch

    called = _called(entry, sample) if entry.supports_gradgrad else None
    if called is None or not called[2]:
        return None
    results, expected, leaves, _ = called
    pairs = [(a, b) for a, b in zip(results, expected, strict=True) if b.requires_grad]
    if not pairs:
        return None

    def second(space: Any, results: list, leaves: list) -> list | None:
        rng = np.random.default_rng(0)
        seeds = [op_db.random_like(rng, op_db.as_numpy(y)) for y in results]
        seeds = [space.tensor(seed).requires_grad_() for seed in seeds]
        first = space.autograd.grad(results, leaves, seeds, create_graph=True, allow_unused=True)
        total: Any = 0
        for g in first:
            if g is not None:
                part = g * space.tensor(op_db.random_like(rng, op_db.as_numpy(g)))
                total = total + (part.real if part.is_complex() else part).sum()
        if not getattr(total, "requires_grad", False):
            return None
        return space.autograd.grad(total, [*leaves, *seeds], allow_unused=True)

    ours, theirs = zip(*pairs)
    mine, other = zip(*[(m, t) for t, m in leaves])
    wanted, refusal = op_db.outcome(lambda: second(torch, list(theirs), list(other)))
    found, error = op_db.outcome(lambda: second(minigrad, list(ours), list(mine)))
    if refusal is not None:
        return None
    if error is not None:
        return f"{type(error).__name__}: {error}"
    count = len(leaves) + len(pairs)
    both = zip(found or [None] * count, wanted or [None] * count, strict=True)
    return next(filter(None, (_different(a, b) for a, b in both)), None)


def _forward(entry: Any, sample: Any) -> str | None:
    import torch

    called = _called(entry, sample) if entry.supports_forward_ad else None
    if called is None or not called[2]:
        return None
    leaves = called[2]
    rng = np.random.default_rng(0)
    tangents = [op_db.random_like(rng, op_db.as_numpy(t)) for t, _ in leaves]

    def tangents_of(space: Any, operator: Callable, given: tuple, leaves: list) -> list:
        forward = space.autograd.forward_ad
        with forward.dual_level():
            made = {
                id(leaf): forward.make_dual(leaf.detach(), space.tensor(tangent))
                for leaf, tangent in zip(leaves, tangents, strict=True)
            }
            first, args, kwargs = _replaced(given, lambda leaf: made.get(id(leaf), leaf))
            result = operator(first, *args, **kwargs)
            return [forward.unpack_dual(y).tangent for y in _tensors(result)]

    theirs = sample.input, tuple(sample.args), dict(sample.kwargs)
    ours = op_db.operator(entry)
    wanted, refusal = op_db.outcome(
        lambda: tangents_of(torch, entry.op, theirs, [t for t, _ in leaves])
    )
    if refusal is not None:
        return None
    found, error = op_db.outcome(
        lambda: tangents_of(minigrad, ours, tuple(called[3]), [m for _, m in leaves])
    )
    if error is not None:
        return f"{type(error).__name__}: {error}"
    return next(filter(None, map(_different, found, wanted)), None)


def _compiled(entry: Any, sample: Any) -> str | None:
    called = _called(entry, sample)
    if called is None:
        return None
    given, inputs, operator = called[3], [], op_db.operator(entry)
    _replaced(given, lambda leaf: inputs.append(leaf) if isinstance(leaf, minigrad.Tensor) else 0)
    places = {id(leaf): i for i, leaf in enumerate(inputs)}

    def step(*tensors: Any) -> Any:
        first, args, kwargs = _replaced(
            given, lambda leaf: tensors[places[id(leaf)]] if id(leaf) in places else leaf
        )
        return operator(first, *args, **kwargs)

    compiled = minigrad.compile(step)
    for factor in (1.0, 1.0, 1.01, 1.02):
        outcomes = []
        for function in (step, compiled):
            tensors = [_varied(leaf, factor) for leaf in inputs]
            outcomes.append(op_db.outcome(lambda f=function, t=tensors: _with_gradients(f, t)))
        (wanted, refusal), (found, error) = outcomes
        if (refusal is None) != (error is None):
            return f"compiled {type(error).__name__}: {error}, else {refusal}"
        for a, b in zip(found or (), wanted or (), strict=True):
            difference = _different(a, b, 1e-4)
            if difference:
                return difference
    return None


def _varied(leaf: Any, factor: float) -> Any:
    made = leaf.detach().clone()
    if made.is_floating_point() and made.dtype.itemsize > 2:
        made = made * factor
    return made.requires_grad_() if leaf.requires_grad else made


def _with_gradients(function: Callable, tensors: list) -> list:
    """The tensors of a result, then the gradients of those arguments that have some."""
    results = _tensors(function(*tensors))
    leaves = [t for t in tensors if t.requires_grad]
    outputs = [y for y in results if y.requires_grad]
    if not (leaves and outputs):
        return results
    rng = np.random.default_rng(0)
    seeds = [minigrad.tensor(op_db.random_like(rng, op_db.as_numpy(y))) for y in outputs]
    return [*results, *minigrad.autograd.grad(outputs, leaves, seeds, allow_unused=True)]


def _replaced(value: Any, leaf: Callable) -> Any:
    """Nested tuples, lists and dictionaries with `leaf(x)` for each x in them."""
    if type(value) in (list, tuple):
        return type(value)([_replaced(part, leaf) for part in value])
    if isinstance(value, dict):
        return {key: _replaced(part, leaf) for key, part in value.items()}
    return leaf(value)


WAYS = {"strided": _strided, "second": _second, "forward": _forward, "compiled": _compiled}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("names", nargs="*", help="operators (default: all)")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--backend", default="numpy")
    options = parser.parse_args()
    for entry in op_db.entries():
        if not options.names or entry.name in options.names:
            for sample, found in run(options.way, entry, options.dtype, options.backend):
                print(f"{op_db.label(entry)}: {found}\n      {sample}", flush=True)


if __name__ == "__main__":
    main()
