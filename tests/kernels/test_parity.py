"""One table of cases for every family, run on every backend against the reference in float64.

The shapes are awkward and few; what a family has beyond them is tested in its own file. On the CPU
the kernels in CUDA C run with their threads in both orders: a missing barrier shows in one of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import dispatch, host, reference
from kernels.launchers.attention import VERSIONS as ATTENTIONS
from kernels.launchers.embedding import VERSIONS as SCATTERS
from kernels.launchers.reduction import VERSIONS as REDUCERS
from kernels.launchers.row_norm import BACKWARD as NORM_BACKWARDS
from kernels.launchers.row_norm import FORWARD as NORMS
from kernels.launchers.scan import VERSIONS as SCANS
from kernels.launchers.softmax import BACKWARD as SOFTMAX_BACKWARDS
from kernels.launchers.softmax import FORWARD as SOFTMAXES
from kernels.launchers.transpose import VERSIONS as TRANSPOSES
from kernels.pointwise import TABLE
from kernels.reduction import TABLE as REDUCTIONS
from tests.kernels.helpers import BFLOAT16, DEVICES, as_wide, assert_close, normal, put, wide

BACKENDS = ("numba", "cupy")


def versions(backend: str, family: str) -> list[str]:
    return [version for name, version, _ in dispatch.dialect(backend).CATALOG if name == family]


# Each case: an operation, its arguments, keywords; the scale that errors are relative to.
def pointwise(rng, backend):
    a, b = normal(rng, (33, 31)), normal(rng, (33, 31))
    for name in ("add", "gelu"):
        yield "pointwise", (TABLE[name], *(a, b)[: len(TABLE[name].args)]), {}, 4
    yield "pointwise", (TABLE["add"], a.T, b[:, 5]), {}, 4
    yield "pointwise", (TABLE["mul"], a[::2, ::-1], 2.5), {}, 4
    yield "pointwise", (TABLE["lerp"], a, b, 0.25), {}, 4  # a number called w
    odd = normal(rng, 1030)[1:]  # not at a multiple of 16 bytes
    yield "pointwise", (TABLE["add"], odd, odd), {}, 4
    whole = [normal(rng, 100, np.int32) + 100 * (i == 1) for i in range(2)]
    yield "pointwise", (TABLE["floor_divide"], *whole), {}, 1
    yield "pointwise", (TABLE["add"], *(v.astype(np.float16) for v in (a, b))), {}, 4


def reductions(rng, backend):
    for version in REDUCERS:
        yield "reduce", ("sum", normal(rng, 1025)), {"version": version}, 1025
    for name in REDUCTIONS:
        yield "reduce", (name, normal(rng, (33, 9)) / 8 + 1, 1), {}, 9
    for shape, axis in [((5, 257), 1), ((2, 40_000), 1), ((257, 33), 0), ((6, 33, 65), (0, 2))]:
        yield "reduce", ("sum", normal(rng, shape), axis), {}, 1000
    yield "reduce", ("argmax", np.round(normal(rng, (2, 40_000)) * 9), 1), {}, 1


def copies(rng, backend):
    for version in TRANSPOSES:
        yield "transpose", (normal(rng, (3, 33, 40)), (0, 2, 1)), {"version": version}, 1
    yield "copy", (normal(rng, (9, 8, 7))[::2, ::-1],), {}, 1
    yield "cast", (np.abs(normal(rng, 257)) * 9, np.dtype(np.int64)), {}, 1
    yield "concat", ([normal(rng, (3, 33)), normal(rng, (3, 5))], 1), {}, 1
    for version in SCANS:
        yield "cumsum", (normal(rng, (2, 17_001)),), {"version": version}, 1000
    yield "cumsum", (normal(rng, (5, 33, 2)), 1), {}, 33


def products(rng, backend):
    m, k, n = 70, 33, 131
    for version in set(versions(backend, "matmul")) - {"matvec", "wgmma"}:
        how = {"version": version}
        if version in ("tensor_core", "mma_sync", "tensor_core_tf32"):
            half = [normal(rng, s).astype(np.float16) for s in [(k, m), (n, k), (n,)]]
            if version == "tensor_core_tf32":  # halves lose nothing in TF32
                half = [x.astype(np.float32) for x in half]
            else:
                pair = [normal(rng, s).astype(BFLOAT16) for s in [(m, k), (k, n)]]
                yield "matmul", pair, how, k
            yield "matmul", (half[0].T, half[1].T, half[2]), how, k
            continue
        yield "matmul", (normal(rng, (m, k)), normal(rng, (k, n))), how, k
        transposed = (normal(rng, (k, m)).T, normal(rng, (n, k)).T, normal(rng, n))
        if version not in ("naive", "coalesced", "register_1d"):
            yield "matmul", transposed, how, k
    yield "matmul", (normal(rng, (33, 100)), normal(rng, (100, 1))), {"version": "matvec"}, 100
    yield "matmul", (normal(rng, (3, 33, 20)), normal(rng, (20, 9))), {}, 20
    yield "matmul", (normal(rng, (3, 8, 32)), normal(rng, (3, 32, 64))), {}, 32  # all aligned
    yield "matmul", tuple(normal(rng, (9, 9), np.int32) for _ in range(2)), {}, 1


def convolutions(rng, backend):
    for versions_, x_shape, w_shape, *options in [
        ((None, "direct", "tiled"), (2, 6, 13, 16), (8, 3, 2, 3), (3, 2), (3, 4), (2, 1), 2),
        ((None,), (2, 9, 10, 11), (9, 1, 3, 3), (1, 1), (1, 1), (1, 1), 9),
        ((None,), (2, 5, 7, 9), (33, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ]:
        x, w, bias = normal(rng, x_shape), normal(rng, w_shape), normal(rng, w_shape[0])
        g = normal(rng, reference.conv2d(x, w, None, *options).shape)
        for version in versions_:
            how = {"version": version}
            yield "conv2d", (x, w, bias, *options), how, 60
            if version != "tiled":
                yield "conv2d_backward_data", (g, w, x_shape, *options), how, 60
                yield "conv2d_backward_weight", (g, x, w_shape, *options), how, 200


def pools(rng, backend):
    for shape, *options in [
        ((2, 3, 33, 31), (2, 2), (2, 2), (0, 0)),
        ((1, 2, 9, 40), (3, 3), (1, 2), (1, 1)),
    ]:
        x = normal(rng, shape)
        yield "max_pool2d", (x, *options), {}, 1
        y, index = reference.max_pool2d(x, *options)
        g = normal(rng, y.shape)
        yield "max_pool2d_backward", (g, index, shape, *options), {}, 2
        yield "avg_pool2d", (x, *options), {"count_include_pad": False}, 2
        yield "avg_pool2d_backward", (g, shape, *options), {"count_include_pad": False}, 2
    yield "max_pool2d_backward", (g, index, shape), {"version": "scatter"}, 2


def softmaxes(rng, backend):
    for version in SOFTMAXES:
        x = 4 * normal(rng, (5, 201))
        x[1, 3], x[2] = np.nan, -np.inf
        axis = 0 if version == "strided" else 1
        x = np.ascontiguousarray(x.T) if axis == 0 else x
        yield "softmax", (x, axis), {"version": version}, 20
        if version in ("warp", "strided"):
            yield "log_softmax", (x, axis), {"version": version}, 40
    for version in SOFTMAX_BACKWARDS:
        axis = 1 if version == "strided" else -1
        g, y = normal(rng, (7, 33, 5)), reference.softmax(normal(rng, (7, 33, 5)), axis)
        yield "softmax_backward", (g, y, axis), {"version": version}, 8
        if version == "warp":
            yield "log_softmax_backward", (g, y, axis), {"version": version}, 33
    logits, target = normal(rng, (65, 33)), rng.integers(0, 33, 65)
    target[::5] = -100
    weight, g = rng.random(33).astype(np.float32), normal(rng, 65)
    for extra in ((), (weight, -100, 0.1)):
        yield "cross_entropy", (logits, target, *extra), {}, 20
        lse = reference.cross_entropy(logits, target)[1]
        yield "cross_entropy_backward", (g, logits, lse, target, *extra), {}, 20


def norms(rng, backend):
    for shape in [(33, 5, 7, 9), (257, 33)]:
        x, g = 2 + 3 * normal(rng, shape), normal(rng, shape)
        weight, bias = normal(rng, shape[1]), normal(rng, shape[1])
        yield "batch_norm", (x, weight, bias, 1e-5), {}, 40
        _, mean, invstd = reference.batch_norm(x, weight, bias, 1e-5)
        yield "batch_norm_apply", (x, mean, invstd, weight, bias), {}, 40
        yield "batch_norm_backward", (g, x, mean, invstd, weight), {}, 2000
    for n in (31, 32):  # the second in packs
        weight, bias = normal(rng, n), normal(rng, n)
        x, g = 2 + 3 * normal(rng, (9, n)), normal(rng, (9, n))
        stats = normal(rng, 9), 1 + normal(rng, 9) ** 2
        for version in NORMS:
            yield "layer_norm", (x, weight, bias, 1e-5), {"version": version}, 40
        for version in NORM_BACKWARDS:
            yield "layer_norm_backward", (g, x, *stats, weight), {"version": version}, 400
    yield "rms_norm", (x, weight, 1e-5), {}, 40
    yield "rms_norm_backward", (g, x, stats[1], weight), {}, 400


def attentions(rng, backend):
    q, k = normal(rng, (2, 4, 33, 16)), normal(rng, (2, 2, 65, 16))
    v, g = normal(rng, (2, 2, 65, 10)), normal(rng, (2, 4, 33, 10))
    mask = np.where(rng.random((2, 1, 33, 65)) < 0.5, -np.inf, normal(rng, (2, 1, 33, 65)))
    mask[0, 0, 3] = -np.inf  # a query that sees nothing
    for version in ATTENTIONS:
        for how in ((mask.astype(np.float32), False), (mask.astype(np.float32)[1, 0], True, 0.3)):
            yield "attention", (q, k, v, *how), {"version": version}, 9
            given = g, q, k, v, *reference.attention(q, k, v, *how), *how
            yield "attention_backward", given, {"version": version}, 20


def random_numbers(rng, backend):
    yield "philox_uint32", (1027, 2**63 + 5, 2**40 + 1), {}, 0
    for dtype in (np.float32, np.float64):
        yield "uniform", ((33, 31), 11, 5, np.dtype(dtype)), {}, 0
        yield "normal", ((33, 31), 11, 5, np.dtype(dtype)), {}, 8
    yield "dropout", (normal(rng, 1027), 0.25, 3, 9), {}, 1


def indices(rng, backend):
    weight, index = normal(rng, (33, 65)), rng.integers(0, 33, (9, 20))
    yield "embedding", (weight, index), {}, 0
    yield "gather", (weight, 0, rng.integers(0, 33, (7, 65))), {}, 0
    yield "take", (weight, index.astype(np.int32)), {}, 0
    for version in SCATTERS:
        how = {"version": version}
        yield "embedding_backward", (normal(rng, (9, 20, 65)), index, 33), how, 30
        src = (rng.integers(0, 65, (33, 20)), normal(rng, (33, 20)))
        yield "scatter_add", (weight, 1, *src), how, 20
    yield "take_backward", (normal(rng, (9, 20)), index, 33), {}, 30


def optimisers(rng, backend):
    p, g, m = (normal(rng, 1027) for _ in range(3))
    v, top = normal(rng, 1027) ** 2, normal(rng, 1027) ** 2
    yield "sgd_", (p, g, None, 0.1, 0.0, 0.0, 0.01), {}, 2
    yield "sgd_", (p, g, m, 0.1, 0.9, 0.3, 0.01), {"nesterov": True, "maximize": True}, 2
    yield "adam_", (p, g, m, v, None, 0.01, 0.9, 0.999, 1e-8, 0.1, 3), {}, 2
    yield "adam_", (p, g, m, v, top, 0.01, 0.9, 0.999, 1e-8, 0.1, 3), {"decoupled": True}, 2


FAMILIES = (
    pointwise, reductions, copies, products, convolutions, pools, softmaxes, norms, attentions,
    random_numbers, indices, optimisers,
)  # fmt: skip


LIKE = ("philox_uint32", "uniform", "normal")  # they have no array that says where


def placed(value, device: str):
    if isinstance(value, list):
        return [placed(v, device) for v in value]
    return put(value.copy(order="K"), device) if isinstance(value, np.ndarray) else value


def results(operation, args: list, kwargs: dict) -> list:
    """What an operation returns, as a list; its arrays where it works in place."""
    returned = operation(*args, **kwargs)
    if returned is None:
        return [a for a in args if hasattr(a, "dtype") and hasattr(a, "shape")]
    return list(returned) if isinstance(returned, tuple) else [returned]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_family(family, backend, device, rng, monkeypatch):
    dialect = dispatch.dialect(backend)
    orders = ("forward", "reversed") if (backend, device) == ("cupy", "cpu") else ("forward",)
    for name, args, kwargs, scale in family(rng, backend):
        wanted = {k: v for k, v in kwargs.items() if k != "version"}
        with np.errstate(all="ignore"):
            exact = args if name in LIKE else [as_wide(placed(a, "cpu")) for a in args]
            expected = results(getattr(reference, name), exact, wanted)
        for order in orders:
            monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
            on_device = [placed(a, device) for a in args]
            extra = {"like": put(np.zeros(1), device)} if name in LIKE else {}
            got = results(getattr(dialect, name), on_device, {**kwargs, **extra})
            assert len(got) == len(expected)
            for a, b in zip(got, expected):
                assert_close(a, wide(np.asarray(b)), scale, terms=9)


def test_every_backend_has_the_same_operations():
    for backend in BACKENDS:
        missing = [n for n in reference.__all__ if not hasattr(dispatch.dialect(backend), n)]
        assert missing == []


def params_of(expr, values: dict[str, float]) -> list[float]:
    return [values[p] for p in expr.params]


SOME_DERIVATIVES = "tanh pow gelu_tanh smooth_l1 where bce sqrt relu maximum".split()


def test_every_line_in_cuda_c(rng):
    """As one translation unit: a compiler started for each would take minutes."""
    from kernels.cuda_c.common import source
    from kernels.cuda_c.pointwise import text
    from kernels.launchers.pointwise import Form, Operand
    from tests.kernels.test_tables import PARAMS, sample

    f32, code, rows = np.dtype(np.float32), [source("pointwise.cuh")], []
    for expr in TABLE.values():
        if expr.domain == "int":
            continue
        arrays = [a if a.dtype == bool else a.astype(np.float32) for a in sample(expr, rng)]
        values = dict(zip(expr.args, arrays))
        values["y"] = reference.pointwise(expr, *arrays, params=params_of(expr, PARAMS))
        values["g"] = normal(rng, arrays[0].shape)
        derivatives = range(len(expr.args)) if expr.name in SOME_DERIVATIVES else ()
        for line in (expr, *filter(None, map(expr.vjp, derivatives))):
            given = [np.ascontiguousarray(values[a]) for a in line.args]
            result = np.dtype(bool) if line.result == "bool" else f32
            form = Form(tuple(Operand(a.dtype) for a in given), f32, result)
            name = f"n{len(rows)}"
            code.append(f"namespace {name} {{\n{text(line, form)}}}\n")
            rows.append((line, given, result, f"{name}::pointwise_{line.name.replace('.', '_')}"))
    module = host.raw_module("".join(code), (), tuple(row[3] for row in rows))
    for line, given, result, name in rows:
        params = params_of(line, PARAMS)
        out = np.empty(given[0].shape, result)
        module.get_function(name)((1,), (32,), (*given, *params, out, out.size))
        with np.errstate(all="ignore"):
            exact = reference.pointwise(line, *map(as_wide, given), params=params)
            scale = sum(np.abs(wide(a)) for a in given) + 10
        assert_close(out, wide(np.asarray(exact)), scale, terms=9)
