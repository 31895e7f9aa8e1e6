"""Inference mode: what is an inference tensor, and what autograd and in-place changes refuse."""

from __future__ import annotations

import copy
import threading

import pytest

import minigrad
from minigrad import inference_mode


def inside(t):
    """A tensor made in inference mode, by an operation."""
    with t.inference_mode():
        return t.ones(3) * 2


def kinds(t):
    """Which tensors are inference tensors: (made inside, made outside)."""
    x, w, a = t.ones(3), t.ones(3, requires_grad=True), inside(t)
    found = [a, a.view(3, 1), a.detach(), a.clone(), a * 2, copy.deepcopy(a), x, w]
    with t.inference_mode():
        found += [t.zeros(2), x.view(3, 1), x[:2], x.detach(), x.clone(), x + 1, w * 2, a[1:]]
        found += [x.add_(1), x.double(), x.to(t.float32), t.nn.Parameter(t.ones(2)), t.rand(2)]
        with t.inference_mode(False):
            found += [t.zeros(2), w * 2]
        with t.enable_grad():
            found += [w * 2]
    return [(one.is_inference(), t.is_inference(one), one.requires_grad) for one in found]


@pytest.mark.needs("torch")
def test_inference_tensors_as_torch(torch):
    assert kinds(minigrad) == kinds(torch)


def changed(change):
    return lambda t: change(inside(t), t)


def without_grad(t):
    with t.no_grad():
        inside(t).add_(1)


def saved_by_a_function(t):
    class Product(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    Product.apply(t.ones(3, requires_grad=True), inside(t))


def weight(t):
    return t.ones(3, requires_grad=True)


REFUSED = {
    "in place": changed(lambda a, t: a.add_(1)),
    "in place without gradients": without_grad,
    "item": changed(lambda a, t: a.__setitem__(0, 5)),
    "copy": changed(lambda a, t: a.copy_(t.ones(3))),
    "fill": changed(lambda a, t: a.zero_()),
    "out": changed(lambda a, t: t.add(t.ones(3), 1, out=a)),
    "a view in place": changed(lambda a, t: a[:2].mul_(2)),
    "product": changed(lambda a, t: weight(t) * a),
    "matrix product": changed(lambda a, t: weight(t) @ a),
    "product in place": changed(lambda a, t: (weight(t) * 1).mul_(a)),
    "linear": changed(lambda a, t: t.nn.functional.linear(a, t.ones(2, 3, requires_grad=True))),
    "loss": changed(lambda a, t: t.nn.functional.mse_loss(weight(t), a)),
    "function": saved_by_a_function,
    "leaf": changed(lambda a, t: a.requires_grad_()),
    "attribute": changed(lambda a, t: setattr(a, "requires_grad", True)),
    "parameter": changed(lambda a, t: t.nn.Parameter(a)),
    "version": changed(lambda a, t: a._version),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_refused_as_torch(program, same_error):
    same_error(program)


def test_a_refused_change_changes_nothing():
    a = inside(minigrad)
    for change in (lambda: a.add_(1), lambda: a.__setitem__(0, 5.0), lambda: a.zero_()):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            change()
    assert a.tolist() == [2, 2, 2]
    with inference_mode():
        assert a.add_(1).tolist() == [3, 3, 3]


def test_what_saves_nothing_is_recorded():
    w, a = weight(minigrad), inside(minigrad)
    (w + a).sum().backward()
    minigrad.cat([w, a]).sum().backward()
    (w * a.clone()).sum().backward()
    assert w.grad.tolist() == [4, 4, 4]


def test_parameters_are_trained_after_an_evaluation():
    model = minigrad.nn.Sequential(minigrad.nn.Linear(3, 4), minigrad.nn.BatchNorm1d(4))
    optimizer = minigrad.optim.Adam(model.parameters(), lr=0.1)
    x = minigrad.rand(5, 3)
    for _ in range(3):
        with inference_mode():
            model(x)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert not any(t.is_inference() for t in model.state_dict().values())


def test_one_thread_at_a_time():
    with inference_mode():
        other: list[bool] = []
        thread = threading.Thread(target=lambda: other.append(minigrad.ones(2).is_inference()))
        thread.start(), thread.join()
        assert other == [False] and minigrad.ones(2).is_inference()


def test_compiled_functions():
    double = minigrad.compile(lambda x: x * 2)
    for _ in range(2):
        with inference_mode():
            assert double(minigrad.ones(3)).is_inference()
        assert not double(minigrad.ones(3)).is_inference()
    assert double.replayed == 2


def _of_views(t):
    """The errors for changes of views that were made where nothing is recorded."""
    leaf = t.ones(3, requires_grad=True)
    inner, plain, texts = leaf * 1, t.ones(3), []
    blocks = {"inference": t.inference_mode, "no_grad": t.no_grad}
    for block in blocks.values():
        with block():
            views = [leaf[:1], inner.view(3, 1), plain[:2]]
            views.append(inner[:2])
            texts.append([views[1].requires_grad, [v._is_view() for v in views]])
        with t.no_grad():
            views[3].add_(1)
        for view in views:
            try:
                view.add_(1)
                texts.append("changed")
            except RuntimeError as error:
                texts.append(str(error))
    return texts, plain.tolist()


@pytest.mark.needs("torch")
def test_errors_of_views_as_torch(torch):
    assert _of_views(minigrad)[1] == _of_views(torch)[1]
    for ours, theirs in zip(_of_views(minigrad)[0], _of_views(torch)[0], strict=True):
        assert ours[-1] == theirs[-1] if isinstance(ours, list) else ours == theirs
