"""`assert_close`, with torch.testing's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad._names import namespace
from minigrad.tensor import Tensor

# (relative, absolute) by dtype, as in torch; exact for the others.
_TOLERANCES = {
    minigrad.float16: (1e-3, 1e-5),
    minigrad.bfloat16: (1.6e-2, 1e-5),
    minigrad.float32: (1.3e-6, 1e-5),
    minigrad.float64: (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| for every element, and
    shapes, dtypes and devices are equal.

    Tensors, arrays, numbers, and sequences and mappings of them. The tolerances follow from the
    dtype; both or none are given. ValueError for one alone.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or unspecified, but got no "
            f"{'rtol' if rtol is None else 'atol'}."
        )
    problem = _difference(actual, expected, "", rtol, atol, equal_nan, check_dtype, check_device)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The older name of `assert_close`, which does not compare dtypes and takes NaN as equal."""
    if not isinstance(actual, Tensor):
        actual = minigrad.tensor(actual)
    if not isinstance(expected, Tensor):
        expected = minigrad.tensor(expected, dtype=actual.dtype)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        check_device=True,
        msg=msg or None,
    )


def _difference(actual: Any, expected: Any, where: str, *options: Any) -> str | None:
    """The first difference, in words."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings do not match{where}: {set(actual) ^ set(expected)}"
        items = [(f" at {k!r}", actual[k], expected[k]) for k in expected]
    elif _is_sequence(expected) and _is_sequence(actual):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{where}"
        items = [(f" at {i}", a, b) for i, (a, b) in enumerate(zip(actual, expected))]
    else:
        return _tensors_differ(actual, expected, where, *options)
    found = (_difference(a, b, where + place, *options) for place, a, b in items)
    return next((problem for problem in found if problem), None)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _tensors_differ(
    actual: Any,
    expected: Any,
    where: str,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    check_dtype: bool,
    check_device: bool,
) -> str | None:
    a, b = (x.detach() if isinstance(x, Tensor) else minigrad.tensor(x) for x in (actual, expected))
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match{where}: {a.shape} != {b.shape}."
    for name, checked in (("dtype", check_dtype), ("device", check_device)):
        mine, other = getattr(a, name), getattr(b, name)
        if checked and mine != other:
            return f"The values for attribute '{name}' do not match{where}: {mine} != {other}."
    if rtol is None:
        both = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b)]
        rtol, atol = max(t[0] for t in both), max(t[1] for t in both)
    x, y = (t.cpu().double().numpy() for t in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.abs(x - y)
        near = (x == y) | (distance <= atol + rtol * np.abs(y))
        near |= equal_nan & np.isnan(x) & np.isnan(y)
        if near.all():
            return None
        relative = distance / np.abs(y)
    if not x.ndim:
        return (
            f"Scalars are not close{where}!\n\nExpected {y.item()} but got {x.item()}.\n"
            f"Absolute difference: {distance.item()} (up to {atol} allowed)\n"
            f"Relative difference: {relative.item()} (up to {rtol} allowed)"
        )
    share = 100 * (~near).sum() / near.size
    lines = [f"Tensor-likes are not close{where}!", ""]
    lines.append(f"Mismatched elements: {(~near).sum()} / {near.size} ({share:.1f}%)")
    for name, value, limit in (("absolute", distance, atol), ("relative", relative, rtol)):
        worst = np.where(near, -1, value)
        index = tuple(int(i) for i in np.unravel_index(np.nanargmax(worst), worst.shape))
        lines.append(
            f"Greatest {name} difference: {value[index]} at index {index} (up to {limit} allowed)"
        )
    return "\n".join(lines)


__getattr__, __dir__ = namespace(__name__)
