"""Workers of a DataLoader that are processes: order, seeds, errors, interrupts, killed workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

import minigrad
from minigrad.utils.data import DataLoader, TensorDataset
from tests.data.sources import (
    Big,
    Described,
    Faulty,
    Rows,
    Share,
    fail,
    keep,
    resize,
    tagged,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and fork")


def workers() -> list:
    return [p for p in multiprocessing.active_children() if "dataloader" in p.name]


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition) -> None:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_in_order_from_other_processes(method):
    loader = DataLoader(Rows(10), 3, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert [b[0][:, 3].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    read_by = [set(b[1].tolist()) for b in batches]
    assert read_by[0] == read_by[2] != read_by[1] == read_by[3]
    assert os.getpid() not in set.union(*read_by)
    assert workers() == []


def test_the_order_is_that_without_workers():
    orders = []
    for count in (0, 1, 3):
        minigrad.manual_seed(11)
        dataset = TensorDataset(minigrad.arange(40))
        loader = DataLoader(dataset, 6, True, num_workers=count)
        orders.append([[b[0].tolist() for b in loader] for _ in range(2)])
    assert orders[0] == orders[1] == orders[2] and orders[0][0] != orders[0][1]


def test_large_batches_may_be_changed():
    """Their arrays do not come through the pickle; the loop owns them."""
    for number, (images, names) in enumerate(DataLoader(Big(5), 2, num_workers=1)):
        assert images.shape[1:] == (3, 160, 160)
        assert images[0, 2, 159, 159].item() == 2 * number and names["i"][0] == 2 * number
        images += 1
        assert images[0, 0, 0, 0].item() == 2 * number + 1


def test_infos_and_seeds():
    def read(count: int, persistent: bool = False):
        minigrad.manual_seed(3)
        loader = DataLoader(
            Described(8), 1, num_workers=count, persistent_workers=persistent, collate_fn=keep
        )
        return [[row for batch in loader for row in batch] for _ in range(2)]

    first, second = read(2)
    assert [row[3] for row in first] == [0, 1] * 4
    assert all(row[4] == 2 and row[6] for row in first)
    assert first[1][5] == first[0][5] + 1  # the seed of a worker
    for kind in range(3):  # random, numpy and minigrad: no number twice, in no worker and epoch
        assert len({row[kind] for row in first + second}) == 16
    assert [first, second] == read(2) == read(2, persistent=True)


def test_seeds_come_from_the_generator_of_the_loader():
    def seeds(seed: int) -> list:
        generator = minigrad.Generator().manual_seed(seed)
        loader = DataLoader(Described(2), None, num_workers=1, generator=generator, collate_fn=keep)
        return [row[5] for row in loader]

    assert seeds(1) == seeds(1) != seeds(2)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_iterable_dataset(count):
    batches = [b.tolist() for b in DataLoader(Share(), 3, num_workers=count)]
    assert sorted(i for batch in batches for i in batch) == list(range(10))
    if count == 2:
        assert batches == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    loader = DataLoader(Share(), 3, num_workers=count, drop_last=True, persistent_workers=True)
    for _ in range(2):
        assert all(len(b) == 3 for b in loader)
    assert sorted(map(int, DataLoader(Share(), None, num_workers=count))) == list(range(10))


def test_an_exception_carries_the_worker_s_traceback():
    seen = []
    with pytest.raises(KeyError) as caught:
        seen.extend(b.tolist() for b in DataLoader(Faulty("raise"), 2, num_workers=2))
    assert seen == [[0, 1], [2, 3]]
    text = str(caught.value)
    assert text.startswith("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback")
    assert "sources.py" in text and "in __getitem__" in text and "sample five is broken" in text
    assert workers() == []


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("kill", r"DataLoader worker 1 \(pid \d+\) is killed by signal: Killed."),
        ("exit", r"DataLoader worker 1 \(pid \d+\) exited unexpectedly with exit code 3."),
    ],
)
def test_a_worker_that_ends_is_named(action, expected):
    loader = DataLoader(Faulty(action), num_workers=2, persistent_workers=True)
    for _ in range(2):  # another epoch starts others
        with pytest.raises(RuntimeError, match=expected):
            list(loader)
    assert workers() == []


def test_a_batch_that_cannot_be_sent():
    with pytest.raises(Exception, match="as a DataLoader worker process pickled a batch"):
        list(DataLoader(Faulty("lambda"), 2, num_workers=1, collate_fn=keep))


def test_timeout(monkeypatch):
    monkeypatch.setattr("minigrad.utils.data.processes._SECONDS", 0.2)
    loader = DataLoader(Faulty("sleep"), num_workers=2, timeout=0.3)
    started = time.monotonic()
    batches = iter(loader)
    with pytest.raises(RuntimeError, match="timed out after 0.3 seconds"):
        list(batches)
    assert workers() == [] and time.monotonic() - started < 30


def test_init_sees_the_copy_of_the_dataset():
    dataset = Described(4)
    loader = DataLoader(dataset, 1, num_workers=2, worker_init_fn=resize, collate_fn=keep)
    assert [row[-1] for batch in loader for row in batch] == [100, 101, 100, 101]
    assert dataset.size == 4
    with pytest.raises(OSError, match="no licence"):
        list(DataLoader(Rows(4), num_workers=1, worker_init_fn=fail))


def test_persistent_workers():
    loader = DataLoader(Rows(10), num_workers=2, persistent_workers=True, worker_init_fn=tagged)
    for batch in loader:  # leave an epoch early: what was read ahead must not appear again
        assert batch[0][0, 0].item() == 0
        break
    pids = {p.pid for p in workers()}
    for _ in range(2):
        assert [b[0][0, 0].item() for b in loader] == list(range(10))
        assert {p.pid for p in workers()} == pids
    stale, latest = iter(loader), iter(loader)
    next(stale), next(latest)
    with pytest.raises(RuntimeError, match="only the latest iterator goes on"):
        list(stale)
    del loader, batch, stale, latest
    wait_for(lambda: not workers())


def test_workers_end_with_the_loop():
    for _ in DataLoader(Rows(100), num_workers=3):
        assert len(workers()) == 3
        break
    wait_for(lambda: not workers())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupts(number, tmp_path):
    """Ctrl-C reaches the loop only, as KeyboardInterrupt; workers do not outlive the program."""
    with open(tmp_path / "errors", "w+") as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.data.interrupted"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2 and all(map(is_running, pids))
        if number == signal.SIGINT:  # as a terminal does: to the program and its workers
            os.killpg(program.pid, number)
        else:
            os.kill(program.pid, number)
        rest, _ = program.communicate(timeout=30)
        errors.seek(0)
        assert errors.read() == ""
    if number == signal.SIGINT:
        assert program.returncode == 7 and rest == "interrupted\n"
    wait_for(lambda: not any(map(is_running, pids)))


def test_contexts():
    with pytest.raises(ValueError, match=r"start method in \[.*'thread'\], but got .*='knife'"):
        DataLoader([1], num_workers=1, multiprocessing_context="knife")
    context = multiprocessing.get_context("fork")
    loader = DataLoader(Rows(2), num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context and len(list(loader)) == 2
