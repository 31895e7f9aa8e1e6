"""Blocks in which no thread is at an edge run stencils without guards, choices and clamps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.simt import cuda

BLOCK = 16, 8
SHAPES = [(1, 1), (8, 16), (24, 48), (25, 49), (40, 31), (2, 100)]


@cuda.jit
def mean_of_neighbours(x, y):
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        total, found = np.float32(0), 0
        for di in range(-1, 2):
            for dj in range(1, -2, -1):
                if 0 <= i + di < x.shape[0] and 0 <= j + dj < x.shape[1]:
                    total += x[i + di, j + dj]
                    found += 1
        y[i, j] = total / np.float32(found)


@cuda.jit
def clamped_sum(x, y):
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        total = np.float32(0)
        for di in range(-1, 2):
            row = min(x.shape[0] - 1, max(0, i + di))
            for dj in range(-2, 3):
                total += x[row, max(min(j + dj, x.shape[1] - 1), 0)]
        y[i, j] = total


@cuda.jit
def others_above(x, y):
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        found = 0
        for di in range(-1, 2):
            for dj in range(-1, 2):
                h, w = i + di, j + dj
                inside = h >= 0 and w >= 0 and h < x.shape[0] and w < x.shape[1]
                if (di != 0 or dj != 0) and inside and x[h, w] > x[i, j]:
                    found += 1
        y[i, j] = found


@cuda.jit
def differences(x, y):
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        left = x[i, j - 1] if j > 0 and x[i, j - 1] > 0 else np.float32(0)
        below = x[i + 1, j] if i < x.shape[0] - 1 else np.float32(0)
        y[i, j] = below - left


@cuda.jit
def positive_before(x, y):
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        total = np.float32(0)
        for d in range(1, 3):
            if j - d >= 0 and x[i, j - d] > 0:
                total += x[i, j - d]
        y[i, j] = total


def shifted(x: np.ndarray, di: int, dj: int, **mode) -> np.ndarray:
    """x[i + di, j + dj] for all i and j."""
    rows, columns = (slice(2 + d, 2 + d + n) for d, n in zip((di, dj), x.shape))
    return np.pad(x, 2, **mode)[rows, columns]


def around(x: np.ndarray, reach: int, **mode) -> list[np.ndarray]:
    return [shifted(x, di, dj, **mode) for di in (-1, 0, 1) for dj in range(-reach, reach + 1)]


def expected(kernel, x: np.ndarray) -> np.ndarray:
    if kernel is mean_of_neighbours:
        return sum(around(x, 1)) / sum(around(np.ones_like(x), 1))
    if kernel is clamped_sum:
        return sum(around(x, 2, mode="edge"))
    if kernel is others_above:
        return sum(np.asarray(other > x) for other in around(x, 1, constant_values=-1e9))
    left = shifted(x, 0, -1)
    if kernel is positive_before:
        return np.maximum(left, 0) + np.maximum(shifted(x, 0, -2), 0)
    return shifted(x, 1, 0) - np.where(left > 0, left, 0)


KERNELS = [mean_of_neighbours, clamped_sum, others_above, differences, positive_before]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_edges_and_what_lies_between(kernel, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = np.full_like(x, np.nan)
    kernel[(-(-shape[1] // BLOCK[0]), -(-shape[0] // BLOCK[1])), BLOCK](x, y)
    np.testing.assert_allclose(y, expected(kernel, x.astype(np.float64)), rtol=1e-5, atol=1e-5)


KEPT = {  # what is tested and chosen in the blocks between the edges
    mean_of_neighbours: [],
    clamped_sum: [],
    others_above: ["if (di != 0 or dj != 0) and x[h, w] > x[_u(i), _u(j)]:"],
    differences: ["left = x[_u(i), _u(j - 1)] if x[_u(i), _u(j - 1)] > 0 else _float32(0)"],
    positive_before: ["if x[_u(i), _u(j - d)] > 0:"],
}


def between_the_edges(kernel) -> tuple[str, str]:
    """When the version without guards runs, and its text."""
    x = np.zeros((24, 48), np.float32)
    kernel[(3, 3), BLOCK](x, np.empty_like(x))
    before, _, after = kernel.inspect_cpu().partition("# no thread of the block is at an edge")
    return before.splitlines()[-1], re.split(r"\n +else:\n", after)[0]


@pytest.mark.parametrize("kernel", KEPT)
def test_nothing_that_holds_in_all_of_a_block_is_tested_in_it(kernel):
    _, text = between_the_edges(kernel)
    assert "for _tx in range(" in text
    tests = re.findall(r"^ +(if .*|.* if .* else .*|.*_m(?:in|ax)imum.*)$", text, re.MULTILINE)
    assert tests == KEPT[kernel]


def test_a_clamp_goes_where_it_changes_nothing():
    checks, _ = between_the_edges(clamped_sum)
    for check in (
        "(_by * 8 + 0 + -1 >= 0)",
        "(_by * 8 + 7 + 1 <= x.shape[0] - 1)",
        "(_bx * 16 + 0 + -2 >= 0)",
        "(_bx * 16 + 15 + 2 <= x.shape[1] - 1)",
    ):
        assert check in checks
