"""Ranks as a grid: one axis per way of dividing the work, a group of ranks for each row of it.

mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
mesh["tp"].get_group()      # the four ranks that divide this rank's layers
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import distributed as dist
from minigrad._names import namespace
from minigrad.distributed.groups import GroupMember
from minigrad.tensor import Tensor, wrap

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in a grid; made by `init_device_mesh`, and by `mesh["name"]` for one axis of it.

    mesh: the ranks, as a Tensor. mesh_dim_names: a name for each axis, or None.
    """

    def __init__(
        self, device_type: str, ranks: Any, names: tuple[str, ...] | None, groups: list[Any]
    ) -> None:
        self.device_type, self.mesh_dim_names = device_type, names
        self._ranks, self._groups = np.asarray(ranks), groups

    @property
    def mesh(self) -> Tensor:
        return wrap(self._ranks.copy())

    @property
    def ndim(self) -> int:
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self._ranks.shape

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, of the grid or along one axis."""
        return self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this rank along an axis. Raises RuntimeError for a rank that is not in the
        mesh, and without `mesh_dim` where there are several axes."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(
                f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs"
                " to be specified when device_mesh.ndim > 1."
            )
        found = self._groups[self._axis(0 if mesh_dim is None else mesh_dim)]
        if found is None:
            raise RuntimeError(
                f"get_group: rank {dist.get_rank()} is not in the mesh of the ranks "
                f"{self._ranks.tolist()}"
            )
        return found

    def get_rank(self) -> int:
        """This process's rank in the whole program."""
        return dist.get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's rank along an axis."""
        return dist.get_rank(self.get_group(mesh_dim))

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in the grid; None if it is not there."""
        found = np.argwhere(self._ranks == dist.get_rank())
        return found[0].tolist() if len(found) else None

    def _axis(self, mesh_dim: int | str) -> int:
        if isinstance(mesh_dim, str):
            names = self.mesh_dim_names or ()
            if mesh_dim not in names:
                raise KeyError(
                    f"Invalid mesh_dim_names {mesh_dim!r} specified. Valid mesh_dim_names are "
                    f"{list(names)}."
                )
            return names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh dimension {mesh_dim} of a mesh of {self.ndim} dimensions")
        return mesh_dim % self.ndim

    def __getitem__(self, name: str) -> DeviceMesh:
        """The mesh of one dimension along the axis of that name, through this rank."""
        axis, place = self._axis(name), self.get_coordinate()
        if place is None:
            ranks = self._ranks.take(0, axis)  # a rank outside may ask, and has no group
        else:
            ranks = self._ranks[tuple(slice(None) if i == axis else p for i, p in enumerate(place))]
        return DeviceMesh(self.device_type, ranks, (name,), [self._groups[axis]])

    def __repr__(self) -> str:
        names = self.mesh_dim_names or range(self.ndim)
        sizes = ", ".join(f"{name}={size}" for name, size in zip(names, self.shape))
        return f"DeviceMesh(({sizes}), device: {self.device_type!r})"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """Ranks 0, 1, ... in a grid of `mesh_shape`, row by row. All ranks of the program call it.

    Raises RuntimeError for more places than ranks, and for names that do not fit the shape.
    """
    if backend_override is not None:
        raise NotImplementedError(
            "init_device_mesh: backend_override= is not available in minigrad; leave it out"
        )
    shape = tuple(mesh_shape)
    names = None if mesh_dim_names is None else tuple(mesh_dim_names)
    if names is not None and len(set(names)) != len(names):
        raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated names in {names}")
    if names is not None and len(names) != len(shape):
        raise RuntimeError(
            "mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): "
            f"{len(names)} and len(mesh_shape):{len(shape)}."
        )
    if not shape or any(not isinstance(n, int) or n < 1 for n in shape):
        raise RuntimeError(f"init_device_mesh: expected positive sizes, got mesh_shape={shape}")
    count, world = math.prod(shape), dist.get_world_size()
    if count > world:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {world}, but found {count} ranks! "
            f"Start the program with mpiexec -n {count}, or make the mesh smaller"
        )
    ranks = np.arange(count).reshape(shape)
    return DeviceMesh(device_type, ranks, names, [_along(ranks, a) for a in range(len(shape))])


def _along(ranks: np.ndarray, axis: int) -> Any:
    """This rank's group along an axis; None for a rank that is not in the mesh."""
    mine = None
    for row in np.moveaxis(ranks, axis, -1).reshape(-1, ranks.shape[axis]):
        made = dist.new_group(row.tolist())
        if made is not GroupMember.NON_GROUP_MEMBER:
            mine = made
    return mine


__getattr__, __dir__ = namespace(__name__)
