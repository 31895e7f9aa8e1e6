"""`GradScaler`: a loss scaled so that gradients of 16 bits don't vanish (Micikevicius et al.
2018)."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import minigrad
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Tensor


class _Stage(enum.Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _all_finite(sums: list[Tensor]) -> Tensor:
    """Whether all of the numbers are finite; the host does not wait for the answer."""
    with minigrad.no_grad():
        dtype = sums[0].dtype if len({s.dtype for s in sums}) == 1 else minigrad.float64
        return minigrad.stack([s.to(sums[0].device, dtype) for s in sums]).isfinite().all()


class GradScaler:
    """Scales losses, skips steps whose gradients are infinite or NaN, and adapts the scale.

    The scale is multiplied by `backoff_factor` after a skipped step, and by `growth_factor` after
    `growth_interval` steps in a row without one.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and device == "cuda" and not minigrad.cuda.is_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            enabled = False
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device, self._enabled, self._scale = device, enabled, float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._stages: dict[int, _Stage] = {}
        self._all_finite: dict[int, Tensor | bool] = {}  # by optimiser, until `update`

    def scale(self, outputs: Any) -> Any:
        """The tensor, or each of several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(output) for output in outputs])
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimiser's parameters by the scale, in place, before they
        are clipped. RuntimeError for a second time since the last `update`."""
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), _Stage.READY)
        if stage is _Stage.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if stage is _Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        sums = []
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.grad.dtype == minigrad.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                with minigrad.no_grad():
                    param.grad.mul_(1 / self._scale)
                    sums.append(param.grad.abs().sum())
        if sums:
            self._all_finite[id(optimizer)] = _all_finite(sums)
        self._stages[id(optimizer)] = _Stage.UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()` with unscaled gradients, unless one of them is infinite or NaN.

        To know that, the host waits for a GPU once, as in torch.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        stage = self._stages.get(id(optimizer), _Stage.READY)
        if stage is _Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage is _Stage.READY:
            self.unscale_(optimizer)
        if id(optimizer) not in self._all_finite:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        self._stages[id(optimizer)] = _Stage.STEPPED
        finite = self._all_finite[id(optimizer)] = bool(self._all_finite[id(optimizer)])
        return optimizer.step(*args, **kwargs) if finite else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the steps since the last `update` found, or set it."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._all_finite:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif not all(self._all_finite.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._stages.clear()
        self._all_finite.clear()

    def get_scale(self) -> float:
        """The scale; 1 if not enabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """What the scale grows by."""
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        """What the scale shrinks by."""
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._growth_interval

    def set_growth_factor(self, new_factor: float) -> None:
        """Choose what the scale grows by."""
        self._growth_factor = new_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Choose what the scale shrinks by."""
        self._backoff_factor = new_factor

    def set_growth_interval(self, new_interval: int) -> None:
        """Choose after how many steps the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale, and what it adapts by; empty if not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. RuntimeError for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._scale = state_dict["scale"]
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, f"_{name}", state_dict[name])
        self._growth_tracker = state_dict["_growth_tracker"]
