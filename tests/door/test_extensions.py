"""A program that extends numba-cuda, and one that uses bfloat16, run as they are."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from kernels import door

pytestmark = pytest.mark.skipif(door.no_gpu() is None, reason="there is a GPU: nothing changes")

EXTENSION = """
import numpy as np
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.core.imputils import lower_constant
from numba.cuda.cudadecl import registry
from numba.cuda.cudaimpl import lower, lower_attr
from numba.cuda.datamodel import default_manager
from numba.cuda.extending import *
from numba.cuda.extending import core_models, models
from numba.cuda.models import StructModel, register_model
from numba.cuda.typing.templates import AttributeTemplate, ConcreteTemplate, signature
from numba.cuda.typing.typeof import typeof


class Interval:
    def __init__(self, lo, hi):
        self.lo, self.hi = lo, hi


class IntervalType(types.Type):
    def __init__(self):
        super().__init__(name="Interval")


interval_type = IntervalType()


@typeof_impl.register(Interval)
def typeof_interval(value, context):
    return interval_type


@type_callable(Interval)
def type_interval(context):
    return lambda lo, hi: interval_type


@register_model(IntervalType)
class IntervalModel(StructModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("lo", types.float64), ("hi", types.float64)])


make_attribute_wrapper(IntervalType, "lo", "lo")
make_attribute_wrapper(IntervalType, "hi", "hi")


@lower(Interval, types.Float, types.Float)
def make_interval(context, builder, sig, args):
    made = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    made.lo, made.hi = args
    return made._getvalue()


@overload_attribute(IntervalType, "width")
def width(interval):
    return lambda interval: interval.hi - interval.lo


@overload_method(IntervalType, "contains")
def contains(interval, value):
    return lambda interval, value: interval.lo <= value <= interval.hi


@overload(sum)
def sum_of_interval(interval):
    if isinstance(interval, IntervalType):
        return lambda interval: interval.lo + interval.hi


@intrinsic
def next_to(typingctx, x):
    if isinstance(x, types.Integer):
        def codegen(context, builder, signature, args):
            return builder.add(args[0], context.get_constant(x, 1))
        return x(x), codegen


@register_jitable
def three_times(x):
    return 3 * x


def twice(x):
    raise NotImplementedError


@registry.register
class Twice(ConcreteTemplate):
    key = twice
    cases = [signature(types.float64, types.float64)]


registry.register_global(twice, types.Function(Twice))


@lower(twice, types.float64)
def lower_twice(context, builder, sig, args):
    return builder.fadd(args[0], args[0])


@registry.register_attr
class ExtentOfArray(AttributeTemplate):
    key = types.Array

    def resolve_first_extent(self, array):
        return types.intp


@lower_attr(types.Array, "first_extent")
def first_extent(context, builder, kind, value):
    array = context.make_array(kind)(context, builder, value)
    return cgutils.unpack_tuple(builder, array.shape, kind.ndim)[0]


@cuda.jit
def kernel(x, out):
    i = cuda.grid(1)
    interval = Interval(x[i], x[i] + 2.5)
    out[i, 0] = interval.width
    out[i, 1] = interval.contains(x[i] + 1.0) and not interval.contains(x[i] - 1.0)
    out[i, 2] = sum(interval)
    out[i, 3] = next_to(i)
    out[i, 4] = three_times(i)
    out[i, 5] = twice(x[i])
    out[i, 6] = x.first_extent


class Bounds:
    def prepare_args(self, kind, value, stream, retr):
        if kind == interval_type:
            retr.append(lambda: print("copied back"))
            return types.UniTuple(types.float64, 2), (value.lo, value.hi)
        return kind, value


@cuda.jit(extensions=[Bounds()])
def taking(bounds, out):
    out[0] = bounds[1] - bounds[0]


@cuda.jit
def refusing(bounds, out):
    out[0] = 0


out = np.zeros((3, 7))
kernel[1, 3](np.arange(3.0), out)
print(out.tolist())
out = cuda.to_device(np.zeros(1))
taking[1, 1](Interval(1.0, 4.5), out)
host = np.zeros(1)
taking[1, 1](Interval(1.0, 3.0), cuda.Out(host))
print(out.copy_to_host()[0], host[0], typeof(1.5), is_jitted(kernel), is_jitted(twice))
try:
    refusing[1, 1](Interval(1.0, 4.5), out)
except TypeError as error:
    print(error)
"""

BFLOAT16 = """
import math
import ml_dtypes
import numpy as np
from numba import cuda, float32, int16, int32
from numba.cuda import bf16
from numba.cuda.bf16 import bfloat16, bfloat162float, float2bfloat16_rz, hadd, hfma, hgt, hsqrt


@cuda.jit
def kernel(x, out, stored):
    tile = cuda.shared.array(4, bfloat16)
    mine = cuda.local.array(1, bfloat16)
    i = cuda.threadIdx.x
    a = bfloat16(x[i])
    tile[i] = a
    mine[0] = -a
    cuda.syncthreads()
    out[i, 0] = bfloat162float(hadd(tile[3 - i], mine[0]))
    out[i, 1] = float(hfma(a, a, a))
    out[i, 2] = float32(hsqrt(a))
    out[i, 3] = float(tile[i]) + complex(tile[i]).real
    out[i, 4] = hgt(a, bfloat16(2.0)) and a > bfloat16(2.0)
    out[i, 5] = bfloat162float(float2bfloat16_rz(x[i]))
    out[i, 6] = bf16.bfloat162int_rn(bf16.int2bfloat16_rn(int32(257 + i)))
    out[i, 7] = bf16.bfloat16_as_short(a)
    stored[i] = a * a + a
    out[i, 8] = math.exp(a)


x = np.array([1.1, 2.5, 3.3, 0.2], np.float32)
out, stored = np.zeros((4, 9)), np.zeros(4, ml_dtypes.bfloat16)
kernel[1, 4](x, out, stored)
np.savez("out.npz", x=x, out=out, stored=stored.astype(np.float32))
"""


def run(folder, text: str) -> str:
    (folder / "program.py").write_text(text)
    plain = {k: v for k, v in os.environ.items() if k != "MINIGRAD_INSTALL"}
    done = subprocess.run(
        [sys.executable, "-m", "minigrad", "run", "program.py"],
        capture_output=True, text=True, env=plain, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_that_extends_numba_cuda(tmp_path):
    computed, *rest = run(tmp_path, EXTENSION).splitlines()
    expected = [[2.5, 1, 2 * x + 2.5, x + 1, 3 * x, 2 * x, 3] for x in range(3)]
    assert computed == str([[float(v) for v in row] for row in expected])
    assert rest == [
        "copied back",
        "copied back",
        "3.5 2.0 float64 True False",
        "refusing: Interval is not a kernel argument; pass NumPy arrays, numbers,"
        " or tuples of them",
    ]


def test_a_program_that_uses_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    run(tmp_path, BFLOAT16)

    def rounded(values):
        return np.asarray(values).astype(ml_dtypes.bfloat16).astype(np.float64)

    with np.load(tmp_path / "out.npz") as r:
        x, out, stored = r["x"], r["out"], r["stored"]
    a = rounded(x)
    bits = x.astype(ml_dtypes.bfloat16).view(np.int16)
    towards_zero = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    expected = [
        rounded(a[::-1] - a), rounded(a * a + a), rounded(np.sqrt(a)), 2 * a, a > 2,
        towards_zero, rounded(np.arange(257, 261)), bits,
    ]  # fmt: skip
    np.testing.assert_array_equal(out[:, :8], np.transpose(expected))
    # operators and math's functions compute in float32: the result is rounded where it is stored
    np.testing.assert_array_equal(stored, rounded(a * a + a))
    np.testing.assert_allclose(out[:, 8], np.exp(a), rtol=1e-6)
