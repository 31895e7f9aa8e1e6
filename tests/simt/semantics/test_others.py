"""What kernels use that others wrote for numba-cuda, and what it refuses them."""

from __future__ import annotations

import enum
import math
import runpy

import numpy as np
import pytest
from numba import float32, int32

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter
from kernels.support.errors import CompileError

SHAPE = (4, 8)


def run(kernel, *args, threads=1):
    kernel[1, threads](*args)
    return args[0].tolist()


def test_a_tuple_of_constants_is_a_shape_in_a_device_function():
    @cuda.jit(device=True)
    def first(shape, dtype, value):
        tile = cuda.shared.array(shape, dtype)
        tile[shape[0] - 1, cuda.threadIdx.x] = value
        cuda.syncthreads()
        return tile[3, shape[1] - 1 - cuda.threadIdx.x]

    @cuda.jit
    def of_a_global(x):
        x[cuda.threadIdx.x] = first(SHAPE, float32, x[cuda.threadIdx.x])

    @cuda.jit
    def of_a_literal(x):
        x[cuda.threadIdx.x] = first((4, 8), float32, x[cuda.threadIdx.x])

    for kernel in (of_a_global, of_a_literal):
        assert run(kernel, np.arange(8.0), threads=8) == list(range(8))[::-1]


def test_zip_and_enumerate_in_any_combination():
    @cuda.jit
    def kernel(out, x, y):
        for i, (a, b) in enumerate(zip(x, y)):
            out[i] += a * b
        for (i, a), b in zip(enumerate(x), y):
            out[i] += 10 * (a + b)
        for pair in zip(x, range(5, 100, 2)):
            out[0] += pair[0] + pair[1]
        for i, a in enumerate(y, start=1):
            out[1] += i * a
        for i, j in zip(range(2), (7, 9)):
            out[2] += i * j
        for p in enumerate((4.5, 5.0)):
            out[2] += p[0] * p[1]

    out, expected = np.zeros(3), np.zeros(3)
    x, y = np.array([1.0, 2, 3]), np.arange(4.0)
    kernel.py_func(expected, x, y)
    assert run(kernel, out, x, y) == expected.tolist()


def test_bits_are_counted_as_popc_counts_them():
    @cuda.jit
    def kernel(out, x, y):
        i = cuda.threadIdx.x
        out[i] = x[i].bit_count() * 100 + y[i].bit_count()

    x, y = np.array([0, 1, 255, -1], np.int32), np.array([7, 0, 1, -1])
    assert run(kernel, np.zeros(4, np.int64), x, y, threads=4) == [3, 100, 801, 3264]


def test_a_grid_group_that_nothing_uses():
    @cuda.jit
    def kernel(x):
        cuda.cg.this_grid()
        group = cuda.cg.this_grid()  # noqa: F841
        x[0] = 1

    assert run(kernel, np.zeros(1)) == [1]


def test_the_signature_of_a_device_function_converts():
    @cuda.jit("int32(int32, int32)", device=True)
    def add(a, b):
        return a + b

    @cuda.jit(float32(float32), device=True)
    def third(a):
        return a / 3

    @cuda.jit("int32(int32)", device=True)
    def below(n):  # not inlined: it returns from its loop
        for k in range(10):
            if k * k >= n:
                return k - 0.5
        return -1

    @cuda.jit
    def kernel(x):
        x[0], x[1], x[2] = add(2.7, x[3]), third(1), below(9.9)

    x = np.array([0, 0, 0, 3.9])
    assert run(kernel, x)[:3] == [5, float(np.float32(1 / 3)), 2]

    @cuda.jit("float64(float64)", device=True)
    def add(a):  # noqa: F811 - the same code under another signature is another function
        return a + 0.25

    assert run(kernel_of(add), np.zeros(1)) == [0.75]


def kernel_of(function):
    @cuda.jit
    def kernel(x):
        x[0] = function(0.5)

    return kernel


@pytest.mark.parametrize("signature, expected", [("int32(int32)", 4), ("float64(float64)", 4.5)])
def test_the_cache_tells_signatures_of_device_functions_apart(signature, expected):
    function = cuda.jit(signature, device=True)(_doubled)
    assert run(kernel_of_doubled(function), np.zeros(1)) == [expected]


def _doubled(a):
    return a * 2


def kernel_of_doubled(function):
    @cuda.jit
    def kernel(x):
        x[0] = function(2.25)

    return kernel


def test_device_arrays_as_globals_are_read_and_written_in_place():
    table = cuda.to_device(np.arange(6.0).reshape(2, 3))
    counts = cuda.to_device(np.zeros(4, np.int32))

    @cuda.jit(device=True)
    def looked_up(i):
        return table[i // 3, i % 3]

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = looked_up(i)
        cuda.atomic.add(counts, i % 4, int32(1))

    assert run(kernel, np.zeros(6), threads=6) == [0, 1, 2, 3, 4, 5]
    table[1, 2] = 50  # no copy was made of it
    assert run(kernel, np.zeros(6), threads=6)[5] == 50
    assert counts.copy_to_host().tolist() == [4, 4, 2, 2]


def test_kernels_of_one_text_with_device_arrays_of_their_own():
    def adder(array):
        @cuda.jit
        def kernel(x):
            x[0] += array[0]

        return kernel

    kernels = [adder(cuda.to_device(np.full(2, value))) for value in (1.0, 20.0)]
    kernels.append(adder(cuda.to_device(np.full(2, 300, np.int16))))
    x = np.zeros(1)
    for kernel in kernels:
        kernel[1, 1](x)
    assert x[0] == 321


def test_a_global_array_is_a_constant():
    table = np.arange(4.0)

    @cuda.jit
    def kernel(x):
        table[0] = 7
        x[0] = table[0]

    with pytest.raises(CompileError, match="read-only"):
        kernel[1, 1](np.zeros(1))
    assert table[0] == 0


class Color(enum.IntEnum):
    RED = 1
    BLUE = 404


def test_members_of_an_int_enum_are_compared_by_is():
    @cuda.jit
    def kernel(x, chosen):
        mine = Color.BLUE
        x[0], x[1] = mine is Color.BLUE, mine is not Color.BLUE
        x[2], x[3] = chosen is Color.BLUE, chosen is not Color.RED

    assert run(kernel, np.zeros(4), Color.BLUE) == [1, 0, 1, 1]
    assert run(kernel, np.zeros(4), Color.RED) == [1, 0, 0, 0]


class Other(enum.IntEnum):
    RED = 1


def test_members_of_two_enumerations_are_not_the_same():
    @cuda.jit
    def kernel(x, n):
        mine = Color.RED if n > 0 else Color.BLUE
        x[0], x[1] = Color.RED is Other.RED, Color.RED is not Other.RED
        x[2], x[3] = mine is Other.RED, mine == Other.RED

    assert run(kernel, np.zeros(4), 1) == [0, 1, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [0, 2, 5, 25, -1, -3])
def test_round_to_decimals(dtype, digits):
    @cuda.jit
    def kernel(out, x, digits):
        i = cuda.grid(1)
        out[i] = round(x[i], digits)

    x = np.array([2.674, -0.125, 15, 25, -1234.5678, 1e20, np.inf, 0.5], dtype)
    expected = [dtype(round(float(v), digits)) for v in x]
    np.testing.assert_allclose(
        run(kernel, np.zeros(8, dtype), x, digits, threads=8), expected, 1e-15
    )


def test_the_lowest_integer_divided_by_minus_one_wraps():
    @cuda.jit
    def kernel(out, a, b):
        out[0], out[1] = a // b, a % b
        out[2], out[3] = b // 0, b % 0

    assert run(kernel, np.zeros(4, np.int64), -(2**63), -1) == [-(2**63), 0, 0, 0]


def test_loads_and_stores_with_cache_hints():
    @cuda.jit
    def kernel(out, x, y):
        i = cuda.grid(1)
        cuda.stcs(out, i, cuda.ldca(x, i) + cuda.ldcg(y, (i, 1)) + cuda.ldcv(x, -1))
        cuda.stwt(y, (i, 0), cuda.ldlu(out, i) + cuda.ldcs(x, i))

    x, y = np.arange(4.0), np.arange(8, dtype=np.float32).reshape(4, 2)
    assert run(kernel, np.zeros(4), x, y, threads=4) == [4, 7, 10, 13]
    assert y[:, 0].tolist() == [4, 8, 12, 16]


def test_starred_arguments():
    @cuda.jit(device=True)
    def added(first, *others):
        total = first
        for other in others:
            total += other
        return total * len(others) + others[0]

    @cuda.jit
    def kernel(x):
        triple = (x[1], x[2], x[3])
        x[1] = 100
        x[0] = added(x[0], *triple) + added(1, 2) + added(*triple, 5.0)

    def by_hand(first, *others):
        return (first + sum(others)) * len(others) + others[0]

    assert run(kernel, np.arange(4.0))[0] == by_hand(0, 1, 2, 3) + by_hand(1, 2) + by_hand(
        1, 2, 3, 5
    )


def test_strings_where_numba_cuda_has_them():
    @cuda.jit
    def kernel(x, names):
        text = "abc" + f"de"  # noqa: F541
        x[0] = len(text) if text == "abcde" else -1
        x[1] = "cd" in text
        names[0] = "xyz"

    names = np.zeros(2, "<U5")
    assert run(kernel, np.zeros(2), names) == [5, 1]
    assert names.tolist() == ["xyz", ""]


@pytest.mark.parametrize(
    "expression", ["x[1] / x[2]", "n // (n - n)", "n % (n - 3)", "1 / (n - 3)"]
)
def test_a_division_by_zero_stops_a_debugged_kernel(expression, tmp_path):
    text = "@cuda.jit(debug={}, opt=False)\ndef kernel(x, n):\n    x[0] = {}\n    x[3] = 1\n"
    for debug in (True, False):
        path = tmp_path / f"divides_{debug}.py"
        path.write_text(text.format(debug, expression))
        kernel, x = runpy.run_path(path, {"cuda": cuda})["kernel"], np.array([0.0, 1, 0, 0])
        if debug:
            with pytest.raises(
                ZeroDivisionError, match=r"tid=\(0, 0, 0\).*line 3: division by zero"
            ):
                kernel[1, 1](x, 3)
        else:
            kernel[1, 1](x, 3)
        assert x[3] == (0 if debug else 1)


def test_a_debugged_division_keeps_short_circuits_and_order():
    @cuda.jit(debug=True, opt=False)
    def kernel(x, n):
        i = cuda.threadIdx.x
        x[i] = 6 / i if i else -1
        if i > 0 and n % i == 0:
            x[i] += 100
        x[i] //= n

    x, expected = np.zeros(4), []
    kernel[1, 4](x, 6)
    for i in range(4):
        value = 6 / i if i else -1
        expected.append((value + 100 * (i > 0 and 6 % i == 0)) // 6)
    assert x.tolist() == expected


REFUSED = {
    "x[0] = cuda.grid(n)": "takes the constant 1, 2 or 3",
    "x[0] = cuda.gridsize(4)": "takes the constant 1, 2 or 3",
    "x[0] = len(zip(x, x))": "len",
    "x[0] = cuda.ldca(x, (0, 1))": "getitem",
    "x[0] = cuda.ldca(n, 0)": "getitem",
    "cuda.stcg(x, 1.5, 0)": "not a valid index",
    "x[0] = cuda.all_sync(0xffffffff, 1.5)": "an integer or a boolean, not float64",
    "x[0] = cuda.ballot_sync(1.0, True)": "mask must be an integer, not float64",
    "x[0] = cuda.shfl_sync(0xffffffff, n > 1, 0)": "shuffles int32, .*, not bool",
    "x[0] = cuda.shfl_xor_sync(0xffffffff, np.uint32(n), 0)": "shuffles int32, .*, not uint32",
    "x[0] = cuda.syncthreads_count(n > 1)": "predicate must be an integer, not bool",
    "x[0] = cuda.syncthreads_or(0.5)": "predicate must be an integer, not float64",
    "s = f'{n}'": "JoinedStr",
}


def written(statement, tmp_path):
    path = tmp_path / "refused.py"
    path.write_text(f"import numpy as np\n@cuda.jit\ndef kernel(x, n):\n    {statement}\n")
    return runpy.run_path(path, {"cuda": cuda})["kernel"]


@pytest.mark.parametrize("statement", REFUSED)
def test_what_numba_cuda_refuses_is_refused(statement, tmp_path):
    with pytest.raises(CompileError, match=rf"(?s)refused.py:4.*{REFUSED[statement]}"):
        written(statement, tmp_path)[1, 32](np.zeros(32), 2)


@pytest.mark.needs("numba_cuda")
@pytest.mark.parametrize("statement", REFUSED)
def test_numba_cuda_refuses_the_same(statement, tmp_path):
    from numba.core.errors import NumbaError

    with pytest.raises((NumbaError, ValueError)):
        written(statement, tmp_path).ptx("void(float64[::1], int64)")


def test_a_variable_of_two_types_is_named_by_its_own_name(tmp_path):
    text = "c = 1; x[0] = c\n    if n > 1: c = 2\n    else: c = x\n    x[1] = c"
    with pytest.raises(CompileError, match="Cannot unify .* for 'c'"):
        written(text, tmp_path)[1, 1](np.zeros(4), 2)


def test_a_barrier_alone_is_a_kernel():
    @cuda.jit
    def kernel(x):
        cuda.syncwarp(0xFFFFFFFF)

    kernel[2, 32](np.zeros(1))


def test_the_interpreter_agrees_about_zip():
    def kernel(out, x):
        for i, (a, b) in enumerate(zip(x, x)):
            out[i] = a * b

    out = np.zeros(3)
    interpreter.run(kernel, 1, 1, (out, np.arange(3.0)))
    assert out.tolist() == [0, 1, 4]


def test_functions_that_call_each_other_in_a_circle_are_refused():
    @cuda.jit(device=True)
    def even(n):
        return True if n == 0 else odd(n - 1)

    @cuda.jit(device=True)
    def odd(n):
        return False if n == 0 else even(n - 1)

    @cuda.jit
    def kernel(x):
        x[0] = even(4)

    with pytest.raises(CompileError, match="called by a function that it calls"):
        kernel[1, 1](np.zeros(1))


@pytest.mark.parametrize(
    "result", ["f(n)", "(n, f(n - 1)) if n else None", "f((n, n)) if n else 1"]
)
def test_recursion_without_an_end_or_a_type_is_refused(result, tmp_path):
    function = f"@cuda.jit(device=True)\ndef f(n):\n    return {result}\n"
    path = tmp_path / "recursive.py"
    path.write_text(f"{function}@cuda.jit\ndef kernel(x):\n    f(3)\n")
    with pytest.raises(CompileError, match="recursi"):
        runpy.run_path(path, {"cuda": cuda})["kernel"][1, 1](np.zeros(1))


def test_an_index_is_printed_as_three_numbers(capfd):
    @cuda.jit
    def kernel():
        print("thread", cuda.threadIdx, cuda.blockDim)

    kernel[1, (2, 1, 1)]()
    assert capfd.readouterr().out.splitlines() == [
        "thread (0, 0, 0) (2, 1, 1)",
        "thread (1, 0, 0) (2, 1, 1)",
    ]


@pytest.mark.parametrize("mode", ["compiled", "checked", "interpreted"])
def test_floats_are_printed_as_by_printf(mode, capfd):
    @cuda.jit(device=True)
    def shown(x):
        print("x", x)
        return x

    def kernel(x, h):
        a = shown(x[0]) + 0.5
        print(a, x[1], h[0], h[0] > 1, -7, 1e20, math.inf, math.nan, cuda.float32(1) / 3)
        print()

    arguments = np.array([1, 1e-7]), np.array([2.5], np.float16)
    if mode == "interpreted":
        interpreter.run(kernel, 1, 1, arguments)
    else:
        checked = mode == "checked"
        cuda.jit(kernel, debug=checked, opt=not checked)[1, 1](*arguments)
    floats = "1.500000 0.000000 2.500000 True -7 100000000000000000000.000000 inf nan 0.333333"
    assert capfd.readouterr().out == f"x 1.000000\n{floats}\n\n"


def test_recursion_that_does_not_end_is_an_error():
    @cuda.jit(device=True)
    def climb(n):
        return 0 if n < 0 else climb(n + 1) + 1

    @cuda.jit
    def kernel(x):
        x[0] = climb(x.size)

    with pytest.raises(RecursionError, match="climb.. calls itself more than 8192 times"):
        kernel[1, 1](np.zeros(1))
    assert len(kernel._specialised) == 1  # what was raised there is not taken for another status


def test_recursion_with_names_of_parameters():
    @cuda.jit(device=True)
    def fibonacci(n, a, b):
        if n == 0:
            return a
        return fibonacci(n - 1, b, b=a + b) if n % 2 else fibonacci(n=n - 1, a=b, b=a + b)

    @cuda.jit
    def kernel(x):
        x[0] = fibonacci(20, 0, b=1)

    assert run(kernel, np.zeros(1)) == [6765]


@pytest.mark.parametrize("debug", [False, True])
def test_recursion_that_asks_where_its_thread_is(debug):
    """A function that calls itself, alone and inlined in another one that does."""

    @cuda.jit(device=True)
    def place(out, n, /):
        i, j = cuda.grid(2)
        if n == 0:
            return cuda.gridDim.x + cuda.blockIdx.y + cuda.threadIdx.y + cuda.laneid
        out[j, i] += n
        return place(out, n - 1) + 1

    @cuda.jit(device=True)
    def places(out, n):
        if n == 0:
            return cuda.threadIdx.x
        return place(out, n) + places(n=n - 1, out=out)

    @cuda.jit(debug=debug, opt=not debug)
    def kernel(out, sums):
        i, j = cuda.grid(2)
        if j < out.shape[0] and i < out.shape[1]:
            sums[j, i] = places(out, (i + j) % 5)

    j, i = np.indices((10, 37))
    n, sums = (i + j) % 5, np.zeros((10, 37), np.int64)
    added = n * (n + 1) // 2
    out = np.zeros_like(sums)
    kernel[(5, 3), (8, 4)](out, sums)
    where = 5 + j // 4 + j % 4 + i % 8 + j % 4 * 8
    assert (sums == n * where + added + i % 8).all()
    assert (out == n * (n + 1) * (n + 2) // 6).all()


@pytest.mark.parametrize("voting", [False, True])
def test_collectives_of_a_recursive_function_are_refused(voting):
    @cuda.jit(device=True)
    def down(x, n):
        if n > 0:
            x[cuda.grid(1)] += cuda.ballot_sync(0xFFFFFFFF, n > 1) if voting else 1
            cuda.syncthreads()
            down(x, n - 1)

    @cuda.jit
    def kernel(x):
        down(x, 3)

    with pytest.raises(CompileError, match=r"calls itself cannot use cuda.*: write a loop"):
        kernel[1, 32](np.zeros(32, np.int64))


def test_a_function_on_its_own_that_raises_says_so():
    @cuda.jit(device=True)
    def down(n):
        if n > 100:
            raise ValueError("too many")
        return down(n - 1) + 1 if n else 0

    @cuda.jit
    def kernel(x, n):
        x[0] = down(n)

    assert run(kernel, np.zeros(1), 5) == [5]
    with pytest.raises(ValueError, match="too many"):
        kernel[1, 1](np.zeros(1), 101)


def test_arrays_of_a_recursive_function_are_refused():
    @cuda.jit(device=True)
    def down(n):
        mine = cuda.local.array(4, np.float32)
        mine[n % 4] = n
        return down(n - 1) + mine[n % 4] if n else 0

    @cuda.jit
    def kernel(x):
        x[0] = down(5)

    with pytest.raises(CompileError, match="a function that calls itself cannot declare"):
        kernel[1, 1](np.zeros(1))
