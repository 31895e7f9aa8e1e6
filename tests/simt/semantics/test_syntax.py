"""Syntax that numba-cuda compiles works; what it refuses is refused with the line and a way out."""

from __future__ import annotations

import runpy
import warnings

import numpy as np
import pytest
from numba import types

from kernels.simt import cuda
from kernels.simt.api.fallback import InterpretedKernelWarning
from kernels.simt.interpreter import interpreter
from kernels.support.errors import CompileError

REFUSED = {
    "values = [x[0], 2.0]": "List .* a tuple, or a cuda.local.array",
    "values = {1: 2}": "Dict .* a tuple",
    "x[0] = sum(j for j in range(3))": "GeneratorExp .* write a loop",
    "print(f'{x[0]}')": r"JoinedStr .* print\(i, x\)",
    "import math": "Import .* top of the file",
    "global COUNT; COUNT = 4": "cannot assign the global 'COUNT'",
    "x[0] = VALUES[1]": "a global list .* a tuple, or an array",
    "x[0] = plain(x[0])": r"'plain' is a plain Python function: .* @cuda.jit\(device=True\)",
    "x[0] = math.factorial(3)": r"math.factorial\(\) has no CUDA equivalent",
    "x[0] = any((x[0], x[1]))": r"any\(\) has no CUDA equivalent",
    "y = x + 1; x[0] = y[0]": "cannot allocate memory; loop over the elements",
}
TEXT = """
import math
COUNT, VALUES = 3, [1, 2]
def plain(v): return v
@cuda.jit
def kernel(x):
    x[1] = 0
    {}
"""


@pytest.mark.parametrize("statement", REFUSED)
def test_a_refusal_names_the_line_and_what_to_write(statement, tmp_path):
    path = tmp_path / "refused.py"
    path.write_text(TEXT.format(statement))
    kernel = runpy.run_path(path, {"cuda": cuda})["kernel"]
    with pytest.raises(CompileError, match=rf"(?s)refused.py:\d+.*{REFUSED[statement]}"):
        kernel[1, 1](np.zeros(2))


def choose(i, n):
    match i % 9:
        case 0:
            return 10
        case 1 | 2 | -3:
            return 20
        case 3 if n > 5:
            return 30
        case other if other > 6:
            return other
        case (4 | 5) as found:
            return 2 * found
        case _:
            return 40


def test_match_is_compiled():
    device = cuda.jit(device=True)(choose)

    @cuda.jit
    def kernel(x, n):
        shared = cuda.shared.array(32, types.int64)
        i = cuda.threadIdx.x
        shared[i] = device(i, n)
        match n:
            case 5:
                cuda.syncthreads()
                x[i] = shared[31 - i]
            case larger:
                x[i] = shared[i] + larger

    for n in (5, 6):
        x = np.zeros(32, np.int64)
        kernel[1, 32](x, n)
        expected = [choose(i, n) for i in range(32)]
        assert x.tolist() == (expected[::-1] if n == 5 else [v + 6 for v in expected])


def test_lists_that_are_only_looked_through_and_builtins():
    @cuda.jit
    def kernel(x, n):
        i = cuda.threadIdx.x
        pair = (i, n)
        for value in [1, i]:
            x[i] += value
        if i in [2, n]:
            x[i] += 100
        x[i] += 1000 * min((i, n)) + 10000 * max(pair) + 100000 * n.bit_count()

    x = np.zeros(8, np.int64)
    kernel[1, 8](x, 5)
    i = np.arange(8)
    expected = 1 + i + 100 * ((i == 2) | (i == 5)) + 200000
    expected += 1000 * np.minimum(i, 5) + 10000 * np.maximum(i, 5)
    assert x.tolist() == expected.tolist()


def test_inner_functions_starred_calls_and_vectors_together():
    @cuda.jit(device=True)
    def add(a, b):
        return cuda.float2(b, a + b)

    @cuda.jit
    def kernel(x, n):
        shared = cuda.shared.array(8, types.float32)
        i = cuda.threadIdx.x

        def mirrored(value):
            shared[i] = value
            cuda.syncthreads()
            return shared[7 - i] * n

        double = lambda value: 2 * value  # noqa: E731
        pair = (i, n)
        vector = add(*pair)
        x[i] = mirrored(double(x[i])) + vector.y

    expected = [10 * (7 - i) + i + 5 for i in range(8)]
    for run in (kernel[1, 8], lambda *args: interpreter.run(kernel.py_func, 1, 8, args)):
        x = np.arange(8, dtype=np.float32)
        run(x, 5)
        assert x.tolist() == expected


def test_a_vector_is_a_value():
    @cuda.jit
    def kernel(x):
        vector = cuda.float2(x[0], 1)
        vector.x = 3
        x[0] = vector.x

    with pytest.raises(CompileError, match="make a new vector"):
        kernel[1, 1](np.zeros(1))
    with pytest.raises(TypeError, match="make a new vector"):
        interpreter.run(kernel.py_func, 1, 1, (np.zeros(1),))


def test_variadic_kernels_are_refused():
    @cuda.jit
    def kernel(x, *rest):
        x[0] = rest[0]

    with pytest.raises(CompileError, match="name the parameters"):
        kernel[1, 1](np.zeros(1), 2)


def test_local_names_near_those_of_builtins():
    @cuda.jit
    def kernel(x, n):
        range_, min_, len_ = n, 2, x.size
        max = 0.0
        i = cuda.grid(1)
        for j in range(range_):
            if x[j] > max:
                max = x[j]
        if i < len_:
            x[i] = max + min(min_, i)

    x = np.arange(4.0)
    kernel[1, 1](x, 3)
    assert x[0] == 2


def test_messages_for_typing_mistakes():
    @cuda.jit
    def misspelt(x):
        cuda.syncthread()
        x[0] = 1

    with pytest.raises(CompileError, match=r"did you mean cuda\.syncthreads\?"):
        misspelt[1, 1](np.zeros(1))

    @cuda.jit
    def store(x):
        x[0] = 1

    fixed = np.zeros(1)
    fixed.flags.writeable = False
    with pytest.raises(CompileError, match="read-only"):
        store[1, 1](fixed)


def test_compile_time_objects_in_tuples_are_unpacked():
    @cuda.jit
    def kernel(x):
        t, b, d = cuda.threadIdx, cuda.blockIdx, cuda.blockDim
        (tile, n), add = (cuda.shared.array(32, cuda.float32), 3), cuda.atomic.add
        g, i = cuda.cg.this_grid(), cuda.grid(1)
        tile[t.x] = i
        g.sync()
        add(x, t.x + d.x * b.x, tile[31 - t.x] + n)

    x = np.zeros(64, np.float32)
    kernel[2, 32](x)
    assert x.tolist() == [3 + 31 - i % 32 + i // 32 * 32 for i in range(64)]


def spliced(place, x, y):
    i = cuda.grid(1)
    both = (*place, i)
    pair = (i, i + 1)
    if i % 2:
        pair = (i + 1, i)
    longer = (*both, *pair, 5)
    total = 0
    for part in longer:
        total += part
    y[i] = x[both] + 1000 * total + 100_000 * longer[3] + 10_000_000 * longer[len(longer) - 1]


@pytest.mark.parametrize("debug", [False, True])
def test_tuples_spliced_into_another(debug):
    """Of parameters, and of variables whose length only type inference finds."""
    x, y = np.arange(64.0).reshape(4, 4, 4), np.zeros(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        cuda.jit(spliced, debug=debug, opt=not debug)[1, 4]((1, 2), x, y)
    i = np.arange(4)
    total = 3 + i + 2 * i + 1 + 5
    first = np.where(i % 2, i + 1, i)
    np.testing.assert_array_equal(y, x[1, 2] + 1000 * total + 100_000 * first + 50_000_000)


def test_a_starred_target_is_refused_as_by_numba_cuda():
    @cuda.jit
    def kernel(y):
        first, *_others = (1, 2, 3)
        y[0] = first

    with pytest.raises(CompileError, match="no starred target"):
        kernel[1, 1](np.zeros(1))


def test_names_that_need_their_underscore():
    """`lambda_` for lambda; a name of digits."""

    @cuda.jit
    def kernel(out, lambda_, from_):
        in_ = cuda.grid(1)
        is_ = cuda.shared.array(4, types.float32)
        _1 = 10
        for for_ in range(4):
            is_[for_] = for_
        cuda.syncthreads()
        out[in_] = lambda_ * _1 + is_[in_] + from_

    out = np.zeros(4)
    kernel[1, 4](out, 2, 5)
    assert out.tolist() == [25, 26, 27, 28]
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 of 'from_'"):

        @cuda.jit
        def outside(from_, at):
            from_[at] = 1

        outside[1, 1](out, 9)
