"""Automatic differentiation: the graph, the backward pass and the grad modes."""

from minigrad._names import namespace
from minigrad.autograd.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

from minigrad.autograd import graph, rehearsal  # noqa: F401  # isort: skip
from minigrad.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from minigrad.autograd.check import GradcheckError, gradcheck, gradgradcheck
from minigrad.autograd.engine import backward, grad
from minigrad.autograd.function import Function
from minigrad.autograd.variable import Variable

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__getattr__, __dir__ = namespace(  # at their first use: they need the operations
    __name__,
    {
        name: f"minigrad.autograd.{name}"
        for name in ("forward_ad", "functional", "grad_mode", "profiler")
    },
)
