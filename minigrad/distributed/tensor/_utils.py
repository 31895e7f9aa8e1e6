"""Which part of a divided tensor a rank has."""

from __future__ import annotations

from collections.abc import Sequence

from minigrad._names import namespace
from minigrad.distributed.device_mesh import DeviceMesh
from minigrad.distributed.tensor.mappings import Placement, Shard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the shape of this rank's part, the index of its first element in the whole tensor).

    placements: one per dimension of the mesh, in its order. The last ranks get a shorter part, or
    none, whose first index is the length. ((0,), ()) for a rank that is outside of the mesh.
    """
    if len(placements) != mesh.ndim:
        raise RuntimeError(
            f"compute_local_shape_and_global_offset: expected {mesh.ndim} placements, one for each "
            f"dimension of the mesh, got {len(placements)}"
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    shape, first = list(global_shape), [0] * len(global_shape)
    for ranks, rank, placement in zip(mesh.shape, coordinate, placements, strict=True):
        if not isinstance(placement, Shard):
            continue
        n, dim = shape[placement.dim], placement.dim
        part = -(-n // ranks)
        start = min(rank * part, n)
        shape[dim] = min(part, n - start)
        first[dim] = first[dim] + start if shape[dim] else global_shape[dim]
    return tuple(shape), tuple(first)


__getattr__, __dir__ = namespace(__name__)
