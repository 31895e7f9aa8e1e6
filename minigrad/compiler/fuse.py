"""What is done to recorded calls before they get memory: copies that are not needed go, and chains
of pointwise operations become one kernel.

A pointwise operation is a line of text (`kernels.pointwise`). Where a result has one reader, which
is pointwise too, the text of the first goes into that of the second in place of the argument: the
sum is a line like those of the table, and the same generator makes its kernel.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernels.launchers.common import compute_dtype
from kernels.pointwise import FUNCTIONS, Expr
from minigrad.compiler.graph import TEMPORARY, Buffer, Call, Memory
from minigrad.compiler.places import arrays_in, is_array, may_share, place_of

_MAX_ARGUMENTS = 10
_MAX_TEXT = 2000  # characters
_CHOICES = ("where", "maximum", "minimum", "abs")


class Fusion:
    """The passes over the calls of a step.

    lower: finds the launches of a new call. kept: buffers that are read after the step.
    fused: how many operations have become part of others.
    """

    def __init__(
        self,
        parts: list[list[Call]],
        memory: Memory,
        placed: dict[Buffer, np.ndarray],
        kept: Iterable[Buffer | None],
        lower: Callable[[Call], bool],
    ) -> None:
        self.parts, self._memory, self._placed, self._lower = parts, memory, placed, lower
        self._kept = {buffer for buffer in kept if buffer is not None}
        self.fused = self.copies = 0

    def run(self) -> None:
        """Run all passes."""
        self._drop_copies()
        for number in range(len(self.parts)):
            self._fuse(number)

    # -- copies ----------------------------------------------------------------------------

    def _drop_copies(self) -> None:
        """A copy of a whole buffer that nothing reads afterwards is the buffer itself."""
        last: dict[Buffer, Call] = {}
        first: dict[Buffer, Call] = {}
        for calls in self.parts:
            for call in calls:
                for buffer in self._memory.of_call(call):
                    first.setdefault(buffer, call)
                    last[buffer] = call
        for calls in self.parts:
            in_front = calls is self.parts[0]
            calls[:] = [c for c in calls if not self._is_needless(c, first, last, in_front)]

    def _is_needless(self, call: Call, first: dict, last: dict, in_front: bool) -> bool:
        if call.name != "copy" or len(call.outputs) != 1 or call.writes:
            return False
        (source,), (target,) = call.args, call.outputs
        old, new = self._memory.find(source), self._memory.find(target)
        if old is None or new is None or old.kind != TEMPORARY or old in self._kept:
            return False
        whole = source.nbytes == old.stop - old.start and target.nbytes == new.stop - new.start
        alike = source.strides == target.strides and source.dtype == target.dtype
        if not (whole and alike) or last[old] is not call or first[new] is not call:
            return False
        if old in self._placed:
            return False
        if new in self._placed:
            self._placed[old] = self._placed.pop(new)
        self._memory.merge(new, old)
        if in_front:  # after the first part, the recording has the elements in the copy
            old.moved = source, target
        if new in self._kept:
            self._kept.add(old)
        last[old] = last[new]
        self.copies += 1
        return True

    # -- chains ----------------------------------------------------------------------------

    def _fuse(self, number: int) -> None:
        """Move each pointwise operation into its only reader, from the last call to the first."""
        calls = self.parts[number]
        users: dict[Buffer, list[Call]] = {}
        for part in self.parts:
            for call in part:
                for buffer in self._memory.of_call(call):
                    users.setdefault(buffer, []).append(call)
        places = {id(call): i for i, call in enumerate(calls)}
        changed: dict[int, list[Call]] = {}  # by the place of the last of a chain: its producers
        gone: set[int] = set()
        lines: dict[int, Line] = {}
        for place, call in reversed(list(enumerate(calls))):
            line = Line.of(call)
            if line is None:
                continue
            found = self._reader(call, users, places)
            reader = None if found is None else lines.get(found)
            if found is None or reader is None:
                lines[place] = line
                continue
            joined = reader.absorb(line, call.outputs[0])
            if joined is None or not self._unchanged(calls, line, place, found, joined):
                lines[place] = line
                continue
            lines[found] = joined
            changed.setdefault(found, []).append(call)
            gone.add(place)
            for buffer in self._memory.of_call(call):
                users[buffer] = [calls[found] if u is call else u for u in users[buffer]]
        for place, producers in changed.items():
            new = lines[place].call(calls[place])
            if not self._lower(new):
                gone -= {places[id(p)] for p in producers}
                continue
            calls[place] = new
            self.fused += len(producers)
        calls[:] = [call for i, call in enumerate(calls) if i not in gone]

    def _reader(self, call: Call, users: dict, places: dict) -> int | None:
        """The place of the one call that reads a result; None if it is needed elsewhere."""
        buffer = self._memory.find(call.outputs[0]) if call.outputs else None
        if buffer is None or buffer in self._kept or buffer in self._placed:
            return None
        readers = {id(u): u for u in users[buffer] if u is not call}
        if len(readers) != 1:
            return None
        return places.get(next(iter(readers)))

    def _unchanged(
        self, calls: list[Call], line: Line, place: int, later: int, joined: Line
    ) -> bool:
        """Whether what a line reads is the same at a later place."""
        arrays = [a for a in line.inputs if is_array(a)]
        inputs = {self._memory.find(a) for a in arrays}
        target = self._memory.find(joined.target)
        others = [a for a in arrays if self._memory.find(a) is target]
        if joined.in_place and not all(same_view(a, joined.target) for a in others):
            return False
        for call in calls[place + 1 : later]:
            if inputs & {self._memory.find(a) for a in call.writes}:
                return False
        return True


class Line:
    """A pointwise call as a line of text: inputs are its arguments, numbers its parameters."""

    def __init__(
        self,
        text: ast.expr,
        names: dict[str, Any],
        masks: frozenset[str],
        title: tuple[str, ...],
        like: Call,
    ) -> None:
        self.text, self.names, self.masks, self.title = text, names, masks, title
        self.result = like.args[0].result
        self.dtype = _computed(like)
        self.target: Any = like.kwargs.get("out", like.outputs[0] if like.outputs else None)
        self.in_place = bool(like.writes)

    @property
    def inputs(self) -> list[Any]:
        return list(self.names.values())

    @classmethod
    def of(cls, call: Call) -> Line | None:
        """The line of a call; None for one that cannot be part of a chain."""
        if call.name != "pointwise" or not call.launches or len(call.outputs) > 1:
            return None
        expr, *inputs = call.args
        dtype = _computed(call)
        if dtype.kind != "f" or compute_dtype(dtype) != dtype:
            return None
        target = call.kwargs.get("out", call.outputs[0] if call.outputs else None)
        if target is None or (target.dtype != dtype and expr.result != "bool"):
            return None
        params = call.kwargs.get("params", ())
        values = dict(zip(expr.args, inputs)) | dict(zip(expr.params, params))
        if any(is_array(a) and a.dtype != dtype and n not in expr.masks for n, a in values.items()):
            return None
        tree = ast.parse(expr.text, mode="eval").body
        return cls(tree, values, expr.masks, (expr.name,), call)

    def absorb(self, producer: Line, array: np.ndarray) -> Line | None:
        """This line with the producer's text in place of the array that it computes."""
        mine = [n for n, a in self.names.items() if same_view(a, array)]
        others = [a for n, a in self.names.items() if n not in mine]
        if not mine or any(may_share(a, array) for a in arrays_in(others)):
            return None
        as_mask = [n in self.masks for n in mine]
        if any(as_mask) != (producer.result == "bool") or all(as_mask) != any(as_mask):
            return None
        if producer.dtype != self.dtype or array.shape != self.target.shape:
            return None
        names: dict[str, Any] = {}
        masks: set[str] = set()
        renamed: list[dict[str, str]] = [{}, {}]
        for which, line in enumerate((self, producer)):
            for name, value in line.names.items():
                if which == 0 and name in mine:
                    continue
                known = [n for n, v in names.items() if v is value and is_array(v)]
                known = [n for n in known if (n in masks) == (name in line.masks)]
                new = known[0] if known else f"v{len(names)}"
                renamed[which][name], names[new] = new, value
                if name in line.masks:
                    masks.add(new)
        inner = _Rename(renamed[1]).visit(_copied(producer.text))
        own = _Rename(renamed[0], dict.fromkeys(mine, inner)).visit(_copied(self.text))
        if len(names) > _MAX_ARGUMENTS or len(ast.unparse(own)) > _MAX_TEXT:
            return None
        joined = _copy_of(self)
        joined.text, joined.names, joined.masks = own, names, frozenset(masks)
        joined.title = producer.title + self.title
        return joined

    def expr(self, arrays: tuple[str, ...]) -> Expr:
        """The line of a table for it; `arrays` are the names of its arrays in their order."""
        params = tuple([n for n in self.names if n not in arrays])
        text = ast.unparse(self.text)
        return _expr(text, arrays, params, self.masks, self.result, self.title)

    def is_cheap(self) -> bool:
        """Whether it may as well be computed several times: there are no calls but choices."""
        calls = [n.func for n in ast.walk(self.text) if isinstance(n, ast.Call)]
        return all(isinstance(c, ast.Name) and c.id in _CHOICES for c in calls)

    def call(self, old: Call) -> Call:
        """The pointwise call of this line, which computes what `old` does."""
        arrays = tuple([n for n, v in self.names.items() if is_array(v)])
        expr = self.expr(arrays)
        kwargs = {
            "params": [self.names[n] for n in expr.params],
            "dtype": self.dtype,
            "out": self.target,
        }
        inputs = [self.names[n] for n in arrays]
        return Call(
            "pointwise", old.function, (expr, *inputs), kwargs,
            outputs=old.outputs, places=old.places, writes=old.writes,
        )  # fmt: skip


def _copy_of(line: Line) -> Line:
    made = object.__new__(Line)
    made.__dict__.update(line.__dict__)
    return made


def _copied(tree: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(tree), mode="eval").body


class _Rename(ast.NodeTransformer):
    """Gives variables other names, or puts expressions in their place."""

    def __init__(self, names: dict[str, str], expressions: dict[str, ast.expr] | None = None):
        self.names, self.expressions = names, expressions or {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.expressions:
            return self.expressions[node.id]
        return ast.Name(self.names.get(node.id, node.id), ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return ast.Call(node.func, [self.visit(a) for a in node.args], [])


@functools.cache
def _expr(
    text: str, args: tuple, params: tuple, masks: frozenset, result: str, title: tuple[str, ...]
) -> Expr:
    """One line for equal texts, so that they share a kernel."""
    digest = hashlib.sha256(repr((text, args, params, sorted(masks))).encode()).hexdigest()[:8]
    words = [name.replace(".", "_") for name in title]
    if len(words) > 6:
        words = [*words[:3], f"{len(words) - 5}_more", *words[-2:]]
    return Expr(f"fused_{'_'.join(words)}_{digest}", args, text, params, (), result, "any", masks)


def _computed(call: Call) -> np.dtype:
    """The dtype that a pointwise call computes in."""
    given = call.kwargs.get("dtype")
    if given is not None:
        return np.dtype(given)
    found = [a.dtype for a in arrays_in(call.args)]
    return np.result_type(*found) if found else np.dtype(object)


def same_view(a: Any, b: np.ndarray) -> bool:
    """Whether both are the same elements."""
    if not is_array(a):
        return False
    return place_of(a) == place_of(b) and a.dtype == b.dtype
