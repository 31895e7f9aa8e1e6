"""A stand-in for `cupy.cuda.nccl` between processes with the software GPU.

It has the functions, constants and argument types of the real module, and checks what NCCL does
not: that a pointer is in an allocation large enough for the count, that the stream is not the
caller's; a message outside of a group waits for its receiver. Data move in the order of the stream,
when it is waited for: a program that does not let its streams wait for each other gets old values.
They travel as files.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

available = True
NCCL_INT8 = NCCL_CHAR = 0
NCCL_UINT8 = 1
NCCL_INT32 = NCCL_INT = 2
NCCL_UINT32 = 3
NCCL_INT64, NCCL_UINT64 = 4, 5
NCCL_FLOAT16 = NCCL_HALF = 6
NCCL_FLOAT32 = NCCL_FLOAT = 7
NCCL_FLOAT64 = NCCL_DOUBLE = 8
NCCL_BFLOAT16 = 9
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
          ml_dtypes.bfloat16)  # fmt: skip
SECONDS = 20.0  # after which a rank that waits has waited for ever

calls: list[tuple] = []  # (name, count, dtype, ...) of this process
faults: list[str] = []  # what went wrong in work of a stream
_group: list[tuple] | None = None
_kept: list[Any] = []  # what the driver calls later
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class NcclError(RuntimeError):
    def __init__(self, message: str) -> None:
        super().__init__(f"NCCL_ERROR_INVALID_ARGUMENT: {message}")


def install() -> None:
    """Make `cupy.cuda.nccl` this module, and say at the end what went wrong."""
    import cupy

    here = sys.modules[__name__]
    sys.modules["cupy.cuda.nccl"] = cupy.cuda.nccl = here


def get_unique_id() -> bytes:
    return tempfile.mkdtemp(prefix="nccl-").encode().ljust(128, b"\0")


def groupStart() -> None:
    global _group
    if _group is None:
        _group = []
    _group.append(("start",))


def groupEnd() -> None:
    global _group
    if _group is None:
        raise NcclError("groupEnd without groupStart")
    _group.append(("end",))
    if [one[0] for one in _group].count("start") > [one[0] for one in _group].count("end"):
        return
    works = [one for one in _group if one[0] not in ("start", "end")]
    _group = None
    for stream in dict.fromkeys(work[1] for work in works):
        mine = [work for work in works if work[1] == stream]

        def all_of_them(mine: list[tuple] = mine) -> None:
            for kind in ("send", "collective", "recv"):  # messages do not wait for each other
                for work in mine:
                    if work[0] == kind:
                        work[2](False)

        _enqueue(stream, all_of_them)


class NcclCommunicator:
    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise NcclError(f"an identifier of 128 bytes, got {commId!r}")
        self.folder, self.size, self.rank = Path(commId.rstrip(b"\0").decode()), ndev, rank
        self.state, self._number, self._messages = "ready", 0, {}

    # -- the calls of NCCL

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream) -> None:
        calls.append(("allReduce", count, datatype, op))
        self._reduction(sendbuf, recvbuf, count, count, datatype, op, stream, lambda total: total)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream) -> None:
        calls.append(("reduce", count, datatype, op, root))
        _check_peer(self, root)
        self._reduction(
            sendbuf, recvbuf, count, count, datatype, op, stream,
            lambda total: total if self.rank == root else None,
        )  # fmt: skip

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream) -> None:
        calls.append(("reduceScatter", recvcount, datatype, op))
        mine = slice(self.rank * recvcount, (self.rank + 1) * recvcount)
        count = recvcount * self.size
        self._reduction(
            sendbuf, recvbuf, count, recvcount, datatype, op, stream, lambda total: total[mine]
        )

    def _reduction(
        self, sendbuf: int, recvbuf: int, count: int, received: int, datatype: int, op: int,
        stream: int, choose: Callable,
    ) -> None:  # fmt: skip
        dtype = _dtype(datatype)
        _check(sendbuf, count * dtype.itemsize, stream)
        _check(recvbuf, received * dtype.itemsize, stream)
        if type(op) is not int or op not in range(5):
            raise NcclError(f"op {op!r}")

        def reduce(parts: list[bytes]) -> None:
            found = choose(_reduced([np.frombuffer(part, dtype) for part in parts], op))
            if found is not None:
                _write(recvbuf, found.tobytes())

        self._collective(sendbuf, count * dtype.itemsize, stream, reduce)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream) -> None:
        calls.append(("broadcast", count, datatype, root))
        _check_peer(self, root)
        size = count * _dtype(datatype).itemsize
        for at in (sendbuff, recvbuff):
            _check(at, size, stream)
        self._collective(sendbuff, size, stream, lambda parts: _write(recvbuff, parts[root]))

    def allGather(self, sendbuf, recvbuf, count, datatype, stream) -> None:
        calls.append(("allGather", count, datatype))
        size = count * _dtype(datatype).itemsize
        _check(sendbuf, size, stream)
        _check(recvbuf, size * self.size, stream)
        self._collective(sendbuf, size, stream, lambda parts: _write(recvbuf, b"".join(parts)))

    def send(self, sendbuf, count, datatype, peer, stream) -> None:
        calls.append(("send", count, datatype, peer))
        size, name = count * _dtype(datatype).itemsize, self._message("send", self.rank, peer)
        _check(sendbuf, size, stream)

        def run(alone: bool) -> None:
            self._put(name, ctypes.string_at(sendbuf, size))
            if alone:  # large messages wait for their receiver
                self._get(name + ".taken")

        self._submit("send", stream, run)

    def recv(self, recvbuf, count, datatype, peer, stream) -> None:
        calls.append(("recv", count, datatype, peer))
        size, name = count * _dtype(datatype).itemsize, self._message("recv", peer, self.rank)
        _check(recvbuf, size, stream)

        def run(alone: bool) -> None:
            data = self._get(name)
            if len(data) != size:
                faults.append(f"{name}: {len(data)} bytes for a recv of {size}")
            _write(recvbuf, data[:size])
            self._put(name + ".taken", b"")

        self._submit("recv", stream, run)

    def abort(self) -> None:
        calls.append(("abort",))
        self.state = "aborted"

    def destroy(self) -> None:
        if self.state != "ready":
            raise NcclError(f"destroy of a communicator that is {self.state}")
        self.state = "destroyed"

    # -- how data move

    def _message(self, kind: str, source: int, to: int) -> str:
        _check_peer(self, to if kind == "send" else source)
        way = (kind, source, to)
        number = self._messages[way] = self._messages.get(way, 0) + 1
        return f"{source}-{to}-{number}"

    def _collective(self, at: int, size: int, stream: int, use: Callable) -> None:
        self._number += 1
        number = self._number

        def run(alone: bool) -> None:
            self._put(f"{number}.{self.rank}", ctypes.string_at(at, size))
            parts = [self._get(f"{number}.{rank}") for rank in range(self.size)]
            if len({len(part) for part in parts}) > 1:
                faults.append(f"call {number}: counts differ")
            use(parts)

        self._submit("collective", stream, run)

    def _submit(self, kind: str, stream: int, run: Callable) -> None:
        if self.state != "ready":
            raise NcclError(f"a call on a communicator that is {self.state}")
        if _group is not None:
            _group.append((kind, stream, run))
        else:
            _enqueue(stream, lambda: run(True))

    def _put(self, name: str, data: bytes) -> None:
        hidden = self.folder / f".{name}"
        hidden.write_bytes(data)
        os.replace(hidden, self.folder / name)

    def _get(self, name: str) -> bytes:
        end = time.monotonic() + SECONDS
        while not (self.folder / name).exists():
            if self.state == "aborted" or time.monotonic() > end:
                raise TimeoutError(f"rank {self.rank} has waited for {name}")
            time.sleep(0.001)
        return (self.folder / name).read_bytes()


def _reduced(parts: list[np.ndarray], op: int) -> np.ndarray:
    dtype = parts[0].dtype
    wide = [part.astype(np.float32) if dtype.itemsize == 2 else part for part in parts]
    function = (np.add, np.multiply, np.maximum, np.minimum, np.add)[op]
    total = function.reduce(wide)
    return (total / len(parts) if op == NCCL_AVG else total).astype(dtype)


def _dtype(datatype: Any) -> np.dtype:
    if type(datatype) is not int or datatype not in range(len(DTYPES)):
        raise NcclError(f"datatype {datatype!r}")
    return np.dtype(DTYPES[datatype])


def _check_peer(comm: NcclCommunicator, peer: Any) -> None:
    if type(peer) is not int or not 0 <= peer < comm.size:
        raise NcclError(f"rank {peer!r} of {comm.size}")


def _check(at: Any, size: Any, stream: Any) -> None:
    """The memory that a call names is one allocation's, and the stream is not the caller's."""
    import cupy

    if any(type(one) is not int for one in (at, size, stream)):
        raise NcclError(f"integers for {at!r}, {size!r} and {stream!r}")
    if stream in (0, cupy.cuda.get_current_stream().ptr):
        raise NcclError(f"stream {stream} is that of the caller")
    base, length = ctypes.c_uint64(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    found = driver.cuMemGetAddressRange(
        ctypes.byref(base), ctypes.byref(length), ctypes.c_uint64(at)
    )
    if found or at + size > base.value + length.value:
        raise NcclError(f"{size} bytes at {at:#x} are not in one allocation")


def _write(at: int, data: bytes) -> None:
    ctypes.memmove(at, data, len(data))


def _enqueue(stream: int, run: Callable[[], None]) -> None:
    """Let the driver call `run` after the stream's work so far."""

    def guarded(_: Any) -> None:
        try:
            run()
        except BaseException as error:
            faults.append(f"{type(error).__name__}: {error}")

    function = _HostFunction(guarded)
    _kept.append(function)
    status = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream), function, None)
    if status:
        raise NcclError(f"stream {stream}: the driver's error {status}")
