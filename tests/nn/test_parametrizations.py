"""Weight and spectral normalisation, orthogonal weights and parametrisations, beside torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minigrad
from minigrad import backends, nn
from minigrad.autograd import gradcheck
from minigrad.nn.utils import parametrizations, parametrize
from tests.nn.helpers import as_torch, close


@pytest.fixture(autouse=True)
def reference_backend(seed):
    minigrad.manual_seed(seed)
    with backends.use("numpy"):
        yield


@pytest.fixture
def torch(torch):
    torch.set_default_dtype(torch.float64)
    yield torch
    torch.set_default_dtype(torch.float32)


def old(kind):
    return lambda t, *args, **options: getattr(t.nn.utils, kind)(*args, **options)


def new(kind):
    return lambda t, *args, **options: getattr(t.nn.utils.parametrizations, kind)(*args, **options)


CASES = [
    lambda t: new("weight_norm")(t, t.nn.Linear(4, 7)),
    lambda t: new("weight_norm")(t, t.nn.Conv2d(2, 3, 2), dim=1),
    lambda t: new("weight_norm")(t, t.nn.Linear(4, 7), dim=None),
    lambda t: new("spectral_norm")(t, t.nn.Linear(4, 7)),
    lambda t: new("spectral_norm")(t, t.nn.ConvTranspose2d(2, 3, 2), n_power_iterations=2),
    lambda t: new("spectral_norm")(t, new("weight_norm")(t, t.nn.Linear(4, 7)), "bias"),
    lambda t: new("orthogonal")(t, t.nn.Linear(4, 4)),
    lambda t: new("orthogonal")(t, t.nn.Linear(7, 4)),
    lambda t: new("orthogonal")(t, t.nn.Linear(4, 7), orthogonal_map="cayley"),
    lambda t: new("orthogonal")(t, t.nn.Linear(4, 7), orthogonal_map="matrix_exp"),
    lambda t: new("orthogonal")(t, t.nn.Linear(4, 7), use_trivialization=False),
    lambda t: new("orthogonal")(t, t.nn.Linear(7, 4), use_trivialization=False),
    lambda t: old("weight_norm")(t, t.nn.Linear(4, 7)),
    lambda t: old("weight_norm")(t, t.nn.Conv2d(2, 3, 2), dim=None),
    lambda t: old("spectral_norm")(t, t.nn.Linear(4, 7)),
    lambda t: old("spectral_norm")(t, t.nn.ConvTranspose2d(2, 3, 2), n_power_iterations=2),
]


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("make", CASES, ids=range(len(CASES)))
def test_as_torch(make, rng, torch):
    """Names, values, gradients and buffers over three steps, and the network without it."""
    mine, theirs = make(minigrad).double(), make(torch)
    assert repr(mine) == repr(theirs)
    wanted = theirs.state_dict()
    assert {k: tuple(v.shape) for k, v in mine.state_dict().items()} == {
        k: tuple(v.shape) for k, v in wanted.items()
    }
    mine.load_state_dict({k: minigrad.tensor(v.numpy()) for k, v in wanted.items()})
    shape = (5, theirs.in_features) if hasattr(theirs, "in_features") else (2, 2, 4, 4)
    x = rng.normal(size=shape)
    for _ in range(3):
        for t, layer in ((minigrad, mine), (torch, theirs)):
            layer.zero_grad()
            layer(t.tensor(x)).square().sum().backward()
    close(mine(minigrad.tensor(x)), theirs(torch.tensor(x)), 1e-10)
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        close(p.grad, q.grad, 1e-9, name)
    for name, value in theirs.state_dict().items():
        close(mine.state_dict()[name], value, 1e-10, name)
    mine.eval(), theirs.eval()
    close(mine(minigrad.tensor(x)), theirs(torch.tensor(x)), 1e-10)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_hooks_can_be_removed(kind, rng, torch):
    x = rng.normal(size=(3, 4))
    layer = old(kind)(minigrad, nn.Linear(4, 7).double())
    before = layer(minigrad.tensor(x))
    layer.eval()
    getattr(nn.utils, f"remove_{kind}")(layer)
    assert list(layer.state_dict()) == ["bias", "weight"] and not layer._forward_pre_hooks
    close(layer(minigrad.tensor(x)), before.detach().numpy(), 1e-12)
    with pytest.raises(ValueError, match="not found"):
        getattr(nn.utils, f"remove_{kind}")(layer)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_old_weight_norm_loads_into_the_new_one():
    before = nn.utils.weight_norm(nn.Linear(4, 7))
    after = parametrizations.weight_norm(nn.Linear(4, 7))
    net = nn.Sequential(after)
    net.load_state_dict({f"0.{k}": v for k, v in before.state_dict().items()})
    close(after.weight, before.weight.detach().numpy(), 1e-6)


@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 3)])
@pytest.mark.parametrize("chosen", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_keeps_an_orthogonal_start(shape, chosen, rng):
    start = np.linalg.qr(rng.normal(size=(6, 6)))[0][: shape[0], : shape[1]]
    u, _, v = np.linalg.svd(start, full_matrices=False)
    layer = nn.Linear(*shape[::-1]).double()
    layer.weight.data = minigrad.tensor(u @ v)
    parametrizations.orthogonal(layer, orthogonal_map=chosen)
    close(layer.weight, u @ v, 1e-10)
    optimizer = minigrad.optim.SGD(layer.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        layer(minigrad.ones(2, shape[1], dtype=minigrad.float64)).sum().backward()
        optimizer.step()
    w = layer.weight.detach().numpy()
    small = w @ w.T if shape[0] < shape[1] else w.T @ w
    np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-10)
    assert not np.allclose(w, u @ v, atol=1e-3)


def test_spectral_norm_is_one(rng):
    layer = nn.Linear(20, 40)
    with pytest.raises(IndexError, match=r"\[-2, 1\], but got 2"):
        parametrizations.spectral_norm(layer, dim=2)
    parametrizations.spectral_norm(layer, n_power_iterations=50)
    assert np.linalg.norm(layer.weight.detach().numpy(), 2) == pytest.approx(1, abs=1e-3)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    def forward(self, x):
        return 2 * x


class RankOne(nn.Module):
    def forward(self, x, y):
        return x.unsqueeze(-1) @ y.unsqueeze(-2)

    def right_inverse(self, z):
        return z[:, 0].clone(), z[0].clone()


def test_a_parametrised_weight(rng):
    layer = nn.Linear(3, 3)
    parameter = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    entry = layer.parametrizations.weight
    assert entry.original is parameter  # an optimiser that has it still does
    assert "weight" not in dict(layer.named_parameters()) and "weight" not in layer._parameters
    close(layer.weight, layer.weight.T.detach().numpy())
    a = rng.normal(size=(3, 3)).astype(np.float32)
    layer.weight = minigrad.tensor(a + a.T)
    close(layer.weight, a + a.T, 1e-6)
    parametrize.register_parametrization(layer, "weight", Scaled())
    close(layer.weight, 2 * (a + a.T), 1e-6)
    with pytest.raises(RuntimeError, match="Scaled does not implement right_inverse"):
        layer.weight = minigrad.tensor(a)
    twin = copy.deepcopy(layer)
    twin.parametrizations.weight.original.data.zero_()
    close(layer.weight, 2 * (a + a.T), 1e-6)
    with pytest.raises(RuntimeError, match="state_dict"):
        copy.copy(layer).__reduce_ex__(2)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is parameter
    close(layer.weight, 2 * (a + a.T), 1e-6)
    assert not parametrize.is_parametrized(layer)


def test_several_originals(rng):
    layer = parametrize.register_parametrization(nn.Linear(3, 4), "weight", RankOne())
    names = [name for name, _ in layer.named_parameters()]
    assert names == ["bias", *(f"parametrizations.weight.original{i}" for i in range(2))]
    assert np.linalg.matrix_rank(layer.weight.detach().numpy()) == 1
    target = nn.Linear(3, 4)
    parametrize.transfer_parametrizations_and_params(layer, target)
    close(target.weight, layer.weight.detach().numpy())
    with pytest.raises(ValueError, match="sequence of tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]


def test_cached_values_are_computed_once():
    class Counted(nn.Module):
        calls = 0

        def forward(self, x):
            Counted.calls += 1
            return x

    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Counted())
    Counted.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight
        with parametrize.cached():
            assert layer.weight is layer.weight
    assert Counted.calls == 1
    assert layer.weight is layer.parametrizations.weight.original  # this one returns its argument
    assert Counted.calls == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(2, 2), "bias"),
        lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(2, 2), orthogonal_map="qr"),
        lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(2, 2), "wait"),
        lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(2, 2), "weight", 0),
        lambda t: t.nn.utils.parametrize.register_parametrization(
            t.nn.Linear(2, 2), "w", t.nn.Identity()
        ),
        lambda t: t.nn.utils.parametrize.remove_parametrizations(t.nn.Linear(2, 2), "weight"),
        lambda t: t.nn.utils.remove_weight_norm(t.nn.Linear(2, 2)),
        lambda t: [t.nn.utils.spectral_norm(layer) for layer in [t.nn.Linear(2, 2)] * 2],
    ],
    ids=range(8),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_a_parametrisation_must_keep_shape_and_dtype():
    class Flat(nn.Module):
        def forward(self, x):
            return x.flatten()

    with pytest.raises(ValueError, match=r"may not change the shape of the tensor.*\[4\]"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Flat())
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Flat(), unsafe=True)
    assert layer.weight.ndim == 1


def test_householder_product(rng, torch):
    a = rng.normal(size=(2, 5, 3))
    h, tau = minigrad.geqrf(minigrad.tensor(a))
    wanted = torch.geqrf(torch.tensor(a))
    close(h, wanted.a), close(tau, wanted.tau)
    q = minigrad.linalg.householder_product(h, tau)
    close(q, torch.linalg.householder_product(as_torch(h), as_torch(tau)))
    close(q @ h[:, :3].triu(), a)
    assert gradcheck(
        minigrad.linalg.householder_product, (h.requires_grad_(), tau.requires_grad_())
    )
