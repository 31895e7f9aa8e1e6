"""Scratch of remembered launches: memory that is shared by arrays that are not used at once."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from kernels.launchers import conv, conv_planes, relaunch
from kernels.sequence import Launch
from minigrad.ops.conv import Conv2d, ConvData, ConvWeight


def launch(*args) -> Launch:
    return Launch(None, (1,), (1,), args)


def test_scratch_begins_where_scratch_that_is_not_used_any_more_did():
    x, result = np.empty(3), np.empty(5)
    first, long, second, large, unused = (np.empty(n) for n in (10, 7, 8, 20, 1))
    launches = [
        launch(x, first, 1.0),
        launch(first[2:], long),
        launch(long, second),
        launch(second[::2], large),
        launch(large, long, result),
    ]
    kept, places = relaunch._placed([result, first, long, second, large, unused], launches, 1)
    numbers = {id(array): number for number, array in places}
    assert numbers[id(result)] == -1 and numbers[id(first)] == numbers[id(second)]
    # `large` is not there: `second` is still read by the launch that writes it
    assert len({*numbers.values()}) == len(kept) == 5 and kept[0] is result
    for number, array in places:
        assert kept[-1 - number].nbytes >= array.nbytes


def test_larger_scratch_makes_what_it_takes_the_place_of_larger():
    result, small, between, large = (np.empty(n) for n in (2, 3, 4, 9))
    launches = [
        launch(small),
        launch(small, between),
        launch(between, large),
        launch(large, result),
    ]
    kept, places = relaunch._placed([result, small, between, large], launches, 1)
    assert [a.size for a in kept] == [2, 9, 4]
    assert dict(places).keys() == {-1, -2, -3}


def remembered(op, *arrays, **attrs):
    from minigrad.autograd.node import _forward

    return dispatch.relaunch(None, dispatch.active, _forward(op, **attrs), *arrays)


@pytest.mark.parametrize("part", [1 << 11, 1 << 20])
@pytest.mark.parametrize("kernel, stride", [(3, (1, 1)), (4, (2, 2))])
def test_convolutions_are_remembered_on_a_cpu(part, kernel, stride, rng, monkeypatch):
    """In one part and in several, with the same results as the first time, for other images."""
    monkeypatch.setattr(conv_planes, "PART", part)
    conv._plans.clear()
    how = {"stride": stride, "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    w = minigrad.tensor(rng.normal(size=(6, 5, kernel, kernel)).astype(np.float32))
    bias, seen = minigrad.tensor(rng.normal(size=6).astype(np.float32)), []
    for _ in range(4):
        x = minigrad.tensor(rng.normal(size=(6, 5, 12, 14)).astype(np.float32))
        y = Conv2d.apply(x, w, bias, **how)
        g = minigrad.tensor(rng.normal(size=y.shape).astype(np.float32))
        dx = ConvData.apply(g, w, None, shape=x.shape, **how)
        dw = ConvWeight.apply(g, x, shape=w.shape, **how)
        seen.append((x, g, y, dx, dw))
    for x, g, *expected in (seen[0], seen[3]):
        arrays = x._array, g._array, w._array
        found = (
            remembered(Conv2d, arrays[0], w._array, bias._array, **how),
            remembered(ConvData, arrays[1], w._array, None, shape=x.shape, **how),
            remembered(ConvWeight, arrays[1], arrays[0], shape=w.shape, **how),
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other.numpy())
    conv._plans.clear()
