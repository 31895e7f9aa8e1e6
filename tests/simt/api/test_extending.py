"""`cuda.extending`: functions, methods and types of a user in kernels."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numba
import numpy as np
import pytest
from numba import types
from numba.core.errors import NumbaError
from numba.extending import make_attribute_wrapper, models, register_model, typeof_impl

from kernels.simt import cuda
from kernels.simt.backend import target
from kernels.simt.cuda import extending


def doubled(x):
    return 2 * x


@extending.overload(doubled)
def _doubled(x):
    return lambda x: 2 * x


def where():
    raise NotImplementedError


@numba.extending.overload(where, target="cuda")
def _where_in_kernels():
    return lambda: 100


@numba.extending.overload(where, target="cpu")
def _where_on_cpus():
    return lambda: 7


def nested(x):
    raise NotImplementedError


@numba.extending.overload(nested, target="cuda")
def _nested(x):
    return lambda x: doubled(x) + where()


@extending.overload_method(types.Array, "first_and_last")
def _first_and_last(array):
    return lambda array: array[0] + array[array.size - 1]


@extending.overload_attribute(types.Array, "middle")
def _middle(array):
    return lambda array: array[array.size // 2]


def test_overloads_for_kernels():
    @cuda.jit
    def kernel(x):
        x[1] = doubled(x[0]) + nested(x[2])
        x[3] = x.first_and_last() + where() + x.middle

    x = np.array([3.0, 0, 5, 0, 1])
    kernel[1, 1](x)
    assert x.tolist() == [3, 6 + 110, 5, 4 + 100 + 5, 1]


def test_a_function_of_njit_may_be_compiled_before_the_first_kernel():
    """Numba offers it what is registered for kernels, too, and once."""

    @extending.overload_method(types.Array, "last_one")
    def _last_one(array):
        return lambda array: array[array.size - 1]

    target.extensions({"last_one"})  # for the name of a stored kernel, before any is compiled
    assert numba.njit(lambda: 3)() == 3

    @cuda.jit
    def kernel(x):
        x[0] = x.last_one()

    x = np.array([0.0, 5])
    kernel[1, 1](x)
    assert x[0] == 5


def test_functions_of_njit_do_not_see_them():
    assert numba.njit(lambda: where())() == 7
    with pytest.raises(NumbaError):
        numba.njit(lambda: doubled(2))()


def test_overloads_in_a_function_that_is_not_inlined():
    @cuda.jit(device=True)
    def above(limit):
        for k in range(100):
            if doubled(k) > limit:
                return k
        return -1

    @cuda.jit
    def kernel(x):
        x[0] = above(x[0])

    x = np.array([9.0])
    kernel[1, 1](x)
    assert x[0] == 5


class Interval:
    def __init__(self, low, high):
        self.low, self.high = low, high


class IntervalType(types.Type):
    def __init__(self):
        super().__init__("Interval")


@typeof_impl.register(Interval)
def _(value, context):
    return IntervalType()


@register_model(IntervalType)
class IntervalModel(models.StructModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("low", types.float64), ("high", types.float64)])


make_attribute_wrapper(IntervalType, "low", "low")
make_attribute_wrapper(IntervalType, "high", "high")


@extending.type_callable(Interval)
def _(context):
    return lambda low, high: IntervalType()


@extending.lower_builtin(Interval, types.Float, types.Float)
def _(context, builder, sig, args):
    made = numba.core.cgutils.create_struct_proxy(sig.return_type)(context, builder)
    made.low, made.high = args
    return made._getvalue()


def test_a_type_of_a_user():
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        interval = Interval(x[i], x[i] + 2.5)
        x[i] = interval.high - interval.low + interval.low * 10

    x = np.arange(4.0)
    kernel[1, 4](x)
    assert x.tolist() == [2.5, 12.5, 22.5, 32.5]


def test_a_changed_overload_is_compiled_again(tmp_path):
    """Machine code in the cache depends on the overloads that it was made with."""
    program = """
        import numpy as np
        from kernels.simt import cuda
        from kernels.simt.cuda import extending

        def value(x): ...

        @extending.overload(value)
        def _value(x):
            return lambda x: x + {}

        @cuda.jit
        def kernel(x):
            x[0] = value(x[0])

        x = np.zeros(1)
        kernel[1, 1](x)
        print(x[0])
    """
    path = tmp_path / "program.py"
    for number in (1, 5):
        path.write_text(textwrap.dedent(program.format(number)))
        ran = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
        assert float(ran.stdout) == number
