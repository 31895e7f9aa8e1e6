"""Layers that learn the size of their input from the first one."""

from __future__ import annotations

from typing import Any, ClassVar

import minigrad
from minigrad.nn.modules.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from minigrad.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from minigrad.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyModuleMixin(Module):
    """Parameters without a shape until the first `forward`, which calls `initialize_parameters`.

    Then the module becomes one of the class `cls_to_become`. A checkpoint gives the shapes, too.
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._infer_handle = self.register_forward_pre_hook(_infer, with_kwargs=True)
        self._load_handle = self.register_load_state_dict_pre_hook(_materialize)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters the shapes that fit the arguments of `forward`."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def reset_parameters(self) -> None:
        """Draw new initial values, once there are shapes."""
        if not self.has_uninitialized_params():
            super().reset_parameters()


def _infer(module: LazyModuleMixin, args: tuple, kwargs: dict) -> None:
    """Before `forward`: shapes from its arguments."""
    if module.has_uninitialized_params():
        module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    for name in ("_infer_handle", "_load_handle"):
        module.__dict__.pop(name).remove()
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def _materialize(module: LazyModuleMixin, state: dict, prefix: str, *_: Any) -> None:
    """Before a load: shapes from the checkpoint."""
    for table in (module._parameters, module._buffers):
        for name, value in table.items():
            saved = state.get(prefix + name)
            if is_lazy(value) and isinstance(saved, Tensor) and not is_lazy(saved):
                value.materialize(saved.shape)


def _lazily(module: Module, bias: bool, device: Any, dtype: Any) -> None:
    """Weight and bias without a shape."""
    module.weight = UninitializedParameter(device=device, dtype=dtype)
    if bias:
        module.bias = UninitializedParameter(device=device, dtype=dtype)


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose `in_features` is that of the first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        _lazily(self, bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        self.weight.materialize((self.out_features, self.in_features))
        if self.bias is not None:
            self.bias.materialize((self.out_features,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, once `in_features` is known."""
        if self.in_features:
            super().reset_parameters()


class _LazyConv(LazyModuleMixin):
    """What the lazy convolutions share: `in_channels` is that of the first input."""

    def __init__(
        self, out_channels: int, *args: Any, bias: bool, device: Any, dtype: Any, **options: Any
    ) -> None:
        super().__init__(0, 0, *args, bias=False, **options)
        self.out_channels = out_channels
        _lazily(self, bias, device, dtype)

    def initialize_parameters(self, input: Tensor, *_: Any, **__: Any) -> None:
        dims = self._dims
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {list(input.shape)}"
            )
        self.in_channels = input.shape[input.dim() - dims - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, once `in_channels` is known."""
        if self.in_channels:
            super().reset_parameters()


class _LazyConvNd(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            *(out_channels, kernel_size, stride, padding, dilation, groups),
            bias=bias,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class _LazyConvTransposeNd(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            *(out_channels, kernel_size, stride, padding, output_padding, groups),
            bias=bias,
            dilation=dilation,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class LazyConv1d(_LazyConvNd, Conv1d):
    """`Conv1d` whose `in_channels` is that of the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvNd, Conv2d):
    """`Conv2d` whose `in_channels` is that of the first input."""

    cls_to_become = Conv2d


class LazyConvTranspose1d(_LazyConvTransposeNd, ConvTranspose1d):
    """`ConvTranspose1d` whose `in_channels` is that of the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposeNd, ConvTranspose2d):
    """`ConvTranspose2d` whose `in_channels` is that of the first input."""

    cls_to_become = ConvTranspose2d


class _LazyNorm(LazyModuleMixin):
    """What the lazy norms share: `num_features` is that of the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            _lazily(self, bias, device, dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = minigrad.tensor(0, dtype=minigrad.int64, device=device)

    def initialize_parameters(self, input: Tensor) -> None:
        self.num_features = input.shape[1]
        for value in (*self._parameters.values(), *self._buffers.values()):
            if is_lazy(value):
                value.materialize((self.num_features,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset statistics and parameters, once `num_features` is known."""
        if self.num_features:
            super().reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` whose `num_features` is that of the first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` whose `num_features` is that of the first input."""

    cls_to_become = BatchNorm2d


class LazyConv3d(_LazyConvNd, Conv3d):
    """`Conv3d` whose `in_channels` is that of the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose3d(_LazyConvTransposeNd, ConvTranspose3d):
    """`ConvTranspose3d` whose `in_channels` is that of the first input."""

    cls_to_become = ConvTranspose3d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` whose `num_features` is that of the first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """`InstanceNorm1d` whose `num_features` is that of the first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """`InstanceNorm2d` whose `num_features` is that of the first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """`InstanceNorm3d` whose `num_features` is that of the first input."""

    cls_to_become = InstanceNorm3d
