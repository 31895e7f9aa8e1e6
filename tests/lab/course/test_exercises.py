"""Every solution passes; every planted wrong one is caught, with the hint that fits."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32

from kernels import lab, raw_kernel
from kernels.lab.course import exercises, solutions
from kernels.simt import cuda
from tests.lab.course.wrong_solutions import WRONG as WRONG_SOLUTIONS
from tests.lab.course.wrong_solutions import kernel as wrong_solution


def test_there_are_25():
    assert len(exercises.names()) >= 25
    for name in exercises.names():
        assert name + "(" in exercises.text(name) and hasattr(solutions, name)


@pytest.mark.parametrize("name", exercises.names())
def test_solutions_pass(name):
    result = exercises.check(getattr(solutions, name))
    assert result and result.passed, f"{result}\n{result.report}"
    assert "of the sectors moved are ideal" in str(result)


WRONG = []


def wrong(hint: str):
    def keep(function):
        WRONG.append((cuda.jit(function), hint))
        return function

    return keep


@wrong("guard the access: `if i < x.shape[0]:`")
def add_ten(x, out):
    i = cuda.grid(1)
    out[i] = x[i] + float32(10)


@wrong("a guard with <= lets one too many in")
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = a * x[i] + y[i]


@wrong("off by one")
def reverse(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[(x.size - i) % x.size] = x[i]


@wrong("never written")
def square_strided(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i]


@wrong("are x and y swapped?")
def multiply_2d(a, b, out):
    row, column = cuda.grid(2)
    out[row, column] = a[row, column] * b[row, column]


@wrong("not coalesced")
def relu(x, out):
    n = (x.size + 7) // 8
    i = cuda.grid(1)
    if i < n * 8:
        j = i % 8 * n + i // 8
        if j < x.size:
            out[j] = max(x[j], float32(0))


@wrong("cuda.atomic.add")
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        counts[x[i]] += 1


@wrong("cuda.syncthreads() between")
def reverse_blocks(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    out[i] = tile[63 - t]


@wrong("bank conflicts")
def transpose(x, out):
    tile = cuda.shared.array((32, 32), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
    if row + ty < x.shape[0] and column + tx < x.shape[1]:
        tile[ty, tx] = x[row + ty, column + tx]
    cuda.syncthreads()
    if column + ty < x.shape[1] and row + tx < x.shape[0]:
        out[column + ty, row + tx] = tile[tx, ty]


@wrong("one more cuda.syncthreads() after")
def matmul_tiled(a, b, out):
    a_tile = cuda.shared.array((16, 16), np.float32)
    b_tile = cuda.shared.array((16, 16), np.float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], 16):
        inside = row < a.shape[0] and k + tx < a.shape[1]
        a_tile[ty, tx] = a[row, k + tx] if inside else float32(0)
        inside = k + ty < b.shape[0] and column < b.shape[1]
        b_tile[ty, tx] = b[k + ty, column] if inside else float32(0)
        cuda.syncthreads()
        for j in range(16):
            total += a_tile[ty, j] * b_tile[j, tx]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("not all threads reach the barrier")
def block_sum(x, out):
    tile = cuda.shared.array(128, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    tile[t] = x[i]
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for j in range(min(128, x.size - i)):
            total += tile[j]
        out[cuda.blockIdx.x] = total


@wrong("no shared memory is used")
def scan(x, out):
    t = cuda.threadIdx.x
    if t < x.size:
        total = float32(0)
        for j in range(t + 1):
            total += x[j]
        out[t] = total


@wrong("is read where no thread wrote it")
def stencil(x, out):
    tile = cuda.shared.array(66, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        tile[t + 1] = x[i]
    cuda.syncthreads()
    if i < x.size:
        out[i] = tile[t] + tile[t + 1] + tile[t + 2]


@wrong("element")
def relu_backward(g, y, out):
    i = cuda.grid(1)
    if i < g.size:
        out[i] = g[i] if y[i] >= 0 else float32(0)


@wrong("x and y are swapped")
def outer_sum(row, column, out):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = column[j % column.size] + row[i % row.size]


@wrong("nothing was written")
def gather(x, index, out):
    i = cuda.grid(1)
    if i > out.size * 2:
        out[i] = x[index[i]]


@wrong("does not run")
def split_points(points):
    points[0, 0] = 1


@pytest.mark.parametrize(("kernel", "hint"), WRONG, ids=[case[0].__name__ for case in WRONG])
def test_wrong_solutions_get_the_right_hint(kernel, hint):
    result = exercises.check(kernel)
    assert not result and hint in str(result), str(result)
    assert str(result).startswith("not yet")


CASES = [(name, number) for name, cases in WRONG_SOLUTIONS.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_each_exercise_refuses_wrong_solutions(name, number):
    result = exercises.check(wrong_solution(name, number))
    assert not result and WRONG_SOLUTIONS[name][number][0] in str(result), str(result)


def test_each_exercise_has_four_wrong_solutions():
    assert list(WRONG_SOLUTIONS) == exercises.names()
    assert min(map(len, WRONG_SOLUTIONS.values())) >= 4


def test_what_is_no_kernel_is_refused():
    def relu(x, out):
        out[0] = x[0]

    assert "write @cuda.jit above `def relu`" in exercises.check(relu).hint
    assert "device function" in exercises.check(cuda.jit(device=True)(relu)).hint


def test_a_harmless_race_passes_and_is_told():
    @cuda.jit
    def reverse_blocks(x, out):
        tile = cuda.shared.array(65, np.float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        tile[64] = 1
        tile[t] = x[i]
        cuda.syncthreads()
        out[i] = tile[63 - t]

    result = exercises.check(reverse_blocks)
    assert result and "warning: shared tile: several threads store the same value" in str(result)


IN_CUDA_C = r"""
__global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
__global__ void add_ten(const float* x, float* out, int n) {
    out[threadIdx.x] = x[threadIdx.x] + 10;
}
template <int WIDTH>
__global__ void reverse_blocks(const float* x, float* out) {
    __shared__ float tile[WIDTH];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    out[i] = tile[WIDTH - 1 - threadIdx.x];
}
__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    if (threadIdx.x % 32 == 0) atomicAdd(out, value);
}
__global__ void relu(const float* x) {}
"""


@pytest.mark.parametrize(
    ("name", "passes", "hint"),
    [
        ("saxpy", True, "of the sectors moved are ideal"),
        ("add_ten", False, "is blockIdx used? blockIdx.x * blockDim.x + threadIdx.x counts"),
        ("reverse_blocks<64>", True, "of the shared wavefronts"),
        ("warp_sum", True, "of the lanes are active"),
        ("relu", False, "the exercise passes x, out, and after them, if the kernel wants them"),
    ],
)
def test_solutions_in_cuda_c_are_found_by_their_name(name, passes, hint):
    result = exercises.check(raw_kernel(IN_CUDA_C, name))
    assert result.passed == passes and hint in result.hint, str(result)


def test_an_unknown_name_is_refused():
    with pytest.raises(lab.LabError, match="no exercise is named 'nothing'"):
        exercises.check(cuda.jit(lambda x: None), "nothing")
    assert exercises.check(solutions.relu, "relu")
