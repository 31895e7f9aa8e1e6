"""`numba.cuda.bf16`: the type bfloat16 and CUDA's functions of it, for kernels."""

from __future__ import annotations

from kernels.simt.devlib.half import bfloat16
from kernels.simt.ir import stubs

__all__ = ["bfloat16", *(name for name in vars(stubs.bf16) if name != "name")]

globals().update({name: getattr(stubs.bf16, name) for name in __all__[1:]})
