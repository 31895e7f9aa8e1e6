"""torch's newer place of `minigrad.quantization`."""

from minigrad._names import namespace

__all__ = ["quantization"]

__getattr__, __dir__ = namespace(__name__, {"quantization": "minigrad.ao.quantization"})
