"""Traffic, caches and chains of latencies, against counts by hand and a model in Python."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from kernels import ptx
from kernels.ptx.study import COLUMNS, Caches, Costs, Study, registers
from tests.ptx.helpers import entry, run

TID = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1;\n"


def studied(body: str, arrays: list, grid: int = 1, block: int = 32, **how: object) -> Study:
    text = entry(body, len(arrays))
    study = Study(ptx.load(text).kernel("k"), **how)
    run(text, arrays, grid, block, shared=8192, study=study)
    return study


def total(study: Study) -> dict[str, int]:
    return dict(zip(COLUMNS, study.traffic.sum(0).tolist()))


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 33])
def test_lines_and_sectors(stride):
    x = np.ones(64 * 40, np.float32)[:]
    offset = -x.ctypes.data // 4 % 32  # the first element at a line of 128 bytes
    x = x[offset : offset + 32 * stride]
    body = f"{TID} mul.wide.u32 %d1, %r1, {4 * stride}; add.u64 %d1, %d1, %p0;"
    counts = total(studied(f"{body} ld.global.f32 %f1, [%d1]; ret;", [x]))
    touched = np.arange(32) * stride * 4
    assert counts["requests"] == 1
    assert counts["sectors"] == len({*(touched // 32).tolist()})
    assert counts["lines"] == len({*(touched // 128).tolist()})


@pytest.mark.parametrize(("stride", "expected"), [(1, 1), (2, 2), (32, 32), (33, 1), (0, 1)])
def test_wavefronts(stride, expected):
    body = f"{TID} mul.lo.u32 %r3, %r1, {4 * stride}; mov.f32 %f1, 0f3F800000;"
    counts = total(studied(f"{body} st.shared.f32 [%r3], %f1; ret;", []))
    assert counts["wavefronts"] == expected
    assert counts["sectors"] == 0


def test_caches_are_those_of_a_model(rng):
    """Loads at random lines, by warps of one lane, in blocks that run one after the other."""
    lines, blocks = 400, 600
    caches = Caches(sms=1, first=16 * 128, second=64 * 128)  # one set; four sets
    order = rng.integers(0, lines, blocks).astype(np.uint32)
    memory = np.zeros(lines * 32 + 64, np.float32)
    start = -memory.ctypes.data // 4 % 32
    memory = memory[start : start + lines * 32]
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %p0;
        ld.global.u32 %r3, [%d1]; mul.wide.u32 %d2, %r3, 128; add.u64 %d2, %d2, %p1;
        ld.global.f32 %f1, [%d2]; ret;"""
    study = studied(body, [order, memory], grid=blocks, block=1, caches=caches)

    first: OrderedDict[int, set] = OrderedDict()
    second: list[OrderedDict[int, set]] = [OrderedDict() for _ in range(4)]
    base = memory.ctypes.data

    def missed(cache: OrderedDict, line: int, sector: int) -> bool:
        known = cache.setdefault(line, set())
        cache.move_to_end(line)
        if len(cache) > 16:
            cache.popitem(last=False)
        new = sector not in known
        known.add(sector)
        return new

    l1 = l2 = 0
    for block, number in enumerate(order.tolist()):
        for address in (order.ctypes.data + 4 * block, base + 128 * number):
            line, sector = address >> 7, address >> 5 & 3
            if missed(first, line, sector):
                l1 += 1
                place = (line * 0x9E3779B97F4A7C15 % 2**64 >> 24) % 4
                l2 += missed(second[place], line, sector)
    counts = total(study)
    assert (counts["l1_misses"], counts["l2_misses"]) == (l1, l2)
    assert 0 < l2 < l1 < 2 * blocks


def test_what_was_written_goes_to_memory():
    x = np.zeros(1024 + 32, np.float32)
    start = -x.ctypes.data // 4 % 32
    x = x[start : start + 1024]
    body = f"{TID} mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %p0; st.global.u32 [%d1], %r1; ret;"
    study = studied(body, [x], grid=32, caches=Caches(2, 4096, 4096))
    assert study.written == 1024 * 4 // 32
    assert total(study)["l2_misses"] == 0


def test_atomics_on_one_address_are_counted():
    x = np.zeros(4, np.uint32)
    study = studied("red.global.add.u32 [%p0], 1; red.global.add.u32 [%p0+4], 1; ret;", [x], grid=5)
    assert x.tolist() == [160, 160, 0, 0]
    assert study.hottest == 160


def test_a_chain_takes_its_latencies():
    """Eight sums that wait for each other, and eight that do not."""
    waiting = "mov.f32 %f1, 0f3F800000;" + "add.f32 %f1, %f1, %f1;" * 8
    free = "".join(f"add.f32 %f{i}, %f0, %f0;" for i in range(1, 9))
    cycles = []
    for body in (waiting, free):
        text = entry(f"{body} ret;", 0)
        count = len(ptx.load(text).kernel("k").origins)
        costs = Costs(np.full(count, 10), np.ones(count), np.zeros(count))
        study = Study(ptx.load(text).kernel("k"), costs=costs)
        run(text, [], study=study)
        cycles.append(study.cycles)
    assert cycles[0] == pytest.approx(80, abs=12)
    assert cycles[1] == pytest.approx(10, abs=3)


def test_warps_wait_for_the_last_at_each_barrier():
    """Warp 0 has the long way before the first barrier, warp 1 before the second."""
    body = f"""{TID} shr.u32 %r4, %r1, 5; setp.eq.u32 %q1, %r4, 0;
        @%q1 bra A; bra B; A: {"add.f32 %f1, %f1, %f1;" * 20} B: bar.sync 0;
        @%q1 bra C; {"add.f32 %f2, %f2, %f2;" * 20} C: bar.sync 0; ret;"""
    text = entry(body, 0)
    lowered = ptx.load(text).kernel("k")
    count = len(lowered.origins)
    study = Study(lowered, costs=Costs(np.full(count, 10), np.ones(count), np.zeros(count)))
    run(text, [], block=64, study=study)
    assert 400 <= study.cycles < 480


def test_chosen_blocks_run_and_an_end_can_be_set():
    x = np.zeros(64, np.uint32)
    body = f"{TID} mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %p0; st.global.u32 [%d1], 7; ret;"
    studied(body, [x], grid=64, blocks=[3, 60])
    assert np.flatnonzero(x).tolist() == [3, 60]
    endless = "A: add.u32 %r1, %r1, 1; bra A; ret;"
    study = studied(endless, [], most=1000)
    assert not study.is_whole and study.steps >= 1000


def test_registers_of_instructions():
    text = entry("@%q1 ld.global.v2.f32 {%f1, %f2}, [%d1]; st.global.f32 [%d2], %f1; ret;", 0)
    found = [registers(o.instruction) for o in ptx.load(text).kernel("k").origins if o.instruction]
    assert found[:2] == [(["%d1", "%q1"], ["%f1", "%f2"]), (["%d2", "%f1"], [])]
