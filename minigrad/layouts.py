"""How a tensor's elements are stored: `minigrad.strided`, `sparse_coo`, `sparse_csr`."""

from __future__ import annotations

from collections.abc import Callable


class _Named:
    """A value that compares by identity and prints as its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"minigrad.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(_Named):
    """A way to store elements."""

    __slots__ = ()


class memory_format(_Named):
    """An order of the elements in memory. Functions take it where torch's do; tensors are made
    row-major."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


def check_strided(wanted: layout | None) -> None:
    """NotImplementedError for a layout in which the function that was called makes no tensors."""
    if wanted is not None and wanted is not strided:
        raise NotImplementedError(
            f"tensors are not made in the layout {wanted!r} here: make a strided one, then call "
            "to_sparse() or to_sparse_csr()"
        )


SPARSE_FORMS: dict[str, Callable] = {}
"""What functions do if one of their tensors is sparse, by name; filled by
`minigrad.ops.sparse_algebra`."""


class NoDenseArray(NotImplementedError):
    """An operation that needs a dense array got a sparse tensor."""
