"""`compiler.set_stance`: whether compiled functions record, replay or run eagerly."""

from __future__ import annotations

import pytest

import minigrad
from minigrad.compiler import set_stance


def counts(function):
    return function.recorded, function.replayed, function.eager


def doubled():
    return minigrad.compile(lambda x: x * 2 + 1)


def call(function, n):
    x = minigrad.rand(n)
    assert minigrad.equal(function(x), x * 2 + 1)


def test_a_block_is_eager_and_restores_what_was_before():
    function = doubled()
    with set_stance("force_eager"):
        call(function, 3)
    assert counts(function) == (0, 0, 1)
    call(function, 3)
    call(function, 3)
    assert counts(function) == (1, 1, 1)


def test_what_has_no_recording():
    function = doubled()
    call(function, 3)
    with set_stance("eager_on_recompile"):
        call(function, 3)
        call(function, 4)
    assert counts(function) == (1, 1, 1)
    with set_stance("fail_on_recompile"):
        call(function, 3)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            function(minigrad.rand(5))
    assert counts(function) == (1, 2, 1)


def test_the_first_call_is_eager():
    function = doubled()
    with set_stance("eager_then_compile"):
        call(function, 3)
        assert counts(function) == (0, 0, 1)
        call(function, 3)
        call(function, 3)
    assert counts(function) == (1, 1, 1)


def test_a_decorator_and_a_call_for_good():
    function = doubled()
    call(function, 3)

    @set_stance(force_backend="eager")
    def eagerly():
        call(function, 3)

    call(function, 3)
    assert counts(function) == (1, 1, 0)
    eagerly()
    assert counts(function) == (1, 1, 1)
    set_stance("force_eager")
    try:
        call(function, 3)
    finally:
        set_stance("default")
    assert counts(function) == (1, 1, 2)


@pytest.mark.parametrize(
    "given", [{"stance": "eager"}, {"stance": "force_eager", "force_backend": "eager"}]
)
def test_errors(given):
    with pytest.raises(RuntimeError, match="stance"):
        set_stance(**given)
