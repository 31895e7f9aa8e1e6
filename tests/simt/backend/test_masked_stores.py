"""Stores of rows whose last vector has a single thread."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.backend import masked_stores

WIDE = {"int8": np.int64, "uint8": np.int32, "int16": np.int64, "int32": np.int64}


@pytest.mark.parametrize("kind", [*WIDE, "int64", "float32"])
def test_a_row_of_threads_stores_its_elements_and_no_more(kind):
    """LLVM 22 stored 8 bytes for the ninth element, with AVX-512."""
    dtype, wide = np.dtype(kind), WIDE.get(kind, np.dtype(kind).type)

    @cuda.jit(debug=False)
    def add_rows(x, y):
        i = cuda.threadIdx.x
        if i < y.shape[0]:
            total = wide(0)
            for row in range(x.shape[0]):
                total += wide(x[row, i])
            y[i] = total

    for threads in (3, 9, 13):
        x = (np.arange(3 * threads).reshape(3, threads) % 40).astype(dtype)
        memory = np.full(threads + 64, 7, dtype)
        add_rows[1, threads](x, memory[:threads])
        np.testing.assert_array_equal(memory[:threads], x.sum(0, dtype=dtype))
        assert (memory[threads:] == 7).all(), threads


TEXT = """
declare void @llvm.masked.store.v8i16.p0(<8 x i16>, ptr, {align}<8 x i1>)
define void @store(<8 x i64> %0, ptr %1) {{
  %value = trunc <8 x i64> %0 to <8 x i16>
  call void @llvm.masked.store.v8i16.p0(<8 x i16> %value, ptr %1, {given}<8 x i1> <{mask}>)
  ret void
}}
"""


@pytest.mark.parametrize("lanes", [[0], [5], [0, 1], [], list(range(8))])
def test_of_masks_with_one_lane_an_element_is_stored(lanes):
    mask = ", ".join(f"i1 {str(lane in lanes).lower()}" for lane in range(8))
    old = llvm.llvm_version_info[0] < 22  # the alignment was an argument
    how = {"align": "i32, ", "given": "i32 4, "} if old else {"align": "", "given": ""}
    module = llvm.parse_assembly(TEXT.format(mask=mask, **how))
    module.name = "rows"
    changed = masked_stores.plain(module)
    if len(lanes) != 1:
        assert changed is module
        return
    changed.verify()
    text = str(changed)
    assert "call void @llvm.masked.store" not in text
    assert f"extractelement <8 x i16> %value, i64 {lanes[0]}" in text
    assert f"getelementptr inbounds i16, ptr %1, i64 {lanes[0]}" in text
    assert changed.name == "rows"
