"""`minigrad.quantization` by torch's newer name, and the classes that libraries look for."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.nn import Module
from minigrad.quantization import quantize_dynamic

__all__ = ["FakeQuantizeBase", "ObserverBase", "quantize_dynamic"]


class ObserverBase(Module):
    """A module that watches the range of values, to derive from; minigrad has none itself."""


class FakeQuantizeBase(Module):
    """A module that rounds as quantisation does, to derive from; minigrad has none itself."""


__getattr__, __dir__ = namespace(__name__)
