"""Pointwise operations become part of the kernel that makes what they read (an epilogue, applied as
that kernel stores) or of the reduction that reads what they make (a prologue).

Both are found among the launches of two calls in succession: the intermediate array is an argument
of exactly one launch of the other call, and nothing else reads it. `kernels.numba_cuda.fused` makes
the kernel. Before it is used it runs once beside the launches that it replaces, on the arrays of
the recording: it must give the same results up to rounding. In CUDA C there are none so far.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels.launchers.common import on_gpu
from kernels.sequence import Launch
from kernels.support.interrupts import deferred
from minigrad.compiler.fuse import Line, same_view
from minigrad.compiler.graph import TEMPORARY, Buffer, Call, Memory
from minigrad.compiler.lower import dialect_in_use, numbers
from minigrad.compiler.places import arrays_in, bounds, is_array, may_share, on_host

# Operations whose kernels read each element of an array once, or a few times in rows
_ONCE = ("reduce",)
_IN_ROWS = ("softmax", "log_softmax", "softmax_backward", "cross_entropy", "layer_norm", "rms_norm")
# On a CPU: bytes of intermediate arrays that a kernel must save in each replay, arrays of that size
# that a chain may read, and bytes below which a kernel that stores in another order loses
_LEAST_IN_ALL, _OPERANDS = 1 << 18, 3
_LEAST = {"max_pool2d_owner": 1 << 23, "matmul_coalesced": 1 << 23}
_TOLERANCE = {4: 1e-5, 8: 1e-12}  # bytes of a float


class _Pair(NamedTuple):
    """A pointwise call and the one that it becomes part of.

    launch, place: the launch of `other` that has the intermediate array as an argument, and where.
    """

    pointwise: Call
    line: Line
    other: Call
    launch: int
    place: int
    value: str | None  # the argument of the line that an epilogue is given

    @property
    def array(self) -> Any:
        """The intermediate array."""
        return self.line.target if self.value is None else self.line.names[self.value]


class Attachment:
    """The pass over the calls of a step.

    kept: buffers that are read after the step. fused: how many operations are part of others now.
    """

    def __init__(self, parts: list[list[Call]], memory: Memory, kept: set[Buffer | None]) -> None:
        self.parts, self._memory, self._kept = parts, memory, kept
        self.fused = 0
        self._bytes: Counter[Any] = Counter()  # of the intermediate arrays, by the new kernel
        self._users: dict[Buffer, list[Call]] = {}
        for call in (call for part in parts for call in part):
            for buffer in self._memory.of_call(call):
                self._users.setdefault(buffer, []).append(call)

    def run(self) -> None:
        """Fuse what can be and pays, in all parts."""
        for calls in self.parts:
            for call in calls:
                for pair, made in itertools.islice(self._possible(calls, call), 1):
                    self._bytes[made.kernels[-1]] += pair.array.nbytes
        for calls in self.parts:
            for call in list(calls):
                self._attach(calls, call)

    def _possible(self, calls: list[Call], call: Call) -> Iterator[tuple[_Pair, Call]]:
        """What a call can become part of, and the call that is made of both."""
        line = Line.of(call)
        if line is None:
            return
        pairs = [*self._prologues(calls, call, line), *self._epilogues(calls, call, line)]
        for pair in sorted(pairs, key=lambda pair: pair.other.name == "copy"):  # the least to gain
            made = self._fused(pair)
            if made is not None:
                yield pair, made

    def _attach(self, calls: list[Call], call: Call) -> None:
        for pair, made in self._possible(calls, call):
            first, last = sorted((calls.index(call), calls.index(pair.other)))
            if not self._may_move(calls, first, last) or not self._pays(pair, made):
                continue
            if not _agree(pair, made):
                continue
            calls[last] = made
            del calls[first]
            for buffer in self._memory.of_call(call) | self._memory.of_call(pair.other):
                old = [u for u in self._users[buffer] if u is not call and u is not pair.other]
                self._users[buffer] = [*old, made] if buffer in self._memory.of_call(made) else old
            self.fused += 1
            return

    def _pays(self, pair: _Pair, made: Call) -> bool:
        """Whether the new kernel is worth its compilation. On a GPU each launch counts; on a CPU
        small arrays stay in a cache between two launches, which costs next to nothing."""
        if on_gpu(pair.array):
            return True
        launch = pair.other.launches[pair.launch]  # type: ignore[index]
        full = [a for a in pair.line.inputs if is_array(a) and a.size == pair.array.size]
        least = _LEAST.get(launch.kernel.__name__, 0)
        return (
            len(full) <= _OPERANDS
            and pair.array.nbytes >= least
            and self._bytes[made.kernels[-1]] >= _LEAST_IN_ALL
        )

    # -- what fits ---------------------------------------------------------------------------

    def _epilogues(self, calls: list[Call], call: Call, line: Line) -> Iterable[_Pair]:
        """The calls whose result this one reads, alone."""
        target = line.target
        if not target.flags.c_contiguous:
            return
        for name, array in line.names.items():
            if not is_array(array) or name in line.masks:
                continue
            other = self._only_partner(call, array)
            if other is None or other.name == "pointwise" or array.shape != target.shape:
                continue
            more = [a for a in line.inputs if is_array(a) and a is not array]
            if any(may_share(a, array) for a in more):
                continue
            if any(may_share(a, target) and not same_view(a, target) for a in more):
                continue
            found = _argument(other, array)
            if found and other in calls and self._memory.find(array) in self._made(other):
                yield _Pair(call, line, other, *found, name)

    def _prologues(self, calls: list[Call], call: Call, line: Line) -> Iterable[_Pair]:
        """The call that reads this one's result, alone."""
        array = line.target
        if call.writes or not array.flags.c_contiguous or line.result == "bool":
            return
        other = self._only_partner(call, array)
        if other is None or other not in calls or self._memory.find(array) in self._made(other):
            return
        found = _argument(other, array)
        if found and (other.name in _ONCE or other.name in _IN_ROWS):
            yield _Pair(call, line, other, *found, None)

    def _made(self, call: Call) -> set[Buffer | None]:
        return {self._memory.find(a) for a in call.outputs}

    def _only_partner(self, call: Call, array: np.ndarray) -> Call | None:
        """The one other call that reads or writes a temporary array."""
        buffer = self._memory.find(array)
        if buffer is None or buffer.kind != TEMPORARY or buffer in self._kept:
            return None
        others = [u for u in self._users[buffer] if u is not call]
        whole = array.nbytes == buffer.stop - buffer.start
        return others[0] if len(others) == 1 and whole and not others[0].writes else None

    def _may_move(self, calls: list[Call], first: int, last: int) -> bool:
        """Whether the first of two calls may as well come where the last one is."""
        moved, there = calls[first], calls[last]
        reads = {self._memory.find(a) for a in moved.reads()} - {None}
        makes = self._made(moved) | {self._memory.find(a) for a in moved.writes}
        for call in calls[first + 1 : last]:
            if reads & {self._memory.find(a) for a in call.writes}:
                return False
            if makes & self._memory.of_call(call):
                return False
        in_place = {self._memory.find(a) for a in there.writes}
        return not in_place & reads

    # -- the new call ------------------------------------------------------------------------

    def _fused(self, pair: _Pair) -> Call | None:
        fused = getattr(dialect_in_use(), "fused", None)
        if fused is None:  # a dialect whose kernels are no Python
            return None
        line, old = pair.line, pair.other.launches[pair.launch]  # type: ignore[index]
        epilogue = pair.value is not None
        there = old.args[pair.place]
        names = [n for n, v in line.names.items() if is_array(v) and n != pair.value]
        views: list[tuple[Any, Any]] = []
        for name in names:
            view = _in_shape(line.names[name], line.target.shape, there)
            if view is None:
                return None
            views.append(view)
        whole = [v for v, kept in views if kept is not None and all(kept)]
        if not epilogue:
            if not whole:
                return None
            if fused.loads(old.kernel, pair.place) > 1 and not line.is_cheap():
                return None
        expr = line.expr((pair.value, *names) if pair.value is not None else tuple(names))
        chain = fused.Chain(expr, pair.value, tuple([kept for _, kept in views]), line.dtype)
        kernel = fused.joined(old.kernel, pair.place, chain)
        if kernel is None:
            return None
        args = list(old.args)
        if epilogue:
            args[pair.place] = line.target.reshape(there.shape)
        else:
            args[pair.place] = whole[0]
        params = [line.names[n] for n in expr.params]
        launch = Launch(kernel, old.grid, old.block, (*args, *[v for v, _ in views], *params))
        launches = list(pair.other.launches)  # type: ignore[arg-type]
        launches[pair.launch] = launch
        intermediate = self._memory.find(pair.array)
        mine = pair.pointwise
        both = (pair.other, mine) if epilogue else (mine, pair.other)
        reads = [a for c in both for a in arrays_in((c.args, c.kwargs))]
        reads = [a for a in reads if self._memory.find(a) is not intermediate]
        outputs = [a for c in both for a in c.outputs if self._memory.find(a) is not intermediate]
        return Call(
            pair.other.name, pair.other.function, tuple(reads),
            outputs=tuple(outputs), writes=mine.writes, launches=launches,
            kernels=(*pair.other.kernels, kernel),
        )  # fmt: skip


def _argument(call: Call, array: np.ndarray) -> tuple[int, int] | None:
    """(number of the launch, of its argument) that is all of an array; None if more touch it."""
    found = [
        (number, place)
        for number, launch in enumerate(call.launches or ())
        for place, value in enumerate(launch.args)
        if is_array(value) and may_share(value, array)
    ]
    if len(found) != 1:
        return None
    value = call.launches[found[0][0]].args[found[0][1]]  # type: ignore[index]
    same = bounds(value) == bounds(array) and value.dtype == array.dtype
    return found[0] if same and value.flags.c_contiguous and array.flags.c_contiguous else None


def _in_shape(array: Any, shape: tuple[int, ...], there: Any) -> tuple[Any, Any] | None:
    """(an array that broadcasts to `shape`, as a kernel reads it beside `there`, which dimensions
    of that it has); None where it would have to be copied."""
    if array.size == 1:
        return array.reshape(1), None
    if array.shape == shape and array.flags.c_contiguous:
        return array.reshape(there.shape), (True,) * there.ndim
    if not array.flags.c_contiguous or shape != there.shape[there.ndim - len(shape) :]:
        return None
    sizes = (1,) * (there.ndim - array.ndim) + array.shape
    kept = tuple([n == m and m > 1 for n, m in zip(sizes, there.shape, strict=True)])
    return array.reshape([n for n, k in zip(sizes, kept, strict=True) if k]), kept


def _agree(pair: _Pair, made: Call) -> bool:
    """Whether the new launches compute what the two calls do; what they wrote is restored."""
    written = [*pair.other.outputs, *pair.pointwise.outputs, *pair.pointwise.writes]
    before = [(a, a.copy()) for a in written]
    results = [*made.outputs, *made.writes]

    def computed(launches: Iterable[Launch]) -> list[Any]:
        for array, old in before:
            array[...] = old
        for launch in launches:
            launch._replace(args=numbers(launch.args)).bound()()
        return [on_host(a).copy() for a in results]

    mine, theirs = pair.pointwise.launches or [], pair.other.launches or []
    in_order = [*theirs, *mine] if pair.value is not None else [*mine, *theirs]
    with deferred():  # the arrays may be tensors' memory
        wanted, found = computed(in_order), computed(made.launches or [])
        for array, old in before:
            array[...] = old
    return all(map(_close, wanted, found))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return a.tobytes() == b.tobytes()
    size = np.nanmax(np.abs(a), initial=0, where=np.isfinite(a))
    tolerance = _TOLERANCE.get(a.itemsize, 1e-2)
    return np.allclose(a, b, rtol=tolerance, atol=tolerance * size, equal_nan=True)
