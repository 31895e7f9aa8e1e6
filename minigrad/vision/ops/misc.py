"""Layers that are built from others."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor

__all__ = ["FrozenBatchNorm2d"]


class FrozenBatchNorm2d(Module):
    """A BatchNorm2d whose statistics, weight and bias are buffers: nothing in it is trained.

    Its state_dict loads that of a BatchNorm2d, without `num_batches_tracked`.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", minigrad.ones(num_features))
        self.register_buffer("bias", minigrad.zeros(num_features))
        self.register_buffer("running_mean", minigrad.zeros(num_features))
        self.register_buffer("running_var", minigrad.ones(num_features))

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        super()._load_from_state_dict(
            *(state_dict, prefix, local_metadata, strict),
            *(missing_keys, unexpected_keys, error_msgs),
        )

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"FrozenBatchNorm2d({self.weight.shape[0]}, eps={self.eps})"


__getattr__, __dir__ = namespace(__name__)
