"""Random numbers: reproducible, independent of the backend, and of the right distribution."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import backends
from minigrad.random import _order, words

BACKENDS = ["numpy", "numba"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with backends.use(request.param):
        yield request.param


def draws() -> list[np.ndarray]:
    mg.manual_seed(42)
    return [
        mg.rand(3, 5).numpy(),
        mg.randn(7).numpy(),
        mg.randint(0, 10, (6,)).numpy(),
        mg.randperm(9).numpy(),
        mg.ones(4).uniform_(-1, 1).numpy(),
        mg.ops.random.dropout(mg.ones(20), 0.5).numpy(),
    ]


def test_same_seed_same_numbers(backend):
    for a, b in zip(draws(), draws(), strict=True):
        np.testing.assert_array_equal(a, b)
    first = mg.rand(4)
    assert not first.equal(mg.rand(4))


def test_numbers_in_place_are_those_of_new_tensors(backend):
    """Whatever the memory that they are written to."""
    for name, new in (("uniform_", mg.rand), ("normal_", mg.randn)):
        for dtype in (mg.float32, mg.float64, mg.float16):
            whole, tall, wide = [mg.zeros(*s, dtype=dtype) for s in ((3, 4), (4, 3), (3, 8))]
            for target in (whole, tall.t(), wide[:, ::2]):
                version = target._version
                mg.manual_seed(5)
                getattr(target, name)()
                mg.manual_seed(5)
                np.testing.assert_array_equal(target.numpy(), new(3, 4, dtype=dtype).numpy())
                assert target._version == version + 1
    leaf = mg.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.uniform_()
    with mg.no_grad():
        assert leaf.normal_() is leaf


def test_backends_give_the_same_numbers():
    results = []
    for name in BACKENDS:
        with backends.use(name):
            results.append(draws())
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_generators_are_independent(backend):
    a, b = mg.Generator().manual_seed(1), mg.Generator().manual_seed(1)
    x = mg.randn(5, generator=a)
    mg.rand(3)
    assert x.equal(mg.randn(5, generator=b))
    state = a.get_state()
    y = mg.rand(4, generator=a)
    a.set_state(state)
    assert y.equal(mg.rand(4, generator=a)) and a.initial_seed() == 1
    with pytest.raises(RuntimeError, match="16 bytes"):
        a.set_state(mg.zeros(3))
    assert mg.Generator().seed() != mg.Generator().seed()


def test_global_state_round_trip():
    state = mg.get_rng_state()
    a = mg.rand(3)
    mg.set_rng_state(state)
    assert a.equal(mg.rand(3))
    assert mg.manual_seed(5) is mg.default_generator and mg.initial_seed() == 5


def test_distributions(backend):
    """Means and variances within five standard errors."""
    mg.manual_seed(0)
    n = 40_000
    u, z = mg.rand(n).numpy().astype(float), mg.randn(n).numpy().astype(float)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n) and abs(u.var() - 1 / 12) < 0.005
    assert abs(z.mean()) < 5 / np.sqrt(n) and abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    i = mg.randint(-3, 4, (n,)).numpy()
    assert set(i) == set(range(-3, 4)) and abs(i.mean()) < 5 * 2 / np.sqrt(n)
    kept = (mg.ops.random.dropout(mg.ones(n), 0.3).numpy() > 0).mean()
    assert abs(kept - 0.7) < 5 * np.sqrt(0.21 / n)
    assert abs(mg.bernoulli(mg.full((n,), 0.2)).numpy().mean() - 0.2) < 5 * np.sqrt(0.16 / n)
    e = mg.empty(n).exponential_(2.0).numpy()
    assert abs(e.mean() - 0.5) < 5 * 0.5 / np.sqrt(n)
    assert sorted(mg.randperm(100).tolist()) == list(range(100))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 1000, 70_001])
def test_a_permutation_sorts_random_words_stably(n):
    mg.manual_seed(n)
    found = mg.randperm(n)
    mg.manual_seed(n)
    pairs = words(2 * n, None).astype(np.uint64) if n else np.zeros(0, np.uint64)
    keys = (pairs[:n] << np.uint64(32)) | pairs[n:]
    np.testing.assert_array_equal(found.numpy(), np.argsort(keys, kind="stable"))
    few = keys >> np.uint64(47) << np.uint64(47) | keys & np.uint64(1)  # with equal ones
    np.testing.assert_array_equal(_order(few), np.argsort(few, kind="stable"))


def test_multinomial_of_few_draws_what_that_of_many_does(backend, monkeypatch, rng):
    weights = mg.tensor(rng.random((5, 7)) * (rng.random((5, 7)) < 0.7) + 1e-3)
    weights[:, 2] = 0

    def drawn(*args, **kwargs):
        mg.manual_seed(3)
        return mg.multinomial(weights, *args, **kwargs)

    few = drawn(6, replacement=True)
    assert drawn(1).equal(drawn(2)[:, :1])
    monkeypatch.setattr(mg.random, "_FEW", 0)
    assert few.equal(drawn(6, replacement=True)) and not (few == 2).any()
    for wrong in (math.nan, math.inf, -1.0):
        weights.fill_(1)[3, 3] = wrong
        with pytest.raises(RuntimeError, match="`inf`, `nan` or element < 0"):
            drawn(1)


def test_multinomial(backend):
    mg.manual_seed(0)
    weights = mg.tensor([1.0, 0.0, 3.0])
    drawn = mg.multinomial(weights, 20_000, replacement=True).numpy()
    assert set(drawn) == {0, 2} and abs((drawn == 2).mean() - 0.75) < 0.02
    rows = mg.multinomial(mg.tensor([[1.0, 1, 1], [0, 1, 1]]), 2)
    assert rows.shape == (2, 2) and 0 not in rows[1].tolist()
    assert all(len(set(r)) == 2 for r in rows.tolist())
    with pytest.raises(RuntimeError, match="sum of probabilities <= 0"):
        mg.multinomial(mg.zeros(2), 1)
    assert mg.multinomial(weights, 3)[-1] == 1, "what has no weight comes last, as in torch"
    with pytest.raises(RuntimeError, match="without replacement"):
        mg.multinomial(weights, 4)
    with pytest.raises(RuntimeError, match="element < 0"):
        mg.multinomial(mg.tensor([-1.0, 2]), 1)


def test_arguments_and_errors():
    assert mg.rand(2, 3, dtype=mg.float64).dtype is mg.float64 and mg.randn(()).shape == ()
    assert mg.randn(2, requires_grad=True).requires_grad and mg.rand(size=(2,)).shape == (2,)
    assert (
        mg.randint(5, (2,)).dtype is mg.int64
        and mg.randint(0, 5, (2,), dtype=mg.int32).dtype is mg.int32
    )
    assert mg.rand_like(mg.zeros(2, dtype=mg.float64)).dtype is mg.float64
    assert mg.normal(2.0, 0.0, (3,)).tolist() == [2.0] * 3
    assert mg.normal(mg.zeros(3), mg.ones(3)).shape == (3,)
    assert mg.zeros(3).normal_(5.0, 0.0).tolist() == [5.0] * 3
    assert mg.randn_like(mg.zeros(2, 3)).shape == (2, 3)
    assert 0 <= mg.randint_like(mg.zeros(4), 3).max() < 3
    assert set(mg.zeros(50).bernoulli_(0.5).tolist()) == {0.0, 1.0}
    assert 0 <= mg.zeros(3).random_(0, 4).max() < 4
    with pytest.raises(RuntimeError, match="from=5 >= to=2"):
        mg.randint(5, 2, (2,))
    with pytest.raises(RuntimeError, match="std >= 0.0"):
        mg.normal(0.0, -1.0, (2,))
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        mg.rand(2, dtype=mg.int64)
    with pytest.raises(RuntimeError, match="between 0 and 1"):  # F.dropout: ValueError
        mg.dropout(mg.ones(2), 1.5, True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        mg.nn.functional.dropout(mg.ones(2), 1.5)


def test_dropout_gradient_uses_the_same_mask(backend):
    mg.manual_seed(3)
    x = mg.ones(1000, requires_grad=True)
    y = mg.ops.random.dropout(x, 0.4)
    y.sum().backward()
    np.testing.assert_allclose(x.grad, y.detach())


def test_default_generator_is_safe_between_threads():
    mg.manual_seed(0)
    results: list = []
    threads = [
        threading.Thread(target=lambda: results.extend(mg.rand(1).item() for _ in range(50)))
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(results)) == 200


@pytest.mark.parametrize("count", [0, 1, 100, 10_000, 100_000])
def test_permutations_sort_their_keys(count, rng):
    keys = rng.integers(0, 1 << 64, count, dtype=np.uint64)
    np.testing.assert_array_equal(_order(keys), keys.argsort(kind="stable"))
    few = keys >> np.uint64(40) << np.uint64(40)  # with equal ones
    np.testing.assert_array_equal(_order(few), few.argsort(kind="stable"))
    low = keys & np.uint64(0xFFFF)
    np.testing.assert_array_equal(_order(low), low.argsort(kind="stable"))


FROM_A_GENERATOR = {
    "rand": lambda g: mg.rand(30, generator=g),
    "randn": lambda g: mg.randn(30, generator=g),
    "randint": lambda g: mg.randint(0, 1000, (30,), generator=g),
    "randint, 64 bits": lambda g: mg.randint(-(2**62), 2**62, (30,), generator=g),
    "randint_like": lambda g: mg.randint_like(mg.zeros(30), 1000, generator=g),
    "randperm": lambda g: mg.randperm(30, generator=g),
    "bernoulli": lambda g: mg.bernoulli(mg.full((60,), 0.5), generator=g),
    "multinomial": lambda g: mg.multinomial(mg.ones(30), 20, generator=g),
    "multinomial, again": lambda g: mg.multinomial(mg.ones(30), 20, True, generator=g),
    "normal": lambda g: mg.normal(mg.zeros(30), mg.ones(30), generator=g),
    "normal of a shape": lambda g: mg.normal(0.0, 1.0, (30,), generator=g),
    "poisson": lambda g: mg.poisson(mg.full((30,), 50.0), generator=g),
    "uniform_": lambda g: mg.zeros(30).uniform_(generator=g),
    "uniform_ of a range": lambda g: mg.zeros(30).uniform_(1, 2, generator=g),
    "normal_": lambda g: mg.zeros(30).normal_(generator=g),
    "normal_ of a mean": lambda g: mg.zeros(30).normal_(1.0, 2.0, generator=g),
    "random_": lambda g: mg.zeros(30).random_(0, 1000, generator=g),
    "exponential_": lambda g: mg.zeros(30).exponential_(generator=g),
    "bernoulli_": lambda g: mg.zeros(60).bernoulli_(0.5, generator=g),
    "cauchy_": lambda g: mg.zeros(30).cauchy_(generator=g),
    "geometric_": lambda g: mg.zeros(30).geometric_(0.01, generator=g),
    "log_normal_": lambda g: mg.zeros(30).log_normal_(generator=g),
    "xavier_normal_": lambda g: mg.nn.init.xavier_normal_(mg.zeros(5, 6), generator=g),
    "trunc_normal_": lambda g: mg.nn.init.trunc_normal_(mg.zeros(30), generator=g),
}


@pytest.mark.parametrize("name", FROM_A_GENERATOR)
def test_a_generator_is_asked_and_no_other(name):
    """Its seed decides; the numbers go on, and those of the common generator are as they were."""
    draw, own = FROM_A_GENERATOR[name], mg.Generator()
    mg.manual_seed(1)
    before = mg.get_rng_state()
    first, second = draw(own.manual_seed(5)), draw(own)
    assert mg.equal(mg.get_rng_state(), before)
    assert not first.equal(second) and draw(own.manual_seed(5)).equal(first)
    assert not draw(own.manual_seed(6)).equal(first)
    assert not mg.equal(draw(None), first) and not mg.equal(mg.get_rng_state(), before)


def test_integers_like_a_tensor():
    like = mg.zeros(3, 400, dtype=mg.int16)
    found = mg.randint_like(like, -2, 3)
    assert found.dtype is mg.int16 and found.shape == (3, 400)
    assert set(found.reshape(-1).tolist()) == set(range(-2, 3))
    assert set(mg.randint_like(like, 3, dtype=mg.float64).reshape(-1).tolist()) == {0.0, 1.0, 2.0}
    assert mg.randint_like(like.to("meta"), 3).is_meta
    assert mg.randint_like(like.to("meta"), 3, device="cpu").is_cpu
    wide = mg.randint(-(2**63), 2**63 - 1, (4000,)).double()  # two words each
    assert wide.min() < -9e18 and wide.max() > 9e18 and abs(wide.mean()) < 5 * 2**63 / 100
