"""`functional_call` under its older name."""

from minigrad._names import namespace
from minigrad.func import _reparametrize_module as _reparametrize_module
from minigrad.func import functional_call

__all__ = ["functional_call"]

__getattr__, __dir__ = namespace(__name__)
