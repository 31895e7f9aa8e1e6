"""The recorder's figures equal those worked out by hand from the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernels
from kernels import lab
from kernels.simt import cuda


@cuda.jit
def copy(x, out, stride):
    i = cuda.grid(1)
    out[i] = x[i * stride]


def elements(count: int, dtype=np.float32) -> np.ndarray:
    return np.arange(count).astype(dtype)


@pytest.mark.parametrize(
    ("stride", "dtype", "first", "sectors", "ideal"),
    [
        (1, np.float32, 0, 4, 4),
        (1, np.float32, 1, 5, 4),  # misaligned by one element
        (1, np.float32, 8, 4, 4),  # by a whole sector
        (2, np.float32, 0, 8, 4),
        (8, np.float32, 0, 32, 4),
        (33, np.float32, 0, 32, 4),
        (0, np.float32, 0, 1, 4),  # one element for all lanes
        (1, np.float64, 0, 8, 8),
        (1, np.complex128, 0, 16, 16),
        (1, np.uint8, 0, 1, 1),
        (1, np.float16, 0, 2, 2),
    ],
)
def test_sectors_of_strided_and_misaligned_loads(stride, dtype, first, sectors, ideal):
    x = elements(64 * max(stride, 1) + first, dtype)[first:]
    out = np.zeros(64, dtype)
    report = lab.profile(copy, 1, 64, x, out, stride)
    assert np.array_equal(out, x[np.arange(64) * stride])
    line = report.at("out[i] =")
    own = out.itemsize  # what the stores take: they are as they should be
    assert line.requests == 4 and line.executions == 2 and line.active_lanes == 64
    assert line.sectors == 2 * sectors + 2 * own
    assert line.ideal_sectors == 2 * ideal + 2 * own
    assert line.bytes == 2 * 64 * out.itemsize
    assert report.global_bytes == 32 * line.sectors


def test_part_of_a_warp_and_no_lane_at_all():
    @cuda.jit
    def guarded(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i]

    report = lab.profile(guarded, 2, 64, elements(52), np.zeros(52, np.float32))
    assert report.at("if i").active_lanes == 128
    line = report.at("out[i]")
    assert (line.executions, line.active_lanes, line.requests) == (2, 52, 4)
    assert line.sectors == line.ideal_sectors == 2 * (4 + 3)  # 20 lanes: 80 bytes
    assert line.lane_share == 52 / 64


@pytest.mark.parametrize(
    ("dtype", "stride", "wavefronts", "ideal"),
    [
        (np.float32, 1, 1, 1),
        (np.float32, 2, 2, 1),
        (np.float32, 4, 4, 1),
        (np.float32, 32, 32, 1),
        (np.float32, 33, 1, 1),
        (np.float32, 3, 1, 1),
        (np.float32, 0, 1, 1),  # a broadcast
        (np.uint8, 1, 1, 1),  # four lanes a word
        (np.int16, 2, 1, 1),
        (np.float64, 1, 2, 2),
        (np.float64, 2, 4, 2),
        (np.float64, 16, 32, 2),
        (np.complex128, 1, 4, 4),
        (np.complex128, 2, 8, 4),
    ],
)
def test_bank_conflicts(dtype, stride, wavefronts, ideal):
    size, kind = 32 * max(stride, 1), np.dtype(dtype)

    @cuda.jit
    def read(out):
        s = cuda.shared.array(size, kind)
        t = cuda.threadIdx.x
        for i in range(t, size, 32):
            s[i] = i
        cuda.syncthreads()
        out[t] = s[t * stride]

    out = np.zeros(32, dtype)
    report = lab.profile(read, 1, 32, out)
    assert np.array_equal(out, (np.arange(32) * stride).astype(dtype))
    line = report.at("out[t]")
    assert (line.shared_requests, line.wavefronts, line.ideal_wavefronts) == (1, wavefronts, ideal)
    assert report.at("s[i] = i").ideal_wavefronts == ideal * max(stride, 1)
    assert report.shared_bytes == size * kind.itemsize
    assert not report.findings


def test_divergence_loops_and_branches():
    @cuda.jit
    def uneven(x, out):
        t = cuda.threadIdx.x
        total = np.float32(0)
        for k in range(t):
            total += x[k]
        if t % 4 == 0:
            total *= np.float32(2)
        out[t] = total

    report = lab.profile(uneven, 1, 32, elements(32), np.zeros(32, np.float32))
    loop = report.at("total += x[k]")
    assert (loop.executions, loop.active_lanes) == (31, sum(range(32)))
    assert loop.requests == 31 and loop.sectors == 31  # lanes read one element together
    assert loop.flops == sum(range(32))
    branch = report.at("total *=")
    assert (branch.executions, branch.active_lanes, branch.flops) == (1, 8, 8)


def test_lanes_that_skip_a_round_are_not_mixed_with_the_next():
    @cuda.jit
    def chequered(x, out):
        t = cuda.threadIdx.x
        total = np.float32(0)
        for k in range(4):
            if (k + t) % 2:
                total += x[k * 32 + t]
        out[t] = total

    report = lab.profile(chequered, 1, 32, elements(128), np.zeros(32, np.float32))
    line = report.at("total += x")
    assert (line.requests, line.executions, line.active_lanes) == (4, 4, 64)
    assert line.sectors == 4 * 4 and line.ideal_sectors == 4 * 2


def test_while_loops_breaks_and_continues():
    @cuda.jit
    def collatz(x, out):
        t = cuda.threadIdx.x
        n, steps = x[t], 0
        while n != 1:
            steps += 1
            if n % 2 == 0:
                n //= 2
                continue
            n = 3 * n + 1
            if steps > 100:
                break
        out[t] = steps

    x, out = elements(32, np.int64) % 26 + 1, np.zeros(32, np.int64)
    report = lab.profile(collatz, 1, 32, x, out)
    odd, steps = [], []
    for n in x.tolist():
        count = odds = 0
        while n != 1:
            count, odds = count + 1, odds + n % 2
            n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps.append(count)
        odd.append(odds)
    assert out.tolist() == steps
    assert report.at("steps += 1").active_lanes == sum(steps)
    assert report.at("steps += 1").executions == max(steps)
    assert report.at("n = 3 * n + 1").active_lanes == sum(odd)
    assert report.at("while n").active_lanes == sum(steps) + 32


def test_atomics_and_their_contention():
    @cuda.jit
    def count(x, out):
        cuda.atomic.add(out, x[cuda.grid(1)], 1)

    out = np.zeros(4, np.int32)
    report = lab.profile(count, 2, 64, elements(128, np.int64) % 4, out)
    assert out.tolist() == [32] * 4
    line = report.at("atomic.add")
    assert line.atomics == 128 and line.contention == 4 * 7
    assert line.requests == 8 and line.sectors == 4 * 8 + 4 * 1
    assert report.flops == 0


def test_floating_point_operations_and_intensity():
    @cuda.jit
    def poly(x, out):
        i = cuda.grid(1)
        v = x[i]
        out[i] = math.sqrt(v * v + np.float32(1)) / (v - np.float32(3)) + abs(i * 2)

    report = lab.profile(poly, 1, 64, elements(64), np.zeros(64, np.float32))
    assert report.flops == 64 * 6
    assert report.intensity == 64 * 6 / (2 * 64 * 4)


def test_views_of_rows_count_as_their_array():
    @cuda.jit
    def rows(x, out):
        row = x[cuda.threadIdx.y]
        out[cuda.threadIdx.y, cuda.threadIdx.x] = row[cuda.threadIdx.x]

    x = elements(64).reshape(2, 32)
    report = lab.profile(rows, 1, (32, 2), x, np.zeros_like(x))
    assert report.totals.requests == 4 and report.totals.sectors == 16


# The ladders


def launched(run) -> lab.Report:
    with lab.profiled() as launches:
        run()
    assert len(launches) == 1
    return launches[0].report


def matmul(version: str, m: int, n: int, k: int) -> lab.Report:
    a, b = elements(m * k).reshape(m, k), elements(k * n).reshape(k, n)
    return launched(lambda: kernels.matmul(a, b, version=version))


def test_matmul_naive():
    """Blocks of 16 x 16, threadIdx.x down the rows: a warp has 16 rows and 2 columns."""
    report = matmul("naive", 32, 32, 32)
    requests = 4 * 8 * 32  # blocks, warps, steps
    a, b, c = report.at("av = "), report.at("bv = "), report.at("c[z, row, col] = acc")
    assert (a.requests, a.sectors, a.ideal_sectors) == (requests, 16 * requests, 4 * requests)
    assert (b.requests, b.sectors, b.ideal_sectors) == (requests, 1 * requests, 4 * requests)
    assert (c.requests, c.sectors) == (32, 32 * 16)
    assert report.flops == 2 * 32**3


def test_matmul_coalesced():
    """Blocks of 32 x 8: a warp is one row of 32 columns."""
    report = matmul("coalesced", 32, 32, 32)
    requests = 4 * 8 * 32
    a, b, c = report.at("av = "), report.at("bv = "), report.at("c[z, row, col] = acc")
    assert (a.requests, a.sectors) == (requests, requests)
    assert (b.requests, b.sectors, b.ideal_sectors) == (requests, 4 * requests, 4 * requests)
    assert (c.requests, c.sectors) == (32, 4 * 32)


def test_matmul_tiled():
    """32 x 32 tiles: K / 32 times less from global memory, no bank conflicts."""
    report = matmul("tiled", 64, 64, 64)
    loads = 4 * 32 * 2  # blocks, warps, tiles
    for text in ("a_tile[ty, tx] = acc_t(a[", "b_tile[ty, tx] = acc_t(b["):
        line = report.at(text)
        assert (line.requests, line.sectors, line.ideal_sectors) == (loads, 4 * loads, 4 * loads)
        assert line.shared_requests == line.wavefronts == loads
    for text, flops in (("av = a_tile", 0), ("acc += av * b_tile", 2 * 64**3)):
        inner = report.at(text)
        assert inner.executions == loads * 32 and inner.flops == flops
        assert inner.shared_requests == inner.wavefronts == inner.ideal_wavefronts == 32 * loads
    assert report.shared_bytes == 2 * 32 * 32 * 4


@pytest.mark.parametrize(
    ("version", "stored", "wavefronts"), [("naive", 32, 0), ("tile", 4, 32), ("padded", 4, 1)]
)
def test_transposes(version, stored, wavefronts):
    x = elements(64 * 64).reshape(64, 64)
    report = launched(lambda: kernels.transpose(x, (1, 0), version=version))
    requests = 64 * 64 // 32
    line = report.at("out[start")
    loads = requests if version == "naive" else 0
    assert line.requests == requests + loads
    assert line.sectors == stored * requests + 4 * loads
    assert (line.wavefronts, line.ideal_wavefronts) == (
        wavefronts * requests,
        requests * (wavefronts > 0),
    )
    assert line.worst_wavefronts == wavefronts
    assert report.totals.bytes == 2 * x.nbytes and not report.findings


def test_some_blocks_of_a_grid():
    x, out = elements(640), np.zeros(640, np.float32)
    report = lab.profile(copy, 10, 64, x, out, 1, blocks=[3, 7])
    assert report.blocks == 2 and report.scale == 5
    assert "sampled: 2 of 10 blocks" in str(report)
    assert np.flatnonzero(out).tolist() == [*range(192, 256), *range(448, 512)]
    assert lab.profile(copy, 10, 64, x, out, 1, blocks=5).totals.requests == 5 * 2 * 2
