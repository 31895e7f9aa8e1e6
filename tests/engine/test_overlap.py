"""Memory that torch refuses to write into, since elements of operands or of the result meet."""

from __future__ import annotations

import pytest

import minigrad


def vector(change):
    return lambda t: change(t.arange(1.0, 7.0), t)


def matrix(change):
    return lambda t: change(t.arange(4.0).view(2, 2), t)


def expanded(change):
    return lambda t: change(t.ones(1).expand(3), t)


REFUSED = {
    "shift": vector(lambda x, t: x[1:].add_(x[:-1])),
    "shift back": vector(lambda x, t: x[:-1].mul_(x[1:])),
    "copy": vector(lambda x, t: x[1:].copy_(x[:-1])),
    "item": vector(lambda x, t: x.__setitem__(slice(1, None), x[:-1])),
    "transposed": matrix(lambda x, t: x.add_(x.t())),
    "copy transposed": matrix(lambda x, t: x.copy_(x.t())),
    "row": matrix(lambda x, t: x.sub_(x[0])),
    "element": vector(lambda x, t: x.div_(x[0])),
    "third operand": vector(lambda x, t: x[1:].addcmul_(x[1:], x[:-1])),
    "keyword": vector(lambda x, t: x[1:].clamp_(min=x[:-1])),
    "detached": vector(lambda x, t: x[1:].add_(x.detach()[:-1])),
    "out": vector(lambda x, t: t.add(x[:-1], 1, out=x[1:])),
    "out, second operand": vector(lambda x, t: t.mul(x[1:], x[:-1], out=x[1:])),
    "out, a list": vector(lambda x, t: t.cat([x[1:4], x[:3]], out=x)),
    "scatter": vector(lambda x, t: x.scatter_(0, t.tensor([1, 2]), x[:2])),
    "index_add": vector(lambda x, t: x.index_add_(0, t.tensor([1, 2]), x[:2])),
    "positions": vector(lambda x, t: x.__setitem__(t.tensor([1, 2]), x[:2])),
    "mask": vector(lambda x, t: x.__setitem__(x > 3, x[:3])),
    "expanded": expanded(lambda x, t: x.add_(1)),
    "expanded, items": expanded(lambda x, t: x.__setitem__(slice(0, 2), 5.0)),
    "expanded, random": expanded(lambda x, t: x.uniform_()),
    "expanded, integers": expanded(lambda x, t: x.random_(3)),
    "expanded, out": expanded(lambda x, t: t.add(t.ones(3), 1, out=x)),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_refused_as_torch(program, same_error):
    same_error(program)


ALLOWED = {
    "itself": vector(lambda x, t: x.add_(x)),
    "the same view": vector(lambda x, t: x[1:].mul_(x[1:])),
    "apart": vector(lambda x, t: x[:3].copy_(x[3:])),
    "interleaved": vector(lambda x, t: x[::2].add_(x[1::2])),
    "rows": matrix(lambda x, t: x[0].add_(x[1])),
    "another shape": matrix(lambda x, t: x.view(-1)[:2].add_(x[1])),
    "in brackets": vector(lambda x, t: x.__setitem__(slice(1, 3), x[1:3] * 2)),
    "out": vector(lambda x, t: t.exp(x, out=x)),
    "out of a part": vector(lambda x, t: t.add(x[:3], x[:3], out=x[:3])),
    "of length 1": lambda t: t.ones(1).expand(1).add_(1),
    "empty": lambda t: t.ones(1).expand(0).add_(1),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", ALLOWED.values(), ids=ALLOWED)
def test_allowed_as_torch(program, torch):
    found = [program(t) for t in (minigrad, torch)]
    assert [x if x is None else pytest.approx(x.tolist()) for x in found[:1]] == [
        x if x is None else x.tolist() for x in found[1:]
    ]


def test_a_refused_change_changes_nothing():
    x = minigrad.arange(4.0)
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 2, 3]
