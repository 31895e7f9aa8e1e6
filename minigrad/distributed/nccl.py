"""Collectives of CuPy arrays on NCCL, through `cupy.cuda.nccl`.

NCCL compares nothing: ranks that call different things wait for ever, or write over memory. So the
ranks first compare their calls on the host, through MPI where it has started them, else through a
store (`minigrad.distributed.store`): a message to rank 0 and back for each collective.

All of NCCL's work goes to a stream of the group's own. It waits for the stream that the caller
works on, and `Work.wait()` lets the caller's stream wait for it, so that the host does not. A
thread watches: where a rank has died, or work takes longer than the timeout, no error could reach a
host that waits for the GPU, so it prints the reason and ends the process.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from minigrad.distributed.errors import DistBackendError, DistNetworkError
from minigrad.distributed.process_group import ProcessGroup

POLL = 0.2  # seconds between looks at what has been launched
GRACE = 3.0  # seconds in which the host may raise an error before its process is ended

# By NumPy's names; other dtypes can be moved, but not reduced.
DTYPES = {
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "complex64": "FLOAT32",  # twice as many
    "complex128": "FLOAT64",
}
OPS = {"SUM": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "AVG": "AVG"}
OF_BOOLEANS = {
    "SUM": "MAX",
    "MAX": "MAX",
    "BOR": "MAX",
    "PRODUCT": "MIN",
    "MIN": "MIN",
    "BAND": "MIN",
}


def library() -> Any:
    """The module cupy.cuda.nccl. Raises DistNetworkError with what to install."""
    why = "CuPy is not installed"
    with suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy's own message about a library that it does not find
        try:
            found = importlib.import_module("cupy.cuda.nccl")
            if found.available:
                return found
            why = "CuPy does not find libnccl.so.2"
        except OSError as error:  # CuPy makes its cache folder when it is imported
            why = str(error)
    raise DistNetworkError(
        f"init_process_group: no NCCL here ({why}); install the extra cuda13 and the package "
        'nvidia-nccl-cu13, or use "mpi"'
    )


def _cupy() -> Any:
    return importlib.import_module("cupy")


class Work:
    """A collective that has been launched."""

    def __init__(
        self, group: Group, text: str, kept: tuple, finish: Callable[[], None] | None
    ) -> None:
        self._group, self.text, self._finish = group, text, finish
        self._kept = kept  # arrays that NCCL uses: their memory may not be given to others
        self._over = False
        self.event: Any = None  # recorded behind the launch
        self.begun = time.monotonic()

    def is_completed(self) -> bool:
        return self.event is not None and self.event.done

    def wait(self, timeout: Any = None) -> bool:
        """Let the current stream wait for the result. The host waits for a barrier, and for the
        header of a message, only."""
        if not self._over:
            self._over = True
            self._group.check()
            _cupy().cuda.get_current_stream().wait_event(self.event)
            if self._finish is not None:
                self._finish()
        return True


class Group(ProcessGroup):
    """The interface of `mpi.Group` for CuPy arrays.

    control: what the ranks compare their calls through: an `mpi.Group` or a `store.Control`.
    """

    def __init__(self, control: Any) -> None:
        self._nccl, self._control = library(), control
        self.rank, self.size = control.rank, control.size
        self.ranks, self.timeout = control.ranks, control.timeout
        self._refuse_shared_gpu()
        mine = self._nccl.get_unique_id() if self.rank == 0 else b""
        identifier = control.exchange("init_process_group(nccl)", mine)[0]
        self.stream = _cupy().cuda.Stream(non_blocking=True)
        self._device = _cupy().cuda.Device().id
        self._comm = self._nccl.NcclCommunicator(self.size, identifier, self.rank)
        self._broken = ""
        self._launched: list[Work] = []
        self._headers: list[Any] = []  # of messages, on their way
        self._together: list[Work] | None = None
        self._watcher = _Watcher(self)

    def _refuse_shared_gpu(self) -> None:
        """NCCL cannot have two ranks on one GPU: DistBackendError on all of them."""
        number = _cupy().cuda.Device().id
        where = f"{socket.gethostname()} {_cupy().cuda.runtime.deviceGetPCIBusId(number)}"
        found = self._control.exchange("the GPU of a rank", where.encode())
        for rank, other in enumerate(found):
            if (first := found.index(other)) != rank:
                raise DistBackendError(
                    f"init_process_group(nccl): ranks {self.ranks[first]} and {self.ranks[rank]} "
                    f"use the same GPU ({other.decode()}); call minigrad.cuda.set_device("
                    "local rank) before, with a GPU for each rank"
                )

    # -- launching

    def _launch(
        self,
        text: str,
        arrays: tuple,
        call: Callable[[], Any],
        finish: Callable[[], None] | None = None,
        agree: bool = True,
    ) -> Work:
        """Compare the calls, then launch behind the work of the current stream."""
        self.check()
        for array in arrays:
            self._refuse(text, array)
        if agree:
            self._compare(text)
        current = _cupy().cuda.get_current_stream()
        self.stream.wait_event(current.record())
        work = Work(self, text, arrays, finish)
        try:
            if any(array.nbytes for array in arrays):
                call()
        except self._nccl.NcclError as error:
            self._fail(f"rank {self.rank} of {self.size}: {text}: {error}")
        if self._together is None:
            self._record([work])
        else:
            self._together.append(work)
        return work

    def _record(self, works: list[Work]) -> None:
        event = self.stream.record()
        for work in works:
            work.event = event
        self._launched = [work for work in self._launched if not work.is_completed()] + works

    def _refuse(self, text: str, array: Any) -> None:
        name = text.split()[0]
        if isinstance(array, np.ndarray):
            raise RuntimeError(
                f'{name}: the group\'s backend is "nccl", for tensors on a GPU, and this one is on '
                'the CPU; move it by .to("cuda"), or use a group of the backend "mpi"'
            )
        if array.device.id != self._device:
            raise RuntimeError(
                f"{name}: the group's GPU is {self._device}, the tensor is on {array.device.id}"
            )

    def _compare(self, text: str) -> None:
        try:
            self._control.agree(text)
        except DistBackendError as error:
            self._fail(str(error))

    def check(self) -> None:
        """Raise where the group has failed before."""
        if self._broken:
            raise DistBackendError(f"the group failed before: {self._broken}")

    def _fail(self, reason: str) -> None:
        self.abort(reason)
        raise DistBackendError(reason)

    def abort(self, reason: str) -> None:
        """End what has been launched: no rank may wait for it."""
        if not self._broken:
            self._broken = reason
            self._comm.abort()

    def unfinished(self) -> list[Work]:
        """What has been launched and is not done."""
        return [work for work in list(self._launched) if not work.is_completed()]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside, messages are begun together: they may go both ways between two ranks."""
        if self._together is not None:  # within another
            yield
            return
        works: list[Work] = []
        self._together = works
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._together = None
            try:
                self._nccl.groupEnd()
            except self._nccl.NcclError as error:
                self._fail(f"rank {self.rank} of {self.size}: {_texts(works)}: {error}")
            if works:
                self._record(works)

    # -- what needs no GPU

    def agree(self, text: str) -> None:
        self.check()
        self._compare(text)

    def exchange(self, name: str, data: bytes) -> list[bytes]:
        self.check()
        return self._control.exchange(name, data)

    def send_bytes(self, data: bytes, dst: int, tag: int) -> Any:
        self.check()
        return self._control.send_bytes(data, dst, tag)

    def receive_bytes(self, src: int, tag: int) -> bytes:
        self.check()
        return self._control.receive_bytes(src, tag)

    def subgroup(self, ranks: Sequence[int], timeout: float) -> Group | None:
        """A group of some members; all call this. None where this rank is not one of them."""
        control = self._control.subgroup(ranks, timeout)
        return None if control is None else Group(control)

    def leave(self) -> None:
        """Give the communicator back, when its work is done."""
        self._watcher.end()
        if not self._broken:
            self.stream.synchronize()
            self._comm.destroy()
            self._broken = "it has been left (destroy_process_group)"
        self._control.leave()

    # -- collectives; arrays are C-contiguous

    def all_reduce(self, array: Any, op: str) -> Work:
        text = _named(f"all_reduce({op})", array)
        given = self._reducible("all_reduce", array, op)
        return self._launch(
            text,
            (array,),
            lambda: self._comm.allReduce(array.data.ptr, array.data.ptr, *given, self.stream.ptr),
        )

    def reduce(self, array: Any, dst: int, op: str) -> Work:
        text = _named(f"reduce({op}) to rank {self.ranks[dst]} of", array)
        given = self._reducible("reduce", array, op)
        at = array.data.ptr
        return self._launch(
            text, (array,), lambda: self._comm.reduce(at, at, *given, dst, self.stream.ptr)
        )

    def broadcast(self, array: Any, src: int) -> Work:
        at, count = array.data.ptr, array.nbytes
        return self._launch(
            _named(f"broadcast from rank {self.ranks[src]} of", array),
            (array,),
            lambda: self._comm.broadcast(at, at, count, self._byte, src, self.stream.ptr),
        )

    def all_gather(self, out: Any, array: Any) -> Work:
        """out: (size, *array.shape)."""
        return self._launch(
            _named("all_gather", array),
            (out, array),
            lambda: self._comm.allGather(
                array.data.ptr, out.data.ptr, array.nbytes, self._byte, self.stream.ptr
            ),
        )

    def gather(self, out: Any, array: Any, dst: int) -> Work:
        text = _named(f"gather to rank {self.ranks[dst]} of", array)
        take = [array.nbytes if self.rank == dst else 0] * self.size
        give = [array.nbytes if rank == dst else 0 for rank in range(self.size)]
        return self._exchange_parts(text, out, array, give, take)

    def scatter(self, array: Any, parts: Any, src: int) -> Work:
        text = _named(f"scatter from rank {self.ranks[src]} of", array)
        give = [array.nbytes if self.rank == src else 0] * self.size
        take = [array.nbytes if rank == src else 0 for rank in range(self.size)]
        return self._exchange_parts(text, array, parts, give, take)

    def reduce_scatter(self, out: Any, parts: Any, op: str) -> Work:
        """parts: (size, *out.shape); `out` is the reduction of this rank's part."""
        given = self._reducible("reduce_scatter", out, op)
        return self._launch(
            _named(f"reduce_scatter({op})", out),
            (out, parts),
            lambda: self._comm.reduceScatter(parts.data.ptr, out.data.ptr, *given, self.stream.ptr),
        )

    def all_to_all(self, out: Any, array: Any, give: Sequence[int], take: Sequence[int]) -> Work:
        """Rank i gets the next `give[i]` bytes of `array`; `take[i]` bytes come from it."""
        return self._exchange_parts(f"all_to_all {array.dtype}", out, array, give, take)

    def _exchange_parts(
        self,
        text: str,
        out: Any,
        array: Any,
        give: Sequence[int],
        take: Sequence[int],
    ) -> Work:
        """Messages between all pairs, in one group."""

        def call() -> None:
            at, to = (0 if one is None else one.data.ptr for one in (array, out))
            self._nccl.groupStart()
            try:
                for peer, (given, taken) in enumerate(zip(give, take)):
                    if given:
                        self._comm.send(at, given, self._byte, peer, self.stream.ptr)
                    if taken:
                        self._comm.recv(to, taken, self._byte, peer, self.stream.ptr)
                    at, to = at + given, to + taken
            finally:
                self._nccl.groupEnd()

        arrays = tuple(one for one in (out, array) if one is not None)
        return self._launch(text, arrays, call)

    def barrier(self) -> Work:
        flag = _cupy().zeros(1, np.uint8)
        at = flag.data.ptr
        given = (1, self._nccl.NCCL_UINT8, self._nccl.NCCL_MAX)
        work = self._launch(
            "barrier",
            (flag,),
            lambda: self._comm.allReduce(at, at, *given, self.stream.ptr),
            lambda: work.event.synchronize(),
        )
        return work

    # -- between two ranks

    def send(self, array: Any, dst: int, tag: int) -> Work:
        text = _named("send of", array)
        header = self._control.send_bytes(f"{text}, tag {tag}".encode(), dst, _HEADERS)
        self._headers = [one for one in self._headers if not one.is_completed()] + [header]
        return self._launch(
            f"{text} to rank {self.ranks[dst]}",
            (array,),
            lambda: self._comm.send(array.data.ptr, array.nbytes, self._byte, dst, self.stream.ptr),
            agree=False,
        )

    def receive(self, array: Any, src: int | None, tag: int) -> tuple[Work, Callable[[], int]]:
        """The work, and a function for the rank that sent it."""
        if src is None:
            raise ValueError("recv: NCCL needs the rank that sends: recv(tensor, src)")
        source: int = src
        text = _named("recv of", array)

        def compare() -> None:
            try:
                header = self._control.receive_bytes(source, _HEADERS).decode()
            except DistBackendError:
                self._fail(
                    f"rank {self.rank} of {self.size} has waited for {text} from rank "
                    f"{self.ranks[source]} for {self.timeout:g} s: it has not called send, or is "
                    "slow (timeout= of init_process_group sets the limit)"
                )
            if header != f"{_named('send of', array)}, tag {tag}":
                self._fail(
                    f"rank {self.rank}: recv expects {_named('', array).strip()}, tag {tag}, and "
                    f"rank {self.ranks[source]} called {header}"
                )

        work = self._launch(
            f"{text} from rank {self.ranks[source]}",
            (array,),
            lambda: self._comm.recv(
                array.data.ptr, array.nbytes, self._byte, source, self.stream.ptr
            ),
            compare,
            agree=False,
        )
        return work, lambda: source

    # -- constants

    @property
    def _byte(self) -> int:
        return self._nccl.NCCL_INT8

    def _reducible(self, name: str, array: Any, op: str) -> tuple[int, int, int]:
        """(count, dtype, operator) in NCCL's constants."""
        dtype = array.dtype.name
        if dtype not in DTYPES:
            raise TypeError(
                f"{name}: Input tensor data type is not supported for NCCL process group: {dtype}"
            )
        is_complex = dtype.startswith("complex")
        if op == "AVG" and array.dtype.kind in "iub":
            raise TypeError(f"ReduceOp.AVG needs floating-point numbers, got {dtype}")
        found = OF_BOOLEANS.get(op) if dtype == "bool" else OPS.get(op)
        if found is None or (is_complex and op not in ("SUM", "AVG")):
            raise ValueError(f"{name}: Cannot use ReduceOp.{op} with NCCL and {dtype}")
        constant = getattr(self._nccl, f"NCCL_{DTYPES[dtype]}")
        return array.size << is_complex, constant, getattr(self._nccl, f"NCCL_{found}")


_HEADERS = 1 << 20  # the tag under which headers of messages travel, apart from other bytes


class _Watcher:
    """Ends the process where it would wait for ever for a GPU that waits for another rank."""

    def __init__(self, group: Group) -> None:
        self._group, self._ended = group, threading.Event()
        self._store = getattr(group._control, "store", None)
        if self._store is not None:
            self._store.watch()
        threading.Thread(target=self._look, daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _look(self) -> None:
        group, seen = self._group, 0.0
        with _cupy().cuda.Device(group._device):
            while not self._ended.wait(POLL) and not group._broken:
                waiting = group.unfinished()
                reason = self._reason(waiting[0]) if waiting else ""
                seen = (seen or time.monotonic()) if reason else 0.0
                if reason and time.monotonic() - seen > GRACE and not group._broken:
                    stop(group, f"{_texts(waiting)}: {reason}")

    def _reason(self, work: Work) -> str:
        """Why a work will not end; empty if it may."""
        if self._store is not None and self._store.died:
            return self._store.died
        if time.monotonic() - work.begun > self._group.timeout:
            return (
                f"it is not done after {self._group.timeout:g} s (timeout= of init_process_group "
                "sets the limit)"
            )
        return ""


def stop(group: Group, reason: str) -> None:
    """The end of this process: its host may be waiting for the GPU."""
    text = f"rank {group.rank} of {group.size}: {reason}"
    print(f"{text}; this rank stops", file=sys.stderr, flush=True)
    with suppress(Exception):
        group.abort(text)
    os._exit(1)


def _texts(works: list[Work]) -> str:
    return ", ".join(work.text for work in works[:3]) + (", ..." if len(works) > 3 else "")


def _named(what: str, array: Any) -> str:
    return f"{what} {array.dtype} {tuple(array.shape)}"
