"""The tables: every line's gradient by finite differences, on both sides of every kink."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from kernels import pointwise, reduction, reference
from kernels.pointwise import FUNCTIONS, TABLE, Expr

PARAMS = dict(
    nan=0.5,
    alpha=0.7, scale=1.1, low=-0.4, high=0.5, value=0.3, slope=0.1, beta=0.8, threshold=1.5,
    limit=0.1, delta=0.6, p=2.5, lambd=0.4,
)  # fmt: skip
# Where the operation is smooth and defined; everything else takes numbers around 0.
RANGES = {
    "acosh": [(1.5, 3.0)],
    "acos": [(-0.9, 0.9)],
    "asin": [(-0.9, 0.9)],
    "atanh": [(-0.9, 0.9)],
    "erfinv": [(-0.99, 0.99)],
    "bce": [(0.05, 0.95), (0.0, 1.0)],
    "kl_div": [(-3.0, 0.0), (0.2, 1.0)],
    "logit": [(0.05, 0.95)],
    "xlogy": [(-2.0, 2.0), (0.2, 3.0)],
    "pow": [(0.2, 2.0), (-2.0, 2.0)],
    "fmod": [(-3.0, 3.0), (0.5, 0.9)],
    "remainder": [(-3.0, 3.0), (0.5, 0.9)],
    **{name: [(0.2, 3.0)] for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")},
}
STEP = 1e-6
DIFFERENTIABLE = [e for e in TABLE.values() if any(g is not None for g in e.grads)]


def sample(expr: Expr, rng: np.random.Generator) -> list[np.ndarray]:
    ranges = RANGES.get(expr.name, [(-2.0, 2.0)])
    arrays = []
    for i, name in enumerate(expr.args):
        low, high = ranges[min(i, len(ranges) - 1)]
        x = rng.uniform(low, high, 200)
        arrays.append(x > 0 if name in expr.masks else x)
    return arrays


def gradients(expr: Expr, arrays: list[np.ndarray], index: int, scale: float = 1.0):
    """The table's gradient and the central difference; nan where a kink lies within the step."""
    params = [PARAMS[p] for p in expr.params]
    y = reference.pointwise(expr, *arrays, params=params)
    g = np.linspace(-1.5, 1.5, y.size)
    line = expr.vjp(index)
    env = {**dict(zip(expr.args, arrays, strict=True)), "g": g, "y": y}
    got = reference.pointwise(
        line, *(env[a] for a in line.args), params=[PARAMS[p] for p in line.params]
    )

    def at(offset: float) -> np.ndarray:
        moved = [a + offset if i == index else a for i, a in enumerate(arrays)]
        return reference.pointwise(expr, *moved, params=params)

    left, right = (y - at(-STEP)) / STEP, (at(STEP) - y) / STEP
    smooth = np.abs(left - right) < 1e-2 * (1 + np.abs(left))
    return got * scale, np.where(smooth, g * (left + right) / 2, np.nan)


@pytest.mark.parametrize("expr", DIFFERENTIABLE, ids=lambda e: e.name)
def test_gradient(expr):
    arrays = sample(expr, np.random.default_rng(11))
    for index, text in enumerate(expr.grads):
        if text is None:
            continue
        got, want = gradients(expr, arrays, index)
        known = ~np.isnan(want)
        assert known.sum() > 150
        np.testing.assert_allclose(got[known], want[known], rtol=1e-4, atol=1e-5)


def test_a_gradient_scaled_by_one_percent_is_caught():
    expr = TABLE["tanh"]
    got, want = gradients(expr, sample(expr, np.random.default_rng(1)), 0, scale=1.01)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expr", TABLE.values(), ids=lambda e: e.name)
def test_texts_call_only_shared_functions(expr):
    for text in (expr.text, *filter(None, expr.grads)):
        calls = [n.func.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        assert set(calls) <= FUNCTIONS, text
        allowed = {*expr.args, *expr.params, "g", "y"}
        assert pointwise.names_in(text) <= allowed, text


def test_a_derivative_names_what_it_needs():
    assert TABLE["exp"].vjp(0).args == ("g", "y")
    assert TABLE["mul"].vjp(0).args == ("g", "b")
    assert TABLE["add"].vjp(1).args == ("g",)
    assert TABLE["where"].vjp(0) is None


def test_define_refuses_unknown_names_and_duplicates():
    with pytest.raises(ValueError, match="unknown names"):
        pointwise.define("broken", "x", "x + z")
    with pytest.raises(ValueError, match="twice"):
        pointwise.define("exp", "x", "exp(x)")
    with pytest.raises(ValueError, match="gradients"):
        pointwise.define("broken", "a b", "a + b", "g")


def test_reductions_agree_with_their_own_line():
    """NumPy's call for each reduction equals folding the line's texts over the elements."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal(17)
    space = {name: getattr(np, name) for name in "abs exp log1p maximum minimum sqrt where".split()}
    start = {"0": 0.0, "1": 1.0, "lowest": -np.inf, "highest": np.inf}
    for line in reduction.TABLE.values():
        if line.result == "index":
            continue
        a = bool(start[line.identity]) if line.result == "bool" else start[line.identity]
        for value in x:
            b = eval(line.map, space, {"x": value})
            a = eval(line.combine, space, {"a": a, "b": b})
        want = eval(line.finish, space, {"a": a, "n": x.size})
        np.testing.assert_allclose(reference.reduce(line.name, x), want, rtol=1e-12)
