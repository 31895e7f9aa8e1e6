"""The grad modes, where programs of torch import them from."""

from minigrad._names import namespace
from minigrad.autograd.mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]

__getattr__, __dir__ = namespace(__name__)
