"""Names that libraries for torch import: each does here what it does in torch."""

from __future__ import annotations

import importlib
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


def test_tensors_in_groups(torch):
    def program(t):
        module = importlib.import_module(f"{t.__name__}.utils._foreach_utils")
        first = [t.ones(2), t.ones(3).double(), t.ones(4), t.ones(1).int()]
        second = [t.full((1,), float(i)) for i in range(4)]
        group = module._group_tensors_by_device_and_dtype
        found = group([first, second, []], with_indices=True)
        return {
            (str(device), str(dtype).split(".")[1]): ([[x.tolist() for x in p] for p in lists], n)
            for (device, dtype), (lists, n) in found.items()
        }

    assert program(minigrad) == program(torch)


def test_questions_of_libraries(torch):
    for t in (minigrad, torch):
        fake = importlib.import_module(f"{t.__name__}._subclasses.fake_tensor")
        assert not fake.is_fake(t.ones(1))
        proxy = importlib.import_module(f"{t.__name__}.fx.experimental.proxy_tensor")
        assert proxy.get_proxy_mode() is None
        names = importlib.import_module(f"{t.__name__}.ao.quantization")
        assert issubclass(names.ObserverBase, t.nn.Module)
        assert issubclass(names.FakeQuantizeBase, t.nn.Module)
    assert minigrad.ao.quantization.quantize_dynamic is minigrad.quantization.quantize_dynamic


def test_classes_that_no_object_has():
    fsdp = importlib.import_module("minigrad.distributed.fsdp")
    absent = [
        minigrad.SymInt,
        minigrad.SymFloat,
        minigrad.SymBool,
        minigrad.cuda.CUDAGraph,
        minigrad.cuda.graph,
        fsdp.CPUOffloadPolicy,
        fsdp.MixedPrecisionPolicy,
    ]
    for kind in absent:
        assert not isinstance(3, kind)
        with pytest.raises(NotImplementedError, match=f"{kind.__name__}: "):
            kind()
    places = importlib.import_module("minigrad.distributed.tensor.placement_types")
    assert places.Partial() == places.Partial("sum") != places.Partial("max")
    assert issubclass(places._StridedShard, places.Placement)
    older = importlib.import_module("minigrad.distributed._composable.fsdp")
    assert older.fully_shard is fsdp.fully_shard


def test_a_complex_dtype_without_tensors(torch):
    for t in (minigrad, torch):
        assert t.complex32.is_complex and not t.complex32.is_floating_point
        assert t.complex32.itemsize == 4 and t.complex32.is_signed
    with pytest.raises(TypeError, match="complex32"):
        minigrad.ones(2).to(minigrad.complex32)


def test_a_vmap_says_that_it_runs():
    active = minigrad._C._are_functorch_transforms_active
    seen = []
    minigrad.vmap(lambda x: seen.append(active()) or x * 2)(minigrad.ones(3))
    assert seen == [True] and not active()


def test_the_suffix_of_extra_state(torch):
    for t in (minigrad, torch):
        assert t.nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"


class _Mesh:
    """This rank's place in a grid of ranks."""

    def __init__(self, shape, coordinate):
        self.shape, self.ndim, self.coordinate = shape, len(shape), coordinate

    def get_coordinate(self):
        return self.coordinate


def test_parts_of_a_divided_tensor():
    """The parts that NumPy cuts by the same rule: pieces of equal length, the last ones shorter."""
    utils = importlib.import_module("minigrad.distributed.tensor._utils")
    shard, whole = distributed.tensor.Shard, distributed.tensor.Replicate()
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, m = rng.integers(1, 9, 2).tolist()
        ranks = tuple(rng.integers(1, 5, 2).tolist())
        place = [int(rng.integers(r)) for r in ranks]
        indices = np.arange(n)
        for r, i in zip(ranks, place, strict=True):
            length = -(-len(indices) // r)
            indices = indices[i * length : (i + 1) * length]
        get = utils.compute_local_shape_and_global_offset
        found = get((m, n), _Mesh(ranks, place), (shard(1), shard(1)))
        first = indices[0] if len(indices) else n
        assert found == ((m, len(indices)), (0, first))
        assert get((m, n), _Mesh(ranks, place), (whole, whole)) == ((m, n), (0, 0))
    assert get((3,), _Mesh((2,), None), (whole,)) == ((0,), ())
    with pytest.raises(RuntimeError, match="2 placements"):
        get((3,), _Mesh((2, 2), [0, 0]), (whole,))
