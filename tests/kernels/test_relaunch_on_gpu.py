"""Launches on a GPU that are remembered: the same results, and little Python around them."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import pytest

import kernels
import minigrad as mg
from kernels import dispatch, raw_kernel
from kernels.launchers import relaunch_on_gpu
from kernels.pointwise import TABLE

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:The CUDA driver")]
BACKENDS = pytest.mark.parametrize("backend", ["numba", "auto"], indirect=True)
ROOT = Path(mg.__file__).parent.parent
OURS = tuple(str(ROOT / name) for name in ("minigrad", "kernels/launchers", "kernels/simt"))


@pytest.fixture(params=["numba"])
def backend(request):
    """The dialect; nothing is remembered."""
    from kernels.launchers import relaunch

    with mg.backends.use(request.param):
        relaunch.forget_on_gpu()
        relaunch._seen.clear()
        yield request.param


def again(operation, *operands):
    return dispatch.relaunch(dispatch.tracer, dispatch.active, operation, *operands)


def there(rng, *shape):
    return mg.tensor(rng.normal(size=shape).astype(np.float32), device="cuda")


def equal(found, expected):
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


@BACKENDS
def test_a_launch_is_remembered_for_operands_of_its_kind(rng, backend):
    a, b, c = (there(rng, 3, 5) for _ in range(3))
    assert again(TABLE["add"], a._array, b._array) is None
    for _ in range(2):
        a + a  # which operand is which is not seen in these
    found = again(TABLE["add"], b._array, c._array)
    equal(mg.tensor(found), b.cpu().numpy() + c.cpu().numpy())
    for other in (there(rng, 5, 3), there(rng, 5, 3).T, there(rng, 3, 5).double()):
        assert again(TABLE["add"], a._array, other._array) is None
    assert again(TABLE["add"], a._array, 2.0) is None


@BACKENDS
@pytest.mark.parametrize("rows, terms", [(16, 2400), (1, 300)])
def test_a_product_in_parts_is_remembered(rows, terms, rng, backend):
    x, w, bias = there(rng, rows, terms), there(rng, 20, terms), there(rng, 20)
    with kernels.trace() as trace:
        linear(x, w, bias)
    assert sum(int(row[0]) for row in trace.rows.values()) > 1
    for _ in range(3):
        linear(x, w, bias)
    name, operands = dispatch.named("matmul"), (x._array, w._array.T, bias._array)
    assert again(name, *operands) is not None


@BACKENDS
def test_numbers_are_those_of_each_call(rng, backend):
    a = there(rng, 40)
    for number in (2.0, 3.5, -1.25):
        equal(a * number, a.cpu().numpy() * np.float32(number))
    for number in (0.5, 0.25, 2.0):
        given = a.cpu().numpy()
        equal(a.clone().mul_(number), given * np.float32(number))


def linear(x, w, bias):
    return mg.nn.functional.linear(x, w, bias)


CALLS = {
    "linear": (linear, (6, 10), (3, 10), (3,)),
    "linear in parts": (linear, (16, 2400), (20, 2400), (20,)),
    "a row by columns": (linear, (1, 300), (40, 300), (40,)),
    "softmax of a copy": (lambda x: x.T.softmax(1), (4, 6)),
    "several launches": (lambda x, w, bias: mg.nn.functional.layer_norm(x, (33,), w, bias),
                         (5, 33), (33,), (33,)),
    "convolution": (lambda x, w: mg.nn.functional.conv2d(x, w, padding=1), (2, 3, 7, 6),
                    (4, 3, 3, 3)),
    "pooling": (lambda x: mg.nn.functional.max_pool2d(x, 2), (2, 3, 6, 8)),
    "a sum of columns": (lambda x: x.sum((0, 2)), (3, 70, 9)),
    "concatenation": (lambda x, y: mg.cat([x, y], 1), (3, 4), (3, 2)),
}  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_of_each_call_are_its_own(name, rng, backend):
    function, *shapes = CALLS[name]
    for _ in range(4):  # the third call of several launches is the first that is remembered
        given = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        results = []
        for device in ("cpu", "cuda"):
            tensors = [mg.tensor(a, device=device, requires_grad=True) for a in given]
            out = function(*tensors)
            (out * out).sum().backward()
            results.append([out.detach(), *(t.grad for t in tensors)])
        for expected, found in zip(*results, strict=True):
            near = 1e-4 * max(1.0, float(expected.abs().max()) / 30)  # sums of large terms
            np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-4, atol=near)


def test_a_trace_sees_what_is_remembered(rng, backend):
    a, b = there(rng, 50), there(rng, 50)
    for _ in range(3):
        a + b
    with kernels.trace() as trace:
        a + b
    assert trace.rows["pointwise.add", "contiguous"][0] == 1


def test_another_precision_chooses_other_kernels(rng, backend):
    a, b = there(rng, 40, 40), there(rng, 40, 40)
    for _ in range(2):
        a @ b
    assert again(dispatch.named("matmul"), a._array, b._array, None) is not None
    mg.set_float32_matmul_precision("high")
    try:
        assert again(dispatch.named("matmul"), a._array, b._array, None) is None
        for _ in range(2):
            a @ b
        assert again(dispatch.named("matmul"), a._array, b._array, None) is not None
    finally:
        mg.set_float32_matmul_precision("highest")


def test_a_full_table_begins_anew(rng, backend, monkeypatch):
    monkeypatch.setattr(relaunch_on_gpu._known, "limit", 3)
    for _ in range(3):
        for n in range(1, 8):
            a = there(rng, n)
            equal(a + a, 2 * a.cpu().numpy())
            assert len(relaunch_on_gpu._known) <= 3
    assert relaunch_on_gpu._known


def functions_called(function):
    """How many functions of this project in Python a call takes, but those of the software GPU."""
    names = []

    def seen(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            names.append(frame.f_code.co_qualname)

    for _ in range(3):
        function()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(names)


def test_little_python_runs_around_a_launch(rng, backend):
    a, b, m = there(rng, 100), there(rng, 100), there(rng, 32, 32)
    g = there(rng, 100).requires_grad_()
    assert functions_called(lambda: a + b) <= 16
    assert functions_called(lambda: g + b) <= 22
    assert functions_called(lambda: m @ m) <= 20
    assert functions_called(lambda: a.sum()) <= 22


NUMBERS = """
__global__ void put(double* out, int i, long long l, bool b, unsigned char u, float f, double d,
                    __half h) {
    const double all[] = {double(i), double(l), double(b), double(u), f, d, __half2float(h)};
    for (int n = 0; n < 7; n++) out[n] = all[n];
}
"""


def test_numbers_of_all_types_are_written_into_the_buffer():
    """A remembered launch of CUDA C writes each number as its parameter's type, and addresses with
    their offset."""
    import cupy

    kernel = raw_kernel("#include <cuda_fp16.h>\n" + NUMBERS, "put").on_gpu()
    out = cupy.zeros(9, np.float64)
    first = (out[2:], 1, 2, True, 3, 4.0, 5.0, 6.0)
    sources = [(0, 16), *((n, 0) for n in range(1, 8))]
    launch = kernel.repeat((1,), (1,), 0, first, sources, {})
    for values in [
        (-7, -(2**40), False, 255, -0.1, 1e300, -0.5),
        (2**31 - 1, 5, True, 0, 3.5, 0.1, 2),
    ]:
        launch((out, *values))
        expected = [float(v) for v in values]
        expected[4] = float(np.float32(values[4]))
        assert out.get().tolist() == [0.0, 0.0, *expected]


STRUCTURE = """
struct Place { float* x; int at[3]; };
template <class T>
__global__ void put(T* x, Place place, T value) { place.x[place.at[1]] += x[place.at[2]] * value; }
"""


def test_structures_stay_as_they_are_unless_they_hold_what_changes():
    """A structure of numbers alone is part of a remembered launch; with an address in it, a launch
    cannot be remembered, unless it is a map for the copy engine."""
    import cupy

    from kernels.cuda_c.common import Kernel

    def arguments(x, out, value):
        dtype = [("x", np.uint64), ("at", np.int32, 4)]
        return x, np.array((out.data.ptr, (0, 2, 1, 0)), dtype)[()], value

    x, out = (cupy.asarray(np.array([n, n + 1, n + 2], np.float32)) for n in (5, 1))
    kernel, value = Kernel(STRUCTURE, "put", (0,), (), arguments), float("2")

    def source(*changing):
        return lambda arg: next(((i, 0) for i, v in enumerate(changing) if v is arg), None)

    assert kernel.repeat_on_gpu((1,), (1,), (x, out, value), source(x, out, value)) is None
    launch = kernel.repeat_on_gpu((1,), (1,), (x, out, value), source(x, value))
    launch((cupy.asarray(np.array([0, 3, 0], np.float32)), 0.5))
    assert out.get().tolist() == [1.0, 2.0, 4.5]


MAPPED = """
struct Map { unsigned long long opaque[16]; };
__global__ void put(const Map map, float* out) { out[0] = ((const float*)map.opaque[0])[0]; }
"""


def test_maps_are_made_for_the_address_of_each_call(monkeypatch):
    import cupy

    from kernels.cuda_c import common
    from kernels.cuda_c.tensor_map import MAP

    def map_of(address):
        found = np.zeros((), MAP)
        found["opaque"][0] = address
        return found

    monkeypatch.setattr(common, "map_at", lambda x: lambda address: map_of(address).tobytes())
    kernel = common.Kernel(MAPPED, "put", (), (), lambda x, out: (map_of(x.data.ptr), out))
    x, y = (cupy.asarray(np.array([n, n + 1, n + 2], np.float32)) for n in (5, 1))
    out, other = cupy.zeros(1, np.float32), cupy.zeros(1, np.float32)
    for offset in (0, 4):
        source = functools.partial(lambda at, arg: (0, at) if arg is x else (1, 0), offset)
        launch = kernel.repeat_on_gpu((1,), (1,), (x, out), source)
        for given, expected in ((x, 5), (y, 1)):
            launch((given, other))
            assert other.get().tolist() == [expected + offset // 4]
    assert out.get().tolist() == [0]


@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("backend", ["auto"], indirect=True)
def test_halves_of_each_call(rng, n, backend):
    """Where a map of memory goes to the kernel (wgmma), each product is of its own operands."""
    kept = []
    for _ in range(5):
        a, b = (rng.normal(size=(n, n)).astype(np.float16) for _ in range(2))
        kept.append([mg.tensor(x, device="cuda") for x in (a, b)])
        found = kept[-1][0] @ kept[-1][1]
        expected = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=2e-3, atol=2e-2)
    arrays = (x._array for x in kept[0])
    assert again(dispatch.named("matmul"), *arrays, None) is not None


def doubled(x, number):
    return dispatch.active.pointwise(TABLE["axpy"], x, x, params=(2 * number,))


@pytest.mark.parametrize("backend", ["auto"], indirect=True)
def test_a_number_that_is_converted_is_not_remembered_as_a_constant(backend):
    x = mg.ones(1005, device="cuda")._array
    for number in (1.5, 2.5, 3.5, 4.5):
        assert set(dispatch.together(doubled, x, number).get().tolist()) == {1 + 2 * number}
