"""A shared array that is said to be stored to as a whole has a store to every element."""

from __future__ import annotations

import ast
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.analysis.uniformity import analyse
from kernels.simt.transforms import coverage
from kernels.simt.transforms.coverage import covers
from tests.simt import model, programs

SHAPES = [(2, 3), (2, 3), (3, 2), (3, 2), (4, 3), (6, 2)]
PLACES = ["y, t", "t, y", "y + 2 * k, t", "y, t + 3 * k", "t, y + 2 * k", "y, t - 1", "k, t"]
HEAD = """
def kernel(x, out, n, q):
    tile = cuda.shared.array({}, int64)
    t, y = cuda.threadIdx.x, cuda.threadIdx.y
    i = t + 3 * y
"""


class Tile(model.Memory):
    """Remembers which elements were stored to, and whether any was read."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.read = False

    def _checked(self, index):
        return index  # a store elsewhere stores to no element

    def __getitem__(self, index):
        self.read = True
        return super().__getitem__(index)

    @property
    def whole(self) -> bool:
        return all(place in self.values for place in itertools.product(*map(range, self.shape)))


@st.composite
def fills(draw: st.DrawFn) -> tuple[tuple[int, int], str]:
    """(the shape of `tile`, a kernel that stores to it): all of it, or nearly."""
    shape = draw(st.sampled_from(SHAPES))
    columns = shape[1]
    linear = draw(st.sampled_from(["i", "i + 6 * k", "2 * i + k", "5 - i", "i + k", "t", "y"]))
    lines = []
    for _ in range(draw(st.integers(1, 2))):
        divided = f"({linear}) // {columns}, ({linear}) % {columns}"
        places = [*[divided] * len(PLACES), *PLACES]
        store = f"tile[{draw(st.sampled_from(places))}] = n"
        if draw(st.integers(0, 2)) == 0:
            store = f"if {draw(st.sampled_from(['t < n', 'n > 0', 'y == 0']))}: {store}"
        elif "k" in store:
            ends = draw(st.sampled_from(["2", "3", "1", "0, 2", "1, 2", "n", "1, -1, -1"]))
            store = f"for k in range({ends}): {store}"
        lines.append(store.replace("k", "0") if "for" not in store else store)
    if draw(st.integers(0, 9)) == 0:
        lines.append("out[i, 0] = tile[y, 0]")
    return shape, HEAD.format(shape) + "".join(f"    {line}\n" for line in lines)


def check(fill: tuple, values: dict) -> bool:
    shape, text = fill
    program = programs.normal_form(text)
    if not covers(program, analyse(program), program.body, "tile"):
        return False
    tile = Tile(shape)
    model.run_threads(program, {**programs.arguments(values), "tile": tile})
    assert tile.whole and not tile.read, text
    return True


def test_what_is_said_to_be_covered_is():
    said = []

    @programs.PROPERTY
    @given(fills(), programs.inputs())
    def run(fill, values) -> None:
        said.append(check(fill, values))

    run()
    assert sum(said) >= 5


def every_statement(right):
    """`_mark` that takes conditions for granted."""

    def mark(facts, body, *rest):
        inside = [s for stmt in body if isinstance(stmt, ast.If) for s in stmt.body]
        right(facts, [*body, *inside], *rest)

    return mark


FAULTS = {
    "a condition taken for granted": ("_mark", every_statement(coverage._mark)),
    "a turn too many": ("constant", lambda node: getattr(node, "value", 0) + 1),
    "reads forgotten": ("expressions", lambda stmt: []),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name, monkeypatch):
    monkeypatch.setattr(coverage, *FAULTS[name])
    assert programs.fault_is_found(check, fills(), programs.inputs())
