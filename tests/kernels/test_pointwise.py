"""Pointwise kernels as operations launch them: every memory layout, dtypes, errors."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from kernels.numba_cuda.pointwise import row_tiling
from kernels.pointwise import TABLE, Expr
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, check, get, normal, put, wide
from tests.kernels.test_lines import integers
from tests.kernels.test_tables import PARAMS, sample

on_devices = pytest.mark.parametrize("device", DEVICES)
SHAPES = [(0,), (1,), (31,), (32,), (33,), (255,), (257,), (1023,), (1025,), (70_001,), ()]


def params_of(expr: Expr) -> list[float]:
    return [PARAMS[p] for p in expr.params]


def check_line(expr: Expr, arrays, device: str, **kwargs) -> None:
    check("pointwise", expr, *arrays, device=device, params=params_of(expr), **kwargs)


# Here one by one, as a launch of the operation compiles them; tests/kernels/test_lines.py has all.
SOME_LINES = "where floor_divide rsqrt round bce lgamma clamp isinf".split()
INTEGER_LINES = [(n, np.uint8) for n in "add sub mul neg floor_divide remainder abs".split()]
INTEGER_LINES += [(n, np.int32) for n in "mul floor_divide pow where bitwise_not".split()]
INTEGER_LINES += [(n, np.int64) for n in "floor_divide bitwise_left_shift".split()]
INTEGER_LINES += [(n, bool) for n in "eq logical_and bitwise_xor".split()]


@on_devices
@pytest.mark.parametrize("name", SOME_LINES)
def test_line(name, device, rng):
    """The float32 kernel against the reference in float64, on numbers that float32 holds."""
    expr = TABLE[name]
    arrays = [a if a.dtype == bool else a.astype(np.float32) for a in sample(expr, rng)]
    values = [wide(a) if a.dtype != bool else a for a in arrays]
    scale = sum(np.abs(a) for a in values) + 1
    check_line(expr, arrays, device, scale=scale)
    if line := expr.vjp(0):
        arrays = dict(zip(expr.args, arrays)) | {"g": normal(rng, arrays[0].shape)}
        arrays["y"] = reference.pointwise(
            expr, *(arrays[a] for a in expr.args), params=params_of(expr)
        )
        check_line(line, [arrays[a] for a in line.args], device, scale=10)


@on_devices
@pytest.mark.parametrize(("name", "dtype"), INTEGER_LINES)
def test_integer_line(name, dtype, device, rng):
    expr = TABLE[name]
    arrays = integers(expr, dtype, rng)
    params = [2 for _ in expr.params]
    want = reference.pointwise(expr, *arrays, params=params)
    got = numba_cuda.pointwise(expr, *(put(a, device) for a in arrays), params=params)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(get(got), want)


@on_devices
def test_sizes(device, rng):
    for shape in SHAPES:
        check_line(TABLE["add"], [normal(rng, shape), normal(rng, shape)], device, scale=4)


@on_devices
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7, 33), (33,)),
        ((7, 33), (7, 1)),
        ((2, 3, 31, 5), (3, 1, 1)),
        ((2, 1, 4), (3, 1)),
        ((1,), (257, 3)),
        ((), (5, 1, 2)),
        ((0, 3), (1, 3)),
        ((2, 3, 2, 3, 2), (2, 1, 2, 1, 2)),
        ((300, 1025), (300, 1)),
    ],
)
def test_broadcast(left, right, device, rng):
    a, b = normal(rng, left), normal(rng, right)
    check_line(TABLE["add"], [a, b], device, scale=4)
    check_line(TABLE["add"], [b, a], device, scale=4)


@on_devices
def test_views(device, rng):
    x = put(normal(rng, (12, 40, 33)), device)
    add = TABLE["add"]
    views = [x, x[::2], x[..., ::-1], x[::-1, 1:, 5:20], x.transpose(2, 0, 1)]
    views += [x.transpose(0, 2, 1)[:, 3:], x[:, :, 0], x[2:3, 4:5, 6:7]]
    for i, a in enumerate(views):
        for b in (2.5, a.copy()) if i == 3 else (a.copy(),):
            got = numba_cuda.pointwise(add, a, b)
            assert get(got).flags.c_contiguous
            np.testing.assert_array_equal(
                get(got), get(a) + (b if isinstance(b, float) else get(b))
            )


@on_devices
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9, 17, 32, 33])
def test_short_rows(length, device, rng):
    """Broadcast in each direction, with blocks that rows fill or not; on a CPU half or more."""
    for rows, most in ((3, 8), (20, 32), (100, 1024)):
        (width, height), columns = row_tiling(rows, length, False)
        assert columns == width and width * height <= 1024
        assert length > 16 or (width < max(2 * length, 5) and height <= most)
    for rows in (3, 70, 1100):
        x, row, column = (normal(rng, shape) for shape in ((rows, length), length, (rows, 1)))
        part = normal(rng, (rows, length + 3))[:, 1:-2]
        for other in (row, column, part):
            check_line(TABLE["add"], [x, other], device, scale=4)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_operands_across_memory_are_copied_first(dtype, rng):
    """On a CPU: where a row's neighbours are none in memory. Not the copy, nor a small result that
    is given."""
    x = (4 * normal(rng, (40, 2, 120))).astype(dtype)
    flat = np.ascontiguousarray(x.swapaxes(0, 1).swapaxes(1, 2))
    for across in (x.transpose(1, 2, 0), np.repeat(flat, 2, -1)[:, :, ::2]):
        for other in (flat, across, flat[:, :, :1], across[:1, :1], across[:, :, 1:2], 2):
            plain = other if isinstance(other, int) else np.ascontiguousarray(other)
            for name in ("mul", "lt"):
                want = numba_cuda.pointwise(TABLE[name], flat, plain)
                with kernels.trace() as trace:
                    got = numba_cuda.pointwise(TABLE[name], across, other)
                np.testing.assert_array_equal(got, want)
                assert got.dtype == want.dtype and got.flags.c_contiguous
                assert sum(count for count, _ in trace.rows.values()) >= 2
        filled = numba_cuda.pointwise(TABLE["masked_fill"], across, across > 2, params=[3])
        np.testing.assert_array_equal(filled, np.where(flat > 2, 3, flat))
        out = np.zeros_like(flat)
        assert numba_cuda.pointwise(TABLE["neg"], across, out=out) is out
        np.testing.assert_array_equal(out, -flat)
        numba_cuda.pointwise(TABLE["add"], across, out, out=out)
        np.testing.assert_array_equal(out, flat - flat)
    many = normal(rng, (400, 400)).astype(dtype)
    out = np.zeros_like(many)
    with kernels.trace() as trace:
        numba_cuda.pointwise(TABLE["add"], many.T, many, out=out)
    np.testing.assert_array_equal(out, many.T + many)
    assert ("pointwise.add", "contiguous") in trace.rows
    numba_cuda.pointwise(TABLE["copy"], 2, dtype=out.dtype, out=out)
    np.testing.assert_array_equal(out, 2)
    padded = numba_cuda.pad(many, ((0, 0), (1, 2)), "constant", 1.0)
    np.testing.assert_array_equal(padded, np.pad(many, ((0, 0), (1, 2)), constant_values=1))
    same = normal(rng, (80, 80))
    want = same.T + same
    np.testing.assert_array_equal(numba_cuda.pointwise(TABLE["add"], same.T, same, out=same), want)


@on_devices
def test_scalars_and_mixed_dtypes(device, rng):
    a, i = normal(rng, 100), rng.integers(-5, 5, 100)
    check_line(TABLE["mul"], [a, 3], device, scale=10)
    check_line(TABLE["sub"], [1.5, a], device, scale=4)
    check_line(TABLE["where"], [True, a, 0.5], device)
    check_line(TABLE["where"], [i, a, -a], device)  # a mask of integers: not zero is true
    check_line(TABLE["mul"], [a, i], device, dtype=np.float32, scale=20)
    check_line(TABLE["gt"], [a, 0], device)
    assert numba_cuda.pointwise(TABLE["exp"], put(i, device)).dtype == np.float32
    assert numba_cuda.pointwise(TABLE["add"], put(a, device), 1).dtype == np.float32


@on_devices
@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16])
def test_float_dtypes(dtype, device, rng):
    a, b = normal(rng, (33, 20), dtype), normal(rng, (20,), dtype)
    for name in ("add", "exp", "maximum"):
        arrays = [a, b][: len(TABLE[name].args)]
        got = numba_cuda.pointwise(TABLE[name], *(put(v, device) for v in arrays))
        assert got.dtype == dtype
        want = reference.pointwise(TABLE[name], *(wide(v) for v in arrays))
        assert_close(got, want, 4)
    got = numba_cuda.pointwise(TABLE["mul"], put(a, device), 0.5, out_dtype=np.float32)
    np.testing.assert_array_equal(get(got), a.astype(np.float32) * np.float32(0.5))


@on_devices
def test_out(device, rng):
    mul = TABLE["mul"]
    host = normal(rng, (20, 20))
    x = put(host.copy(), device)
    assert numba_cuda.pointwise(mul, x, 2.0, out=x) is x
    np.testing.assert_array_equal(get(x), host * 2)
    numba_cuda.pointwise(mul, x, x.T, out=x)  # overlaps without being the same view
    np.testing.assert_array_equal(get(x), host * 2 * (host.T * 2))
    y = put(np.arange(11, dtype=np.float32), device)
    numba_cuda.pointwise(TABLE["add"], y[1:], y[:-1], out=y[1:])
    np.testing.assert_array_equal(get(y)[1:], np.arange(1, 11) + np.arange(10))
    z = put(np.zeros((6, 8), np.float32), device)
    numba_cuda.pointwise(TABLE["copy"], 3.0, out=z[::2, 1::3], dtype=np.float32)
    want = np.zeros((6, 8))
    want[::2, 1::3] = 3
    np.testing.assert_array_equal(get(z), want)


@on_devices
@pytest.mark.parametrize("axes", [(2, 1, 0), (0, 2, 1), (1, 2, 0), (0, 1, 2)])
def test_out_that_is_transposed(axes, device, rng):
    """It is walked as it lies in memory, and so is what lies alike."""
    back = np.argsort(axes)
    values = normal(rng, (5, 33, 2))
    others = [values, values[:, :1], values[0, 3], values[::-1], np.float32(2), values[:, :, :1]]
    for other in others:
        out = put(values.transpose(axes).copy(), device).transpose(back)
        second = put(np.ascontiguousarray(other), device) if np.ndim(other) else 2.0
        assert numba_cuda.pointwise(TABLE["mul"], out, second, out=out) is out
        np.testing.assert_array_equal(get(out), values * other)
    alike = put(values.transpose(axes).copy(), device).transpose(back)
    out = put(np.zeros_like(values.transpose(axes)), device).transpose(back)
    numba_cuda.pointwise(TABLE["add"], alike, alike, out=out)
    np.testing.assert_array_equal(get(out), values + values)


@on_devices
def test_nan_and_infinities(device):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    for name in "maximum minimum add div pow eq lt remainder fmod floor_divide".split():
        want = reference.pointwise(TABLE[name], a, b)
        got = get(numba_cuda.pointwise(TABLE[name], put(a, device), put(b, device)))
        np.testing.assert_array_equal(got, want, err_msg=name)
    for name in "relu sign abs isnan isinf isfinite floor round exp sqrt logical_not".split():
        want = reference.pointwise(TABLE[name], special)
        got = get(numba_cuda.pointwise(TABLE[name], put(special, device)))
        np.testing.assert_allclose(got, want, rtol=3e-7, err_msg=name)


def test_the_kernel_can_be_read():
    """The generated text keeps literals in the compute type and computes equal calls once."""
    import inspect

    from kernels.launchers.pointwise import Form, Operand
    from kernels.numba_cuda.pointwise import kernel, source

    f32 = np.dtype(np.float32)
    form = Form((Operand(f32),), f32, f32)
    text = source(TABLE["gelu_tanh"].vjp(0), Form((Operand(f32),) * 2, f32, f32))
    assert text.count("math.tanh") == 1 and "T(0.5)" in text
    assert inspect.getsource(kernel(TABLE["exp"], form).py_func) == source(TABLE["exp"], form)


def test_trace_and_errors(rng):
    a, b = normal(rng, (3, 4)), normal(rng, (5, 4))
    with kernels.trace() as trace:
        kernels.add(a, a, backend="numba")
        kernels.add(a, a[0], backend="numba")
    assert trace.rows["pointwise.add", "contiguous"][0] == 1
    assert trace.rows["pointwise.add", "strided"][0] == 1
    with pytest.raises(ValueError, match=r"add: shapes \(3, 4\) and \(5, 4\) do not broadcast"):
        kernels.add(a, b, backend="numba")
    with pytest.raises(ValueError, match=r"shape \(3, 4\), but out has \(5, 4\)"):
        kernels.add(a, a, out=b, backend="numba")
    with pytest.raises(TypeError, match="takes arrays"):
        kernels.add(a, backend="numba")
    with pytest.raises(TypeError, match="expected integers or bools, got float32"):
        kernels.bitwise_and(a, a, backend="numba")
    record = np.zeros(4, [("x", "f4"), ("y", "i1")])
    with pytest.raises(ValueError, match="no multiples of the item size"):
        kernels.exp(record["x"], backend="numba")


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_fmod_of_the_lowest_numbers(dtype):
    """Their absolute values do not fit their type."""
    low = np.iinfo(dtype).min
    a, b = np.array([[low, -8, 5, low, low], [-58, low, low, low, 3]], dtype)
    rest = [abs(x) % abs(y) * (1 - 2 * (x < 0)) for x, y in zip(a.tolist(), b.tolist())]
    assert numba_cuda.pointwise(TABLE["fmod"], a, b).tolist() == rest


@on_devices
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_integer_division_in_both_languages(dtype, device):
    """By Python's rules; 0 by 0, and the lowest number by -1 wraps around: but not in Numba on a
    GPU, whose compiler leaves that quotient undefined."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    numbers = [n for n in (low, low + 1, -7, -2, -1, 0, 1, 2, 3, high - 1, high) if n >= low]
    pairs = [(a, b) for a in numbers for b in numbers]
    for backend in ("cupy", "numba"):
        if (backend, device) == ("numba", "gpu"):
            pairs = [pair for pair in pairs if pair != (low, -1)]
        x, y = (put(np.array(column, dtype), device) for column in zip(*pairs))
        for name, exact in (("floor_divide", int.__floordiv__), ("remainder", int.__mod__)):
            wanted = [exact(a, b) if b else 0 for a, b in pairs]
            found = getattr(kernels, name)(x, y, backend=backend)
            assert get(found).tolist() == [(n - low) % (high - low + 1) + low for n in wanted]
