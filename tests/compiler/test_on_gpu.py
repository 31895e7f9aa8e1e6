"""Compiled steps on a GPU: one CUDA graph for each replay, with the results of eager steps."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import kernels.support.wrong_index
import minigrad
import minigrad.nn.functional as F
from kernels import dispatch
from kernels.graph import Graph
from kernels.pointwise import TABLE
from kernels.sequence import Launch
from minigrad import nn
from tests import software_gpu

from .test_compile import OPTIMIZERS, batches, cnn, mlp, training_step

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["numba", "auto"], autouse=True)
def dialect(request):
    with minigrad.backends.use(request.param):
        yield dispatch.active


def on_gpu(data):
    return [tuple(t.to("cuda") for t in batch) for batch in data]


def close(a, b, tolerance=1e-5):
    a, b = (t.detach().cpu().numpy() for t in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def trains_alike(build, data, make_optimizer, loss_of=F.mse_loss, tolerance=1e-5, after=None):
    """Train a network eagerly and its copy compiled; returns the compiled step."""
    minigrad.manual_seed(3)
    model = build().to("cuda")
    twin = copy.deepcopy(model)
    steps = [training_step(m, make_optimizer, loss_of) for m in (model, twin)]
    losses, compiled = [], minigrad.compile(steps[1][0])
    for step, (_, optimizer) in zip((steps[0][0], compiled), steps, strict=True):
        schedule = after and after(optimizer)
        minigrad.manual_seed(5)
        losses.append([])
        for batch in data:
            losses[-1].append(step(*batch))
            if schedule:
                schedule.step()
    for a, b in zip(*losses, strict=True):
        close(a, b, tolerance)
    for p, q in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        close(p, q, tolerance)
    assert compiled.replayed >= 2, compiled.report()
    return compiled


def launched(step, *args):
    """(launches, waits) of a call, where that can be counted."""
    if not software_gpu.installed():
        return None
    software_gpu.finish()
    before = software_gpu.launches(), software_gpu.waits()
    step(*args)
    return software_gpu.launches() - before[0], software_gpu.waits() - before[1]


@pytest.mark.parametrize("optimizer", ["SGD", "momentum", "Adam", "RMSprop"])
def test_a_training_step_is_one_launch(optimizer):
    data = on_gpu(batches(5, 4, 5))
    compiled = trains_alike(mlp, data, OPTIMIZERS[optimizer])
    assert launched(compiled, *data[0]) in (None, (1, 0))
    assert "from Python" not in compiled.report()


def test_a_step_of_a_cnn_with_batch_norm():
    data = on_gpu(batches(5, 4, 1, 9, 9, classes=3))
    compiled = trains_alike(cnn, data, OPTIMIZERS["Adam"], F.cross_entropy, 1e-4)
    assert launched(compiled, *data[0]) in (None, (1, 0))  # also: are all classes in bounds?
    assert "from Python" not in compiled.report()
    data[0][1][0] = 7
    for _ in range(2):  # the error comes when the host waits
        compiled(*data[0])
        with pytest.raises(IndexError, match="7 is out of bounds"):
            minigrad.cuda.synchronize()
    data[0][1][0] = 0
    compiled(*data[0])


def test_tokens_of_an_embedding_are_checked_in_a_graph():
    """Also after more other checks than there are errors kept for."""
    embed = minigrad.compile(nn.Embedding(4, 2).to("cuda"))
    good, wrong = (minigrad.tensor(v, device="cuda") for v in ([0, 3], [0, 4]))
    for _ in range(2):
        embed(good)
    for found in kernels.support.wrong_index._devices.values():
        found.number += 2 * kernels.support.wrong_index._KEPT
    assert embed.forward.replayed == 1 and "from Python" not in embed.forward.report()
    embed(wrong)
    with pytest.raises(IndexError, match="index 4"):
        minigrad.cuda.synchronize()


def test_activations_and_sums_are_part_of_other_kernels(dialect):
    x, w, b = (minigrad.randn(*s, device="cuda") for s in ((7, 5), (9, 5), (9,)))
    compiled = minigrad.compile(lambda x: (F.linear(x, w, b).relu() * 2 - b, (x.exp() * x).sum(1)))
    for _ in range(3):
        for a, c in zip(compiled(x), (F.linear(x, w, b).relu() * 2 - b, (x.exp() * x).sum(1))):
            close(a, c)
    assert compiled.replayed == 2
    fused = {k.__name__.split("_")[-2] for k in compiled.kernels() if hasattr(k, "py_func")}
    assert dialect.__name__ != "kernels.numba_cuda" or fused == {"epilogue", "prologue"}


def test_random_numbers_and_learning_rates_are_new_in_each_replay():
    def build():
        return nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 3))

    def schedule(optimizer):
        return minigrad.optim.lr_scheduler.StepLR(optimizer, 2, 0.3)

    data = on_gpu(batches(1, 4, 5)) * 7
    compiled = trains_alike(build, data, OPTIMIZERS["Adam"], after=schedule)
    assert launched(compiled, *data[0]) in (None, (1, 0))


def test_a_module_and_its_gradients():
    model = mlp().to("cuda")
    twin = copy.deepcopy(model)
    compiled = minigrad.compile(twin)
    for seed in range(4):
        ((x, _),) = on_gpu(batches(1, 4, 5, seed=seed))
        (model(x) ** 2).sum().backward()
        (compiled(x) ** 2).sum().backward()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            close(p.grad, q.grad)  # which also accumulate
    assert compiled.forward.replayed == 3, compiled.report()


def test_what_needs_a_number_runs_eagerly_and_says_so():
    compiled = minigrad.compile(lambda x: x * 2 if x.sum().item() > 0 else x)
    for value in (1.0, -1.0, 1.0):
        x = minigrad.full((3,), value, device="cuda")
        close(compiled(x), x * 2 if value > 0 else x)
    assert "item() of a tensor" in compiled.report()


def test_what_cannot_be_captured_runs_eagerly_and_says_so(monkeypatch):
    """A kernel that waits once it is launched, as a checked one does."""
    real = Graph._captured

    def waits(self, number):
        node = real(self, number)
        self._call("cuStreamSynchronize", self._stream.ptr)
        return node

    monkeypatch.setattr(Graph, "_captured", waits)
    compiled, x = minigrad.compile(lambda x: x.exp().sum()), minigrad.ones(3, device="cuda")
    for _ in range(3):
        close(compiled(x), x.exp().sum())
    assert compiled.replayed == 0
    assert "cannot be captured" in compiled.report()
    assert "STREAM_CAPTURE_UNSUPPORTED" in compiled.report()


def test_numbers_of_a_graph_change_between_runs(dialect):
    import cupy

    x, y = cupy.arange(5, dtype=np.float32), cupy.zeros(5, np.float32)
    launches: list[Launch] = []

    class Kept(dispatch.Trace):
        def takes(self, family, version, kernel, grid, block, args):
            launches.append(Launch(kernel, grid, block, args))
            return True

    with dispatch.trace(Kept()):
        dialect.pointwise(TABLE["mul"], x, 2.0, out=y)
        dialect.pointwise(TABLE["add"], y, 1.0, out=y)
    graph = Graph(launches)
    factor = graph.writer(0, 1)
    seen = []
    for value in (2.0, 5.0, 5.0):
        factor(value)
        graph.run()
        seen.append(y.copy())
    assert [v.tolist() for v in seen] == [[1, 3, 5, 7, 9], *[[1, 6, 11, 16, 21]] * 2]


def test_a_step_that_is_called_on_the_gpu_and_on_the_cpu():
    compiled = minigrad.compile(lambda x, w: (x @ w).relu() * 2)
    x, w = minigrad.randn(5, 3), minigrad.randn(3, 4)
    expected = (x @ w).relu() * 2
    for place in ("cuda", "cpu", "cuda", "cpu", "cuda"):
        found = compiled(x.to(place), w.to(place))
        assert found.device.type == place
        close(found, expected)
