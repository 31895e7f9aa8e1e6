"""`minigrad.layer_norm`, `minigrad.kl_div`, ...: functions of `nn.functional` that torch has at its
top level too, there with other arguments: in another order, and with numbers for words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import minigrad
from minigrad.nn import functional as F
from minigrad.ops.inplace import overwriting
from minigrad.tensor import Tensor

# The arguments in torch's order; "-": given, and without a meaning here.
_ORDERS = {
    "alpha_dropout": "input p training",
    "batch_norm": "input weight bias running_mean running_var training momentum eps -",
    "bilinear": "input1 input2 weight bias",
    "binary_cross_entropy_with_logits": "input target weight pos_weight reduction",
    "channel_shuffle": "input groups",
    "cosine_embedding_loss": "input1 input2 target margin reduction",
    "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
    "feature_alpha_dropout": "input p training",
    "group_norm": "input num_groups weight bias eps -",
    "hinge_embedding_loss": "input target margin reduction",
    "kl_div": "input target reduction log_target",
    "layer_norm": "input normalized_shape weight bias eps -",
    "max_pool1d_with_indices": "input kernel_size stride padding dilation ceil_mode",
    "margin_ranking_loss": "input1 input2 target margin reduction",
    "pairwise_distance": "x1 x2 p eps keepdim",
    "pdist": "input p",
    "pixel_shuffle": "input upscale_factor",
    "pixel_unshuffle": "input downscale_factor",
    "poisson_nll_loss": "input target log_input full eps reduction",
    "rms_norm": "input normalized_shape weight eps",
    "rrelu": "input lower upper training",
    "triplet_margin_loss": "anchor positive negative margin p eps swap reduction",
}
_ORDERS["instance_norm"] = _ORDERS["batch_norm"].replace("training", "use_input_stats")
_OTHER_NAMES = {"train": "training", "self": "input"}
_IGNORED = ("cudnn_enabled", "cudnn_enable")
_NEEDED = {"alpha_dropout": 3, "feature_alpha_dropout": 3, "batch_norm": 8, "instance_norm": 8}
_REDUCTIONS = {1: "mean", 2: "sum"}  # any other number: none, which is also the default there


def _function(name: str) -> Callable:
    """The function of `nn.functional` with the arguments of torch's top level."""
    inner, order = getattr(F, name), _ORDERS[name].split()

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(order):
            raise TypeError(f"{name}() takes {len(order)} arguments, got {len(args)}")
        given = dict(zip(order, args))
        for key, value in kwargs.items():
            key = _OTHER_NAMES.get(key, key)
            if key in given:
                raise TypeError(f"{name}() got several values for argument '{key}'")
            if key not in _IGNORED:
                given[key] = value
        given.pop("-", None)
        if len(given) < _NEEDED.get(name, 1):
            missing = [key for key in order[: _NEEDED.get(name, 1)] if key not in given]
            raise TypeError(f"{name}() missing arguments: {', '.join(missing)}")
        if "reduction" in order:
            given["reduction"] = _word(name, given.get("reduction", 0))
        return inner(**given)

    function.__name__ = function.__qualname__ = name
    shown = ", ".join(key for key in order if key != "-")
    function.__doc__ = f"`nn.functional.{name}` with the arguments ({shown})."
    if "reduction" in order:
        function.__doc__ += " reduction: 0 (the default) for none, 1 for the mean, 2 for the sum."
    return function


def _word(name: str, reduction: Any) -> str:
    """The reduction of a number."""
    if type(reduction) is not int:
        raise TypeError(f"{name}(): argument 'reduction' must be int, not {reduction!r}")
    return _REDUCTIONS.get(reduction, "none")


globals().update({name: _function(name) for name in _ORDERS})
if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable: ...


def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """`nn.functional.pad` with a constant."""
    return F.pad(input, pad, "constant", value)


def grid_sampler(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """`nn.functional.grid_sample` with numbers for the modes, in the order of its docstring."""
    modes = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    outside = ("zeros", "border", "reflection")[padding_mode]
    return F.grid_sample(input, grid, modes, outside, align_corners)


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`."""
    return F.affine_grid(theta, size, align_corners)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of sequences (T, B, Cin) by weight (K, Cin, Cout): (T + 2 pad - K + 1, B,
    Cout)."""
    for name, given, dims in (("input", input, 3), ("weight", weight, 3), ("bias", bias, 1)):
        if given.dim() != dims:
            raise RuntimeError(
                f"conv_tbc: expected {name} of {dims} dimensions, got {list(given.shape)}"
            )
    found = F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of entire channels of (N, C, ...)."""
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return F.dropout2d(input, p, train) if input.dim() > 2 else F.dropout(input, p, train)


def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of the squares over dimensions."""
    return input.norm(2, dim, keepdim)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices."""
    return minigrad.linalg.matrix_norm(input, "nuc", dim, keepdim)


# Overwriting forms, of functions above.
_WRITTEN = ("alpha_dropout", "feature_alpha_dropout", "feature_dropout", "rrelu")
globals().update(
    {f"{name}_": overwriting(name, globals()[name], composed=True) for name in _WRITTEN}
)
