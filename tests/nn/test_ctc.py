"""`ctc_loss`: values, gradients of any order and refusals, beside torch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import kernels
import minigrad
from minigrad import backends
from minigrad.nn import functional as F
from minigrad.ops import ctc
from tests.nn.helpers import close


def test_a_target_that_cannot_be_spelled_has_no_finite_gradient():
    """Two equal classes in two steps: there is no time for the blank between them."""
    x = minigrad.zeros(2, 2, 3, requires_grad=True)
    targets = minigrad.tensor([[1, 1], [1, 2]])
    F.ctc_loss(x.log_softmax(2), targets, [2, 2], [2, 2]).backward()
    assert x.grad.isnan().all(2).tolist() == [[True, False]] * 2


def test_ctc_loss_is_a_kernel_with_gradients_of_any_order(rng):
    scores = minigrad.from_numpy(rng.standard_normal((6, 3, 4))).requires_grad_()
    labels = minigrad.tensor([[1, 2], [3, 3], [2, 2]])

    def loss(scores, zero_infinity=False, lengths=(2, 2, 1), times=(6, 5, 4)):
        given = scores.log_softmax(2), labels, times, lengths
        return F.ctc_loss(*given, zero_infinity=zero_infinity)

    with backends.use("numba"), kernels.trace() as trace:
        loss(scores).backward()
    counts = {family: count for (family, _), (count, _) in trace.rows.items()}
    assert counts["ctc"] == 1
    assert counts["ctc_backward"] == 3
    assert not any("ctc_step" in name for name in counts)
    for given in ({}, {"zero_infinity": True, "times": (6, 2, 0), "lengths": (0, 2, 1)}):
        taken = functools.partial(loss, **given)
        assert minigrad.autograd.gradcheck(taken, (scores,), check_forward_ad=True)
        assert minigrad.autograd.gradgradcheck(taken, (scores,))


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_by_operations_is_that_of_the_kernel(zero_infinity, rng):
    """Also without time, without labels, and without a path."""
    given = rng.standard_normal((5, 6, 4)), rng.integers(1, 4, (6, 3))
    times, lengths = (minigrad.tensor(n) for n in ([5, 5, 0, 0, 2, 4], [3, 0, 0, 2, 3, 2]))
    found = []
    for function in (ctc.ctc, ctc._by_operations):
        x = minigrad.from_numpy(given[0].copy()).log_softmax(2).detach().requires_grad_()
        losses = function(x, minigrad.tensor(given[1]), times, lengths, 0, zero_infinity)
        losses.backward(minigrad.arange(6.0).double() + 1)
        found.append((losses.detach(), x.grad.nan_to_num(7, 7, 7)))
    assert np.isinf(found[0][0]).tolist() == [not zero_infinity and n in (3, 4) for n in range(6)]
    close(found[0][0].nan_to_num(posinf=-1), found[1][0].nan_to_num(posinf=-1))
    known = [n for n in range(6) if n not in (3, 4)]
    close(found[0][1][:, known], found[1][1][:, known])


def test_ctc_loss_of_targets_in_one_vector_and_of_one_sequence_as_torch(rng, torch):
    given, targets = rng.standard_normal((9, 3, 6)), rng.integers(1, 6, (3, 4))
    lengths = [3, 0, 4]
    joined = np.concatenate([row[:n] for row, n in zip(targets, lengths, strict=True)])
    padded = np.where(np.arange(4) < np.array(lengths)[:, None], targets, 999)  # never read
    found = []
    for m in (minigrad, torch):
        x = m.from_numpy(given.copy()).requires_grad_()
        logs, times, counts = x.log_softmax(2), m.tensor([9, 7, 8]), m.tensor(lengths)
        several = [
            m.nn.functional.ctc_loss(logs, m.from_numpy(t), times, counts, reduction=reduction)
            for t in (joined, padded)
            for reduction in ("none", "sum", "mean")
        ]
        single = [
            m.nn.functional.ctc_loss(
                logs[:, 0], m.from_numpy(t), m.tensor(9), m.tensor(4), reduction=reduction
            )
            for t in (targets[0].astype(np.int32), targets[:1])
            for reduction in ("none", "mean")
        ]
        nothing = m.nn.functional.ctc_loss(
            logs, m.from_numpy(targets), [9, 0, 0], [1, 1, 0], reduction="none", zero_infinity=True
        )
        m.stack([*(y.sum() for y in (*several, *single)), nothing.sum()]).cos().sum().backward()
        found.append([y.detach().numpy() for y in (*several, *single, nothing)] + [x.grad.numpy()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        assert ours.shape == theirs.shape


def test_a_compiled_step_with_ctc_loss_is_as_without(rng):
    def step(x, targets):
        F.ctc_loss(x.log_softmax(2), targets, [8, 7], [2, 1]).backward()
        return x.grad

    compiled = minigrad.compile(step)
    for _ in range(4):  # another word each time
        values, words = rng.standard_normal((8, 2, 5)), minigrad.tensor(rng.integers(1, 5, (2, 2)))
        found = [f(minigrad.from_numpy(values).requires_grad_(), words) for f in (step, compiled)]
        close(*found)
    with pytest.raises(RuntimeError, match="target [5-9] is none of the classes"):
        compiled(minigrad.from_numpy(values).requires_grad_(), words + 5)


CTC_REFUSALS = {  # changes of a correct call, and torch's words
    "targets of no dimension": ({"targets": lambda t: t[0, 0]}, "Expected 1 to 2 dimensions, but"),
    "targets of three": (
        {"targets": lambda t: t[None]},
        "got 3-dimensional tensor for argument #2",
    ),
    "another batch": (
        {"targets": lambda t: t[:2]},
        "to have size 3 at dimension 0, but got size 2",
    ),
    "a longer word": ({"target_lengths": [2, 5, 1]}, "at least 5 at dimension 1, but got size 4"),
    "too many in one": ({"targets": lambda t: t.reshape(-1)[:9]}, "size 6 at dimension 0, but got"),
    "too few in one": ({"targets": lambda t: t.reshape(-1)[:5]}, "size 6 at dimension 0, but got"),
    "floating times": ({"input_lengths": [6.0, 6.0, 6.0]}, "input_lengths must be integral"),
    "floating lengths": ({"target_lengths": [2.0, 2.0, 2.0]}, "target_lengths must be integral"),
    "two times": ({"input_lengths": [6, 6]}, "input_lengths must be of size batch_size"),
    "two lengths": ({"target_lengths": [2, 2]}, "target_lengths must be of size batch_size"),
    "more time": ({"input_lengths": [6, 7, 6]}, "input_lengths to have value at most 6, but got v"),
    "time below 0": (
        {"input_lengths": [6, -1, 6]},
        "input_lengths to have value at least 0, but g",
    ),
    "below 0": ({"target_lengths": [2, -1, 2]}, "target_lengths to have value at least 0, but got"),
    "blank above": ({"blank": 5}, "blank must be in label range"),
    "blank below": ({"blank": -1}, "blank must be in label range"),
    "four dimensions": ({"log_probs": lambda x: x[None]}, "Expected 3-dimensional tensor"),
    "one dimension": ({"log_probs": lambda x: x[0, 0]}, "Expected 3-dimensional tensor"),
    "nothing": ({"log_probs": lambda x: x[:0]}, "log_probs tensor must not be empty"),
    "integers": ({"log_probs": lambda x: x.long()}, "not implemented for 'Long'"),
    "complex": ({"log_probs": lambda x: x + 0j}, "not implemented for 'ComplexFloat'"),
}


@pytest.mark.parametrize("case", CTC_REFUSALS)
def test_ctc_loss_refuses_as_torch(case, torch):
    changes, words = CTC_REFUSALS[case]
    raised = []
    for m in (minigrad, torch):
        given = {"log_probs": m.zeros(6, 3, 5), "targets": m.ones(3, 4, dtype=m.int64)}
        given |= {"input_lengths": m.tensor([6, 6, 6]), "target_lengths": m.tensor([2, 2, 2])}
        for name, change in changes.items():
            if callable(change):
                given[name] = change(given[name])
            else:
                given[name] = m.tensor(change) if name.endswith("lengths") else change
        with pytest.raises(RuntimeError) as info:
            m.nn.functional.ctc_loss(**given)
        raised.append(info.value)
    assert [words in str(one) for one in raised] == [True, True]
    assert type(raised[0]) is type(raised[1])


def test_ctc_loss_of_symbols_that_cannot_be(torch, rng):
    logs = rng.standard_normal((7, 2, 5))
    logs[:, :, 4] = logs[2:4, 1, 1] = -np.inf  # one never occurs, one not at two times
    found = []
    for m in (minigrad, torch):
        x = m.from_numpy(logs.copy()).requires_grad_()
        loss = m.nn.functional.ctc_loss(
            x, m.tensor([[1, 2], [1, 1]]), [7, 6], [2, 2], reduction="sum"
        )
        loss.backward()
        found.append((loss.item(), x.grad.numpy()))
    (ours, gradient), (theirs, expected) = found
    assert ours == pytest.approx(theirs, rel=1e-12)
    known = ~np.isnan(expected)  # torch's is NaN where a logarithm is -inf
    assert known[:, 0, :4].all()
    np.testing.assert_allclose(gradient[known], expected[known], rtol=1e-9, atol=1e-12)
