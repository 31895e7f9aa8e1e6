"""Hooks of modules: before and after `forward` and backward, of one module and of all."""

from __future__ import annotations

import pickle
import traceback

import numpy as np
import pytest

import minigrad
from minigrad import nn
from tests.nn.helpers import close

pytestmark = pytest.mark.usefixtures("reference_backend")


def test_forward_hooks_in_order_and_removal():
    net = nn.Linear(2, 2)
    events = []
    first = net.register_forward_pre_hook(lambda m, args: events.append("pre") or (args[0] * 2,))
    net.register_forward_hook(lambda m, args, out: events.append(args[0].tolist()) or out + 1)
    net.register_forward_pre_hook(lambda m, args: events.append("before"), prepend=True)
    kw = net.register_forward_hook(
        lambda m, args, kwargs, out: events.append(sorted(kwargs)), with_kwargs=True
    )
    x = minigrad.tensor([1.0, 3.0])
    with minigrad.no_grad():
        out = net(x)
        wanted = net.forward(x * 2) + 1
    assert events == ["before", "pre", [2.0, 6.0], []]
    assert out.tolist() == wanted.tolist()
    first.remove(), first.remove(), kw.remove()
    events.clear()
    net(x)
    assert events == ["before", [1.0, 3.0]]
    with net.register_forward_pre_hook(lambda m, a: events.append("with")):
        pass
    net(x)
    assert "with" not in events


def test_tables_of_hooks_have_the_hooks_themselves(torch):
    """Programs look for a hook among the values, as torch's remove_weight_norm does."""
    for t in (minigrad, torch):
        net, calls = t.nn.Linear(2, 2), []

        def before(m, args, kwargs, calls=calls):
            calls.append(("before", kwargs))

        def after(m, args, out, calls=calls):
            calls.append(("after", out))

        first = net.register_forward_pre_hook(before, with_kwargs=True)
        last = net.register_forward_hook(after, always_call=True)
        assert list(net._forward_pre_hooks.items()) == [(first.id, before)]
        assert list(net._forward_hooks.items()) == [(last.id, after)]
        assert net._forward_pre_hooks_with_kwargs == {first.id: True}
        assert net._forward_hooks_always_called == {last.id: True}
        assert not net._forward_hooks_with_kwargs
        with pytest.raises(TypeError):
            net(input=t.ones(2), other=1)
        assert calls[0][1].keys() == {"input", "other"} and calls[1] == ("after", None)
        first.remove(), last.remove()
        assert not net._forward_pre_hooks_with_kwargs and not net._forward_hooks_always_called


def test_backward_hooks_as_torch(rng, torch):
    weight, data = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    results = []
    for t in (minigrad, torch):
        layer = t.nn.Linear(2, 3).double()
        layer.weight.data = t.tensor(weight)
        events = []

        def hook(module, grad_input, grad_output, events=events):
            events.append([g.detach().numpy().copy() for g in (*grad_input, *grad_output)])
            return (grad_input[0] * 10,)

        layer.register_full_backward_hook(hook)
        layer.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 2,))
        x = t.tensor(data, requires_grad=True)
        (layer(x) ** 2).sum().backward() if t is torch else (layer(x) * 1).sum().backward()
        x.grad = None
        events.clear()
        layer.zero_grad()
        (layer(x) * 3).sum().backward()
        results.append((x.grad, layer.weight.grad, events))
    close(results[0][0], results[1][0])
    close(results[0][1], results[1][1])
    assert len(results[0][2]) == len(results[1][2]) == 1
    for a, b in zip(results[0][2][0], results[1][2][0], strict=True):
        np.testing.assert_allclose(a, b)


def test_hooks_of_all_modules_as_torch(rng, torch):
    weight, data = rng.normal(size=(2, 2)), rng.normal(size=(4, 2))

    def calls(t):
        seen, every = [], t.nn.modules.module

        def note(kind, module, *values):
            seen.append((kind, type(module).__name__))
            seen.append([[v.tolist() if hasattr(v, "tolist") else v for v in vs] for vs in values])

        net = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.ReLU(), t.nn.Linear(2, 2)).double()
        for i in (0, 2):
            net[i].weight.data, net[i].bias.data = t.tensor(weight), t.tensor(weight[0])
        net[0].register_forward_hook(lambda m, args, out: note("own", m, args, [out]))
        net[0].register_forward_pre_hook(lambda m, args: note("own before", m, args))
        handles = [
            every.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)),
            every.register_module_forward_pre_hook(lambda m, args: note("before", m, args)),
            every.register_module_forward_hook(
                lambda m, args, kwargs, out: note("after", m, args, [out], kwargs),
                with_kwargs=True,
            ),
            every.register_module_full_backward_pre_hook(lambda m, g: note("backward", m, g)),
            every.register_module_full_backward_hook(lambda m, gi, go: note("grads", m, gi, go)),
        ]
        x = t.tensor(data, requires_grad=True)
        net(x).pow(2).sum().backward()
        with pytest.raises(RuntimeError, match="both regular backward hooks and full"):
            every.register_module_backward_hook(lambda *args: None)
        failing = every.register_module_forward_hook(
            lambda m, args, out: seen.append(out), always_call=True
        )
        with pytest.raises(RuntimeError):
            net[0](t.ones(3))
        for handle in (*handles, failing):
            handle.remove()
        length = len(seen)
        net[2](x)
        assert len(seen) == length
        return seen, x.grad

    (mine, grad), (theirs, their_grad) = calls(minigrad), calls(torch)
    close(grad, their_grad)
    assert [entry for entry in mine if isinstance(entry, tuple)] == [
        entry for entry in theirs if isinstance(entry, tuple)
    ]
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, list):
            for ours, others in zip(a, b, strict=True):
                np.testing.assert_allclose(ours, others)


def test_hooks_of_registration_as_torch(torch):
    def registered(t):
        seen, every = [], t.nn.modules.module
        handles = [
            every.register_module_parameter_registration_hook(
                lambda m, name, p: seen.append((type(m).__name__, name, p is None))
            ),
            every.register_module_module_registration_hook(
                lambda m, name, child: t.nn.ReLU() if isinstance(child, t.nn.Tanh) else None
            ),
            every.register_module_buffer_registration_hook(lambda m, name, b: b + 1),
        ]
        net = t.nn.Module()
        net.linear = t.nn.Linear(2, 2, bias=False)
        net.act = t.nn.Tanh()
        net.add_module("other", t.nn.Tanh())
        net.weight = t.nn.Parameter(t.ones(1))
        net.register_buffer("count", t.zeros(1))
        net.more = t.nn.Buffer(t.zeros(1))
        for handle in handles:
            handle.remove()
        net.last = t.nn.Tanh()
        return seen, repr(net), net.count.item(), net.more.item()

    assert registered(minigrad) == registered(torch)


def test_compiled_modules_run_hooks_of_all_modules():
    net, seen = nn.Linear(2, 2), []
    compiled, x = minigrad.compile(lambda x: net(x)), minigrad.ones(1, 2)
    wanted = [compiled(x).tolist() for _ in range(3)]
    every = nn.modules.module.register_module_forward_hook
    with every(lambda m, args, out: seen.append(m) or out * 2):
        assert compiled(x).tolist() == [[2 * value for value in wanted[0][0]]]
    assert seen == [net]
    assert compiled(x).tolist() == wanted[0]


def test_backward_hook_without_a_gradient_for_the_input():
    layer = nn.Linear(2, 3)
    events = []
    layer.register_full_backward_hook(lambda m, gi, go: events.append((gi, tuple(go[0].shape))))
    layer(minigrad.ones(4, 2)).sum().backward()
    assert events == [((None,), (4, 3))]


def test_an_error_in_a_hook_and_its_cause_stay():
    def hook(module, args):
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("hook") from error

    layer = nn.Linear(2, 2)
    layer.register_forward_pre_hook(hook)
    with pytest.raises(ValueError, match="hook") as caught:
        layer(minigrad.ones(1, 2))
    assert isinstance(caught.value.__cause__, KeyError)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "hook"


def test_a_backward_hook_without_gradients_of_inputs_warns():
    layer = nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda *a: None)
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        layer(minigrad.ones(1, 2)).sum().backward()


def test_hooks_by_their_older_names(torch):
    found = []
    for m in (minigrad, torch):
        model = m.nn.Sequential(m.nn.Linear(1, 1, bias=False), m.nn.ReLU())
        seen = []

        def rename(state, prefix, *rest, seen=seen):
            seen.append((prefix, len(rest)))
            state[prefix + "weight"] = state.pop(prefix + "w")

        def note(module, state, prefix, metadata, seen=seen):
            seen.append((type(module).__name__, sorted(state), prefix))

        model[0]._register_load_state_dict_pre_hook(rename)
        model[0]._register_load_state_dict_pre_hook(
            lambda module, *rest, seen=seen: seen.append((type(module).__name__, len(rest))), True
        )
        model[0]._register_state_dict_hook(note)
        model.state_dict()
        model.load_state_dict({"0.w": m.ones(1, 1) * 3}, strict=False)
        found.append((seen, model[0].weight.item()))
    assert found[0] == found[1]


def rename_weight(state, prefix, *rest):
    state[prefix + "weight"] = state.pop(prefix + "w")


def test_modules_are_pickled_with_hooks_that_do_not_take_them():
    model = minigrad.nn.Linear(1, 1)
    model._register_load_state_dict_pre_hook(rename_weight)
    again = pickle.loads(pickle.dumps(model))
    again.load_state_dict({"w": minigrad.full((1, 1), 3.0), "bias": minigrad.zeros(1)})
    assert again.weight.item() == 3


def test_backward_hooks_of_a_module_that_returns_a_dict():
    """Its tensors do not pass the hook, as in torch; gradients flow."""

    class Both(nn.Module):
        def forward(self, a, b):
            return {"sum": a + b, "product": a * b}

    module, seen = Both(), []
    module.register_full_backward_hook(lambda *given: seen.append(given))
    a, b = (minigrad.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    made = module(a, b)
    (made["sum"].sum() + made["product"].sum()).backward()
    assert not seen and a.grad.tolist() == b.grad.tolist() == [2, 3]
