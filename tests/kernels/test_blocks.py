"""Enough blocks for a large GPU: what the launchers plan for few results of much work."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

import numpy as np
import pytest

import kernels
from kernels import dispatch
from kernels.lab.gpu_model import resources
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, normal, put, wide

ENOUGH = 128  # blocks for the 132 multiprocessors of a large GPU
LARGE = 250_000  # elements of an array that no launch reads with fewer
BACKENDS = ("numba", "cupy")
F16 = np.dtype(np.float16)
matmul = importlib.import_module("kernels.launchers.matmul")


def array(*shape: int, dtype=np.float32) -> np.ndarray:
    return np.empty(shape, dtype)  # never read: nothing is launched


def halves(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [array(*shape, dtype=F16) for shape in shapes]


class Planned(NamedTuple):
    """A launch. elements: of the largest array that it gets."""

    family: str
    version: str
    blocks: int
    elements: int


@pytest.fixture
def planned(monkeypatch):
    """A function from a call to its launches, as planned for a GPU."""

    def launches(backend: str, name: str, *args) -> list[Planned]:
        found: list[Planned] = []

        def launcher(family: str, version: str, kernel, grid, block):
            def launch(*args) -> None:
                sizes = [a.size for a in args if isinstance(a, np.ndarray)]
                found.append(Planned(family, version, int(np.prod(grid)), max(sizes)))

            return launch

        with resources.noting(), monkeypatch.context() as patch:
            for module_name, module in list(sys.modules.items()):
                if module_name.startswith("kernels.launchers") and hasattr(module, "launcher"):
                    patch.setattr(module, "launcher", launcher)
            getattr(dispatch.dialect(backend), name)(*args)
        return found

    return launches


x, w = array(32, 64, 56, 56), array(64, 64, 3, 3)
per_channel, table = array(64), array(65536, 64)
rows, long_rows, classes = array(8, 131072), array(16, 65536), array(64, 50257)
image, filters = array(1, 512, 7, 7), array(512, 512, 3, 3)
one_query, few_keys, many = array(1, 8, 1, 64), array(1, 8, 16, 64), array(1, 8, 8192, 64)
targets = np.zeros(64, np.int64)
CALLS = {
    "product": ("matmul", array(64, 65536), array(65536, 64)),
    "product_of_transposed": ("matmul", array(65536, 128).T, array(65536, 32)),
    "product_of_halves": ("matmul", *halves((64, 65536), (65536, 64))),
    "product_for_hopper": ("matmul", *halves((256, 8192), (8192, 256))),
    "product_of_few_results": ("matmul", array(8, 65536), array(65536, 8)),
    "matrix_by_vector": ("matmul", array(64, 65536), array(65536, 1)),
    "matrix_of_halves_by_vector": ("matmul", *halves((64, 65537), (65537, 1))),
    "vector_by_matrix": ("matmul", array(1, 4096), array(4096, 4096)),
    "vector_by_few_columns": ("matmul", array(1, 65536), array(65536, 64)),
    "vector_by_transposed": ("matmul", array(1, 4096), array(1024, 4096).T, array(1024)),
    "vectors_by_matrix": ("matmul", array(8, 4096), array(4096, 4096)),
    "dot": ("matmul", array(1, 10**6), array(10**6, 1)),
    "sum": ("reduce", "sum", array(10**6)),
    "sum_of_rows": ("reduce", "sum", array(8, 10**5), 1),
    "sum_of_columns": ("reduce", "sum", array(65536, 32), 0),
    "sum_of_channels": ("reduce", "sum", x, (0, 2, 3)),
    "maximum_of_few_columns": ("reduce", "max", array(10**6, 3), 0),
    "argmax_of_rows": ("reduce", "argmax", rows, 1),
    "argmax_of_columns": ("reduce", "argmax", array(10**6, 3), 0),
    "cumulative_sum": ("cumsum", rows, 1),
    "cumulative_sum_of_columns": ("cumsum", array(131072, 8), 0),
    "cumulative_maximum": ("cummax", rows, 1),
    "batch_norm": ("batch_norm", x, per_channel, per_channel, 1e-5),
    "batch_norm_of_one_image": ("batch_norm", array(1, 4, 512, 512), None, None, 1e-5),
    "batch_norm_of_columns": ("batch_norm", table, per_channel, per_channel, 1e-5),
    "batch_norm_backward": ("batch_norm_backward", x, x, *[per_channel] * 3),
    "batch_norm_backward_of_columns": ("batch_norm_backward", table, table, *[per_channel] * 3),
    "instance_norm": ("batch_norm", array(1, 16, 256 * 256), None, None, 1e-5),
    "group_norm": ("layer_norm", array(16, 8 * 128 * 128), None, None, 1e-5),
    "layer_norm": ("layer_norm", long_rows, array(65536), array(65536), 1e-5),
    "rms_norm": ("rms_norm", long_rows, array(65536), 1e-5),
    "layer_norm_backward": ("layer_norm_backward", *[long_rows] * 2, *[array(16)] * 2,
                            array(65536)),
    "rms_norm_backward": ("rms_norm_backward", *[long_rows] * 2, array(16), array(65536)),
    "parameters_of_short_rows": ("layer_norm_backward", *[array(8192, 32)] * 2,
                                 *[array(8192)] * 2, array(32)),
    "softmax": ("softmax", rows),
    "log_softmax": ("log_softmax", rows),
    "softmax_backward": ("softmax_backward", rows, rows),
    "log_softmax_backward": ("log_softmax_backward", rows, rows),
    "softmax_of_columns": ("softmax", array(131072, 8), 0),
    "softmax_backward_of_columns": ("softmax_backward", *[array(131072, 8)] * 2, 0),
    "cross_entropy": ("cross_entropy", classes, targets),
    "smoothed_cross_entropy": ("cross_entropy", classes, targets, array(50257), -100, 0.1),
    "cross_entropy_backward": ("cross_entropy_backward", array(64), classes, array(64), targets),
    "attention": ("attention", one_query, many, many),
    "attention_of_shared_heads": ("attention", array(1, 32, 1, 64), many, many),
    "attention_backward": ("attention_backward", one_query, one_query, many, many, one_query,
                           array(1, 8, 1)),
    "attention_backward_of_few_keys": ("attention_backward", many, many, few_keys, few_keys, many,
                                       array(1, 8, 8192)),
    "convolution": ("conv2d", image, filters, None, (1, 1), (1, 1)),
    "convolution_backward": ("conv2d_backward_data", image, filters, image.shape, (1, 1), (1, 1)),
    "weight_gradient": ("conv2d_backward_weight", x, x, w.shape, (1, 1), (1, 1)),
}  # fmt: skip
ON_TENSOR_CORES = {
    "weight_gradient": ("conv2d_backward_weight", *halves(x.shape, x.shape), w.shape, (1, 1),
                        (1, 1)),
    "small_images": ("conv2d", *halves(image.shape, filters.shape), None, (1, 1), (1, 1)),
    "few_queries": ("attention", *halves(one_query.shape, many.shape, many.shape)),
    "few_queries_backward": ("attention_backward", *halves(*[one_query.shape] * 2,
                             *[many.shape] * 2, one_query.shape), array(1, 8, 1)),
}  # fmt: skip


def assert_enough(launches: list[Planned]) -> None:
    large = [launch for launch in launches if launch.elements >= LARGE]
    assert large and all(launch.blocks >= ENOUGH for launch in large), launches


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_large_arrays_are_read_by_many_blocks(call, backend, planned):
    assert_enough(planned(backend, *call))


@pytest.mark.parametrize("call", ON_TENSOR_CORES.values(), ids=ON_TENSOR_CORES)
def test_large_arrays_on_tensor_cores(call, planned):
    assert_enough(planned("cupy", *call))


@pytest.mark.parametrize("backend", BACKENDS)
def test_deterministic_additions_by_index(backend, planned, monkeypatch):
    module = importlib.import_module("kernels.launchers.embedding")
    monkeypatch.setattr(module, "are_deterministic_algorithms_enabled", lambda: True)
    index = np.zeros(8192, np.int64)
    calls = (
        ("embedding_backward", array(8192, 64), index, 50_000),
        ("scatter_add", array(10**6), 0, index, array(8192)),
        ("take_backward", array(8192), index, 10**6),
    )
    for call in calls:
        launches = [launch for launch in planned(backend, *call) if launch.version == "split"]
        assert_enough(launches)


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_that_keep_a_gpu_busy_are_not_split(backend, planned):
    """As many rows, channels, queries as before: the versions that have one block for each."""
    per_row, wide = array(4096), array(4096, 8192)
    for name, *args in (
        ("softmax", wide),
        ("layer_norm", wide, None, None, 1e-5),
        ("softmax_backward", wide, wide),
        ("layer_norm_backward", wide, wide, per_row, per_row, None, 1, False),
        ("batch_norm", array(8, 512, 28, 28), None, None, 1e-5),
        ("attention", many, many, many),
        ("conv2d", array(32, 64, 56, 56), w, None, (1, 1), (1, 1)),
        ("matmul", wide, array(8192, 1)),
    ):
        versions = {launch.version for launch in planned(backend, name, *args)}
        assert not versions & {"split", "matvec_split", "columns"}, name


@pytest.mark.parametrize("backend", BACKENDS)
def test_short_sums_are_one_launch(backend, planned):
    for length, launches in ((32, 1), (32_768, 1), (32_769, 2)):
        assert len(planned(backend, "reduce", "sum", array(length), 0)) == launches


def test_a_cpu_gets_no_split():
    """Where one block after the other runs, more of them only cost time."""
    rows, q, k = np.ones((2, 20_000), np.float32), *np.ones((2, 1, 1, 300, 16), np.float32)
    calls = (
        ("softmax", rows), ("softmax_backward", rows, rows), ("layer_norm", rows, None, None, 1e-5),
        ("layer_norm_backward", rows, rows, rows[:, 0], rows[:, 0], None),
        ("cross_entropy", rows, np.zeros(2, np.int64)), ("batch_norm", rows.T, None, None, 1e-5),
        ("batch_norm_backward", rows.T, rows.T, rows[:, 0], rows[:, 0], None),
        ("attention", q[:, :, :1], k, k), ("matmul", rows, rows[:1].T), ("reduce", "sum", rows, 1),
        ("matmul", rows[:1], rows.T), ("cumsum", rows),
        ("conv2d", np.ones((1, 20, 7, 7), np.float32), np.ones((9, 20, 3, 3), np.float32)),
    )  # fmt: skip
    for name, *args in calls:
        with kernels.trace() as trace:
            getattr(kernels, name)(*args, backend="numba")
        assert not any("split" in version for _, version in trace.rows), name
        assert name == "reduce" or ("reduce.sum", "block") not in trace.rows


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_with_many_blocks_are_not_split(backend, planned):
    assert len(planned(backend, "matmul", array(1024, 1024), array(1024, 1024))) == 1
    assert len(planned(backend, "matmul", array(64, 200), array(200, 64))) == 1
    prime = [array(64, 2053).astype(np.float64), array(2053, 64).astype(np.float64)]
    assert len(planned(backend, "matmul", *prime)) == 1  # no parts of one length


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_products_in_parts(device, backend, rng, monkeypatch):
    """Operands along and across k, a bias, leading dimensions; on the CPU planned as on a GPU."""
    if device == "cpu":
        monkeypatch.setattr(matmul, "on_gpu", lambda a: True)
        monkeypatch.setattr(matmul, "compute_capability", lambda a: (8, 0))
    monkeypatch.setattr(matmul, "_plans", Plans())
    monkeypatch.setattr(matmul, "LEAST_TERMS", 32)
    monkeypatch.setattr(matmul, "LONG", 32)
    shapes = (40, 192, 33, "nn"), (40, 200, 33, "tt"), (33, 128, 64, "tn"), (9, 700, 30, "nt")
    for dtype in (np.float32, F16, BFLOAT16):
        for m, k, n, layout in shapes:
            a = normal(rng, (k, m) if layout[0] == "t" else (m, k), dtype)
            b = normal(rng, (n, k) if layout[1] == "t" else (k, n), dtype)
            a, b = (v.T if t == "t" else v for v, t in zip((a, b), layout))
            bias = normal(rng, n, dtype) if layout == "nn" else None
            given = [None if v is None else put(v, device) for v in (a, b, bias)]
            with kernels.trace() as trace:
                c = kernels.matmul(*given, backend=backend)
            assert any(operation == "reduce.sum" for operation, _ in trace.rows)
            exact = wide(a) @ wide(b) + (0 if bias is None else wide(bias))
            assert c.dtype == dtype
            assert_close(c, exact, np.abs(wide(a)) @ np.abs(wide(b)) + 3, terms=k)
    a, b = normal(rng, (2, 3, 64)), normal(rng, (64, 33))
    c = kernels.matmul(put(a, device), put(b, device), backend=backend)
    assert c.shape == (2, 3, 33)
    assert_close(c, wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b)), terms=64)
