"""The kernels of attention_mma.cu, for heads of up to 128 elements of 16 bits."""

from __future__ import annotations

from kernels.cuda_c.attention import KINDS, backward_with_sizes, with_sizes
from kernels.cuda_c.common import Kernel, family

_kernel = family("attention_mma.cu")

OWN, THREADS = 64, 128  # rows and threads of a block
MAX_WIDTH = 128


def padded(width: int) -> int:
    """The elements of a row in shared memory: a power of 2, which the swizzle needs."""
    return max(16, 1 << (width - 1).bit_length())


def other_rows(width: int, backward: bool = False) -> int:
    """Rows of the tiles that come by: what fits into 48 KB, and backward into the registers."""
    return (64 if padded(width) <= 64 else 32) // (2 if backward else 1)


def attention_mma(width: int, mask_kind: str) -> Kernel:
    """kernel(q, k, v, mask, out, lse, scale, causal, div, mod, step, span)."""
    constants = (KINDS[mask_kind], other_rows(width), padded(width))
    return _kernel("attention_mma", (0, 3, 4), constants, with_sizes)


def attention_mma_backward(width: int, mask_kind: str, of_keys: bool, split: bool) -> Kernel:
    """kernel(own_a, own_b, other_a, other_b, mask, lse, delta, da, db, scale, ..., step, span)."""
    constants = (KINDS[mask_kind], of_keys, split, other_rows(width, True), padded(width))
    return _kernel("attention_mma_backward", (0, 4, 7), constants, backward_with_sizes)
