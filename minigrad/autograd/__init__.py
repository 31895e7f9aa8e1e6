"""Automatic differentiation: the graph, the backward pass and the grad modes."""

from minigrad._names import refuse
from minigrad.autograd.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

from minigrad.autograd import graph  # isort: skip
from minigrad.autograd.check import GradcheckError, gradcheck, gradgradcheck
from minigrad.autograd.engine import backward, grad
from minigrad.autograd.function import Function
from minigrad.autograd.variable import Variable

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]

__getattr__ = refuse(__name__)
