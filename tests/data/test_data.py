"""Datasets, samplers, collation and the DataLoader."""

from __future__ import annotations

import collections
import threading
import time
import warnings

import numpy as np
import pytest

import minigrad
from minigrad.utils import data
from minigrad.utils.data import DataLoader, TensorDataset
from tests.nn.helpers import close


class Squares(data.Dataset):
    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return minigrad.tensor([index, index**2]), float(index)


def lists(loader):
    return [[part.tolist() for part in batch] for batch in loader]


def flat(loader):
    return [i for batch in loader for i in batch.tolist()]


# ------------------------------------------------------------------------ datasets


def test_tensor_dataset_and_subset():
    x, y = minigrad.arange(12.0).reshape(6, 2), minigrad.arange(6)
    dataset = TensorDataset(x, y)
    assert len(dataset) == 6 and [t.tolist() for t in dataset[2]] == [[4, 5], 2]
    subset = data.Subset(dataset, [5, 0, 3])
    assert len(subset) == 3 and subset[0][1].item() == 5
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(x, y[:3])


def test_concat_chain_stack():
    joined = Squares(3) + Squares(2)
    assert len(joined) == 5
    assert [joined[i][1] for i in (0, 2, 3, -1)] == [0, 2, 0, 1]
    with pytest.raises(IndexError):
        joined[5]
    with pytest.raises(ValueError):
        joined[-6]
    stacked = data.StackDataset(x=range(3), y=[5, 6, 7])
    assert stacked[1] == {"x": 1, "y": 6} and len(stacked) == 3
    assert data.StackDataset(range(3), range(3))[2] == (2, 2)
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset(range(3), range(2))

    class Count(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    assert list(Count() + Count()) == [0, 1, 2, 0, 1, 2]


def test_random_split():
    minigrad.manual_seed(3)
    parts = data.random_split(range(10), [7, 3])
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    parts = data.random_split(range(11), [0.5, 0.3, 0.2])
    assert [len(p) for p in parts] == [6, 3, 2]
    make = lambda: minigrad.Generator().manual_seed(1)  # noqa: E731
    first = data.random_split(range(10), [5, 5], generator=make())
    again = data.random_split(range(10), [5, 5], generator=make())
    assert first[0].indices == again[0].indices
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(range(2), [0.99, 0.01])


@pytest.mark.parametrize(
    "program",
    [
        lambda d: d.random_split(range(10), [5, 6]),
        lambda d: d.random_split(range(10), [1.5, -0.5]),
        lambda d: d.ConcatDataset([]),
        lambda d: d.RandomSampler([]),
        lambda d: d.RandomSampler([1], replacement=3),
        lambda d: d.RandomSampler([1], num_samples=-1),
        lambda d: d.WeightedRandomSampler([1.0], 0),
        lambda d: d.WeightedRandomSampler([1.0], 1, replacement=3),
        lambda d: d.BatchSampler([1], 0, False),
        lambda d: d.BatchSampler([1], 2, 3),
        lambda d: d.DataLoader([1], num_workers=-1),
        lambda d: d.DataLoader([1], timeout=-1),
        lambda d: d.DataLoader([1], prefetch_factor=2),
        lambda d: d.DataLoader([1], num_workers=1, prefetch_factor=-2),
        lambda d: d.DataLoader([1], persistent_workers=True),
        lambda d: d.DataLoader([1], sampler=[0], shuffle=True),
        lambda d: d.DataLoader([1], batch_sampler=[[0]], shuffle=True),
        lambda d: d.DataLoader([1], batch_size=None, drop_last=True),
        lambda d: d.DataLoader(d.ChainDataset([]), shuffle=True),
        lambda d: d.DataLoader(d.ChainDataset([]), sampler=[0]),
        lambda d: d.DataLoader(d.ChainDataset([]), batch_sampler=[[0]]),
        lambda d: setattr(d.DataLoader([1]), "batch_size", 3),
        lambda d: d.DataLoader([1], multiprocessing_context="fork"),
        lambda d: d.DataLoader([1], num_workers=1, multiprocessing_context=3),
        lambda d: list(d.DataLoader([[1], [1, 2]], batch_size=2)),
    ],
    ids=range(25),
)
def test_errors_as_torch(program, same_error):
    same_error(lambda t: program(t.utils.data))


# ------------------------------------------------------------------------ samplers


def test_samplers(seed):
    minigrad.manual_seed(seed)
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    order = list(data.RandomSampler(range(50)))
    assert sorted(order) == list(range(50)) and order != list(range(50))
    assert len(list(data.RandomSampler(range(5), num_samples=12))) == 12
    longer = list(data.RandomSampler(range(5), num_samples=12))
    assert sorted(longer[:5]) == list(range(5)) and set(longer[10:]) <= set(range(5))
    drawn = list(data.RandomSampler(range(5), replacement=True, num_samples=5000))
    counts = np.bincount(drawn, minlength=5)
    assert len(drawn) == 5000 and (abs(counts - 1000) < 5 * np.sqrt(800)).all()
    assert sorted(data.SubsetRandomSampler([7, 8, 9])) == [7, 8, 9]
    weighted = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    share = np.bincount(weighted, minlength=3) / 4000
    np.testing.assert_allclose(share, [0, 0.25, 0.75], atol=5 * np.sqrt(0.25 * 0.75 / 4000))
    assert sorted(data.WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    assert list(batches) == [[0, 1], [2, 3], [4]] and len(batches) == 3
    batches = data.BatchSampler(range(5), 2, True)
    assert list(batches) == [[0, 1], [2, 3]] and len(batches) == 2


# ------------------------------------------------------------------------ collation


def test_collate_as_torch(rng, torch):
    Point = collections.namedtuple("Point", "x y")
    arrays = [rng.normal(size=(2, 3)).astype(np.float32) for _ in range(3)]

    def samples(t):
        return [
            {
                "tensor": t.tensor(a),
                "array": a,
                "number": i,
                "real": i / 2,
                "flag": i == 1,
                "scalar": np.float32(i),
                "text": f"n{i}",
                "pair": (t.tensor(i), [i, i + 1]),
                "point": Point(i, t.tensor([i])),
            }
            for i, a in enumerate(arrays)
        ]

    mine = data.default_collate(samples(minigrad))
    theirs = torch.utils.data.default_collate(samples(torch))

    def same(a, b):
        if isinstance(b, torch.Tensor):
            assert isinstance(a, minigrad.Tensor)
            close(a, b)
        elif isinstance(b, dict):
            assert a.keys() == b.keys()
            for key in b:
                same(a[key], b[key])
        elif isinstance(b, (list, tuple)):
            assert type(a) is type(b) and len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                same(x, y)
        else:
            assert a == b

    same(mine, theirs)
    with pytest.raises(TypeError, match="batch must contain"):
        data.default_collate([object()])


def test_default_convert():
    converted = data.default_convert({"a": np.ones(2), "b": ["x", np.float64(3)], "c": None})
    assert isinstance(converted["a"], minigrad.Tensor) and converted["b"][0] == "x"
    assert converted["b"][1].item() == 3 and converted["c"] is None


# ------------------------------------------------------------------------ the loader


def as_threads(workers):
    """Arguments for workers that are threads."""
    return {"num_workers": workers, "multiprocessing_context": "thread" if workers else None}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_in_order(workers):
    loader = DataLoader(Squares(10), batch_size=4, **as_threads(workers))
    assert len(loader) == 3
    want = [
        [[[i, i * i] for i in rows], [float(i) for i in rows]]
        for rows in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])
    ]
    assert lists(loader) == want
    assert lists(loader) == want
    short = DataLoader(Squares(10), batch_size=4, drop_last=True, **as_threads(workers))
    assert len(short) == 2 and lists(short) == want[:2]


def test_same_seed_same_order_whatever_the_workers():
    orders = []
    for workers in (0, 2, 3):
        minigrad.manual_seed(11)
        loader = DataLoader(TensorDataset(minigrad.arange(40)), 6, True, **as_threads(workers))
        orders.append([[b[0].tolist() for b in loader] for _ in range(2)])
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][0] != orders[0][1]
    assert sorted(i for batch in orders[0][0] for i in batch) == list(range(40))
    make = lambda: DataLoader(  # noqa: E731
        range(20), shuffle=True, generator=minigrad.Generator().manual_seed(5)
    )
    assert flat(make()) == flat(make())


def test_tensor_dataset_is_fetched_by_batch():
    x = minigrad.arange(20.0).reshape(10, 2)
    dataset = data.Subset(TensorDataset(x, minigrad.arange(10)), list(range(9, -1, -1)))
    fast = lists(DataLoader(dataset, batch_size=4))
    slow = lists(DataLoader(dataset, batch_size=4, collate_fn=lambda b: data.default_collate(b)))
    assert fast == slow and fast[0][1] == [9, 8, 7, 6]


def test_getitems_samplers_and_no_batching():
    class Batched(Squares):
        def __getitems__(self, indices):
            return [("batch", i) for i in indices]

    loader = DataLoader(Batched(5), batch_size=3, collate_fn=list)
    assert next(iter(loader)) == [("batch", 0), ("batch", 1), ("batch", 2)]
    assert flat(DataLoader(range(9), sampler=[3, 1, 8], batch_size=2)) == [3, 1, 8]
    assert flat(DataLoader(range(9), batch_sampler=[[3, 1], [8]])) == [3, 1, 8]
    single = list(DataLoader([np.ones(2), np.zeros(2)], batch_size=None))
    assert [s.tolist() for s in single] == [[1, 1], [0, 0]]


class Counter(data.IterableDataset):
    """0..size, shared out between the workers."""

    def __init__(self, size=10):
        self.size = size

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.size, step))


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_iterable_dataset(workers):
    loader = DataLoader(Counter(), batch_size=3, **as_threads(workers))
    batches = [b.tolist() for b in loader]
    assert sorted(i for batch in batches for i in batch) == list(range(10))
    if workers < 2:
        assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    if workers == 2:
        assert batches == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
    full = DataLoader(Counter(), batch_size=3, drop_last=True, **as_threads(workers))
    assert all(len(b) == 3 for b in full)
    assert [int(x) for x in DataLoader(Counter(3), batch_size=None)] == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [KeyError, ValueError, UnicodeDecodeError])
def test_errors_in_the_dataset_reach_the_loop(workers, kind):
    class Broken(Squares):
        def __getitem__(self, index):
            if index == 5:
                if kind is UnicodeDecodeError:  # its constructor takes five arguments
                    b"\xff".decode("utf8")
                raise kind("sample five is broken")
            return index

    loader = DataLoader(Broken(), batch_size=2, **as_threads(workers))
    seen = []
    expected = RuntimeError if kind is UnicodeDecodeError and workers else kind
    with pytest.raises(expected) as caught:
        seen.extend(b.tolist() for b in loader)
    assert seen == [[0, 1], [2, 3]]
    if workers:
        text = str(caught.value)
        assert f"Caught {kind.__name__} in DataLoader worker thread" in text
        assert "in __getitem__" in text and "Traceback (most recent call last)" in text


def test_worker_info_and_init():
    started = []
    infos = []

    class Informed(Squares):
        def __getitem__(self, index):
            info = data.get_worker_info()
            infos.append((info.id, info.num_workers, info.seed, info.dataset is self))
            return index

    loader = DataLoader(Informed(8), batch_size=2, worker_init_fn=started.append, **as_threads(2))
    list(loader)
    assert sorted(started) == [0, 1] and {i[0] for i in infos} == {0, 1}
    assert all(count == 2 and mine for _, count, _, mine in infos)
    seeds = {i[0]: i[2] for i in infos}
    assert seeds[1] == seeds[0] + 1
    assert data.get_worker_info() is None

    def failing(worker):
        raise OSError("no licence")

    with pytest.raises(OSError, match="no licence"):
        list(DataLoader(Squares(4), worker_init_fn=failing, **as_threads(1)))


def test_random_numbers_of_workers_repeat_with_the_seed():
    class Noisy(Squares):
        def __getitem__(self, index):
            time.sleep(0.002 * (index % 3))  # so that the workers take turns in another order
            return minigrad.rand(1).item()

    def drawn():
        minigrad.manual_seed(5)
        with minigrad.backends.use("numpy"):
            batches = list(DataLoader(Noisy(12), batch_size=2, **as_threads(3)))
        return [b.tolist() for b in batches], minigrad.get_rng_state().tolist()

    first = drawn()
    assert first == drawn() == drawn()
    assert len({x for batch in first[0] for x in batch}) == 12


def worker_threads():
    return [t for t in threading.enumerate() if t.name.startswith("minigrad-dataloader")]


def wait_for(condition):
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_workers_end():
    wait_for(lambda: not worker_threads())
    batches = iter(DataLoader(Squares(100), **as_threads(3)))
    next(batches)
    assert len(worker_threads()) == 3
    del batches  # what `break` in a for loop leads to
    wait_for(lambda: not worker_threads())


def test_persistent_workers():
    started = []
    loader = DataLoader(
        Squares(10), persistent_workers=True, worker_init_fn=started.append, **as_threads(2)
    )
    for batch in loader:  # leave an epoch early: what it had read ahead must not appear again
        assert batch[1].item() == 0
        break
    threads = {t.ident for t in worker_threads()}
    for _ in range(2):
        assert [b[1].item() for b in loader] == list(range(10))
        assert {t.ident for t in worker_threads()} == threads
    assert sorted(started) == [0, 1]
    del loader, batch
    wait_for(lambda: not worker_threads())


def test_prefetching_is_bounded_and_concurrent():
    reading = threading.Barrier(3, timeout=5)
    fetched = []

    class Slow(Squares):
        def __getitem__(self, index):
            if index < 3:
                reading.wait()  # passes only if three samples are read at the same time
            fetched.append(index)
            return index

    loader = DataLoader(Slow(100), batch_size=1, prefetch_factor=2, **as_threads(3))
    batches = iter(loader)
    assert next(batches).item() == 0
    time.sleep(0.1)
    assert len(fetched) <= 3 * 2 + 1
    del batches


def test_timeout_and_order():
    release = threading.Event()

    class Stuck(Squares):
        def __getitem__(self, index):
            if index == 0:
                release.wait(10)
            return index

    with pytest.raises(RuntimeError, match="timed out after 0.05 seconds"):
        next(iter(DataLoader(Stuck(2), timeout=0.05, **as_threads(1))))
    early = iter(DataLoader(Stuck(2), in_order=False, **as_threads(2)))
    assert next(early).item() == 1
    release.set()
    assert next(early).item() == 0


def test_pin_memory_without_a_gpu_warns():
    if minigrad.cuda.is_available():
        pytest.skip("there is a GPU: batches are pinned")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert len(list(DataLoader(Squares(3), pin_memory=True))) == 3


def test_length_of_an_iterable_loader():
    class Sized(Counter):
        def __len__(self):
            return self.size

    assert len(DataLoader(Sized(10), batch_size=4)) == 3
    assert len(DataLoader(Sized(10), batch_size=4, drop_last=True)) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Counter()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(DataLoader(Sized(10), batch_size=4))) == 3


def test_a_subset_asks_for_samples_together():
    class Tens(data.Dataset):
        def __getitem__(self, index):
            return index

        def __getitems__(self, indices):
            return [10 * index for index in indices]

    assert data.Subset([1, 2, 3, 4, 5, 6], [1, 5, 3]).__getitems__([0, 2]) == [2, 4]
    (batch,) = data.DataLoader(data.Subset(Tens(), [1, 2]), batch_size=2)
    assert batch.tolist() == [10, 20]
