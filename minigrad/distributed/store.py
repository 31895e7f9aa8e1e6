"""A table of keys and bytes that all ranks see, with torch's name: rank 0 serves it over TCP.

Ranks that no MPI has started find each other through it (`MASTER_ADDR`, `MASTER_PORT`), and compare
their calls. Anybody who can reach the port can read and write what ranks exchange, and objects are
unpickled (`all_gather_object`), which can run code: like torch's, it is for a network of your own.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from minigrad.distributed.alone import Done
from minigrad.distributed.errors import DistBackendError, DistNetworkError, disagreement
from minigrad.distributed.mpi import LEAVING

GIVEN = timedelta(minutes=5)
OK, FAILED = b"+", b"-"
FAREWELL = 5.0  # seconds that the server remains after its own rank
RETRY = 0.05  # seconds between attempts to connect
ACCEPTED = 1 << 30  # bytes of a message at most


class TCPStore:
    """host_name, port: where rank 0 serves. is_master: whether this process does; port 0: any free
    one (see `port`). timeout: of every call.

    Raises DistNetworkError where the server cannot be reached in time.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = GIVEN,
        wait_for_workers: bool = True,
    ) -> None:
        self.timeout, self.host = timeout, host_name
        self._server = _Server(host_name, port) if is_master else None
        self.port = self._server.port if self._server else port
        self._lock, self.died = threading.Lock(), ""
        self._watching: socket.socket | None = None
        self._socket = connect(host_name, self.port, timeout.total_seconds())
        if self._server:  # after an error in this rank: the others must hear of it
            atexit.register(self.close, FAREWELL)
        if world_size is not None and wait_for_workers:
            mine = self.add("/workers", 1)
            if is_master or mine == world_size:
                self._ask(b"at least", b"/workers", str(world_size).encode(), self._limit())

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key.encode(), value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes:
        """The value; waits for a rank to set it. Raises DistBackendError after the timeout."""
        return self._ask(b"get", key.encode(), self._limit())[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a number that begins with 0; the sum."""
        return int(self._ask(b"add", key.encode(), str(amount).encode())[0])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are set."""
        for key in keys:
            self._ask(b"get", key.encode(), self._limit(timeout))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are set."""
        return self._ask(b"check", *(key.encode() for key in keys))[0] == b"1"

    def delete_key(self, key: str) -> bool:
        return self._ask(b"delete", key.encode())[0] == b"1"

    def num_keys(self) -> int:
        return int(self._ask(b"count")[0])

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    # ---------------------------------------------------------------- for groups

    def hello(self, rank: int) -> None:
        """Say who this is: the others are told when its connection ends."""
        self._ask(b"hello", str(rank).encode())

    def bye(self) -> None:
        """The end of this connection is no fault."""
        with contextlib.suppress(DistBackendError, OSError):
            self._ask(b"bye")

    def exchange(
        self, key: str, rank: int, ranks: Sequence[int], data: bytes, seconds: float
    ) -> list[bytes]:
        """The data of all `ranks`, in their order; each calls this once with the same key. Raises
        DistBackendError that names the ranks that have not called it in time, or have ended."""
        members = ",".join(map(str, ranks)).encode()
        limit = str(seconds).encode()
        return self._ask(b"exchange", key.encode(), str(rank).encode(), members, data, limit)

    def watch(self) -> None:
        """From now on `died` says which rank has ended without `bye`, when one has."""
        if self._watching is None:
            self._watching = connect(self.host, self.port, self.timeout.total_seconds())
            self._watching.sendall(_packed(b"watch"))
            threading.Thread(target=self._hear, args=(self._watching,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self.died = receive(connection)[1].decode()

    def close(self, seconds: float = 0.0) -> None:
        """Close the connection; the server ends with the last one, after `seconds` at most."""
        atexit.unregister(self.close)
        self.bye()
        for one in (self._socket, self._watching):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        if self._server is not None:
            self._server.end(seconds)

    def _limit(self, timeout: timedelta | None = None) -> bytes:
        return str((timeout or self.timeout).total_seconds()).encode()

    def _ask(self, *fields: bytes) -> list[bytes]:
        with self._lock:
            try:
                self._socket.sendall(_packed(*fields))
                status, *answer = receive(self._socket)
            except OSError as error:
                raise DistBackendError(
                    f"the store at {self.host}:{self.port} does not answer ({error}): rank 0, "
                    "which serves it, has ended"
                ) from None
        if status == FAILED:
            raise DistBackendError(answer[0].decode())
        return answer


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the server, which may start later than this."""
    end = time.monotonic() + seconds
    while True:
        try:
            made = socket.create_connection((host, port), max(end - time.monotonic(), RETRY))
        except OSError as error:
            if time.monotonic() > end:
                raise DistNetworkError(
                    f"TCPStore: no server at {host}:{port} after {seconds:g} s ({error}); is rank 0"
                    " running, and are MASTER_ADDR and MASTER_PORT the same on all ranks?"
                ) from None
            time.sleep(RETRY)
        else:
            made.settimeout(None)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made


def _packed(*fields: bytes) -> bytes:
    body = b"".join(struct.pack("!I", len(field)) + field for field in fields)
    return struct.pack("!I", len(body)) + body


def receive(connection: socket.socket) -> list[bytes]:
    """The fields of the next message. Raises OSError where the connection has ended."""
    size = struct.unpack("!I", _exactly(connection, 4))[0]
    if size > ACCEPTED:
        raise OSError(f"a message of {size} bytes: this is no store")
    body, fields, at = _exactly(connection, size), [], 0
    while at < size:
        end = at + 4 + struct.unpack_from("!I", body, at)[0]
        fields.append(body[at + 4 : end])
        at = end
    return fields


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts, missing = [], count
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise OSError("the connection has ended")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


# --- the server: a thread for each connection


class _Server:
    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_server((host, port), backlog=1024)
        except OSError as error:
            raise DistNetworkError(
                f"TCPStore: rank 0 cannot serve at {host}:{port} ({error}); choose another "
                "MASTER_PORT, and as MASTER_ADDR an address of rank 0's host"
            ) from None
        self.port = self._socket.getsockname()[1]
        self._table: dict[bytes, bytes] = {}
        self._meetings: dict[bytes, dict[int, bytes]] = {}
        self._taken: dict[bytes, int] = {}
        self._gone: dict[int, str] = {}  # ranks that have ended, and how
        self._open = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self, seconds: float) -> None:
        """Wait until all connections have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._open <= 0, seconds)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # `close` alone does not end `accept`
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._open += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rank: int | None = None
        counted, left = True, False
        try:
            while True:
                name, *fields = receive(connection)
                answer = [OK]
                if name == b"hello":
                    rank = int(fields[0])
                elif name == b"bye":
                    left = True
                    self._ended(rank, f"has left ({LEAVING})")
                elif name == b"watch":  # nobody waits for the end of this connection
                    counted = self._closed(counted)
                    answer = [OK, self._death()]
                else:
                    answer = self._answer(name, fields)
                connection.sendall(_packed(*answer))
        except OSError:
            if not left:
                self._ended(rank, "has died (its connection has ended)")
            self._closed(counted)
            connection.close()

    def _closed(self, counted: bool) -> bool:
        with self._changed:
            self._open -= counted
            self._changed.notify_all()
        return False

    def _ended(self, rank: int | None, how: str) -> None:
        if rank is not None:
            with self._changed:
                self._gone.setdefault(rank, how)
                self._changed.notify_all()

    def _answer(self, name: bytes, fields: list[bytes]) -> list[bytes]:
        known: dict[bytes, Callable[..., list[bytes]]] = {
            b"set": self._set,
            b"get": self._get,
            b"add": self._add,
            b"at least": self._at_least,
            b"check": self._check,
            b"delete": self._delete,
            b"count": lambda: [str(len(self._table)).encode()],
            b"exchange": self._exchange,
        }
        try:
            with self._changed:
                return [OK, *known[name](*fields)]
        except _Refused as error:
            return [FAILED, str(error).encode()]

    # Each of these holds the lock, and gives it up while it waits.

    def _set(self, key: bytes, value: bytes) -> list[bytes]:
        self._table[key] = value
        self._changed.notify_all()
        return []

    def _get(self, key: bytes, seconds: bytes) -> list[bytes]:
        if not self._changed.wait_for(lambda: key in self._table, float(seconds)):
            raise _Refused(f"TCPStore: nobody has set {key.decode()!r} in {float(seconds):g} s")
        return [self._table[key]]

    def _add(self, key: bytes, amount: bytes) -> list[bytes]:
        total = int(self._table.get(key, b"0")) + int(amount)
        return [*self._set(key, str(total).encode()), str(total).encode()]

    def _at_least(self, key: bytes, count: bytes, seconds: bytes) -> list[bytes]:
        def enough() -> bool:
            return int(self._table.get(key, b"0")) >= int(count)

        if not self._changed.wait_for(enough, float(seconds)):
            raise _Refused(
                f"TCPStore: {self._table.get(key, b'0').decode()} of {count.decode()} ranks have "
                f"come in {float(seconds):g} s"
            )
        return []

    def _check(self, *keys: bytes) -> list[bytes]:
        return [b"1" if all(key in self._table for key in keys) else b"0"]

    def _delete(self, key: bytes) -> list[bytes]:
        return [b"0" if self._table.pop(key, None) is None else b"1"]

    def _exchange(
        self, key: bytes, rank: bytes, members: bytes, data: bytes, seconds: bytes
    ) -> list[bytes]:
        ranks = [int(one) for one in members.split(b",")]
        here = self._meetings.setdefault(key, {})
        here[int(rank)] = data
        self._changed.notify_all()

        def missing() -> list[int]:
            return [one for one in ranks if one not in here]

        def over() -> bool:
            return not missing() or any(one in self._gone for one in missing())

        in_time = self._changed.wait_for(over, float(seconds))
        if ended := [one for one in missing() if one in self._gone]:
            raise _Refused(f"rank {ended[0]} {self._gone[ended[0]]}")
        if not in_time:
            names = ", ".join(map(str, missing()))
            raise _Refused(
                f"rank {names} has not called it in {float(seconds):g} s, or is slow (timeout= of "
                "init_process_group sets the limit)"
            )
        self._taken[key] = self._taken.get(key, 0) + 1
        if self._taken[key] == len(ranks):
            del self._taken[key], self._meetings[key]
        return [here[one] for one in ranks]

    def _death(self) -> bytes:
        """Wait until a rank has died; says which."""

        def died() -> list[int]:
            return [one for one, how in self._gone.items() if "died" in how]

        with self._changed:
            self._changed.wait_for(died)
            return f"rank {died()[0]} {self._gone[died()[0]]}".encode()


class _Refused(Exception):
    """An answer that is an error in the rank that asks."""


# --- what a group of ranks that no MPI has started communicates with, next to NCCL


class Control:
    """The part of `mpi.Group` that needs no arrays, over a store."""

    def __init__(
        self, store: TCPStore, ranks: Sequence[int], rank: int, timeout: float, name: str = "0"
    ) -> None:
        self.store, self.ranks, self.timeout, self.name = store, list(ranks), timeout, name
        self.rank, self.size = rank, len(self.ranks)
        self._calls, self._groups = 0, 0
        self._sent: dict[tuple[int, int, int], int] = {}  # messages by (sender, receiver, tag)
        self._broken = ""

    def agree(self, text: str) -> None:
        """Wait until all ranks have called this with the same text; DistBackendError otherwise."""
        self.exchange(text, b"")

    def exchange(self, name: str, data: bytes) -> list[bytes]:
        """The bytes of every rank, under a name that all give."""
        if self._broken:
            raise DistBackendError(f"{name}: the group failed before: {self._broken}")
        self._calls += 1
        said = _packed(f"{name} (call {self._calls} of the group)".encode(), data)
        mine, key = self.ranks[self.rank], f"/group/{self.name}/{self._calls}"
        try:
            found = self.store.exchange(key, mine, self.ranks, said, self.timeout)
        except DistBackendError as error:
            self.fail(f"rank {self.rank} of {self.size}: {name}: {error}")
        calls, values = zip(*(_unpacked(one) for one in found))
        if len(set(calls)) > 1:
            self.fail(disagreement(self.ranks, [call.decode() for call in calls]))
        return list(values)

    def fail(self, reason: str) -> Any:
        self._broken = reason
        raise DistBackendError(reason)

    def send_bytes(self, data: bytes, dst: int, tag: int) -> Done:
        """Leave bytes for a rank that calls `receive_bytes`."""
        self.store.set(self._key(self.rank, dst, tag), data)
        return Done()

    def receive_bytes(self, src: int, tag: int) -> bytes:
        key = self._key(src, self.rank, tag)
        self.store.wait([key], timedelta(seconds=self.timeout))
        data = self.store.get(key)
        self.store.delete_key(key)
        return data

    def _key(self, source: int, to: int, tag: int) -> str:
        way = (source, to, tag)
        number = self._sent[way] = self._sent.get(way, 0) + 1
        return f"/message/{self.name}/{source}/{to}/{tag}/{number}"

    def subgroup(self, ranks: Sequence[int], timeout: float) -> Control | None:
        """A group of some members; all call this. None where this rank is not one of them."""
        self.agree(f"new_group({list(ranks)})")
        self._groups += 1
        if self.rank not in ranks:
            return None
        members = [self.ranks[rank] for rank in ranks]
        mine, name = list(ranks).index(self.rank), f"{self.name}.{self._groups}"
        return Control(self.store, members, mine, timeout, name)

    def leave(self) -> None:
        """Tell the others that this rank calls no more; rank 0 serves until all have."""
        if self.name == "0":
            self.store.close(self.timeout)


def _unpacked(data: bytes) -> tuple[bytes, bytes]:
    size = struct.unpack_from("!I", data, 4)[0]
    return data[8 : 8 + size], data[12 + size :]
