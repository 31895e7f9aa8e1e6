"""Kernels rewritten for numba-cuda compute what they computed."""

from __future__ import annotations

import ast
import copy
import inspect
import math
import random

import numpy as np
import pytest

from kernels.simt.analysis.source_ranges import Range, SourceRanges
from kernels.simt.frontend import source
from kernels.simt.transforms import gpu_source
from kernels.simt.transforms.gpu_source import rewritten

WIDTH, STEP = 7, -2


def loops(x, out, n):
    for i in range(n):
        if x[i] < 0:
            continue
        for j in range(i, -1, STEP):
            if j == 3:
                break
            out[i] += x[j] * (j + 1)
        else:
            out[i] += 100
    last = 0
    for last in range(2, n, 3):  # noqa: B007
        pass
    out[0] += last
    for i in range(WIDTH):
        out[i % len(out)] += i
    for step in (4, 2, 1):
        out[step % len(out)] += step


def divisions(x, out, n):
    k = 0
    for i in range(n):
        row, col = i // WIDTH, i % WIDTH
        out[(row * WIDTH + col) % out.shape[0]] += x[i] // 2 + x[i] % 3
        k = (k * 31 + 7) & 0xFFFF
        out[k % out.size] += 1


def guarded(x, out, n):
    for i in range(-3, n + 3):
        inside = 0 <= i < n
        out[i % len(out)] += x[i] if inside else -1
        h = i - 2
        if h >= 0 and h < n:
            out[h] += 1
            h -= 4
            out[h] += 5  # may count from the end
        j = i
        flag = j >= 0
        j = -1
        if flag:
            out[j] += 2


def negative(x, out, n):
    for i in range(n):
        out[-1 - i] += x[i - n]
        out[i - 1 if i % 2 else i] += 1


def halves(x, out, n):
    """What is compared with 0 need not be an integer."""
    for i in range(n):
        v = x[i] / 2
        if v >= 0:
            out[i] += v // 0.7 + v % 0.7


def tiles(x, out, n):
    for start in range(0, n, WIDTH):
        total = 0
        for i in range(min(WIDTH, n - start)):
            total += x[start + i] * (i + 1)
            if total > 40:
                break
        out[start % out.size] += total
        for i in range(min(n - start, WIDTH)):
            out[i % out.size] += i


CASES = [loops, divisions, guarded, negative, halves, tiles]


@pytest.mark.parametrize("func", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 16])
def test_the_same_values(func, n):
    rng = np.random.default_rng(n)
    x = rng.integers(-9, 9, n).astype(np.float64)
    wanted, got = np.zeros(max(n, 1)), np.zeros(max(n, 1))
    made = rewritten(func)
    assert made is not func

    def run(f, out):
        try:
            f(x, out, n)
        except IndexError:
            return "an index is out of bounds"
        return None

    assert run(func, wanted) == run(made, got)
    np.testing.assert_array_equal(got, wanted)


def text(func) -> str:
    """The rewritten source."""
    tree = ast.parse(inspect.getsource(func)).body[0]
    return ast.unparse(gpu_source._Rewriter(func, SourceRanges(func, tree)).visit(tree))


def test_what_becomes_unsigned():
    assert "out[_uint64((row * WIDTH + col) % out.shape[0])]" not in text(divisions)  # cast inside
    for wanted in ("_int64(_uint64(i) // _uint64(WIDTH))", "x[_uint64(i)]", "_int32(_next"):
        assert wanted in text(divisions) + text(loops)
    found = text(guarded)
    assert "x[_uint64(i)] if inside" in found
    assert "out[_uint64(h)] += 1" in found
    assert "out[h] += 5" in found and "out[j] += 2" in found
    assert "uint64(v)" not in text(halves) and "out[-1 - i]" in text(negative)


def test_a_wrong_proof_is_seen(monkeypatch):
    """If all indices were called natural, negative ones would leave their arrays."""
    monkeypatch.setattr(gpu_source._Rewriter, "_is_natural", lambda self, node: True)
    with pytest.raises((IndexError, OverflowError, AssertionError)):
        test_the_same_values(negative, 5)


def test_what_is_not_followed_stays():
    def nested(x):
        x[0] = sum(v for v in x)

    def walrus(x):
        while (i := int(x[0])) < 3:
            x[i] += 1

    assert rewritten(nested) is nested and rewritten(walrus) is walrus


def test_defaults_and_closures():
    def made(number):
        def kernel(x, n: int = 3, *, factor: float = 2.0):
            for i in range(n):
                x[i] = number * factor

        return kernel

    x = np.zeros(5)
    new = rewritten(made(4))
    new(x)
    new(x, 1, factor=1.0)
    np.testing.assert_array_equal(x, [4, 8, 8, 0, 0])
    assert new.__code__.co_filename == __file__
    assert new.__code__.co_firstlineno in range(*_lines(made))


def _lines(func):
    found, first = inspect.getsourcelines(func)
    return first, first + len(found)


def test_ranges_hold_for_random_expressions(monkeypatch):
    """Intervals of expressions over variables of known ranges, against values drawn from them."""
    seed = 20261123
    rng = random.Random(seed)

    def host(a, b, c):
        pass

    ranges = SourceRanges(host, source.of(host).tree)
    ends = {"a": (0, 5), "b": (-4, 9), "c": (1, 40)}
    ranges.known = {name: Range(*pair) for name, pair in ends.items()}

    def made(depth):
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(["a", "b", "c", str(rng.randint(0, 9))])
        left, right = made(depth - 1), made(depth - 1)
        kind = rng.choice(["+", "-", "*", "//", "%", "&", "|", "^", ">>", "if", "min", "max", "u"])
        if kind == "if":
            return f"({left} if a < b else {right})"
        if kind in ("min", "max"):
            return f"{kind}({left}, {right})"
        return f"(-{left})" if kind == "u" else f"({left} {kind} {right})"

    known = 0
    for _ in range(400):
        expression = made(3)
        found = ranges.of(ast.parse(expression, mode="eval").body)
        known += found is not None
        for _ in range(20):
            values = {name: rng.randint(*pair) for name, pair in ends.items()}
            try:
                value = eval(expression, {"min": min, "max": max}, values)
            except (ZeroDivisionError, ValueError, OverflowError):
                continue
            fits = found is None or found.low <= value <= found.high
            assert fits, f"{expression} = {value} with {values}, expected {found} (seed {seed})"
    assert known > 150


def test_recurrences_end():
    def counts(n):
        i = j = 0
        h = 1
        while i < n:
            i += 4
            j -= 1
            h = h * 31 + i
        return i, j, h

    known = SourceRanges(counts, source.of(counts).tree).known
    assert known == {"n": None, "i": Range(0, math.inf), "j": Range(-math.inf, 0), "h": None}


def test_a_tile_is_a_loop_of_constant_length():
    tree = copy.deepcopy(source.of(tiles).tree)
    text = ast.unparse(gpu_source._Rewriter(tiles, SourceRanges(tiles, tree)).visit(tree))
    assert text.count("while ") == 4  # the tiles, a whole one, a part of one, and the other loop
    assert text.count(f"< {WIDTH}") == 1
