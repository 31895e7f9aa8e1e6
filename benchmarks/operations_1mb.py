"""Operations on one megabyte of data, compared with torch: the time of kernels and copies.

    python -m benchmarks.operations_1mb [--device cuda] [--only PART,PART] [--seconds 0.3] [--json]

On a CPU with one thread: both libraries take turns, and a figure is the tenth percentile of the
processor time of many turns, which other programs on the machine change least. On a GPU the arrays
have 64 megabytes, and a figure is the time between two events, without the host's time. The slowest
beside torch come first.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import measure
import numpy as np

import minigrad
from kernels import simt

SIDES = {"cpu": 512, "cuda": 4096}  # side * side float32 numbers: 1 megabyte, and 64
SHORT, CHANNELS = 64, 16
TURN = 3e-4  # seconds of the calls of a turn


def inputs(side: int) -> dict[str, np.ndarray]:
    """Arrays by the names that the table below uses, each of about side * side numbers, or less."""
    count, images = side * side, side * side // (CHANNELS * 32 * 32)
    rng = np.random.default_rng(0)

    def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    def integers(low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
        return rng.integers(low, high, shape).astype(dtype)

    made = {
        "x": normal(count), "y": normal(count), "positive": np.abs(normal(count)) * 1e-3,
        "ones": np.ones(count), "m": normal(side, side), "m2": normal(side, side),
        "abs2": np.abs(normal(side, side)), "ones_m": np.ones((side, side)),
        "zeros": np.zeros((side, side)), "column": np.ones((side, 1)), "vector": np.ones(side),
        "rows": normal(count // SHORT, SHORT), "short": np.ones(SHORT),
        "points": normal(count // SHORT, 3), "part": normal(256, 256), "part2": normal(256, 256),
        "matrices": normal(64, 64, 64), "table": normal(1000, 64),
        "triples": normal(count // 3, 3), "triples2": normal(count // 3, 3),
        "sequence": np.sort(normal(1000)), "images": normal(images, CHANNELS, 32, 32),
        "signals": normal(images * CHANNELS, 1, 1024), "volumes": normal(16, 16, 8, 16, 8),
        "grid": rng.random((images, 32, 32, 2)) * 2 - 1, "channels": np.ones(CHANNELS),
        "bias": np.ones((CHANNELS, 1, 1)),
    }  # fmt: skip
    made = {name: array.astype(np.float32) for name, array in made.items()}
    bools = rng.random(count) < 0.5
    return made | {
        "f64": normal(count // 2, dtype=float), "m64": normal(side // 2, side, dtype=float),
        "abs64": np.abs(normal(count // 2, dtype=float)), "half": made["x"].astype(np.float16),
        "half2": made["y"].astype(np.float16), "half_matrix": made["m"].astype(np.float16),
        "i32": integers(-100, 100, count, dtype=np.int32),
        "j32": integers(1, 100, count, dtype=np.int32),
        "few": integers(-100, 100, 10, dtype=np.int32),
        "many": integers(-100, 100, 1000, dtype=np.int32),
        "i64": integers(-100, 100, count // 2), "j64": integers(1, 100, count // 2),
        "bytes": integers(0, 64, count, dtype=np.uint8), "once": np.ones(side, np.int64),
        "index": integers(0, side, side), "indices": integers(0, side, side, side),
        "words": integers(0, 1000, count // 64), "bags": integers(0, 1000, count // 64),
        "classes": integers(0, 64, count // 64), "labels": np.arange(count // SHORT) % SHORT,
        "bools": bools, "nots": ~bools, "mask": bools.reshape(side, side),
        "mask_column": bools[:side].reshape(side, 1), "false": np.zeros((side, side), bool),
        "true": np.ones((side, side), bool),
    }  # fmt: skip


# (name, the operation of a library and tensors, the names of these)
CASES: list[tuple[str, Callable, str]] = [
    ("add x+y", lambda lib, a, b: a + b, "x y"),
    ("add x+1", lambda lib, a: a + 1, "x"),
    ("mul", lambda lib, a, b: a * b, "x y"),
    ("div", lambda lib, a, b: a / b, "x y"),
    ("neg", lambda lib, a: -a, "x"),
    ("add row", lambda lib, a, b: a + b, "m vector"),
    ("add col", lambda lib, a, b: a + b, "m column"),
    ("add int32", lambda lib, a: a + a, "i32"),
    ("floordiv int", lambda lib, a: a // 3, "i32"),
    ("addcmul", lambda lib, a, b: lib.addcmul(a, a, b), "x y"),
    ("lerp", lambda lib, a, b: lib.lerp(a, b, 0.3), "x y"),
    ("add_ 1", lambda lib, a: a.add_(1), "x"),
    ("add_ y", lambda lib, a, b: a.add_(b), "x y"),
    ("mul_ y", lambda lib, a, b: a.mul_(b), "x ones"),
    ("mul_ s", lambda lib, a: a.mul_(1.0), "x"),
    ("clamp_", lambda lib, a: a.clamp_(-1, 1), "x"),
    ("relu_", lambda lib, a: a.relu_(), "x"),
    ("zero_", lambda lib, a: a.zero_(), "x"),
    ("copy_", lambda lib, a, b: a.copy_(b), "x y"),
    ("copy_ T", lambda lib, a, b: a.copy_(b.t()), "m m2"),
    ("addcmul_", lambda lib, a, b: a.addcmul_(b, b, value=1e-09), "x y"),
    ("lerp_", lambda lib, a, b: a.lerp_(b, 0.001), "x y"),
    ("masked_fill_", lambda lib, a, b: a.masked_fill_(b, 1.0), "m mask"),
    ("view add_", lambda lib, a: a[:, 1:].add_(1), "m"),
    ("clone", lambda lib, a: a.clone(), "x"),
    ("zeros_like", lambda lib, a: lib.zeros_like(a), "x"),
    ("x > 0", lambda lib, a: a > 0, "x"),
    ("x == y", lambda lib, a, b: a == b, "x y"),
    ("where", lambda lib, c, a, b: lib.where(c, a, b), "mask m m2"),
    ("maximum", lambda lib, a, b: lib.maximum(a, b), "x y"),
    ("clamp", lambda lib, a: a.clamp(-1, 1), "x"),
    ("abs", lambda lib, a: a.abs(), "x"),
    ("exp", lambda lib, a: a.exp(), "x"),
    ("log", lambda lib, a: a.log(), "positive"),
    ("sqrt", lambda lib, a: a.sqrt(), "positive"),
    ("rsqrt", lambda lib, a: a.rsqrt(), "positive"),
    ("sin", lambda lib, a: a.sin(), "x"),
    ("tanh", lambda lib, a: a.tanh(), "x"),
    ("sigmoid", lambda lib, a: a.sigmoid(), "x"),
    ("gelu", lambda lib, a: lib.nn.functional.gelu(a), "x"),
    ("gelu tanh", lambda lib, a: lib.nn.functional.gelu(a, approximate="tanh"), "x"),
    ("silu", lambda lib, a: lib.nn.functional.silu(a), "x"),
    ("softplus", lambda lib, a: lib.nn.functional.softplus(a), "x"),
    ("relu", lambda lib, a: a.relu(), "x"),
    ("pow 2", lambda lib, a: a**2, "x"),
    ("pow 2.5", lambda lib, a: a**2.5, "positive"),
    ("round", lambda lib, a: a.round(), "x"),
    ("to f16", lambda lib, a: a.to(lib.float16), "x"),
    ("to bf16", lambda lib, a: a.to(lib.bfloat16) if hasattr(lib, "bfloat16") else a, "x"),
    ("from f16", lambda lib, a: a.to(lib.float32), "half"),
    ("f16 add", lambda lib, a: a + a, "half"),
    ("to f64", lambda lib, a: a.double(), "x"),
    ("to int32", lambda lib, a: a.to(lib.int32), "x"),
    ("int64 to f32", lambda lib, a: a.to(lib.float32), "i64"),
    ("bool to f32", lambda lib, a: a.to(lib.float32), "mask"),
    ("f32 to bool", lambda lib, a: a.to(lib.bool), "x"),
    ("sum all", lambda lib, a: a.sum(), "x"),
    ("sum d0", lambda lib, a: a.sum(0), "m"),
    ("sum d1", lambda lib, a: a.sum(1), "m"),
    ("sum short", lambda lib, a: a.sum(1), "rows"),
    ("sum nchw", lambda lib, a: a.sum((0, 2, 3)), "images"),
    ("mean all", lambda lib, a: a.mean(), "x"),
    ("var d1", lambda lib, a: a.var(1), "m"),
    ("std all", lambda lib, a: a.std(), "x"),
    ("max all", lambda lib, a: a.max(), "x"),
    ("max d0", lambda lib, a: a.max(0), "m"),
    ("max d1", lambda lib, a: a.max(1), "m"),
    ("amax d1", lambda lib, a: a.amax(1), "m"),
    ("argmax all", lambda lib, a: a.argmax(), "x"),
    ("argmax d0", lambda lib, a: a.argmax(0), "m"),
    ("argmax d1", lambda lib, a: a.argmax(1), "m"),
    ("argmax short", lambda lib, a: a.argmax(1), "rows"),
    ("norm", lambda lib, a: a.norm(), "x"),
    ("logsumexp", lambda lib, a: a.logsumexp(1), "m"),
    ("any", lambda lib, a: a.any(), "false"),
    ("prod d1", lambda lib, a: a.prod(1), "m"),
    ("mask sum", lambda lib, a: a.sum(), "mask"),
    ("softmax long", lambda lib, a: a.softmax(1), "m"),
    ("softmax short", lambda lib, a: a.softmax(1), "rows"),
    ("softmax d0", lambda lib, a: a.softmax(0), "m"),
    ("softmax one row", lambda lib, a: a.softmax(0), "x"),
    ("log_softmax long", lambda lib, a: a.log_softmax(1), "m"),
    ("log_softmax short", lambda lib, a: a.log_softmax(1), "rows"),
    (
        "layer_norm long",
        lambda lib, a, w, b: lib.nn.functional.layer_norm(a, w.shape, w, b),
        "m vector vector",
    ),
    (
        "layer_norm short",
        lambda lib, a, w, b: lib.nn.functional.layer_norm(a, w.shape, w, b),
        "rows short short",
    ),
    ("flip all", lambda lib, a: a.flip(0), "x"),
    ("flip d1", lambda lib, a: a.flip(1), "m"),
    ("flip d0", lambda lib, a: a.flip(0), "m"),
    ("flip w nchw", lambda lib, a: a.flip(3), "images"),
    ("roll", lambda lib, a: a.roll(5, 1), "m"),
    ("t contiguous", lambda lib, a: a.t().contiguous(), "m"),
    ("permute 0231", lambda lib, a: a.permute(0, 2, 3, 1).contiguous(), "images"),
    ("permute 0213", lambda lib, a: a.permute(0, 2, 1, 3).contiguous(), "images"),
    ("slice contig", lambda lib, a: a[:, ::2].contiguous(), "m"),
    ("cat d0", lambda lib, a, b: lib.cat([a, b]), "m m2"),
    ("cat d1", lambda lib, a, b: lib.cat([a, b], 1), "m m2"),
    ("stack", lambda lib, a, b: lib.stack([a, b]), "m m2"),
    ("stack -1", lambda lib, a, b: lib.stack([a, b], -1), "m m2"),
    ("repeat", lambda lib, a: a.repeat(len(a), 1), "vector"),
    ("repeat_interleave", lambda lib, a: a.repeat_interleave(2, 1), "m"),
    ("tril", lambda lib, a: a.tril(), "m"),
    ("index_select 0", lambda lib, a, i: a.index_select(0, i), "m index"),
    ("index_select 1", lambda lib, a, i: a.index_select(1, i), "m index"),
    ("a[idx]", lambda lib, a, i: a[i], "m index"),
    ("gather 0", lambda lib, a, i: a.gather(0, i), "m indices"),
    ("gather 1", lambda lib, a, i: a.gather(1, i), "m indices"),
    ("scatter_add", lambda lib, a, i, b: a.scatter_add(1, i, b), "m indices m2"),
    ("scatter_", lambda lib, a, i, b: a.scatter_(1, i, b), "m indices m2"),
    ("index_add", lambda lib, a, i, b: a.index_add(0, i, b), "m index m2"),
    ("masked_fill", lambda lib, a, k: a.masked_fill(k, 0.0), "m mask"),
    ("masked_select", lambda lib, a, k: a.masked_select(k), "m mask"),
    ("nonzero", lambda lib, k: k.nonzero(), "mask"),
    ("sort d1", lambda lib, a: a.sort(1), "m"),
    ("sort short", lambda lib, a: a.sort(1), "rows"),
    ("argsort all", lambda lib, a: a.argsort(), "x"),
    ("topk 5", lambda lib, a: a.topk(5, 1), "m"),
    ("cumsum 1", lambda lib, a: a.cumsum(1), "m"),
    ("cumsum 0", lambda lib, a: a.cumsum(0), "m"),
    ("cumsum all", lambda lib, a: a.cumsum(0), "x"),
    ("pad", lambda lib, a: lib.nn.functional.pad(a, (1, 1, 1, 1)), "images"),
    (
        "pad reflect",
        lambda lib, a: lib.nn.functional.pad(a, (1, 1, 1, 1), mode="reflect"),
        "images",
    ),
    ("embedding", lambda lib, w, i: lib.nn.functional.embedding(i, w), "table words"),
    ("one_hot", lambda lib, i: lib.nn.functional.one_hot(i, 64), "classes"),
    ("max_pool 2", lambda lib, a: lib.nn.functional.max_pool2d(a, 2), "images"),
    ("avg_pool 2", lambda lib, a: lib.nn.functional.avg_pool2d(a, 2), "images"),
    ("max_pool 3s2p1", lambda lib, a: lib.nn.functional.max_pool2d(a, 3, 2, 1), "images"),
    (
        "interp near",
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=2, mode="nearest"),
        "images",
    ),
    (
        "interp bilin",
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=2, mode="bilinear"),
        "images",
    ),
    ("bmm", lambda lib, a: lib.bmm(a, a), "matrices"),
    ("einsum ij,ij->i", lambda lib, a, b: lib.einsum("ij,ij->i", a, b), "m m2"),
    ("outer", lambda lib, a: lib.outer(a, a), "vector"),
    ("mv", lambda lib, a, b: a @ b, "m vector"),
    ("dot", lambda lib, a, b: lib.dot(a, b), "x y"),
    ("cross_entropy", lambda lib, a, i: lib.nn.functional.cross_entropy(a, i), "rows labels"),
    ("mse_loss", lambda lib, a, b: lib.nn.functional.mse_loss(a, b), "x y"),
    ("bincount", lambda lib, i: lib.bincount(i.reshape(-1)), "indices"),
    ("isnan", lambda lib, a: lib.isnan(a), "x"),
    ("cdist", lambda lib, a: lib.cdist(a[:256], a[:256]), "rows"),
    ("unique", lambda lib, a: lib.unique(a), "i32"),
    ("cos", lambda lib, a: a.cos(), "x"),
    ("tan", lambda lib, a: a.tan(), "x"),
    ("erf", lambda lib, a: a.erf(), "x"),
    ("exp2", lambda lib, a: a.exp2(), "x"),
    ("expm1", lambda lib, a: a.expm1(), "x"),
    ("log1p", lambda lib, a: a.log1p(), "positive"),
    ("log2", lambda lib, a: a.log2(), "positive"),
    ("atan", lambda lib, a: a.atan(), "x"),
    ("atan2", lambda lib, a, b: lib.atan2(a, b), "x y"),
    ("asin", lambda lib, a: a.asin(), "positive"),
    ("sinh", lambda lib, a: a.sinh(), "x"),
    ("hypot", lambda lib, a, b: lib.hypot(a, b), "x y"),
    ("fmod", lambda lib, a, b: lib.fmod(a, b), "x y"),
    ("remainder", lambda lib, a: lib.remainder(a, 0.7), "x"),
    ("floor", lambda lib, a: a.floor(), "x"),
    ("sign", lambda lib, a: a.sign(), "x"),
    ("lgamma", lambda lib, a: a.lgamma(), "positive"),
    ("elu", lambda lib, a: lib.nn.functional.elu(a), "x"),
    ("leaky_relu", lambda lib, a: lib.nn.functional.leaky_relu(a), "x"),
    ("hardswish", lambda lib, a: lib.nn.functional.hardswish(a), "x"),
    ("nan_to_num", lambda lib, a: lib.nan_to_num(a), "x"),
    ("isfinite", lambda lib, a: lib.isfinite(a), "x"),
    ("logaddexp", lambda lib, a, b: lib.logaddexp(a, b), "x y"),
    ("where row", lambda lib, c, a, b: lib.where(c, a, b), "mask m vector"),
    ("where scalar", lambda lib, c, a: lib.where(c, a, 0.0), "mask m"),
    ("where col", lambda lib, c, a, b: lib.where(c, a, b), "mask_column m m2"),
    ("logsumexp one row", lambda lib, a: a.logsumexp(0), "x"),
    ("log_softmax one row", lambda lib, a: a.log_softmax(0), "x"),
    ("logsumexp d0", lambda lib, a: a.logsumexp(0), "m"),
    ("std d0", lambda lib, a: a.std(0), "m"),
    ("var d0", lambda lib, a: a.var(0), "m"),
    ("var short", lambda lib, a: a.var(1), "rows"),
    ("var nchw", lambda lib, a: a.var((0, 2, 3)), "images"),
    ("mean d0", lambda lib, a: a.mean(0), "m"),
    ("prod all", lambda lib, a: a.prod(), "x"),
    ("prod d0", lambda lib, a: a.prod(0), "m"),
    ("norm p1 d1", lambda lib, a: a.norm(p=1, dim=1), "m"),
    ("norm p2 d1", lambda lib, a: a.norm(p=2, dim=1), "m"),
    ("norm p2 d0", lambda lib, a: a.norm(p=2, dim=0), "m"),
    ("norm p3 d1", lambda lib, a: a.norm(p=3, dim=1), "m"),
    ("norm inf", lambda lib, a: a.norm(p=float("inf")), "x"),
    ("any d1", lambda lib, a: a.any(1), "mask"),
    ("all d0", lambda lib, a: a.all(0), "mask"),
    ("all", lambda lib, a: a.all(), "true"),
    ("any f32", lambda lib, a: a.any(), "zeros"),
    ("sum int32", lambda lib, a: a.sum(), "i32"),
    ("sum int64", lambda lib, a: a.sum(), "i64"),
    ("max int64", lambda lib, a: a.max(), "i64"),
    ("min d1", lambda lib, a: a.min(1), "m"),
    ("aminmax", lambda lib, a: lib.aminmax(a)[1], "x"),
    ("median d1", lambda lib, a: a.median(1), "m"),
    ("kthvalue", lambda lib, a: a.kthvalue(5, 1), "m"),
    ("quantile", lambda lib, a: a.quantile(0.5, 1), "m"),
    ("count_nonzero", lambda lib, a: lib.count_nonzero(a), "x"),
    ("cumprod 1", lambda lib, a: a.cumprod(1), "m"),
    ("cumprod 0", lambda lib, a: a.cumprod(0), "m"),
    ("cummax 1", lambda lib, a: a.cummax(1), "m"),
    ("cummax 0", lambda lib, a: a.cummax(0), "m"),
    ("logcumsumexp", lambda lib, a: a.logcumsumexp(1), "m"),
    ("diff", lambda lib, a: lib.diff(a), "m"),
    ("sort all", lambda lib, a: a.sort(), "x"),
    ("sort d0", lambda lib, a: a.sort(0), "m"),
    ("sort int32", lambda lib, a: a.sort(), "i32"),
    ("sort int64 d1", lambda lib, a: a.reshape(-1, 512).sort(1), "i64"),
    ("argsort short", lambda lib, a: a.argsort(1), "rows"),
    ("topk 100", lambda lib, a: a.topk(100, 1), "m"),
    ("topk short", lambda lib, a: a.topk(3, 1), "rows"),
    ("topk all", lambda lib, a: a.topk(10), "x"),
    ("topk d0", lambda lib, a: a.topk(5, 0), "m"),
    ("unique f32", lambda lib, a: lib.unique(a), "x"),
    ("unique inv", lambda lib, a: lib.unique(a, return_inverse=True, return_counts=True), "i32"),
    ("unique_consec", lambda lib, a: lib.unique_consecutive(a), "i32"),
    ("histc", lambda lib, a: lib.histc(a, 100, -3, 3), "x"),
    ("isin", lambda lib, a, b: lib.isin(a, b), "i32 few"),
    ("isin many", lambda lib, a, b: lib.isin(a, b), "i32 many"),
    ("searchsorted", lambda lib, a, b: lib.searchsorted(a, b), "sequence x"),
    ("bucketize", lambda lib, a, b: lib.bucketize(a, b), "x sequence"),
    ("masked_scatter", lambda lib, a, k, b: a.masked_scatter(k, b), "m mask m2"),
    ("a[mask]=0", lambda lib, a, k: lib.Tensor.__setitem__(a, k, 0.0), "m mask"),
    ("a[mask]", lambda lib, a, k: a[k], "m mask"),
    ("index_put", lambda lib, a, i, b: a.index_put((i,), b), "m index m2"),
    ("index_copy", lambda lib, a, i, b: a.index_copy(0, i, b), "m index m2"),
    ("index_fill", lambda lib, a, i: a.index_fill(0, i, 1.0), "m index"),
    ("a[:,idx]", lambda lib, a, i: a[:, i], "m index"),
    ("a[i,j]", lambda lib, a, i: a[i, i.flip(1)], "m indices"),
    ("take", lambda lib, a, i: a.take(i), "m indices"),
    ("take_along_dim", lambda lib, a, i: a.take_along_dim(i, 1), "m indices"),
    ("scatter_add 0", lambda lib, a, i, b: a.scatter_add(0, i, b), "m indices m2"),
    ("scatter_reduce", lambda lib, a, i, b: a.scatter_reduce(1, i, b, "amax"), "m indices m2"),
    ("index_select f64 1", lambda lib, a, i: a.index_select(1, i), "m64 index"),
    ("pad const 2d", lambda lib, a: lib.nn.functional.pad(a, (3, 2), value=1.0), "m"),
    ("pad 1d", lambda lib, a: lib.nn.functional.pad(a, (1, 1)), "rows"),
    (
        "pad replicate",
        lambda lib, a: lib.nn.functional.pad(a, (1, 1, 1, 1), mode="replicate"),
        "images",
    ),
    (
        "pad circular",
        lambda lib, a: lib.nn.functional.pad(a, (1, 1, 1, 1), mode="circular"),
        "images",
    ),
    ("pad reflect 1d", lambda lib, a: lib.nn.functional.pad(a, (3, 3), mode="reflect"), "signals"),
    ("roll all", lambda lib, a: a.roll(5), "x"),
    ("roll d0", lambda lib, a: a.roll(5, 0), "m"),
    ("tile", lambda lib, a: lib.tile(a, (2, 2)), "m"),
    ("repeat 2", lambda lib, a: a.repeat(2, 2), "m"),
    ("repeat_inter 0", lambda lib, a: a.repeat_interleave(2, 0), "m"),
    ("repeat_inter t", lambda lib, a, i: a.repeat_interleave(i, 0), "m once"),
    ("rot90", lambda lib, a: lib.rot90(a), "m"),
    ("permute 3210", lambda lib, a: a.permute(3, 2, 1, 0).contiguous(), "images"),
    ("permute 1023", lambda lib, a: a.permute(1, 0, 2, 3).contiguous(), "images"),
    ("permute 0312", lambda lib, a: a.permute(0, 3, 1, 2).contiguous(), "images"),
    ("permute vol", lambda lib, a: a.permute(0, 2, 4, 1, 3).contiguous(), "volumes"),
    ("t contig f64", lambda lib, a: a.t().contiguous(), "m64"),
    ("t contig bool", lambda lib, a: a.t().contiguous(), "mask"),
    ("t contig f16", lambda lib, a: a.t().contiguous(), "half_matrix"),
    ("add T", lambda lib, a, b: a + b.t(), "m m2"),
    ("mul_ T", lambda lib, a, b: a.mul_(b.t()), "m ones_m"),
    ("sum T", lambda lib, a: a.t().sum(1), "m"),
    ("unfold", lambda lib, a: lib.nn.functional.unfold(a, 3, padding=1), "images"),
    ("pixel_shuffle", lambda lib, a: lib.nn.functional.pixel_shuffle(a, 2), "images"),
    ("max_pool 1d", lambda lib, a: lib.nn.functional.max_pool1d(a, 2), "signals"),
    ("avg_pool 3s2p1", lambda lib, a: lib.nn.functional.avg_pool2d(a, 3, 2, 1), "images"),
    ("max_pool 3s1p1", lambda lib, a: lib.nn.functional.max_pool2d(a, 3, 1, 1), "images"),
    (
        "max_pool idx",
        lambda lib, a: lib.nn.functional.max_pool2d(a, 2, return_indices=True),
        "images",
    ),
    ("adaptive_avg 1", lambda lib, a: lib.nn.functional.adaptive_avg_pool2d(a, 1), "images"),
    ("adaptive_avg 7", lambda lib, a: lib.nn.functional.adaptive_avg_pool2d(a, 7), "images"),
    ("adaptive_max 7", lambda lib, a: lib.nn.functional.adaptive_max_pool2d(a, 7), "images"),
    ("max_pool3d", lambda lib, a: lib.nn.functional.max_pool3d(a, 2), "volumes"),
    ("avg_pool3d", lambda lib, a: lib.nn.functional.avg_pool3d(a, 2), "volumes"),
    ("lp_pool", lambda lib, a: lib.nn.functional.lp_pool2d(a, 2, 2), "images"),
    (
        "interp bicubic",
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=2, mode="bicubic"),
        "images",
    ),
    (
        "interp down",
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=0.5, mode="bilinear"),
        "images",
    ),
    (
        "interp linear",
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=2, mode="linear"),
        "signals",
    ),
    (
        "grid_sample",
        lambda lib, a, g: lib.nn.functional.grid_sample(a, g, align_corners=False),
        "images grid",
    ),
    (
        "batch_norm eval",
        lambda lib, a, b: lib.nn.functional.batch_norm(a, b, b, b, b),
        "images channels",
    ),
    (
        "batch_norm train",
        lambda lib, a, b: lib.nn.functional.batch_norm(a, None, None, b, b, True),
        "images channels",
    ),
    ("group_norm", lambda lib, a: lib.nn.functional.group_norm(a, 2), "images"),
    ("instance_norm", lambda lib, a: lib.nn.functional.instance_norm(a), "images"),
    ("rms_norm", lambda lib, a, b: lib.nn.functional.rms_norm(a, b.shape, b), "m vector"),
    ("normalize", lambda lib, a: lib.nn.functional.normalize(a), "m"),
    ("cosine_sim", lambda lib, a, b: lib.nn.functional.cosine_similarity(a, b), "m m2"),
    ("glu", lambda lib, a: lib.nn.functional.glu(a), "m"),
    ("f16 mul", lambda lib, a, b: a * b, "half half2"),
    ("f16 sum", lambda lib, a: a.sum(), "half"),
    ("f16 exp", lambda lib, a: a.exp(), "half"),
    ("f16 softmax", lambda lib, a: a.reshape(-1, 512).softmax(1), "half"),
    ("bf16 add", lambda lib, a: a.to(lib.bfloat16) + a.to(lib.bfloat16), "x"),
    ("f64 add", lambda lib, a: a + a, "f64"),
    ("f64 mul s", lambda lib, a: a * 2.5, "f64"),
    ("f64 exp", lambda lib, a: a.exp(), "f64"),
    ("f64 log", lambda lib, a: a.abs().log(), "f64"),
    ("f64 sin", lambda lib, a: a.sin(), "f64"),
    ("f64 tanh", lambda lib, a: a.tanh(), "f64"),
    ("f64 sigmoid", lambda lib, a: a.sigmoid(), "f64"),
    ("f64 sqrt", lambda lib, a: a.sqrt(), "abs64"),
    ("f64 pow", lambda lib, a: a**2.5, "abs64"),
    ("f64 erf", lambda lib, a: a.erf(), "f64"),
    ("f64 sum", lambda lib, a: a.sum(), "f64"),
    ("f64 sum d0", lambda lib, a: a.sum(0), "m64"),
    ("f64 sum d1", lambda lib, a: a.sum(1), "m64"),
    ("f64 max d1", lambda lib, a: a.max(1), "m64"),
    ("f64 softmax", lambda lib, a: a.softmax(1), "m64"),
    ("f64 var", lambda lib, a: a.var(1), "m64"),
    ("f64 cumsum", lambda lib, a: a.cumsum(1), "m64"),
    ("f64 to f32", lambda lib, a: a.float(), "f64"),
    ("f64 sort", lambda lib, a: a.sort(1), "m64"),
    ("i32 mul", lambda lib, a, b: a * b, "i32 j32"),
    ("i32 div", lambda lib, a, b: a / b, "i32 j32"),
    ("i32 fdiv t", lambda lib, a, b: a // b, "i32 j32"),
    ("i32 mod", lambda lib, a, b: a % b, "i32 j32"),
    ("i32 and", lambda lib, a, b: a & b, "i32 j32"),
    ("i32 shift", lambda lib, a: a << 2, "i32"),
    ("i32 abs", lambda lib, a: a.abs(), "i32"),
    ("i32 max2", lambda lib, a, b: lib.maximum(a, b), "i32 j32"),
    ("i32 eq s", lambda lib, a: a == 3, "i32"),
    ("i32 clamp", lambda lib, a: a.clamp(-5, 5), "i32"),
    ("i64 add", lambda lib, a, b: a + b, "i64 j64"),
    ("i64 mul", lambda lib, a, b: a * b, "i64 j64"),
    ("i64 mul s", lambda lib, a: a * 3, "i64"),
    ("i64 fdiv", lambda lib, a, b: a // b, "i64 j64"),
    ("i64 fdiv s", lambda lib, a: a // 3, "i64"),
    ("i64 mod s", lambda lib, a: a % 7, "i64"),
    ("i64 mod", lambda lib, a, b: a % b, "i64 j64"),
    ("i64 lt", lambda lib, a, b: a < b, "i64 j64"),
    ("i64 eq s", lambda lib, a: a == 3, "i64"),
    ("i64 to i32", lambda lib, a: a.to(lib.int32), "i64"),
    ("i32 to i64", lambda lib, a: a.to(lib.int64), "i32"),
    ("i64 to f64", lambda lib, a: a.to(lib.float64), "i64"),
    ("u8 add", lambda lib, a: a + a, "bytes"),
    ("u8 to f32", lambda lib, a: a.to(lib.float32), "bytes"),
    ("f32 to u8", lambda lib, a: a.abs().to(lib.uint8), "x"),
    ("bool and", lambda lib, a, b: a & b, "bools nots"),
    ("bool not", lambda lib, a: ~a, "bools"),
    ("bool xor", lambda lib, a, b: a ^ b, "bools nots"),
    ("logical_and", lambda lib, a, b: lib.logical_and(a, b), "x y"),
    ("x<y and y>0", lambda lib, a, b: (a < b) & (b > 0), "x y"),
    ("bool mul f32", lambda lib, a, b: a * b, "x bools"),
    ("triu", lambda lib, a: a.triu(1), "m"),
    ("diag embed", lambda lib, a: lib.diag(a), "vector"),
    ("trace", lambda lib, a: lib.trace(a), "m"),
    ("cross", lambda lib, a, b: lib.linalg.cross(a, b), "triples triples2"),
    ("cdist small", lambda lib, a: lib.cdist(a[:20], a[:20]), "rows"),
    ("cdist p1", lambda lib, a: lib.cdist(a[:256], a[:256], p=1), "rows"),
    ("pdist", lambda lib, a: lib.pdist(a[:256]), "rows"),
    ("cdist 1M out", lambda lib, a: lib.cdist(a[:512], a[:512]), "points"),
    ("l1_loss", lambda lib, a, b: lib.nn.functional.l1_loss(a, b), "x y"),
    ("smooth_l1", lambda lib, a, b: lib.nn.functional.smooth_l1_loss(a, b), "x y"),
    (
        "bce_logits",
        lambda lib, a, b: lib.nn.functional.binary_cross_entropy_with_logits(a, b),
        "x positive",
    ),
    ("kl_div", lambda lib, a, b: lib.nn.functional.kl_div(a, b, reduction="batchmean"), "m abs2"),
    ("addmm", lambda lib, a, b: lib.addmm(a, a, b), "part part2"),
    ("addmv", lambda lib, a, b: lib.addmv(b, a, b), "m vector"),
    ("reciprocal", lambda lib, a: 1 / a, "x"),
    ("pow 3", lambda lib, a: a**3, "x"),
    ("pow -1", lambda lib, a: a ** (-1), "x"),
    ("square", lambda lib, a: a.square(), "x"),
    ("add 0231 bias", lambda lib, a, b: a + b, "images bias"),
    (
        "embed_bag",
        lambda lib, w, i: lib.nn.functional.embedding_bag(i.reshape(-1, 8), w),
        "table bags",
    ),
    ("cumsum int64", lambda lib, a: a.cumsum(0), "i64"),
    ("bincount w", lambda lib, i, w: lib.bincount(i.reshape(-1), w.reshape(-1)), "indices m"),
]


def processor_time(call: Callable[[], object], count: int) -> float:
    started = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - started) / count


def compared(ours: Callable, theirs: Callable, seconds: float) -> tuple[float, float]:
    """Seconds per call of both."""
    calls, taken = (ours, theirs), ([], [])
    for call in calls:
        for _ in range(4):  # the first ones compile
            call()
    counts = [max(1, int(TURN / max(processor_time(call, 2), 1e-7))) for call in calls]
    gc.collect()
    gc.disable()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not taken[1]:
        for call, count, found in zip(calls, counts, taken, strict=True):
            call()
            found.append(processor_time(call, count))
    gc.enable()
    first, second = (sorted(found)[len(found) // 10] for found in taken)
    return first, second


def on_gpu(ours: Callable, theirs: Callable) -> tuple[float, float]:
    """Seconds per call of both on the GPU."""
    from first_contact import by_events

    return by_events(ours, 3, 5), by_events(theirs, 3, 5)


def measured(case: tuple[str, Callable, str], arrays: dict, device: str, seconds: float) -> dict:
    import torch

    name, function, operands = case

    def call(library: ModuleType) -> Callable:
        copies = [library.from_numpy(arrays[key].copy()) for key in operands.split()]
        tensors = [copy.to(device) for copy in copies]
        return lambda: function(library, *tensors)

    with minigrad.no_grad(), torch.no_grad():
        calls = call(minigrad), call(torch)
        ours, theirs = on_gpu(*calls) if device == "cuda" else compared(*calls, seconds)
    return {"case": name, "minigrad": ours, "torch": theirs, "ratio": ours / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=SIDES, default="cpu", help="default: cpu")
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--seconds", type=float, default=0.3, help="per operation, on a CPU")
    parser.add_argument("--json", action="store_true", help="write a file in benchmarks/results")
    options = parser.parse_args()
    import torch

    simt.set_num_threads(1)
    torch.set_num_threads(1)
    arrays, parts = inputs(SIDES[options.device]), options.only.split(",")
    chosen = [case for case in CASES if any(part in case[0] for part in parts)]
    rows = [measured(case, arrays, options.device, options.seconds) for case in chosen]
    for row in sorted(rows, key=lambda row: -row["ratio"]):
        times = f"{row['minigrad'] * 1e6:10.1f} us {row['torch'] * 1e6:10.1f} us"
        print(f"{row['case']:<20} {times}  x {row['ratio']:.2f}")
    if options.json:
        name = "operations_1mb" if options.device == "cpu" else "operations_64mb"
        measure.write_json(measure.results_path(name), 1, rows)


if __name__ == "__main__":
    main()
