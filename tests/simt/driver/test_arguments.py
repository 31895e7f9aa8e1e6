"""What a compiled kernel depends on of its arguments."""

from __future__ import annotations

import numpy as np

from kernels.simt import cuda
from kernels.simt.driver.arguments import describe


def test_arrays_are_told_apart_by_all_that_matters():
    x = np.zeros((4, 6), np.float32)
    constant = x.copy()
    constant.flags.writeable = False
    kinds = [describe(a) for a in (x, x.T, x[:, ::2], x[0], x.astype(np.float64), constant)]
    assert len(set(kinds)) == len(kinds)
    assert [kind.layout for kind in kinds[:3]] == ["C", "F", "A"]
    assert describe(np.ones((2, 3), np.float32)) is kinds[0]
    big_endian = describe(x.astype(">f4"))
    assert big_endian != kinds[0] and big_endian.dtype == ">f4"


def test_a_kernel_takes_one_layout_after_the_other():
    @cuda.jit
    def double(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = 2 * x[i]

    x, out = np.arange(12, dtype=np.float32), np.empty(12, np.float32)
    for given in (x, x[::-1], x[::2], x[1:7]):
        double.bind(1, 32, given, out)(given, out)
        np.testing.assert_array_equal(out[: given.size], 2 * given)
