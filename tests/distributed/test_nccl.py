"""The backend "nccl": with a stand-in for NCCL on the software GPU, and with NCCL on GPUs."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from minigrad import distributed as dist
from minigrad.distributed import nccl
from minigrad.distributed.store import Control, TCPStore
from tests.distributed.launch import FOLDER, settings, start

PROGRAM = str(FOLDER / "nccl_ranks.py")
stand_in = pytest.mark.needs("numba_cuda", "cupy", "cuda.bindings")


def free_port() -> int:
    """Not one that the system gives to whoever asks for any: ranks take seconds to start, and some
    other program's connection could have it by then. All ranks would end with 1."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def store_ranks(count: int, *arguments: str, **variables: str) -> list[tuple[int, str]]:
    """(exit status, output) of ranks that find each other through a store, as torchrun's do."""
    rendezvous = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    rendezvous["PORTS"] = "-".join(str(free_port()) for _ in arguments)
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=settings(**rendezvous, RANK=str(rank), **variables),
        )
        for rank in range(count)
    ]
    try:
        return [(one.wait(240), one.stdout.read()) for one in started]
    finally:
        for one in started:
            one.kill()
            one.stdout.close()


@stand_in
def test_ranks_of_a_store():
    checks = ["values", "mistakes"]
    for status, printed in store_ranks(3, *checks):
        assert status == 0, printed[-5000:]
        assert re.findall(r"rank \d: (\w+) passed", printed) == checks


@stand_in
@pytest.mark.needs("mpi4py")
def test_ranks_of_mpiexec():
    done = start(2, PROGRAM, "through_mpi", "streams", "training")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]


@stand_in
def test_two_ranks_on_one_gpu_are_refused():
    for status, printed in store_ranks(2, "shared_gpu", SHARE_GPU="1"):
        assert status == 0, printed[-3000:]


@stand_in
def test_a_rank_that_dies_is_named_by_the_others():
    found = store_ranks(3, "killed")
    assert [status for status, _ in found] == [3, 9, 3], "\n".join(text for _, text in found)


@stand_in
def test_a_gpu_that_would_wait_for_ever_ends_its_process():
    (status, printed), _ = store_ranks(2, "no_watch")
    assert status == 1
    text = "rank 0 of 2: all_reduce(SUM) float32 (3,): rank 1 has died"
    assert text in printed, printed


# --- the store


@pytest.fixture
def store():
    made = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))
    yield made
    made.close()


def other(store: TCPStore, seconds: float = 5.0) -> TCPStore:
    return TCPStore("127.0.0.1", store.port, timeout=timedelta(seconds=seconds))


def test_the_store_has_one_table_for_all(store):
    second = other(store, 0.2)
    with contextlib.closing(second):
        threading.Timer(0.05, lambda: second.set("late", b"\x00\xff")).start()
        assert store.get("late") == b"\x00\xff"
        assert [store.add("n", 2), second.add("n", 3)] == [2, 5]
        assert second.check(["late", "n"])
        assert not second.check(["late", "absent"])
        assert second.delete_key("late")
        assert not second.delete_key("late")
        assert store.num_keys() == 1
        big = os.urandom(3 << 20)
        second.set("big", big)
        assert store.get("big") == big
        with pytest.raises(dist.DistBackendError, match="nobody has set 'absent' in 0.2 s"):
            second.get("absent")


def controls(store: TCPStore, seconds: float = 5.0) -> tuple[list[Control], list[TCPStore]]:
    stores = [store, other(store)]
    for rank, one in enumerate(stores):
        one.hello(rank)
    return [Control(one, range(2), rank, seconds) for rank, one in enumerate(stores)], stores


def both(*calls) -> list:
    """What two ranks' calls return or raise, at the same time."""
    found: list = [None, None]

    def run(i: int) -> None:
        try:
            found[i] = calls[i]()
        except dist.DistBackendError as error:
            found[i] = str(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_compare_their_calls(store):
    (a, b), (_, second) = controls(store)
    with contextlib.closing(second):
        assert (
            both(lambda: a.exchange("x", b"1"), lambda: b.exchange("x", b"2")) == [[b"1", b"2"]] * 2
        )
        assert both(lambda: a.agree("barrier"), lambda: b.agree("barrier")) == [None, None]
        a.send_bytes(b"first", 1, 0), a.send_bytes(b"other", 1, 7), a.send_bytes(b"", 1, 0)
        assert [b.receive_bytes(0, tag) for tag in (7, 0, 0)] == [b"other", b"first", b""]
        pair = both(lambda: a.subgroup([0, 1], 1.0), lambda: b.subgroup([0, 1], 1.0))
        found = both(lambda: pair[0].agree("one"), lambda: pair[1].agree("two"))
        text = (
            "the ranks call different things: rank 0: one (call 1 of the group); rank 1: two "
            "(call 1 of the group)"
        )
        assert found == [text, text]
        with pytest.raises(dist.DistBackendError, match="the group failed before"):
            pair[0].agree("one")
        assert both(lambda: a.agree("still"), lambda: b.agree("still")) == [None, None]


def test_a_rank_that_does_not_call_is_named(store):
    (a, _), (_, second) = controls(store, 0.2)
    with (
        contextlib.closing(second),
        pytest.raises(dist.DistBackendError, match=r"barrier: rank 1 has not called it in 0.2"),
    ):
        a.agree("barrier")


@pytest.mark.parametrize("politely", [True, False])
def test_a_rank_that_has_ended_is_named(store, politely):
    (a, _), (_, second) = controls(store)
    store.watch()
    if politely:
        second.close()
    else:
        second._socket.shutdown(socket.SHUT_RDWR)
    how = r"has left \(the end of the program\)" if politely else "has died"
    with pytest.raises(dist.DistBackendError, match=f"barrier: rank 1 {how}"):
        a.agree("barrier")
    ends = time.monotonic() + 10  # a thread of the store notes it
    while not politely and not store.died and time.monotonic() < ends:
        time.sleep(0.01)
    assert ("rank 1 has died" in store.died) == (not politely)
    second.close()


def test_a_store_that_nobody_serves():
    with pytest.raises(dist.DistNetworkError, match="no server at 127.0.0.1"):
        TCPStore("127.0.0.1", free_port(), timeout=timedelta(seconds=0.1))


@pytest.mark.parametrize(
    ("variables", "options", "text"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, {}, "variable MASTER_ADDR expected, but not set"),
        ({"MASTER_ADDR": "localhost", "RANK": "0"}, {}, "variable WORLD_SIZE expected"),
        ({}, {"init_method": "file:///tmp/x"}, 'expected init_method="env://" or "tcp://'),
        ({}, {"init_method": "tcp://localhost:1", "rank": 2, "world_size": 2}, "rank < world_size"),
    ],
)
def test_what_a_rendezvous_lacks(monkeypatch, variables, options, text):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(text)):
        dist.init_process_group("nccl", **options)
    assert not dist.is_initialized()


# --- NCCL itself


@pytest.mark.needs("cupy")
def test_the_stand_in_has_the_constants_of_nccl():
    """Those that minigrad uses, as CuPy's documentation and NCCL's header have them."""
    from tests.distributed import nccl_stand_in

    if not dist.is_nccl_available():
        pytest.skip("CuPy does not find libnccl.so.2")
    real = nccl.library()
    names = {name for name in vars(nccl_stand_in) if name.startswith("NCCL_")}
    assert {name: getattr(real, name) for name in names} == {
        name: getattr(nccl_stand_in, name) for name in names
    }
    own = vars(nccl_stand_in.NcclCommunicator)
    for name in ("allReduce", "reduce", "reduceScatter", "broadcast", "allGather", "send", "recv"):
        said = getattr(real.NcclCommunicator, name).__doc__
        arguments = re.findall(r" (\w+)(?:, |\))", said)
        code = own[name].__code__
        assert list(code.co_varnames[1 : code.co_argcount]) == arguments, name


@pytest.mark.gpu
def test_nccl_on_gpus():
    """One rank per GPU, all collectives."""
    import cupy

    if not dist.is_nccl_available():
        pytest.skip("CuPy does not find libnccl.so.2")
    count = min(cupy.cuda.runtime.getDeviceCount(), 4)
    for status, printed in store_ranks(count, "on_gpus", REAL_GPU="1"):
        assert status == 0, printed[-5000:]
