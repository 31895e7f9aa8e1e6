"""The cases that each family declares, run on every backend against the reference in float64.

Their shapes are awkward and few; what a family has beyond them is tested in its own file. On the
CPU the kernels in CUDA C run with their threads in both orders: a missing barrier shows in one of
them.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from kernels import dispatch, launchers, reference
from kernels.families import Family
from tests.kernels.helpers import (
    DEVICES,
    as_wide,
    assert_close,
    of_each_capability,
    put,
    wide,
)

BACKENDS = ("numba", "cupy")


LIKE = ("philox_uint32", "uniform", "normal")  # they have no array that says where


def placed(value, device: str):
    if isinstance(value, list):
        return [placed(v, device) for v in value]
    return put(value.copy(order="K"), device) if isinstance(value, np.ndarray) else value


def results(operation, args: list, kwargs: dict) -> list:
    """What an operation returns, as a list; its arrays where it works in place."""
    returned = operation(*args, **kwargs)
    if returned is None:
        return [a for a in args if hasattr(a, "dtype") and hasattr(a, "shape")]
    return list(returned) if isinstance(returned, tuple) else [returned]


def cases(family: Family, backend: str, rng):
    return family.cases(rng, functools.partial(launchers.versions, backend))


def agree(operation, name: str, args: list, kwargs: dict, expected: list, scale, device) -> None:
    """An operation on the current device gives what is expected, or says what the device lacks."""
    on_device = [placed(a, device) for a in args]
    extra = {"like": put(np.zeros(1), device)} if name in LIKE else {}
    try:
        got = results(operation, on_device, {**kwargs, **extra})
    except ValueError as error:
        if device == "cpu" or "compute capability" not in str(error):
            raise
        return  # a version that this GPU is too old for, which the message says
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert_close(a, wide(np.asarray(b)), scale, terms=9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", launchers.declared().values(), ids=lambda f: f.name)
def test_family(family, backend, device, rng, monkeypatch):
    if lacking := launchers.lacks(backend, family):
        pytest.skip(f"{backend} has no {' and no '.join(lacking)}")
    dialect = dispatch.dialect(backend)
    orders = ("forward", "reversed") if (backend, device) == ("cupy", "cpu") else ("forward",)
    for name, args, kwargs, scale in cases(family, backend, rng):
        wanted = {k: v for k, v in kwargs.items() if k != "version"}
        with np.errstate(all="ignore"):
            exact = args if name in LIKE else [as_wide(placed(a, "cpu")) for a in args]
            expected = results(getattr(reference, name), exact, wanted)
        for order in orders:
            monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
            for _ in of_each_capability(device):
                agree(getattr(dialect, name), name, args, kwargs, expected, scale, device)
