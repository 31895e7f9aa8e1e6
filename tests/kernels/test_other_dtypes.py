"""An array of another dtype than its neighbours is refused or converted, never read as it is not.

Launch plans are kept by the dtypes that choose them; an argument that is not among those must be
checked. Each array of each declared case is given twice as wide, after a call with the right one.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import dispatch, launchers, reference
from tests.kernels.helpers import as_wide, wide
from tests.kernels.test_parity import BACKENDS, cases, placed, results

WIDER = {"float32": "float64", "int64": "int32", "int32": "int64"}


def close(got: list, expected: list) -> bool:
    pairs = [(wide(np.asarray(a)), wide(np.asarray(b))) for a, b in zip(got, expected, strict=True)]
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-2, atol=1e-2, equal_nan=True)
        for a, b in pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", launchers.declared().values(), ids=lambda f: f.name)
def test_an_array_of_another_dtype(family, backend, rng):
    if launchers.lacks(backend, family):
        pytest.skip(f"{backend} lacks a part of {family.name}")
    dialect, tried, wrong = dispatch.dialect(backend), set(), []
    for name, args, how, _ in cases(family, backend, rng):
        operation = getattr(dialect, name)
        for place, array in enumerate(args):
            dtype = WIDER.get(str(getattr(array, "dtype", "")))
            if dtype is None or (name, place, dtype) in tried:
                continue
            tried.add((name, place, dtype))
            results(operation, [placed(a, "cpu") for a in args], how)
            changed = [placed(a, "cpu") for a in args]
            changed[place] = array.astype(dtype)
            try:
                got = results(operation, changed, how)
            except (TypeError, ValueError, NotImplementedError):
                continue
            options = {key: value for key, value in how.items() if key != "version"}
            exact = [as_wide(placed(a, "cpu")) for a in args]
            with np.errstate(all="ignore"):
                if not close(got, results(getattr(reference, name), exact, options)):
                    wrong.append(f"{name}, argument {place} as {dtype}, {how}")
    assert not wrong
