"""Tensors that are divided among ranks: how, by torch's names `Shard` and `Replicate`.

A rank's part is a plain Tensor: there are no objects of the class DTensor. `parallel` divides the
layers of a network, `ring` the sequence of attention.
"""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from minigrad.distributed.tensor.dtensor import DTensor, distribute_tensor
from minigrad.distributed.tensor.mappings import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_tensor",
    "init_device_mesh",
]

__getattr__, __dir__ = namespace(__name__)
