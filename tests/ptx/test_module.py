"""Modules and launches: parameters, variables, shared memory, functions, and what is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kernels import ptx
from kernels.support.errors import ArgumentError, CompileError, KernelError, LaunchError
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


TABLES = """
.func (.param .b32 r) square(.param .b32 x);
.func (.param .b32 r) countdown(.param .b32 x);
.global .align 8 .u64 inner[1] = {countdown};
.global .align 8 .u64 table[4] = {square, countdown, 0, 96};
.func (.param .b32 r) square(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x];
    mul.lo.u32 %r2, %r1, %r1;
    st.param.b32 [r], %r2;
    ret;
}
.func (.param .b32 r) countdown(.param .b32 x) {
    .reg .b32 %r<5>;
    .reg .b64 %d<3>;
    .reg .pred %p<2>;
    ld.param.u32 %r1, [x];
    setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r4, 100;
    @%p1 bra DONE;
    sub.u32 %r2, %r1, 1;
    ld.global.u64 %d1, [inner];
    { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r2;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %d1, (a), proto;
    ld.param.b32 %r3, [b]; }
    add.u32 %r4, %r3, 1;
DONE:
    st.param.b32 [r], %r4;
    ret;
}
"""
THROUGH = """
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    add.u64 %d2, %p0, %d1;
    ld.global.u32 %r2, [%d2];
    and.b32 %r3, %r1, MASK;
    mul.wide.u32 %d3, %r3, 8;
    mov.u64 %d4, table;
    add.u64 %d5, %d4, %d3;
    ld.global.u64 %d6, [%d5];
    setp.ne.u32 %q1, %r1, 5;
    mov.u32 %r4, 7;
    { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r2;
    st.param.b32 [b], %r4;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    @%q1 call (b), %d6, (a), proto;
    ld.param.b32 %r4, [b]; }
    st.global.u32 [%d2], %r4;
    ret;
"""


def test_calls_of_functions_in_tables():
    """A function that calls itself through a table too; and one lane that calls nothing."""
    given = np.random.default_rng(3).integers(0, 9, 32).astype(np.uint32)
    x, lanes = given.copy(), np.arange(32)
    run(entry(THROUGH.replace("MASK", "1"), before=TABLES), [x])
    expected = np.where(lanes % 2, 100 + given, given * given)
    assert np.array_equal(x, np.where(lanes == 5, 7, expected))


@pytest.mark.parametrize("mask", [2, 3])
def test_a_call_of_no_function_is_an_error(mask):
    """Of a null pointer, and of what is not the address of a function."""
    text = entry(THROUGH.replace("MASK", str(mask)), before=TABLES)
    with pytest.raises(KernelError, match=r"thread \(2, 0, 0\).* came to a trap: call"):
        run(text, [np.zeros(32, np.uint32)])


@pytest.mark.needs("cuda.bindings")
def test_virtual_functions_of_nvrtc():
    from kernels.host.nvrtc import translate

    code = """
struct Shape { float a; __device__ Shape(float a) : a(a) {} __device__ virtual float area() = 0; };
struct Disk : Shape { using Shape::Shape; __device__ float area() override { return 3 * a * a; } };
struct Square : Shape { using Shape::Shape; __device__ float area() override { return a * a; } };
extern "C" __global__ void k(float* x) {
    int i = threadIdx.x;
    Disk disk(x[i]);
    Square square(x[i]);
    Shape* shape = i % 3 ? (Shape*)&disk : (Shape*)&square;
    x[i] = shape->area();
}"""
    _, _, text, _ = translate(code, ["k"], "compute_80")
    x = np.arange(32, dtype=np.float32)
    run(text, [x])
    assert np.array_equal(x, np.arange(32) ** 2 * np.where(np.arange(32) % 3, 3, 1))
