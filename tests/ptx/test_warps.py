"""What lanes and warps do together: shuffles, votes, barriers, divergence, waiting."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.helpers import entry, run

TID = "mov.u32 %r1, %tid.x; cvt.u64.u32 %d1, %r1; mad.lo.u64 %d9, %d1, 4, %p0;\n"
STORE = "st.global.u32 [%d9], %r9; ret;"


def lanes(body: str, block: int = 32, **more) -> np.ndarray:
    """What each thread leaves in %r9."""
    out = np.zeros(block, np.uint32)
    run(entry(TID + body + STORE, before=more.pop("before", "")), [out], block=block, **more)
    return out


def model(mode: str, lane: int, by: int, c: int) -> tuple[int, bool]:
    """The lane that a shuffle reads, as the manual's pseudo code has it."""
    segment, last = c >> 8 & 31, c & 31
    most, least = (lane & segment) | (last & ~segment & 31), lane & segment
    j = {"up": lane - by, "down": lane + by, "bfly": lane ^ by,
         "idx": least | (by & ~segment & 31)}[mode]  # fmt: skip
    within = j >= most if mode == "up" else j <= most
    return (j, True) if within else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(mode, width):
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    for by in (0, 1, 5):
        got = lanes(f"""mul.lo.u32 %r2, %r1, 3; shfl.sync.{mode}.b32 %r3|%q1, %r2, {by}, {c}, -1;
            selp.u32 %r4, 1000, 0, %q1; add.u32 %r9, %r3, %r4;""")
        want = [3 * model(mode, k, by, c)[0] + 1000 * model(mode, k, by, c)[1] for k in range(32)]
        assert got.tolist() == want


def test_a_shuffle_from_outside_of_the_mask_reads_poison():
    got = lanes("""mov.u32 %r9, 5; setp.ge.u32 %q1, %r1, 16; @%q1 bra END;
        shfl.sync.idx.b32 %r9, %r1, 20, 31, 0xffff; END: """)
    assert got.tolist() == [0xFFFFFFFF] * 16 + [5] * 16


def test_votes_and_matches():
    body = "and.b32 %r2, %r1, 3; setp.eq.u32 %q1, %r2, 1; setp.lt.u32 %q2, %r1, 99;\n"
    assert (lanes(body + "vote.sync.ballot.b32 %r9, %q1, -1;") == 0x22222222).all()
    assert (lanes(body + "vote.sync.ballot.b32 %r9, !%q1, -1;") == 0xDDDDDDDD).all()
    for what, first, second in (("any", 1, 1), ("all", 0, 1), ("uni", 0, 1)):
        got = lanes(
            body
            + f"""vote.sync.{what}.pred %q3, %q1, -1; selp.u32 %r3, 1, 0, %q3;
            vote.sync.{what}.pred %q3, %q2, -1; selp.u32 %r4, 2, 0, %q3; add.u32 %r9, %r3, %r4;"""
        )
        assert (got == first + 2 * second).all(), what
    got = lanes(body + "match.any.sync.b32 %r9, %r2, -1;")
    assert got.tolist() == [0x11111111 << k % 4 for k in range(32)]
    got = lanes(body + """cvt.u64.u32 %d2, %r2; match.any.sync.b64 %r9, %d2, -1;""")
    assert got.tolist() == [0x11111111 << k % 4 for k in range(32)]
    got = lanes(
        body
        + """match.all.sync.b32 %r3|%q1, %r2, -1; match.all.sync.b32 %r4|%q2, 7, -1;
        selp.u32 %r5, 1, 0, %q2; add.u32 %r9, %r4, %r5; add.u32 %r9, %r9, %r3;"""
    )
    assert (got == 0).all()  # -1 + 1 + 0


REDUCTIONS = {
    "add.u32": sum, "add.s32": sum, "min.s32": min, "max.s32": max, "min.u32": min, "max.u32": max,
    "and.b32": np.bitwise_and.reduce, "or.b32": np.bitwise_or.reduce,
    "xor.b32": np.bitwise_xor.reduce,
}  # fmt: skip


@pytest.mark.parametrize("form", REDUCTIONS)
def test_reductions(form):
    """Two halves of the warp with masks of their own."""
    what, kind = form.split(".")
    got = lanes(f"""mul.lo.s32 %r2, %r1, 7; sub.s32 %r2, %r2, 50; setp.lt.u32 %q1, %r1, 16;
        selp.b32 %r3, 0xffff, 0xffff0000, %q1; redux.sync.{what}.{kind} %r9, %r2, %r3;""")
    values = np.arange(32) * 7 - 50
    if kind != "s32":
        values = values % 2**32
    want = [int(REDUCTIONS[form](half.tolist())) % 2**32 for half in (values[:16], values[16:])]
    assert got.tolist() == [want[0]] * 16 + [want[1]] * 16


def test_the_lanes_that_are_active():
    got = lanes("""setp.lt.u32 %q1, %r1, 5; @%q1 bra A; activemask.b32 %r9; bra END;
        A: activemask.b32 %r9; END: elect.sync %r3|%q2, -1; @%q2 add.u32 %r9, %r9, 1;""")
    assert got.tolist() == [0x20] + [0x1F] * 4 + [0xFFFFFFE0] * 27


def test_lanes_that_parted_meet_again():
    """Branches and loops of different lengths: the sum after them needs all lanes."""
    got = lanes("""mov.u32 %r2, 0; and.b32 %r3, %r1, 7;
        LOOP: setp.ge.u32 %q1, %r2, %r3; @%q1 bra OUT; add.u32 %r2, %r2, 1;
        setp.eq.u32 %q2, %r2, 3; @%q2 bra SKIP; add.u32 %r5, %r5, 1; SKIP: bra LOOP;
        OUT: activemask.b32 %r4; redux.sync.add.u32 %r9, %r2, -1; add.u32 %r9, %r9, %r4;""")
    assert (got == (4 * 28 - 1)).all()


def test_a_shuffle_in_two_branches_meets():
    """Lanes at different instructions of one kind and mask belong together."""
    got = lanes("""setp.lt.u32 %q1, %r1, 16; @%q1 bra A;
        shfl.sync.bfly.b32 %r9, %r1, 16, 31, -1; bra END;
        A: shfl.sync.bfly.b32 %r9, %r1, 16, 31, -1; END: bar.warp.sync -1;""")
    assert got.tolist() == [k ^ 16 for k in range(32)]


BARRIER = ".shared .align 4 .b8 tile[4096];\n"


@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_barriers(order, monkeypatch):
    monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
    got = lanes(
        """shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
        st.shared.u32 [%r4], %r1; bar.sync 0; xor.b32 %r5, %r2, 508; add.u32 %r6, %r3, %r5;
        ld.shared.u32 %r9, [%r6];""",
        128,
        before=BARRIER,
    )
    assert got.tolist() == [127 - k for k in range(128)]


def test_barriers_that_count():
    got = lanes(
        """and.b32 %r2, %r1, 3; setp.eq.u32 %q1, %r2, 0; setp.lt.u32 %q2, %r1, 500;
        barrier.sync 0; bar.red.popc.u32 %r3, 1, %q1; bar.red.and.pred %q3, 0, %q2;
        bar.red.or.pred %q4, 0, !%q2; selp.u32 %r4, 100, 0, %q3; selp.u32 %r5, 1000, 0, %q4;
        add.u32 %r9, %r3, %r4; add.u32 %r9, %r9, %r5;""",
        96,
    )
    assert (got == 24 + 100).all()


def test_threads_that_have_exited_are_not_waited_for():
    got = lanes(
        """setp.ge.u32 %q1, %r1, 40; @%q1 exit; bar.sync 0; mov.u32 %r9, 1;
        setp.lt.u32 %q2, %r1, 8; @%q2 ret; vote.sync.ballot.b32 %r9, %q1, -1; mov.u32 %r9, 2;
        bar.sync 0;""",
        64,
    )
    assert got.tolist() == [0] * 8 + [2] * 32 + [0] * 24


def test_a_barrier_of_some_warps():
    """Producers arrive, consumers wait."""
    got = lanes(
        """mov.u32 %r3, tile; setp.lt.u32 %q1, %r1, 32; @!%q1 bra CONSUMER;
        st.shared.u32 [%r3], 77; bar.arrive 3, 64; mov.u32 %r9, 1; bra END;
        CONSUMER: bar.sync 3, 64; ld.shared.u32 %r9, [%r3]; END: """,
        64,
        before=BARRIER,
    )
    assert got.tolist() == [1] * 32 + [77] * 32


def test_lanes_of_a_warp_may_take_a_lock_in_turn():
    """Independent threads, as since Volta: a lane that spins lets the one with the lock go on."""
    out = np.zeros(3, np.uint32)
    body = """LOCK: atom.global.cas.b32 %r2, [%p0], 0, 1; setp.ne.u32 %q1, %r2, 0; @%q1 bra LOCK;
        ld.volatile.global.u32 %r3, [%p0+4]; add.u32 %r3, %r3, 1;
        st.volatile.global.u32 [%p0+4], %r3; membar.gl; atom.global.exch.b32 %r4, [%p0], 0; ret;"""
    run(entry(body), [out], grid=2, block=64)
    assert out.tolist() == [0, 128, 0]


WAIT = """mov.u32 %r1, %ctaid.x; mov.u32 %r8, %tid.x; setp.ne.u32 %q2, %r8, 0; @%q2 bra ALL;
    atom.global.add.u32 %r2, [%p0], 1;
    SPIN: ld.acquire.gpu.global.u32 %r3, [%p0]; setp.lt.u32 %q1, %r3, %r7; @%q1 bra SPIN;
    ALL: bar.sync 0; atom.global.add.u32 %r4, [%p0+4], 1; ret;"""


@pytest.mark.parametrize("cooperative", [False, True])
def test_blocks_may_wait_for_each_other(cooperative):
    out = np.zeros(2, np.uint32)
    run(entry("mov.u32 %r7, 9;" + WAIT), [out], grid=9, block=64, cooperative=cooperative)
    assert out.tolist() == [9, 9 * 64]
