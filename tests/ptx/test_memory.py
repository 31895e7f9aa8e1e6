"""Loads, stores, atomics, state spaces, asynchronous copies, functions and what kernels print."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.helpers import DTYPES, HEAD, entry, evaluate, run, special_values

TID = "mov.u32 %r1, %tid.x; cvt.u64.u32 %d1, %r1;\n"


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "b64"])
def test_loads_extend_to_the_register(kind):
    values = special_values(kind)
    size = values.itemsize
    for bits, register in ((16, "%h1"), (32, "%r2"), (64, "%d2")):
        if bits < 8 * size:
            continue
        out = np.zeros(64, f"u{bits // 8}")
        body = f"""{TID} mad.lo.u64 %d3, %d1, {size}, %p1; mad.lo.u64 %d4, %d1, {bits // 8}, %p0;
            ld.global.nc.L1::evict_last.{kind} {register}, [%d3];
            st.volatile.global.b{bits} [%d4], {register}; ret;"""
        run(entry(body, 2), [out, values], block=64)
        assert np.array_equal(out, values.astype(f"i{bits // 8}").view(out.dtype))


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "f32", "u64", "f64"])
@pytest.mark.parametrize("count", [2, 4])
def test_vectors(kind, count):
    dtype = DTYPES[kind]
    if dtype.itemsize * count > 16:
        return  # only since sm_100
    x = np.arange(32 * count).astype(dtype)
    out = np.zeros_like(x)
    register = {1: "%h", 2: "%h", 4: "%r", 8: "%d"}[dtype.itemsize]
    if kind[0] == "f":
        register = "%f" if kind == "f32" else "%g"
    names = [f"{register}{k + 5}" for k in range(count)]
    body = f"""{TID} mul.lo.u64 %d2, %d1, {count * dtype.itemsize};
        add.u64 %d3, %p0, %d2; add.u64 %d4, %p1, %d2;
        ld.global.v{count}.{kind} {{{", ".join(names)}}}, [%d4];
        st.global.v{count}.{kind} [%d3], {{{", ".join(reversed(names))}}}; ret;"""
    run(entry(body, 2), [out, x])
    assert np.array_equal(out.reshape(-1, count), x.reshape(-1, count)[:, ::-1])


def test_stores_take_the_lower_bits():
    out = np.zeros(32, np.uint8)
    run(entry(f"{TID} add.u64 %d2, %p0, %d1; add.u32 %r2, %r1, 256; st.global.u8 [%d2], %r2; ret;"),
        [out])  # fmt: skip
    assert np.array_equal(out, np.arange(32))


SPACES = """
.const .align 4 .f32 table[4] = {0f3F800000, 2.0, 0f40400000, 4.0};
.global .align 8 .u64 pointer = table;
.global .align 4 .b8 bytes[8] = {1, 2, 3, 4, 0xff, 6, 7, 8};
.visible .shared .align 4 .b8 fixed[128];
.extern .shared .align 16 .b8 dynamic[];
"""


def test_state_spaces():
    """Constants, initial values, static and dynamic shared memory, local memory; generic
    addresses of all of them."""
    out = np.zeros((32, 6), np.float32)
    body = f"""
        .local .align 4 .b8 depot[16];
        .reg .u64 %SP; .reg .u64 %SPL;
        {TID} mul.lo.u64 %d2, %d1, 24; add.u64 %p0, %p0, %d2;
        cvt.rn.f32.u32 %f1, %r1;
        shl.b32 %r2, %r1, 2; mov.u32 %r3, fixed; add.u32 %r4, %r3, %r2;
        st.shared.f32 [%r4], %f1;
        mov.u32 %r5, dynamic; sub.u32 %r6, 124, %r2; add.u32 %r7, %r5, %r6;
        st.shared.f32 [%r7], %f1;
        bar.sync 0;
        xor.b32 %r8, %r2, 4; add.u32 %r9, %r3, %r8; ld.shared.f32 %f2, [%r9];
        cvt.u64.u32 %d3, %r5; cvta.shared.u64 %d4, %d3; cvt.u64.u32 %d5, %r2;
        add.u64 %d6, %d4, %d5; ld.f32 %f3, [%d6];
        mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
        st.local.f32 [%SPL+4], %f1; st.f32 [%SP+8], %f2;
        ld.f32 %f4, [%SP+4]; ld.local.f32 %f5, [depot+8]; add.f32 %f6, %f4, %f5;
        ld.const.f32 %f7, [table+8];
        ld.global.u64 %d7, [pointer]; cvta.const.u64 %d8, %d7; ld.f32 %f8, [%d8+12];
        ld.global.s8 %r10, [bytes+4]; cvt.rn.f32.s32 %f9, %r10;
        isspacep.shared %q1, %d6; isspacep.global %q2, %d6; isspacep.local %q3, %SP;
        selp.u32 %r11, 1, 0, %q1; selp.u32 %r12, 10, 0, %q2; selp.u32 %r13, 100, 0, %q3;
        add.u32 %r14, %r11, %r12; add.u32 %r14, %r14, %r13; cvt.rn.f32.u32 %f10, %r14;
        st.global.v2.f32 [%p0], {{%f2, %f3}}; st.global.v2.f32 [%p0+8], {{%f6, %f7}};
        add.f32 %f8, %f8, %f9; st.global.v2.f32 [%p0+16], {{%f8, %f10}}; ret;"""
    run(entry(body, before=SPACES), [out], shared=128)
    k = np.arange(32)
    want = np.stack([k ^ 1, 31 - k, k + (k ^ 1), 0 * k + 3, 0 * k + 3, 0 * k + 101], 1)
    assert np.array_equal(out, want)


def test_what_nothing_wrote_is_poisoned():
    out = np.zeros(3, np.uint32)
    body = """.local .align 4 .b8 depot[16];
        ld.shared.u32 %r1, [fixed]; st.global.u32 [%p0], %r1; st.global.u32 [%p0+4], %r9;
        ld.local.u32 %r2, [depot]; st.global.u32 [%p0+8], %r2; ret;"""
    run(entry(body, before=SPACES), [out], block=1)
    assert (out == 0xFFFFFFFF).all()


ATOMICS = {
    "add.u32": lambda old, b: old + b, "add.u64": lambda old, b: old + b,
    "add.f32": lambda old, b: old + b, "add.f64": lambda old, b: old + b,
    "min.s32": min, "max.s32": max, "min.u32": min, "max.u32": max, "min.s64": min,
    "max.u64": max, "and.b32": lambda old, b: old & b, "or.b32": lambda old, b: old | b,
    "xor.b32": lambda old, b: old ^ b, "or.b64": lambda old, b: old | b,
    "exch.b32": lambda old, b: b, "exch.b64": lambda old, b: b,
    "inc.u32": lambda old, b: 0 if old >= b else old + 1,
    "dec.u32": lambda old, b: b if old == 0 or old > b else old - 1,
}  # fmt: skip


@pytest.mark.parametrize("form", ATOMICS)
@pytest.mark.parametrize("scope", ["", "relaxed.gpu.", "acq_rel.sys."])
def test_atomics(form, scope):
    """Lanes update one element, in their order; each gets the value before."""
    what, kind = form.split(".")
    rng, dtype = np.random.default_rng(1), DTYPES[kind]
    signed = dtype.kind != "u"
    b = rng.integers(-20 if signed else 0, 20, 32).astype(dtype)
    total, old = np.array([5], dtype), np.zeros(32, dtype)
    size, register = dtype.itemsize, {4: "%r", 8: "%d"}[dtype.itemsize]
    body = f"""{TID} mul.lo.u64 %d2, %d1, {size}; add.u64 %d3, %p1, %d2; add.u64 %d4, %p2, %d2;
        ld.global.b{size * 8} {register}5, [%d3];
        atom.{scope}global.{what}.{kind} {register}6, [%p0], {register}5;
        st.global.b{size * 8} [%d4], {register}6; ret;"""
    run(entry(body, 3), [total, b, old])
    value = 5 if dtype.kind != "f" else 5.0
    for lane in range(32):
        assert old[lane] == value
        value = ATOMICS[form](value, b[lane].item())
    assert total[0] == value
    if what in ("exch",):
        return
    again = np.array([5], dtype)
    run(entry(body.replace(f"atom.{scope}", f"red.{scope}").replace(f"{register}6, [%p0]", "[%p0]")
              .replace(f"st.global.b{size * 8} [%d4], {register}6;", ""), 3),
        [again, b, old])  # fmt: skip
    assert again[0] == total[0]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap(bits):
    x = np.zeros(1, f"u{bits // 8}")
    old = np.zeros(32, x.dtype)
    r = {16: "%h", 32: "%r", 64: "%d"}[bits]
    body = f"""{TID} mul.lo.u64 %d2, %d1, {bits // 8}; add.u64 %d4, %p1, %d2;
        cvt.u{bits}.u32 {r}5, %r1; add.u{bits} {r}6, {r}5, 1;
        atom.cas.b{bits} {r}7, [%p0], {r}5, {r}6; st.global.b{bits} [%d4], {r}7; ret;"""
    run(entry(body.replace("cvt.u32.u32", "mov.u32"), 2), [x, old])
    assert x[0] == 32 and np.array_equal(old, np.arange(32))


def test_atomics_of_small_floats_and_in_shared_memory():
    total, out = np.zeros(2, np.float16), np.zeros(1, np.uint32)
    body = f"""{TID} setp.eq.u32 %q1, %r1, 0; @%q1 st.shared.u32 [fixed], 0; bar.sync 0;
        mov.b32 %r2, 0x3C004000; red.global.add.noftz.f16x2 [%p0], %r2;
        atom.shared.add.u32 %r3, [fixed], %r1; bar.sync 0;
        ld.shared.u32 %r4, [fixed]; @%q1 st.global.u32 [%p1], %r4; ret;"""
    run(entry(body, 2, before=SPACES), [total, out])
    assert total.tolist() == [64, 32] and out[0] == 31 * 16


COPY = """
    shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
    mul.lo.u64 %d2, %d1, 16; add.u64 %d3, %p1, %d2;
    cp.async.cg.shared.global [%r4], [%d3], 16{size};
    cp.async.commit_group;
    {wait}
    ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r4];
    add.u64 %d4, %p0, %d2; st.global.v4.u32 [%d4], {{%r5, %r6, %r7, %r8}}; ret;"""
TILE = ".shared .align 16 .b8 tile[512];\n"


def test_asynchronous_copies():
    """Before it is waited for, a copy's destination is poison; bytes beyond its size are zero."""
    x = np.arange(128, dtype=np.uint32)
    for size, wait, want in (
        ("", "cp.async.wait_group 0;", x),
        ("", "cp.async.wait_all;", x),
        ("", "cp.async.wait_group 1;", np.full(128, 0xFFFFFFFF)),
        ("", "", np.full(128, 0xFFFFFFFF)),
        (", 8", "cp.async.wait_all;", x * (np.arange(128) % 4 < 2)),
    ):
        out = np.zeros(128, np.uint32)
        body = TID + COPY.format(size=size, wait=wait)
        run(entry(body, 2, before=TILE), [out, x])
        assert np.array_equal(out, want), (size, wait)


FUNCTIONS = """
.func (.param .b32 result) twice(.param .b32 x) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret;
}
.func (.param .b64 result) factorial(.param .b64 n) {
    .reg .b64 %d<9>; .reg .pred %p<2>; .local .align 8 .b8 kept[8];
    ld.param.b64 %d1, [n];
    st.local.u64 [kept], %d1;
    setp.gt.u64 %p1, %d1, 1; mov.u64 %d5, 1; @!%p1 bra DONE;
    sub.u64 %d2, %d1, 1;
    { .param .b64 param0; st.param.b64 [param0+0], %d2; .param .b64 retval0;
      call.uni (retval0), factorial, (param0); ld.param.b64 %d3, [retval0+0]; }
    ld.local.u64 %d4, [kept];
    mul.lo.u64 %d5, %d3, %d4;
DONE: st.param.b64 [result+0], %d5; ret;
}
"""


def test_functions():
    """Lanes call together or apart; a recursive function has local memory of its own."""
    out = np.zeros(32, np.uint64)
    body = f"""{TID} setp.lt.u32 %q1, %r1, 8; @!%q1 bra OTHER;
        {{ .param .b64 param0; st.param.b64 [param0+0], %d1; .param .b64 retval0;
          call.uni (retval0), factorial, (param0); ld.param.b64 %d2, [retval0+0]; }}
        bra.uni END;
OTHER:  {{ .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 retval0;
          call.uni (retval0), twice, (param0); ld.param.b32 %r2, [retval0+0]; }}
        cvt.u64.u32 %d2, %r2;
END:    mad.lo.u64 %d3, %d1, 8, %p0; st.global.u64 [%d3], %d2; ret;"""
    run(entry(body, before=FUNCTIONS), [out])
    small = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert out.tolist() == small + [2 * k for k in range(8, 32)]


def test_branch_by_table():
    out = np.zeros(32, np.uint32)
    body = f"""{TID} and.b32 %r2, %r1, 3; mov.u32 %r3, 9;
        places: .branchtargets A, B, C, A;
        brx.idx %r2, places;
A:      mov.u32 %r3, 10; bra END;
B:      mov.u32 %r3, 20; bra END;
C:      mov.u32 %r3, 30;
END:    mad.lo.u64 %d3, %d1, 4, %p0; st.global.u32 [%d3], %r3; ret;"""
    run(entry(body), [out])
    assert out.tolist() == [10, 20, 30, 10] * 8


def test_printf(capsys):
    before = """.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[24] = {37,100,32,37,46,50,102,32,37,108,108,120,32,37,115,37,37,10,0};
.global .align 1 .b8 word[4] = {97, 98, 99, 0};
"""
    body = f"""{TID} .local .align 8 .b8 depot[32]; .reg .u64 %SP; .reg .u64 %SPL;
        mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
        mov.u64 %d2, 0x123456789ab; mov.f64 %g1, 0d3FF8000000000000; mov.u64 %d4, word;
        st.u32 [%SP], %r1; st.f64 [%SP+8], %g1; st.u64 [%SP+16], %d2; st.u64 [%SP+24], %d4;
        mov.u64 %d3, text;
        {{ .param .b64 param0; st.param.b64 [param0+0], %d3; .param .b64 param1;
          st.param.b64 [param1+0], %SP; .param .b32 retval0;
          call.uni (retval0), vprintf, (param0, param1); }} ret;"""
    run(entry(body, before=before), [np.zeros(1)], block=2)
    assert capsys.readouterr().out == "0 1.50 123456789ab abc%\n1 1.50 123456789ab abc%\n"


def test_special_registers():
    names = {
        "%tid.x": lambda t: t % 4, "%tid.y": lambda t: t // 4 % 3, "%tid.z": lambda t: t // 12,
        "%ntid.x": lambda t: 4, "%ntid.y": lambda t: 3, "%ntid.z": lambda t: 4,
        "%ctaid.x": lambda t: 0, "%nctaid.y": lambda t: 1, "%laneid": lambda t: t % 32,
        "%warpid": lambda t: t // 32, "%lanemask_eq": lambda t: 1 << t % 32,
        "%lanemask_lt": lambda t: (1 << t % 32) - 1, "%lanemask_le": lambda t: (2 << t % 32) - 1,
        "%lanemask_ge": lambda t: 0xFFFFFFFF & -(1 << t % 32),
        "%lanemask_gt": lambda t: 0xFFFFFFFF & -(2 << t % 32),
        "%dynamic_smem_size": lambda t: 64,
    }  # fmt: skip
    out = np.zeros((48, len(names)), np.uint32)
    stores = "".join(f"mov.u32 %r9, {n}; st.global.u32 [%d3+{4 * k}], %r9;\n"
                     for k, n in enumerate(names))  # fmt: skip
    body = f"""mov.u32 %r1, %tid.y; mad.lo.u32 %r2, %r1, 4, %tid.x;
        mov.u32 %r3, %tid.z; mad.lo.u32 %r2, %r3, 12, %r2; cvt.u64.u32 %d1, %r2;
        mad.lo.u64 %d3, %d1, {4 * len(names)}, %p0; {stores} mov.u64 %d9, %clock64; ret;"""
    run(entry(body), [out], block=(4, 3, 4), shared=64)
    for k, (name, expected) in enumerate(names.items()):
        assert out[:, k].tolist() == [expected(t) for t in range(48)], name


def test_predicated_instructions():
    got = evaluate("{ .reg .pred %g; setp.gt.s32 %g, %in0, 5; @%g neg.s32 %result, %in0;"
                   " @!%g mov.b32 %result, 7; } mov.b32", "s32",
                   ("s32", special_values("s32")), more="; mov.b32 %result, %result")  # fmt: skip
    assert got.shape == (64,)


def test_fences_and_hints_do_nothing():
    body = """membar.gl; membar.cta; fence.acq_rel.gpu; fence.sc.cta; prefetch.global.L2 [%p0];
        nanosleep.u32 100; griddepcontrol.wait; exit;"""
    run(HEAD and entry(body), [np.zeros(1)])
