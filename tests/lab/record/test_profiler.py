"""What kernels of all kinds may do under the recorder, and what profile() itself refuses."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest
from numba import float32, int32

from kernels import lab
from kernels.simt import cuda
from kernels.support.errors import ArgumentError, LaunchError

POINT = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("id", "i4")])


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_fields_of_records():
    """An array of structures: 16 bytes from lane to lane, 16 sectors per request."""

    @cuda.jit
    def move(p, out):
        i = cuda.grid(1)
        p[i].x = p[i].y + p[i]["z"]
        out[i] = p[i].id

    points = np.zeros(64, POINT)
    points["y"], points["z"], points["id"] = 1, 2, np.arange(64)
    out = zeros(64)
    report = lab.profile(move, 2, 32, points, out)
    assert (points["x"] == 3).all() and (out == np.arange(64)).all()
    line = report.at("p[i].x =")
    assert (line.requests, line.sectors, line.ideal_sectors) == (6, 96, 24)
    assert line.flops == 64 and not report.findings and not report.notes


def test_races_on_fields():
    @cuda.jit
    def neighbours(p):
        i = cuda.grid(1)
        p[i].x = i
        p[i].y = p[(i + 1) % 64].x

    report = lab.profile(neighbours, 1, 64, np.zeros(64, POINT))
    assert [(race.array, race.index) for race in report.races] == [("p", (32,))]


def test_whole_records_are_said_not_to_be_recorded():
    @cuda.jit
    def whole(p, out):
        one = p[cuda.grid(1)]
        out[cuda.grid(1)] = one.x

    report = lab.profile(whole, 1, 32, np.zeros(32, POINT), zeros(32))
    assert report.notes == ["not recorded: whole records of p"] and "not recorded" in str(report)


def test_functions_that_cannot_be_inlined_are_said_not_to_be_recorded():
    @cuda.jit(device=True)
    def find(x, value):
        for i in range(x.size):
            if x[i] == value:
                return i
        return -1

    @cuda.jit
    def search(x, out):
        out[cuda.grid(1)] = find(x, 3)

    out = zeros(32)
    report = lab.profile(search, 1, 32, np.arange(32), out)
    assert (out == 3).all() and report.notes == ["not recorded: what find() accesses"]


def test_named_tuples_keep_their_fields():
    class Size(NamedTuple):
        step: float
        count: int

    @cuda.jit
    def fill(x, size):
        if cuda.grid(1) < size.count:
            x[cuda.grid(1)] = size.step

    x = zeros(32)
    assert not lab.profile(fill, 1, 32, x, Size(0.5, 20)).findings
    assert x.tolist() == [0.5] * 20 + [0] * 12


def test_lines_of_device_functions_are_listed():
    @cuda.jit(device=True)
    def square(x, i):
        value = x[i]
        return value * value

    @cuda.jit
    def use(x, out):
        i = cuda.grid(1)
        out[i] = square(x, i) + square(x, i)

    report = lab.profile(use, 1, 32, zeros(32), zeros(32))
    line = report.at("value = x[i]")
    assert (line.requests, line.sectors) == (2, 8) and line.executions
    assert report.flops == 3 * 32
    assert str(report).index("def use") < str(report).index("value = x[i]")


@pytest.mark.parametrize("synchronised", [True, False])
def test_grid_barriers_order_blocks(synchronised):
    @cuda.jit
    def shift(x, out):
        grid = cuda.cg.this_grid()
        keep = cuda.shared.array(32, float32)
        i = cuda.grid(1)
        keep[cuda.threadIdx.x] = i
        x[i] = i
        if synchronised:
            grid.sync()
        out[i] = x[(i + 40) % x.size] - keep[cuda.threadIdx.x]
        grid.sync()

    x, out = zeros(128), zeros(128)
    report = lab.profile(shift, 4, 32, x, out)
    assert bool(report.races) == (not synchronised) and not report.errors
    if synchronised:
        assert out.tolist() == [(i + 40) % 128 - i for i in range(128)]
    with pytest.raises(lab.LabError, match="needs all blocks"):
        lab.profile(shift, 4, 32, x, out, blocks=2)


def test_atomics_do_not_race_with_each_other():
    @cuda.jit
    def lock(x, total):
        while cuda.atomic.compare_and_swap(x, 0, 1) != 0:
            pass
        cuda.atomic.add(total, 0, 1)
        cuda.atomic.exch(x, 0, 0)

    x, total = np.zeros(1, np.int32), zeros(1)
    report = lab.profile(lock, 2, 32, x, total)
    assert total[0] == 64 and not report.findings
    assert report.at("compare_and_swap").atomics == 64


@pytest.mark.parametrize("waits", [True, False])
def test_a_counter_orders_the_last_block_after_the_others(waits):
    """The reduction of one launch: the last block to count sums what the others stored."""

    @cuda.jit
    def total(x, part, count, out):
        last = cuda.shared.array(1, int32)
        t = cuda.threadIdx.x
        part[cuda.grid(1)] = x[cuda.grid(1)]
        cuda.threadfence()
        cuda.syncthreads()
        if t == 0:
            last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
        cuda.syncthreads()
        if (last[0] or not waits) and t == 1:
            out[0] = 0
            for i in range(x.size):
                out[0] += part[i]

    out = zeros(1)
    report = lab.profile(total, 4, 32, np.ones(128, "f4"), zeros(128), np.zeros(1, "i4"), out)
    assert bool(report.races) == (not waits)
    assert not waits or out[0] == 128


@pytest.mark.parametrize("released", [True, False])
def test_a_lock_orders_what_it_guards(released):
    @cuda.jit
    def add(lock, total):
        while cuda.atomic.compare_and_swap(lock, 0, 1) != 0:
            pass
        if released:
            total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
        if not released:
            total[0] += 1

    total = zeros(1)
    report = lab.profile(add, 2, 32, np.zeros(1, np.int32), total)
    assert bool(report.races) == (not released)


@pytest.mark.parametrize("order", ["through flags", "too early", "another flag"])
def test_order_passes_through_several_flags(order):
    early, apart = order == "too early", order == "another flag"

    @cuda.jit
    def pass_on(x, flags, out):
        b = cuda.blockIdx.x
        if b == 0:
            if not early:
                x[0] = 7
            cuda.threadfence()
            cuda.atomic.exch(flags, 0, 1)
            if early:
                x[0] = 7
        elif b < 3:
            while not apart and cuda.atomic.add(flags, b - 1, 0) == 0:
                pass
            cuda.atomic.exch(flags, b, 1)
        else:
            while cuda.atomic.add(flags, b - 1, 0) == 0:
                pass
            out[0] = x[0]

    report = lab.profile(pass_on, 4, 1, zeros(1), np.zeros(3, np.int32), zeros(1))
    assert bool(report.races) == (order != "through flags")


def test_a_barrier_of_the_grid_by_hand():
    """Blocks count; the last one sets a flag, which another one waits for."""

    @cuda.jit
    def total(x, count, flag, out):
        t, n = cuda.threadIdx.x, cuda.gridDim.x
        x[cuda.grid(1)] = t
        cuda.syncthreads()
        if t == 0:
            cuda.threadfence()
            if cuda.atomic.add(count, 0, 1) == n - 1:
                cuda.atomic.exch(flag, 0, 1)
            while cuda.blockIdx.x == n - 1 and cuda.atomic.add(flag, 0, 0) == 0:
                pass
        cuda.syncthreads()
        if cuda.blockIdx.x == n - 1:
            for i in range(t, x.size, cuda.blockDim.x):
                out[t] += x[i]

    count, flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32), zeros(64)
    report = lab.profile(total, 8, 64, zeros(512), count, flag, out)
    assert not report.findings
    np.testing.assert_array_equal(out, 8 * np.arange(64))


def test_exceptions_of_the_kernel():
    @cuda.jit
    def refuse(x):
        if x[cuda.grid(1)] > 3:
            raise ValueError("too large")

    report = lab.profile(refuse, 1, 32, np.arange(32))
    (error,) = report.errors
    assert error.kind == "exception" and "too large" in str(error)
    assert error.accesses[0].thread == (4, 0, 0) and "raises ValueError" in str(error)


def test_a_thread_that_waits_for_another_block():
    @cuda.jit
    def spin(x):
        if cuda.blockIdx.x == 0:
            while x[0] == 0:
                pass
        else:
            x[0] = 1

    report = lab.profile(spin, 2, 1, np.zeros(1, np.int32))
    assert report.errors[0].kind == "barrier" and "do not wait" in report.errors[0].hint


def test_a_long_loop_of_one_thread_is_exact():
    @cuda.jit
    def alone(x, out):
        if cuda.grid(1) == 0:
            total = float32(0)
            for k in range(x.size):
                total += x[k]
            out[0] = total

    report = lab.profile(alone, 1, 64, zeros(300_000), zeros(1))
    line = report.at("total += x[k]")
    assert (line.requests, line.sectors, line.flops) == (300_000,) * 3


def test_the_blocks_that_were_asked_for_run():
    """Blocks with a barrier in a loop too, which otherwise run in an order of their own."""

    @cuda.jit
    def turns(out):
        for k in range(2):
            out[cuda.blockIdx.y, cuda.blockIdx.x * 32 + cuda.threadIdx.x] = k + 1
            cuda.syncthreads()

    out = zeros(20, 20 * 32)
    report = lab.profile(turns, (20, 20), 32, out, blocks=[23, 371])
    assert np.argwhere(out[:, ::32] == 2).tolist() == [[1, 3], [18, 11]] and not report.findings
    report = lab.profile(turns, (20, 20), 32, out)
    assert (out == 2).all() and report.totals.requests == 800 and not report.findings


def test_numbers_tuples_and_none_are_arguments():
    @cuda.jit
    def fill(x, n, pair, nothing):
        i = cuda.grid(1)
        if nothing is None and i < n:
            x[i] = pair[0] + pair[1]

    x = zeros(64)
    assert not lab.profile(fill, 2, 32, x, np.int32(50), (1, 2.5), None).findings
    assert (x == np.where(np.arange(64) < 50, 3.5, 0)).all()


def test_arrays_of_any_layout():
    @cuda.jit
    def flip(x, out):
        i = cuda.grid(1)
        out[i] = x[i]

    x, out = np.arange(64, dtype=np.float32), zeros(64)
    x.flags.writeable = False
    report = lab.profile(flip, 2, 32, x[::-1], out)
    assert (out == x[::-1]).all() and report.totals.sectors == 16
    assert not lab.profile(flip, 1, 32, cuda.to_device(x), zeros(64)).findings


def test_a_report_in_all_its_forms(tmp_path):
    @cuda.jit
    def racy(x):
        x[0] += 1

    report = lab.profile(racy, 2, 32, zeros(1))
    page = report._repr_html_()
    assert "<table" in page and "x[0] += 1" in page and "race 1: global x[0]" in page
    assert "<script" not in page and page.count("<td") == 8 * (page.count("<tr") - 1)
    report.save_png(tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads(report.json())
    assert data["races"][0]["accesses"][0]["lineno"] == report.at("x[0] += 1").lineno
    assert data["totals"]["requests"] == 4 and report.line(data["lines"][-1]["lineno"]).requests
    with pytest.raises(KeyError, match="no line"):
        report.line(1)


@cuda.jit
def simple(x):
    x[cuda.grid(1)] = 0


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (lab.LabError, "expected a cuda.jit kernel", lambda: lab.profile(3, 1, 1)),
        (LaunchError, "from 1 to 1024", lambda: lab.profile(simple, 1, 2000, zeros(1))),
        (LaunchError, "at most 49152", lambda: lab.profile(simple, 1, 1, zeros(1), shared=1 << 20)),
        (LaunchError, "blocks 0 to 3", lambda: lab.profile(simple, 4, 1, zeros(4), blocks=[4])),
        (LaunchError, "at least one", lambda: lab.profile(simple, 4, 1, zeros(4), blocks=0)),
        (ArgumentError, "takes 1 arguments", lambda: lab.profile(simple, 1, 1)),
        (ArgumentError, "str is not", lambda: lab.profile(simple, 1, 1, "x")),
    ],
)
def test_launches_that_are_refused(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_a_kernel_that_is_not_compiled_is_refused():
    scope = {"cuda": cuda}
    exec("@cuda.jit\ndef typed(x):\n    x[0] = 1", scope)

    with pytest.raises(lab.LabError, match="the source of kernel 'typed' cannot be found"):
        lab.profile(scope["typed"], 1, 1, zeros(1))


def test_the_framework_does_not_import_the_lab():
    import subprocess
    import sys

    code = "import minigrad, kernels, sys; print([m for m in sys.modules if '.lab' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_accesses_of_one_line_are_told_apart():
    @cuda.jit
    def both(x, out):
        tile = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        tile[i] = x[i] + x[i * 2]
        cuda.syncthreads()
        out[i] = tile[i] + tile[2 * i % 64] + x[i]

    x, out = np.ones(64, np.float32), np.zeros(32, np.float32)
    report = lab.profile(both, 1, 32, x, out)
    parts = {part.text: part for part in report.at("x[i * 2]").parts}
    assert [parts[text].sectors for text in ("x[i]", "x[i * 2]")] == [4, 8]
    assert parts["tile[i]"].op == "store" and parts["tile[i]"].wavefronts == 1
    conflict = {part.text: part.wavefronts for part in report.at("out[i] =").parts}
    assert conflict["tile[2 * i % 64]"] == 2 and conflict["tile[i]"] == 1
    whole = report.at("x[i * 2]")
    assert whole.sectors == sum(part.sectors for part in whole.parts)
    assert "· load x[i * 2]" in str(report) and "· load x[i]" in str(report)
    first = json.loads(report.json())["lines"]
    assert sum(len(line["parts"]) for line in first) == 7


def test_a_line_of_equal_accesses_has_one_row():
    @cuda.jit
    def same(x, out):
        i = cuda.threadIdx.x
        out[i] = x[i]

    report = lab.profile(same, 1, 32, np.ones(32, np.float32), np.zeros(32, np.float32))
    assert "·" not in str(report)
