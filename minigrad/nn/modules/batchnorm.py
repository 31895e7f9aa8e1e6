"""Batch and instance normalisation (Ioffe & Szegedy 2015; Ulyanov et al. 2016)."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "SyncBatchNorm",
]


class _NormBase(Module):
    """Affine parameters and running statistics, per channel."""

    _version = 2  # as in torch: version 2 has num_batches_tracked

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        kind = {"device": device, "dtype": dtype}
        if affine:
            self.weight = Parameter(minigrad.empty(num_features, **kind))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(minigrad.empty(num_features, **kind))
        else:
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", minigrad.zeros(num_features, **kind))
            self.register_buffer("running_var", minigrad.ones(num_features, **kind))
            count = minigrad.tensor(0, dtype=minigrad.int64, device=device)
            self.register_buffer("num_batches_tracked", count)
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the mean to 0, the variance to 1 and the batch counter to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset the running statistics and the affine parameters."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any):
        # Checkpoints older than version 2 have no batch counter: keep the present one.
        key = prefix + "num_batches_tracked"
        version = local_metadata.get("version")
        old = version is None or version < 2
        if old and self.num_batches_tracked is not None and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # cumulative average over all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        # Without running statistics, evaluation uses those of the batch.
        return self._normalise(input, momentum, self.training or self.running_mean is None)

    def _normalise(self, input: Tensor, momentum: float, use_batch: bool) -> Tensor:
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            use_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation over (N, C) or (N, C, L), statistics per channel C.

    `momentum` None averages over all batches; without `track_running_stats` evaluation also
    uses the batch's statistics.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation over (N, C, H, W), statistics per channel C; see `BatchNorm1d`."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class _InstanceNorm(_NormBase):
    _dims: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        batched = self._dims + 2
        if input.dim() not in (batched - 1, batched):
            raise ValueError(
                f"expected {batched - 1}D or {batched}D input (got {input.dim()}D input)"
            )
        dim = input.dim() - batched + 1
        if input.shape[dim] != self.num_features:
            self._check_features(dim, input.shape[dim])
        if input.dim() == batched - 1:
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)

    def _check_features(self, dim: int, size: int) -> None:
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), "
                f"but got: {size}."
            )
        warnings.warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning "
            "by not passing in num_features, which is not used because affine=False",
            stacklevel=3,
        )

    def _normalise(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            *(input, self.running_mean, self.running_var, self.weight, self.bias),
            *(self.training or not self.track_running_stats, self.momentum or 0.0, self.eps),
        )


class InstanceNorm1d(_InstanceNorm):
    """Normalises each sample's channels of (N, C, L) by their own mean and variance."""

    _dims = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalises each sample's channels of (N, C, H, W) by their own mean and variance."""

    _dims = 2


class BatchNorm3d(_BatchNorm):
    """Batch normalisation over (N, C, D, H, W), statistics per channel C; see `BatchNorm1d`."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class InstanceNorm3d(_InstanceNorm):
    """Normalises each sample's channels of (N, C, D, H, W) by their own mean and variance."""

    _dims = 3


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over (N, C, ...) with the statistics of all ranks' batches together.

    process_group: the ranks, by default all of them. Outside of a process group, and in evaluation,
    it is `BatchNorm`. The ranks' batches may differ in size. `convert_sync_batchnorm(network)` puts
    it in place of every BatchNorm layer.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _normalise(self, input: Tensor, momentum: float, use_batch: bool) -> Tensor:
        dist = minigrad.distributed
        if not (use_batch and dist.is_initialized()):
            return super()._normalise(input, momentum, use_batch)
        group = dist.groups.resolve(self.process_group)
        if group.size == 1:
            return super()._normalise(input, momentum, use_batch)
        return self._over_ranks(input, momentum, group)

    def _over_ranks(self, input: Tensor, momentum: float, group: Any) -> Tensor:
        """Two sums travel, one after the other: of the values, then of the squared distances from
        their mean, which are exact where the mean is large."""
        add_up = functools.partial(minigrad.distributed.nn.functional.all_reduce, group=group)
        x = input.float() if input.dtype in (minigrad.float16, minigrad.bfloat16) else input
        over = [dim for dim in range(x.dim()) if dim != 1]
        own = x.new_full((1,), x.numel() // x.shape[1])
        sums = add_up(minigrad.cat([x.sum(over), own]))
        count = sums[-1].detach()
        form = (-1, *[1] * (x.dim() - 2))
        centred = x - (sums[:-1] / count).view(form)
        variance = add_up((centred * centred).sum(over)) / count
        if self.training and self.track_running_stats:
            with minigrad.no_grad():
                self.running_mean.lerp_((sums[:-1] / count).to(self.running_mean.dtype), momentum)
                unbiased = variance * (count / (count - 1))
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
        out = centred * (variance + self.eps).rsqrt().view(form)
        if self.weight is not None:
            out = out * self.weight.view(form)
        if self.bias is not None:
            out = out + self.bias.view(form)
        return out.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The network with a SyncBatchNorm, of the same tensors, for each BatchNorm in it."""
        for name, child in list(module.named_children()):
            setattr(module, name, cls.convert_sync_batchnorm(child, process_group))
        if not isinstance(module, _BatchNorm) or isinstance(module, SyncBatchNorm):
            return module
        converted = cls(
            *(module.num_features, module.eps, module.momentum, module.affine),
            *(module.track_running_stats, process_group),
        )
        for kind in ("_parameters", "_buffers"):
            getattr(converted, kind).update(getattr(module, kind))
        converted.training = module.training
        return converted
