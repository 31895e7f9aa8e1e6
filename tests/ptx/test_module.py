"""Modules and launches: parameters, variables, shared memory, functions, and what is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kernels import ptx
from kernels.support.errors import ArgumentError, CompileError, LaunchError
from tests.ptx.helpers import HEAD, entry, run

DOUBLE = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.s32 %d1, %r4, 4;
    add.s64 %d2, %p0, %d1;
    ld.global.f32 %f1, [%d2];
    add.rn.f32 %f2, %f1, %f1;
    st.global.f32 [%d2], %f2;
    ret;
"""


def test_a_kernel_runs_over_its_grid():
    x = np.arange(96, dtype=np.float32)
    run(entry(DOUBLE), [x], grid=3)
    assert np.array_equal(x, 2 * np.arange(96))


def test_parameters_as_addresses_of_each():
    x = np.arange(32, dtype=np.float32)
    module = ptx.load(entry(DOUBLE).encode() + b"\0")
    pointer = ctypes.c_uint64(x.ctypes.data)
    module.launch("k", 1, 32, 0, [ctypes.addressof(pointer)])
    assert x[31] == 62
    with pytest.raises(ArgumentError, match="1 parameters, not 2"):
        module.launch("k", 1, 32, 0, [0, 0])
    with pytest.raises(ArgumentError, match="4 bytes of parameters, not 8"):
        module.launch("k", 1, 32, 0, b"1234")


def test_what_a_module_has():
    module = ptx.load(entry("ret;", before=".global .align 4 .u32 total[2] = {7, 8};\n"))
    assert module.kernels == ["k"]
    address, size = module.globals["total"]
    assert (np.ctypeslib.as_array((ctypes.c_uint32 * 2).from_address(address)) == [7, 8]).all()
    assert size == 8
    with pytest.raises(CompileError, match="no kernel 'other'"):
        module.launch("other", 1, 1, 0, b"")


def test_what_hardware_refuses():
    module = ptx.load(entry("ret;").replace(") {", ") .maxntid 64, 1, 1 {", 1))
    with pytest.raises(LaunchError, match="128 threads; it is compiled for 64"):
        module.launch("k", 1, 128, 0, bytes(8))
    with pytest.raises(LaunchError, match="bytes of shared memory"):
        module.launch("k", 1, 32, 1 << 20, bytes(8))
    with pytest.raises(CompileError, match="cubin"):
        ptx.load(b"\x7fELF\0")


def test_what_is_not_known_is_named_with_its_line():
    with pytest.raises(CompileError, match=r"PTX line 13: vadd\.s32\.s32 .* this opcode"):
        run(entry("vadd.s32.s32 %r1, %r2, %r3;"), [np.zeros(1)])
    with pytest.raises(CompileError, match=r"add\.odd\.s32 .* modifier \.odd"):
        run(entry("add.odd.s32 %r1, %r2, %r3;"), [np.zeros(1)])
    with pytest.raises(CompileError, match=r"PTX line 4: '\.strange thing;' is not known"):
        ptx.load(HEAD + ".strange thing;\n")
