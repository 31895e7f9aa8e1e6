"""Collectives of NumPy arrays on MPI (mpi4py), with a watchdog.

Before every collective goes a header: its number, name, dtypes and shapes. Ranks that disagree all
get an error that says who called what; without it they would wait for each other, or compute
nonsense. Data follow once the headers agree, in the order of the calls. All of MPI's calls are
non-blocking, so that they can be waited for with a time limit, and overlap with computing.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from minigrad.distributed.errors import DistBackendError, DistNetworkError, disagreement
from minigrad.distributed.process_group import ProcessGroup
from minigrad.distributed.staging import staged

HEADER = 192  # bytes of a header: longer ones are cut
SPIN = 0.002  # seconds for which a wait asks without a pause
FORWARDING = 1.0  # seconds that mpiexec gets to pass on what a failed rank has printed
LEAVING = "the end of the program"

Array = np.ndarray


def library() -> Any:
    """The module mpi4py.MPI, which starts MPI. Raises DistNetworkError with what to install."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise DistNetworkError(
            f"init_process_group: no MPI here ({error}); install one with "
            "pip install 'minigrad[distributed]' and start with mpiexec -n 2 python program.py"
        ) from None
    return MPI


class Work:
    """A collective that has been started; `wait` ends it."""

    def __init__(self, group: Group, text: str, requests: list, finish: Callable[[], None]) -> None:
        self._group, self._text, self._requests, self._finish = group, text, requests, finish
        self._done = False

    def then(self, finish: Callable[[], None]) -> None:
        """Do this, too, when the result is there."""
        before = self._finish

        def both() -> None:
            before()
            finish()

        self._finish = both

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._done or all(request.Test() for request in self._requests)

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the result is there. timeout: a timedelta or seconds, else the group's.
        Raises DistBackendError if the ranks disagree or the time is over."""
        if not self._done:
            self._done = True
            seconds = getattr(timeout, "total_seconds", lambda: timeout)()
            self._group.wait(self._text, self._requests, seconds)
            self._finish()
        return True


class Group(ProcessGroup):
    """Ranks that communicate: a communicator for headers and one for data.

    rank: within the group. ranks: of its members in the whole program.
    """

    def __init__(self, comm: Any, ranks: Sequence[int], timeout: float) -> None:
        self._mpi = library()
        self._data, self._headers = comm.Dup(), comm.Dup()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ranks, self.timeout = list(ranks), timeout
        self.any_source = self._mpi.ANY_SOURCE
        self._number = 0
        self._broken = ""
        self._announced: deque[_Collective] = deque()  # whose data wait for headers, in order
        self._receiving: list[_Received] = []  # the same of messages

    # -- headers and waiting

    def _announce(self, text: str) -> tuple[Any, Array]:
        """Send this rank's header to all, and receive theirs: (request, table)."""
        if self._broken:
            raise DistBackendError(f"{text}: the group failed before: {self._broken}")
        self._number += 1
        header = f"{text} (call {self._number} of the group)".encode()[:HEADER].ljust(HEADER)
        table = np.empty((self.size, HEADER), np.uint8)
        mine = np.frombuffer(header, np.uint8)
        return self._headers.Iallgather(mine, table), table

    def start(self, text: str, begin: Callable[[], Any], finish: Callable[[], None]) -> Work:
        """Announce a collective. `begin` returns MPI's request, once the headers agree."""
        call = _Collective(self, *self._announce(text), begin)
        self._announced.append(call)
        self.begin_agreed()
        return Work(self, text, [call], finish)

    def begin_agreed(self) -> None:
        """Begin the collectives whose headers have come: in the same order on every rank."""
        while self._announced and self._announced[0].agreed():
            self._announced.popleft().begin()

    def progress(self) -> None:
        """Begin the data of all collectives and messages whose headers have come: a wait for one
        must not stop the others, for which other ranks may wait."""
        self.begin_agreed()
        waiting: list[_Received] = []
        for message in self._receiving:
            if any(message.follows(other) for other in waiting) or not message.begin():
                waiting.append(message)
        self._receiving = waiting

    def wait(self, text: str, requests: list, seconds: float | None = None) -> None:
        """Wait for requests in order, at most `seconds`."""
        seconds = self.timeout if seconds is None else seconds
        begun = time.monotonic()
        for request in requests:
            while not request.Test():
                self.progress()
                passed = time.monotonic() - begun
                if passed > seconds:
                    self._fail(
                        f"rank {self.rank} of {self.size} has waited for {text} for {seconds:g} s: "
                        "another rank has not called it, or is slow (timeout= of "
                        "init_process_group sets the limit)"
                    )
                if passed > SPIN:
                    time.sleep(50e-6)

    def compare(self, table: Array) -> None:
        """Raise DistBackendError if the ranks' headers differ."""
        if (table == table[0]).all():
            return
        calls = [bytes(row).decode(errors="replace").strip() for row in table]
        self._fail(disagreement(self.ranks, calls))

    def _fail(self, reason: str) -> None:
        self._broken = reason
        self._announced.clear()
        self._receiving.clear()
        raise DistBackendError(reason)

    def leave(self) -> None:
        """Tell the others that this rank calls no more, so that they need not wait for it."""
        if self._broken or self._mpi.Is_finalized():
            return
        request, _ = self._announce(LEAVING)
        end = time.monotonic() + min(self.timeout, 2.0)
        while not request.Test() and time.monotonic() < end:
            time.sleep(50e-6)

    # -- collectives; arrays are C-contiguous

    @staged
    def all_reduce(self, array: Array, op: str) -> Work:
        """`array` becomes the reduction over all ranks."""
        work, finish = _reducible(array, op, self.size)
        return self.start(
            _named(f"all_reduce({op})", array),
            lambda: self._data.Iallreduce(self._mpi.IN_PLACE, work, self._op(op)),
            lambda: finish(work),
        )

    @staged
    def reduce(self, array: Array, dst: int, op: str) -> Work:
        work, finish = _reducible(array, op, self.size)
        root = self.rank == dst
        give, take = (self._mpi.IN_PLACE, work) if root else (work, None)
        return self.start(
            _named(f"reduce({op}) to rank {self.ranks[dst]} of", array),
            lambda: self._data.Ireduce(give, take, self._op(op), dst),
            lambda: finish(work) if root else None,
        )

    @staged
    def broadcast(self, array: Array, src: int) -> Work:
        return self.start(
            _named(f"broadcast from rank {self.ranks[src]} of", array),
            lambda: self._data.Ibcast(_bytes(array), src),
            _nothing,
        )

    @staged
    def all_gather(self, out: Array, array: Array) -> Work:
        """out: (size, *array.shape)."""
        return self.start(
            _named("all_gather", array),
            lambda: self._data.Iallgather(_bytes(array), _bytes(out)),
            _nothing,
        )

    @staged
    def gather(self, out: Array | None, array: Array, dst: int) -> Work:
        return self.start(
            _named(f"gather to rank {self.ranks[dst]} of", array),
            lambda: self._data.Igather(_bytes(array), None if out is None else _bytes(out), dst),
            _nothing,
        )

    @staged
    def scatter(self, array: Array, parts: Array | None, src: int) -> Work:
        return self.start(
            _named(f"scatter from rank {self.ranks[src]} of", array),
            lambda: self._data.Iscatter(
                None if parts is None else _bytes(parts), _bytes(array), src
            ),
            _nothing,
        )

    @staged
    def reduce_scatter(self, out: Array, parts: Array, op: str) -> Work:
        """parts: (size, *out.shape); `out` is the reduction of this rank's part."""
        work, _ = _reducible(parts, op, self.size)
        result, finish = _reducible(out, op, self.size)
        return self.start(
            _named(f"reduce_scatter({op})", out),
            lambda: self._data.Ireduce_scatter_block(work, result, self._op(op)),
            lambda: finish(result),
        )

    @staged
    def all_to_all(
        self, out: Array, array: Array, give: Sequence[int], take: Sequence[int]
    ) -> Work:
        """Rank i gets the next `give[i]` bytes of `array`; `take[i]` bytes come from it."""
        return self.start(
            f"all_to_all {array.dtype}",
            lambda: self._data.Ialltoallv(
                [_bytes(array), list(give), self._mpi.BYTE],
                [_bytes(out), list(take), self._mpi.BYTE],
            ),
            _nothing,
        )

    def barrier(self) -> Work:
        return self.start("barrier", self._data.Ibarrier, _nothing)

    def agree(self, text: str) -> None:
        """Wait until all ranks have called this with the same text; DistBackendError otherwise."""
        self.start(text, self._mpi.Request, _nothing).wait()

    def exchange(self, name: str, data: bytes) -> list[bytes]:
        """The bytes of every rank, under a name that all give."""
        mine = np.frombuffer(data, np.uint8)
        sizes = np.empty(self.size, np.int64)
        self.start(
            name, lambda: self._data.Iallgather(np.array([mine.size]), sizes), _nothing
        ).wait()
        out = np.empty(int(sizes.sum()), np.uint8)
        ends = np.cumsum(sizes)
        places = [out, sizes, ends - sizes, self._mpi.BYTE]
        self.start(name, lambda: self._data.Iallgatherv(mine, places), _nothing).wait()
        return [out[end - n : end].tobytes() for n, end in zip(sizes, ends)]

    def together(self) -> Any:
        """Inside, messages are begun together: MPI needs nothing for it."""
        return nullcontext()

    # -- between two ranks

    @staged
    def send(self, array: Array, dst: int, tag: int) -> Work:
        text = _named("send of", array)
        header = text.encode()[:HEADER].ljust(HEADER)
        requests = [
            self._headers.Isend(np.frombuffer(header, np.uint8), dst, tag),
            self._data.Isend(_bytes(array), dst, tag),
        ]
        return Work(self, f"{text} to rank {self.ranks[dst]}", requests, _nothing)

    @staged
    def receive(self, array: Array, src: int | None, tag: int) -> tuple[Work, Callable[[], int]]:
        """The work, and a function for the rank that sent it."""
        source = self.any_source if src is None else src
        who = "any rank" if src is None else f"rank {self.ranks[src]}"
        status = self._mpi.Status()
        text = _named("recv of", array)
        request = _Received(self, array, source, tag, status)
        self._receiving.append(request)
        work = Work(self, f"{text} from {who}", [request], _nothing)
        return work, status.Get_source

    def receive_now(self, array: Array, header: Array, source: int, tag: int) -> Any:
        """After a header has come: the request of its data. Raises on other shapes."""
        sent = bytes(header).decode(errors="replace").strip()
        if sent != _named("send of", array):
            self._fail(
                f"rank {self.rank}: recv expects {_named('', array).strip()}, and rank "
                f"{self.ranks[source]} called {sent}"
            )
        return self._data.Irecv(_bytes(array), source, tag)

    def send_bytes(self, data: bytes, dst: int, tag: int) -> Work:
        """Begin to send bytes, of any number, to a rank that calls `receive_bytes`."""
        parts = (np.array([len(data)]), np.frombuffer(data, np.uint8))
        requests = [r for part in parts for r in self.send(part, dst, tag)._requests]
        return Work(self, f"send of bytes to rank {self.ranks[dst]}", requests, _nothing)

    def receive_bytes(self, src: int, tag: int) -> bytes:
        size = np.empty(1, np.int64)
        self.receive(size, src, tag)[0].wait()
        data = np.empty(int(size[0]), np.uint8)
        self.receive(data, src, tag)[0].wait()
        return data.tobytes()

    def _op(self, op: str) -> Any:
        name = {"AVG": "SUM", "PRODUCT": "PROD"}.get(op, op)
        return getattr(self._mpi, name)

    def subgroup(self, ranks: Sequence[int], timeout: float) -> Group | None:
        """A group of some members; all call this. None where this rank is not one of them."""
        self.start(f"new_group({list(ranks)})", self._data.Ibarrier, _nothing).wait()
        color = 0 if self.rank in ranks else self._mpi.UNDEFINED
        key = list(ranks).index(self.rank) if self.rank in ranks else 0
        comm = self._data.Split(color, key)
        if comm == self._mpi.COMM_NULL:
            return None
        return Group(comm, [self.ranks[rank] for rank in ranks], timeout)


class _Collective:
    """A collective: its headers, and then the request of its data."""

    def __init__(self, group: Group, request: Any, table: Array, begin: Callable[[], Any]) -> None:
        self._group, self._headers, self._table, self._begin = group, request, table, begin
        self._data: Any = None

    def agreed(self) -> bool:
        """Whether the headers have come and are equal."""
        if not self._headers.Test():
            return False
        self._group.compare(self._table)
        return True

    def begin(self) -> None:
        self._data = self._begin()

    def Test(self) -> bool:
        if self._data is None:
            self._group.begin_agreed()
        return self._data is not None and self._data.Test()


class _Received:
    """The request of a message: its header first, then its data from the same rank."""

    def __init__(self, group: Group, array: Array, source: int, tag: int, status: Any) -> None:
        self._group, self._array, self._status = group, array, status
        self._source, self._tag = source, tag
        self._header = np.empty(HEADER, np.uint8)
        self._first = group._headers.Irecv(self._header, source, tag)
        self._second: Any = None

    def follows(self, other: _Received) -> bool:
        """Whether messages for `other`, which was called earlier, may be for this call, too: then
        it has the first of them, whichever is waited for first."""
        any_source = self._group.any_source
        one_source = self._source == other._source or any_source in (self._source, other._source)
        return self._tag == other._tag and one_source

    def begin(self) -> bool:
        """Whether the header has come; then the data are on their way."""
        if not self._first.Test(self._status):
            return False
        source = self._status.Get_source()
        self._second = self._group.receive_now(self._array, self._header, source, self._tag)
        return True

    def Test(self) -> bool:
        if self._second is None:
            self._group.progress()
        return self._second is not None and self._second.Test()


def _nothing() -> None:
    pass


def _named(what: str, array: Array) -> str:
    return f"{what} {array.dtype} {tuple(array.shape)}"


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _reducible(array: Array, op: str, size: int) -> tuple[Array, Callable[[Array], None]]:
    """(what MPI reduces, what to do with the result): MPI has no 16-bit floats, no booleans and no
    mean. 16-bit floats are added in float32 and rounded once."""
    if array.dtype == bool:
        if op not in ("MIN", "MAX", "BAND", "BOR", "BXOR", "PRODUCT", "SUM"):
            raise TypeError(f"all_reduce: {op} of booleans")
        wide = array.astype(np.uint8 if op not in ("SUM", "PRODUCT") else np.int32)
    elif array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        wide = array.astype(np.float32)
    else:
        wide = array
    if op == "AVG" and array.dtype.kind in "iub":
        raise TypeError(f"ReduceOp.AVG needs floating-point numbers, got {array.dtype}")
    if op.startswith("B") and array.dtype.kind not in "iub":
        raise TypeError(f"ReduceOp.{op} needs integers, got {array.dtype}")

    def finish(result: Array) -> None:
        if op == "AVG":
            result /= size
        if result is not array:
            array[...] = result

    return wide, finish


# --- the end of a rank


def end_all_on_error(rank: Callable[[], int], dismiss: Callable[[], None]) -> None:
    """An uncaught exception in one rank ends all: the others would wait for it forever.

    dismiss: of its witness, which need not speak then.
    """
    before = sys.excepthook

    def ended(kind: type, error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if issubclass(kind, KeyboardInterrupt | Exception):
            last = traceback.format_exception_only(kind, error)[-1].strip()
            print(f"rank {rank()} ended with {last}; all ranks stop", file=sys.stderr, flush=True)
            sys.stdout.flush()
            dismiss()
            time.sleep(FORWARDING)
            library().COMM_WORLD.Abort(1)

    sys.excepthook = ended


def is_launched() -> bool:
    """Whether a launcher of MPI (mpiexec, srun) has started this process."""
    return any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"))
