"""Training on several processes (`DistributedDataParallel`), and on the one device of each."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.module import Module
from minigrad.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "scatter"]


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


__getattr__, __dir__ = namespace(  # at its first use: few programs communicate
    __name__, {"DistributedDataParallel": "minigrad.nn.parallel.distributed"}
)
