"""The same table of operations on a GPU: values and gradients equal those of the CPU."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minigrad as mg
from kernels.support.errors import ArgumentError
from minigrad.backends.current import Found
from tests import software_gpu
from tests.engine.samples_layers import SAMPLES

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SAMPLES])
def test_gpu_equals_cpu(sample):
    """On a GPU that is not the current one, and on the CPU again: what was planned for one must not
    be found for the other."""
    results = []
    gpu = "cuda:1" if mg.cuda.device_count() > 1 else "cuda:0"
    for place in ("cpu", gpu, "cpu"):
        inputs = [mg.tensor(a, device=place) for a in sample.arrays(np.float32)]
        for i, x in enumerate(inputs):
            x.requires_grad = sample.grad and x.is_floating_point() and i not in sample.frozen
        out = sample.call(mg, *inputs)
        assert out.device == mg.device(place)
        if out.requires_grad:
            out.backward(mg.ones_like(out))
        grads = [x.grad for x in inputs if x.grad is not None]
        assert all(g.device == out.device for g in grads)
        results.append([t.detach().cpu().numpy() for t in (out, *grads)])
    eps = np.finfo(np.float32).eps
    for expected, *found in zip(*results, strict=True):
        for ours in found:
            np.testing.assert_allclose(ours, expected, rtol=1000 * eps, atol=1000 * eps)


def test_moving_is_explicit_and_differentiable():
    x = mg.ones(3, requires_grad=True)
    y = x.cuda() * 2
    assert y.is_cuda and y.device == mg.device("cuda", 0)
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        y.detach().numpy()
    y.sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2, 2, 2]


def test_in_place_and_indexing():
    x = mg.zeros(4, 3, device="cuda")
    x[1] = 5
    x[mg.tensor([0, 3], device="cuda")] += 1
    x.add_(1).t()[0].mul_(2)
    expected = np.array([[4, 2, 2], [12, 6, 6], [2, 1, 1], [4, 2, 2]], np.float32)
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    mg.manual_seed(0)
    a = mg.rand(5, device="cuda").cpu()
    mg.manual_seed(0)
    assert a.equal(mg.rand(5))


RANDOM = {
    "rand": lambda d: mg.rand(5, 7, device=d),
    "rand in double": lambda d: mg.rand(5, dtype=mg.float64, device=d),
    "randn in half": lambda d: mg.randn(9, dtype=mg.float16, device=d),
    "randint": lambda d: mg.randint(3, 90, (11,), device=d),
    "randint, 64 bits": lambda d: mg.randint(0, 2**40, (11,), device=d),
    "randperm": lambda d: mg.randperm(13, device=d),
    "normal": lambda d: mg.normal(1.0, 2.0, (6,), device=d),
    "bernoulli": lambda d: mg.bernoulli(mg.full((9,), 0.5, device=d)),
    "multinomial": lambda d: mg.multinomial(mg.arange(20.0, device=d).reshape(2, 10), 3),
    "multinomial, replaced": lambda d: mg.multinomial(mg.arange(5.0, device=d), 9, True),
    "uniform_": lambda d: mg.empty(5, device=d).uniform_(-1, 1),
    "normal_": lambda d: mg.empty(5, device=d).normal_(),
    "exponential_": lambda d: mg.empty(5, device=d).exponential_(),
    "bernoulli_": lambda d: mg.empty(7, device=d).bernoulli_(0.3),
    "random_": lambda d: mg.zeros(5, dtype=mg.int64, device=d).random_(0, 77),
    "dropout": lambda d: mg.nn.functional.dropout(mg.ones(9, device=d)),
}


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_on_the_gpu(name, backend):
    """By a kernel there, with the numbers of the CPU; normal ones are rounded otherwise."""
    if not software_gpu.installed():
        pytest.skip("the software GPU counts launches")
    # multinomial looks at the weights, weighs the numbers and sorts them, or searches; Numba's
    # dialect joins three numbers by as many copies
    found, kernels = {}, {"multinomial": 8, "multinomial, replaced": 7}.get(name, 1)
    kernels += 2 * (kernels > 1 and backend == "numba")
    with mg.backends.use(backend):
        for place in ("cpu", "cuda"):
            mg.manual_seed(3)
            launches = software_gpu.launches()
            made = RANDOM[name](place)
            assert made.device.type == place
            assert software_gpu.launches() - launches == kernels * (place == "cuda")
            found[place] = made.cpu().numpy()
    on_gpu, expected = found["cuda"], found["cpu"]
    eps = 0 if expected.dtype.kind in "iu" else 4 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(on_gpu, expected, rtol=eps, atol=eps)


@pytest.mark.parametrize("backend", ["numba", "auto"])
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_tensors_on_different_devices(other, backend):
    if other == "cuda:1" and mg.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    here, there = mg.ones(3, device=other), mg.ones(3, device="cuda")
    index, rows = mg.tensor([0, 1], device=other), there.reshape(1, 3)
    message = "Expected all tensors to be on the same device, but found at least two devices"
    alike = (
        lambda: there @ there,
        lambda: mg.nn.functional.embedding(index.to("cuda"), there.reshape(3, 1)),
    )
    programs = (
        lambda: here + there,
        lambda: there * here,
        lambda: mg.where(there > 0, there, here),
        lambda: here.reshape(1, 3) @ there.reshape(3, 1),
        lambda: there @ here,
        lambda: mg.cat([there, here]),
        lambda: there.gather(0, index),
        lambda: mg.nn.functional.embedding(index, there.reshape(3, 1)),
        lambda: mg.nn.functional.embedding(index[:1], rows),
        lambda: mg.nn.functional.layer_norm(rows, (3,), here),
        lambda: mg.nn.functional.mse_loss(there, here),
        lambda: mg.searchsorted(there, here),
        lambda: here.add_(there),
    )
    with mg.backends.use(backend):
        for program in alike:
            program()
        for program in programs:
            for _ in range(2):  # a plan that was made before does not make it work
                with pytest.raises(RuntimeError, match=message):
                    program()


def test_a_launch_in_cuda_c_takes_arrays_of_one_gpu(second):
    from kernels.cuda_c import optim

    here, there = (mg.ones(4, device=device)._array for device in ("cuda", second))
    launch = optim.sgd_kernel(here.dtype, False, False, False, False).bind_on_gpu(
        1, 32, here, here, here, 0.5, 0.0, 1.0, 0.0
    )
    launch(here, here.copy(), here, 0.5, 0.0, 1.0, 0.0)
    assert here.get().tolist() == [0.5] * 4
    for other in (there, here.get()):
        with pytest.raises(ArgumentError, match="sgd: expected arrays on one GPU"):
            launch(here, other, here, 0.5, 0.0, 1.0, 0.0)


def test_a_number_on_the_cpu_goes_to_the_gpu():
    x = mg.arange(3.0, device="cuda").requires_grad_()
    w = mg.tensor(2.0, requires_grad=True)
    y = (x * w + mg.tensor(1)).sum()
    assert y.device.type == "cuda" and y.item() == 9
    y.backward()
    assert w.grad.device.type == "cpu" and w.grad.item() == 3
    assert x.grad.device.type == "cuda" and x.grad.tolist() == [2, 2, 2]
    assert (mg.tensor(2) ** x.detach()).tolist() == [1, 2, 4]


def test_copies_across_devices():
    x = mg.zeros(2, 3, device="cuda")
    x.copy_(mg.arange(3))
    assert x.tolist() == [[0, 1, 2]] * 2
    w = mg.ones(2, 3, requires_grad=True)
    y = mg.zeros(2, 3, device="cuda")
    y.copy_(w)
    (y * x).sum().backward()
    assert w.grad.tolist() == [[0, 1, 2]] * 2
    here = mg.empty(2, 3)
    here.copy_(x)
    assert here.tolist() == x.tolist()
    edges = mg.tensor([1.0, 2.0, 4.0], device="cuda")
    found = mg.searchsorted(edges, mg.tensor([2.0, 5.0], device="cuda"))
    assert found.device.type == "cuda" and found.tolist() == [1, 3]
    assert mg.searchsorted(edges, 3.0).item() == 2


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_operations_run_in_the_current_stream(backend):
    with mg.backends.use(backend):
        x = mg.arange(1000.0, device="cuda")
        stream, other = mg.cuda.Stream(), mg.cuda.Stream()
        stream.wait_stream(mg.cuda.current_stream())
        with mg.cuda.stream(stream):
            assert mg.cuda.current_stream() == stream
            y = (x * 2).reshape(20, 50) @ mg.ones(50, 1, device="cuda")
            done = stream.record_event()
        assert mg.cuda.current_stream() == mg.cuda.default_stream() != stream
        other.wait_event(done)
        with mg.cuda.stream(other):
            z = y + 1
        other.synchronize()
        assert stream.query() and done.query()
        expected = 2 * np.arange(1000, dtype=np.float32).reshape(20, 50).sum(1, keepdims=True) + 1
        np.testing.assert_array_equal(z.cpu().numpy(), expected)


def test_events_measure_time():
    start, end = (mg.cuda.Event(enable_timing=True) for _ in range(2))
    x = mg.ones(100, 100, device="cuda")
    start.record()
    y = x @ x
    end.record()
    end.synchronize()
    assert end.query() and 0 <= start.elapsed_time(end) < 60_000
    assert y[0, 0].item() == 100
    mg.cuda.synchronize()
    mg.cuda.synchronize("cuda:0")


def test_a_trace_asks_events_for_the_time(monkeypatch):
    import kernels

    x = mg.ones(100, 100, device="cuda")
    with kernels.trace() as trace:
        for _ in range(3):
            y = x @ x
    ((count, seconds),) = [row for (family, _), row in trace.rows.items() if family == "matmul"]
    assert count == 3 and seconds > 0
    with kernels.lab.timeline() as timeline:
        y = y @ x
    assert [event.family for event in timeline.events] == ["matmul"]
    assert timeline.seconds >= timeline.busy > 0


@pytest.fixture
def second():
    """A GPU that is not the current one."""
    if mg.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert mg.cuda.current_device() == 0
    yield mg.device("cuda:1")
    assert mg.cuda.current_device() == 0


def test_operations_run_on_the_gpu_of_their_tensors(second):
    x, y = mg.ones(3, device="cuda"), mg.ones(3, device=second)
    assert (x + 1).device.index == 0 and (y + 1).device == second
    assert y.new_zeros(2).device == mg.zeros_like(y).device == mg.arange(3, device=second).device
    assert mg.zeros_like(y, device="cuda").device == y.new_ones(2, device="cuda").device == x.device
    with pytest.raises(RuntimeError, match="same device.*cuda:1 and cuda:0"):
        y + x
    with pytest.raises(RuntimeError, match="invalid device ordinal: cuda:7, where 2 are found"):
        mg.zeros(3, device="cuda:7")
    with mg.cuda.device(1):
        assert mg.zeros(2, device="cuda").device == second and (x * 2).device.index == 0
    with second:
        assert mg.ones(2).device == mg.tensor([1]).device == mg.rand(2).device == second
    y[1:] = 5
    y[mg.tensor([0], device=second)] += 2
    assert y.tolist() == [3, 5, 5] and repr(y) == "tensor([3., 5., 5.], device='cuda:1')"
    assert y.sort(descending=True).values[y > 4].device == second


def test_copies_between_gpus(second):
    x = mg.arange(6.0, device="cuda").reshape(2, 3).requires_grad_()
    y = (x * 2).t().to(second)
    assert y.device == second and y.tolist() == [[0, 6], [2, 8], [4, 10]]
    assert y.cuda() is not y and y.cuda().device == x.device and y.cuda(1) is y
    (y * mg.ones(3, 2, device=second)).sum().backward()
    assert x.grad.device == x.device and x.grad.tolist() == [[2] * 3] * 2
    y.detach().copy_(x.detach().t())
    assert y.tolist() == x.t().tolist()
    one, other = mg.cuda.Stream(), x.detach()
    with mg.cuda.stream(one):  # the copy waits for what computes the tensor
        moved = (other + 1).to(second)
    assert moved.tolist() == (other + 1).tolist()


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_on_a_gpu_that_is_not_the_current_one(name, second):
    found = []
    for place in ("cuda:0", second):
        mg.manual_seed(3)
        found.append(RANDOM[name](place))
    assert found[1].device == second and found[1].tolist() == found[0].tolist()


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
def test_training_on_a_gpu_that_is_not_the_current_one(optimizer, backend, second):
    """Eagerly and compiled, with the losses of the current one."""
    losses, target = [], mg.arange(4) % 3
    with mg.backends.use(backend):
        for place in ("cuda:0", second):
            mg.manual_seed(0)
            layers = (mg.nn.Linear(5, 8), mg.nn.BatchNorm1d(8), mg.nn.ReLU(), mg.nn.Dropout(0.5))
            model = mg.nn.Sequential(*layers, mg.nn.Linear(8, 3)).to(place)
            made = getattr(mg.optim, optimizer)(model.parameters(), lr=0.1)

            def step(x, t, model=model, made=made):
                made.zero_grad()
                loss = mg.nn.functional.cross_entropy(model(x), t)
                loss.backward()
                made.step()
                return loss

            compiled = mg.compile(step)
            x, t = mg.rand(4, 5).to(place), target.to(place)
            steps = [call(x, t) for call in (step, step, *[compiled] * 5, step)]
            assert all(loss.device == mg.device(place) for loss in steps)
            assert compiled.replayed, compiled.report()
            losses.append([loss.item() for loss in steps])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["add", "relu", "sum", "softmax", "dropout", "cat", "gather"])
def test_the_backend_numpy_says_that_it_is_for_the_cpu(name):
    x, index = mg.ones(4, 4, device="cuda"), mg.zeros(4, 4, dtype=mg.int64, device="cuda")
    calls = {
        "add": lambda: x + x,
        "sum": lambda: x.sum(),
        "softmax": lambda: x.softmax(0),
        "dropout": lambda: mg.nn.functional.dropout(x),
        "cat": lambda: mg.cat([x, x]),
        "gather": lambda: x.gather(0, index),
    }
    where = "'numpy' computes on the CPU, .* is on a GPU; move it"
    with mg.backends.use("numpy"), pytest.raises(TypeError, match=where):
        calls.get(name, lambda: x.relu())()


def test_tensors_made_of_what_is_on_the_gpu():
    import cupy

    x = mg.arange(6.0, device="cuda").reshape(2, 3)
    copied = mg.tensor(x)
    assert copied.is_cuda and copied.tolist() == x.tolist()
    assert not mg.tensor(x, device="cpu").is_cuda
    assert mg.ones(2, dtype=mg.int64).type_as(x).is_cuda
    array = cupy.arange(5, dtype=np.float32)
    shared, own = mg.as_tensor(array), mg.tensor(array)
    array[0] = 7
    assert shared.is_cuda and shared.tolist() == [7, 1, 2, 3, 4]
    assert own.is_cuda and own.tolist() == [0, 1, 2, 3, 4]
    assert mg.as_tensor(array, device="cpu").tolist() == shared.tolist()
    exchanged = mg.from_dlpack(array)
    assert exchanged.is_cuda and exchanged.tolist() == shared.tolist()
    back = cupy.from_dlpack(exchanged * 2)
    assert back.tolist() == [14, 2, 4, 6, 8]


def test_tensors_on_the_gpu_are_pickled():
    x = mg.arange(6.0, device="cuda").reshape(2, 3)[:, 1:]
    weight = mg.nn.Parameter(mg.ones(3, device="cuda"))
    for tensor in (x, weight):
        for back in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
            assert type(back) is type(tensor) and back.is_cuda
            assert back.tolist() == tensor.tolist() and (back + 1).is_cuda


def test_the_most_memory_that_was_in_use():
    mg.cuda.reset_peak_memory_stats()
    before = mg.cuda.memory_allocated()
    x = mg.zeros(250_000, device="cuda")
    assert mg.cuda.memory_allocated() - before >= 1_000_000
    del x
    assert mg.cuda.memory_allocated() == before
    assert mg.cuda.max_memory_allocated() - before >= 1_000_000
    mg.cuda.reset_peak_memory_stats()
    assert mg.cuda.max_memory_allocated() == before


@pytest.mark.parametrize("place, several", [("cuda:0", True), ("cuda:1", True), ("cuda:0", False)])
def test_memory_that_a_gpu_does_not_have(place, several, monkeypatch):
    if not software_gpu.installed():
        pytest.skip("fills the GPU")
    mg.cuda.init()
    monkeypatch.setattr(Found, "several", several)
    number = mg.device(place).index
    x, all_of_it = mg.ones(1000, device=place), mg.cuda.mem_get_info(place)[1]
    used = all_of_it - mg.cuda.mem_get_info(place)[0]  # by other tests, too
    software_gpu.set_memory(number, used + (1 << 20))
    w = x.requires_grad_().reshape(1000, 1)
    programs = {
        "zeros": lambda: mg.zeros(10**6, device=place),
        "cuda": lambda: mg.ones(10**6).to(place),
        "mul": lambda: w * x,
        "argsort": lambda: x.detach().expand(1000, 1000).argsort(),
        "randn": lambda: mg.randn(1000, 1000, device=place),
        "backward": lambda: w.expand(1000, 1000).amax().backward(),
        "clone": lambda: mg.clone(x.detach().expand(1000, 1000)),
    }
    try:
        for name, program in programs.items():
            message = "CUDA out of memory. Out of memory allocating"
            with pytest.raises(mg.cuda.OutOfMemoryError, match=message) as caught:
                program()
            assert isinstance(caught.value, RuntimeError), name
            del caught
        assert mg.OutOfMemoryError is mg.cuda.OutOfMemoryError
        assert (x.detach() + 1).sum().item() == 2000
    finally:
        software_gpu.set_memory(number, all_of_it)
