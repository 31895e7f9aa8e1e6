"""`custom_fwd` and `custom_bwd`: autograd Functions in blocks of `autocast`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minigrad.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled
from minigrad.dtypes import float64
from minigrad.tensor import Tensor
from minigrad.utils._pytree import tree_map_only


def _cast(tree: Any, device_type: str, dtype: Any) -> Any:
    """The floating tensors of a kind of device, but those of float64, in a dtype."""

    def cast(tensor: Tensor) -> Tensor:
        casts = tensor.is_floating_point() and tensor.device.type == device_type
        return tensor.to(dtype) if casts and tensor.dtype != float64 else tensor

    return tree_map_only(Tensor, cast, tree)


def custom_fwd(
    fwd: Callable | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable:
    """Decorator of a Function's `forward`, for `custom_bwd` to know what was in force.

    cast_inputs: in a block of `autocast`, forward gets its tensors in this dtype and runs without
    it.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if not enabled or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            cast_args, cast_kwargs = _cast((args, kwargs), device_type, cast_inputs)
            return fwd(ctx, *cast_args, **cast_kwargs)

    return forward


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """Decorator of a Function's `backward`: runs with the `autocast` that `forward` had."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *grads: Any) -> Any:
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *grads)

    return backward
