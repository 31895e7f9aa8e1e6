"""The functions behind the modules of `minigrad.nn`, with torch's names and arguments.

Single operations are imported from `minigrad.ops`; activation functions without parameters are
generated from the pointwise table. The rest is composed of Tensor operations, so gradients of every
order exist.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._foreign import tensors_only
from minigrad._names import namespace
from minigrad.autograd.titles import entitled
from minigrad.nn._attention import multi_head_attention_forward
from minigrad.nn._linear_loss import linear_cross_entropy
from minigrad.nn._losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
    triplet_margin_loss,
)
from minigrad.nn._more_functions import (
    alpha_dropout,
    channel_shuffle,
    embedding_bag,
    feature_alpha_dropout,
    fractional_max_pool2d,
    fractional_max_pool3d,
    group_norm,
    local_response_norm,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    pdist,
    pixel_unshuffle,
    rrelu,
)
from minigrad.nn._more_losses import (
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_with_distance_loss,
)
from minigrad.ops import activation as act
from minigrad.ops import index, norm, random
from minigrad.ops import softmax as soft
from minigrad.ops.activation import (
    cosine_similarity,
    gelu,
    glu,
    hardshrink,
    logsigmoid,
    normalize,
    prelu,
    sigmoid,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
)
from minigrad.ops.attention import scaled_dot_product_attention
from minigrad.ops.combine import pad
from minigrad.ops.composed import composed, permuted
from minigrad.ops.conv import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from minigrad.ops.fold import fold, unfold
from minigrad.ops.index import one_hot
from minigrad.ops.matmul import linear
from minigrad.ops.norm import layer_norm, rms_norm
from minigrad.ops.pointwise import POINTWISE, Pointwise, check_floating
from minigrad.ops.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from minigrad.ops.resample import interpolate
from minigrad.ops.sampling import (
    affine_grid,
    grid_sample,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from minigrad.ops.volume import (
    adaptive_avg_pool3d,
    adaptive_max_pool3d,
    avg_pool3d,
    conv3d,
    conv_transpose3d,
    max_pool3d,
)
from minigrad.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

# ------------------------------------------------------------------------ activations


def _activate(fn: Callable[[Tensor], Tensor], input: Tensor, inplace: bool) -> Tensor:
    """``fn(input)``, written back into `input` if `inplace`.

    The gradient of `fn` may need its input, which is overwritten, so `fn` gets a copy.
    """
    if not inplace:
        return fn(input)
    return input.copy_(fn(input.clone()))


def _offer(op: Pointwise) -> None:
    """Define the function `op.name(input, inplace=False)` in this module."""

    def function(input: Tensor, inplace: bool = False) -> Tensor:
        return _activate(op, input, inplace)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{op.expr.text}, per element"
    globals()[op.name] = function
    __all__.append(op.name)


for _op in POINTWISE.values():
    if _op.expr.activation and _op.name not in __all__:
        _offer(_op)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)"""
    return input.relu_() if inplace else act.relu(input)


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return input.relu_()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """clamp(input, 0, 6)"""
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input"""
    return _activate(lambda x: act.leaky_relu(x, negative_slope), input, inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)"""
    return _activate(lambda x: act.elu(x, alpha), input, inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """scale * elu(input, alpha) with the constants of self-normalising networks"""
    return _activate(act.selu, input, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1))"""
    return _activate(lambda x: act.celu(x, alpha), input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))"""
    return _activate(act.mish, input, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """clamp(input, min_val, max_val), with gradient 0 at both ends"""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _activate(lambda x: act.hardtanh(x, min_val, max_val), input, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where input > threshold, else value"""
    return _activate(lambda x: act.threshold(x, threshold, value), input, inplace)


def _in_place(fn: Callable) -> Callable:
    """The form of an activation that overwrites its input."""

    @functools.wraps(fn)
    def function(input: Tensor, *args: Any) -> Tensor:
        return fn(input, *args, inplace=True)

    function.__name__ = function.__qualname__ = f"{fn.__name__}_"
    function.__doc__ = f"`{fn.__name__}` in place."
    return function


celu_, elu_, hardtanh_ = _in_place(celu), _in_place(elu), _in_place(hardtanh)
rrelu_, selu_, threshold_ = _in_place(rrelu), _in_place(selu), _in_place(threshold)


def _dim_or_guess(name: str, input: Tensor, dim: int | None, stacklevel: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """exp(input) / sum(exp(input)) along dim"""
    dim = _dim_or_guess("softmax", input, dim, _stacklevel)
    return soft.softmax(input, dim, dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax(-input)"""
    dim = _dim_or_guess("softmin", input, dim, _stacklevel)
    return softmax(-input, dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """log(softmax(input)) along dim"""
    dim = _dim_or_guess("log_softmax", input, dim, _stacklevel)
    return soft.log_softmax(input, dim, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Sample from the Gumbel-softmax distribution (Jang et al. 2017); with `hard`, one-hot
    values with the gradient of the soft ones."""
    least = 1e-10
    if eps != least:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    uniform = minigrad.rand_like(logits.detach())
    gumbels = -((-(uniform + least).log()) + least).log()
    soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    one = minigrad.zeros_like(soft.detach()).scatter_(dim, index, 1.0)
    return one - soft.detach() + soft


# ------------------------------------------------------------------------ linear and lookup


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[..., o] = input1 @ weight[o] @ input2 + bias[o]; weight (out, in1, in2)"""
    tensors = [t for t in (input1, input2, weight, bias) if t is not None]
    shapes = [tuple(t.shape) for t in tensors]
    *lead, in1 = shapes[0]
    in2, out_features = shapes[1][-1], shapes[2][0]
    expected = [(*lead, in1), (*lead, in2), (out_features, in1, in2), (out_features,)]
    if shapes != expected[: len(shapes)] or len({t.dtype for t in tensors}) > 1:
        raise RuntimeError(
            "bilinear(): expected (..., in1), (..., in2), a weight (out, in1, in2) and a bias "
            f"(out,) of one dtype, got {shapes} of {[str(t.dtype) for t in tensors]}"
        )
    a, b = input1.reshape(-1, in1), input2.reshape(-1, in2)
    # (n, in1) @ (in1, out * in2): one matrix product, then a row-wise dot with b.
    left = a @ weight.permute(1, 0, 2).reshape(in1, out_features * in2)
    y = (left.reshape(-1, out_features, in2) * b.unsqueeze(1)).sum(-1, dtype=weight.dtype)
    y = y if bias is None else y + bias
    return y.reshape(*lead, out_features)


def _limit_rows(weight: Tensor, rows: Tensor, limit: float, p: float) -> None:
    """Scale the rows of weight whose p-norm is above the limit, in place."""
    with minigrad.no_grad():
        chosen = rows.reshape(-1).unique()
        norms = weight[chosen].norm(p, 1, keepdim=True)
        factor = minigrad.where(norms > limit, limit / (norms + 1e-7), 1.0)
        weight[chosen] = weight[chosen] * factor


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight (V, D) at the integers input (...): (..., D); no gradient at padding_idx

    max_norm: rows with a larger `norm_type`-norm are first scaled to it, in place.
    scale_grad_by_freq: the gradient of a row is divided by how often `input` has it.
    sparse: the gradient of weight is a sparse tensor, for `optim.SparseAdam`, SGD or Adagrad.
    """
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        index.embedding(weight.detach(), input)  # checks the input
        _limit_rows(weight, input, max_norm, norm_type)
    return index.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Norm of order p of x1 - x2 + eps along the last dimension"""
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its former name."""
    warnings.warn(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear", where corners stay corners."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def _with_indices(pool: Callable) -> Callable:
    """A maximum pool that gives the places of the maxima, too."""

    @functools.wraps(pool)
    def function(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})

    function.__name__ = function.__qualname__ = f"{pool.__name__}_with_indices"
    function.__doc__ = f"`{pool.__name__}` with return_indices=True."
    __all__.append(function.__name__)
    return function


for _pool in (
    *(adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d),
    *(max_pool1d, max_pool2d, max_pool3d),
    *(fractional_max_pool2d, fractional_max_pool3d),
):
    globals()[f"{_pool.__name__}_with_indices"] = _with_indices(_pool)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) to (..., C, H * r, W * r)"""
    if input.dim() < 3 or upscale_factor <= 0:
        raise RuntimeError(
            "pixel_shuffle expects input to have at least 3 dimensions and a positive "
            f"upscale_factor, but got {input.dim()} dimension(s) and {upscale_factor}"
        )
    *lead, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    out = channels // (r * r)
    n = len(lead)
    split, shape = (*lead, out, r, r, height, width), (*lead, out, height * r, width * r)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return composed(permuted, input, split=split, order=order, shape=shape)


# ------------------------------------------------------------------------ dropout


def _check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p, scale the rest by 1 / (1 - p); only in training"""
    _check_probability(p)
    if not training or p == 0.0:
        return input
    return _activate(lambda x: random.dropout(x, p), input, inplace)


def _channel_dropout(input: Tensor, p: float, inplace: bool, channels: tuple[int, ...]) -> Tensor:
    shape = (*channels, *(1,) * (input.dim() - len(channels)))
    mask = random.dropout(minigrad.ones(shape, dtype=input.dtype, device=input.device), p)
    return input.mul_(mask) if inplace else input * mask


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Set entire channels of (N, C, L) or (C, L) to zero"""
    _check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. "
            "Note that dropout1d exists to provide channel-wise dropout on inputs with 1 "
            "spatial dimension, a channel dimension, and an optional batch dimension "
            "(i.e. 2D or 3D inputs)."
        )
    if not training or p == 0.0:
        return input
    return _channel_dropout(input, p, inplace, tuple(input.shape[:-1]))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Set entire channels of (N, C, H, W) to zero; a 3-D input is (N, C, L), as in torch"""
    _check_probability(p)
    if input.dim() not in (3, 4):
        warnings.warn(
            f"dropout2d: Received a {input.dim()}-D input to dropout2d, which is deprecated "
            "and will result in an error in a future release. To retain the behavior and "
            "silence this warning, please use dropout instead. Note that dropout2d exists to "
            "provide channel-wise dropout on inputs with 2 spatial dimensions, a channel "
            "dimension, and an optional batch dimension (i.e. 3D or 4D inputs).",
            stacklevel=2,
        )
    if not training or p == 0.0:
        return input
    return _channel_dropout(input, p, inplace, tuple(input.shape[:2]))


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Set entire channels of (N, C, D, H, W) or (C, D, H, W) to zero"""
    _check_probability(p)
    if not training or p == 0.0:
        return input
    return _channel_dropout(input, p, inplace, tuple(input.shape[:-3]))


# ------------------------------------------------------------------------ normalisation


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (dimension 1) of input (N, C, ...).

    In training, uses the statistics of the batch and updates the running statistics (with the
    unbiased variance); otherwise uses the running statistics.
    """
    if eps < 0 or (training and not eps):
        how = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {how}, but got {eps}")
    if not input.numel() and input.dim() > 0:
        return _of_nothing(input, weight, bias)
    check_floating("batch_norm", input)
    norm.check_mixed(input, weight, bias)
    if running_mean is not None and running_mean.numel() != input.shape[1]:
        raise RuntimeError(
            f"running_mean should contain {input.shape[1]} elements not {running_mean.numel()}"
        )
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: running_mean and running_var must be given in evaluation mode"
            )
        invstd = (running_var + eps).rsqrt()
        return norm.batch_norm_apply(input, running_mean, invstd, weight, bias)
    output, mean, invstd = norm.batch_norm(input, weight, bias, eps)
    count = input.numel() // input.shape[1]
    if running_mean is not None or running_var is not None:
        with minigrad.no_grad():
            if running_mean is not None:
                running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            if running_var is not None:
                unbiased = norm.VARIANCE(invstd, params=(eps, count / (count - 1)))
                running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return output


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample of input (N, C, ...) separately"""
    check_floating("batch_norm", input)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, "
            f"got input size {minigrad.Size(tuple(input.shape))}"
        )
    if not input.numel():
        return _of_nothing(input, weight, bias)
    norm.check_channels("instance_norm", input, weight=weight, bias=bias)
    norm.check_mixed(input, weight, bias)
    samples, channels = input.shape[:2]
    if running_mean is not None:
        with minigrad.no_grad():
            rows = input.detach().reshape(samples, channels, -1)
            running_mean.lerp_(rows.mean(-1).mean(0), momentum)
            running_var.lerp_(rows.var(-1).mean(0), momentum)
    rows = norm.layer_norm(input.reshape(samples * channels, count), count, eps=eps)
    return norm.affine(rows.reshape(input.shape), weight, bias)


def _of_nothing(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """An empty input, whose gradient gives the parameters one of zeros."""
    y = input.clone()
    y = y if weight is None or not weight.numel() else y * weight.reshape(-1)[0]
    y = y if bias is None or not bias.numel() else y + bias.reshape(-1)[0]
    return y.to(input.dtype)  # with parameters in float32 beside a 16-bit input


globals().update(entitled(globals()))
globals().update({n: tensors_only(globals()[n], place=f"{__name__}.{n}") for n in __all__})

_COPIES = "_canonical_mask _in_projection _in_projection_packed _none_or_dtype"  # of torch's layers
__getattr__, __dir__ = namespace(__name__, dict.fromkeys(_COPIES.split(), "minigrad.nn._attention"))
