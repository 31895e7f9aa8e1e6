"""Matrix products by tensor cores: what the shared table of cases leaves out, and Hopper's.

With no GPU, the kernel for Hopper runs on the CPU over a model of its instructions
(`hopper_model.cuh`): the ring and its barriers, boxes, swizzle, descriptors and where results are.
"""

from __future__ import annotations

import ctypes
import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kernels
import minigrad
from kernels import raw_module
from kernels.cuda_c.common import source
from kernels.host import launch
from kernels.launchers.common import Dialect
from kernels.launchers.matmul import Product
from kernels.support.errors import CompileError, KernelError
from tests.kernels.helpers import BFLOAT16, assert_close, normal, put, wide

cuda_c = importlib.import_module("kernels.cuda_c.matmul")
launchers = importlib.import_module("kernels.launchers.matmul")
F16, CUDA_C = np.dtype(np.float16), Dialect("kernels.cuda_c")


def stored(x: np.ndarray, transposed: bool) -> np.ndarray:
    """The same matrix, transposed in memory or not."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if transposed else x


def check(a, b, bias, device: str = "cpu", version: str | None = None) -> None:
    on_device = (put(x, device) if x is not None else None for x in (a, b, bias))
    y = kernels.matmul(*on_device, backend="cupy", version=version)
    scale = np.abs(wide(a)) @ np.abs(wide(b)) + (0 if bias is None else np.abs(wide(bias)))
    expected = wide(a) @ wide(b) + (0 if bias is None else wide(bias))
    assert y.dtype == a.dtype
    assert_close(y, expected, scale, terms=a.shape[-1])


# Rows that are multiples of 16 bytes (`cp.async`) and others, tiles that end inside and outside.
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_mma_sync_cuda_c(layout, rng, monkeypatch):
    for order in ("forward", "reversed"):
        monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
        for m, k, n in [(72, 136, 88), (129, 33, 67), (8, 200, 64), (3, 1, 5), (5, 0, 8)]:
            a = stored(normal(rng, (m, k), F16), layout[0] == "t")
            b = stored(normal(rng, (k, n), F16), layout[1] == "t")
            check(a, b, normal(rng, n, F16), version="mma_sync")
    a, b = normal(rng, (2, 40, 64), F16), normal(rng, (2, 64, 24), F16)
    a, b = stored(a, layout[0] == "t"), stored(b, layout[1] == "t")
    check(a, b, normal(rng, 24, F16), version="mma_sync")
    check(a, b[0], normal(rng, 24, F16), version="mma_sync")


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_parts_of_a_long_sum_by_mma_sync_cuda_c(layout, rng):
    """Parts that end with k, that are shorter, and that are empty."""
    for m, k, n, parts in [(1, 264, 136, 4), (16, 200, 64, 3), (17, 129, 72, 3), (40, 257, 16, 2)]:
        a = stored(normal(rng, (m, k), F16), layout[0] == "t")
        b = stored(normal(rng, (k, n), F16), layout[1] == "t")
        bias, trans = normal(rng, n, F16), [x == "t" for x in layout]
        product = Product(F16, m, n, k, trans[0], trans[1] or n == 1, (9, 0))
        run = launchers._split_in_place(CUDA_C, "mma_sync", product, parts)
        for given in (None, bias):
            y = run((a, b, given))
            scale = np.abs(wide(a)) @ np.abs(wide(b)) + 1
            expected = wide(a) @ wide(b) + (0 if given is None else wide(bias))
            assert y.dtype == F16 and y.shape == (m, n)
            assert_close(y, expected, scale, terms=k)


def test_long_sums_are_split_over_the_blocks_of_a_gpu_cuda_c():
    def parts(m: int, n: int, k: int, trans_b: bool = True, cc: int = 8) -> int:
        product = Product(F16, m, n, k, False, trans_b, (cc, 0))
        return launchers._splits(CUDA_C, cuda_c.pick(product), product, False)[0]

    assert parts(16, 4096, 4096) == parts(16, 4096, 4096, False) == 16
    assert parts(64, 4096, 4096) == 9
    assert parts(16, 4096, 1024) == 4  # few rows: for however short a sum
    assert parts(64, 4096, 1024) == parts(16, 32768, 4096) == 1
    assert parts(16, 4096, 4096, cc=9) == 4 and parts(16, 4096, 1024, cc=9) == 1
    assert parts(256, 256, 4096, cc=9) == 8 and parts(1024, 1024, 4096, cc=9) == 1


def test_the_tiles_of_wgmma_cuda_c():
    for z, m, n, tile in (
        (1, 4096, 4096, (2, 256, 4)), (1, 1300, 1300, (2, 128, 6)), (1, 1024, 1024, (1, 128, 8)),
        (1, 512, 512, (1, 64, 12)), (4, 16, 4096, (1, 128, 8)), (1, 16, 32768, (1, 128, 4)),
        (1, 768, 768, (1, 128, 8)), (8, 256, 256, (1, 64, 12)), (1, 1152, 1152, (2, 128, 6)),
    ):  # fmt: skip
        kernel, (columns, rows, batch), threads = cuda_c._configure_wgmma((0, 0, 0), z, m, n)
        assert kernel.constants[3:] == tile, (z, m, n)
        assert (columns, rows, batch) == (-(-n // tile[1]), -(-m // (64 * tile[0])), z)
        assert kernel.shared == cuda_c.ring_bytes(*tile) <= 227 * 1024 // (3 - tile[0]) or (
            tile[2] > 6 and columns * rows * z <= 132
        )
        assert threads == 128 * (1 + tile[0])


def test_tf32_rounds_to_nearest_cuda_c(rng):
    a, b = normal(rng, (33, 40)), normal(rng, (40, 35))

    def rounded(x: np.ndarray) -> np.ndarray:
        return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)

    y = kernels.matmul(a, b, backend="cupy", version="tensor_core_tf32")
    assert_close(
        y, wide(rounded(a)) @ wide(rounded(b)), np.abs(wide(a)) @ np.abs(wide(b)), terms=40
    )
    assert np.abs(y - wide(a) @ wide(b)).max() > 1e-4


# TA, TB, BIAS; groups, columns and stages of their tile
MODELLED = {
    f"wgmma<__half, {'__half' if len(row) == 6 else 'float'}, {', '.join(map(str, row[:6]))}>": row
    for row in ((0, 0, 1, 2, 128, 6), (0, 1, 0, 2, 128, 6), (1, 0, 1, 2, 128, 6),
                (1, 1, 0, 2, 256, 4), (0, 1, 1, 1, 64, 6), (1, 0, 0, 1, 128, 4),
                (0, 0, 0, 1, 64, 12, "parts"), (1, 1, 0, 2, 128, 6, "parts"))
}  # fmt: skip


def over_the_model() -> tuple[str, str]:
    """The model and what else the kernel includes; the kernel."""
    text, real = source("matmul_wgmma.cu"), source("hopper.cuh")
    assert real in text
    model = (Path(__file__).parent / "hopper_model.cuh").read_text()
    text = "#include <cuda_fp16.h>\n" + text.replace(real, model)
    text = re.sub("#pragma unroll.*", "", text)  # a third of the time to compile
    head, start, kernel = text.partition("constexpr int BOX =")
    return head, start + kernel


@pytest.fixture(scope="module")
def modelled():
    return raw_module("".join(over_the_model()), (), tuple(MODELLED))


def launch_wgmma(kernel, name, rng, z: int, m: int, n: int, k: int = 456):
    """What it computes, what it should, and the scale of errors; more steps than the ring has
    slots, b shared by the batch, or sums over parts of k."""
    trans_a, trans_b, has_bias, *ring = MODELLED[name][:6]
    in_parts = len(MODELLED[name]) > 6
    a, b = normal(rng, (1 if in_parts else z, m, k), F16), normal(rng, (1, k, n), F16)
    bias, c = normal(rng, n, F16), np.full((z, m, n), np.nan, np.float32 if in_parts else F16)
    lie = [stored(x, t).swapaxes(1, 2) if t else x for x, t in ((a, trans_a), (b, trans_b))]
    maps = [np.array([x.ctypes.data, *x.shape[::-1], *[0] * 12], np.uint64) for x in lie]
    groups, tn, _ = ring
    grid, span = (-(-n // tn), -(-m // (64 * groups)), z), 128 if in_parts else k
    args = (*maps, bias, c, m, n, k, span, not in_parts, False)
    kernel(grid, (128 + 128 * groups,), args, shared_mem=cuda_c.ring_bytes(*ring))
    if in_parts:
        first = wide(a[:, :, :span]) @ wide(b[:, :span])
        assert_close(c[:1], first, np.abs(wide(a)) @ np.abs(wide(b)) + 4, terms=k)
        c = c.sum(0, keepdims=True)
    expected = wide(a) @ wide(b) + has_bias * wide(bias)
    return c, expected, np.abs(wide(a)) @ np.abs(wide(b)) + 4


@pytest.mark.parametrize("name", MODELLED)
def test_model_of_wgmma_cuda_c(modelled, name, rng, monkeypatch):
    """Partial tiles, boxes wholly outside; of parts a short one and an empty one."""
    kernel, n = modelled.get_function(name), 133 if MODELLED[name][1] == 1 else 136
    in_parts = len(MODELLED[name]) > 6
    for order, batch in (("forward", 5 if in_parts else 2), ("reversed", 4 if in_parts else 1)):
        monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
        assert_close(*launch_wgmma(kernel, name, rng, batch, 136, n), terms=456)


# What is left out or changed in the kernel; the model is to show all of it.
FAULTS = {
    "no wait for products": ("wait_for_products<1>();", ""),
    "a group too many under way": ("wait_for_products<1>", "wait_for_products<2>"),
    "a slot given back too early": ("(step - 1) % STAGES", "slot"),
    "a slot given back before the wait": (
        "wait_for_products<1>();\n            if (step > 0 && t % 32 == 0)"
        " barrier_arrive(&empty[(step - 1) % STAGES]);",
        "if (t % 32 == 0) barrier_arrive(&empty[slot]); wait_for_products<1>();",
    ),
    "no wait for the sums": ("wait_for_sums(sum);", ""),
    "no fence": ("products_begin();", ""),
    "no end of a group": ("products_end();", ""),
    "no wait for tiles": ("barrier_wait(&full[slot], turn % 2);", ""),
    "no wait for slots": ("barrier_wait(&empty[slot], (turn + 1) % 2);", ""),
}


@pytest.fixture(scope="module")
def faulty():
    """A kernel with each fault, and one with none."""
    head, kernel = over_the_model()
    texts = {"none": kernel}
    for fault, (right, wrong) in FAULTS.items():
        assert right in kernel, fault
        texts[fault] = kernel.replace(right, wrong)
    spaces = [f"namespace fault{i} {{\n{text}\n}}\n" for i, text in enumerate(texts.values())]
    names = [f"fault{i}::{next(iter(MODELLED))}" for i in range(len(texts))]
    module = raw_module(head + "".join(spaces), (), names)
    return {fault: module.get_function(name) for fault, name in zip(texts, names)}


@pytest.mark.parametrize("fault", ["none", *FAULTS])
def test_faults_in_wgmma_show_in_the_model_cuda_c(faulty, fault, rng):
    try:
        assert_close(*launch_wgmma(faulty[fault], next(iter(MODELLED)), rng, 1, 64, 64), terms=456)
    except (AssertionError, KernelError):
        assert fault != "none"
    else:
        assert fault == "none"


def test_wgmma_says_that_it_needs_hopper_cuda_c(rng):
    a = normal(rng, (128, 128), F16)
    with pytest.raises(ValueError, match="'wgmma' runs on a GPU of .* 9.0 alone, .* on the CPU"):
        kernels.matmul(a, a, backend="cupy", version="wgmma")
    raw = cuda_c.configure("wgmma", "float", (0, 0, 0), 1, 128, 128, True)[0].instance(a, a, a, a)
    assert raw.options == ("-arch=sm_90a",)
    with pytest.raises(CompileError, match="inline PTX: .* needs a GPU"):
        raw.compile()


def chosen(dtype=F16, m=512, n=512, k=512, cc=(9, 0), layout="nn", **more) -> str:
    trans_a, trans_b = (x == "t" for x in layout)
    return cuda_c.pick(Product(np.dtype(dtype), m, n, k, trans_a, trans_b, cc, **more))


def test_the_version_that_ships():
    for dtype in (F16, BFLOAT16):
        assert chosen(dtype) == "wgmma"
        assert [chosen(dtype, cc=cc) for cc in [(8, 0), (8, 9), (10, 0), (12, 0)]] == [
            "mma_sync"
        ] * 4
        assert chosen(dtype, cc=None) == "vectorised"
        assert chosen(dtype, cc=(6, 1)) == "vectorised"
    assert chosen(F16, cc=(7, 5)) == "tensor_core"
    assert chosen(BFLOAT16, cc=(7, 5)) == "vectorised"  # no bfloat16 on its tensor cores
    assert chosen(m=64) == chosen(n=64) == "wgmma"
    assert chosen(m=64, k=504) == chosen(n=64, k=504) == "mma_sync"
    odd = {"nn": ("k", "n"), "nt": ("k",), "tn": ("m", "n"), "tt": ("m", "k")}  # rows in memory
    for layout, sizes in odd.items():
        for size in "mnk":
            wanted = "mma_sync" if size in sizes else "wgmma"
            assert chosen(layout=layout, **{size: 500}) == wanted, (layout, size)
    assert chosen(n=1) == "matvec"
    assert chosen(m=2, n=2) == "coalesced"
    huge = {"m": 2048, "n": 2048}
    for tf32 in (False, True):
        assert chosen(np.float32, tf32=tf32, **huge) == "double_buffer"
        assert chosen(np.float32, tf32=tf32) == "sliced"
    assert chosen(np.float32, cc=(8, 0), **huge) == "double_buffer"
    assert chosen(np.float32, cc=(8, 0)) == "sliced"
    assert chosen(np.float32, m=3072, n=3072) == "sliced"  # the third wave would be a fifth full
    assert chosen(np.float32, m=4096, n=4096) == "double_buffer"
    assert chosen(np.float32, cc=(7, 5)) == "vectorised"
    assert chosen(np.float32, cc=None) == chosen(np.float64, tf32=True) == "vectorised"
    assert chosen(np.float32, tf32=True, cc=(8, 0)) == "tensor_core_tf32"
    assert chosen(np.float32, tf32=True, cc=(7, 5)) == "vectorised"
    assert chosen(np.float32, tf32=True, cc=None) == "vectorised"


def test_the_tiles_of_sliced():
    """Large ones where they make enough blocks and are half full, else smaller ones."""
    for z, m, n, tile in (
        (1, 1024, 1024, (64, 64)), (1, 512, 512, (32, 64)), (1, 256, 256, (16, 32)),
        (101, 33, 70, (64, 64)), (101, 32, 70, (32, 64)), (101, 16, 70, (16, 32)),
        (101, 33, 32, (16, 32)),
    ):  # fmt: skip
        assert cuda_c._sliced_tile(z, m, n)[0][:2] == tile, (z, m, n)


def test_versions_say_what_they_take(rng):
    a = normal(rng, (16, 16))
    for version in ("tensor_core", "mma_sync", "wgmma"):
        with pytest.raises(
            ValueError, match=f"'{version}' takes float16 and bfloat16, not float32"
        ):
            kernels.matmul(a, a, backend="cupy", version=version)
    with pytest.raises(ValueError, match="'tensor_core_tf32' takes float32, not float64"):
        kernels.matmul(wide(a), wide(a), backend="cupy", version="tensor_core_tf32")
    with pytest.raises(
        ValueError, match="needs compute capability 8.0, .* of compute capability 7.5"
    ):
        cuda_c.check("mma_sync", Product(F16, 9, 9, 9, False, False, (7, 5)))
    with pytest.raises(
        ValueError, match=r"multiples of 8 elements, and in memory they have \(64, 60"
    ):
        cuda_c.check("wgmma", Product(F16, 64, 60, 64, False, False, (9, 0)))


def test_tf32_is_for_those_who_ask_for_it(rng, monkeypatch):
    """The launcher chooses as on a GPU of compute capability 8.0, where nothing is launched."""
    from kernels.lab.gpu_model.resources import noting

    pick = cuda_c.pick
    monkeypatch.setattr(cuda_c, "pick", lambda product: pick(product._replace(cc=(8, 0))))

    a, chosen = normal(rng, (64, 64)), []
    try:
        for precision in ("highest", "high", "medium", "highest"):
            minigrad.set_float32_matmul_precision(precision)
            assert minigrad.get_float32_matmul_precision() == precision
            with noting() as rows:
                kernels.matmul(a, a, backend="cupy")
            chosen += [version for _, version in rows]
    finally:
        minigrad.set_float32_matmul_precision("highest")
    assert chosen == ["sliced", "tensor_core_tf32", "tensor_core_tf32", "sliced"]
    with pytest.raises(ValueError, match="expected 'highest', 'high' or 'medium', got 'tf32'"):
        minigrad.set_float32_matmul_precision("tf32")


# Enough blocks for a version's large tiles, more steps than it has stages. (Of `wgmma` there is no
# model on the software GPU, which takes a minute for 2 GFLOP.)
LARGE = {"mma_sync": (1, 1032, 40, 1032), "wgmma": (1, 1032, 1096, 3848)}
STEPS = {"tensor_core": 72, "mma_sync": 136, "wgmma": 568}


@pytest.mark.gpu
@pytest.mark.few_on_gpu("layout", "nt", "tn")  # each operand in both layouts
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("version", STEPS)
def test_on_a_gpu(version, layout, rng):
    """Batches, a shared operand, both sizes of tile; against float64."""
    import cupy

    cc = cupy.cuda.Device().compute_capability
    if version == "wgmma" and cc != "90":
        pytest.skip(f"needs compute capability 9.0, this GPU has {cc[:-1]}.{cc[-1]}")
    for dtype in (F16, BFLOAT16):
        large = [LARGE[version]] if version in LARGE and dtype == F16 else []
        for z, m, k, n in [*large, (2, 136, STEPS[version], 136), (1, 64, 8, 72)]:
            a = stored(normal(rng, (z, m, k), dtype), layout[0] == "t")
            b = stored(normal(rng, (z, k, n), dtype), layout[1] == "t")
            check(a, b, normal(rng, n, dtype), "gpu", version)
            if z > 1:
                check(a, b[0], None, "gpu", version)
        if version == "mma_sync":  # parts of few rows
            a = stored(normal(rng, (5, 2056), dtype), layout[0] == "t")
            b = stored(normal(rng, (2056, 136), dtype), layout[1] == "t")
            check(a, b, normal(rng, 136, dtype), "gpu")


def test_tensor_maps_as_the_driver_is_asked_for_them(monkeypatch):
    tensor_map = importlib.import_module("kernels.cuda_c.tensor_map")
    long, short = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
    calls = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, long, long,
        short, short, *[ctypes.c_int] * 4,
    )  # fmt: skip
    def encode(result, dtype, rank, address, sizes, strides, box, steps, *modes):
        assert result % 128 == 0
        ctypes.memset(result, 7, 128)
        arrays = sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank]
        calls.append((dtype, address, *arrays, *modes))
        return 1 if address % 16 else 0

    driver = SimpleNamespace(cuTensorMapEncodeTiled=encode)
    monkeypatch.setattr(tensor_map, "_driver", lambda: driver)
    for number, dtype in ((6, "float16"), (9, "bfloat16")):
        made = tensor_map.encode(4096, (5, 70, 136), dtype)
        assert made.shape == () and made.tobytes() == b"\7" * 128
        sizes, strides, box = [136, 70, 5], [272, 272 * 70], [64, 64, 1]
        assert calls.pop() == (number, 4096, sizes, strides, box, [1, 1, 1], 0, 3, 2, 0)
    with pytest.raises(RuntimeError, match=r"error 1 for float16 \(1, 8, 8\) at 0x1001"):
        tensor_map.encode(0x1001, (1, 8, 8), "float16")


class OnGpu(np.ndarray):
    """Taken for CuPy's."""

    __module__ = "cupy"
    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data, device_id=0))


def test_what_cupy_is_told_of_a_launch_of_wgmma(monkeypatch):
    """By a CuPy that only takes notes: structures by value, the ring's bytes, the architecture."""
    launches, made = [], []

    def function(*launch, shared_mem=0):
        launches.append((*launch, shared_mem))

    module = SimpleNamespace(get_function=lambda name: function)
    monkeypatch.setattr(launch, "GpuModule", lambda *how: made.extend(how) or module)
    monkeypatch.setattr(launch, "_capability", lambda: "90")
    map_of = importlib.import_module("kernels.cuda_c.tensor_map").MAP

    def tensor_map(x):
        assert x.data.ptr % 16 == 0
        return np.array(([len(x)] * 16,), map_of)

    monkeypatch.setattr(cuda_c, "tensor_map", tensor_map)
    room = np.zeros(2 * 128 * 64 + 1, F16)
    a, b = room[1:].reshape(2, 128, 64), np.zeros((1, 64, 256), F16)  # a not at 16 bytes
    bias, c = np.zeros(256, F16), np.zeros((2, 128, 256), F16)
    kernel, *configuration = cuda_c.configure("wgmma", "float", (0, 0, 1), 2, 128, 256, True)
    args = [x.view(OnGpu) for x in (a, b, bias, c)]
    kernel.bind_on_gpu(*configuration, *args)(*args)
    name = "wgmma<__half, __half, 0, 0, 1, 1, 64, 12>"
    assert made[1:] == [("-arch=sm_90a",), (name,), "90", False]
    (grid, block, args, shared_mem), ring = launches[0], 24 * 64 * 64 * 2 + 1024
    assert (grid, block) == ((4, 2, 2), (256,))
    assert shared_mem == function.max_dynamic_shared_size_bytes == ring <= 227 * 1024
    assert [x.dtype.itemsize for x in args[:2]] == [128, 128] and args[0].ndim == args[1].ndim == 0
    assert args[0]["opaque"][0] == 2 and args[1]["opaque"][0] == 1
    assert args[4:] == (128, 256, 64, 64, True, False)
    assert [type(x) for x in args[4:]] == [np.int32] * 4 + [np.bool_] * 2


@pytest.mark.needs("cuda.bindings")
def test_numbers_of_the_driver():
    from cuda.bindings import driver

    tensor_map = importlib.import_module("kernels.cuda_c.tensor_map")
    for name in ("float16", "bfloat16"):
        known = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name.upper()}")
        assert tensor_map._DATA_TYPES[name] == known
    for value, known in [
        (tensor_map._INTERLEAVE_NONE, "Interleave.CU_TENSOR_MAP_INTERLEAVE_NONE"),
        (tensor_map._SWIZZLE_128B, "Swizzle.CU_TENSOR_MAP_SWIZZLE_128B"),
        (tensor_map._L2_PROMOTION_128B, "L2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B"),
        (tensor_map._ZEROS_OUTSIDE, "FloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
    ]:
        kind, name = known.split(".")
        assert value == getattr(getattr(driver, f"CUtensorMap{kind}"), name)
