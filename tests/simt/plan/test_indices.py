"""Which indices of a plan are marked as not negative."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass

import pytest
from numba import float32
from numba.core import types

from kernels.simt import cuda
from kernels.simt.driver import listing, pipeline
from kernels.simt.ir.nodes import Unsigned
from kernels.simt.ir.safety import Safety
from kernels.simt.plan.parts import ClippedLoop
from kernels.simt.transforms.fission import Region

VECTOR = types.Array(types.float32, 1, "C")


def planned(func, *args, safety=Safety.UNCHECKED):
    """A kernel of one block after all passes but the last."""
    return pipeline.Compilation(func, args, (8, 1, 1), safety=safety).run(pipeline.PASSES[:-1])


def subscripts(part) -> list[tuple[str, bool]]:
    """(index, whether it is marked) of all subscripts in a plan or a part of it."""
    if isinstance(part, list | tuple | dict):
        inner = part.values() if isinstance(part, dict) else part
        return [found for one in inner for found in subscripts(one)]
    if is_dataclass(part) and not isinstance(part, Region):
        return [found for field in fields(part) for found in subscripts(getattr(part, field.name))]
    nodes = ast.walk(part) if isinstance(part, ast.AST) else ()
    return [
        (listing.text(node.slice), isinstance(node.slice, Unsigned))
        for node in nodes
        if isinstance(node, ast.Subscript)
    ]


def parts_of(part):
    """Everything in a plan, or in a part of it, that is a part of a plan."""
    if isinstance(part, list | dict):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from parts_of(inner)
    elif is_dataclass(part):
        yield part
        for field in fields(part):
            yield from parts_of(getattr(part, field.name))


def marks(done) -> dict[str, set[bool]]:
    """By index: whether it is marked where it is used."""
    plan, found = done.plan, {}
    for index, marked in subscripts([plan.items, plan.regions, plan.inputs, plan.collectives]):
        found.setdefault(index, set()).add(marked)
    return found


def test_an_index_is_marked_where_the_conditions_around_it_prove_it():
    def kernel(x, n):
        t = cuda.threadIdx.x
        i, j = t - n, t - n + 1
        x[t] = 1
        x[n] = 2
        if i >= 0 and x[i] > 0:
            x[i] = 3
        if not (x[t + 1] > 0 and j >= 0):
            x[j] = 4
        else:
            x[t + 2] = x[j if j > t else t + 3]

    assert marks(planned(kernel, VECTOR, types.int64)) == {
        "threadIdx.x": {True},
        "n": {False},
        "i": {True},  # in the condition, too, after the first part of it
        "threadIdx.x + 1": {True},
        "j": {True, False},  # in the branch where it fails, and in the other
        "threadIdx.x + 2": {True},
        "j if j > threadIdx.x else threadIdx.x + 3": {True},
    }


def test_an_index_that_is_loaded_is_marked_by_its_type():
    def kernel(x, order, offsets):
        t = cuda.threadIdx.x
        x[order[t]] = x[offsets[t]]

    unsigned, signed = (types.Array(kind, 1, "C") for kind in (types.uint32, types.int32))
    found = marks(planned(kernel, VECTOR, unsigned, signed))
    assert found == {
        "threadIdx.x": {True},
        "order[threadIdx.x]": {True},
        "offsets[threadIdx.x]": {False},
    }


def test_conditions_of_masks_and_collectives_are_marked_too():
    def kernel(x, n):
        t = cuda.threadIdx.x
        while x[t] > n:
            x[t] = cuda.shfl_sync(0xFFFFFFFF, x[t + 1], t)
            cuda.syncthreads()

    assert set().union(*marks(planned(kernel, VECTOR, types.int64)).values()) == {True}


@pytest.mark.parametrize("safety", [Safety.BOUNDS, Safety.DEBUG])
def test_indices_that_are_checked_are_not_marked(safety):
    def kernel(x):
        tile = cuda.shared.array(8, float32)
        tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]
        cuda.syncthreads()
        x[cuda.threadIdx.x] = tile[7 - cuda.threadIdx.x]

    found = marks(planned(kernel, VECTOR, safety=safety))
    assert found and set().union(*found.values()) == {False}


def test_marks_leave_the_program_as_it_is():
    def kernel(x):
        x[cuda.threadIdx.x] = 1

    done = planned(kernel, VECTOR)
    assert marks(done) == {"threadIdx.x": {True}}
    nodes = (node for stmt in done.program.body for node in ast.walk(stmt))
    assert not any(isinstance(node, Unsigned) for node in nodes)


def test_the_larger_of_two_numbers_is_an_index_if_one_of_them_is():
    def kernel(x, n):
        t = cuda.threadIdx.x
        x[max(0, t - n)] = 1
        x[max(t - n, t - 9)] = 2
        x[min(t, n - 9)] = 3

    assert marks(planned(kernel, VECTOR, types.int64)) == {
        "_maximum(0, threadIdx.x - n)": {True},
        "_maximum(threadIdx.x - n, threadIdx.x - 9)": {False},
        "_minimum(threadIdx.x, n - 9)": {False},
        # where a clamp changes nothing in any thread:
        "threadIdx.x - n": {True},
        "threadIdx.x": {True},
    }


def test_an_index_is_marked_where_its_condition_became_the_bounds_of_a_loop():
    def kernel(x, y):
        i = cuda.grid(1)
        if 1 < i and i < x.shape[0]:
            y[i] = x[i - 2] + x[i - 3]

    done = planned(kernel, VECTOR, VECTOR)
    assert any(isinstance(part, ClippedLoop) for part in parts_of(done.plan))
    assert marks(done) == {"0": {False}, "i": {True}, "i - 2": {True}, "i - 3": {False}}


def test_an_index_is_marked_where_its_condition_is_checked_for_all_threads():
    def kernel(x, y):
        i = cuda.grid(1)
        total = float32(0)
        for offset in range(-1, 2):
            j = i + offset
            if 0 <= j and j < x.shape[0]:
                total += x[j]
        y[i] = total

    done = planned(kernel, VECTOR, VECTOR)
    assert any(plan.guard_free for plan in done.plan.regions.values())
    assert marks(done) == {"0": {False}, "i": {True}, "j": {True}}


def test_an_index_of_a_choice_is_marked_where_it_is_checked_for_all_threads():
    def kernel(x, y):
        i = cuda.grid(1)
        total = float32(0)
        for offset in range(-1, 2):
            j = i + offset
            total += x[j] if 0 <= j and j < x.shape[0] else float32(0)
        y[i] = total

    done = planned(kernel, VECTOR, VECTOR)
    assert any(plan.guard_free for plan in done.plan.regions.values())
    assert marks(done) == {"0": {False}, "i": {True}, "j": {True}}


def test_an_index_is_marked_by_the_condition_of_a_block():
    def kernel(x, y, n):
        if n < 2:
            y[0] = x[n + 2]
        else:
            y[cuda.threadIdx.x] = x[n - 2]
            cuda.syncthreads()
            y[cuda.threadIdx.x + 1] = x[n - 3]

    found = marks(planned(kernel, VECTOR, VECTOR, types.int64))
    assert found["n - 2"] == {True} and found["n + 2"] == found["n - 3"] == {False}


def test_an_index_is_marked_by_the_condition_that_failed():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i < 2:
            y[i] = x[i - 1]
        else:
            y[i] = x[i - 2]

    assert marks(planned(kernel, VECTOR, VECTOR)) == {
        "threadIdx.x": {True},
        "threadIdx.x - 1": {False},
        "threadIdx.x - 2": {True},
    }


def test_no_condition_tells_of_a_number_that_changes():
    def kernel(x, y, n):
        i = cuda.threadIdx.x - n
        if i >= 2:
            y[0] = x[i - 2]
            for _ in range(n):
                if i >= 1:
                    i -= 1
                    y[1] = x[i - 1]

    found = marks(planned(kernel, VECTOR, VECTOR, types.int64))
    assert found == {"0": {False}, "1": {False}, "i - 2": {False}, "i - 1": {False}}
