"""Collectives and messages of Tensors, with torch's names, argument order and in-place results.

Every operation takes `group` (default: all ranks) and, where torch has it, `async_op`: then it
returns a `Work` whose `wait()` ends it, and the tensors may not be touched until then. `src` and
`dst` are ranks of the whole program. Ranks that call different operations, or with other shapes or
dtypes, all raise DistBackendError; a rank that does not answer within the group's time likewise.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minigrad.backends import array_module
from minigrad.distributed.groups import GroupMember, get_group_rank, resolve
from minigrad.distributed.mpi import Work
from minigrad.tensor import Tensor


class ReduceOp(enum.Enum):
    """How numbers of several ranks become one."""

    SUM = "SUM"
    AVG = "AVG"
    PRODUCT = "PRODUCT"
    MIN = "MIN"
    MAX = "MAX"
    BAND = "BAND"
    BOR = "BOR"
    BXOR = "BXOR"


# torch's name of the type of the kinds, for annotations
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]


def _array(name: str, tensor: Any) -> Any:
    """The array of a tensor that an operation is called on."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a Tensor, got {type(tensor).__name__}")
    return tensor._array


def _operator(name: str, op: Any) -> str:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: expected op=ReduceOp.SUM or another of them, got {op!r}")
    return op.value


class _Result:
    """What a collective writes: the tensor's own memory, or a copy of it that is put back."""

    def __init__(self, name: str, tensor: Any) -> None:
        array = _array(name, tensor)
        if tensor._requires_grad and tensor._node is not None:
            raise RuntimeError(
                f"{name}: the tensor is part of a graph; use tensor.detach(), or torch.no_grad()"
            )
        self.tensor, self.array = tensor, array
        self.memory = (
            array if array.flags.c_contiguous else array_module(array).array(array, order="C")
        )

    def put_back(self) -> None:
        if self.memory is not self.array:
            self.array[...] = self.memory
        self.tensor._counter[0] += 1


def _given(name: str, tensor: Any) -> Any:
    array = _array(name, tensor)
    return array if array.flags.c_contiguous else array_module(array).array(array, order="C")


def _end(work: Work, async_op: bool, after: Callable[[], None] | None = None) -> Work | None:
    """The work itself, or nothing once it is done. `after` runs when it is done."""
    if after is not None:
        work = _Then(work, after)
    if async_op:
        return work
    work.wait()
    return None


class _Then(Work):
    """A work with something to do when it is done."""

    def __init__(self, work: Work, after: Callable[[], None]) -> None:
        self._work, self._after, self._over = work, after, False

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def wait(self, timeout: Any = None) -> bool:
        if not self._over:
            self._work.wait(timeout)
            self._over = True
            self._after()
        return True


# --- collectives of tensors


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`tensor` becomes the reduction of all ranks' tensors, on every rank."""
    result = _Result("all_reduce", tensor)
    work = resolve(group).all_reduce(result.memory, _operator("all_reduce", op))
    return _end(work, async_op, result.put_back)


def reduce(
    tensor: Tensor,
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """On rank `dst`, `tensor` becomes the reduction of all ranks' tensors."""
    result = _Result("reduce", tensor)
    root = get_group_rank(group, dst)
    work = resolve(group).reduce(result.memory, root, _operator("reduce", op))
    return _end(work, async_op, result.put_back)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor` becomes that of rank `src`, on every rank."""
    result = _Result("broadcast", tensor)
    work = resolve(group).broadcast(result.memory, get_group_rank(group, src))
    return _end(work, async_op, result.put_back)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """All ranks' tensors, one after the other along the first dimension (or stacked)."""
    name = "all_gather_into_tensor"
    result, given, members = (
        _Result(name, output_tensor),
        _given(name, input_tensor),
        resolve(group),
    )
    _same_size(name, result.array, given, members.size)
    return _end(members.all_gather(result.memory, given), async_op, result.put_back)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """`tensor_list[i]` becomes rank i's tensor."""
    members, given = resolve(group), _given("all_gather", tensor)
    _same_length("all_gather", tensor_list, members.size)
    results = [_Result("all_gather", one) for one in tensor_list]
    for result in results:
        _alike("all_gather", result.array, given)
    out = array_module(given).empty((members.size, *given.shape), given.dtype)
    return _end(members.all_gather(out, given), async_op, lambda: _distribute(results, out))


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """On rank `dst`, `gather_list[i]` becomes rank i's tensor."""
    members, given, root = resolve(group), _given("gather", tensor), get_group_rank(group, dst)
    results, out = [], None
    if members.rank == root:
        _same_length("gather", gather_list, members.size)
        results = [_Result("gather", one) for one in gather_list or ()]
        for result in results:
            _alike("gather", result.array, given)
        out = array_module(given).empty((members.size, *given.shape), given.dtype)
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    return _end(members.gather(out, given, root), async_op, lambda: _distribute(results, out))


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`tensor` becomes `scatter_list[rank]` of rank `src`."""
    members, result, root = resolve(group), _Result("scatter", tensor), get_group_rank(group, src)
    parts = None
    if members.rank == root:
        _same_length("scatter", scatter_list, members.size)
        given = [_given("scatter", one) for one in scatter_list or ()]
        for one in given:
            _alike("scatter", one, result.array)
        parts = array_module(result.array).stack(given)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    return _end(members.scatter(result.memory, parts, root), async_op, result.put_back)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The reduction of all ranks' `input`, of which each rank gets its part."""
    name = "reduce_scatter_tensor"
    result, given, members = _Result(name, output), _given(name, input), resolve(group)
    _same_size(name, given, result.array, members.size)
    parts = given.reshape((members.size, *result.memory.shape)).copy()
    work = members.reduce_scatter(result.memory, parts, _operator(name, op))
    return _end(work, async_op, result.put_back)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`output` becomes the reduction of all ranks' `input_list[rank]`."""
    members, result = resolve(group), _Result("reduce_scatter", output)
    _same_length("reduce_scatter", input_list, members.size)
    given = [_given("reduce_scatter", one) for one in input_list]
    for one in given:
        _alike("reduce_scatter", one, result.array)
    parts = array_module(result.array).stack(given)
    work = members.reduce_scatter(result.memory, parts, _operator("reduce_scatter", op))
    return _end(work, async_op, result.put_back)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Rank i gets the i-th part of `input` along the first dimension."""
    name = "all_to_all_single"
    members, result, given = resolve(group), _Result(name, output), _given(name, input)
    if result.array.dtype != given.dtype:
        raise RuntimeError(f"{name}: output is {result.array.dtype}, input is {given.dtype}")
    give = _splits(name, given, input_split_sizes, members.size)
    take = _splits(name, result.memory, output_split_sizes, members.size)
    return _end(members.all_to_all(result.memory, given, give, take), async_op, result.put_back)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor_list[i]` becomes rank i's `input_tensor_list[rank]`; sizes may differ."""
    members = resolve(group)
    _same_length("all_to_all", output_tensor_list, members.size)
    _same_length("all_to_all", input_tensor_list, members.size)
    results = [_Result("all_to_all", one) for one in output_tensor_list]
    parts = [_given("all_to_all", one).reshape(-1) for one in input_tensor_list]
    xp = array_module(parts[0])
    given = xp.concatenate(parts)
    counts = [result.array.size for result in results]
    out = xp.empty(sum(counts), given.dtype)

    def put_back() -> None:
        ends = np.cumsum(counts)
        flat = [out[end - n : end] for n, end in zip(counts, ends)]
        _distribute(results, [one.reshape(r.array.shape) for one, r in zip(flat, results)])

    give, take = [part.nbytes for part in parts], [n * given.itemsize for n in counts]
    return _end(members.all_to_all(out, given, give, take), async_op, put_back)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until every rank of the group has come here."""
    return _end(resolve(group).barrier(), async_op)


# --- between two ranks


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work:
    """Begin to send a tensor to rank `dst`; it may not be changed until the work is done."""
    members = resolve(group)
    return members.send(_given("isend", tensor), _other(members, "isend", dst), tag)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work:
    """Begin to receive into `tensor` from rank `src` (None: from any)."""
    return _receive("irecv", tensor, src, group, tag)[0]


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send a tensor to rank `dst`, which calls `recv`."""
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receive into `tensor` from rank `src` (None: from any); returns the sender's rank."""
    work, sender = _receive("recv", tensor, src, group, tag)
    work.wait()
    return resolve(group).ranks[sender()]


class P2POp(NamedTuple):
    """A message for `batch_isend_irecv`. op: `isend` or `irecv`; peer: the other rank."""

    op: Callable
    tensor: Tensor
    peer: int
    group: Any = None
    tag: int = 0


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several messages of one group together: with NCCL, messages both ways between two
    ranks have to be begun so. Raises ValueError for an empty list, several groups, or another
    `op`."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected a list of P2POp, got " + repr(p2p_op_list))
    first = p2p_op_list[0].group
    if any(one.op not in (isend, irecv) or one.group is not first for one in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected isend or irecv as op, and one group")
    with resolve(first).together():
        return [one.op(one.tensor, one.peer, one.group, one.tag) for one in p2p_op_list]


def _receive(
    name: str, tensor: Tensor, src: int | None, group: Any, tag: int
) -> tuple[Work, Callable[[], int]]:
    members, result = resolve(group), _Result(name, tensor)
    source = None if src is None else _other(members, name, src)
    work, sender = members.receive(result.memory, source, tag)
    return _Then(work, result.put_back), sender


def _other(members: Any, name: str, rank: int) -> int:
    if rank not in members.ranks:
        raise ValueError(f"{name}: there is no rank {rank} in the group {members.ranks}")
    if members.ranks[members.rank] == rank:
        raise ValueError(f"{name}: rank {rank} would send to itself")
    return members.ranks.index(rank)


# --- objects: pickled, so only between ranks of the same program


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """`object_list[i]` becomes rank i's object. Objects are pickled: they come from the ranks of
    this program, which run the same code."""
    members = resolve(group)
    _same_length("all_gather_object", object_list, members.size)
    found = members.exchange("all_gather_object", pickle.dumps(obj))
    object_list[:] = [pickle.loads(data) for data in found]


def broadcast_object_list(
    object_list: list, src: int = 0, group: Any = None, device: Any = None
) -> None:
    """`object_list` becomes that of rank `src`."""
    members, root = resolve(group), get_group_rank(group, src)
    here = members.rank == root
    data = pickle.dumps(list(object_list)) if here else b""
    name = f"broadcast_object_list from rank {src}"
    found = members.exchange(name, data)[root]
    if not here:
        object_list[:] = pickle.loads(found)


def gather_object(
    obj: Any, object_gather_list: list | None = None, dst: int = 0, group: Any = None
) -> None:
    """`object_gather_list` of rank `dst` gets every rank's object, which is pickled; the others
    give no list. ValueError for one on the wrong rank."""
    members = resolve(group)
    receives = members.rank == get_group_rank(group, dst)
    if receives != (object_gather_list is not None):
        raise ValueError(
            "gather_object: expected object_gather_list on rank dst, and None on the others"
        )
    found: list = [None] * members.size
    all_gather_object(found, obj, group)
    if object_gather_list is not None:
        object_gather_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """The first element of the output list becomes rank `src`'s object for this rank. ValueError
    without a place for it, or for another number of objects than ranks."""
    members, root = resolve(group), get_group_rank(group, src)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list: expected an output list of at least one element")
    given = list(scatter_object_input_list or [])
    if members.rank == root and len(given) != members.size:
        raise ValueError(f"scatter_object_list: expected {members.size} objects, got {len(given)}")
    held = [given]
    broadcast_object_list(held, src, group)
    scatter_object_output_list[0] = held[0][members.rank]


# --- checks on this rank, before anything is sent


def _same_length(name: str, tensors: list | None, size: int) -> None:
    if tensors is None or len(tensors) != size:
        got = "none" if tensors is None else len(tensors)
        raise ValueError(f"{name}: expected a list of {size} (one per rank), got {got}")


def _alike(name: str, a: Any, b: Any) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: expected tensors of one shape and dtype, got {a.shape} {a.dtype} and "
            f"{b.shape} {b.dtype}"
        )


def _same_size(name: str, whole: Any, part: Any, size: int) -> None:
    if whole.size != part.size * size or whole.dtype != part.dtype:
        raise RuntimeError(
            f"{name}: {size} parts of shape {part.shape} {part.dtype} do not make shape "
            f"{whole.shape} {whole.dtype}"
        )


def _splits(name: str, array: Any, sizes: list[int] | None, count: int) -> list[int]:
    """Bytes for each rank."""
    rows = array.shape[0] if array.ndim else 0
    if sizes is None:
        if rows % count:
            raise RuntimeError(f"{name}: {rows} rows cannot be divided among {count} ranks")
        sizes = [rows // count] * count
    if len(sizes) != count or sum(sizes) != rows:
        raise RuntimeError(f"{name}: split sizes {sizes} do not divide {rows} rows, {count} ranks")
    each = array.nbytes // rows if rows else 0
    return [n * each for n in sizes]


def _distribute(results: list[_Result], out: Any) -> None:
    for result, part in zip(results, out if out is not None else ()):
        result.array[...] = part
        result.tensor._counter[0] += 1


group = GroupMember
