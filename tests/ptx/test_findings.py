"""What is checked, as hardware and its sanitizers do: each finding names a line and a thread."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from kernels import ptx
from kernels.ptx import findings
from kernels.support.errors import CompileError, KernelError, KernelIndexError
from tests.ptx.helpers import HEAD, entry, run

TID = "mov.u32 %r1, %tid.x; cvt.u64.u32 %d1, %r1; mad.lo.u64 %d9, %d1, 4, %p0;\n"
SHARED = ".shared .align 16 .b8 tile[64];\n"


def finding(body: str, block: int = 32, size: int = 32, before: str = "", **more) -> str:
    with pytest.raises(KernelError) as caught:
        run(entry(TID + body, before=before), [np.zeros(size, np.float32)], block=block, **more)
    return str(caught.value)


def test_outside_of_all_arrays():
    text = finding("ld.global.f32 %f1, [%d9+8]; ret;")
    assert re.fullmatch(
        r"k: read of 4 bytes at address 0x\w+, outside of all arrays: 0 bytes after the one of 128"
        r" bytes at 0x\w+, thread \(30, 0, 0\) of block \(0, 0, 0\): ld\.global\.f32 on PTX line"
        r" \d+", text
    )  # fmt: skip
    text = finding("st.global.f32 [%d9+-4], %f1; ret;")
    assert "write of 4 bytes" in text and "4 bytes before" in text and "(0, 0, 0)" in text
    assert "vector" not in text
    text = finding("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%p0+120]; ret;", block=1)
    assert "misaligned read of 16 bytes" in text


def test_kinds_of_errors():
    with pytest.raises(KernelIndexError, match="through a null pointer"):
        run(entry("mov.u64 %d1, 0; ld.global.u32 %r1, [%d1+8]; ret;"), [np.zeros(1)])
    with pytest.raises(KernelIndexError, match="null pointer"):  # with no allocations as well
        ptx.load(entry("mov.u64 %d1, 0; ld.u32 %r1, [%d1]; ret;")).launch("k", 1, 1, 0, bytes(8))


def test_a_freed_array_is_outside():
    module = ptx.load(entry("ld.global.u32 %r1, [%p0]; ret;"))
    x, y = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    pointer = x.ctypes.data.to_bytes(8, "little")
    module.launch("k", 1, 1, 0, pointer, allocations=[(x.ctypes.data, 16), (y.ctypes.data, 16)])
    with pytest.raises(KernelIndexError, match="outside of all arrays"):
        module.launch("k", 1, 1, 0, pointer, allocations=[(y.ctypes.data, 16)])


def test_variables_of_the_module_may_be_accessed():
    before = ".global .align 4 .u32 total[4];\n"
    run(entry("mov.u64 %d2, total; st.global.u32 [%d2+12], 5; ret;", before=before), [np.zeros(1)])
    with pytest.raises(KernelIndexError, match="0 bytes after the one of 16 bytes"):
        run(entry("st.global.u32 [total+16], 5; ret;", before=before), [np.zeros(1)])


def test_misaligned():
    text = finding("ld.global.v2.f32 {%f1, %f2}, [%d9]; ret;")
    assert re.search(r"misaligned read of 8 bytes at address 0x\w+, thread \(1, 0, 0\)", text)
    assert "misaligned" in finding("st.shared.u32 [tile+2], %r1; ret;", before=SHARED)
    assert "misaligned" in finding("atom.shared.add.u64 %d2, [tile+4], %d1; ret;", before=SHARED)


def test_shared_and_local_memory():
    text = finding("mad.lo.u32 %r2, %r1, 4, tile; ld.shared.u32 %r3, [%r2]; ret;", before=SHARED)
    assert "byte 64 of shared memory, which has 64 bytes: out of bounds, thread (16, 0, 0)" in text
    text = finding("st.shared.u32 [tile+-4], %r1; ret;", before=SHARED)
    assert "write of 4 bytes at byte -4 of shared memory" in text
    text = finding(".local .align 4 .b8 depot[16]; st.local.u32 [depot+16], %r1; ret;")
    assert "byte 16 of local memory, which has 16 bytes" in text
    text = finding(
        "mov.u64 %d2, tile; cvta.shared.u64 %d2, %d2; ld.u32 %r2, [%d2+64]; ret;", before=SHARED
    )
    assert "outside of all arrays" in text  # a generic address beyond the block's shared memory


def test_divergent_barriers():
    text = finding(
        "setp.lt.u32 %q1, %r1, 8; @%q1 bra A; bar.sync 0; bra END; A: bar.sync 0; END: ret;"
    )
    assert "divergent barrier" in text and "bar.sync on PTX line" in text
    finding("setp.lt.u32 %q1, %r1, 8; @%q1 bar.sync 0; @!%q1 bar.sync 0; ret;")
    text = finding("setp.lt.u32 %q1, %r1, 32; @%q1 bar.sync 1; @!%q1 bar.sync 2; ret;", block=64)
    assert "deadlock" in text
    run(entry("mov.u32 %r1, %tid.x; setp.lt.u32 %q1, %r1, 32; @%q1 bra A; bar.sync 0; bra END;"
              "A: bar.sync 0; END: ret;"), [np.zeros(1)], block=64)  # fmt: skip


def test_masks():
    text = finding("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff; ret;")
    assert "thread (16, 0, 0)" in text and "is not in the mask 0x0000ffff that it gives" in text
    text = finding("""setp.lt.u32 %q1, %r1, 8; @%q1 bra A; vote.sync.any.pred %q2, %q1, -1; bra END;
        A: bar.sync 0; END: ret;""")
    assert "waits for" in text


def test_whole_warps():
    text = finding(
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [tile]; ret;", 16, before=SHARED
    )
    assert "not all 32 lanes" in text


def test_traps_and_assertions():
    text = finding("setp.eq.u32 %q1, %r1, 7; @%q1 trap; ret;")
    assert "thread (7, 0, 0) of block (0, 0, 0) came to a trap: trap on PTX line" in text
    before = """.extern .func __assertfail(
    .param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[6] = {120, 32, 62, 32, 48, 0};\n"""
    call = """mov.u64 %d2, text;
        { .param .b64 a0; st.param.b64 [a0+0], %d2; .param .b64 a1; st.param.b64 [a1+0], %d2;
          .param .b32 a2; st.param.b32 [a2+0], 12; .param .b64 a3; st.param.b64 [a3+0], %d2;
          .param .b64 a4; st.param.b64 [a4+0], 1; call.uni __assertfail, (a0, a1, a2, a3, a4); }"""
    assert "assertion failed: x > 0 (x > 0:12, x > 0), thread" in finding(call, before=before)


def test_waiting_for_nothing():
    text = finding(
        "SPIN: ld.volatile.global.u32 %r2, [%p0]; setp.eq.u32 %q1, %r2, 0; @%q1 bra SPIN;"
    )
    assert "wait for something that nothing changes" in text


def test_source_lines():
    text = entry(".loc 1 42 0\nst.global.u32 [%p0+4], 1;\nret;") + '.file 1 "some/kernel.py"\n'
    with pytest.raises(KernelIndexError, match="line 42 of kernel.py"):
        run(text, [np.zeros(1, np.uint32)], block=1)


def test_functions_that_are_not_there():
    before = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
    call = "{ .param .b64 a; .param .b64 r; call.uni (r), malloc, (a); } ret;"
    with pytest.raises(CompileError, match="function malloc is not available on the CPU"):
        run(entry(call, before=before), [np.zeros(1)])
    before = ".func (.reg .u32 r) f(.reg .u32 a) { ret; }\n"
    with pytest.raises(CompileError, match="passes registers"):
        run(entry("call (%r1), f, (%r2); ret;", before=before), [np.zeros(1)])


def test_output_and_memory_of_a_kernel_that_fails_stay():
    """What ran before the fault has run: as on a GPU, but in order."""
    out = np.zeros(2, np.uint32)
    with pytest.raises(KernelError):
        run(entry("st.global.u32 [%p0], 5; trap;"), [out], block=1)
    assert out[0] == 5 and HEAD.startswith(".version") and ctypes.sizeof(ctypes.c_void_p) == 8


def test_names_are_those_of_the_source():
    names = {
        "_ZN8__main__4fillB2v1B104cw51cXTLSUwv1s": "fill",
        "_Z4fillPf": "fill",
        "_ZN5tests3ptx12_3clocals_3e3addE": "add",
        "fill": "fill",
        "_Zeta": "_Zeta",
    }
    assert {name: findings.own_name(name) for name in names} == names
