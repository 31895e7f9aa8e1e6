"""torch's samples of its operators: tensors with gaps, second derivatives, forward mode, and
compiled. `python -m tests.engine.op_db_ways second` prints all differences."""

from __future__ import annotations

import pytest

import minigrad
from tests.engine import op_db, op_db_ways

pytestmark = pytest.mark.needs("torch", "expecttest")

FREE = "svd svd_lowrank pca_lowrank linalg.svd linalg.eig linalg.eigh"  # signs and phases
TORCH = "cholesky_inverse cholesky_solve linalg.pinv.hermitian"  # not what differences give
ALIKE = "as_strided.partial_views as_strided_scatter"  # the copies have storage of their own
OTHERS = "nn.functional.triplet_margin_with_distance_loss"  # distances are torch's
ACCEPTED = {
    "strided": "special.bessel_j0 special.bessel_y1",  # torch's are less exact
    # Of weights in single precision; zero, but for rounding; where torch's are NaN, or missing
    "second": (
        "cov cumprod prod linalg.det linalg.norm linalg.norm.subgradients_at_zero"
        " nn.functional.linear_cross_entropy.chunked"
    ),
    # Of places that occur twice; along directions in which a matrix is no longer symmetric
    "forward": (
        "nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d"
        " triangular_solve linalg.cholesky linalg.cholesky_ex"
    ),
    "compiled": "",
}
WAYS = list(op_db_ways.WAYS)


def _wrong(way: str, entry, **options) -> list[str]:
    name = op_db.label(entry)
    if name in f"{FREE} {TORCH} {ALIKE} {OTHERS} {ACCEPTED[way]}".split():
        return []
    return [f"{name}: {what}: {sample}" for sample, what in op_db_ways.run(way, entry, **options)]


@pytest.mark.parametrize("way", WAYS)
def test_a_few_samples(way, rng):
    """Some operators, other ones for another seed."""
    entries = op_db.entries()
    chosen = [entries[i] for i in rng.choice(len(entries), 25, replace=False)]
    assert not [found for entry in chosen for found in _wrong(way, entry, limit=3)]


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_operator_is_found(way, monkeypatch):
    class Sine(minigrad.autograd.Function):
        """Its gradient is 1% too large, so the second is; and it forgets strides, or compiled
        steps its last argument."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            y = x.sin()
            if way == "strided" and not x.is_contiguous():
                y = y * 1.01
            return y * 1.01 if way == "compiled" and minigrad.compiler.is_compiling() else y

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * 1.01

    entry = next(e for e in op_db.entries() if e.name == "sin")
    assert not _wrong(way, entry)
    monkeypatch.setattr(op_db, "operator", lambda entry: Sine.apply)
    assert _wrong(way, entry)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_all_samples(way):
    options = dict(dtype="float32", backend="numba") if way == "compiled" else {}
    assert not [found for entry in op_db.entries() for found in _wrong(way, entry, **options)]
