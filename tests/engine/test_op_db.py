"""torch's samples of its operators, on minigrad's: values, dtypes, shapes, gradients and errors.

`python -m tests.engine.op_db` prints all differences, by cause.
"""

from __future__ import annotations

import pytest

from tests.engine import op_db

pytestmark = pytest.mark.needs("torch", "expecttest")

HALVES = ("float16", "bfloat16")
# Differences that stay, by operator, kind and dtype ("": all).
ACCEPTED = {
    ("nn.functional.embedding", "raises", ""): "sparse gradients",
    ("svd", "value", ""): "the signs of singular vectors are free",
    ("svd_lowrank", "value", ""): "the signs of singular vectors are free",
    ("pca_lowrank", "value", ""): "the signs of singular vectors are free",
    ("linalg.svd", "value", ""): "the signs of singular vectors are free",
    ("linalg.eigh", "value", ""): "the signs of eigenvectors are free",
    ("linalg.eig", "value", ""): "the phases of eigenvectors are free",
    ("linalg.lu", "raises", ""): "empty matrices of integers",
    ("linalg.lu_factor_ex", "raises", ""): "empty matrices, of integers or halves",
    ("linalg.pinv.hermitian", "gradient", ""): "of matrices that are not symmetric",
    ("cholesky_inverse", "gradient", ""): "torch's is not what finite differences give",
    ("cholesky_solve", "gradient", ""): "torch's is not what finite differences give",
    ("nn.functional.multi_head_attention_forward", "value", "float32"): "scores in the thousands",
    ("nn.functional.conv3d", "value", "float32"): "near zero, a sum of terms in the hundreds",
    ("nn.functional.conv_transpose3d", "value", "float32"): "near zero, of terms in the hundreds",
    ("matrix_exp", "value", "float32"): "torch's is less exact, of matrices far from normal",
    ("special.hermite_polynomial_he", "value", "float32"): "near a zero of a recurrence",
    **{
        (f"{name}_{n}", "value", "float32"): "torch's zeta function is less exact"
        for name in ("polygamma.polygamma_n", "special.polygamma.special_polygamma_n")
        for n in range(5)
    },
    ("special.bessel_j0", "value", ""): "torch's approximation is less exact",
    ("special.bessel_y1", "value", ""): "torch's approximation is less exact",
    ("as_strided.partial_views", "value", ""): "the copies of samples have storage of their own",
    ("as_strided.partial_views", "raises", ""): "the copies of samples have storage of their own",
    ("nn.functional.triplet_margin_with_distance_loss", "raises", ""): "distances are torch's",
    **{
        (f"nn.functional.interpolate.{mode}", kind, "uint8"): why
        for mode in ("bilinear", "bicubic")
        for kind, why in {
            "raises": "images of bytes",
            "value": "by 1: torch's weights are 16 bits",
        }.items()
    },
    **{
        (name, "value", dtype): why
        for dtype in HALVES
        for name, why in {
            "addbmm": "torch rounds after each matrix of the batch",
            "cdist": "torch subtracts products of the narrow type",
            "div.trunc_rounding": "torch rounds the quotient to the narrow type before it cuts it",
            "nn.functional.conv_transpose2d": "torch adds up in the narrow type",
            "histc": "torch finds the interval in the narrow type",
            "nn.functional.binary_cross_entropy_with_logits": "torch rounds each of its steps",
        }.items()
    },
    ("addbmm", "raises", ""): "torch gives a result of another shape to an in-place form",
    ("as_strided_scatter", "gradient", ""): "torch's is that of the elements that src replaces",
    ("cumsum", "error", "bool"): "of the in-place form: a RuntimeError of another class",
    ("cumprod", "error", "bool"): "of the in-place form: a RuntimeError of another class",
    ("cumsum", "raises", "bool"): "in place, of no dimension",
    ("cumprod", "raises", "bool"): "in place, of no dimension",
    ("index_reduce.prod", "lenient", "bool"): "torch computes it for some shapes",
    ("index_reduce.amin", "lenient", "bool"): "torch computes it for some shapes",
    ("index_reduce.amax", "lenient", "bool"): "torch computes it for some shapes",
    ("narrow_copy", "error", ""): "an IndexError, as of narrow",
    ("gradient", "value", "bfloat16"): "torch rounds each of its steps",
    ("tensordot", "raises", "bool"): "a product of bools whose lengths of 1 were summed away",
    ("nn.functional.avg_pool3d", "lenient", "int32"): "computed in integers",
    ("kthvalue", "raises", "bool"): "of a single bool, which torch takes",
    ("nn.functional.hardtanh", "raises", "uint8"): "limits that are no bytes",
    ("nn.functional.ctc_loss", "error", "float16"): "a RuntimeError of another class",
    ("nn.functional.triplet_margin_with_distance_loss", "error", "bool"): "distances are torch's",
}
# In half precision: torch refuses the first, which are computed here, and computes the second; the
# third are as far from float64's values as torch's, or nearer.
HALF = {
    "lenient": (
        "norm.nuc nn.functional.avg_pool3d nn.functional.multi_margin_loss"
        " nn.functional.multilabel_margin_loss nn.functional.ctc_loss nn.functional.pdist"
    ),
    "raises": (
        "cholesky matrix_exp svd linalg.det linalg.cholesky linalg.cholesky_ex linalg.matrix_power"
        " linalg.ldl_factor linalg.ldl_factor_ex linalg.svd linalg.svdvals histogram"
    ),
    "value": (
        "nn.functional.conv_transpose3d nn.functional.multi_head_attention_forward"
        " nn.functional.grid_sample nn.functional.instance_norm nn.functional.hinge_embedding_loss"
    ),
    "error": "polar",
}
for _kind, _names in HALF.items():
    ACCEPTED |= {(name, _kind, dtype): "half" for name in _names.split() for dtype in HALVES}
# Complex numbers: torch has no gradients of the first, or does not compute them; it computes the
# second where a dimension is empty or all of an image is averaged; gradients of the third are those
# of matrices that equal their conjugate transpose, as finite differences find them.
COMPLEX = {
    "lenient": (
        "abs arange softmax log_softmax nn.functional.softmin nn.functional.adaptive_avg_pool1d"
        " nn.functional.bilinear nn.functional.silu nn.functional.embedding select_scatter"
        " slice_scatter nan_to_num index_reduce.mean index_reduce.prod to_sparse"
        " scatter_reduce.sum scatter_reduce.prod scatter_reduce.mean special.spherical_bessel_j0"
    ),
    "raises": (
        "cummax cummin kthvalue mode nn.functional.adaptive_avg_pool1d"
        " nn.functional.adaptive_avg_pool3d nn.functional.soft_margin_loss"
    ),
    "gradient": "cholesky linalg.cholesky linalg.cholesky_ex istft",
    "value": "logcumsumexp",  # by a multiple of 2 pi i
    "error": "nanmedian nn.functional.scaled_dot_product_attention",
}
for _kind, _names in COMPLEX.items():
    for _dtype in ("complex128", "complex64"):
        ACCEPTED |= {(name, _kind, _dtype): "complex" for name in _names.split()}
# As on a GPU with torch, where convolutions of integers are not implemented
FLOATING = [f"nn.functional.conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]
FLOATING += ["nn.functional.adaptive_avg_pool1d"]
ON_KERNELS = {(name, "raises", "int64"): "for floating dtypes" for name in FLOATING}


def _wrong(found: list, accepted: dict = ACCEPTED) -> list[str]:
    """Differences that are not accepted. torch refuses more tensors as `out=`: of another float
    dtype, or with memory of an input; and special functions in half precision."""
    return [
        f"{d.operator}{d.variant} {d.dtype}: {d.cause()}: {d.sample}"
        for d in found
        if not {(d.operator, d.kind, d.dtype), (d.operator, d.kind, "")} & accepted.keys()
        and not (d.kind in ("lenient", "error") and "'out':" in d.sample)
        and not (d.kind == "lenient" and d.operator.startswith("special.") and d.dtype in HALVES)
    ]


def test_a_few_samples(rng):
    """Some operators, other ones for another seed."""
    entries = op_db.entries()
    wrong, total = [], 0
    for i in rng.choice(len(entries), 60, replace=False):
        for dtype in ("float64", str(rng.choice(["int64", "bool", "uint8"]))):
            count, found = op_db.run(entries[i], dtype, limit=8)
            total += count
            wrong += _wrong(found)
    assert total > 200
    assert not wrong


def test_a_wrong_operator_is_found(monkeypatch):
    """The comparison fails on a wrong value, gradient and dtype, and on a missing error."""
    entry = next(e for e in op_db.entries() if e.name == "atan2")
    right = op_db.operator(entry)
    for wrong in (
        lambda a, b: right(b, a),
        lambda a, b: right(a, b.detach()),
        lambda a, b: right(a, b).float(),
        lambda a, b: right(*(x if hasattr(x, "shape") else right(b, b) for x in (a, b))),
    ):
        monkeypatch.setattr(op_db, "operator", lambda entry, wrong=wrong: wrong)
        assert op_db.run(entry, "float64")[1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("dtype", op_db.DTYPES)
def test_all_samples(dtype, backend):
    if backend == "numba" and dtype not in ("float32", "int64"):
        pytest.skip("the kernels of other dtypes are compared with the reference elsewhere")
    wrong, accepted = [], ACCEPTED | (ON_KERNELS if backend == "numba" else {})
    for entry in op_db.entries():
        for run in (op_db.run, op_db.run_inplace):
            wrong += _wrong(run(entry, dtype, backend)[1], accepted)
    assert not wrong
