"""Guards taken out of loops over threads: the bounds are those of the threads whose guard holds."""

from __future__ import annotations

import ast
import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda
from kernels.simt.analysis import affine
from kernels.simt.analysis.affine import Affine, Clip
from tests.simt import programs

LANES, ROWS = 7, 3
FIXED = ("n", "m", "_bx")
DEFINITIONS = {
    "i": "_bx * 5 + _tx",
    "j": "_ty * 2 - m",
    "k": "n - i",
    "inside": "i < n",
    "off": "not (j >= m and i > 2)",
}


def reasoning(ranging: tuple[str, ...]) -> Affine:
    """About expressions in which these coordinates range and everything else is fixed."""
    box = {"_tx": affine.ends(0, LANES), "_ty": affine.ends(0, ROWS)}
    definitions = {name: expression(text) for name, text in DEFINITIONS.items()}
    fixed = {*FIXED, "_tx", "_ty"} - set(ranging)
    return Affine({name: box[name] for name in ranging}, definitions, {}, fixed.__contains__)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def value(expr: ast.expr | str, at: dict[str, int]):
    """An expression's value; where a thread's position is given, its variables can be read."""
    known = dict(at)
    if "_tx" in at:
        for name, text in DEFINITIONS.items():
            known[name] = eval(text, {}, dict(known))
    text = expr if isinstance(expr, str) else ast.unparse(ast.fix_missing_locations(expr))
    return eval(text, {}, known)


def sums() -> st.SearchStrategy[str]:
    """Texts of expressions that are affine, most of them of slope 1."""
    names = st.sampled_from(["_tx", "_ty", "i", "j", "k", "n", "m", "_bx"])
    numbers = st.integers(-4, 9)
    terms = st.one_of(names, names, numbers.map(str), st.builds("{} * {}".format, numbers, names))
    pairs = st.builds("{} {} ({})".format, terms, st.sampled_from("+-"), terms)
    fixed = st.builds("({}) {} 3".format, st.sampled_from(FIXED), st.sampled_from(["//", "%"]))
    return st.one_of(terms, pairs, fixed, terms.map("-({})".format))


def guards() -> st.SearchStrategy[str]:
    """Texts of conditions."""
    orders = st.sampled_from(["<", "<=", ">", ">=", "!=", "=="])
    plain = st.builds("({}) {} {}".format, sums(), orders, sums())
    chains = st.builds("{} <= ({}) < {}".format, sums(), sums(), sums())
    one = st.one_of(plain, plain, chains, st.sampled_from(["inside", "off"]))
    both = st.builds("({} {} {})".format, one, st.sampled_from(["and", "or"]), one)
    return st.one_of(one, both, one.map("not ({})".format), both.map("not {}".format))


def scaled_guards() -> st.SearchStrategy[str]:
    """Texts of conditions with factors that are fixed, but no numbers."""
    factors = st.sampled_from(["n", "m", "(2 * n)", "(m - n)", "12"])
    ranging = st.sampled_from(["_tx", "i", "k", "(_tx - 2)", "(j + i)"])
    orders = st.sampled_from(["<", "<=", ">", ">=", "=="])
    products = st.builds("{} * {}".format, factors, ranging)
    bounds = st.one_of(products, sums())
    plain = st.builds("{} {} ({})".format, products, orders, sums())
    turned = st.builds("({}) {} {} + ({})".format, bounds, orders, products, sums())
    remainders = st.builds("({}) % {}".format, ranging, factors)
    equal, other = (st.builds("{} {}".format, remainders, st.sampled_from(ends)) for ends in _ENDS)
    one = st.one_of(plain, turned, equal, equal, other, st.builds("not {}".format, other))
    return st.one_of(one, st.builds("{} and {}".format, one, guards()))


_ENDS = ["== 0"], ["!= 0", "== 1", "> 0"]


def places() -> st.SearchStrategy[dict[str, int]]:
    """Values of what is fixed for the threads of a block."""
    return st.fixed_dictionaries({name: st.integers(-6, 12) for name in FIXED})


def threads(at: dict[str, int]):
    for x, y in itertools.product(range(LANES), range(ROWS)):
        yield {**at, "_tx": x, "_ty": y}


def check_clip(guard: str, at: dict[str, int]) -> Clip | None:
    clip = reasoning(("_tx",)).clip(expression(guard), "_tx")
    if clip is not None:
        for here in threads(at):
            low = max([0, *(value(bound, here) for bound in clip.low)])
            high = min([LANES, *(value(bound, here) for bound in clip.high)])
            runs = all(value(c, here) for c in clip.conditions) and low <= here["_tx"] < high
            assert runs == bool(value(guard, here)), (guard, here, clip)
    return clip


def check_scaled(guard: str, at: dict[str, int]) -> Clip | None:
    clip = reasoning(("_tx",)).clip(expression(guard), "_tx", factors=True)
    places = [{**at, "n": n, "m": m} for n, m in ((1, 3), (2, 1), (3, 5), (5, -2), (-3, 4))]
    for here in itertools.chain(*map(threads, places)) if clip is not None else ():
        if not all(eval(check, {}, dict(here)) for check in clip.checks()):
            continue
        low = max([0, *(value(bound, here) for bound in clip.low)])
        high = min([LANES, *(value(bound, here) for bound in clip.high)])
        runs = all(value(c, here) for c in clip.conditions) and low <= here["_tx"] < high
        if clip.step is not None:
            runs &= (here["_tx"] - value(clip.phase, here)) % value(clip.step, here) == 0
        assert runs == bool(value(guard, here)), (guard, here, clip)
    return clip


def check_everywhere(guard: str, at: dict[str, int]) -> ast.expr | None:
    claim = reasoning(("_tx", "_ty")).everywhere(expression(guard))
    if claim is not None:
        holds = all(value(guard, here) for here in threads(at))
        assert bool(value(claim, at)) == holds, ast.unparse(claim)
    return claim


def check_slope(text: str, at: dict[str, int]) -> int | None:
    known = reasoning(("_tx", "_ty"))
    slope = known.slope(expression(text), "_tx")
    if slope is not None:
        first = known.at(expression(text), {"_tx": ast.Constant(0)})
        for here in threads(at):
            assert value(text, here) == value(first, here) + slope * here["_tx"]
    return slope


CHECKS = {
    "clip": (check_clip, guards(), places()),
    "scaled": (check_scaled, scaled_guards(), places()),
    "everywhere": (check_everywhere, guards(), places()),
    "slope": (check_slope, sums(), places()),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_said_holds_for_every_thread(name):
    check, *strategies = CHECKS[name]
    said = []

    @programs.PROPERTY
    @given(st.tuples(*strategies))
    def run(example: tuple) -> None:
        said.append(check(*example) is not None)

    run()
    assert sum(said) > len(said) // 4, "too little is known of these examples to test anything"


@pytest.mark.parametrize("guard", ["i < n", "i < n and j < m", "0 <= i - 1 < n", "not (i >= n)"])
def test_ordinary_guards_are_understood(guard):
    at = {"n": 8, "m": 2, "_bx": 1}
    assert check_clip(guard, at) is not None
    assert check_everywhere(guard, at) is not None


FAULTS = [
    ("clip", "_MIRROR", {op: op for op in affine._MIRROR}),
    ("clip", "_NEGATED", {**affine._NEGATED, ast.Lt: ast.Gt}),
    ("clip", "coefficient", lambda expr, name: 1),
    ("scaled", "_MIRROR", {op: op for op in affine._MIRROR}),
    ("scaled", "_times", lambda a, b: b),
    ("slope", "coefficient", lambda expr, name: 1),
]


@pytest.mark.parametrize("name, part, fault", FAULTS, ids=lambda x: x if isinstance(x, str) else "")
def test_planted_faults_are_found(name, part, fault, monkeypatch):
    monkeypatch.setattr(affine, part, fault)
    assert programs.fault_is_found(*CHECKS[name])


def test_corners_that_prove_nothing_are_found(monkeypatch):
    check_everywhere("_tx != 3", {"n": 0, "m": 0, "_bx": 0})
    monkeypatch.setattr(affine, "_ORDER", (*affine._ORDER, ast.NotEq))
    with pytest.raises(AssertionError):
        check_everywhere("_tx != 3", {"n": 0, "m": 0, "_bx": 0})


# Each row of `out` is written by the threads that another guard lets through.
GUARDED = """
def kernel(out, n, m):
    x, y = cuda.grid(2)
    if x < n and y < m:
        out[0, y, x] = 1
    if x + 3 >= n and x < out.shape[2]:
        out[1, y, x] = 1
    if not (x > n or y == m):
        out[2, y, x] = 1
    if 2 <= x - m < n:
        out[3, y, x] = 1
    if n - x > y - 2 and m >= y:
        out[4, y, x] = 1
    if x == n:
        out[5, y, x] = 1
    if -x <= -n:
        out[6, y, x] = 1
"""
# The same with factors of `x` that are no numbers, and remainders
SCALED = """
def kernel(out, n, m):
    x, y = cuda.grid(2)
    if n * x < 3 * m + 2:
        out[0, y, x] = 1
    if x >= 2 and 40 > x * m - n:
        out[1, y, x] = 1
    if n > 0 and x >= m and (x + 2 - m) % n == 0:
        out[2, y, x] = 1
    if x < n and (x - 3) % 9 == 0:
        out[3, y, x] = 1
    if (2 * m - 1) * (x - n) >= y:
        out[4, y, x] = 1
"""


@pytest.mark.parametrize("source", [GUARDED, SCALED], ids=["numbers", "factors"])
def test_compiled_guards_let_the_same_threads_through(source):
    kernel, lines = cuda.jit(programs.function(source), debug=False), source.splitlines()
    conditions = [line.strip()[3:-1] for line in lines if line.startswith("    if")]
    shape = (4, 24)  # 2 blocks of 2 rows, 3 of 8 threads
    y, x = np.indices(shape)
    for n, m in itertools.product([-3, 0, 1, 7, 8, 9, 16, 23, 24, 40], [-2, 0, 1, 2, 3, 5]):
        out = np.zeros((len(conditions), *shape), np.int64)
        kernel[(3, 2), (8, 2)](out, n, m)
        for found, condition in zip(out, conditions, strict=True):
            text = condition.replace("2 <= x - m < n", "(2 <= x - m) & (x - m < n)")
            text = text.replace("not ", "~").replace(" and ", ") & (").replace(" or ", ") | (")
            text = text.replace("~(", "~((") + ")" if text.startswith("~") else text
            with np.errstate(divide="ignore"):  # by n, where the other condition fails
                expected = eval(f"({text})", {"x": x, "y": y, "n": n, "m": m, "out": out})
            np.testing.assert_array_equal(found, expected, err_msg=f"{condition}, {n=}, {m=}")
    if source is SCALED:
        loops = re.findall(r"range\(_lo, _hi.*\)", kernel.inspect_cpu())
        assert loops == [f"range(_lo, _hi{step})" for step in ("", "", ", n", ", 9", "")]
