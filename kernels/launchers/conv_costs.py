"""Which version of a convolution takes least time on a CPU, in Numba's dialect.

A cost is the time of one result, in terms of a sum that batch_gemm adds up in full tiles. The
constants were fitted with AVX2 and with AVX-512, one thread, on a Zen 4;
`python -m benchmarks.convolutions --versions` shows where another version would be faster.
"""

from __future__ import annotations

import math

from kernels.launchers.common import MAX_GRID_YZ, Dialect, ceil_div
from kernels.launchers.conv_planes import Geometry, Windows
from kernels.launchers.conv_tiled import tile_channels, tile_height
from kernels.support import processor

MOST_HALO = 768  # elements of x that `tiled` keeps at a time
INTERLEAVING = 40  # to bring the phases of a stride together
FEW_ROWS, SHORT_SUM = 4, 32  # below both, a product pays nothing


def _is_wide() -> bool:
    return processor.vector_registers().floats >= 16


def _waste(sizes: tuple[int, ...], tiles: tuple[int, ...]) -> float:
    """How many results tiles compute for each that there is."""
    full = [ceil_div(size, tile) * tile for size, tile in zip(sizes, tiles, strict=True)]
    return math.prod(full) / max(math.prod(sizes), 1)


def _batched(dialect: Dialect, rows: int, columns: int) -> float:
    """The waste of batch_gemm."""
    _, tile, _ = dialect.conv_batch.tiling(rows, columns, False)
    return _waste((columns, rows), tile)


def _tiled(dialect: Dialect, windows: Windows) -> float:
    """The cost of `tiled`; infinite where its tiles are too large, or have gaps."""
    (read, written), out, spread = windows.channels, windows.out, windows.stride
    tile = tile_height(out[0]), dialect.conv_direct.TILE_W
    halo = math.prod((tile[i] - 1) * spread[i] + windows.reach(i) + 1 for i in range(2))
    one_each = read == written == 1  # depthwise: a product would have one row
    if halo > MOST_HALO or max(out) > MAX_GRID_YZ or not (one_each or spread == (1, 1)):
        return math.inf
    terms = read * math.prod(windows.kernel)
    waste = _waste((*out, written), (*tile, tile_channels(written)))
    return 0 if one_each else waste * ((1.05 if _is_wide() else 2.05) * terms + 12)


def cheapest(dialect: Dialect, geo: Geometry, windows: Windows, is_gradient: bool) -> str:
    """For the output, or (is_gradient) for dx, whose phases are the channels of `windows`."""
    (read, written), (per_in, per_out) = windows.channels, geo.channels
    terms, columns = read * math.prod(windows.kernel), per_in if is_gradient else per_out
    phases = written // max(columns, 1)
    tiled = _tiled(dialect, windows)
    if columns < FEW_ROWS and math.prod(geo.w_shape[2:]) * read < SHORT_SUM and tiled == math.inf:
        return "direct"
    more = INTERLEAVING if phases > 1 else 0
    rows = geo.x_shape[0] * math.prod(windows.out)
    own = read * math.prod(geo.w_shape[2:]) / phases if phases else terms  # without the zeros
    costs = {
        "tiled": tiled + more,
        "batch_gemm": _batched(dialect, rows, columns) * (own + 24),
        "implicit_gemm": _waste((written,), (8,)) * (1.45 * terms + 50) + more,
    }
    return min(costs, key=costs.__getitem__)


def cheapest_of_weights(dialect: Dialect, geo: Geometry) -> str:
    """For the gradient of the weights: a cost of each term, of which there are many."""
    rows, columns = math.prod(geo.w_shape[1:]), geo.channels[1]
    once, more = (1.45, 12) if _is_wide() else (2.55, 25)
    batched = _batched(dialect, rows, columns) + 22 / max(rows, 1)
    return "batch_gemm" if batched < once + more / max(rows, 1) else "implicit_gemm"
