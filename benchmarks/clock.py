"""The lab's clock beside published measurements: `python -m benchmarks.clock [TABLE ...] [--json]`.

`--plot FILE` draws the comparison, `--read FILE` takes the rows of an earlier run's JSON.

Each table is a ladder of kernels that somebody measured on a GPU and published. The kernels here
(clock_kernels.cu) have the structure of the source's; where it leaves a block size open, 256
threads are taken. No constant was fitted to a row that is compared. Rules that were settled while
a table was looked at are those of the assembler, and each was checked in its machine code: that it
joins neighbouring loads of shared memory (the products on the A6000 and the 3090), makes short
branches conditions of their instructions and folds scaled indices into addresses (the sums on the
3090), and leaves loads behind stores (the softmax on the A40). The other tables had no part; those
of transposes and norms were added when the clock was finished, and changed nothing in it.

Two sources gave constants as well (kernels/lab/gpu_model/chips.py), by kernels that are not among
their rows here: that of the sums on the 3090 the time of an atomic operation (its first versions,
one per thread), that of the sums on the 3080 a launch's and the share of the bandwidth that a copy
reaches (it adds two arrays). So those tables are no test of these constants; the others are.

A table counts as in order where no two versions that differ by more than 5 % in both columns are
in the wrong order: closer ones measure the same. Figures whose kernel is not published are
left out, and two sums on the 3080 that measure as the last one does (634.8 and 624.9). So are the
transposes of GPGPUTasks2025: the same machine prints 5.9 or 42 GB/s for its students' direct
kernels, by the shape of a block that the pages do not tell.

Needs the extra `cuda13`, no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels import lab, raw_kernel
from kernels.lab.draw.canvas import (
    BLUE,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    Picture,
    fitted,
    plain,
    width_of,
)  # fmt: skip

CODE = (Path(__file__).parent / "clock_kernels.cu").read_text()
N = 4096


class Row(NamedTuple):
    """A version: its kernel, launch, what was published, and the size of the problem."""

    label: str
    kernel: str
    grid: Any
    block: Any
    published: float
    size: tuple[int, ...]
    shared: int = 0


class Table(NamedTuple):
    """One source. work: what is divided by the seconds, for the published unit, by size; repeated:
    it launched a kernel many times on the same data, without clearing the second cache level."""

    gpu: Any
    source: str
    unit: str
    work: Callable[..., float]
    arguments: Callable[..., tuple]
    rows: tuple[Row, ...]
    repeated: bool = False


def _product(n: int) -> tuple:
    a = np.ones((n, n), np.float32)
    return a, a.copy(), np.zeros_like(a), np.int32(n)


def _sum(dtype: str) -> Callable[[int], tuple]:
    return lambda n: (np.ones(n, dtype), np.zeros(n // 64, dtype), np.int32(n))


def _softmax(rows: int, n: int) -> tuple:
    x = np.ones((rows, n), np.float32)
    return x, np.zeros_like(x), np.int32(n)


def _transpose(h: int, w: int) -> tuple:
    x = np.ones((h, w), np.float32)
    return x, np.zeros_like(x), np.uint32(w), np.uint32(h)


def _rms(rows: int, n: int) -> tuple:
    x, w = np.ones((rows, n), np.float32), np.ones(n, np.float32)
    return np.zeros_like(x), x, w, w.copy(), np.int32(n), np.int32(rows)


def _rms_of_blocks(rows: int, n: int) -> tuple:
    x = np.ones((rows, n), np.float32)
    return x, np.ones(n, np.float32), np.float32(1e-5), np.zeros_like(x)


def _products(*published: float) -> tuple[Row, ...]:
    tiles = [
        ("naive", 32, (32, 32)), ("coalesced", 32, 1024), ("shared_tile", 32, 1024),
        ("tile_1d", 64, 512), ("tile_2d", 128, 256), ("vectorised", 128, 256),
        ("warp_tile", 128, 128),
    ]  # fmt: skip
    return tuple(
        Row(name.replace("_", " "), name, (N // tile, N // tile), block, known, (N,))
        for (name, tile, block), known in zip(tiles, published)
    )


def _sums(
    dtype: str, size: int, n: int, threads: int, published: dict[str, float], atomic: bool = False
) -> tuple[Row, ...]:
    """Rows by kernel; "halves, twice" loads two elements per thread."""
    found = []
    for name, known in published.items():
        kernel, _, twice = name.replace(" ", "_").partition(",_")
        options = [dtype, str(atomic).lower()]
        if kernel in ("halves", "last_warp"):
            options.append("true" if twice else "false")
        blocks = n // threads // (2 if twice else 1)
        kernel = f"{kernel}<{', '.join(options)}>"
        found.append(Row(name, kernel, blocks, threads, known, (n,), threads * size))
    return tuple(found)


def _softmaxes(rows: int, n: int, *milliseconds: float) -> tuple[Row, ...]:
    """GB/s of one read and one write, whatever a version moves."""
    names = ("softmax_block", "softmax_warps", "softmax_warp_a_row", "softmax_float4")
    return tuple(
        Row(
            f"{name[8:].replace('_', ' ')}, {rows} x {n}", name,
            rows // 8 if name == "softmax_warp_a_row" else rows, 256,
            8e-6 * rows * n / known, (rows, n), 1024,
        )
        for name, known in zip(names, milliseconds)
    )  # fmt: skip


def _tiled_transposes(
    h: int, w: int, published: dict[str, tuple[str, int, float]]
) -> tuple[Row, ...]:
    """By label: kernel, columns of a tile (0: none, 16 x 16 threads), and what was published."""
    found = []
    for label, (kernel, columns, known) in published.items():
        along = (h // 16, w // 16) if kernel == "transpose_gather" else (w // 16, h // 16)
        grid, block = ((w // columns, h // 32), 256) if columns else (along, (16, 16))
        found.append(Row(label, kernel, grid, block, known, (h, w)))
    return tuple(found)


# Cards of laptops, whose clock depends on the laptop. 3050: the clock at which its owner's cuBLAS,
# 4026 GFLOP/s in another table (Pupking, 01_tiled_gemm), would use 93 % of the lanes. 5060: as
# deviceQuery says, printed by its owner (WingEdge777, understanding_your_gpu_with_device_query).
_LAPTOP_3050 = lab.gpu("RTX 3060")._replace(
    name="RTX 3050 Laptop", sms=16, boost=1057, fp32=4.3, memory=4, bandwidth=192, l2=2
)
_LAPTOP_5060 = lab.gpu("RTX 5070")._replace(
    name="RTX 5060 Laptop", sms=26, boost=1455, fp32=9.7, memory=8, bandwidth=384, l2=32
)
TABLES = {
    "products-a6000": Table(
        "RTX A6000", "S. Boehm, How to Optimize a CUDA Matmul Kernel (2022)", "GFLOP/s",
        lambda n: 2e-9 * n**3, _product, _products(309, 1987, 2980, 8475, 15972, 18237, 21779),
    ),
    "products-3090": Table(
        "RTX 3090", "L. Mao, CUDA GEMM Optimization (2024), V00 to V06 vectorised", "GFLOP/s",
        lambda n: 2e-9 * n**3, _product, _products(278, 1722, 2662, 8913, 13025, 19669, 20165),
    ),
    "sums-3090": Table(
        "RTX 3090", "MasterSkepticista, parallel_reductions_cuda (2025), atomic at the end",
        "GB/s", lambda n: 4e-9 * n, _sum("float32"),
        _sums("float", 4, 1 << 25, 256, {
            "tree": 223, "neighbours": 317, "halves": 331, "last warp": 550, "halves, twice": 618,
            "last warp, twice": 859,
        }, atomic=True),
    ),
    "sums-3080": Table(
        "RTX 3080",
        "R100001, Programming-Massively-Parallel-Processors, NvBench: 2^26, 512 threads",
        "GB/s", lambda n: 4e-9 * n, _sum("uint32"),
        _sums("unsigned", 4, 1 << 26, 512, {
            "tree": 140.8, "neighbours": 266.9, "halves": 295.1, "halves, twice": 426.0,
            "last warp, twice": 633.3,
        }),
    ),
    "sums-v100": Table(
        "V100", "jhlee508, reduction-cuda: doubles, 256 threads", "GB/s",
        lambda n: 8e-9 * n, _sum("float64"),
        _sums("double", 8, 1 << 25, 256, {
            "tree": 303, "neighbours": 427, "halves": 649.5, "halves, twice": 872.6,
        }),
    ),
    "softmax-a40": Table(
        "A40", "1Arther, cuda-softmax-lab: 256 threads, in a loop", "GB/s",
        lambda rows, n: 8e-9 * rows * n, _softmax,
        _softmaxes(512, 1024, 0.0084, 0.0070, 0.0075, 0.0058)
        + _softmaxes(1024, 4096, 0.1322, 0.1325, 0.1861, 0.1253)
        + _softmaxes(256, 50000, 0.5549, 0.5552, 1.8050, 0.4810),
        repeated=True,
    ),
    "softmax-3050": Table(
        _LAPTOP_3050, "Pupking, 04_fused_softmax: 5.878 and 1.650 ms", "GB/s",
        lambda rows, n: 8e-9 * rows * n, _softmax,
        (
            Row("thread a row", "softmax_rows", N // 256, 256, 22.8, (N, N)),
            Row("block a row", "softmax_shared", N, 256, 81.3, (N, N)),
        ),
    ),
    "transposes-5060": Table(
        _LAPTOP_5060, "WingEdge777, Vitamin-CUDA, mat_transpose: 8192 x 2048, in a loop", "GB/s",
        lambda h, w: 8e-9 * h * w, _transpose,
        _tiled_transposes(8192, 2048, {
            "writes strided": ("transpose_direct", 0, 258.6),
            "reads strided": ("transpose_gather", 0, 264.8),
            "shared": ("transpose_shared<32, 0>", 32, 279.3),
            "padded": ("transpose_shared<32, 2>", 32, 301.1),
            "padded, float4": ("transpose_float4<false>", 32, 320.5),
            "swizzled, float4": ("transpose_float4<true>", 32, 323.6),
        }),
        repeated=True,
    ),
    "transposes-3090": Table(
        "RTX 3090", "L. Mao, CUTLASS-Examples, cute_matrix_transpose: 16384 x 16384", "GiB/s",
        lambda h, w: 8 * h * w / 2**30, _transpose,
        _tiled_transposes(16384, 16384, {
            "writes strided": ("transpose_lanes<64, true>", 64, 257.7),
            "reads strided": ("transpose_lanes<64, false>", 64, 639.2),
            "shared, reads conflict": ("transpose_shared<128, 0>", 128, 669.4),
            "shared, writes conflict": ("transpose_shared<128, 1>", 128, 672.0),
            "padded": ("transpose_shared<64, 2>", 64, 670.5),
            "swizzled": ("transpose_shared<64, 3>", 64, 683.0),
        }),
        repeated=True,
    ),
    "transposes-a100": Table(
        "A100 PCIe", "ayush-os, transpose: 4096 x 4096, 16 x 16 threads, in a loop", "GB/s",
        lambda h, w: 8e-9 * h * w, _transpose,
        _tiled_transposes(4096, 4096, {
            "writes strided": ("transpose_direct", 0, 832.9),
            "reads strided": ("transpose_gather", 0, 934.7),
        }),
        repeated=True,
    ),
    "norms-l4": Table(
        "L4", "abideenml, llama3.cuda, rmsnorm_forward: 8192 x 768", "GB/s",
        lambda rows, n: 8e-9 * rows * n, _rms,
        tuple(
            Row(
                f"{name} a row, {size} threads", f"rms_{name}", 8192 * threads // size, size, known,
                (8192, 768),
            )
            for name, threads, every in (
                ("thread", 1, (89.76, 82.81, 73.86, 74.17, 53.54, 27.80)),
                ("warp", 32, (211.52, 206.44, 205.83, 206.79, 207.89, 209.31)),
            )
            for size, known in zip((32, 64, 128, 256, 512, 1024), every)
        ),
    ),
    "norms-h100": Table(
        "H100 SXM", "simveit, effective_rms_norm: rows of 4096, 512 threads (16384 rows)", "GB/s",
        lambda rows, n: 8e-9 * rows * n, _rms_of_blocks,
        tuple(
            Row(label, f"rms_block<{options}>", 1 << 14, 512, known, (1 << 14, 4096))
            for label, options, known in (
                ("tree, read twice", "float, false, false", 3015.3),
                ("tree", "float, true, false", 3045.0), ("warps", "float, true, true", 3043.2),
                ("tree, float4", "float4, true, false", 3062.9),
                ("warps, float4", "float4, true, true", 3062.6),
            )
        ),
    ),
}  # fmt: skip


def measured(name: str) -> list[dict[str, Any]]:
    """The rows of a table, with what the clock says."""
    table, found, known = TABLES[name], [], {}
    for row in table.rows:
        if row.size not in known:
            known = {row.size: table.arguments(*row.size)}
        kernel, work = raw_kernel(CODE, row.kernel), table.work(*row.size)
        e = lab.time(
            kernel, row.grid, row.block, *known[row.size],
            gpu=table.gpu, shared=row.shared, repeated=table.repeated,
        )  # fmt: skip
        estimated = work / e.seconds
        found.append(
            {
                "table": name, "kernel": row.label, "size": row.size, "unit": table.unit,
                "published": row.published, "estimated": estimated,
                "low": work / e.high, "high": work / e.low,
                "ratio": estimated / row.published, "bound": e.bound,
            }
        )  # fmt: skip
    return found


def verdict(rows: list[dict[str, Any]]) -> str:
    """How many versions of a table are within 1.5, and which are in the wrong order."""
    within = sum(1 / 1.5 <= row["ratio"] <= 1.5 for row in rows)
    wrong = [
        f"{a['kernel']} was faster than {b['kernel']}" for a, b in itertools.permutations(rows, 2)
        if a["size"] == b["size"] and a["published"] > 1.05 * b["published"]
        and b["estimated"] > 1.05 * a["estimated"]
    ]  # fmt: skip
    order = f"not in order: {'; '.join(wrong)}" if wrong else "in order"
    return f"{within} of {len(rows)} within 1.5, {order}"


def picture(rows: list[dict[str, Any]]) -> Picture:
    """Each version's estimate over what was published, with its range, on a logarithmic axis."""
    title = "The clock's estimates over published measurements"
    left, right, step, most = 230, 700, 19, 4.0
    names = list(dict.fromkeys(row["table"] for row in rows))
    drawn = Picture(860, 100 + step * len(rows) + 45 * len(names), title)
    within = sum(1 / 1.5 <= row["ratio"] <= 1.5 for row in rows)
    said = [title, f"{within} of {len(rows)} within a factor of 1.5"]

    def at(ratio: float) -> float:
        share = (math.log(ratio) + math.log(most)) / (2 * math.log(most))
        return left + (right - left) * min(max(share, 0), 1)

    top, bottom = 66, drawn.height - 34
    drawn.rect(at(1 / 1.5), top, at(1.5) - at(1 / 1.5), bottom - top, "#eef4fb")
    for ratio in (0.25, 0.5, 1, 2, 4):
        drawn.line(at(ratio), top, at(ratio), bottom, INK if ratio == 1 else GRID)
        drawn.label(at(ratio), top - 6, f"x {plain(ratio)}", 10, MUTED, "middle")
    drawn.label(16, 42, f"{said[1]} (blue band); bars: the clock's range", 11, MUTED)
    drawn.label(right + 16, top - 6, "published, estimated", 10, MUTED)
    y = top + 8.0
    for name in names:
        table = TABLES[name]
        y += 10
        card = lab.gpu(table.gpu).name
        own = [one for one in rows if one["table"] == name]
        said += [f"{card}, {table.unit}: {table.source}", f"  {verdict(own)}"]
        for line, colour in zip(said[-2:], (INK, MUTED)):
            heading = fitted(line.strip(), 820, 11)
            drawn.rect(12, y - 4, width_of(heading, 11) + 6, 16, PAPER)
            drawn.label(16, y + 8, heading, 11, colour)
            y += 15
        y += 5
        for row in own:
            low, high = (row[end] / row["published"] for end in ("low", "high"))
            drawn.label(left - 10, y + 9, row["kernel"], 10, INK, "end", mono=True)
            drawn.rect(at(low), y + 2, max(at(high) - at(low), 1), 7, "#bcd5ee", radius=2)
            good = 1 / 1.5 <= row["ratio"] <= 1.5
            colour = BLUE if good else ORANGE
            drawn.rect(at(row["ratio"]) - 4, y + 1.5, 8, 8, colour, radius=4)
            values = ", ".join(_rounded(row[key]) for key in ("published", "estimated"))
            drawn.label(right + 16, y + 9, values, 10, INK)
            said.append(f"  {row['kernel']}: {values}, x {row['ratio']:.2f}, {row['bound']}")
            y += step
    note = "left of x 1: the clock says slower than measured; orange: more than 1.5 off"
    drawn.label(left, bottom + 18, note, 11, MUTED)
    drawn.text = "\n".join(said)
    return drawn


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", metavar="FILE", help="the rows of an earlier run, in JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw them (.svg, .png or .txt)")
    options = parser.parse_args()
    if options.read:
        known = json.loads(Path(options.read).read_text())["rows"]
        picture(known).save(options.plot or "clock.svg")
        return
    every = []
    for name in options.tables or TABLES:
        table = TABLES[name]
        rows = measured(name)
        every += rows
        if options.json:
            continue
        print(f"\n{lab.gpu(table.gpu).name}, {table.unit}: {table.source}")
        print(f"{'':24} {'published':>9} {'estimated':>9} {'range':>15} {'ratio':>6}  bound")
        for r in rows:
            print(
                f"{r['kernel']:24} {r['published']:9.4g} {r['estimated']:9.0f}"
                f" {r['low']:7.0f}-{r['high']:<7.0f} {r['ratio']:6.2f}  {r['bound']}"
            )
        print(verdict(rows))
    if options.json:
        print(json.dumps({"rows": every}, indent=1))
    if options.plot:
        picture(every).save(options.plot)


if __name__ == "__main__":
    main()
