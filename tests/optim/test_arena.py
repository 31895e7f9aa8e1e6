"""The flat arena: one launch per group, nothing copied, and nobody notices."""

from __future__ import annotations

import copy
import importlib
import pickle

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from minigrad import nn, optim
from minigrad.optim.arena import is_sole_owner
from tests.optim.helpers import assert_equal, parameters, set_gradients, values

pytestmark = pytest.mark.usefixtures("reference_backend")
LARGE = 1 << 17  # elements of a parameter that has an arena of its own


@pytest.fixture
def launches(monkeypatch):
    """Counts the launches of the optimiser kernels."""
    count = []

    def counting(name):
        kernel = getattr(dispatch.active, name)

        def launch(p, *args, **kwargs):
            count.append(p.size)
            return kernel(p, *args, **kwargs)

        monkeypatch.setattr(dispatch.active, name, launch)

    for name in ("sgd_", "adam_"):
        counting(name)
    return count


def reference(seed, steps, skip=None, **options):
    """Each parameter with an optimiser of its own: what the arena must reproduce."""
    params = parameters(minigrad, seed)
    optimisers = [optim.Adam([p], lr=0.05, **options) for p in params]
    for step in range(steps):
        set_gradients(minigrad, params, seed + step, (skip or {}).get(step, ()))
        for o in optimisers:
            o.step()
    return params


def run(params, o, seed, steps, skip=None, start=0):
    for step in range(start, start + steps):
        set_gradients(minigrad, params, seed + step, (skip or {}).get(step, ()))
        o.step()


def test_one_launch_per_group(launches, seed):
    params = parameters(minigrad, seed)
    o = optim.Adam([{"params": params[:4]}, {"params": params[4:], "lr": 0.1}], lr=0.05)
    run(params, o, seed, 3)
    assert len(launches) == 2 * 3
    assert launches[0] >= sum(p.numel() for p in params[:4])


def test_parameters_become_views_and_stay(seed):
    params = parameters(minigrad, seed)
    o = optim.SGD(params, lr=0.1, momentum=0.9)
    run(params, o, seed, 1)
    homes = [p.data_ptr() for p in params]
    bases = {id(p._array.base) for p in params}
    assert len(bases) == 1
    # Slots start at cache lines, so vector loads in other kernels stay aligned.
    assert all(pointer % 64 == 0 for pointer in homes)
    run(params, o, seed, 3, start=1)
    assert [p.data_ptr() for p in params] == homes
    assert all(p.is_contiguous() and p.is_leaf and p.requires_grad for p in params)


def test_missing_gradients_split_the_run(launches, seed):
    params = parameters(minigrad, seed)
    o = optim.Adam(params, lr=0.05)
    skip = {1: (2,), 2: (0, 5), 3: tuple(range(len(params)))}
    run(params, o, seed, 6, skip)
    # All; two runs around the gap; the middle with one parameter a step behind; nothing; and
    # then runs end where the step count changes: 0 | 1 | 2 | 3 4 | 5, twice.
    assert len(launches) == 1 + 2 + 3 + 0 + 5 + 5
    assert_equal(params, reference(seed, 6, skip), 1e-6)
    assert o.state[params[2]]["step"].item() == 4
    assert o.state[params[1]]["step"].item() == 5


def test_later_gradients_join(seed):
    params = parameters(minigrad, seed)
    skip = {0: (1, 3), 1: (1,)}
    o = optim.Adam(params, lr=0.05)
    run(params, o, seed, 6, skip)
    assert_equal(params, reference(seed, 6, skip), 1e-6)


def test_an_alias_made_before_keeps_seeing_the_parameter(launches, seed):
    params = parameters(minigrad, seed)
    alias = params[0].detach()
    view = params[1].data.numpy()
    row = params[3].data[1]
    o = optim.Adam(params, lr=0.05)
    run(params, o, seed, 3)
    assert len(launches) == 3 * 5  # parameters 4 and 5 are one run
    assert (alias.numpy() == params[0].detach().numpy()).all()
    assert (view == params[1].detach().numpy()).all()
    assert (row.numpy() == params[3].detach().numpy()[1]).all()
    assert_equal(params, reference(seed, 3), 1e-6)
    # Once nobody else holds the memory, the parameter moves in and the group is one launch.
    del alias, view, row
    launches.clear()
    run(params, o, seed, 1, start=3)
    assert len(launches) == 1
    assert_equal(params, reference(seed, 4), 1e-6)


SIZES = pytest.mark.parametrize("size", [4, LARGE])


@SIZES
def test_what_shares_the_former_memory_keeps_its_values(size):
    """After `p.data = other`, nothing is written where the parameter was before."""
    a, b = nn.Parameter(minigrad.ones(size)), nn.Parameter(minigrad.ones(3))
    o = optim.Adam([a, b], lr=0.5)
    for share in (
        lambda: a.data,
        lambda: a.detach()[:2],
        lambda: a.detach().numpy(),
        lambda: a.detach().numpy()[:2],
    ):
        a.grad, b.grad = minigrad.ones(size), minigrad.ones(3)
        o.step()
        former = share()
        before = np.array(former)
        a.data = minigrad.full((size,), 7.0)
        for _ in range(2):
            o.step()
        assert (np.array(former) == before).all()
        assert (np.abs(values([a])[0] - 6.0) < 0.2).all()
    assert o.state[a]["step"].item() == 12
    # what nothing shares takes new values: no other memory is needed
    home = a.data_ptr()
    a.data = minigrad.full((size,), 3.0)
    o.step()
    assert size == LARGE or a.data_ptr() == home


def test_large_parameters_stay_where_they_are(launches, seed):
    """Their gradients are read in place, by a launch for each; the others still share one."""
    shapes = (LARGE,), (3,), (2, LARGE), (5,)
    rng = np.random.default_rng(seed)
    start = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    params, alone = ([nn.Parameter(minigrad.tensor(x)) for x in start] for _ in range(2))
    places = [p.data_ptr() for p in params]
    o, each = optim.Adam(params, lr=0.05), [optim.Adam([p], lr=0.05) for p in alone]
    for _ in range(3):
        for p, twin in zip(params, alone, strict=True):
            grad = rng.standard_normal(p.shape, dtype=np.float32)
            p.grad, twin.grad = minigrad.tensor(grad), minigrad.tensor(grad)
        launches.clear()
        o.step()
        assert sorted(launches)[1:] == [LARGE, 2 * LARGE] and len(launches) == 3
        for other in each:
            other.step()
    assert [p.data_ptr() == a for p, a in zip(params, places, strict=True)] == [True, False] * 2
    assert_equal(params, alone, 0)


def test_large_parameters_that_are_views():
    """Of a larger tensor, and of a transposed one."""
    whole = minigrad.ones(2 * LARGE)
    part, across = nn.Parameter(whole[:LARGE]), nn.Parameter(minigrad.ones(LARGE // 4, 8).t())
    assert not across.is_contiguous()
    o = optim.SGD([part, across], lr=0.5)
    for _ in range(2):
        part.grad, across.grad = minigrad.ones(LARGE), minigrad.ones(8, LARGE // 4)
        o.step()
        part.data = minigrad.full((LARGE,), 7.0)
    assert (whole[:LARGE] == 0.5).all() and (whole[LARGE:] == 1.0).all()
    assert (across == 0.0).all()


def test_two_parameters_over_one_tensor(seed):
    data = minigrad.ones(4)
    a, b = nn.Parameter(data), nn.Parameter(data)
    o = optim.SGD([a, b], lr=1.0)
    a.grad, b.grad = minigrad.ones(4), minigrad.ones(4)
    o.step()
    assert a.tolist() == b.tolist() == data.tolist() == [-1.0] * 4


def test_rebinding_data_and_grad(seed):
    params = parameters(minigrad, seed)
    o = optim.SGD(params, lr=0.1)
    run(params, o, seed, 2)
    mine = minigrad.zeros(3, 4)
    params[0].data = mine
    params[0].grad = minigrad.ones(3, 4).t().contiguous().t()  # not contiguous
    o.step()
    np.testing.assert_allclose(params[0].detach().numpy(), -0.1, rtol=1e-6)
    assert mine.data_ptr() == params[0].data_ptr()  # held by the user: updated where it is
    del mine
    home = params[0].data_ptr()
    o.step()
    assert params[0].data_ptr() != home  # nobody else: moved back into the arena
    np.testing.assert_allclose(params[0].detach().numpy(), -0.2, rtol=1e-6)
    params[0].data = minigrad.ones(4, 3).t()  # not contiguous and nobody else's
    o.step()
    np.testing.assert_allclose(params[0].detach().numpy(), 0.9, rtol=1e-6)
    held = minigrad.ones(4, 3)
    params[0].data = held.t()
    o.step()
    np.testing.assert_allclose(held.numpy(), 0.9, rtol=1e-6)


def test_change_of_dtype_and_shape_after_the_first_step(seed):
    params = parameters(minigrad, seed)
    o = optim.Adam(params, lr=0.05)
    run(params, o, seed, 3)
    before = values(params)
    for p in params:
        p.grad = None
        p.data = p.data.double()
    run(params, o, seed, 2, start=3)
    assert all(p.dtype == minigrad.float64 for p in params)
    assert o.state[params[0]]["exp_avg"].dtype == minigrad.float64
    assert o.state[params[0]]["step"].item() == 5
    assert_equal(params, reference(seed, 5), 1e-5)
    assert any((a != b).any() for a, b in zip(before, values(params), strict=True))


def test_two_optimisers_share_a_parameter(seed):
    p = nn.Parameter(minigrad.zeros(3))
    other = nn.Parameter(minigrad.zeros(2))
    a, b = optim.SGD([p, other], lr=1.0), optim.SGD([p], lr=2.0)
    for o in (a, b, a, b):
        p.grad, other.grad = minigrad.ones(3), minigrad.ones(2)
        o.step()
    assert p.tolist() == [-6.0] * 3 and other.tolist() == [-2.0] * 2


def test_module_load_state_dict_and_copy_write_into_the_arena(seed):
    net = nn.Linear(3, 2)
    saved = {k: v.clone() for k, v in net.state_dict().items()}
    o = optim.SGD(net.parameters(), lr=0.1)
    net(minigrad.ones(1, 3)).sum().backward()
    o.step()
    home = net.weight.data_ptr()
    net.load_state_dict(saved)
    assert net.weight.data_ptr() == home
    copied = copy.deepcopy(net)
    o.step()
    assert (copied.weight.detach().numpy() == saved["weight"].numpy()).all()
    assert not (net.weight.detach().numpy() == saved["weight"].numpy()).any()


def test_saved_values_are_protected():
    net = nn.Linear(2, 2)
    o = optim.SGD(net.parameters(), lr=0.1)
    x = minigrad.ones(1, 2, requires_grad=True)
    loss = (net(x) ** 2).sum()
    loss.backward(retain_graph=True)
    o.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_optimiser_state_round_trip(seed):
    for name in ("SGD", "Adam", "RMSprop"):
        options = {"lr": 0.05} | ({"momentum": 0.9} if name == "SGD" else {})
        params, others = parameters(minigrad, seed), parameters(minigrad, seed)
        a = getattr(optim, name)(params, **options)
        run(params, a, seed, 3)
        for p, q in zip(params, others, strict=True):
            q.data.copy_(p.data)
        b = getattr(optim, name)(others, lr=1.0)
        b.load_state_dict(a.state_dict())
        run(params, a, seed, 3, start=3)
        run(others, b, seed, 3, start=3)
        assert_equal(params, others, 0.0, name)
        # The loaded state is a copy: training b did not change what a saved.
        assert b.state[others[0]] is not a.state[params[0]]


def test_loading_in_the_middle_and_editing_state(seed):
    params = parameters(minigrad, seed)
    o = optim.Adam(params, lr=0.05)
    run(params, o, seed, 2)
    saved = copy.deepcopy(o.state_dict())
    start = values(params)
    run(params, o, seed, 3, start=2)
    first = values(params)
    for p, v in zip(params, start, strict=True):
        p.data.copy_(minigrad.tensor(v))
    o.load_state_dict(saved)
    run(params, o, seed, 3, start=2)
    for a, b in zip(first, values(params), strict=True):
        assert (a == b).all()
    o.state[params[0]]["exp_avg"] = minigrad.zeros(3, 4)
    o.state[params[0]]["exp_avg_sq"].fill_(0)
    params[0].grad = minigrad.zeros(3, 4)
    before = params[0].detach().numpy().copy()
    o.step()
    assert (params[0].detach().numpy() == before).all()


def test_copies_of_an_optimiser(seed):
    params = parameters(minigrad, seed)
    o = optim.Adam(params, lr=0.05)
    run(params, o, seed, 2)
    for params_2, o_2 in (copy.deepcopy((params, o)), pickle.loads(pickle.dumps((params, o)))):
        run(params_2, o_2, seed, 2, start=2)
        want = parameters(minigrad, seed)
        run(want, optim.Adam(want, lr=0.05), seed, 4)
        assert_equal(params_2, want, 1e-7)


def test_empty_parameters_and_mixed_dtypes():
    a, b = nn.Parameter(minigrad.zeros(0, 3)), nn.Parameter(minigrad.ones(2).double())
    c = nn.Parameter(minigrad.ones(2))
    o = optim.SGD([a, b, c], lr=0.5)
    for p in (a, b, c):
        p.grad = minigrad.ones_like(p)
    o.step()
    assert b.tolist() == c.tolist() == [0.5, 0.5] and b.dtype == minigrad.float64


def test_sole_owner():
    t = minigrad.zeros(4)
    assert is_sole_owner(t)
    alias = t.detach()
    assert not is_sole_owner(t)
    del alias
    assert is_sole_owner(t)
    part = t[1:]
    assert not is_sole_owner(t) and not is_sole_owner(part)
    assert not is_sole_owner(minigrad.from_numpy(np.frombuffer(bytearray(16), np.float32)))
    array = np.zeros(3, np.float32)
    t = minigrad.from_numpy(array)
    assert not is_sole_owner(t)


def test_zero_grad_keeps_the_tensor():
    """set_to_none=False writes zeros into the gradient, which loses its history."""
    p = minigrad.ones(3, requires_grad=True)
    for create_graph in (False, True):
        (p * p).sum().backward(create_graph=create_graph)
        grad = p.grad
        optim.SGD([p]).zero_grad(set_to_none=False)
        assert p.grad is grad and not grad.requires_grad and grad.tolist() == [0.0] * 3
        p.grad = None


def test_zero_grad_and_accumulation():
    net = nn.Linear(2, 1, bias=False)
    o = optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(minigrad.ones(1, 2)).sum().backward()
    assert net.weight.grad.tolist() == [[2.0, 2.0]]
    o.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0.0, 0.0]]
    o.zero_grad()
    assert net.weight.grad is None


def test_hooks():
    p = nn.Parameter(minigrad.zeros(1))
    o = optim.SGD([p], lr=0.1)
    events = []
    seen = []
    handle = o.register_step_pre_hook(lambda *given: events.append("pre") or seen.append(given))
    o.register_step_post_hook(lambda *given: events.append("post") or seen.append(given))
    o.register_state_dict_post_hook(lambda opt, state: {**state, "extra": 1})
    o.register_load_state_dict_pre_hook(lambda opt, state: events.append("load") or None)
    p.grad = minigrad.ones(1)
    o.step()
    handle.remove()
    o.step()
    assert events == ["pre", "post", "post"]
    assert seen == [(o, (o,), {})] * 3  # of the step the optimiser is an argument
    assert o.state_dict()["extra"] == 1
    o.load_state_dict(o.state_dict())
    assert events[-1] == "load"


def test_hooks_of_all_optimisers_as_torch(torch):
    """Before those of one optimiser and after them, until they are removed."""

    def run(t):
        of_all, events = importlib.import_module(f"{t.__name__}.optim.optimizer"), []

        def tell(text):
            return lambda optimizer, args, kwargs: events.append(text)

        handles = [
            of_all.register_optimizer_step_pre_hook(tell("all before")),
            of_all.register_optimizer_step_post_hook(tell("all after")),
        ]
        for kind in (t.optim.SGD, t.optim.Adam, t.optim.NAdam):
            optimizer = kind([t.nn.Parameter(t.ones(2))])
            optimizer.register_step_pre_hook(tell("before"))
            optimizer.register_step_post_hook(tell("after"))
            optimizer.step()
        for handle in handles:
            handle.remove()
        optimizer.step()
        return events

    found = run(minigrad)
    assert found == run(torch) and len(found) == 14


def test_an_optimiser_written_by_a_user(seed):
    class Sign(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @minigrad.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad.sign(), alpha=-group["lr"])

    p = nn.Parameter(minigrad.zeros(2))
    o = Sign([p])
    events = []
    o.register_step_post_hook(lambda *_: events.append(1))
    p.grad = minigrad.tensor([3.0, -4.0])
    o.step()
    assert p.tolist() == pytest.approx([-0.1, 0.1]) and events == [1]
    optim.lr_scheduler.StepLR(o, 1).step()
    assert o.param_groups[0]["lr"] == pytest.approx(0.01)


def test_each_parameter_keeps_memory_of_its_own(seed):
    params = parameters(minigrad, seed)
    o = optim.Adam(params, lr=0.05)
    for step in range(2):
        set_gradients(minigrad, params, seed + step, ())
        o.step()
    assert params[0]._array.base is params[1]._array.base, "they are in one buffer"
    for t in (*params, *(t for state in o.state.values() for t in state.values())):
        storage = t.untyped_storage()
        assert storage.data_ptr() == t.data_ptr() and storage.nbytes() == t.numel() * t.itemsize
        assert t.storage_offset() == 0
        if t.ndim:
            assert t.detach()[-1:].untyped_storage() == storage
            assert t.detach()[-1:].storage_offset() == t.numel() - t[-1:].numel()
        flat = t.detach().as_strided((t.numel(),), (1,), 0)
        np.testing.assert_array_equal(flat.numpy(), t.detach().numpy().reshape(-1))
    assert len({p.untyped_storage().data_ptr() for p in params}) == len(params)


def test_an_optimiser_around_another_one(torch):
    """One that doesn't call `__init__`, as accelerate's: the hooks are those of the inner one."""
    for m in (minigrad, torch):

        class Around(m.optim.Optimizer):
            def __init__(self, inner):
                self.inner = inner

            def step(self, closure=None):
                self.inner.step(closure)

        p, seen = m.nn.Parameter(m.ones(2)), []
        p.grad = m.ones(2)
        inner = m.optim.SGD([p], lr=0.5)
        inner.register_step_pre_hook(lambda *_: seen.append("inner"))  # noqa: B023
        Around(inner).step()
        assert p.tolist() == [0.5, 0.5] and seen == ["inner"]
