"""A process that says which rank has died.

A rank that is killed (by the system when memory runs out, say) can print nothing, and MPICH's
mpiexec, which then kills the others at once, names no rank. So rank 0 starts a witness, to which
every rank keeps a connection. The system closes the connections of a process that ends; the first
one that closes without a goodbye is that of the rank that died. The witness is in a session of its
own, for mpiexec kills the sessions of the ranks.

The witness runs this file as a program, and must start fast: it imports nothing of minigrad.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import warnings
from typing import Any

HELLO, BYE = b"minigrad rank\n", b"bye\n"


# --- in the ranks


class Watched:
    """This rank's connection to the witness. comm: of all ranks, which all call this."""

    def __init__(self, comm: Any) -> None:
        rank, here = comm.Get_rank(), socket.gethostname()
        alone = len(set(comm.allgather(here))) == 1
        self._process = _start(alone) if rank == 0 else None
        address = comm.bcast(_address(self._process, here, alone))
        self._socket = socket.socket(socket.AF_UNIX if alone else socket.AF_INET)
        self._socket.settimeout(10)
        try:
            self._socket.connect(address)
            self._send(HELLO + f"{here} {os.getpid()} rank {rank} of {comm.Get_size()}\n".encode())
        except OSError as error:
            warnings.warn(
                f"init_process_group: rank {rank} cannot reach the witness of rank 0 at {address} "
                f"({error}): if it dies, no message names it",
                stacklevel=4,
            )

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def dismiss(self) -> None:
        """The end of this rank is no fault."""
        with contextlib.suppress(OSError):  # the witness has ended with the first death
            self._send(BYE)
        self._socket.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def _start(alone: bool) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "unix" if alone else "inet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def _address(process: subprocess.Popen | None, host: str, alone: bool) -> Any:
    """Where the witness listens; None on other ranks than the one that has started it."""
    if process is None:
        return None
    assert process.stdout is not None, "the witness was started with a pipe"
    said = process.stdout.readline().strip()
    process.stdout.close()
    return f"\0{said}" if alone else (host, int(said))


# --- in the witness


class Witness:
    """Waits for the first rank that ends without a goodbye."""

    def __init__(self, server: socket.socket) -> None:
        self._server, self._here = server, socket.gethostname()
        self._events = selectors.DefaultSelector()  # epoll reports in the order of the events
        self._events.register(server, selectors.EVENT_READ, self._accept)
        self._events.register(sys.stdin.buffer, selectors.EVENT_READ, self._end)
        self._ending = False
        self._leaders: set[str] = set()  # ranks here that lead a group: they and their children
        self._watched: dict[socket.socket, bytes] = {}  # and what they have said

    def run(self) -> str | None:
        """The description of the rank that died; None when all have ended without a fault."""
        while self._watched or not self._ending:
            for key, _ in self._events.select():
                died = key.data(key.fileobj)
                if died is not None:
                    return died
        return None

    def _end(self, stdin: Any) -> None:
        """Rank 0, which has started this process, has ended."""
        self._ending = True
        self._events.unregister(stdin)

    def _accept(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        connection.setblocking(False)
        self._watched[connection] = b""
        self._events.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> str | None:
        ended = False
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while part := connection.recv(4096):
                self._greeted(connection, part)
            ended = True
        if not ended and not self._watched[connection].endswith(BYE):
            return None
        return self._verdict(connection)

    def _greeted(self, connection: socket.socket, part: bytes) -> None:
        """Of a rank on this machine also watch the process: its children may have inherited the
        connection, which is open as long as they live."""
        first = not self._watched[connection]
        self._watched[connection] += part
        if not first or not part.startswith(HELLO):
            return
        host, process, *_ = part.removeprefix(HELLO).decode().split()
        if host == self._here and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # it has ended: the connection says so, too
                if os.getpgid(int(process)) == int(process):
                    self._leaders.add(process)
                handle = os.pidfd_open(int(process))
                self._events.register(
                    handle, selectors.EVENT_READ, lambda handle: self._gone(handle, connection)
                )

    def _gone(self, handle: int, connection: socket.socket) -> str | None:
        self._events.unregister(handle)
        os.close(handle)
        if connection not in self._watched:
            return None
        return self._read(connection) or self._verdict(connection)

    def _verdict(self, connection: socket.socket) -> str | None:
        """After the end of a rank: its description, if it is a fault."""
        if connection not in self._watched:
            return None
        said = self._watched.pop(connection)
        self._events.unregister(connection)
        if not said.startswith(HELLO) or said.endswith(BYE):
            return None
        host, process, *name = said.removeprefix(HELLO).decode().split()
        if process in self._leaders:  # mpiexec would wait for its children
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(process), signal.SIGKILL)
        return f"{' '.join(name)} (process {process} on {host})"


def main(family: str) -> None:
    if family == "unix":
        name = f"minigrad-{os.getpid()}-{os.urandom(8).hex()}"
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"\0{name}")  # abstract: no file
    else:
        server = socket.create_server(("", 0))
        name = str(server.getsockname()[1])
    server.listen(1024)
    print(name, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # mpiexec waits until the ranks' output is closed
    died = Witness(server).run()
    if died is not None:
        text = f"{died} has died without an exception: it was killed, or crashed; all ranks stop\n"
        os.write(2, text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
