"""Every solution passes; every planted wrong one is caught, with the hint that fits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kernels import lab, raw_kernel
from kernels.lab.course import exercises, solutions
from kernels.lab.course.tasks import broken
from kernels.simt import cuda
from tests.lab.course.wrong_solutions import WRONG as WRONG_SOLUTIONS
from tests.lab.course.wrong_solutions import kernel as wrong_solution


def test_there_are_45_and_each_says_what_to_write():
    assert len(exercises.names()) >= 45
    assert sum(map(exercises.is_broken, exercises.names())) == 10
    assert len(solutions.names_in_cuda_c()) >= 45
    for name in exercises.names():
        assert name + "(" in exercises.text(name) and hasattr(solutions, name)


def test_the_teachers_page_places_each_exercise():
    page = (Path(__file__).parents[3] / "docs" / "teaching.md").read_text()
    table = page.partition("## Goals and times")[2].partition("## Six weeks")[0]
    named = set(re.findall(r"\b[a-z0-9_]+\b", table))
    assert named >= set(exercises.names()), set(exercises.names()) - named
    count = len(exercises.names())
    assert f"and {count} exercises" in page


DIALECTS = [(name, "numba") for name in exercises.names() if "numba" in exercises.dialects(name)]
DIALECTS += [(name, "cuda_c") for name in solutions.names_in_cuda_c()]


def solution(name: str, dialect: str):
    return solutions.cuda_c(name) if dialect == "cuda_c" else getattr(solutions, name)


@pytest.mark.parametrize(("name", "dialect"), DIALECTS, ids=map("-".join, DIALECTS))
def test_solutions_pass(name, dialect):
    result = exercises.check(solution(name, dialect))
    assert result and result.passed, f"{result}\n{result.report}"
    assert "of the sectors moved are ideal" in str(result)


HUNTS = {
    "fix_barrier": "syncthreads() between line",
    "fix_guard": "guard the access",
    "fix_histogram": "loads, adds and stores",
    "fix_stride": "is at i * columns + j",
    "fix_divergence": "not all threads reach the barrier",
    "fix_uninitialised": "is read where no thread wrote it",
    "fix_banks": "has bank conflicts (32 lanes wait for one bank)",
    "fix_mask": "the mask names the lanes that execute the shuffle",
    "fix_overflow": "add up in int64",
    "fix_half": "add up in float32",
}


@pytest.mark.parametrize("dialect", ["numba", "cuda_c"])
@pytest.mark.parametrize("name", HUNTS)
def test_a_bug_hunt_gives_a_kernel_with_that_bug(name, dialect):
    code = Path(broken.__file__).with_suffix(".cu").read_text()
    kernel = raw_kernel(code, name) if dialect == "cuda_c" else getattr(broken, name)
    result = exercises.check(kernel)
    assert not result and HUNTS[name] in str(result), str(result)
    given = exercises.start(name, dialect)
    source = code if dialect == "cuda_c" else Path(broken.__file__).read_text()
    assert given.removeprefix("#include <cuda_fp16.h>\n\n") in source


def test_a_start_has_the_signature():
    assert exercises.start("saxpy") == "@cuda.jit\ndef saxpy(a, x, y, out):\n    pass\n"
    arguments = "float a, const float* x, const float* y, float* out, int n"
    assert exercises.start("saxpy", "cuda_c") == f"__global__ void saxpy({arguments}) {{\n}}\n"
    assert "const __half* a" in exercises.start("wmma_matmul", "cuda_c")
    with pytest.raises(lab.LabError, match="wmma_matmul is for cuda_c, not for 'numba'"):
        exercises.start("wmma_matmul")


def test_an_exercise_for_cuda_c_refuses_the_other_dialect():
    @cuda.jit
    def float4_scale(a, x, out):
        pass

    assert "float4_scale is for CUDA C" in exercises.check(float4_scale).hint


def test_hints_come_one_after_the_other(monkeypatch):
    monkeypatch.setattr(exercises, "_asked", {})
    for name in exercises.names():
        given = exercises.hints(name)
        assert len(set(given)) == len(given) >= 2
        for number, text in enumerate(given, 1):
            assert exercises.hint(name) == f"hint {number} of {len(given)}: {text}"
        assert f"kernels.lab.solutions.{name}" in exercises.hint(name)


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
    assert "5 is no kernel" in exercises.check(5, "relu").hint


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
