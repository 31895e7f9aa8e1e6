"""Where a kernel asks whether it is interrupted: between blocks, and in loops that may not end.

In loops, `_rest` counts iterations and threads down to the next question. So it costs next to
nothing, and comes every few milliseconds at least.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import types

from kernels.simt.analysis.loops import ends_by_itself, is_counted, trip_count
from kernels.simt.analysis.uniformity import has_loads
from kernels.simt.backend.interrupt import INTERRUPTED
from kernels.simt.emit.writer import Writer
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import breaks, statements
from kernels.simt.ir.program import Program
from kernels.simt.ir.safety import Safety
from kernels.simt.transforms.fission import BlockFor, BlockWhile, Region, Scalars, walk

_LIMIT = 1 << 14  # threads and iterations between two questions
_NEST = 1 << 8  # what an iteration around another loop counts as
_PIECE = 1 << 20  # iterations of a loop that is free of branches, so that it can be vectorised


class Polls:
    """Writes the polls of one kernel. Those of this project, whose loops end, are polled between
    blocks only."""

    def __init__(self, writer: Writer, program: Program, kinds: dict[str, types.Type]) -> None:
        self.writer, self.program, self.kinds = writer, program, kinds
        self.in_loops = program.safety is not Safety.SHIPPED
        self.within = False  # a loop over a range, whose iterations are counted

    def begin(self) -> None:
        """At the begin of the function."""
        if self.in_loops:
            self.writer.line(f"_rest = {_LIMIT}")

    # -- blocks ----------------------------------------------------------------------------

    @contextmanager
    def blocks(self, counter: str) -> Iterator[None]:
        """The loop over the blocks, in pieces; loops may make blocks long."""
        loops = [s for s in statements(self.program.body) if isinstance(s, ast.For | ast.While)]
        long = any(isinstance(s, ast.While) or trip_count(s) is None for s in loops)
        count = 4 if long else max(4, _LIMIT // self.program.threads)
        with self.writer.block(f"for _piece in range(_first, _last, {count}):"):
            self.between_blocks()
            blocks = f"range(_piece, _min(_piece + {count}, _last))"
            with self.writer.block(f"for {counter} in {blocks}:"):
                yield

    def between_blocks(self) -> None:
        with self.writer.block("if _stopped(_error):"):
            self.writer.line(f"return {INTERRUPTED}")

    # -- loops -----------------------------------------------------------------------------

    def counts(self, loop: ast.For | BlockFor) -> bool:
        """Whether the iterations of a loop over a range are counted."""
        return self.in_loops and is_counted(loop)

    @contextmanager
    def loop(
        self,
        loop: ast.For | BlockFor,
        target: str,
        hint: Hint | None,
        text: Callable[[ast.expr], str],
        row: int = 0,
    ) -> Iterator[None]:
        """A loop over a range with its body written meanwhile; `row`: it is one of so many lanes.

        The outermost of several is polled in each iteration, and so is one of a row, whose inner
        loop is the one over its threads, and one with a `break` or with bounds from memory, which
        cannot be vectorised or is short. Another runs in pieces.
        """
        if self.within or not self.counts(loop):
            with self.writer.loop(target, text(loop.iter), hint):
                yield
            return
        self.within = True
        assert isinstance(loop.iter, ast.Call)  # of `range`
        bounds = loop.iter.args
        nest = _has_counted(loop)
        from_memory = any(has_loads(self.program, bound) for bound in bounds)
        successive = len(bounds) < 3 and self.kinds.get(target) == types.int64
        if nest or row or from_memory or breaks(loop.body):
            with self.writer.loop(target, text(loop.iter), hint):
                self.poll(_NEST if nest else max(row, 1))
                yield
        elif not successive:
            with self.writer.loop(target, text(loop.iter), hint):
                self.writer.line("_rest -= 1")
                yield
            self._ask()
        else:
            with self._pieces(target, hint, bounds, text):
                yield
        self.within = False

    @contextmanager
    def _pieces(
        self, target: str, hint: Hint | None, bounds: list[ast.expr], text: Callable
    ) -> Iterator[None]:
        writer, end, piece = self.writer, f"_end_{target}", f"_piece_{target}"
        start = text(bounds[0]) if len(bounds) == 2 else "0"
        writer.line(f"{end} = {text(bounds[-1])}")
        with writer.block(f"for {piece} in range({start}, {end}, {_PIECE}):"):
            with writer.loop(target, f"range({piece}, _min({piece} + {_PIECE}, {end}))", hint):
                writer.line("_rest -= 1")
                yield
            self._ask()

    def while_loop(self, loop: ast.While) -> None:
        """At the begin of an iteration of one thread."""
        if not ends_by_itself(loop.test, loop.body, self.program.body):
            self.poll(1)

    def block_while(self, loop: BlockWhile, work: int) -> None:
        """At the begin of an iteration of `work` threads together."""
        parts = [item for item in walk(loop.body) if isinstance(item, Region | Scalars)]
        always = [s for item in parts if item in loop.body for s in item.body]
        others = [s for item in parts if item not in loop.body for s in item.body]
        if not ends_by_itself(loop.test, always, self.program.body, others):
            self.poll(work)

    def poll(self, work: int) -> None:
        if self.in_loops:
            self.writer.line(f"_rest -= {work}")
            self._ask()

    def _ask(self) -> None:
        with self.writer.block("if _rest < 0:"):
            self.writer.line(f"_rest = {_LIMIT}")
            self.between_blocks()


def _has_counted(loop: ast.For | BlockFor) -> bool:
    """Whether there is another counted loop in a loop."""
    if isinstance(loop, BlockFor):
        inner = [i for i in walk(loop.body) if isinstance(i, BlockFor)]
        parts = [i for i in walk(loop.body) if isinstance(i, Region | Scalars)]
        return any(map(is_counted, inner)) or any(_counted_in(part.body) for part in parts)
    return _counted_in(loop.body)


def _counted_in(body: list[ast.stmt]) -> bool:
    return any(isinstance(s, ast.For) and is_counted(s) for s in statements(body))
