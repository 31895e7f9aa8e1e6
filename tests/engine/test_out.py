"""`out=`: results that are written into given tensors, as torch does it."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad._out import NAMES
from tests.engine import op_db


def _parts(result):
    return list(result) if isinstance(result, tuple) else [result]


def _difference(ours, sample):
    """What is wrong with a call with `out=`; None for calls that minigrad refuses without it."""
    given, args, kwargs = op_db.from_torch((sample.input, sample.args, dict(sample.kwargs)), [])
    with minigrad.no_grad():
        try:
            expected = ours(given, *args, **kwargs)
        except (RuntimeError, TypeError, NotImplementedError):
            return None
        if not all(isinstance(part, minigrad.Tensor) for part in _parts(expected)):
            return None
        out = [minigrad.empty(0, dtype=part.dtype) for part in _parts(expected)]
        try:
            result = ours(given, *args, **kwargs, out=tuple(out) if out[1:] else out[0])
        except TypeError as error:
            return str(error)
    for mine, target, right in zip(_parts(result), out, _parts(expected), strict=True):
        if mine is not target:
            return "the result is another tensor"
        arrays = mine.detach().numpy(), right.detach().numpy()
        if not np.array_equal(*arrays, equal_nan=arrays[0].dtype.kind in "fc"):
            return "values differ"
    return None


def _differences(entries):
    wrong = []
    for entry in entries:
        sample = next(iter(op_db.samples(entry, "float64", errors=False)), None)
        if sample is not None and (found := _difference(op_db.operator(entry), sample)):
            wrong.append(f"{op_db.label(entry)}: {found}")
    return wrong


def _with_out():
    return [
        entry
        for entry in op_db.entries()
        # nn: few; mm: the database has torch.sparse's function of that name; sparse: samples that
        # have no array
        if entry.supports_out
        and op_db.operator(entry)
        and not entry.name.startswith(("nn.", "mm", "sparse."))
    ]


@pytest.mark.needs("torch", "expecttest")
def test_some_of_torchs_operators(rng):
    entries = _with_out()
    assert len(entries) > 200
    wrong = _differences([entries[i] for i in rng.choice(len(entries), 40, replace=False)])
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.needs("torch", "expecttest")
def test_all_of_torchs_operators():
    wrong = _differences(_with_out())
    assert not wrong, "\n".join(wrong)


@pytest.mark.needs("torch")
def test_the_names_are_torchs(torch):
    """No name of the list is misspelled, or of a function that minigrad lacks."""
    assert not [name for name in NAMES if not hasattr(torch, name) or not hasattr(minigrad, name)]


ERRORS = {
    "a gradient would be lost": lambda m: m.add(m.ones(2, requires_grad=True), 1, out=m.zeros(2)),
    "out requires grad": lambda m: m.add(m.ones(2), 1, out=m.zeros(2, requires_grad=True)),
    "one memory": lambda m: m.add(m.ones(2, 3), 1, out=m.zeros(2, 1).expand(2, 3)),
    "dtype": lambda m: m.div(m.ones(2), 2, out=m.zeros(2, dtype=m.int32)),
}


@pytest.mark.parametrize("program", ERRORS.values(), ids=ERRORS)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_without_gradients_leaves_may_be_given():
    leaf, out = minigrad.ones(2, requires_grad=True), minigrad.zeros(2)
    with minigrad.no_grad():
        minigrad.add(leaf, leaf, out=out)
    assert out.tolist() == [2, 2] and not out.requires_grad


def test_another_shape():
    a = minigrad.arange(3.0)
    empty = minigrad.empty(0)
    assert minigrad.exp(a, out=empty) is empty and empty.shape == (3,)
    other = minigrad.ones(2, 2)
    with pytest.warns(UserWarning, match=r"since it had shape \[2, 2\]"):
        minigrad.neg(a, out=other)
    assert other.tolist() == [0, -1, -2]
    with pytest.raises(TypeError, match="a tuple of 2 tensors"):
        minigrad.sort(a, out=empty)
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not numpy.ndarray"):
        minigrad.neg(a, out=np.zeros(3))


def test_an_input_may_be_the_output(rng):
    values = rng.standard_normal((3, 3))
    x = minigrad.from_numpy(values.copy())
    assert minigrad.matmul(x, x, out=x) is x
    np.testing.assert_allclose(x.numpy(), values @ values)
    x = minigrad.tensor([3.0, 1.0, 2.0])
    order = minigrad.empty(3, dtype=minigrad.int64)
    found = minigrad.sort(x, out=(x, order))
    assert found.values is x and x.tolist() == [1, 2, 3] and order.tolist() == [1, 2, 0]
