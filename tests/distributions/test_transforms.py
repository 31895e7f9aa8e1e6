"""Sets and transforms against torch: membership, values, inverses, Jacobians, shapes, text."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minigrad

pytestmark = pytest.mark.usefixtures("reference_backend")


SETS = {
    "boolean": lambda c: c.boolean,
    "one_hot": lambda c: c.one_hot,
    "nonnegative_integer": lambda c: c.nonnegative_integer,
    "positive_integer": lambda c: c.positive_integer,
    "integer_interval": lambda c: c.integer_interval(-1, 2),
    "real": lambda c: c.real,
    "real_vector": lambda c: c.real_vector,
    "positive": lambda c: c.positive,
    "nonnegative": lambda c: c.nonnegative,
    "less_than": lambda c: c.less_than(1),
    "greater_than": lambda c: c.greater_than(-1.5),
    "greater_than_eq": lambda c: c.greater_than_eq(1),
    "unit_interval": lambda c: c.unit_interval,
    "interval": lambda c: c.interval(-1, 2.0),
    "half_open_interval": lambda c: c.half_open_interval(-1, 1),
    "simplex": lambda c: c.simplex,
    "multinomial": lambda c: c.multinomial(3),
    "lower_triangular": lambda c: c.lower_triangular,
    "lower_cholesky": lambda c: c.lower_cholesky,
    "corr_cholesky": lambda c: c.corr_cholesky,
    "square": lambda c: c.square,
    "symmetric": lambda c: c.symmetric,
    "positive_semidefinite": lambda c: c.positive_semidefinite,
    "positive_definite": lambda c: c.positive_definite,
    "independent": lambda c: c.independent(c.positive, 2),
    "mixture": lambda c: c.MixtureSameFamilyConstraint(c.positive),
    "cat": lambda c: c.cat([c.positive, c.real], -1, [1, 2]),
    "stack": lambda c: c.stack([c.positive, c.real, c.boolean], -1),
}


def candidates(rng):
    """Batches (2, 3, 3) that are inside of some sets."""
    random = rng.standard_normal((2, 3, 3))
    lower = np.tril(random)
    lower[:, range(3), range(3)] = abs(lower[:, range(3), range(3)])
    nan = random.copy()
    nan[0, 0, 0] = np.nan
    rows = lower / np.sqrt((lower**2).sum(-1, keepdims=True))
    return [
        random, nan, abs(random), rng.integers(0, 2, (2, 3, 3)).astype(float),
        rng.integers(-2, 3, (2, 3, 3)).astype(float), rng.random((2, 3, 3)), np.eye(3)[None],
        rng.dirichlet(np.ones(3), (2, 3)), lower, rows, lower @ lower.swapaxes(1, 2),
        random + random.swapaxes(1, 2), np.ones((2, 3, 3)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_sets_as_torch(name, torch, rng):
    mine, theirs = (SETS[name](t.distributions.constraints) for t in (minigrad, torch))
    assert mine.event_dim == theirs.event_dim and mine.is_discrete == theirs.is_discrete
    if name not in ("cat", "stack"):  # torch prints the class only: Cat()
        assert repr(mine) == repr(theirs)
    members = 0
    for value in candidates(rng):
        a = mine.check(minigrad.tensor(value)).numpy()
        b = theirs.check(torch.tensor(value)).numpy()
        assert a.shape == b.shape and (a == b).all()
        members += a.sum()
    assert members


@pytest.mark.parametrize(
    "program",
    [
        lambda c: c.independent(3, 1),
        lambda c: c.independent(c.real, 1.5),
        lambda c: c.independent(c.real, -1),
        lambda c: c.dependent.check(None),
        lambda c: c.dependent.is_discrete,
        lambda c: c.dependent_property(lambda self: 3).event_dim,
        lambda c: c.cat([c.real, 3]),
        lambda c: c.cat([c.real], 0, [1, 2]),
        lambda c: c.MixtureSameFamilyConstraint(1),
        lambda c: c.Constraint().check(1),
    ],
    ids=range(10),
)
def test_errors_of_sets_as_torch(program, same_error):
    same_error(lambda t: program(t.distributions.constraints))


def test_dependent_properties():
    d, c = minigrad.distributions, minigrad.distributions.constraints
    assert c.is_dependent(d.Uniform.support) and not d.Uniform.support.is_discrete
    assert d.Uniform.support.event_dim == 0 and d.Multinomial.support.event_dim == 1
    assert d.Uniform(0.0, 2.0).support.upper_bound == 2
    assert c.dependent(event_dim=1).event_dim == 1 and not c.is_dependent(c.real)


VECTOR, MATRIX = (2, 3), (2, 3, 3)
TRANSFORMS = {
    "Exp": (lambda d, t: d.ExpTransform(), VECTOR),
    "Sigmoid": (lambda d, t: d.SigmoidTransform(), VECTOR),
    "Tanh": (lambda d, t: d.TanhTransform(), VECTOR),
    "Softplus": (lambda d, t: d.SoftplusTransform(), VECTOR),
    "Power": (lambda d, t: d.ComposeTransform(
        [d.ExpTransform(), d.PowerTransform(t.tensor([0.5, -2.0, 3.0]))]), VECTOR),
    "Affine": (lambda d, t: d.AffineTransform(2.0, -3), VECTOR),
    "Affine of vectors": (lambda d, t: d.AffineTransform(
        t.ones(3), t.tensor([0.5, -2.0, 3.0]), event_dim=1), VECTOR),
    "Softmax": (lambda d, t: d.SoftmaxTransform(), VECTOR),
    "StickBreaking": (lambda d, t: d.StickBreakingTransform(), VECTOR),
    "LowerCholesky": (lambda d, t: d.LowerCholeskyTransform(), MATRIX),
    "PositiveDefinite": (lambda d, t: d.PositiveDefiniteTransform(), MATRIX),
    "CorrCholesky": (lambda d, t: d.CorrCholeskyTransform(), (2, 6)),
    "Abs": (lambda d, t: d.AbsTransform(), VECTOR),
    "Cumulative": (lambda d, t: d.CumulativeDistributionTransform(
        d.Normal(t.zeros(()), t.ones(()))), VECTOR),
    "Compose": (lambda d, t: d.ComposeTransform(
        [d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]), VECTOR),
    "Inverse": (lambda d, t: d.ComposeTransform(
        [d.TanhTransform(), d.AffineTransform(3, 2)]).inv.inv, VECTOR),
    "Independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), VECTOR),
    "Reshape": (lambda d, t: d.ReshapeTransform((3, 3), (9,)), MATRIX),
    "Cat": (lambda d, t: d.CatTransform(
        [d.ExpTransform(), d.AffineTransform(1.0, 2.0)], -1, [1, 2]), VECTOR),
    "Stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 0), VECTOR),
    "identity": (lambda d, t: d.identity_transform, VECTOR),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_as_torch(name, torch, rng):
    make, shape = TRANSFORMS[name]
    x = rng.standard_normal(shape)
    found = []
    for t in (minigrad, torch):
        transform = make(t.distributions, t)
        leaf = t.tensor(x, requires_grad=True)
        y = transform(leaf)
        values = {"y": y, "x": transform.inv(y)}
        try:
            values["log"] = transform.log_abs_det_jacobian(leaf, y)
            values["log of inverse"] = transform.inv.log_abs_det_jacobian(y, leaf)
            values["log"].sum().backward()
            values["gradient"] = leaf.grad
        except (NotImplementedError, RuntimeError) as error:
            assert t is minigrad or type(error).__name__ == found[0].get("error"), error
            values["error"] = type(error).__name__
        texts = [repr(transform), transform.bijective, tuple(transform.forward_shape(y.shape))
                 if name in ("Exp", "Affine") else tuple(transform.forward_shape(leaf.shape)),
                 tuple(transform.inverse_shape(y.shape))]  # fmt: skip
        for side in ("domain", "codomain"):
            try:
                texts.append((repr(getattr(transform, side)), getattr(transform, side).event_dim))
            except NotImplementedError:
                texts.append(None)
        try:
            texts.append(np.asarray(transform.sign).tolist())
        except NotImplementedError:
            texts.append("no sign")
        found.append({**values, "texts": texts})
    mine, theirs = found
    if name in ("Cat", "Stack"):
        mine["texts"], theirs["texts"] = (f["texts"][1:4] for f in found)  # texts of classes
    assert str(mine.pop("texts")).replace("minigrad", "torch") == str(theirs.pop("texts"))
    assert mine.keys() == theirs.keys()
    for key in theirs.keys() - {"error"}:
        if theirs[key] is None:
            assert mine[key] is None
            continue
        a, b = (v[key].detach().numpy() for v in (mine, theirs))
        assert a.shape == b.shape, key
        np.testing.assert_allclose(a, b, 1e-7, 1e-7, err_msg=key)


@pytest.mark.parametrize("name", ["real", "positive", "nonnegative", "less_than", "greater_than",
                                  "unit_interval", "interval", "half_open_interval", "simplex",
                                  "corr_cholesky", "lower_cholesky", "positive_definite",
                                  "independent", "cat", "stack", "boolean"])  # fmt: skip
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries_as_torch(name, registry, torch, rng):
    x = rng.standard_normal((2, 3, 3))
    if name == "stack":
        x = x[..., :2]
    found = []
    for t in (minigrad, torch):
        c = t.distributions.constraints
        wanted = SETS[name](c) if name != "stack" else c.stack([c.positive, c.real], -1)
        try:
            transform = getattr(t.distributions, registry)(wanted)
        except NotImplementedError as error:
            found.append(str(error))
            continue
        y = transform(t.tensor(x))
        assert bool(wanted.check(y).all())
        found.append((y.numpy(), transform.inv(y).numpy()))
    if isinstance(found[1], str):
        assert found[0] == found[1]
        return
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, 1e-7, 1e-7)


def test_registering():
    d = minigrad.distributions

    class Even(d.constraints.Constraint):
        pass

    registry = d.constraint_registry.ConstraintRegistry()
    registry.register(Even, lambda c: d.ExpTransform())
    assert registry(Even()) == d.ExpTransform()
    with pytest.raises(TypeError, match="Expected constraint to be either"):
        registry.register(int, lambda c: None)


def test_equality_cache_and_copies():
    d = minigrad.distributions
    assert d.ExpTransform() == d.ExpTransform() != d.TanhTransform()
    assert d.AffineTransform(1, 2) == d.AffineTransform(1, 2) != d.AffineTransform(1, 3)
    assert (
        d.ExpTransform().inv == d.ExpTransform().inv
        and d.ExpTransform().inv.inv == d.ExpTransform()
    )
    x = minigrad.full((2,), 20.0)
    plain, cached = d.TanhTransform(), d.TanhTransform().with_cache()
    assert plain.inv(plain(x)).isinf().all() and cached.inv(cached(x)) is x
    composed = d.ComposeTransform([d.TanhTransform(), d.AffineTransform(1.0, 2.0)]).with_cache()
    assert composed.inv(composed(x)) is x
    assert copy.deepcopy(composed).parts[1] == composed.parts[1]
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        d.ExpTransform(cache_size=2)


@pytest.mark.parametrize(
    "program",
    [
        lambda d, t: d.ReshapeTransform((3,), (2,)),
        lambda d, t: d.ReshapeTransform((3,), (1, 3)).forward_shape(t.Size([2])),
        lambda d, t: d.CorrCholeskyTransform().forward_shape(t.Size([2])),
        lambda d, t: d.CorrCholeskyTransform().inverse_shape(t.Size([2, 3])),
        lambda d, t: d.StickBreakingTransform().forward_shape(t.Size([])),
        lambda d, t: d.StickBreakingTransform().event_dim + d.CorrCholeskyTransform().event_dim,
        lambda d, t: d.IndependentTransform(d.ExpTransform(), 2)(t.ones(3)),
        lambda d, t: d.CatTransform([d.ExpTransform(), 3]),
        lambda d, t: d.StackTransform([d.ExpTransform()], 0)(t.ones(3)),
        lambda d, t: d.AbsTransform().sign,
        lambda d, t: d.biject_to(d.constraints.boolean),
        lambda d, t: d.utils.tril_matrix_to_vec(t.eye(3), 3),
    ],
    ids=range(12),
)
def test_errors_of_transforms_as_torch(program, same_error):
    same_error(lambda t: program(t.distributions, t))


def test_triangles(torch, rng):
    from minigrad.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

    matrix = rng.standard_normal((2, 4, 4))
    for diagonal in (0, -1, -2, 1):
        vec = tril_matrix_to_vec(minigrad.tensor(matrix), diagonal)
        wanted = torch.distributions.utils.tril_matrix_to_vec(torch.tensor(matrix), diagonal)
        assert (vec.numpy() == wanted.numpy()).all()
        if diagonal <= 0:
            assert (vec_to_tril_matrix(vec, diagonal).numpy() == np.tril(matrix, diagonal)).all()
    for size in (4, 5):  # torch takes 4 for 3, and fails later
        with pytest.raises(ValueError, match=f"The size of last dimension is {size}"):
            vec_to_tril_matrix(minigrad.ones(size))
