"""Who takes part: the process group of the program, ranks, and groups of some ranks."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from minigrad import cuda
from minigrad.distributed import mpi, nccl
from minigrad.distributed.alone import Alone
from minigrad.distributed.errors import DistNetworkError
from minigrad.distributed.process_group import ProcessGroup as ProcessGroup
from minigrad.distributed.store import Control, TCPStore
from minigrad.distributed.witness import Watched

DEFAULT_TIMEOUT = timedelta(minutes=5)
BACKENDS = ("mpi", "gloo", "nccl")


class Backend(str):
    """The name of a backend, in small letters. ValueError for what is not a string."""

    MPI, GLOO, NCCL, UNDEFINED = *BACKENDS, "undefined"
    default_device_backend_map: ClassVar = {"cpu": "gloo", "cuda": "nccl"}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend: expected the name of a backend, got {name!r}")
        return super().__new__(cls, name.lower())


class _World:
    """The program's own group, and the others by their numbers."""

    group: Any = None
    backend = ""
    witness: Watched | None = None


_world = _World()


def is_available() -> bool:
    """True: there are groups, of one process where there is no MPI (`is_mpi_available`)."""
    return True


def is_mpi_available() -> bool:
    """Whether an MPI and its bindings (mpi4py) are installed."""
    try:
        mpi.library()
    except DistNetworkError:
        return False
    return True


def is_nccl_available() -> bool:
    """Whether CuPy and NCCL are installed."""
    try:
        nccl.library()
    except DistNetworkError:
        return False
    return True


def is_gloo_available() -> bool:
    """True: "gloo" is another name for "mpi"."""
    return True


def is_torchelastic_launched() -> bool:
    """Whether `torchrun` started this program: it sets an identifier of the run."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_initialized() -> bool:
    """Whether `init_process_group` has been called."""
    return _world.group is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other ranks of the program.

    backend: "mpi", for tensors on the CPU; "gloo" is another name for it. "nccl", for tensors on
        the current GPU, one for each rank. Ranks come from `mpiexec` or Slurm's `srun`; for "nccl"
        also from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as `torchrun` sets them. A program
        that is started without them is a group of one.
    init_method, store: for "nccl" "tcp://host:port" or a `TCPStore` instead of MASTER_ADDR.
    timeout: of every operation, by default 5 minutes; MINIGRAD_DISTRIBUTED_TIMEOUT (seconds)
        changes the default.
    world_size, rank: what the program expects (default: WORLD_SIZE and RANK, if set); checked.

    device_id: the GPU of this rank, for "nccl"; default: the current one.

    Raises DistNetworkError without MPI or NCCL or with another number of ranks than expected,
    ValueError for an unknown backend or a second call.
    """
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    backend = (backend or "mpi").lower()
    if backend not in BACKENDS:
        raise ValueError(f"init_process_group: expected a backend of {BACKENDS}, got {backend!r}")
    if pg_options is not None or (store is not None and backend != "nccl"):
        raise NotImplementedError(
            'init_process_group: minigrad has no pg_options=, and store= for "nccl" only'
        )
    size = world_size if world_size >= 0 else _number("WORLD_SIZE")
    mine = rank if rank >= 0 else _number("RANK")
    group: Any
    seconds = _seconds(timeout)
    store = store or (_rendezvous(init_method, size, mine, seconds) if backend == "nccl" else None)
    if device_id is not None:
        cuda.set_device(device_id)
    if store is not None:
        if size is None or mine is None:
            raise ValueError("init_process_group: store= needs rank= and world_size=")
        store.hello(mine)
        group = Control(store, range(size), mine, seconds)
    elif mpi.is_launched():
        comm = mpi.library().COMM_WORLD
        _expect(comm.Get_size(), comm.Get_rank(), size, mine)
        group = mpi.Group(comm, range(comm.Get_size()), seconds)
        if sys.platform == "linux":
            _world.witness = Watched(comm)
        mpi.end_all_on_error(comm.Get_rank, _dismiss)
    else:
        _expect(1, 0, size, mine)
        group = Alone(seconds)
    if backend == "nccl" and not isinstance(group, Alone):
        group = nccl.Group(group)
    _world.group, _world.backend = group, backend
    atexit.register(_leave)


def _rendezvous(
    init_method: str | None, size: int | None, rank: int | None, seconds: float
) -> TCPStore | None:
    """The store of ranks that no MPI has started; None where MPI has, or nobody."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if init_method is not None and init_method != "env://":
        kind, _, address = init_method.partition("://")
        host, _, port = address.rpartition(":")
        if kind != "tcp" or not host:
            raise ValueError(
                f'init_process_group: expected init_method="env://" or "tcp://host:port", got '
                f"{init_method!r}"
            )
    elif mpi.is_launched() or (size is None and rank is None and host is None):
        return None
    values = {"WORLD_SIZE": size, "RANK": rank, "MASTER_ADDR": host, "MASTER_PORT": port or None}
    for name, value in values.items():
        if value is None:
            raise ValueError(
                "Error initializing minigrad.distributed using env:// rendezvous: environment "
                f"variable {name} expected, but not set"
            )
    if not port.isdecimal() or not 0 <= (rank or 0) < (size or 0):
        raise ValueError(
            f"init_process_group: expected a port and 0 <= rank < world_size, got port {port!r}, "
            f"rank {rank} and world_size {size}"
        )
    return TCPStore(str(host), int(port), size, rank == 0, timedelta(seconds=seconds))


def _seconds(timeout: timedelta | None) -> float:
    if timeout is not None:
        return timeout.total_seconds()
    given = os.environ.get("MINIGRAD_DISTRIBUTED_TIMEOUT")
    try:
        seconds = DEFAULT_TIMEOUT.total_seconds() if not given else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:  # no number, endless
        raise ValueError(f"MINIGRAD_DISTRIBUTED_TIMEOUT: expected seconds, got {given!r}")
    return seconds


def _number(variable: str) -> int | None:
    given = os.environ.get(variable, "")
    return int(given) if given.isdecimal() else None


def _expect(size: int, rank: int, wanted: int | None, wanted_rank: int | None) -> None:
    """Raise DistNetworkError if the program was started otherwise than it says."""
    if wanted in (None, size) and wanted_rank in (None, rank):
        return
    said = "" if wanted is None else f"world_size={wanted} "
    said += "" if wanted_rank is None else f"rank={wanted_rank} "
    raise DistNetworkError(
        f"init_process_group: expected {said.strip()}, and this is rank {rank} of {size} that were "
        f"started; start the program with mpiexec -n {wanted or size} python program.py"
    )


def _leave() -> None:
    if _world.group is not None:
        _world.group.leave()
        _world.group = None
        _dismiss()


def _dismiss() -> None:
    if _world.witness is not None:
        _world.witness.dismiss()
        _world.witness = None


def destroy_process_group(group: Any = None) -> None:
    """Leave the group; of the program's own, all may leave and join again."""
    if group is None or group is _world.group:
        if not is_initialized():
            raise ValueError("Invalid process group specified")
        _leave()
        atexit.unregister(_leave)


def resolve(group: Any) -> Any:
    """The group that an operation is called on. Raises ValueError without one."""
    if _world.group is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this rank is not a member of the group")
    return _world.group if group is None else group


class GroupMember:
    """`WORLD` is the program's own group; NON_GROUP_MEMBER is what `new_group` gives to others."""

    WORLD = None
    NON_GROUP_MEMBER = object()


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
) -> Any:
    """A group of some ranks (all must call this, in the same order); NON_GROUP_MEMBER for the
    others."""
    world = resolve(None)
    chosen = list(range(world.size)) if ranks is None else sorted(ranks)
    if any(not 0 <= rank < world.size for rank in chosen) or len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: expected different ranks below {world.size}, got {ranks}")
    limit = world.timeout if timeout is None else _seconds(timeout)
    made = world.subgroup(chosen, limit)
    return GroupMember.NON_GROUP_MEMBER if made is None else made


def get_rank(group: Any = None) -> int:
    """This process's number in the group; -1 if it is no member."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).rank


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has; -1 if this one is no member."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).size


def get_backend(group: Any = None) -> str:
    """The name that `init_process_group` was called with: "mpi", "gloo" or "nccl"."""
    resolve(group)
    return _world.backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The members' ranks in the whole program."""
    return list(resolve(group).ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank within `group` of a rank of the program. Raises ValueError for no member."""
    ranks = resolve(group).ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {ranks}")
    return ranks.index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the program of a rank within `group`."""
    return resolve(group).ranks[group_rank]
