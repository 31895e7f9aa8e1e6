"""torch's names of the nodes of functions that are several operations here.

torch prints `x.topk(2)` with `grad_fn=<TopkBackward0>`, and tools that draw graphs show such names.
The last operation of a function would show its own name: its node gets the one of the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from minigrad.autograd.node import retitled
from minigrad.tensor import Tensor

# Functions whose node is called after them: topk, TopkBackward0.
_OWN = """
    addbmm addmm addmv addr amax amin aminmax angle baddbmm block_diag bmm channel_shuffle cholesky
    cholesky_inverse cholesky_solve diag_embed dist dot fmax fmin frexp hardshrink i0
    index_add index_copy index_reduce index_select kthvalue ldexp logaddexp2 logsumexp
    masked_scatter masked_select mode multi_margin_loss multilabel_margin_loss mv mvlgamma nansum
    narrow_copy pixel_shuffle pixel_unshuffle polar put renorm repeat roll rot90 scatter_add
    scatter_reduce select_scatter sgn slice_scatter softshrink sort std std_mean sub take
    topk trace tril triu var var_mean vdot
"""
# Others: a name; a pair, if the function has several results for one dimension, but one for all
# elements; or a function of the arguments.
_OTHERS: dict[str, str | tuple[str, str] | Callable[..., str | None]] = {
    "adaptive_avg_pool2d": "AdaptiveAvgPool2D",
    "adaptive_avg_pool3d": "AdaptiveAvgPool3D",
    "adaptive_max_pool2d": "AdaptiveMaxPool2D",
    "adaptive_max_pool3d": "AdaptiveMaxPool3D",
    "avg_pool2d": "AvgPool2D",
    "avg_pool3d": "AvgPool3D",
    "conv3d": "Convolution",
    "conv_transpose2d": "Convolution",
    "conv_transpose3d": "Convolution",
    "cross": "LinalgCross",
    "deg2rad": "Deg2Rad",
    "fractional_max_pool2d": "FractionalMaxPool2D",
    "fractional_max_pool3d": "FractionalMaxPool3D",
    "grid_sample": lambda input, *_, **__: f"GridSampler{input.ndim - 2}D",
    "group_norm": "NativeGroupNorm",
    "interpolate": lambda *args, **given: _resampled(*args, **given),
    "max": ("MaxBackward0", "MaxBackward1"),
    "max_pool2d": "MaxPool2DWithIndices",
    "max_pool3d": "MaxPool3DWithIndices",
    "max_unpool2d": "MaxUnpool2D",
    "max_unpool3d": "MaxUnpool3D",
    "median": ("MedianBackward1", "MedianBackward0"),
    "min": ("MinBackward0", "MinBackward1"),
    "nanmedian": ("NanmedianBackward1", "NanmedianBackward0"),
    "pad": lambda *args, **given: _padded(*args, **given),
    "rad2deg": "Rad2Deg",
    "rrelu": "RreluWithNoise",
    "rsub": lambda input, other, **_: f"RsubBackward{int(not isinstance(other, Tensor))}",
    "tile": "Repeat",
}


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace("-", "_").split("_"))


_TITLES = {name: _camel(name) for name in _OWN.split()} | _OTHERS


def _padded(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> str | None:
    kind = {"reflect": "ReflectionPad", "replicate": "ReplicationPad"}.get(mode)
    return kind and f"{kind}{len(pad) // 2}D"


def _resampled(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    *_: Any,
    **__: Any,
) -> str | None:
    return None if mode == "area" else f"Upsample{_camel(mode)}{input.ndim - 2}D"


def entitled(space: Mapping[str, Any]) -> dict[str, Callable]:
    """The functions of a namespace that the table has, each to title the nodes of its results."""
    return {name: _entitled(space[name], t) for name, t in _TITLES.items() if name in space}


def _entitled(function: Callable, title: Any) -> Callable:
    """A function whose results have nodes of a title. A node of an argument keeps its own."""
    kinds: dict[tuple[type, str], type] = {}

    def entitle(tensor: Tensor, name: str | None, given: tuple, named: dict) -> None:
        node = tensor._node
        if node is None or name is None:
            return
        old = type(node)
        kind = kinds.get((old, name))
        if kind is None:
            kind = kinds[old, name] = retitled(old, name)
        if kind is old:
            return
        for argument in (*given, *named.values()) if named else given:
            if isinstance(argument, Tensor) and argument._node is node:
                return
        node.__class__ = kind

    @functools.wraps(function)
    def _titling(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        several = isinstance(result, tuple)
        name = title[0 if several else 1] if type(title) is tuple else title
        if callable(name):
            name = name(*args, **kwargs)
        for tensor in result if several else (result,):
            if isinstance(tensor, Tensor):
                entitle(tensor, name, args, kwargs)
        return result

    return _titling
