"""A small problem for each family of kernels, to be profiled version by version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import kernels
from kernels.lab.record.capture import Launch, profiled
from kernels.lab.report.listing import ratio, short
from kernels.lab.report.report import Counts

VERSIONED = (  # operations that take `version=`; others choose by the shape of what they are given
    "attention attention_backward conv2d conv2d_backward_data conv2d_backward_weight cumsum"
    " embedding_backward layer_norm layer_norm_backward log_softmax log_softmax_backward matmul"
    " max_pool2d_backward reduce rms_norm rms_norm_backward scatter_add softmax softmax_backward"
    " transpose"
).split()


class Problem(NamedTuple):
    """What an operation of `kernels` is called with, and how that is said."""

    name: str
    args: tuple
    keywords: dict[str, Any]

    def run(self, **more: Any) -> Any:
        return getattr(kernels, self.name)(*self.args, **self.keywords, **more)

    @property
    def text(self) -> str:
        """The call, with shapes in the place of arrays."""
        shown = [_shown(arg) for arg in self.args]
        shown += [f"{name}={_shown(value)}" for name, value in self.keywords.items()]
        return f"{self.name}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return getattr(value, "name", None) or str(value)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _index(count: int, below: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, count)


def problem(family: str, version: str) -> Problem:
    """A problem small enough to be profiled in well under a second, on which the family runs that
    version. Raises KeyError for a family there is no problem for."""
    args, keywords = _PROBLEMS[family](version)
    name = "exp" if family == "pointwise" else family
    if family == "pointwise" and version == "strided":
        name = "add"
    if name in VERSIONED and (name, version) not in _BY_SHAPE:
        keywords = {**keywords, "version": version}
    return Problem(name, args, keywords)


def _matmul(version: str):
    a, b = _floats(64, 64), _floats(64, 1 if version == "matvec" else 64)
    halves = [x.astype(np.float16) for x in (a, b)]
    if version in ("tensor_core", "mma_sync"):
        return tuple(halves), {}
    if version == "tensor_core_tf32":  # halves lose nothing in TF32
        a, b = (x.astype(np.float32) for x in halves)
    return (a, b), {}


def _transpose(version: str):
    return (_floats(70, 66), (1, 0)), {}


def _rows(version: str):
    shape = (5, 70, 3) if version == "strided" else (9, 250)
    return (_floats(*shape), 1), {}


def _rows_backward(version: str):
    shape = (5, 70, 3) if version == "strided" else (9, 300)
    return (_floats(*shape), _floats(*shape), 1), {}


_ROWS = {"warp": (9, 200), "thread": (300, 5), "columns": (60, 70)}
_BY_SHAPE = {("cumsum", "columns"), *(("reduce", version) for version in _ROWS)}
_BY_SHAPE |= {(f"{name}_norm_backward", "parameters") for name in ("layer", "rms")}


def _reduce(version: str):
    if version not in _ROWS:
        return ("sum", _floats(3000)), {}
    return ("sum", _floats(*_ROWS[version]), 0 if version == "columns" else 1), {}


def _pointwise(version: str):
    return (_floats(1000),) if version == "contiguous" else (_floats(20, 30), _floats(30)), {}


def _cumsum(version: str):
    return (_floats(60, 50), 0) if version == "columns" else (_floats(3, 700), 1), {}


def _norm(version: str) -> tuple[int, ...]:
    return (50, 37) if version == "columns" else (4, 3, 9, 7)


def _of_image(version: str):
    return (_floats(2, 3, 12, 11), (3, 3), (2, 2)), {}


def _max_pool_backward(version: str):
    x, window = _floats(2, 3, 12, 10), (2, 2) if version == "owner" else (3, 3)
    stride = (2, 2) if version != "gather" else (1, 1)
    y, indices = kernels.max_pool2d(x, window, stride, backend="numpy")
    return (y, indices, x.shape, window, stride), {}


def _attention_backward(version: str):
    q, k, v, g = _floats(4, 1, 2, 35, 16)
    return (g, q, k, v, *kernels.attention(q, k, v, backend="numpy")), {}


_IMAGE, _FILTERS, _RESULT = (2, 3, 12, 11), (5, 3, 3, 3), (2, 5, 12, 11)
_PADDED = dict(padding=(1, 1))
_PROBLEMS: dict[str, Callable[[str], tuple[tuple, dict]]] = {
    "matmul": _matmul,
    "transpose": _transpose,
    "softmax": _rows,
    "log_softmax": _rows,
    "softmax_backward": _rows_backward,
    "log_softmax_backward": _rows_backward,
    "reduce": _reduce,
    "pointwise": _pointwise,
    "concat": lambda v: (([_floats(9, 40), _floats(9, 30)], 1), {}),
    "cumsum": _cumsum,
    "conv2d": lambda v: ((_floats(*_IMAGE), _floats(*_FILTERS)), _PADDED),
    "conv2d_backward_data": lambda v: ((_floats(*_RESULT), _floats(*_FILTERS), _IMAGE), _PADDED),
    "conv2d_backward_weight": lambda v: ((_floats(*_RESULT), _floats(*_IMAGE), _FILTERS), _PADDED),
    "max_pool2d": _of_image,
    "avg_pool2d": _of_image,
    "max_pool2d_backward": _max_pool_backward,
    "avg_pool2d_backward": lambda v: ((_floats(2, 3, 5, 5), (2, 3, 12, 11), (3, 3), (2, 2)), {}),
    "cross_entropy": lambda v: ((_floats(30, 50), _index(30, 50)), {}),
    "cross_entropy_backward": lambda v: (
        (_floats(30), _floats(30, 50), _floats(30), _index(30, 50)),
        {},
    ),
    "batch_norm": lambda v: ((_floats(*_norm(v)), None, None, 1e-5), {}),
    "batch_norm_apply": lambda v: (
        (_floats(*_norm(v)), *[_floats(_norm(v)[1])] * 4),
        {},
    ),
    "batch_norm_backward": lambda v: (
        (_floats(*_norm(v)), _floats(*_norm(v)), *[_floats(_norm(v)[1])] * 3),
        {},
    ),
    "attention": lambda v: (tuple(_floats(3, 1, 2, 35, 16)), {}),
    "attention_backward": _attention_backward,
    "layer_norm": lambda v: ((_floats(9, 70), _floats(70), _floats(70), 1e-5), {}),
    "layer_norm_backward": lambda v: ((*_floats(2, 9, 70), *_floats(2, 9), _floats(70)), {}),
    "rms_norm": lambda v: ((_floats(9, 70), _floats(70), 1e-5), {}),
    "rms_norm_backward": lambda v: ((*_floats(2, 9, 70), _floats(9), _floats(70)), {}),
    "philox_uint32": lambda v: ((1000, 1, 0), {}),
    "uniform": lambda v: (((1000,), 1, 0), {}),
    "normal": lambda v: (((1000,), 1, 0), {}),
    "dropout": lambda v: ((_floats(1000), 0.5, 1, 0), {}),
    "embedding": lambda v: ((_floats(20, 40), _index(30, 20)), {}),
    "embedding_backward": lambda v: ((_floats(30, 40), _index(30, 20), 20), {}),
    "gather": lambda v: ((_floats(20, 40), 0, _index(40, 20).reshape(1, 40)), {}),
    "scatter_add": lambda v: (
        (_floats(20, 40), 0, _index(400, 20).reshape(10, 40), _floats(10, 40)),
        {},
    ),
    "sgd_": lambda v: ((*_floats(3, 1000), 0.1, 0.9), {}),
    "adam_": lambda v: ((*abs(_floats(4, 1000)), None, 1e-3, 0.9, 0.999, 1e-8, 0.0, 1), {}),
}


_NEED_A_GPU = {("matmul", "wgmma")}


class Rung(NamedTuple):
    """A version of a ladder, profiled: most launch one kernel, some several."""

    version: str
    idea: str
    problem: Problem
    launches: list[Launch]


def families(dialect: str = "numba") -> dict[str, list[tuple[str, str]]]:
    """(version, idea) of every family that the lab has a problem for, in "numba" or "cupy", but for
    what has no CPU to be recorded on."""
    found: dict[str, list[tuple[str, str]]] = {}
    for family, written_in, version, idea in kernels.catalog():
        if written_in == dialect and family in _PROBLEMS and (family, version) not in _NEED_A_GPU:
            found.setdefault(family, []).append((version, idea))
    return found


def climb(family: str, version: str | None = None, dialect: str = "numba") -> Iterator[Rung]:
    """Profile the versions of a family (or one of them), each on its problem."""
    for name, idea in families(dialect)[family]:
        if version in (None, name):
            what = problem(family, name)
            with profiled() as launches:
                what.run(backend=dialect)
            yield Rung(name, idea, what, launches)


def summary(rungs: list[Rung]) -> str:
    """A table of the versions: what each moves, and how well."""
    header = ("version", "lanes", "requests", "sectors", "of ideal", "wavefronts", "banks")
    table = [(*header, "flops", "flops/byte")]
    for rung in rungs:
        total = Counts()
        for launch in rung.launches:
            total.add(launch.report.totals)
        moved = 32 * total.sectors
        table.append(
            (
                rung.version,
                ratio(32 * total.lane_share),
                short(total.requests),
                short(total.sectors),
                f"{total.sector_efficiency:.0%}" if total.sectors else "",
                short(total.wavefronts) if total.shared_requests else "",
                f"x{ratio(1 / total.bank_efficiency)}" if total.shared_requests else "",
                short(total.flops) if total.flops else "",
                f"{total.flops / moved:.2f}" if total.flops and moved else "",
            )
        )
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in table
    )
