"""Layers that learn the size of their input from the first one; wrappers for several devices."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest

import minigrad
from minigrad import nn

LAYERS = [
    (lambda t: t.nn.LazyLinear(3), (2, 5)),
    (lambda t: t.nn.LazyLinear(3, bias=False), (2, 4, 5)),
    (lambda t: t.nn.LazyConv1d(3, 2), (2, 4, 5)),
    (lambda t: t.nn.LazyConv2d(4, 3, padding=1, groups=2), (2, 6, 5, 5)),
    (lambda t: t.nn.LazyConv2d(4, kernel_size=3), (3, 5, 5)),
    (lambda t: t.nn.LazyConvTranspose1d(3, 2, stride=2), (2, 4, 5)),
    (lambda t: t.nn.LazyConvTranspose2d(3, 2, 2, bias=False), (2, 4, 5, 5)),
    (lambda t: t.nn.LazyBatchNorm1d(), (4, 3)),
    (lambda t: t.nn.LazyInstanceNorm1d(), (2, 3, 4)),
    (lambda t: t.nn.LazyInstanceNorm1d(affine=False), (2, 3, 4)),
    (lambda t: t.nn.LazyInstanceNorm2d(track_running_stats=False), (2, 3, 4, 4)),
    (lambda t: t.nn.LazyInstanceNorm3d(1e-3, 0.2), (2, 3, 4, 4, 2)),
    (lambda t: t.nn.LazyBatchNorm2d(momentum=0.2, affine=False), (4, 3, 2, 2)),
]


@pytest.mark.parametrize(("make", "shape"), LAYERS, ids=range(len(LAYERS)))
def test_shapes_and_text_as_torch(torch, make, shape):
    """Before and after the first input; the class afterwards is the usual one."""
    found = []
    for t in (minigrad, torch):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layer = make(t)
            before = repr(layer), layer.has_uninitialized_params(), list(layer.state_dict())
            output = layer(t.zeros(shape))
        state = [(name, tuple(value.shape)) for name, value in layer.state_dict().items()]
        found.append((before, tuple(output.shape), repr(layer), type(layer).__name__, state))
    assert found[0] == found[1]


def test_initial_values_are_those_of_the_usual_layer():
    minigrad.manual_seed(3)
    usual = nn.Linear(5, 4)
    lazy = nn.LazyLinear(4)
    minigrad.manual_seed(3)
    lazy(minigrad.zeros(1, 5))
    assert minigrad.equal(lazy.weight, usual.weight) and minigrad.equal(lazy.bias, usual.bias)


def test_an_optimizer_of_lazy_parameters_trains_them():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    optimizer = minigrad.optim.Adam(model.parameters())
    model(minigrad.ones(2, 3)).sum().backward()
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert not minigrad.equal(before, model[0].weight)


def test_shapes_from_a_checkpoint():
    full, lazy = nn.Linear(5, 4), nn.LazyLinear(4)
    lazy.load_state_dict(full.state_dict())
    assert minigrad.equal(lazy.weight, full.weight) and not lazy.has_uninitialized_params()
    assert lazy(minigrad.zeros(1, 5)).shape == (1, 4) and type(lazy) is nn.Linear
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        nn.Linear(5, 4).load_state_dict(nn.LazyLinear(4).state_dict())


def test_without_a_shape():
    layer = nn.LazyConv2d(4, 3)
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = layer.weight.shape
    copied = copy.deepcopy(layer)
    assert copied.weight is not layer.weight and copied.has_uninitialized_params()
    assert repr(layer.weight) == "<UninitializedParameter>"
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input"):
        layer(minigrad.zeros(3))
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.LazyConv2d(4, 3, groups=2)(minigrad.zeros(1, 3, 4, 4))


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_learns_its_shapes_and_the_original_its_own(how):
    layer = nn.LazyLinear(4)
    copied = how(layer)
    assert copied(minigrad.ones(2, 5)).shape == layer(minigrad.ones(2, 7)).shape == (2, 4)
    assert type(copied) is type(layer) is nn.Linear
    assert (copied.in_features, layer.in_features) == (5, 7)
    assert not layer._forward_pre_hooks and not copied._forward_pre_hooks
    seen = []
    handle = layer.register_forward_hook(lambda *_: seen.append(1))
    layer.register_forward_hook(lambda *_: seen.append(2))
    handle.remove()
    layer(minigrad.ones(1, 7))
    assert seen == [2]


def test_what_has_no_shape_is_not_saved():
    for what in (nn.LazyLinear(2), nn.LazyLinear(2).state_dict()):
        with pytest.raises(TypeError, match=r"weight.* has no shape yet; call its module once"):
            minigrad.save(what, io.BytesIO())


def test_a_materialised_model_is_saved():
    model = nn.Sequential(nn.LazyLinear(2))
    model(minigrad.ones(1, 3))
    file = io.BytesIO()
    minigrad.save(model.state_dict(), file)
    file.seek(0)
    assert list(minigrad.load(file)) == ["0.weight", "0.bias"]


def test_lazy_norms_are_converted_and_saved_before_they_have_a_shape():
    norm = nn.LazyBatchNorm1d(bias=False).double()
    assert norm.bias is None
    assert not norm.load_state_dict(norm.state_dict()).missing_keys
    assert norm(minigrad.rand(3, 2, dtype=minigrad.float64)).dtype == minigrad.float64
    assert norm.running_var.dtype == minigrad.float64


def test_one_device_under_the_name_of_several():
    inner = nn.Linear(3, 2)
    model = nn.DataParallel(inner)
    x = minigrad.ones(4, 3)
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert minigrad.equal(model(x), inner(x))
    assert minigrad.equal(nn.parallel.data_parallel(inner, x), inner(x))
    with pytest.raises(NotImplementedError, match=r"one device, got device_ids=\[0, 1\]"):
        nn.DataParallel(inner, [0, 1])


@pytest.mark.parametrize(
    "use",
    [
        lambda t, w: w.sum(),
        lambda t, w: w * 2,
        lambda t, w: 2 - w,
        lambda t, w: w[0],
        lambda t, w: len(w),
        lambda t, w: w.numel(),
        lambda t, w: t.nn.init.normal_(w, std=0.1),
        lambda t, w: t.nn.init.zeros_(w),
        lambda t, w: t.nn.functional.linear(t.ones(2, 2), w),
    ],
)
def test_elements_of_parameters_without_a_shape(torch, use):
    """Initial values that are drawn too early would be lost at the first call."""
    for t in (minigrad, torch):
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            use(t, t.nn.LazyLinear(3).weight)


def test_what_needs_no_elements_of_them():
    layer = nn.LazyLinear(3).double()
    layer.requires_grad_(False).zero_grad()
    assert layer.weight.dtype == minigrad.float64 and not layer.weight.requires_grad
    assert layer(minigrad.ones(2, 4, dtype=minigrad.float64)).shape == (2, 3)
    assert layer.weight.sum().dtype == minigrad.float64
