"""What CuPy is told of a launch: seen by a CuPy that only takes notes, since there is no GPU."""

from __future__ import annotations

import re
import types
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda_c, raw_kernel
from kernels.cuda_c.common import source
from kernels.host import launch
from kernels.host.on_gpu import _kind
from kernels.host.source import kernels
from kernels.support.errors import ArgumentError


class Array(np.ndarray):
    """Taken for CuPy's by the name of its module."""

    __module__ = "cupy"


@pytest.fixture
def launches(monkeypatch):
    """(grid, block, args, shared_mem) of each launch."""
    seen = []

    def function(grid, block, args, shared_mem=0):
        seen.append((grid, block, args, shared_mem))

    module = types.SimpleNamespace(get_function=lambda name: function)
    monkeypatch.setattr(launch, "GpuModule", lambda *given: module)
    monkeypatch.setattr(launch, "_capability", lambda: "90")
    return seen


def array(*shape: int) -> Array:
    return np.zeros(shape, np.float32).view(Array)


def test_numbers_are_of_the_types_of_their_parameters(launches):
    code = """
    template <typename T, int N = 1, class A = float>
    __global__ void __launch_bounds__(32 * N) k(T* x, const unsigned char b, T t, A a, size_t n) {}
    """
    k = raw_kernel(code, "k<__half, 4, double>")
    x = array(3)
    k(2, (32, 2), (x, 1, 2.5, 3, 4), shared_mem=8)
    k.on_gpu().bind((5,), 64)((x, True, 2, 1.5, 7))
    (grid, block, args, shared), (_, _, bound, _) = launches
    assert (grid, block, shared) == ((2,), (32, 2), 8)
    assert args[0] is x and args[1:] == (1, 2.5, 3, 4)
    kinds = [np.uint8, np.float16, np.float64, np.uint64]
    assert [type(a) for a in args[1:]] == kinds and [type(a) for a in bound[1:]] == kinds
    assert launches[1][:2] == ((5,), (64,)) and bound[2:] == (2, 1.5, 7)


def test_checks_that_a_gpu_does_not_make_are_named(launches, monkeypatch):
    code = "__global__ void k(float* x) {}"
    options = []
    real = launch.GpuModule
    record = lambda *given: options.append(given[1]) or real(*given)  # noqa: E731
    monkeypatch.setattr(launch, "GpuModule", record)
    with pytest.warns(UserWarning, match="not checked on a GPU: run the program under compute-s"):
        raw_kernel(code, "k", debug=True)((1,), (1,), (array(2),))
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "1")
    with pytest.warns(UserWarning, match="not checked on a GPU"):
        raw_kernel(code, "k")((1,), (1,), (array(2),))
    raw_kernel(code, "k", debug=False)((1,), (1,), (array(2),))
    assert ["-lineinfo" in given for given in options] == [True, True, False]


def test_what_a_gpu_would_misread_is_refused(launches):
    k = raw_kernel("typedef float real; __global__ void k(real* x, real scale) {}", "k")
    k((1,), (1,), (array(2), np.float32(2)))
    with pytest.raises(ArgumentError, match=r"argument 2 \(scale\) is of type real.*np.float32"):
        k((1,), (1,), (array(2), 2.0))
    with pytest.raises(ArgumentError, match="not contiguous; pass cupy.ascontiguousarray"):
        k((1,), (1,), (array(2, 2).T, np.float32(2)))
    with pytest.raises(ArgumentError, match="a NumPy array among CuPy arrays"):
        k((1,), (1,), (np.zeros(2, np.float32), array(2)))
    with pytest.raises(ArgumentError, match="takes 2 arguments, not 1"):
        k((1,), (1,), (array(2),))
    assert len(launches) == 1


@pytest.mark.parametrize("file", sorted(p.name for p in Path(cuda_c.__file__).parent.glob("*.cu")))
def test_the_types_of_our_kernels_numbers_are_known(file):
    structures = {"__grid_constant__ TensorMap", *re.findall(r"^struct (\w+)", source(file), re.M)}
    for name, parameters in kernels(source(file)).items():
        for parameter in parameters:
            # A: what a template computes in; U: what it counts in
            kind = _kind(parameter, {"A": "float", "U": "unsigned"})
            assert kind is None or isinstance(kind, type) or kind in structures, (name, parameter)
