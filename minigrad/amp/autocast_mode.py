"""`autocast`: a block in which matrix products run in 16 bits and what is sensitive in 32.

Every operation of the graph (`Op.apply`) looks at `mode.autocast`, which is None outside of blocks.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad.autograd.mode import mode
from minigrad.tensor import Tensor

# By kind of device: the names of operations, and of functions under `autocasts`, that torch runs in
# 16 bits and in float32. Those in neither run in the dtype of their inputs; additions and other
# pointwise operations promote to the wider one. torch's lists for a CPU and for a GPU differ.
_LOW = (
    "Conv1d Conv2d Linear MatMul addbmm addmm baddbmm conv_transpose1d conv_transpose2d"
    " conv_transpose3d prelu scaled_dot_product_attention vecdot"
).split()
_LOSSES = (
    "binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss"
    " huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss"
    " multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss"
    " triplet_margin_loss"
).split()
LOW = {"cpu": frozenset(_LOW), "cuda": frozenset([*_LOW, "addmv", "addr", "mv", "Recurrent"])}
_LINALG = (
    "cholesky cholesky_ex cholesky_inverse cholesky_solve cond eig eigh eigvals eigvalsh geqrf"
    " householder_product inv_ex inverse linalg_qr linalg_svd lstsq matrix_rank orgqr ormqr"
    " pinverse qr solve svd svdvals tensorinv tensorsolve triangular_solve"
).split()
_FFT = [f"{i}{kind}fft{of}" for i in ("", "i") for kind in ("", "r", "h") for of in ("", "2", "n")]
_CPU = (
    "CrossEntropy adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy"
    " border_pad cdist channel_average ctc_loss fractional_max_pool2d fractional_max_pool3d"
    " grid_sample max_pool3d_alone max_unpool1d max_unpool2d max_unpool3d nanquantile"
    " polar prod quantile stft trace view_as_complex"
).split()
_GPU = "CrossEntropy CumSum LayerNorm LogSoftmax Softmax cdist group_norm interpolate prod"
FLOAT32 = {
    "cpu": frozenset([*_LOSSES, *_CPU, *_LINALG, *_FFT]),
    "cuda": frozenset([*_LOSSES, *_GPU.split()]),
}
_SIXTEEN = (minigrad.float16, minigrad.bfloat16)
_DEFAULTS = {"cuda": minigrad.float16, "cpu": minigrad.bfloat16}


class _Casts:
    """The blocks in force: per kind of device the dtype of the low-precision operations."""

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self.dtypes = dtypes

    def cast(self, operation: str, inputs: tuple) -> tuple:
        """The inputs in the dtype that the operation has inside of the block."""
        change = self._change(operation, inputs)
        if change is None:
            return inputs
        return tuple([x if x is None else change(x) for x in inputs])

    def call(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """function(*args, **kwargs), as one operation of its name."""
        change = self._change(function.__name__, (*args, *kwargs.values()))
        if change is not None:
            args = tuple([change(a) if isinstance(a, Tensor) else a for a in args])
            kwargs = {k: change(a) if isinstance(a, Tensor) else a for k, a in kwargs.items()}
        mode.autocast = None
        try:
            return function(*args, **kwargs)
        finally:
            mode.autocast = self

    def _change(self, operation: str, inputs: tuple) -> Callable[[Tensor], Tensor] | None:
        """How the tensors among the inputs of an operation are cast."""
        kind = next((x.device.type for x in inputs if isinstance(x, Tensor)), None)
        if kind not in self.dtypes:
            return None
        if operation in LOW[kind]:
            return self._low
        return self._wide if operation in FLOAT32[kind] else None

    def _low(self, x: Tensor) -> Tensor:
        dtype = self.dtypes.get(x.device.type)
        cast = dtype is not None and (x.dtype == minigrad.float32 or x.dtype in _SIXTEEN)
        return x.to(dtype) if cast else x

    def _wide(self, x: Tensor) -> Tensor:
        cast = x.device.type in self.dtypes and x.dtype in _SIXTEEN
        return x.to(minigrad.float32) if cast else x


class autocast:
    """`with autocast("cuda"): ...`, or a decorator: mixed precision on one kind of device.

    Products, convolutions, linear layers and attention of float32 tensors run in `dtype` (default:
    float16 on a GPU, bfloat16 on the CPU); losses in float32, on a GPU also softmax, layer norm and
    cumulative sums. Parameters keep their dtype and get gradients in it.
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _DEFAULTS:
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        self.device, self.fast_dtype = device_type, dtype or get_autocast_dtype(device_type)
        if enabled and device_type == "cuda" and not minigrad.cuda.is_available():
            warnings.warn(
                "User provided device_type of 'cuda', but CUDA is not available. Disabling",
                stacklevel=2,
            )
            enabled = False
        if enabled and self.fast_dtype not in _SIXTEEN:
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype {self.fast_dtype} is "
                "not supported: expected float16 or bfloat16. Disabling autocast.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._outside: list[_Casts | None] = []

    def __enter__(self) -> autocast:
        self._outside.append(mode.autocast)
        dtypes = {} if mode.autocast is None else dict(mode.autocast.dtypes)
        dtypes.pop(self.device, None)
        if self._enabled:
            dtypes[self.device] = self.fast_dtype
        mode.autocast = _Casts(dtypes) if dtypes else None
        return self

    def __exit__(self, *exc: Any) -> None:
        mode.autocast = self._outside.pop()

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this thread is in a block of `autocast` for that kind of device."""
    return mode.autocast is not None and device_type in mode.autocast.dtypes


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """From now on `autocast` on a kind of device ("cuda" if only `enabled` is given), or not."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _check_kind(device_type)
    dtypes = {} if mode.autocast is None else dict(mode.autocast.dtypes)
    dtypes.pop(device_type, None)
    if enabled:
        dtypes[device_type] = _chosen.get(device_type, _DEFAULTS[device_type])
    mode.autocast = _Casts(dtypes) if dtypes else None


_chosen: dict[str, Any] = {}  # by set_autocast_dtype


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """The dtype of low-precision operations on that kind of device, in force and from now on."""
    _check_kind(device_type)
    _chosen[device_type] = dtype
    if is_autocast_enabled(device_type):
        mode.autocast = _Casts({**mode.autocast.dtypes, device_type: dtype})


def _check_kind(device_type: str) -> None:
    if device_type not in _DEFAULTS:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")


def get_autocast_gpu_dtype() -> Any:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> Any:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


_cache = [True]  # whether programs ask for one; none is here, a cast is made where it is needed


def is_autocast_cache_enabled() -> bool:
    """What `set_autocast_cache_enabled` was given last; True at first."""
    return _cache[0]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """For `is_autocast_cache_enabled`; casts of parameters are not kept in any case."""
    _cache[0] = bool(enabled)


def clear_autocast_cache() -> None:
    """Nothing to do: casts of parameters are not kept."""


def is_autocast_available(device_type: str) -> bool:
    """Whether there is `autocast` for that kind of device."""
    return device_type in _DEFAULTS


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of low-precision operations on that kind of device."""
    found = {} if mode.autocast is None else mode.autocast.dtypes
    _check_kind(device_type)
    return found.get(device_type, _chosen.get(device_type, _DEFAULTS[device_type]))
