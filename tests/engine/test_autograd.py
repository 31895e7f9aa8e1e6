"""The backward pass: accumulation, freeing, hooks, modes, and the defects that engines have."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import autograd, backends
from minigrad.autograd.node import Op


# The backward pass does not know in which dialect a kernel is written.
@pytest.fixture(autouse=True, params=["numpy", "numba"])
def backend(request):
    with backends.use(request.param):
        yield


def leaf(*values):
    return mg.tensor(values or 2.0, dtype=mg.float64, requires_grad=True)


# --- the defects that teaching engines have ---


def test_deep_graph_needs_no_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + 1
    y.sum().backward()
    assert x.grad.item() == 1
    del y


def test_shared_subgraph_is_walked_once():
    """20 chained y + y: 2**20 paths, 20 nodes."""
    x = leaf(1.0)
    y, calls = x, []
    for _ in range(20):
        y = y + y
        y.register_hook(lambda g: calls.append(1))
    y.sum().backward()
    assert x.grad.item() == 2**20
    assert len(calls) == 20


def test_second_backward_adds_no_stale_gradients():
    x = leaf(3.0)
    y = x * x
    z = (y * y).sum()
    z.backward(retain_graph=True)
    assert x.grad.item() == 4 * 27
    z.backward()
    assert x.grad.item() == 2 * 4 * 27


def test_requires_grad_false_turns_off():
    x = leaf(1.0)
    assert x.requires_grad_(False) is x
    assert not x.requires_grad and not (x * 2).requires_grad


def test_typos_raise():
    with pytest.raises(AttributeError, match="no attribute 'sizee'"):
        _ = leaf(1.0).sizee
    with pytest.raises(AttributeError, match="minigrad doesn't have"):
        _ = mg.no_such_name


@pytest.mark.parametrize("scale", [1.01, 0.99])
def test_gradcheck_rejects_a_wrong_gradient(scale):
    class Square(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g * scale

    x = leaf(1.0, -2.0)
    with pytest.raises(autograd.GradcheckError, match="Jacobian mismatch"):
        autograd.gradcheck(Square.apply, x)
    assert not autograd.gradcheck(Square.apply, x, raise_exception=False)


def test_options_of_gradcheck():
    """Each finds the fault that it is for, and no other passes for it."""

    class Wrong(autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x, fault):
            ctx.fault = fault
            return x * 3

        @staticmethod
        def backward(ctx, g):
            Wrong.calls += 1
            return g * (3 + (Wrong.calls % 2) * 1e-7 * (ctx.fault == "random")), None

    x = leaf(1.0, -2.0)

    def check(fault, **options):
        return autograd.gradcheck(
            lambda v: Wrong.apply(v, fault), x, raise_exception=False, **options
        )

    every = {"check_batched_grad": True, "check_grad_dtypes": True, "nondet_tol": 1e-9}
    assert check("", **every)
    assert not check("random") and check("random", nondet_tol=1e-5)
    for fast in (False, True):
        assert autograd.gradcheck(mg.sin, x, fast_mode=fast, check_forward_ad=True)
        assert autograd.gradgradcheck(mg.sin, x, fast_mode=fast, check_fwd_over_rev=True)
    with pytest.raises(AssertionError, match="at least one of"):
        autograd.gradcheck(mg.sin, x, check_backward_ad=False)
    for options in (
        {"check_batched_forward_grad": True},
        {"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True},
    ):
        with pytest.raises(ValueError, match="requires check_"):
            autograd.gradcheck(mg.sin, x, **options)
    assert autograd.gradcheck(mg.sin, x, check_backward_ad=False, check_forward_ad=True)


@pytest.mark.parametrize("options", [{"fast_mode": True}, {"check_grad_dtypes": True}])
def test_options_reject_a_wrong_gradient(options):
    class Scaled(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2.02

    with pytest.raises(autograd.GradcheckError, match="Jacobian mismatch"):
        autograd.gradcheck(Scaled.apply, leaf(1.0, -2.0), **options)


def test_grad_of_a_batch_of_gradients():
    x, w = leaf(1.0, -2.0, 3.0), leaf(2.0, 0.0, 1.0)
    y, z = x * x * w, x.sum()
    seeds = mg.eye(3, dtype=mg.float64), mg.tensor([1.0, 0.0, 2.0], dtype=mg.float64)
    options = {"retain_graph": True, "allow_unused": True}
    found = mg.autograd.grad((y, z), (x, w, leaf(1.0)), seeds, is_grads_batched=True, **options)
    rows = [mg.autograd.grad((y, z), (x, w), (a, b), retain_graph=True) for a, b in zip(*seeds)]
    for k in range(2):
        np.testing.assert_array_equal(found[k], [row[k] for row in rows])
    assert found[2] is None
    mg.autograd.grad(y, x, seeds[0], is_grads_batched=True)  # without retain_graph: the last time
    with pytest.raises(RuntimeError, match="second time"):
        mg.autograd.grad(y, x, seeds[0], is_grads_batched=True)


def test_gradgradcheck_rejects_a_wrong_second_derivative():
    class Cube(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach()  # loses the dependence on x
            return 3 * x * x * g

    x = leaf(1.0, -2.0)
    assert autograd.gradcheck(Cube.apply, x)
    with pytest.raises(autograd.GradcheckError):
        autograd.gradgradcheck(Cube.apply, x)


# --- accumulation and memory ---


def test_gradients_accumulate_in_place_without_graph():
    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first and first.tolist() == [5, 5]


@pytest.mark.parametrize("kind", ["own", "view", "transposed", "float64 sum"])
def test_gradients_are_added_to_any_grad(kind):
    """Also once the launch is remembered; the version of `.grad` counts the changes."""
    x, memory = mg.zeros(3, 4, requires_grad=True), np.zeros((3, 8), np.float32)
    grads = {"view": mg.from_numpy(memory)[:, ::2], "transposed": mg.zeros(4, 3).t()}
    x.grad = first = grads.get(kind, mg.zeros(3, 4))
    version = first._version
    for i in range(1, 7):
        y = x * 2
        (y.double() if kind == "float64 sum" else y).sum().backward()
        assert x.grad is first and (first == 2 * i).all()
        assert first._version == version + i
    assert (memory[:, 1::2] == 0).all()


def test_a_grad_that_is_read_only_is_refused():
    x = mg.zeros(3, requires_grad=True)
    x.grad = mg.zeros(3)
    for _ in range(4):
        (x * 2).sum().backward()
    x.grad._array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [8] * 3


def test_a_grad_as_the_gradient_is_added_to_itself():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    x.grad = mg.ones(2, dtype=mg.float64)
    for i in range(5):
        (x + y).backward(x.grad)
        assert x.grad.tolist() == [2 ** (i + 1)] * 2


def test_an_operation_with_too_few_gradients_is_named():
    class Half(Op):
        @staticmethod
        def forward(a, b):
            return a + b

        @staticmethod
        def vjp(ctx, g):
            return (g,)

    y = Half.apply(leaf(1.0), leaf(2.0))
    with pytest.raises(ValueError, match="HalfBackward0.*1 gradients of 2 inputs"):
        y.sum().backward()


def test_gradient_argument_is_not_shared():
    a, b, seed = leaf(1.0, 2.0), leaf(3.0, 4.0), mg.ones(2, dtype=mg.float64)
    (a + b).backward(seed)
    a.grad.zero_()
    assert b.grad.tolist() == [1, 1] and seed.tolist() == [1, 1]


def test_broadcast_and_dtype_are_undone():
    a = mg.ones(3, 1, requires_grad=True)
    b = mg.ones(4, dtype=mg.float64, requires_grad=True)
    (a * b * 2).sum().backward()
    assert a.grad.dtype is mg.float32 and a.grad.tolist() == [[8.0]] * 3
    assert b.grad.dtype is mg.float64 and b.grad.tolist() == [6.0] * 4


def test_saved_tensors_are_freed_by_backward():
    x = leaf(1.0, 2.0)
    y = x * 1
    saved = weakref.ref(y)
    z = (y * y).sum()
    del y
    gc.collect()
    assert saved() is not None
    z.backward()
    assert saved() is None


def test_graph_has_no_reference_cycles():
    """Without the garbage collector, dropping the result frees everything."""
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = x.exp()
        z = (y.sigmoid() * y).softmax(0).max()
        kept = weakref.ref(y)
        node = weakref.ref(z.grad_fn)
        del y, z
        assert kept() is None and node() is None
    finally:
        gc.enable()


def test_backward_twice_raises():
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    z = (x + 1).sum()  # nothing saved: may run again, as in torch
    z.backward()
    z.backward()


def test_errors_of_backward():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        mg.ones(1).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape: grad_output"):
        (x * 2).backward(mg.ones(3))
    with pytest.raises(RuntimeError, match="Mismatch in dtype: grad_output"):
        x.sum().backward(mg.tensor(1j))
    with pytest.raises(ValueError, match="expects that allow_unused isn't False"):
        mg.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


def test_backward_into_chosen_inputs():
    a, b = leaf(1.0), leaf(2.0)
    mid = a * b
    (mid * b).sum().backward(inputs=[a, mid])
    assert a.grad.item() == 4 and mid.grad.item() == 2 and b.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (a * b).sum().backward(inputs=[])


def test_backward_of_several_tensors():
    x = leaf(1.0, 2.0)
    autograd.backward([x.sum(), x * 2], [None, mg.ones(2)])
    assert x.grad.tolist() == [3, 3]


# --- autograd.grad ---


def test_grad_touches_no_grad_fields():
    a, b = leaf(3.0), leaf(4.0)
    da, db = autograd.grad(a * b, [a, b], mg.ones(1, dtype=mg.float64))
    assert (da.item(), db.item()) == (4, 3)
    assert a.grad is None and b.grad is None


def test_grad_of_intermediate_and_of_itself():
    x = leaf(3.0)
    y = x * x
    z = y * y
    dz, dy = autograd.grad(z.sum(), [z, y])
    assert dz.item() == 1 and dy.item() == 18


def test_grad_unused_inputs():
    a, b = leaf(3.0), leaf(4.0)
    with pytest.raises(RuntimeError, match="index 1 appears to not have been used"):
        autograd.grad(a.sum(), [a, b])
    assert autograd.grad(a.sum(), [a, b], allow_unused=True)[1] is None
    assert autograd.grad(a.sum(), [a, b], materialize_grads=True)[1].tolist() == [0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        autograd.grad(a.sum(), mg.ones(1))


def test_grad_only_runs_what_leads_to_the_inputs():
    a, b = leaf(3.0), leaf(4.0)
    ran = []
    side = a * 2
    side.register_hook(lambda g: ran.append("side"))
    autograd.grad((side + b * 2).sum(), b)
    assert ran == []


def test_higher_derivatives():
    x = leaf(2.0)
    y = x**4
    for expected in (32, 48, 48, 24):
        (y,) = autograd.grad(y.sum(), x, create_graph=True)
        assert y.item() == pytest.approx(expected)


def test_create_graph_makes_grad_differentiable():
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    penalty = (x.grad**2).sum()
    x.grad = None
    penalty.backward()
    assert x.grad.item() == pytest.approx(2 * 12 * 12)


# --- hooks ---


def test_tensor_hooks_see_the_whole_gradient_and_may_replace_it():
    x = leaf(1.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    handle = x.register_hook(lambda g: g * 10)
    (x * 2 + x * 3).sum().backward()
    assert seen == [5] and x.grad.item() == 50
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.item() == 2


@pytest.mark.parametrize("of", [lambda x: x, lambda x: x * 1], ids=["leaf", "node"])
def test_a_handle_removes_its_own_hook_only(of):
    """A function that is registered twice runs twice, and a handle may be removed twice."""
    x = leaf(1.0)
    y = of(x)
    handles = [y.register_hook(hook) for hook in [lambda g: g * 2] * 2]
    handles[0].remove()
    handles[0].remove()
    (y * 3).sum().backward()
    assert x.grad.item() == 6
    assert isinstance(handles[1], mg.utils.hooks.RemovableHandle)


def test_what_a_hook_keeps_is_not_a_grad():
    x = leaf(1.0, 2.0)
    y = x + 0
    kept = []
    y.register_hook(kept.append)
    x.register_hook(kept.append)
    y.retain_grad()
    y.sum().backward()
    x.grad.zero_()
    y.grad.zero_()
    assert [k.tolist() for k in kept] == [[1, 1], [1, 1]]


def test_hook_on_intermediate():
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: g + 1)
    (y * 3).sum().backward()
    assert x.grad.item() == 8
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        mg.ones(1).register_hook(print)
    z = x * 2
    z.register_hook(lambda g: mg.ones(7))
    with pytest.raises(RuntimeError, match="changed the size"):
        z.sum().backward()


def test_retain_grad():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [4, 8] and y.retains_grad
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        mg.ones(1).retain_grad()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert (x * 2).grad is None


def test_post_accumulate_grad_hook():
    x = leaf(1.0)
    handle = x.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))
    (x * 2).sum().backward()
    assert x.item() == -1
    handle.remove()
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_types_of_nodes_are_named_as_torch(torch):
    """`type(grad_fn).__name__`, which programs that draw a graph print."""

    def names(m):
        class Twice(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        x = m.ones(2, 2, requires_grad=True)
        z = m.view_as_complex(x)
        results = x * 2, x.exp(), x @ x, x.sum(), x.view(4), x.softmax(0), z * z, Twice.apply(x)
        found = [type(y.grad_fn).__name__ for y in results]
        return [*found, type(results[1].grad_fn.next_functions[0][0]).__name__]

    assert names(mg) == names(torch)


def test_hooks_of_several_tensors_as_torch(torch):
    def calls(m):
        a, b = (m.full((2,), value, requires_grad=True) for value in (1.0, 2.0))
        c, d = a * b, a * b
        seen = []

        def hook(grads):
            seen.append([None if grad is None else grad.tolist() for grad in grads])

        every = m.autograd.graph.register_multi_grad_hook((a, b, c, d), hook)
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c * d).sum().backward(retain_graph=True)
        a.sum().backward()
        (b * 1).sum().backward()
        every.remove()
        first = m.autograd.graph.register_multi_grad_hook(
            (m.ones(1), a, c), lambda grad: seen.append(grad.tolist()), mode="any"
        )
        c.sum().backward(retain_graph=True)
        a.sum().backward()
        first.remove()
        m.autograd.graph.register_multi_grad_hook((), hook).remove()
        (c * d).sum().backward()
        with pytest.raises(ValueError, match="Expects mode to be one of"):
            m.autograd.graph.register_multi_grad_hook((a,), hook, mode="some")
        return seen

    mine = calls(mg)
    assert len(mine) == 7 and mine == calls(torch)


def test_node_hooks_and_graph_inspection():
    x = leaf(1.0)
    y = x * x
    seen = []
    y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].item()))
    y.sum().backward()
    assert seen == [1]
    z = mg.sigmoid(x)
    assert z.grad_fn.name() == "SigmoidBackward0"
    end = z.grad_fn.next_functions[0][0]
    assert end.variable is x and end.next_functions == ()
    assert x.grad_fn is None and x.is_leaf and not z.is_leaf


def _node_hooks(t):
    """What the hooks of nodes get, and what they change."""
    seen = []
    x = t.ones(2, 3, requires_grad=True)
    w = t.ones(3, requires_grad=True)
    y = (x * w).sum(1)
    product = y.grad_fn.next_functions[0][0]
    product.register_prehook(lambda go: (go[0] * 2,))
    handle = product.register_hook(
        lambda gi, go: seen.append(([tuple(g.shape) for g in gi], go[0].tolist()))
    )
    product.register_hook(lambda gi, go: (gi[0] * 10, gi[1]))
    leaf = product.next_functions[1][0]
    ends = [
        leaf.register_prehook(lambda go: (go[0] + 1,)),
        leaf.register_hook(lambda gi, go: seen.append((gi, go[0].tolist(), w.grad is not None))),
    ]
    y.sum().backward(retain_graph=True)
    seen += [x.grad.tolist(), w.grad.tolist()]
    for one in (handle, *ends):
        one.remove()
    y.sum().backward()
    return seen, w.grad.tolist()


def test_node_hooks_as_torch(torch):
    assert _node_hooks(mg) == _node_hooks(torch)


# --- modes ---


def test_modes_nest_and_decorate():
    x = leaf(1.0)
    with mg.no_grad():
        assert not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()

    @mg.no_grad()
    def with_parentheses():
        return mg.is_grad_enabled()

    @mg.no_grad
    def without():
        return mg.is_grad_enabled()

    @mg.inference_mode()
    def inference():
        return mg.is_grad_enabled(), mg.is_inference_mode_enabled()

    assert (with_parentheses(), without(), inference()) == (False, False, (False, True))
    with mg.set_grad_enabled(False):
        assert not mg.is_grad_enabled()
    mg.set_grad_enabled(False)
    assert not mg.is_grad_enabled()
    mg.set_grad_enabled(True)


def test_mode_is_restored_after_an_error_and_within_generators():
    with pytest.raises(ZeroDivisionError), mg.no_grad():
        _ = 1 // 0
    assert mg.is_grad_enabled()

    @mg.no_grad()
    def generator():
        yield mg.is_grad_enabled()

    for inside in generator():
        assert not inside and mg.is_grad_enabled()


def test_mode_belongs_to_the_thread():
    seen = []
    with mg.no_grad():
        thread = threading.Thread(target=lambda: seen.append(mg.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# --- leaves ---


def test_requires_grad_rules():
    with pytest.raises(RuntimeError, match="floating point dtype can require gradients"):
        mg.arange(3).requires_grad_()
    with pytest.raises(RuntimeError, match="floating point and complex dtype"):
        mg.tensor([1], requires_grad=True)
    with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf"):
        (leaf(1.0) * 2).requires_grad = False
    with pytest.raises(RuntimeError, match="must be a bool"):
        leaf(1.0).requires_grad = 1


def test_grad_assignment_is_checked():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"gradient of size '\[3\]' to a tensor of size '\[2\]'"):
        x.grad = mg.ones(3)
    with pytest.raises(RuntimeError, match="dtype"):
        x.grad = mg.ones(2, dtype=mg.float32)
    with pytest.raises(TypeError):
        x.grad = 3
    x.grad = mg.ones(2, dtype=mg.float64)
    del x.grad
    assert x.grad is None


def test_detach_shares_memory_and_leaves_the_graph():
    x = leaf(1.0, 2.0)
    d = x.detach()
    assert not d.requires_grad and np.shares_memory(d.numpy(), x.data.numpy())
    y = x * x
    d.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = x * x
    x.data.add_(1)  # .data has a counter of its own
    z.sum().backward()


def test_leaf_grad_access_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leaf(1.0).grad is None


def test_variable():
    x = autograd.Variable(mg.ones(2), requires_grad=True)
    assert isinstance(x, autograd.Variable) and isinstance(x, mg.Tensor)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_backward_passes_in_threads_that_add_to_one_gradient():
    w, switch = mg.zeros(1000, requires_grad=True), sys.getswitchinterval()

    def work():
        for _ in range(100):
            (w * 1.0).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert set(w.grad.tolist()) == {400.0}


def test_independent_backward_passes_in_threads():
    def work(results, i):
        x = leaf(float(i))
        for _ in range(50):
            x.grad = None
            (x * x).sum().backward()
        results[i] = x.grad.item()

    results: dict[int, float] = {}
    threads = [threading.Thread(target=work, args=(results, i)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: 2.0 * i for i in range(4)}
