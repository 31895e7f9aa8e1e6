"""Scaled dot product attention: how masks and heads are seen, and the launches of its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

import kernels
from kernels.families import Family, Operation, as_for, floats, normal, ones
from kernels.launchers import attention_tiles
from kernels.launchers.attention_tiles import BX
from kernels.launchers.common import (
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_capability,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    refusal_of_mma,
)
from kernels.launchers.matmul import matmul
from kernels.launchers.plans import Plans, place
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import cast

VERSIONS = {
    "three_step": "scores, softmax, weighted sum: L x S scores in memory",
    "tiled": "online softmax: keys and values come by in tiles, scores stay on chip",
    "split": "tiled, for few queries: blocks share the keys (flash decoding)",
}
BACKWARD = {
    "three_step": "probabilities again from the log-sum-exp, in memory",
    "tiled": "in tiles: by keys for dk and dv, by queries for dq",
    "split": "tiled, for few queries or keys: blocks share what comes by",
}
ON_TENSOR_CORES = {
    "mma_sync": "16-bit: in tiles; the sums of one product are a fragment of the next (mma.sync)"
}
TRIANGULAR = {"triangular": "three_step: the products skip tiles that causal queries do not see"}
_BY_DIALECT = {"numba": {**VERSIONS, **TRIANGULAR}, "cupy": {**VERSIONS, **ON_TENSOR_CORES}}
_BACKWARD_BY_DIALECT = {
    "numba": {**BACKWARD, **TRIANGULAR},
    "cupy": {**BACKWARD, **ON_TENSOR_CORES},
}
EDGE, NARROW = 32, 16  # queries or keys of a tile that a triangular product skips; a narrow head
IN_MEMORY = ("three_step", "triangular")  # scores
ROW_BLOCK = 32  # threads of a block that walks along a row of scores
FORWARD_IN_MEMORY = 1 << 14  # scores of a head
TRIANGULAR_IN_MEMORY, BACKWARD_IN_MEMORY = 1 << 22, 1 << 26  # of all heads
SHARED = 47 * 1024  # bytes of shared memory that tiles may take


class Tile(NamedTuple):
    """A block holds `own` rows while `other` rows come by, each of `d` elements (padded)."""

    own: int
    other: int
    d: int


_SHAPES = ((64, 64), (64, 32), (32, 32), (32, 16), (16, 16))
_FEW_QUERIES = ((16, 64), (16, 32), (16, 16))  # on a GPU for up to 16


def _tile(width: int, dtype: np.dtype, backward: bool, few: bool = False) -> Tile | None:
    """The largest tile for rows of up to `width` elements that fits, or None."""
    d = ceil_div(max(width, 1), BX) * BX
    for own, other in _FEW_QUERIES if few else _SHAPES:
        held = 1 + backward  # tiles of own rows, of scores
        elements = held * d * (own + 1) + 2 * other * (d + 1) + held * own * other + 4 * own
        if elements * compute_dtype(dtype).itemsize <= SHARED:
            return Tile(own, other, d)
    return None


class _Mask(NamedTuple):
    """kind: "none", "add" or "keep". Query i of head z has row (z // div % mod, i * step)."""

    kind: str
    shape: tuple[int, int, int]
    div: int = 1
    mod: int = 1
    step: int = 0


def _see_mask(mask, shape: tuple[int, int, int, int]) -> _Mask:
    """How the kernels see a mask that broadcasts to `shape` (N, H, L, S)."""
    if mask is None:
        return _Mask("none", (1, 1, 1))
    n, h, queries, _ = (1,) * (4 - mask.ndim) + mask.shape
    div = shape[1] if h == 1 and n > 1 else 1
    kind = "keep" if mask.dtype == np.bool_ else "add"
    return _Mask(kind, (n * h, queries, shape[3]), div, n * h, int(queries > 1))


def _check(dialect: Dialect, name: str, q, k, v, mask, version: str | None) -> None:
    """ValueError for shapes, TypeError for dtypes that do not fit."""
    check_version(name, version, _BY_DIALECT[dialect.name])
    check_floating(name, q, k, v)
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ValueError(
            f"{name}: expected q (N, H, L, E), k (N, HK, S, E), v (N, HK, S, F), "
            f"got {q.shape}, {k.shape}, {v.shape}"
        )
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"{name}: q {q.shape}, k {k.shape} and v {v.shape} do not fit; expected (N, H, L, E), "
            "(N, HK, S, E), (N, HK, S, F)"
        )
    if q.shape[1] != k.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise ValueError(
            f"{name}: the {k.shape[1]} heads of k and v must divide the {q.shape[1]} of q"
        )
    if mask is None:
        return
    full = (*q.shape[:3], k.shape[2])
    if mask.dtype != np.bool_ and mask.dtype not in (q.dtype, np.float32):
        raise TypeError(f"{name}: expected a mask of bool, float32 or {q.dtype}, got {mask.dtype}")
    padded = (1,) * (4 - mask.ndim) + mask.shape
    if len(padded) != 4 or any(m not in (1, n) for m, n in zip(padded, full)):
        raise ValueError(f"{name}: a mask {mask.shape} does not broadcast to the scores {full}")


def _refusal(plan: _Plan, cc: tuple[int, int] | None) -> str | None:
    """Why tensor cores do not take the operands."""
    if "mma_sync" not in _BY_DIALECT[plan.dialect.name]:
        return "is not in this dialect"
    width, most = max(plan.e, plan.f), plan.dialect.attention_mma.MAX_WIDTH
    if width > most:
        return f"takes heads of at most {most} elements, not {width}"
    return refusal_of_mma(plan.dtype, cc)


def _in_memory(plan: _Plan, backward: bool) -> str | None:
    """The version of a CPU that keeps scores in memory; None where they are too many. The gradients
    take half the time so, the result where there are few or where tiles of them are skipped."""
    skips = plan.causal and "triangular" in _BY_DIALECT[plan.dialect.name]
    of_all = BACKWARD_IN_MEMORY if backward else TRIANGULAR_IN_MEMORY if skips else 0
    most = max(of_all // max(plan.z, 1), FORWARD_IN_MEMORY * (not backward))
    if plan.tile is not None and plan.l * plan.s > most:
        return None
    return "triangular" if skips else "three_step"


def _pick(plan: _Plan, name: str, version: str | None, cc: tuple[int, int] | None) -> str:
    """On a GPU tensor cores or tiles, where they fit; on the CPU see `_in_memory`."""
    if version == "mma_sync" and (why := _refusal(plan, cc)):
        raise ValueError(f"{name}: version 'mma_sync' {why}; leave version out")
    if version in ("tiled", "split") and plan.tile is None:
        raise ValueError(
            f"{name}: version {version!r} has no tile for heads of "
            f"{max(plan.e, plan.f)} elements of {plan.acc}; use 'three_step'"
        )
    if version is not None:
        return version
    backward = name.endswith("backward")
    if not cc:
        return _in_memory(plan, backward) or "tiled"
    if _refusal(plan, cc) is None:
        return "mma_sync"
    if plan.tile is None:
        return "three_step"
    return "split" if attention_tiles.are_few(plan, backward) else "tiled"


class _Plan:
    """What the calls with operands of one kind share."""

    def __init__(
        self, dialect: Dialect, name: str, q, k, v, mask, causal: bool, version: str | None
    ) -> None:
        _check(dialect, name, q, k, v, mask, version)
        self.dialect, self.kernels, self.causal = dialect, dialect.attention, causal
        (n, h, self.l, self.e), (_, hk, self.s, self.f) = q.shape, v.shape
        self.z, self.zk, self.dtype = n * h, n * hk, q.dtype
        self.acc = compute_dtype(q.dtype)
        cc = compute_capability(q)
        self.gpu, self.forced = cc is not None, version == "split"
        backward = name.endswith("backward")
        few = self.gpu and self.l <= 16 and not backward
        self.tile = _tile(max(self.e, self.f), q.dtype, backward, few)
        self.version = _pick(self, name, version, cc)
        self.mask = _see_mask(mask, (*q.shape[:3], self.s))
        self.acc_t = dialect.common.scalar_type(q.dtype)
        self.no_mask = empty(self.mask.shape, bool, q)

    def mask_array(self, mask):
        if mask is None:
            return self.no_mask
        if mask.shape[-1] != self.s:  # one column for all keys: the only copy
            mask = namespace(mask).broadcast_to(mask, (*mask.shape[:-1], self.s))
        return contiguous(mask).reshape(self.mask.shape)

    def numbers(self, causal: bool, scale: float | None) -> tuple:
        scale = 1 / math.sqrt(max(self.e, 1)) if scale is None else scale
        return self.acc.type(scale), int(causal), *self.mask[2:]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to attend to, or nobody to do so."""
        return not (self.z and self.l and self.s)

    def flat(self, q, k, v):
        """(N, H, L, E) as contiguous (N * H, L, E)."""
        shapes = (self.z, self.l, self.e), (self.zk, self.s, self.e), (self.zk, self.s, self.f)
        return [contiguous(a).reshape(shape) for a, shape in zip((q, k, v), shapes)]

    def rows_of_queries(self, a):
        """a (Z, L, ...) with the heads that share keys as rows of one."""
        return a.reshape(self.zk, self.z // self.zk * self.l, a.shape[-1])


class _Products:
    """The products of versions that keep scores (Z, L, S) in memory."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.skip = plan.version == "triangular" and plan.causal
        self.skip &= plan.z == plan.zk <= MAX_GRID_YZ  # each head has keys of its own
        self.skip &= min(plan.e, plan.f) > 0
        self.launches: dict[tuple[str, int], Callable] = {}

    def scores(self, a, b):
        """a (Z, L, E) @ b.T, for b (ZK, S, E)."""
        if self.skip:
            return self._skipping("scores", a, b, self.plan.l, self.plan.s)
        return matmul(self.plan.dialect, self.plan.rows_of_queries(a), b.swapaxes(1, 2))

    def of_queries(self, s, b):
        """s @ b, for b (ZK, S, E)."""
        if self.skip:
            return self._skipping("rows", s, b, self.plan.l, b.shape[2])
        return matmul(self.plan.dialect, s, b)

    def of_keys(self, s, a):
        """s.T @ a, for a (Z, L, E)."""
        if self.skip:
            return self._skipping("columns", s, a, self.plan.s, a.shape[2])
        return matmul(self.plan.dialect, s.swapaxes(1, 2), self.plan.rows_of_queries(a))

    def _skipping(self, kind: str, a, b, m: int, n: int):
        width = a.shape[2] if kind == "scores" else n
        launch = self.launches.get((kind, width))
        if launch is None:
            tile = NARROW if width <= NARROW else EDGE
            kernel = self.plan.kernels.triangular_product(self.plan.acc_t, kind, tile)
            grid = ceil_div(n, tile), ceil_div(m, EDGE), self.plan.z
            launch = launcher("attention", "triangular", kernel, grid, (tile, EDGE))
            self.launches[kind, width] = launch
        c = empty((self.plan.z, m, n), self.plan.acc, a)
        launch(a, b, c)
        return c


def _wide(dialect: Dialect, a, dtype: np.dtype):
    return a if a.dtype == dtype else cast(dialect, a, dtype)


def _plan_forward(plan: _Plan) -> Callable:
    kernels, flags = plan.kernels, (plan.acc_t, plan.mask.kind)
    if plan.version not in IN_MEMORY:
        return attention_tiles.forward(plan)
    products = _Products(plan)
    rows = launcher(
        "attention", plan.version, kernels.softmax_rows(*flags), plan.l * plan.z, ROW_BLOCK
    )

    def three_step(q, k, v, mask, out, lse, numbers):
        q, k, v = (_wide(plan.dialect, a, plan.acc) for a in (q, k, v))
        s = products.scores(q, k)
        rows(s.reshape(plan.z, plan.l, plan.s), mask, lse, *numbers)
        return _wide(plan.dialect, products.of_queries(s, v), plan.dtype)

    return three_step


def _plan_backward(plan: _Plan) -> Callable:
    kernels, dialect, name = plan.kernels, plan.dialect, "attention_backward"
    flags, grid = (plan.acc_t, plan.mask.kind), plan.l * plan.z
    row_products = launcher(name, plan.version, kernels.row_products(plan.acc_t), grid, ROW_BLOCK)
    if plan.version not in IN_MEMORY:
        of_keys, of_queries = (attention_tiles.gradients(plan, keys) for keys in (True, False))

        def by_tiles(g, q, k, v, out, lse, mask, delta, numbers):
            row_products(g, out, delta)
            dk, dv = of_keys(k, v, q, g, mask, lse, delta, numbers)
            (dq,) = of_queries(q, g, k, v, mask, lse, delta, numbers)
            return dq, dk, dv

        return by_tiles
    products = _Products(plan)
    rows = launcher(name, plan.version, kernels.score_gradients(*flags), grid, ROW_BLOCK)

    def three_step(g, q, k, v, out, lse, mask, delta, numbers):
        row_products(g, out, delta)
        g, q, k, v = (_wide(dialect, a, plan.acc) for a in (g, q, k, v))
        s, ds = products.scores(q, k), products.scores(g, v)
        scores = [a.reshape(plan.z, plan.l, plan.s) for a in (s, ds)]
        rows(*scores, mask, lse, delta, *numbers)
        grads = products.of_queries(ds, k), products.of_keys(ds, q), products.of_keys(s, g)
        return tuple(_wide(dialect, d, plan.dtype) for d in grads)

    return three_step


_plans = Plans()


def _planned(dialect: Dialect, name: str, q, k, v, mask, causal: bool, version: str | None):
    key = (dialect, name, type(q) is ndarray or place(q), bool(causal), version, mask is not None)
    key += tuple((a.shape, a.dtype) for a in (q, k, v, mask) if a is not None)
    found = _plans.get(key)
    if found is None:
        plan = _Plan(dialect, name, q, k, v, mask, bool(causal), version)
        make = _plan_backward if name.endswith("backward") else _plan_forward
        found = _plans.keep(key, (plan, make(plan)))
    return found


@remembered(4)
def attention(dialect: Dialect, q, k, v, mask=None, causal: bool = False, scale=None, version=None):
    """softmax(q @ k.T * scale + mask) @ v for q (N, H, L, E), k (N, HK, S, E), v (N, HK, S, F).

    HK divides H: H / HK heads of q share one of k and v. mask broadcasts to (N, H, L, S): numbers
    to add, or bool, where False is not attended to. causal: query i sees keys 0 .. i. scale: by
    default 1 / sqrt(E). Returns the result (N, H, L, F) and, in the dtype that 16-bit floats are
    computed in, the log-sum-exp of the scores (N, H, L); a query that sees no key has 0 and inf.
    Raises ValueError for shapes, TypeError for dtypes that do not fit.
    """
    plan, run = _planned(dialect, "attention", q, k, v, mask, causal, version)
    shape, lead = (*q.shape[:3], v.shape[3]), q.shape[:3]
    if plan.empty:
        xp = namespace(q)
        return xp.zeros(shape, q.dtype), xp.full(lead, math.inf, plan.acc)
    out, lse = empty((plan.z, plan.l, plan.f), q.dtype, q), empty((plan.z, plan.l), plan.acc, q)
    out = run(*plan.flat(q, k, v), plan.mask_array(mask), out, lse, plan.numbers(causal, scale))
    return out.reshape(shape), lse.reshape(lead)


@remembered(7)
def attention_backward(
    dialect: Dialect, g, q, k, v, out, lse, mask=None, causal: bool = False, scale=None,
    version=None,
):  # fmt: skip
    """Gradients of attention with respect to q, k and v, for g (N, H, L, F) like its result `out`,
    and its log-sum-exp. The same errors."""
    name = "attention_backward"
    plan, run = _planned(dialect, name, q, k, v, mask, causal, version)
    shape = (*q.shape[:3], v.shape[3])
    if g.shape != shape or out.shape != shape or lse.shape != q.shape[:3]:
        raise ValueError(
            f"{name}: expected g and out {shape} and lse {q.shape[:3]}, "
            f"got {g.shape}, {out.shape} and {lse.shape}"
        )
    check_floating(name, g, q, out)
    if lse.dtype != plan.acc:
        raise TypeError(
            f"{name}: expected lse of {plan.acc}, as attention returns it, got {lse.dtype}"
        )
    if plan.empty:
        return tuple(namespace(a).zeros(a.shape, a.dtype) for a in (q, k, v))
    delta = empty((plan.z, plan.l), plan.acc, q)
    flat = [contiguous(a).reshape(plan.z, plan.l, plan.f) for a in (g, out)]
    rows = contiguous(lse).reshape(plan.z, plan.l)
    given = (flat[0], *plan.flat(q, k, v), flat[1], rows, plan.mask_array(mask), delta)
    grads = run(*given, plan.numbers(causal, scale))
    return tuple(d.reshape(a.shape) for d, a in zip(grads, (q, k, v)))


def _seen(q, v, causal: bool) -> int:
    """The scores that count: those of keys that are seen."""
    heads, (queries, keys) = math.prod(q.shape[:2]), (q.shape[2], v.shape[2])
    whole = max(queries - keys, 0)  # queries that see all keys, after the triangle
    of_head = whole * keys + (queries - whole) * (queries - whole + 1) // 2
    return heads * (of_head if causal else queries * keys)


def _cost(q, k, v, mask=None, causal=False, *_, **__):
    flops = _seen(q, v, causal) * (2 * (q.shape[3] + v.shape[3]) + 5)
    results = [((*q.shape[:3], v.shape[3]), q.dtype), (q.shape[:3], compute_dtype(q.dtype))]
    return results, flops


def _cost_backward(g, q, k, v, out, lse, mask=None, causal=False, *_, **__):
    flops = _seen(q, v, causal) * (6 * q.shape[3] + 4 * v.shape[3] + 6)
    return [(a.shape, a.dtype) for a in (q, k, v)], flops


def _problem_backward(version: str):
    q, k, v, g = as_for(version, *floats(4, 1, 2, 35, 16))
    how = {"causal": version == "triangular"}
    return (g, q, k, v, *kernels.attention(q, k, v, **how, backend="numpy")), how


def _cases(rng, versions):
    shapes = (2, 4, 33, 16), (2, 2, 65, 16), (2, 2, 65, 10), (2, 4, 33, 10)
    arrays = [normal(rng, shape) for shape in shapes]
    mask = np.where(rng.random((2, 1, 33, 65)) < 0.5, -np.inf, normal(rng, (2, 1, 33, 65)))
    mask = mask.astype(np.float32)
    mask[0, 0, 3] = -np.inf  # a query that sees nothing
    for version in versions("attention"):
        q, k, v, g = as_for(version, *arrays)
        if version == "triangular":
            k, v = (np.repeat(a, 2, 1) for a in (k, v))  # it skips nothing where heads share keys
        for how in ((mask, False), (mask[1, 0], True, 0.3)):
            yield "attention", (q, k, v, *how), {"version": version}, 9
            results = kernels.attention(q, k, v, *how, backend="numpy")
            given = g, q, k, v, *results, *how
            yield "attention_backward", given, {"version": version}, 20


def _compiled(versions):
    masks = {"none": None, "add": ones(33, 65), "keep": np.ones((33, 65), bool)}
    for width, kind in [
        (16, "none"), (64, "none"), (128, "none"), (64, "add"), (64, "keep"), (16, "keep"),
    ]:  # fmt: skip
        mask = masks[kind]
        for version in versions("attention"):
            q, k = as_for(version, ones(1, 2, 33, width), ones(1, 2, 65, width))
            causal = version == "triangular"
            yield "attention", (q, k, k, mask, causal), {"version": version}
            given = (q, q, k, k, q, ones(1, 2, 33), mask, causal)
            yield "attention_backward", given, {"version": version}
    if "mma_sync" in versions("attention"):  # whose keys are split
        q, k = as_for("mma_sync", ones(1, 1, 1, 64), ones(1, 1, 512, 64))
        yield "attention", (q, k, k), {"version": "mma_sync"}


FAMILY = Family(
    "attention",
    (
        Operation(
            attention,
            _cost,
            lambda version: (
                tuple(as_for(version, *floats(3, 1, 2, 35, 16))),
                {"causal": version == "triangular"},
            ),
            dialects=_BY_DIALECT,
            matrix=True,
        ),
        Operation(
            attention_backward,
            _cost_backward,
            _problem_backward,
            dialects=_BACKWARD_BY_DIALECT,
            matrix=True,
        ),
    ),
    _cases,
    _compiled,
)
