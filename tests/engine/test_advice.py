"""Warnings about arguments that were left out: where torch gives them, of the same category."""

from __future__ import annotations

import warnings

import minigrad
from minigrad.ops import combine

CALLS = """
    f.grid_sample(t.ones(1, 1, 2, 2), t.zeros(1, 2, 2, 2))
    f.grid_sample(t.ones(1, 1, 2, 2), t.zeros(1, 2, 2, 2), align_corners=False)
    f.affine_grid(t.ones(1, 2, 3), (1, 1, 2, 2))
    f.affine_grid(t.ones(1, 2, 3), (1, 1, 2, 2), True)
    t.meshgrid(t.ones(2), t.ones(3))
    t.meshgrid(t.ones(2), t.ones(3))
    t.meshgrid(t.ones(2), indexing="ij")
    t.cartesian_prod(t.ones(2), t.ones(3))
    t.ones(1).std()
    t.ones(2, 1).var(1)
    t.ones(1).std(unbiased=False)
""".strip().splitlines()


def found(t):
    result = []
    for line in map(str.strip, CALLS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            eval(line, {"t": t, "f": t.nn.functional})
        result.append((line, [w.category for w in caught]))
    return result


def test_like_torch(torch):
    combine._warn_of_indexing.cache_clear()  # it warns once in a process, as torch does
    ours, theirs = found(minigrad), found(torch)
    if not theirs[4][1]:  # another test was torch's first
        theirs[4] = (theirs[4][0], [UserWarning])
    assert ours == theirs
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        minigrad.nn.functional.grid_sample(minigrad.ones(1, 1, 2, 2), minigrad.zeros(1, 2, 2, 2))
    assert caught[0].filename == __file__
