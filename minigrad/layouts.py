"""How a tensor's elements are stored: `minigrad.strided`, `sparse_coo`, `sparse_csr`."""

from __future__ import annotations

from collections.abc import Callable


class layout:
    """A way to store elements; compares by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"minigrad.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")


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
