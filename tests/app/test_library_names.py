"""Names that libraries for torch import: each does here what it does in torch."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import minigrad
from minigrad import distributed, futures
from minigrad.distributed.alone import Alone
from minigrad.nn.parallel.scatter_gather import gather, scatter_kwargs
from minigrad.utils.flop_counter import FlopCounterMode
from minigrad.vision.ops.misc import FrozenBatchNorm2d


def outcome(call: Any) -> Any:
    """The type of the error, or the result."""
    try:
        return call()
    except Exception as error:
        return type(error)


def test_futures_end_once_as_in_torch(torch):
    def run(m: Any) -> list:
        future, failing, order = m.Future(), m.Future(), []
        rows = [future.done(), outcome(future.value), outcome(lambda: future.set_exception(3))]
        after = future.then(lambda f: f.wait() + 1).then(lambda f: f.value() * 10)
        future.add_done_callback(lambda f: order.append(f.value()))
        future.set_result(1)
        future.add_done_callback(lambda f: order.append(2))
        future.add_done_callback(lambda f: 1 / 0)
        failing.set_exception(KeyError("k"))
        rows += [future.done(), future.wait(), after.wait(), order]
        rows += [outcome(lambda: future.set_result(2)), outcome(failing.wait)]
        rows += [outcome(failing.value), outcome(future.then(lambda f: 1 / 0).wait)]
        rows += [m.wait_all([future, after]), outcome(lambda: m.wait_all([future, failing]))]
        rows += [
            [f.value() for f in m.collect_all([future, after]).wait()],
            m.collect_all([]).wait(),
        ]
        return rows

    got, expected = run(futures), run(torch.futures)
    expected[1] = got[1]  # torch's text is that of an internal check
    assert got == expected and got[1] is RuntimeError


def test_a_future_waits_for_another_thread():
    first: futures.Future[int] = futures.Future()
    second: futures.Future[int] = futures.Future()
    both = futures.collect_all([first, second])
    threading.Timer(0.02, lambda: second.set_result(2)).start()
    first.set_result(1)
    assert [f.value() for f in both.wait()] == [1, 2]


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_a_batch_come_together_again(torch, dim, rng):
    from torch.nn.parallel import scatter_gather as theirs

    values = rng.normal(size=(5, 4))
    x, y = minigrad.from_numpy(values), torch.from_numpy(values)
    got = scatter_kwargs((x, 3), {"k": [x]}, ["cpu", "cpu"], dim)
    parts = [np.array(row[0]) for row in got[0]]
    assert [p.shape for p in parts] == [tuple(p.shape) for p in y.chunk(2, dim)]
    assert [row[1] for row in got[0]] == [3, 3] and len(got[1]) == 2
    assert np.array_equal(gather([row[0] for row in got[0]], "cpu", dim), values)
    assert scatter_kwargs((), None, ["cpu"]) == theirs.scatter_kwargs((), None, [])
    named = gather([{"a": (p, p.sum())} for p in x.chunk(2, dim)], "cpu", dim)
    assert np.array_equal(named["a"][0], values)
    assert named["a"][1].tolist() == pytest.approx([p.sum().item() for p in y.chunk(2, dim)])
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"a": x}, {}], "cpu")


def test_marks_for_compilers_leave_functions_as_they_are(torch):
    def function() -> int:
        return 3

    for m in (minigrad, torch):
        assert m.jit.ignore(function) is m.jit.ignore()(function) is function
        assert m.jit.ignore(drop=False)(function)() == m.jit.unused(function)() == 3
        assert outcome(lambda m=m: m.jit.ignore(3)) is RuntimeError
        assert m.compiler.is_dynamo_compiling() is False
        assert not isinstance(m.nn.Linear(2, 2), m.jit.ScriptModule)
        assert issubclass(m.jit.ScriptModule, m.nn.Module)
        assert isinstance(m.futures.Future(), m.Future)
    assert minigrad.fx.wrap("len") == "len" and minigrad.fx.wrap(function) is function
    with pytest.raises(AttributeError, match="symbolic_trace"):
        _ = minigrad.fx.symbolic_trace


def test_types_and_libraries_that_programs_ask_for(torch):
    for name in ("Number", "Device", "FileLike", "Storage", "Size"):
        assert hasattr(torch.types, name) and hasattr(minigrad.types, name)
    assert minigrad.types.Number == torch.types.Number
    for name in ("mkl", "mkldnn", "openmp"):
        assert getattr(minigrad.backends, name).is_available() is False
    assert hasattr(torch.backends.mkldnn, "enabled") and not minigrad.backends.mkldnn.enabled
    x = minigrad.ones(3)
    assert isinstance(x.untyped_storage(), minigrad.UntypedStorage)
    assert issubclass(minigrad.TypedStorage, minigrad.storage.UntypedStorage)
    with pytest.raises(NotImplementedError, match="without a tensor"):
        minigrad.UntypedStorage(4)


def test_backends_of_groups_are_strings(torch):
    theirs, ours = torch.distributed.Backend, distributed.Backend
    for name in ("MPI", "GLOO", "NCCL", "UNDEFINED"):
        assert getattr(theirs, name) == getattr(ours, name)
    for name in ("Gloo", 3):
        assert outcome(lambda n=name: theirs(n)) == outcome(lambda n=name: ours(n))
    assert distributed.ReduceOp.RedOpType is distributed.ReduceOp
    assert isinstance(Alone(1.0), distributed.ProcessGroup)


def test_frozen_batch_norm_is_batch_norm_in_evaluation(torch, rng):
    norm = torch.nn.BatchNorm2d(4).double().eval()
    for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        value.data.copy_(torch.from_numpy(rng.random(4)))
    frozen = FrozenBatchNorm2d(4).double()
    state = {k: minigrad.from_numpy(np.array(v)) for k, v in norm.state_dict().items()}
    frozen.load_state_dict(state)
    x = rng.normal(size=(2, 4, 3, 5))
    expected = norm(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(frozen(minigrad.from_numpy(x)).numpy(), expected, rtol=1e-12)
    assert not list(frozen.parameters()) and "num_batches_tracked" in state


def test_private_names_by_which_libraries_know_torch(torch):
    for m in (minigrad, torch):
        assert m._C._log_api_usage_once("library") is None
    module = minigrad.compile(minigrad.nn.Linear(2, 2))
    assert isinstance(module, minigrad._dynamo.OptimizedModule)
    assert module._orig_mod.weight.shape == (2, 2)
    loaded = minigrad.nn.Linear(2, 2).load_state_dict({}, strict=False)
    assert isinstance(loaded, minigrad.nn.modules.module._IncompatibleKeys)


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_of_loaders_have_a_length_and_can_be_ended(torch, workers):
    from torch.utils.data import dataloader as theirs

    from minigrad.utils.data import dataloader as ours

    for m in (ours, theirs):
        batches = iter(m.DataLoader(range(7), batch_size=2, num_workers=workers))
        assert isinstance(batches, m._BaseDataLoaderIter) and iter(batches) is batches
        assert isinstance(batches, m._MultiProcessingDataLoaderIter) == (workers > 0)
        assert len(batches) == 4 and next(batches).tolist() == [0, 1]
        if workers:
            batches._shutdown_workers()
    assert list(ours.DataLoader(range(3)))[2].tolist() == [2]


def test_the_arguments_of_to_are_read_as_torch_does(torch):
    for m in (minigrad, torch):
        read = m._C._nn._parse_to
        assert read("cpu")[:3] == (m.device("cpu"), None, False)
        assert read(m.float64, non_blocking=True)[:3] == (None, m.float64, True)
        assert read(m.ones(2, dtype=m.float64))[:2] == (m.device("cpu"), m.float64)
        assert read(device="cpu", dtype=m.float32)[:2] == (m.device("cpu"), m.float32)
        assert m._C._get_tracing_state() is None and isinstance(m.Tensor, m._C._TensorMeta)


def test_a_program_of_torchrun_is_known(torch, monkeypatch):
    assert not distributed.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    for m in (minigrad, torch):
        assert m.distributed.is_torchelastic_launched()


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda: FlopCounterMode(display=False), "estimate"),
        (lambda: minigrad.autograd.profiler.emit_nvtx(), "nvtx.range"),
        (lambda: minigrad.PyTorchFileReader("x"), "minigrad.load"),
    ],
)
def test_blocks_and_readers_that_are_not_here_say_so(made, what):
    with pytest.raises(NotImplementedError, match=what), made():
        pass
    with minigrad.autograd.profiler.emit_nvtx(enabled=False):
        pass
    assert not minigrad.profiler.kineto_available()
