"""`autocast` and `GradScaler` for GPUs: the older names, without a kind of device."""

from __future__ import annotations

import functools
from typing import Any

from minigrad import amp
from minigrad._names import namespace

__path__: list[str] = []  # for imports of torch.cuda.amp.grad_scaler

custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):
    """`minigrad.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`minigrad.amp.GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        options = init_scale, growth_factor, backoff_factor, growth_interval, enabled
        super().__init__("cuda", *options)


__getattr__, __dir__ = namespace(__name__)
