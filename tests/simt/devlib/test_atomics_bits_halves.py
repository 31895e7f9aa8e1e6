"""Atomics, bit operations and half precision as compiled kernels call them."""

from __future__ import annotations

import functools
import math
import threading

import ml_dtypes
import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from kernels.simt.devlib import half, registry
from kernels.simt.ir import stubs

SEED = 20261120
NUMBERS = [np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64]
INTEGERS = NUMBERS[2:]


@functools.cache
def compiled(name: str, own: bool, returns: bool = True):
    """An njit caller of one atomic: operation(array, index, *values) -> old."""
    function = (registry.LOCAL_FUNCTIONS if own else registry.FUNCTIONS)[name]
    if name == "atomic.cas":
        return numba.njit(lambda array, index, old, value: function(array, index, old, value))
    if name == "atomic.compare_and_swap":
        return numba.njit(lambda array, old, value: function(array, old, value))
    return numba.njit(lambda array, index, value: function(array, index, value))


@functools.cache
def several(names: tuple[str, ...], own: bool):
    """An njit caller of any of these atomics, quicker to compile than one for each:
    several(names, own)(number, array, index, value) -> old."""
    functions = registry.LOCAL_FUNCTIONS if own else registry.FUNCTIONS
    space = {f"atomic_{i}": functions[f"atomic.{name}"] for i, name in enumerate(names)}
    lines = ["def call(number, array, index, value):"]
    lines += [f"    if number == {i}: return {f}(array, index, value)" for i, f in enumerate(space)]
    exec("\n".join([*lines, "    raise IndexError"]), space)
    return numba.njit(space["call"])


def expected(name: str, old, value, dtype):
    if name in ("nanmax", "nanmin"):
        return getattr(np, "f" + name[3:])(old, value)
    rules = {
        "add": lambda: old + value,
        "sub": lambda: old - value,
        "and_": lambda: old & value,
        "or_": lambda: old | value,
        "xor": lambda: old ^ value,
        "exch": lambda: value,
        "max": lambda: value if value > old else old,
        "min": lambda: value if value < old else old,
        "inc": lambda: dtype(0) if old >= value else old + dtype(1),
        "dec": lambda: value if old == 0 or old > value else old - dtype(1),
    }
    with np.errstate(over="ignore"):
        return dtype(rules[name]())


CASES = (
    [(op, dtype) for op in ("add", "sub", "max", "min", "nanmax", "nanmin") for dtype in NUMBERS]
    + [(op, dtype) for op in ("and_", "or_", "xor", "exch") for dtype in INTEGERS]
    + [(op, dtype) for op in ("inc", "dec") for dtype in (np.uint32, np.uint64)]
)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("operation", "dtype"), CASES)
def test_atomic_updates_and_returns_the_old_value(operation, dtype, own):
    rng = np.random.default_rng(SEED)
    names = tuple(name for name, kind in CASES if kind is dtype)
    call = functools.partial(several(names, own), names.index(operation))
    info = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else None
    if info:
        values = [*rng.integers(0, 5, 6), info.max, info.min, info.max // 2]
    else:
        values = [0.0, -1.5, 2.25, np.inf, -np.inf, np.nan]
    for old in values:
        for value in values:
            old, value = dtype(old), dtype(value)
            array = np.array([[7, 7], [7, old]], dtype)
            assert np.array_equal(call(array, (1, 1), value), old, equal_nan=True)
            with np.errstate(invalid="ignore"):
                new = expected(operation, old, value, dtype)
            assert np.array_equal(array[1, 1], new, equal_nan=True), (old, value)
            assert (array.ravel()[:3] == 7).all()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_compare_and_swap(dtype, own):
    array = np.array([3, 4], dtype)
    cas = compiled("atomic.cas", own)
    assert cas(array, 1, dtype(4), dtype(9)) == 4
    assert cas(array, 1, dtype(4), dtype(5)) == 9
    assert array.tolist() == [3, 9]
    swap = compiled("atomic.compare_and_swap", own)
    assert swap(array, dtype(3), dtype(8)) == 3
    assert swap(array, dtype(3), dtype(1)) == 8
    assert array.tolist() == [8, 9]


@pytest.mark.parametrize("own", [False, True])
def test_atomic_index_forms(own):
    add = compiled("atomic.add", own)
    line = np.zeros(4, np.float32)
    for index in (0, np.uint8(1), (2,), -1):
        add(line, index, 1.0)
    assert line.tolist() == [1, 1, 1, 1]
    strided = np.zeros((4, 6), np.int64)[::2, ::3]
    add(strided, (np.int32(-1), np.uint64(1)), 5)
    assert strided.tolist() == [[0, 0], [0, 5]]


def test_atomic_value_is_converted_to_the_elements_type():
    array = np.zeros(1, np.int32)
    compiled("atomic.add", False)(array, 0, 2.75)
    assert array[0] == 2


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("atomic.add", np.zeros(1, np.int8), "no such atomic for int8"),
        ("atomic.inc", np.zeros(1, np.int32), "no such atomic for int32"),
        ("atomic.and_", np.zeros(1, np.float32), "no such atomic for float32"),
        ("atomic.add", np.zeros((2, 2), np.float32), "1 indices for an array of 2 dimensions"),
    ],
)
def test_atomics_that_cuda_lacks_are_refused(name, array, message):
    with pytest.raises(TypingError, match=message):
        compiled(name, False)(array, 0, 1)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("operation", ["add", "sub", "max", "nanmax"])
def test_global_atomics_hold_between_threads(dtype, operation):
    atomic = registry.FUNCTIONS[f"atomic.{operation}"]

    @numba.njit(nogil=True)
    def work(array, count, sign, base):
        for i in range(count):
            atomic(array, 0, sign)
            atomic(array, 1, base + i)

    one = dtype(1)
    work(np.zeros(2, dtype), 1, one, 0)
    array = np.zeros(2, dtype)
    if operation == "sub":
        array[0] = 200_000
    count, jobs = 40_000, 4
    threads = [
        threading.Thread(target=work, args=(array, count, one, k * count)) for k in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = count * jobs
    first = {"add": total, "sub": 200_000 - total}.get(operation, 1)
    assert array[0] == first
    if "max" in operation:
        assert array[1] == total - 1


@numba.njit
def bits_of(x):
    return registry.popc(x), registry.clz(x), registry.ffs(x)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_bit_counts(dtype):
    width = dtype(0).itemsize * 8
    info = np.iinfo(dtype)
    for value in (0, 1, 6, info.max, info.min, info.max // 3, -1 & info.max):
        text = format(int(value) & (2**width - 1), f"0{width}b")
        popc, clz, ffs = bits_of(dtype(value))
        assert popc == text.count("1")
        assert clz == len(text) - len(text.lstrip("0"))
        assert ffs == (len(text) - len(text.rstrip("0")) + 1 if "1" in text else 0)


def test_bit_reverse_and_library_integers():
    @numba.njit
    def run(a, b, c, d):
        f = registry
        return f.brev(a), f.brev(b), f.mulhi_int(c, d), f.umul64hi_int(b, b), f.mul24_int(c, d)

    a, b, c, d = np.uint32(0x12345678), np.uint64(0xF0F0_0000_0000_0001), -123456789, 987654321
    rev32, rev64, high, high64, low24 = run(a, b, c, d)
    assert rev32 == int(format(int(a), "032b")[::-1], 2)
    assert rev64 == int(format(int(b), "064b")[::-1], 2)
    assert high == (c * d) >> 32
    assert high64 % 2**64 == (int(b) ** 2) >> 64  # typed as signed, as in numba-cuda

    def signed24(x):
        return ((x & 0xFFFFFF) ^ 0x800000) - 0x800000

    product = (signed24(c) * signed24(d)) & 0xFFFFFFFF
    assert low24 == (product ^ 0x80000000) - 0x80000000


def test_fma_rounds_once():
    @numba.njit
    def run(a, b, c):
        return registry.fma(a, b, c)

    a = np.float32(1 + 2**-12)
    exact = float(a) * float(a) - 1
    assert run(a, a, np.float32(-1)) == np.float32(exact)
    assert np.float32(a * a) - np.float32(1) != np.float32(exact)
    assert isinstance(run(a, a, 1.0), float)
    assert run(1 + 2.0**-30, 1 + 2.0**-30, -1.0) == 2.0**-29 + 2.0**-60


def test_selp_and_its_types():
    @numba.njit
    def run(test, a, b):
        return registry.selp(test, a, b)

    assert run(True, 3, 4) == 3
    assert run(0, 3.5, 4.5) == 4.5
    with pytest.raises(TypingError, match="of one type"):
        run(True, np.float32(1), 2)


def test_reinterpreting_casts():
    @numba.njit
    def run(x):
        return registry.float_as_int(x), registry.int_as_float(registry.float_as_int(x))

    assert run(np.float32(-1.5)) == (np.float32(-1.5).view(np.int32), -1.5)


@numba.njit
def minmax(a, b):
    return registry.maximum(a, b), registry.minimum(a, b)


def test_max_and_min_follow_fmax_and_fmin():
    one, nan = np.float32(1), np.float32(math.nan)
    assert minmax(one, nan) == (1, 1)
    assert minmax(nan, one) == (1, 1)
    assert minmax(2, 3) == (3, 2)
    assert minmax(np.uint64(2**63), np.uint64(5)) == (2**63, 5)
    assert minmax(1, 2.5) == (2.5, 1.0)


def test_round_is_to_even_and_an_integer():
    run = numba.njit(lambda x: registry.round_even(x))
    assert [run(np.float32(x)) for x in (0.5, 1.5, 2.5, -0.5)] == [0, 2, 2, 0]
    assert isinstance(run(2.5), int)


def test_all_half_patterns_load_exactly():
    stored = np.arange(2**16, dtype=np.uint16)

    @numba.njit
    def load(stored, out, alike):
        half = registry.as_half(stored)
        for i in range(stored.size):
            out[i] = half[i]
            alike[i] = registry.half_load_portable(stored[i])

    out, alike = np.empty((2, stored.size), np.float32)
    load(stored, out, alike)
    truth = stored.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(out, truth)
    np.testing.assert_array_equal(alike, truth)

    bfloat = numba.njit(lambda stored, i: np.float32(registry.as_bfloat16(stored)[i]))
    picks = np.random.default_rng(SEED).integers(0, 2**16, 500)
    truth = stored.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal([bfloat(stored, i) for i in picks], truth[picks])


def _awkward_floats() -> np.ndarray:
    rng = np.random.default_rng(SEED)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    halves = np.arange(0, 2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    special = np.array([65504, 65519.99, 65520, 65536, 2.0**-24, 2.0**-25, 2.98e-8, 1e-8, -0.0])
    near = np.nextafter(ties, np.float32(np.inf))
    return np.concatenate([bits, halves, ties, near, special.astype(np.float32)])


@numba.njit
def store_all(values, half, bfloat, portable):
    halves, bfloats = registry.as_half(half), registry.as_bfloat16(bfloat)
    for i in range(values.size):
        halves[i] = values[i]
        bfloats[i] = values[i]
        portable[i] = registry.half_store_portable(np.float32(values[i]))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_float32_stores_round_to_nearest_even():
    values = _awkward_floats()
    half, bfloat, portable = np.zeros((3, values.size), np.uint16)
    store_all(values, half, bfloat, portable)
    truth = values.astype(np.float16)
    np.testing.assert_array_equal(half.view(np.float16), truth)
    np.testing.assert_array_equal(portable.view(np.float16), truth)
    known = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        bfloat.view(ml_dtypes.bfloat16).astype(np.float32), known.astype(np.float32)
    )


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_float64_and_integer_stores_round_once():
    rng = np.random.default_rng(SEED)
    halves = rng.integers(0, 0x7C00, 20_000).astype(np.uint16).view(np.float16).astype(float)
    values = np.concatenate([halves * (1 + 2.0**-11), halves * (1 + 2.0**-11 + 2.0**-40), -halves])
    half, bfloat, portable = np.zeros((3, values.size), np.uint16)
    store_all(values, half, bfloat, portable)
    np.testing.assert_array_equal(half.view(np.float16), values.astype(np.float16))

    whole = rng.integers(-70_000, 70_000, 5000)
    half, bfloat, portable = np.zeros((3, whole.size), np.uint16)
    store_all(whole, half, bfloat, portable)
    np.testing.assert_array_equal(half.view(np.float16), whole.astype(np.float16))


def test_half_arithmetic_is_float32():
    @numba.njit
    def run(stored):
        a = registry.as_half(stored)
        total = a[0] + a[1]
        scaled = a[0] * np.float32(3)
        grown = a[0]
        for i in range(1, a.size):
            grown = grown + a[i]
        return total, scaled, grown, a[0] < a[1], -a[1], registry.exp(a[0])

    stored = np.array([2048, 1, 1, 0.5], np.float16).view(np.uint16)
    total, scaled, grown, less, negative, grown_exp = run(stored)
    assert (total, scaled, grown, less, negative) == (2049.0, 6144.0, 2050.5, False, -1.0)
    assert grown_exp == math.inf
    kind = run.overloads[run.signatures[0]].signature.return_type
    assert kind[0] == kind[1] == kind[2] == numba.float32


@pytest.mark.parametrize("view", [registry.as_half, registry.as_bfloat16])
def test_half_scalars_take_part_in_every_operator(view):
    @numba.njit
    def run(stored, out):
        a = view(stored)
        x = a[0]
        out[0], out[1], out[2] = x * x + 1, x**2, x / a[1]
        out[3], out[4], out[5] = x % 2, registry.maximum(x, a[1]), abs(-x)
        if a[2]:
            x = a[1]
        out[6], out[7], out[8] = x, x == a[1], int(x)

    dtype = np.float16 if view is registry.as_half else ml_dtypes.bfloat16
    out = np.zeros(9)
    run(np.array([3, 4, 1], dtype).view(np.uint16), out)
    assert out.tolist() == [10, 9, 0.75, 1, 4, 3, 4, 1, 4]


def test_half_functions_round_their_results():
    @numba.njit
    def run(a, b):
        return registry.fp16_hadd(a, b), registry.fp16_hfma(a, b, b), registry.fp16_hexp(b)

    a, b = np.float16(2048), np.float16(1)
    summed, fused, exponential = run(np.float32(a), np.float32(b))
    assert summed == 2048  # 2049 is no half
    assert fused == np.float16(2049)
    assert exponential == np.float32(np.float16(math.e))


def test_every_device_stub_has_a_function_that_can_be_imported():
    for name in stubs.all_stubs():
        if name.startswith(("atomic.", "fp16.", "libdevice.")):
            function = registry.lookup(name)
            assert getattr(registry, function.__name__) is function
    for function in (*registry.LOCAL_FUNCTIONS.values(), *registry.REPLACEMENTS.values()):
        assert getattr(registry, function.__name__) is function
    assert half.STORAGE[np.dtype(np.float16)][0] is half.float16
