"""Training on several processes: ranks that exchange tensors, with torch.distributed's names.

    mpiexec -n 2 python program.py

    import minigrad as torch
    import minigrad.distributed as dist

    dist.init_process_group("mpi")
    x = torch.ones(3) * dist.get_rank()
    dist.all_reduce(x)                      # the sum of all ranks' x, on every rank

Tensors on the CPU travel by MPI (mpi4py; `pip install 'minigrad[distributed]'` brings an MPI too),
tensors on GPUs by NCCL: `init_process_group("nccl")`, one GPU for each rank. A program that no
launcher of MPI has started is a group of one process.
`minigrad.nn.parallel.DistributedDataParallel` averages the gradients of a network while backward
still runs.
"""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed import compression
from minigrad.distributed.collectives import (
    P2POp,
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    group,
    irecv,
    isend,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
)
from minigrad.distributed.errors import DistBackendError, DistError, DistNetworkError
from minigrad.distributed.groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)
from minigrad.distributed.mpi import Work
from minigrad.distributed.store import TCPStore

__all__ = [
    "Backend",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "compression",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]

__getattr__, __dir__ = namespace(
    __name__,
    {
        "nn": "minigrad.distributed.nn",
        "DeviceMesh": "minigrad.distributed.device_mesh",
        "init_device_mesh": "minigrad.distributed.device_mesh",
    },
)
