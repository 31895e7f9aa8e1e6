"""`vmap`: a function of one element as a function of many, called once for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.autograd.engine import VMAP
from minigrad.autograd.mode import batching, mode
from minigrad.backends import is_batched
from minigrad.batching import numpy_rules, rules  # noqa: F401 - they fill the table
from minigrad.batching.arrays import BatchedArray, levels_of
from minigrad.batching.levels import DRAWN, Enter, Exit, Level, Refused
from minigrad.ops.storage import MAPPED, UntypedStorage
from minigrad.random import get_rng_state, set_rng_state
from minigrad.tensor import Tensor, every_attribute, functions, normalize_dim
from minigrad.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


def vmap(
    func: Callable,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable:
    """A function that maps func over a dimension of its arguments, and stacks the results.

    in_dims: the dimension of each argument (or of each leaf of it), None for one that all calls
    share. out_dims: where the new dimension goes; None for a result without one. randomness:
    whether func may draw random numbers: "error", "different" ones for each element, or the "same".
    chunk_size: how many elements one call computes.

    func is called once for all elements (`minigrad.batching.arrays`). It is called for each element
    where that fails, as where it asks for the value of an element, and for tensors on a GPU.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        flat, form = tree_flatten(args)
        dims = _dims(in_dims, args, flat)
        size = _size(flat, dims)

        def call(leaves: list) -> Any:
            return func(*tree_unflatten(leaves, form), **kwargs)

        how = (dims, out_dims, randomness)
        if chunk_size is None or chunk_size >= size:
            return _mapped(call, flat, size, *how)
        parts = []
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            leaves = [x if d is None else x.narrow(d, start, count) for x, d in zip(flat, dims)]
            parts.append(_mapped(call, leaves, count, *how))
        return _joined(parts, out_dims)

    return wrapper


def _mapped(
    call: Callable, flat: list, size: int, dims: list, out_dims: Any, randomness: str
) -> Any:
    """The stacked results of `call` for the elements of leaves."""
    before = get_rng_state()
    if size and _can_be_batched(flat, dims):
        level = Level(randomness)
        try:
            with level:
                found = call([_entered(x, d, level.number) for x, d in zip(flat, dims)])
        except Refused as error:
            if batching:
                raise
            raise RuntimeError(*error.args) from None
        except Exception:  # one of the function comes again, for an element
            set_rng_state(before)
        else:
            return _left(found, out_dims, level.number, size)
    return _one_by_one(call, flat, size, dims, out_dims, randomness)


def _can_be_batched(flat: list, dims: list) -> bool:
    """Whether the elements are on the CPU, and nobody writes down what is computed."""
    if mode.recorder is not None or mode.observer is not None:
        return False
    arrays = [every_attribute(x).get("_array") for x, d in zip(flat, dims) if d is not None]
    return all(type(array) in (np.ndarray, BatchedArray) for array in arrays)


def _entered(x: Any, dim: int | None, level: int) -> Any:
    """An argument as it enters a level."""
    return x if dim is None else Enter.apply(x, level=level, dim=dim)


def _left(found: Any, out_dims: Any, level: int, size: int) -> Any:
    """Results as they leave a level."""
    results, form = tree_flatten(found)
    outs = []
    for y, dim in zip(results, _out_dims(out_dims, found, results), strict=True):
        if dim is not None:
            place = normalize_dim(dim, y.ndim + 1)
            y = Exit.apply(y, level=level, dim=place, size=size)
        elif level in levels_of(y._array):
            raise ValueError(_NO_DIM)
        outs.append(y)
    return tree_unflatten(outs, form)


_NO_DIM = (
    "vmap: `f` can not return a BatchedTensor when out_dim is None; fix: give the dimension of this"
    " result"
)


def _one_by_one(
    call: Callable, flat: list, size: int, dims: list, out_dims: Any, randomness: str
) -> Any:
    """A call for each element."""
    results, before = [], get_rng_state()
    if not size:  # what it returns for zeros has the shape that the results would have
        results = [call([x if d is None else _zeros(x, d) for x, d in zip(flat, dims)])]
    arrays = [every_attribute(x).get("_array") for x, d in zip(flat, dims) if d is not None]
    outer = len(MAPPED)
    MAPPED.extend([UntypedStorage(a) for a in arrays if a is not None and not is_batched(a)])
    try:
        for i in range(size):
            if randomness == "same":
                set_rng_state(before)
            results.append(call([x if d is None else x.select(d, i) for x, d in zip(flat, dims)]))
            if randomness == "error" and not functions.equal(get_rng_state(), before):
                raise RuntimeError(DRAWN)
    finally:
        del MAPPED[outer:]
    return _stacked(results, out_dims, size)


def _zeros(x: Tensor, dim: int) -> Tensor:
    """Zeros of the shape of x without a dimension."""
    shape = list(x.shape)
    del shape[dim]
    return x.new_zeros(shape)


def _check(x: Any, dim: int) -> None:
    """ValueError unless an argument has the dimension."""
    if not isinstance(x, Tensor):
        raise ValueError(
            f"vmap: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(
            f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
            f"{x.ndim}, so expected in_dim to satisfy -{x.ndim} <= in_dim < {x.ndim}."
        )


def _spread(dims: Any, args: Any) -> Any:
    """in_dims in the form of the arguments: one of a tree holds for all its leaves."""
    if isinstance(args, dict):
        return {k: _spread(dims[k] if isinstance(dims, dict) else dims, v) for k, v in args.items()}
    if isinstance(args, list | tuple):
        each = dims if isinstance(dims, list | tuple) else [dims] * len(args)
        if len(each) != len(args):
            raise ValueError(
                f"vmap: in_dims {dims} is not compatible with the structure of the {len(args)} "
                "inputs"
            )
        return [_spread(d, a) for d, a in zip(each, args, strict=True)]
    return dims


def _dims(in_dims: Any, args: tuple, flat: list) -> list:
    """The mapped dimension of each leaf, counted from the front; None for what has none."""
    given = in_dims if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
    dims = tree_leaves(_spread(given, args))
    for x, d in zip(flat, dims, strict=True):
        if d is not None:
            _check(x, d)
    return [None if d is None else d % x.ndim for x, d in zip(flat, dims)]


def _size(flat: list, dims: list) -> int:
    """The number of elements."""
    sizes = {x.shape[d] for x, d in zip(flat, dims) if d is not None}
    if len(sizes) != 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got "
            f"sizes {sorted(sizes)} for the mapped dimension"
        )
    return sizes.pop()


def _out_dims(out_dims: Any, found: Any, results: list) -> list:
    """The new dimension of each result."""
    for leaf in results:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"vmap: the function must only return Tensors, got type {type(leaf)}")
    if isinstance(out_dims, list | tuple | dict):
        return tree_leaves(_spread(out_dims, found if isinstance(found, list | tuple | dict)
                                   else (found,)))  # fmt: skip
    return [out_dims] * len(results)


def _stacked(results: list, out_dims: Any, length: int) -> Any:
    """The results of calls for each element as one."""
    first, form = tree_flatten(results[0])
    dims = _out_dims(out_dims, results[0], first)
    columns = zip(*[tree_leaves(r) for r in results], strict=True)
    stacked = []
    for column, d in zip(columns, dims, strict=True):
        if d is not None:
            stacked.append(functions.stack(list(column), d).narrow(d, 0, length))
        elif all(functions.equal(part, column[0]) for part in column):
            stacked.append(column[0])
        else:
            raise ValueError(_NO_DIM)
    return tree_unflatten(stacked, form)


def _joined(parts: list, out_dims: Any) -> Any:
    """The results of chunks as one."""
    first, form = tree_flatten(parts[0])
    dims = _out_dims(out_dims, parts[0], first)
    columns = zip(*[tree_leaves(part) for part in parts], strict=True)
    joined = [
        c[0] if d is None else functions.cat(c, d) for c, d in zip(columns, dims, strict=True)
    ]
    return tree_unflatten(joined, form)


VMAP.append(vmap)
