"""Errors come before any kernel, have torch's type, and say what was expected and what came."""

from __future__ import annotations

import importlib
import warnings

import pytest

import minigrad as mg

ones = mg.ones
F = mg.nn.functional

# what is called, the type of the error, and a part of torch's message
CASES = {
    "dim_of_scalar": (lambda: mg.tensor(1.0).sum(2), IndexError, "Dimension out of range"),
    "dim_bool": (lambda: ones(2, 3).sum(True), TypeError, "int"),
    "huge_exponent": (
        lambda: mg.tensor([3], dtype=mg.int32) ** 2**40,
        RuntimeError,
        "value cannot be converted to type int",
    ),
    "number_first": (lambda: mg.maximum(2, ones(3)), TypeError, "argument 'input' must be Tensor"),
    "floats_only": (
        lambda: F.gelu(mg.tensor([1])),
        NotImplementedError,
        "not implemented for 'Long'",
    ),
    "broadcast": (
        lambda: ones(3) + ones(4),
        RuntimeError,
        r"size of tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dim",
    ),
    "mm": (
        lambda: ones(3, 4) @ ones(3, 4),
        RuntimeError,
        r"mat1 and mat2 shapes cannot be multiplied \(3x4 and 3x4\)",
    ),
    "mm_dtype": (
        lambda: ones(3, 4) @ ones(4, 3).double(),
        RuntimeError,
        "expected m1 and m2 to have the same dtype, but got: float != double",
    ),
    "dot": (lambda: ones(3) @ ones(4), RuntimeError, "inconsistent tensor size"),
    "sum_to_more": (lambda: ones(2, 3).sum_to_size(1, 2, 3), RuntimeError, "is not expandable"),
    "sum_to_other": (lambda: ones(2, 3).sum_to_size(3, 3), RuntimeError, "is not expandable"),
    "matmul_batch": (lambda: ones(2, 3, 4) @ ones(3, 4, 5), RuntimeError, "must match"),
    "matmul_scalar": (lambda: mg.tensor(1.0) @ ones(2), RuntimeError, "at least 1D"),
    "bmm": (
        lambda: mg.bmm(ones(2, 3, 4), ones(3, 4, 5)),
        RuntimeError,
        "Expected size for first two dimensions of batch2",
    ),
    "mm_dims": (lambda: mg.mm(ones(2, 3, 4), ones(3, 4)), RuntimeError, "must be a matrix"),
    "einsum_size": (
        lambda: mg.einsum("ij,jk->ik", ones(2, 3), ones(4, 5)),
        RuntimeError,
        "subscript j has size 4 for operand 1",
    ),
    "einsum_count": (lambda: mg.einsum("ij,jk->ik", ones(2, 3)), RuntimeError, "2 operands"),
    "linear": (lambda: F.linear(ones(2, 3), ones(4, 5)), RuntimeError, r"\(2x3 and 5x4\)"),
    "linear_bias": (lambda: F.linear(ones(2, 3), ones(4, 3), ones(5)), RuntimeError, "bias"),
    "dim": (
        lambda: ones(3).sum(3),
        IndexError,
        r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 3\)",
    ),
    "unsqueeze": (lambda: ones(3).unsqueeze(4), IndexError, r"\[-2, 1\], but got 4"),
    "reshape": (
        lambda: ones(6).reshape(4, 2),
        RuntimeError,
        r"shape '\[4, 2\]' is invalid for input of size 6",
    ),
    "reshape_infer": (
        lambda: ones(6).reshape(4, -1),
        RuntimeError,
        r"shape '\[4, -1\]' is invalid",
    ),
    "reshape_two": (
        lambda: ones(6).reshape(-1, -1),
        RuntimeError,
        "only one dimension can be inferred",
    ),
    "permute": (lambda: ones(2, 3).permute(0, 0), RuntimeError, "duplicate dims are not allowed"),
    "permute_count": (lambda: ones(2, 3).permute(0), RuntimeError, "number of dimensions"),
    "expand": (
        lambda: ones(2, 3).expand(4, 3),
        RuntimeError,
        r"expanded size of the tensor \(4\) must match the existing size \(2\)",
    ),
    "cat": (
        lambda: mg.cat([ones(2, 3), ones(2, 4)]),
        RuntimeError,
        "match except in dimension 0. Expected size 3 but got size 4 for tensor number 1",
    ),
    "cat_ndim": (
        lambda: mg.cat([ones(2, 3), ones(3)]),
        RuntimeError,
        "same number of dimensions: got 2 and 1",
    ),
    "cat_empty": (lambda: mg.cat([]), ValueError, "expected a non-empty list of Tensors"),
    "cat_type": (lambda: mg.cat([ones(2), 3]), TypeError, "expected Tensor as element 1"),
    "stack": (
        lambda: mg.stack([ones(2, 3), ones(2, 4)]),
        RuntimeError,
        r"to be equal size, but got \[2, 3\] at entry 0 and \[2, 4\] at entry 1",
    ),
    "split": (lambda: ones(7).split([3, 3]), RuntimeError, "sum exactly to 7"),
    "chunk": (lambda: ones(7).chunk(0), RuntimeError, "greater than 0, got: 0"),
    "narrow": (lambda: ones(3).narrow(0, 2, 2), RuntimeError, "exceeds dimension size"),
    "repeat": (
        lambda: ones(3, 2).repeat(2),
        RuntimeError,
        "can not be smaller than number of dimensions",
    ),
    "unflatten": (
        lambda: ones(6).unflatten(0, (2, 4)),
        RuntimeError,
        "don't multiply up to the size of dim 0",
    ),
    "tril": (lambda: ones(6).tril(), RuntimeError, "at least 2 dimensions"),
    "flip": (lambda: ones(3).flip(5), IndexError, "Dimension out of range"),
    "t": (lambda: ones(2, 2, 2).t(), RuntimeError, "<= 2 dimensions, but self is 3D"),
    "index": (
        lambda: ones(3)[5],
        IndexError,
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    "index_many": (lambda: ones(3)[0, 0], IndexError, "too many indices for tensor of dimension 1"),
    "index_zero_dim": (lambda: mg.tensor(1.0)[0], IndexError, "invalid index of a 0-dim tensor"),
    "index_tensor": (lambda: ones(3)[mg.tensor([5])], IndexError, "index 5 is out of bounds"),
    "index_float": (
        lambda: ones(3)[mg.tensor([1.0])],
        IndexError,
        "must be long, int, byte or bool",
    ),
    "index_mask": (
        lambda: ones(3)[mg.tensor([True, False])],
        IndexError,
        r"shape of the mask \[2\] at index 0 does not match",
    ),
    "index_shapes": (
        lambda: ones(3, 3)[mg.tensor([0, 1]), mg.tensor([0, 1, 2])],
        IndexError,
        "could not be broadcast together",
    ),
    "index_step": (lambda: ones(3)[::-1], ValueError, "step must be greater than zero"),
    "index_type": (lambda: ones(3)["a"], TypeError, "valid indices"),
    "setitem": (
        lambda: ones(3).__setitem__(slice(0, 2), ones(3)),
        RuntimeError,
        "must match the existing size",
    ),
    "gather": (
        lambda: mg.gather(ones(2, 3), 1, mg.tensor([[5]])),
        RuntimeError,
        "index 5 is out of bounds for dimension 1 with size 3",
    ),
    "index_fill": (
        lambda: ones(2, 3).index_fill(1, mg.tensor([5]), 1.0),
        IndexError,
        "index 5 is out of bounds for dimension 1 with size 3",
    ),
    "gather_dtype": (
        lambda: mg.gather(ones(2, 3), 1, ones(1, 1)),
        RuntimeError,
        "Expected dtype int32/int64 for index",
    ),
    "gather_dims": (
        lambda: mg.gather(ones(2, 3), 1, mg.tensor([0])),
        RuntimeError,
        "same number of dimensions",
    ),
    "scatter_dtype": (
        lambda: ones(2, 3).scatter(1, mg.tensor([[0]]), ones(1, 1).double()),
        RuntimeError,
        "self.dtype to be equal to src.dtype",
    ),
    "masked_fill": (
        lambda: ones(3).masked_fill(ones(3), 1),
        RuntimeError,
        "only supports boolean masks",
    ),
    "where": (lambda: mg.where(ones(3), 1, 2), RuntimeError, "boolean tensor"),
    "max_empty": (lambda: ones(0).max(), RuntimeError, "Expected reduction dim to be specified"),
    "max_empty_dim": (
        lambda: ones(2, 0).max(1),
        IndexError,
        "Expected reduction dim 1 to have non-zero size",
    ),
    "topk": (lambda: ones(3).topk(5), RuntimeError, "selected index k out of range"),
    "norm_int": (
        lambda: mg.arange(3).norm(),
        RuntimeError,
        "Expected a floating point or complex tensor as input. Got Long",
    ),
    "softmax_int": (
        lambda: mg.arange(3).softmax(0),
        NotImplementedError,
        "not implemented for 'Long'",
    ),
    "embedding": (
        lambda: F.embedding(mg.tensor([7]), ones(3, 4)),
        IndexError,
        "index out of range in self",
    ),
    "embedding_dtype": (lambda: F.embedding(ones(1), ones(3, 4)), RuntimeError, "Long, Int"),
    "one_hot": (lambda: F.one_hot(mg.tensor([3]), 2), RuntimeError, "smaller than num_classes"),
    "conv": (
        lambda: F.conv2d(ones(1, 3, 5, 5), ones(4, 2, 3, 3)),
        RuntimeError,
        r"expected input\[1, 3, 5, 5\] to have 2 channels, but got 3 channels instead",
    ),
    "conv_small": (
        lambda: F.conv2d(ones(1, 3, 2, 2), ones(4, 3, 3, 3)),
        RuntimeError,
        r"Calculated padded input size per channel: \(2 x 2\). Kernel size: \(3 x 3\)",
    ),
    "conv_dims": (
        lambda: F.conv2d(ones(3, 2), ones(4, 3, 3, 3)),
        RuntimeError,
        r"Expected 3D \(unbatched\) or 4D \(batched\) input to conv2d",
    ),
    "conv_bias": (
        lambda: F.conv2d(ones(1, 3, 5, 5), ones(4, 3, 3, 3), ones(3)),
        RuntimeError,
        "1-dimensional with 4 elements",
    ),
    "conv_transpose_bias": (
        lambda: F.conv_transpose2d(ones(1, 3, 5, 5), ones(3, 4, 3, 3), ones(3)),
        RuntimeError,
        "Given transposed=1.*1-dimensional with 4 elements",
    ),
    "conv_dtype": (
        lambda: F.conv2d(ones(1, 3, 5, 5), ones(4, 3, 3, 3).double()),
        RuntimeError,
        "should be the same",
    ),
    "conv_groups": (
        lambda: F.conv2d(ones(1, 3, 5, 5), ones(4, 3, 3, 3), groups=3),
        RuntimeError,
        "divisible by 3",
    ),
    "conv_no_channels": (
        lambda: F.conv2d(ones(1, 0, 5, 5), ones(4, 0, 3, 3)),
        RuntimeError,
        r"Only zero batch inputs are supported, but got input shape: \[1, 0, 5, 5\]",
    ),
    "conv_no_results": (
        lambda: F.conv2d(ones(1, 3, 5, 5), ones(0, 3, 3, 3)),
        RuntimeError,
        "expected weight to be at least 1 at dimension 0",
    ),
    "conv_transpose_no_channels": (
        lambda: F.conv_transpose2d(ones(1, 0, 5, 5), ones(0, 4, 3, 3)),
        RuntimeError,
        "Only zero batch inputs are supported",
    ),
    "conv_same_stride": (
        lambda: F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), stride=2, padding="same"),
        RuntimeError,
        "strided convolutions",
    ),
    "conv_stride": (
        lambda: F.conv1d(ones(1, 1, 5), ones(1, 1, 3), stride=0),
        RuntimeError,
        "non-positive stride is not supported",
    ),
    "conv_padding": (
        lambda: F.conv1d(ones(1, 1, 5), ones(1, 1, 3), padding=-1),
        RuntimeError,
        "negative padding is not supported",
    ),
    "conv1d": (
        lambda: F.conv1d(ones(1, 3, 5), ones(4, 2, 3)),
        RuntimeError,
        r"weight of size \[4, 2, 3\], expected input\[1, 3, 5\] to have 2 channels, but got 3",
    ),
    "conv1d_small": (
        lambda: F.conv1d(ones(1, 3, 2), ones(4, 3, 3)),
        RuntimeError,
        r"Calculated padded input size per channel: \(2\). Kernel size: \(3\)",
    ),
    "conv_transpose": (
        lambda: F.conv_transpose2d(ones(1, 3, 5, 5), ones(2, 4, 3, 3)),
        RuntimeError,
        r"expected input\[1, 3, 5, 5\] to have 2 channels, but got 3 channels instead",
    ),
    "pool_small": (
        lambda: F.max_pool2d(ones(1, 1, 2, 2), 3),
        RuntimeError,
        "output size is too small",
    ),
    "pool_padding": (
        lambda: F.max_pool2d(ones(1, 1, 4, 4), 2, padding=2),
        RuntimeError,
        "at most half of effective kernel size",
    ),
    "pool_dims": (lambda: F.avg_pool2d(ones(4, 4), 2), RuntimeError, "non-empty 3D or 4D"),
    "batch_norm_one": (
        lambda: F.batch_norm(ones(1, 3), None, None, training=True),
        ValueError,
        "more than 1 value per channel",
    ),
    "cross_entropy": (
        lambda: F.cross_entropy(ones(3, 4), mg.tensor([1, 2, 7])),
        IndexError,
        "Target 7 is out of bounds",
    ),
    "cross_entropy_size": (
        lambda: F.cross_entropy(ones(3, 4), mg.tensor([1, 2])),
        ValueError,
        r"input batch_size \(3\) to match target batch_size \(2\)",
    ),
    "pad": (
        lambda: F.pad(ones(2, 2), (3, 3), mode="reflect"),
        RuntimeError,
        "Padding size should be less",
    ),
    "meshgrid": (lambda: mg.meshgrid(ones(2), indexing="ab"), RuntimeError, "one of 'xy' or 'ij'"),
    "div_mode": (
        lambda: mg.div(ones(2), 2, rounding_mode="up"),
        RuntimeError,
        "rounding_mode to be one of",
    ),
    "clamp": (lambda: ones(2).clamp(), RuntimeError, "At least one of 'min' or 'max'"),
    "add_type": (lambda: mg.add(ones(2), "a"), TypeError, "must be Tensor or Number, not str"),
    "allclose_dtype": (
        lambda: mg.allclose(ones(2), ones(2).double()),
        RuntimeError,
        "did not match",
    ),
    "to": (lambda: ones(2).to(3.5), TypeError, "expects a dtype, a device or a tensor"),
    "assigned_shape": (
        lambda: ones(3).__setitem__(mg.tensor([0, 1]), ones(3)),
        RuntimeError,
        r"value tensor of shape \[3\] cannot be broadcast to indexing result of shape \[2\]",
    ),
    "missing_function": (
        lambda: F.no_such_function,
        AttributeError,
        "functional' has no attribute 'no_such_function'",
    ),
    "unknown_backend": (lambda: mg.backends.set("tpu"), ValueError, "expected one of"),
}


@pytest.mark.parametrize("name", CASES)
def test_error(name):
    call, kind, message = CASES[name]
    with pytest.raises(kind, match=message):
        call()


def test_errors_of_unfinished_functions():
    class Empty(mg.autograd.Function):
        pass

    with pytest.raises(NotImplementedError, match="implement the forward"):
        Empty.apply(ones(1))


def test_backend_context_restores_after_an_error():
    before = mg.backends.get()
    with pytest.raises(ZeroDivisionError), mg.backends.use("numpy"):
        assert mg.backends.get() == "numpy"
        _ = 1 // 0
    assert mg.backends.get() == before and "numpy" in mg.backends.available()


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.ones(1).std(),
        lambda m: m.var(m.ones(1, 3), 0),
        lambda m: m.ones(3).var(correction=3),
        lambda m: m.tensor(m.ones(2)),
        lambda m: m.utils.checkpoint.checkpoint(m.sin, m.ones(2), use_reentrant=True),
    ],
)
def test_warnings_as_torch(call, torch):
    said = []
    for m in (mg, torch):
        importlib.import_module(f"{m.__name__}.utils.checkpoint")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call(m)
        said.append([(w.category, str(w.message)[:45]) for w in found])
        assert found[0].filename == __file__ or m is torch
    assert said[0] == said[1] and len(said[0]) == 1
