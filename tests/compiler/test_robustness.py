"""Compiled functions where memory is shared, calls are interrupted, and threads meet."""

from __future__ import annotations

import copy
import sys
import threading

import numpy as np
import pytest

import minigrad
import minigrad.nn.functional as F
from minigrad import backends, nn
from minigrad.compiler import capture, fuse, lift

from .test_compile import close


def changes_first(a, b):
    a.add_(1)
    return b * 2


def changes_second(a, b):
    b.mul_(3)
    return a.sum()


def changes_both(a, b):
    a.add_(1)
    b.mul_(a.mean())
    return a - 1


@pytest.mark.parametrize("function", [changes_first, changes_second, changes_both])
@pytest.mark.parametrize("part", [lambda x: x[1], lambda x: x[:, ::2], lambda x: x, lambda x: x.T])
def test_arguments_that_share_memory(function, part):
    """Also of another layout, and afterwards ones that share none."""
    compiled, results = minigrad.compile(function), {}
    for run in (function, compiled):
        results[run] = []
        for _ in range(3):
            x = minigrad.arange(12.0).reshape(3, 4)
            results[run].append((run(x, part(x)).tolist(), x.tolist()))
        y, z = minigrad.arange(12.0).reshape(3, 4), part(minigrad.ones(3, 4)).clone()
        results[run].append((run(y, z).tolist(), y.tolist(), z.tolist()))
    assert results[compiled] == results[function]
    assert compiled.replayed == 2 and compiled.recorded == 2, compiled.report()


def test_an_argument_that_shares_memory_with_what_a_step_changes():
    weight = minigrad.zeros(2, 3)

    def step(row):
        weight.add_(1)
        return row * 2

    compiled = minigrad.compile(step)
    for count in range(1, 4):
        assert compiled(weight[0]).tolist() == [2 * count] * 3


def test_a_result_that_is_a_view_of_an_argument():
    compiled = minigrad.compile(lambda x: (x[0], x + 1))
    for _ in range(3):
        x = minigrad.ones(2, 3)
        compiled(x)[0].zero_()
        assert x.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_results_that_share_memory():
    def two(x):
        y = x * 2
        return y, y[0]

    def halves(x):
        return (x * 2).chunk(2, 1)

    compiled, other = minigrad.compile(two), minigrad.compile(halves)
    for _ in range(3):
        y, row = compiled(minigrad.ones(2, 2))
        row.zero_()
        assert y.tolist() == [[0, 0], [2, 2]]
        assert [t.tolist() for t in other(minigrad.ones(1, 2))] == [[[2]], [[2]]]
    assert other.replayed == 2  # these have no element in common


def test_an_expanded_argument_cannot_be_written():
    compiled = minigrad.compile(lambda x: x.add_(1).sum())
    for _ in range(2):
        assert compiled(minigrad.ones(3)) == 6
        with pytest.raises(RuntimeError, match="more than one element"):
            compiled(minigrad.ones(1).expand(3))
    read = minigrad.compile(lambda x: x * 2)
    for _ in range(3):
        assert read(minigrad.ones(1).expand(3)).tolist() == [2, 2, 2]
    assert read.replayed == 2


def test_a_compiled_function_inside_of_another():
    inner = minigrad.compile(lambda x: x.exp() * 2)
    outer = minigrad.compile(lambda x: inner(x) + inner(x + 1))
    x = minigrad.randn(3)
    for _ in range(3):
        close(outer(x), x.exp() * 2 + (x + 1).exp() * 2)
        close(inner(x), x.exp() * 2)
    assert outer.replayed == inner.replayed == 2


def test_other_dtypes_and_variables_of_enclosing_functions():
    factor = 1.0

    def scaled(x):
        return x * factor

    compiled = minigrad.compile(scaled)
    for factor in (1.0, 2.0, 1.0):
        for dtype in (minigrad.float32, minigrad.float64, minigrad.float16, minigrad.int64):
            x = minigrad.ones(3, dtype=dtype)
            found = compiled(x)
            assert found.dtype == scaled(x).dtype and found.tolist() == [factor] * 3
    assert (compiled.recorded, compiled.replayed) == (8, 4)


def test_generators_go_on_as_without_compile():
    own = minigrad.Generator()

    def step(x):
        return F.dropout(x, 0.5) + minigrad.rand(9, generator=own)

    compiled, x, found = minigrad.compile(step), minigrad.ones(9), []
    for run in (step, compiled):
        own.manual_seed(3)
        minigrad.manual_seed(4)
        found.append([run(x).tolist() for _ in range(3)])
        state = minigrad.get_rng_state()
        found[-1] += [run(x).tolist(), minigrad.rand(2).tolist()]
        minigrad.set_rng_state(state)
        found[-1].append(run(x).tolist())
    np.testing.assert_allclose(np.hstack(found[0]), np.hstack(found[1]), rtol=1e-6)
    assert compiled.replayed == 4


# -- threads, interrupts ---------------------------------------------------------------------


def in_threads(*functions):
    """Run functions side by side; raises what one of them raises."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_that_call_one_compiled_function():
    w = minigrad.randn(48, 48) * 0.1

    def network(x):
        for _ in range(4):
            x = (x @ w).tanh() + x
        return x

    compiled = minigrad.compile(network)

    def caller(seed):
        x = minigrad.from_numpy(np.random.default_rng(seed).random((48, 48), np.float32))
        wanted = network(x)

        def calls():
            for _ in range(40):
                close(compiled(x), wanted, 1e-4)

        return calls

    in_threads(*map(caller, range(4)))
    assert (compiled.recorded, compiled.replayed) == (1, 159), compiled.report()


def test_a_thread_that_computes_while_another_records():
    w, done = minigrad.randn(16, 16), threading.Event()

    def records():
        try:
            for n in range(10):
                compiled = minigrad.compile(lambda x: (x @ w).relu().sum())
                for _ in range(2):
                    compiled(minigrad.ones(n + 1, 16))
                assert compiled.replayed == 1, compiled.report()
        finally:
            done.set()

    def computes():
        ones = minigrad.ones(16, 16)
        while not done.is_set():
            assert (ones * 2 + 1).sum().item() == 16 * 16 * 3
            assert ones.numpy().sum() == 16 * 16

    in_threads(records, computes)


@pytest.mark.parametrize("moment", ["_backward_part", "_describe_outputs", "_release"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_thread_that_trains_while_another_records(monkeypatch, moment, fresh):
    """It gets right values, and nothing of what it does is taken for part of the step."""
    model, x = nn.Linear(3, 2), minigrad.rand(4, 3)
    twin, steps = copy.deepcopy(model), []
    optimizer = minigrad.optim.Adam(model.parameters(), lr=0.1)
    of_twin = minigrad.optim.Adam(twin.parameters(), lr=0.1)

    def train(model=model, optimizer=optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(x), minigrad.tensor([0, 1, 1, 0])).backward()
        optimizer.step()
        steps.append(model)

    then = getattr(capture, moment)

    def interrupted(*args):
        in_threads(train)
        return then(*args)

    if not fresh:  # gradients are there, and are others afterwards
        train()
    w = minigrad.ones(3, requires_grad=True)
    compiled = minigrad.compile(lambda x: (x * w).relu())
    with monkeypatch.context() as patch:
        patch.setattr(capture, moment, interrupted)
        assert compiled(minigrad.ones(3)).tolist() == [1, 1, 1]
    assert steps
    for _ in range(len(steps)):
        train(twin, of_twin)
    a, b = model.weight.detach().numpy(), twin.weight.detach().numpy()
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    grad, version = model.weight.grad, model.weight._version
    for _ in range(3):
        assert compiled(minigrad.ones(3)).tolist() == [1, 1, 1]
    assert model.weight.grad is grad and grad is not None
    assert model.weight._version == version


def test_looking_for_all_tensors_leaves_tuples_of_other_threads_alone():
    over, found = threading.Event(), []

    def makes_tuples():
        while not over.is_set():
            tuple(n for n in range(40))

    def looks():
        for _ in range(20):
            found.append(len(list(lift.all_tensors())))
        over.set()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads(makes_tuples, makes_tuples, looks)
    finally:
        sys.setswitchinterval(switch)
        over.set()
    assert len(found) == 20


@pytest.mark.parametrize("where", [(capture, "_describe_outputs"), (fuse.Fusion, "run")])
def test_an_interrupt_leaves_tensors_as_they_were(monkeypatch, where):
    model, x = nn.Linear(3, 3), minigrad.ones(2, 3)
    compiled = minigrad.compile(lambda x: model(x).relu())

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
    assert type(model.weight._array) is type(x._array) is np.ndarray
    for _ in range(3):
        close(compiled(x), model(x).relu())
    assert compiled.replayed == 2, compiled.report()


def test_an_error_in_a_step_comes_each_time_and_the_rest_is_done():
    weight = minigrad.zeros(2)

    def step(x, wrong):
        weight.add_(1)
        if wrong:
            raise ValueError("wrong")
        return weight * x

    compiled = minigrad.compile(step)
    for wrong in (True, False, False, True, False):
        if wrong:
            with pytest.raises(ValueError, match="wrong"):
                compiled(minigrad.ones(2), wrong)
        else:
            compiled(minigrad.ones(2), wrong)
    assert weight.tolist() == [5, 5]


# -- arguments that are part of a graph -------------------------------------------------------


def reads_a_number(x):
    return (x * x).sum() * (1 if x.sum().item() < 1e9 else 2)


def differentiates(x):
    (x * x).sum().backward()
    return x.detach()


def in_place(x):
    return x.relu_() * 2


@pytest.mark.parametrize("function", [reads_a_number, differentiates, in_place])
@pytest.mark.parametrize("before", [lambda a: a * 2, lambda a: a[1:], lambda a: a.view(2, 2)])
def test_gradients_go_on_behind_an_argument(function, before):
    found = {}
    compiled = minigrad.compile(function)
    for run in (function, compiled):
        found[run] = []
        for _ in range(3):
            a = minigrad.arange(4.0).requires_grad_()
            x = before(a * 1)
            result = run(x)
            if result.requires_grad:
                (result.sum() + x.sum()).backward()
            found[run].append((a.grad.tolist(), x.is_leaf, result.tolist()))
    assert found[compiled] == found[function]


def test_a_view_of_a_leaf_is_not_changed():
    compiled, leaf = minigrad.compile(in_place), minigrad.ones(3, requires_grad=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="view of a leaf Variable"):
            compiled(leaf[1:])


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x[::2], lambda x: x * 1])
def test_an_argument_that_becomes_part_of_a_graph(layout):
    weight = minigrad.full((4,), 3.0, requires_grad=True)

    def scaled(x, y):
        x.mul_(weight)
        return y.sum()

    compiled = minigrad.compile(scaled)
    for _ in range(3):
        weight.grad, x = None, layout(minigrad.ones(8))[:4]
        compiled(x, minigrad.ones(2))
        x.sum().backward()
        assert weight.grad.tolist() == [1, 1, 1, 1]


def test_a_buffer_that_becomes_part_of_a_graph():
    total, weight = minigrad.zeros(2), minigrad.ones(2, requires_grad=True)

    def add(x):
        total.add_(weight * x)
        return x + 1

    compiled = minigrad.compile(add)
    for count in (1, 2, 3):
        compiled(minigrad.ones(2))
        (grad,) = minigrad.autograd.grad(total.sum(), weight, retain_graph=True)
        assert grad.tolist() == [count, count]


def test_an_expanded_tensor_can_be_filled():
    def fill(x):
        x[:1].expand(4).zero_()
        return x + 1

    compiled = minigrad.compile(fill)
    for _ in range(3):
        assert compiled(minigrad.ones(4)).tolist() == [1, 2, 2, 2]


@pytest.mark.parametrize("dialect", ["numba", "numpy"])
def test_dropout_in_the_backward_pass_of_the_first_call(dialect):
    with minigrad.backends.use(dialect):
        compiled, x = minigrad.compile(lambda x: F.dropout(x, 0.5)), minigrad.ones(50)
        for _ in range(3):
            x = minigrad.ones(50, requires_grad=True)
            y = compiled(x)
            y.sum().backward()
            assert x.grad.tolist() == y.tolist()


def test_two_first_steps_of_an_optimiser_whose_updates_are_single():
    def losses(compiling):
        minigrad.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = minigrad.optim.NAdam(model.parameters(), lr=0.1)

        def step(x):
            for _ in range(2):
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                optimizer.step()
            return loss

        run = minigrad.compile(step) if compiling else step
        return [run(minigrad.ones(4, 3)).item() for _ in range(5)]

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-5)


@pytest.mark.parametrize("times", [1, 2])
def test_the_first_result_of_a_copy_that_is_changed(times):
    """The copy is dropped: its memory is that of what was copied."""
    weight = minigrad.tensor([-1.0, 2.0, -3.0], requires_grad=True)

    def step(x):
        y = weight * x
        for _ in range(times):
            y = y.clone()
            y.add_(1)
        return y

    compiled = minigrad.compile(step)
    for _ in range(3):
        weight.grad, y = None, compiled(minigrad.ones(3))
        y.sum().backward()
        assert y.tolist() == [times - 1, times + 2, times - 3]
        assert weight.grad.tolist() == [1, 1, 1]


def test_a_view_whose_base_became_part_of_a_graph():
    weight = minigrad.tensor([1.0, 2.0], requires_grad=True)

    def step(x):
        y = (x * 2)[:, :2]
        y[0] = weight
        return y

    compiled = minigrad.compile(step)
    for _ in range(3):
        weight.grad, y = None, compiled(minigrad.ones(2, 3))
        assert y.tolist() == [[1, 2], [2, 2]]
        y.sum().backward()
        assert weight.grad.tolist() == [1, 1]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_gradients_that_read_no_gradient(backend):
    """Of tensors without elements: no call of the backward part reads what it is given."""
    functions = [lambda x, y: (x * y).sum(), lambda x, y: (x.sum(), y * 2), lambda x, y: x @ y]
    with backends.use(backend):
        for function in functions:
            compiled = minigrad.compile(function, fullgraph=True)
            for _ in range(3):
                x, y = (minigrad.ones(0, requires_grad=True) for _ in range(2))
                result = compiled(x, y)
                total = sum(part.sum() for part in (result if type(result) is tuple else (result,)))
                total.backward()
                assert total == 0 and x.grad.shape == y.grad.shape == (0,)


@pytest.mark.parametrize(
    "function",
    [
        minigrad.special.airy_ai,  # by SciPy: a tuple of numbers
        lambda x: minigrad.frexp(x)[0],
        lambda x: minigrad.aminmax(x)[1],
        lambda x: minigrad.mode(x * minigrad.ones(3))[0],  # writes to parts[..., 0]
    ],
)
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_results_without_dimensions_are_computed_again(function, backend):
    with backends.use(backend):
        compiled = minigrad.compile(function, fullgraph=True)
        for value in (0.1, 0.2, 0.3):
            x = minigrad.tensor(value)
            close(compiled(x), function(x))


def _multiplied(x):
    rows = minigrad.tensor([0, 2, 0])
    return x.index_reduce(0, rows, x[:3] + 1, "prod")


def _picked(x):
    rows, columns = minigrad.tensor([[0], [2]]), minigrad.tensor([1, 3, 0])
    return x[rows, columns] * x[columns, 2]


@pytest.mark.parametrize(
    ("function", "recorded"),
    [(_picked, True), (lambda x: x.topk(3)[0], True), (_multiplied, False)],
    ids=["indices", "topk", "products"],
)
def test_what_numpy_does_with_places(function, recorded, rng):
    compiled = minigrad.compile(function)
    for _ in range(3):
        x = minigrad.from_numpy(rng.standard_normal((4, 20000)).astype(np.float32))
        x.requires_grad_()
        result, wanted = compiled(x), function(x)
        close(result, wanted)
        (mine,), (other,) = (minigrad.autograd.grad(y.sum(), x) for y in (result, wanted))
        close(mine, other)
    assert ("2 replayed" in compiled.report()) == recorded, compiled.report()
