"""Training on several processes (`DistributedDataParallel`), and on the one device of each."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "scatter"]


def _check(device_ids: Any) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise NotImplementedError(
            f"DataParallel: minigrad trains on one device, got device_ids={list(device_ids)}; "
            "pass one number, or none"
        )


class DataParallel(Module):
    """`module` under the name "module", so that names of parameters are those of torch's wrapper.

    The batch is not divided: there is one device. NotImplementedError for several `device_ids`.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        _check(device_ids)
        self.dim = dim
        self.device_ids = list(device_ids or range(min(minigrad.cuda.device_count(), 1)))
        self.output_device = output_device
        self.module = module

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """`module(*inputs, **module_kwargs)` on the one device that there is."""
    _check(device_ids)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list[Any]:
    """`inputs` once for each device: tensors in them are divided along dim, other values shared.

    target_gpus: devices, or numbers of GPUs. Lists, tuples and dicts of tensors keep their form;
    where a tensor has fewer parts than there are devices, the last ones get nothing.
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return [part.to(target) for part, target in zip(parts, target_gpus)]
    if isinstance(inputs, tuple | list) and inputs:
        rows = zip(*(scatter(value, target_gpus, dim) for value in inputs))
        if hasattr(inputs, "_fields"):
            return [type(inputs)(*row) for row in rows]
        return [type(inputs)(row) for row in rows]
    if isinstance(inputs, dict) and inputs:
        rows = zip(*(scatter(value, target_gpus, dim) for value in inputs.values()))
        return [type(inputs)(zip(inputs, row)) for row in rows]
    return [inputs for _ in target_gpus]


__getattr__, __dir__ = namespace(  # at its first use: few programs communicate
    __name__, {"DistributedDataParallel": "minigrad.nn.parallel.distributed"}
)
