"""`ProcessGroup`: what `new_group` returns, for `isinstance` and annotations."""

from __future__ import annotations


class ProcessGroup:
    """Ranks that communicate, by MPI, by NCCL, or one alone."""
