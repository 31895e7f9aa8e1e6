"""cupy.fuse: functions that become one kernel, and those that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernels.cupy as cp
from kernels.cupy import _fusion_code, _index
from kernels.cupyx.scipy import special

DTYPES = "? b B i L e f d F D".split()
#: ufuncs that are called one by one: they have no expression in CUDA C
UNFUSED = {"bitwise_count", "frexp", "i0", "ldexp", "logaddexp2", "modf", "nan_to_num", "sinc"}
RTOL = {"e": 2e-3, "f": 2e-5, "F": 2e-5}


def device(args: tuple) -> list:
    return [cp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]


def check(function, *args, kernels: int = 1, rtol: float = 1e-6, by_shape: bool | None = None):
    """The fused function gives what the plain one gives, with so many kernels."""
    fused = cp.fuse(function)
    first, second = device(args), device(args)
    got, wanted = fused(*first), function(*second)
    (plan,) = fused._plans.values()
    assert len(plan.kernels) == kernels, [k.name for k in plan.kernels]
    assert by_shape is None or plan.by_shape == by_shape
    pairs = zip(got, wanted) if isinstance(got, tuple) else [(got, wanted)]
    for ours, theirs in (*pairs, *zip(first, second)):
        if isinstance(ours, cp.ndarray):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(ours.get(), theirs.get(), rtol=rtol, atol=rtol)
    return fused


def operands(char: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.dtype(char)
    special_values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]
    if dtype.kind == "f":
        a, b = (np.array([*special_values, *rng.normal(0, 2, 60)]) for _ in "ab")
        return a.astype(dtype), rng.permutation(b).astype(dtype)
    if dtype.kind == "c":
        return tuple((rng.normal(size=50) + 1j * rng.normal(size=50)).astype(dtype) for _ in "ab")
    if dtype.kind == "b":
        return rng.random(40) < 0.5, rng.random(40) < 0.5
    low = max(-7, np.iinfo(dtype).min)
    return tuple(rng.integers(low, 8, 60).astype(dtype) for _ in "ab")


@pytest.mark.parametrize("char", DTYPES)
def test_every_ufunc_is_fused_as_it_is_computed(char, rng):
    """All in one kernel for each dtype, which takes less time to compile."""
    a, b = operands(char, rng)
    names = []
    for name, entry in _index.entries("cupy").items():
        if entry.kind != "ufunc" or name in UNFUSED or name in ("power", "pow", "divmod"):
            continue
        function = getattr(cp, name)
        try:
            function(*device((a, b))[: function.nin])
        except TypeError:
            continue  # no such type
        if "FD".find(char) >= 0 and name in (*"sign greater less maximum minimum".split(), "fmax",
                                             "fmin", "greater_equal", "less_equal"):  # fmt: skip
            continue
        names.append(name)
    assert len(names) > 20

    def everything(x, y):
        return tuple(getattr(cp, name)(*(x, y)[: getattr(cp, name).nin]) for name in names)

    fused = cp.fuse(everything)
    got, wanted = fused(*device((a, b))), everything(*device((a, b)))
    (plan,) = fused._plans.values()
    called = {names[i] for i, node in enumerate(plan.outputs) if node.kind != "op"}
    assert called <= {"nextafter"}  # float16 is computed in float
    for name, ours, theirs in zip(names, got, wanted):
        assert ours.dtype == theirs.dtype, name
        rtol = RTOL.get(theirs.dtype.char, 1e-10)
        np.testing.assert_allclose(ours.get(), theirs.get(), rtol=rtol, atol=rtol, err_msg=name)


def test_special_functions_and_others(rng):
    x, y = rng.random(30) * 3 + 0.1, rng.integers(-5, 6, 30)

    def f(x, y):
        return (
            special.erf(x) + special.gammaln(x) * special.ndtr(x) + special.expit(x),
            special.xlogy(x, x) + special.gamma(x),
            cp.where(y > 0, x, y),
            cp.clip(x, 0.5, None),
            cp.clip(y, -2, 3),
            cp.round(x) + cp.around(y),
            cp.divmod(y, 3)[0] - cp.divmod(y, 3)[1],
            cp.power(x, y) + x**2 + cp.real(x) + cp.imag(x),
            y.astype(cp.int8) << 3,
            (-x).astype(cp.float16) * cp.copy(x),
            cp.minimum(x, float("inf")) + np.float32(1),
            abs(~y) & 3 | (y ^ 2),
        )

    check(f, x, y, rtol=1e-12)


def test_numbers_and_broadcasting(rng):
    x, y = rng.random((4, 1, 5), dtype=np.float32), rng.random((3, 5), dtype=np.float32)

    def f(x, y, a, b, c):
        return (x * a + y / b) * c

    fused = check(f, x, y, 2.5, 3, np.float64(0.5))
    assert fused(cp.asarray(y), cp.asarray(y), 1.0, 1, np.float32(1)).dtype == np.float32
    assert fused(cp.asarray(y).T, cp.asarray(y).T, 1.0, 1, np.float32(1)).shape == (5, 3)
    assert len(fused._plans) == 2  # dtypes and dimensions, not shapes
    fused.clear_cache()
    assert not fused._plans
    assert fused(1.0, 2.0, 3.0, 4.0, 5.0) == 17.5  # no arrays: the function itself
    assert check(lambda x, y: (x + y) * None if y is None else x, x, 1.0, kernels=1)


def test_arguments_are_written_in_place(rng):
    x, y = rng.random((6, 5)), rng.random(5)

    def f(x, y):
        x += y
        x[...] = x * 2
        cp.add(y, 1, y)
        return x - y

    check(f, x, y, kernels=2)

    def g(x, y):
        cp.sqrt(x, out=x)
        y[:] = 3

    check(g, x, y, kernels=2)
    values = cp.arange(6.0)
    cp.fuse(lambda a, b: cp.multiply(a, b, a))(values[1:], values[:-1])  # memory overlaps
    assert values.tolist() == [0, 0, 2, 6, 12, 20]


def test_reductions(rng):
    x, y = rng.random((7, 5)).astype(np.float32), rng.random(5).astype(np.float32)
    i = rng.integers(-9, 9, (7, 5)).astype(np.int16)
    check(lambda x, y: cp.sum((x - y) ** 2), x, y, rtol=1e-5)
    check(lambda x, y, a: cp.sqrt(cp.sum(x * y * a, axis=1)) * a + 1, x, y, 3.0, rtol=1e-5)
    check(lambda x: (x.max(axis=0), x.max(axis=0) + 1), x, kernels=3)
    check(lambda i: cp.prod(i, axis=1), i)
    check(lambda i: i.sum(dtype=cp.float32), i)
    check(lambda i: (cp.any(i > 8), cp.all(i > -9)), i, kernels=2)
    check(lambda i: cp.amin(i, axis=-1), i)
    bad = np.where(x > 0.5, np.nan, x)
    check(lambda x: cp.nansum(x, axis=0), bad, rtol=1e-5)
    assert np.isnan(cp.fuse(lambda x: cp.max(x))(cp.asarray(bad)).get())

    def softmax(x):
        z = cp.exp(x - cp.max(x, axis=1)[:, None])
        return z / z.sum(axis=1)[:, None]

    fused = check(softmax, x, kernels=4, by_shape=True, rtol=1e-5)
    assert fused(cp.asarray(x[:3])).shape == (3, 5)
    check(lambda x, y: (x[::-1] * y[None], x[0, ...] + y), x, y, kernels=2)


def test_what_has_no_expression_is_called(rng):
    """The rest is fused around it."""
    check(lambda x: cp.sinc(x * 2 + 1) * 3 - x, rng.random(20), kernels=2, by_shape=True)
    check(lambda x: cp.frexp(x * x), rng.random(20), kernels=1)


def test_fused_functions_in_fused_functions(rng):
    @cp.fuse
    def square(x):
        return x * x

    @cp.fuse(kernel_name="length")
    def length(x, y):
        """Documented."""
        return cp.sqrt(square(x) + square(y))

    assert length.__doc__ == "Documented." and repr(length) == "<Fusion name=length>"
    assert length(cp.asarray([3.0]), cp.asarray([4.0])).tolist() == [5.0]
    (plan,) = length._plans.values()
    assert plan.kernels[0].name == "length"


W = cp.ones(3)
REFUSED = {
    "a value": (lambda x: x if x > 0 else -x, TypeError, "Cannot convert to Python scalar"),
    "a number": (lambda x: float(x), TypeError, "Cannot convert to Python scalar"),
    "another array": (lambda x: x + W, TypeError, "Concrete ndarray is not supported"),
    "an array of NumPy": (lambda x: x + np.ones(3), TypeError, "Concrete ndarray"),
    "a list": (lambda x: cp.add(x, [1, 2, 3]), TypeError, "list"),
    "shape": (lambda x: x * x.shape[0], NotImplementedError, "`shape` is not supported"),
    "keepdims": (lambda x: x.sum(keepdims=True), NotImplementedError, "keepdims"),
    "an axis": (lambda x: x.sum(axis=1), np.exceptions.AxisError, "axis 1 is out of bounds"),
    "part of an axis": (lambda x: x[1:] * 2, NotImplementedError, "Only full range"),
    "an array as index": (lambda x: x[x], NotImplementedError, "Advanced indexing"),
    "too many indices": (lambda x: x[0, 0], IndexError, "Too many indices"),
    "writing a part": (lambda x: x.__setitem__(0, 1), ValueError, r"`\[...\]` or `\[:\]`"),
    "a cast that loses": (lambda x: cp.add(x, 1.5j, x), TypeError, "same_kind"),
    "dot": (lambda x: cp.dot(x, x), TypeError, "dot cannot be fused"),
    "take": (lambda x: cp.take(x, 1), TypeError, "cannot be fused"),
    "mean": (lambda x: x.mean(), AttributeError, "have no 'mean'"),
    "NumPy's ufunc": (lambda x: np.exp(x), TypeError, "does not support ufuncs"),
    "its result": (lambda x: [x], ValueError, "must be `None`, ndarray or a tuple"),
    "an option": (lambda x: cp.add(x, 1, casting="unsafe"), TypeError, "Wrong arguments"),
    "astype": (lambda x: x.astype("f", order="C"), TypeError, "order is not supported yet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cupy_refuses_to_fuse(name):
    function, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        cp.fuse(function)(cp.asarray([1.0, 2.0, 3.0]))
    assert cp.add(W, 1).tolist() == [2, 2, 2]  # nothing is recorded any more
    with pytest.raises(TypeError, match="Invalid argument type for 'len'"):
        cp.fuse(len)(cp.ones(3), [1])


def test_the_table_has_no_expression_for_what_is_not_there():
    known = {*_index.entries("cupy"), *_index.entries("cupyx.scipy.special"), "rsqrt"}
    assert set(_fusion_code._TABLE) <= known
