"""From the block's program to a Python module that Numba compiles.

The module has one function that runs blocks `_first` to `_last` of a grid. A region becomes a loop
over the threads of the block (x innermost); what a thread carries from one region to the next is in
arrays `_s_<name>`, one element a thread.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba.core import types

from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import Facts, exposure
from kernels.simt.emit import collectives
from kernels.simt.emit.rows import RowEmitter, strip_guards
from kernels.simt.emit.writer import Expressions, PerThread, Statements, Writer
from kernels.simt.frontend import calls
from kernels.simt.ir.checks import UNEXPECTED_SIGN
from kernels.simt.ir.nodes import defined, expressions, names, statements, used
from kernels.simt.ir.program import ArrayDecl, Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockIf,
    BlockWhile,
    Item,
    MaskIf,
    MaskWhile,
    Meet,
    Region,
    Scalars,
    walk,
)
from kernels.simt.transforms.row_vectorise import RowPlan, RowPlanner
from kernels.simt.transforms.storage import Storage, assign_storage
from kernels.simt.transforms.unroll_jam import JamPlanner
from kernels.support.errors import Unstructured

PANEL = 8  # blocks
HEADER = ("_first", "_last", "_gx", "_gy", "_gz", "_shared_bytes", "_error")


@dataclass
class Emitter:
    """Writes the function for one kernel."""

    program: Program
    facts: Facts
    items: list[Item]
    storage: Storage
    kinds: dict[str, types.Type]
    ranges: Ranges
    nonnegative: set[str]  # integer parameters that are checked to be >= 0 on entry
    views: dict[str, object]  # half-precision arrays come in as uint16

    around = ()  # what counts the blocks whose threads are at work, if not one
    together = 1  # how many those are

    def __post_init__(self) -> None:
        self.copies: dict[str, int] = {}  # of shared arrays, if not one
        self.writer = Writer()
        self.expressions = Expressions(self.program, self.kinds, self.ranges)
        self.statements = Statements(self.writer, self.expressions)
        self.variables = set(self.facts.defs) - self.facts.scalars
        self.whole_grid = self.program.cooperative
        self.declared: set[str] = set()
        self._plan_rows()
        self.expressions.private = self._private_arrays()
        if self.whole_grid:
            self.program.externs["_empty"] = np.empty
        if self.program.checked:
            self.expressions.marked = self._tracked_arrays()

    def _plan_rows(self) -> None:
        """Decide for every region how its rows of threads run."""
        seed = {"_tx"} | self.storage.slots
        seed |= {a.name for a in self.program.arrays.values() if a.space == "local"}
        given = self.program, self.kinds, self.ranges, seed, set(self.storage.slots)
        self.planner, self.jammer = RowPlanner(*given), JamPlanner(*given)
        self.plans: dict[int, tuple[RowPlan, Storage]] = {}
        self.plain: dict[int, tuple[RowPlan, Storage]] = {}
        self.interiors: dict[int, tuple[RowPlan, Storage, list[str]]] = {}
        for item in walk(self.items):
            if isinstance(item, Region):
                item.body = self._without_unread(item.body)
                if not item.body:
                    continue
                body = [*self._rebuilt_before(item.body), *item.body]
                self.plain[id(item)] = self._stored(self.planner.plain(body))
                if self.program.checked:
                    continue
                stored = self._best(body)
                if stored is not None:
                    self.plans[id(item)] = stored
                    self._plan_interior(item, body)

    def _best(self, body: list[ast.stmt]) -> tuple[RowPlan, Storage] | None:
        """How rows run `body` fastest, if there is more to do than run each thread by itself."""
        for find in (self.jammer.plan, self.planner.plan, self.planner.simple):
            plan = find(body)
            if plan is not None:
                stored = self._stored(plan)
                if self._holds_numbers(stored[1]):
                    return stored
        return None

    def _plan_interior(self, item: Region, body: list[ast.stmt]) -> None:
        """A version of a region for blocks that no guard keeps any thread out of."""
        reasoning = partial(self.planner.whole_block, self.plain[id(item)][0].facts)
        stripped, checks = strip_guards(body, reasoning)
        if checks and stripped:
            stored = self._best(stripped)
            if stored is not None:
                self.interiors[id(item)] = (*stored, checks)

    def _without_unread(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """`body` without the assignments that only other regions need, and compute again."""
        while True:
            read = set().union(*(used(s) for s in statements(body)))
            kept = [
                s
                for s in body
                if not isinstance(s, ast.Assign)
                or defined(s) not in self.storage.rebuilt
                or defined(s) in read
            ]
            if len(kept) == len(body):
                return kept
            body = kept

    def _stored(self, plan: RowPlan) -> tuple[RowPlan, Storage]:
        storage = assign_storage(self.program, plan.facts, plan.items, [], self.kinds)
        storage.slots -= self.storage.slots
        for name in self.storage.slots:
            storage.rebuilt.pop(name, None)
            for names_ in storage.zeroed.values():
                names_.discard(name)
        return plan, storage

    def _holds_numbers(self, storage: Storage) -> bool:
        return all(
            isinstance(self.kinds.get(n), types.Number | types.Boolean) for n in storage.slots
        )

    def _rebuilt_before(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The assignments that compute again what a region reads from outside, in order."""
        order: list[str] = []

        def need(name: str) -> None:
            stmt = self.storage.rebuilt.get(name)
            if stmt is not None and name not in order:
                for other in sorted(names(stmt.value) & self.variables):
                    need(other)
                order.append(name)

        for name in sorted(exposure(body, self.variables)[0]):
            need(name)
        return [self.storage.rebuilt[name] for name in order]

    def _private_arrays(self) -> dict[str, PerThread]:
        """Local arrays with an element a thread: those that live across regions, and those of
        regions whose innermost loop is over threads.

        What a row of threads keeps lies together where the block has rows: the columns of an
        accumulator would else be a block apart, all in a few sets of the cache.
        """
        private: dict[str, PerThread] = {}
        for name, array in self.program.arrays.items():
            if array.space != "local":
                continue
            known = self._views_of(name)
            users = [i for i in walk(self.items) if known & names_in(i)]
            jammed = any(plan.rows > 1 for i in users for plan in self._fast_plans(i))
            if len(users) > 1 or jammed or any(getattr(i, "in_loop", True) for i in users):
                in_rows = self._has_rows and all(isinstance(i, Region) for i in users)
                private[name] = (
                    PerThread((*self.around, "_ty"), "_tx") if in_rows else PerThread((), "_t")
                )
            elif users and id(users[0]) in self.plans:
                plan = self.plans[id(users[0])][0]
                if plan.lifted or all(
                    getattr(s, "unroll", False)
                    for s in statements(plan.body)
                    if isinstance(s, ast.For | ast.While)
                ):
                    private[name] = PerThread((), "_tx")
        return private

    def _views_of(self, array: str) -> set[str]:
        """`array` and the variables that regions compute again from it, before they read them."""
        known, new = {array}, {array}
        while new:
            read = self.storage.rebuilt.items()
            new = {name for name, stmt in read if names(stmt.value) & new} - known
            known |= new
        return known

    @property
    def _has_rows(self) -> bool:
        """Whether a block is rows of threads and nothing more (and no index is checked)."""
        _, by, bz = self.program.block
        return by > 1 and bz == 1 and not self.whole_grid and not self.program.checked

    def _fast_plans(self, item: Item) -> list[RowPlan]:
        return [found[id(item)][0] for found in (self.plans, self.interiors) if id(item) in found]

    def needs_order(self, body: list[ast.stmt]) -> bool:
        """Whether threads must run `body` one after the other."""
        if self.program.checked:
            return True
        shared_state = self.program.ordered | {
            a.name
            for a in self.program.arrays.values()
            if a.space == "local" and a.name not in self.expressions.private
        }
        return any(names(e) & shared_state for s in statements(body) for e in expressions(s))

    def _tracked_arrays(self) -> set[str]:
        """Shared arrays that are only ever indexed element by element."""
        if self.whole_grid:
            return set()
        arrays = self.program.arrays.values()
        tracked = {
            a.name
            for a in arrays
            if a.space == "shared" and a.shape is not None and not isinstance(a.dtype, types.Record)
        }
        elements = set()
        for stmt in statements(self.program.body):
            for expr in expressions(stmt):
                for node in ast.walk(expr):
                    name = getattr(getattr(node, "value", None), "id", None)
                    if isinstance(node, ast.Subscript) and name in tracked:
                        parts = (
                            node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                        )
                        positions = all(self.expressions.is_position(p) for p in parts)
                        if positions and len(parts) == len(self.program.arrays[name].shape):
                            elements.add(id(node.value))
                    if isinstance(node, ast.Call) and getattr(node.func, "id", "").startswith(
                        "_atomic"
                    ):
                        elements.add(id(node.args[0]))
                for node in ast.walk(expr):
                    if (
                        isinstance(node, ast.Name)
                        and node.id in tracked
                        and id(node) not in elements
                    ):
                        tracked.discard(node.id)
        return tracked

    # -- the function ----------------------------------------------------------------------

    def function(self, name: str) -> str:
        """The source of the function `name`."""
        # what is viewed as another type needs another name: a variable has one type
        stored = {parameter: f"_bits_{parameter}" for parameter in self.views}
        given = [stored.get(parameter, parameter) for parameter in self.program.params]
        params = [*HEADER, *given, *self.program.constants]
        writer = self.writer
        with writer.block(f"def {name}({', '.join(params)}):"):
            for parameter in sorted(self.nonnegative):
                with writer.block(f"if {parameter} < 0:"):
                    writer.line(f"return {UNEXPECTED_SIGN}")
            for parameter, view in self.views.items():
                as_type = self.program.extern(view, view.__name__)
                writer.line(f"{parameter} = {as_type}({stored[parameter]})")
            if self.program.checked:  # what runs once for the block is told of its first thread
                writer.line("_block = _t = 0")
            self._declare()
            if self.whole_grid:
                self._clear_marks()
                self.write(self.items)
            else:
                self.write_blocks()
            writer.line("return 0")
        return writer.text()

    def write_blocks(self) -> None:
        """The blocks, one after the other."""
        turn = "_turn" if self._in_panels else "_block"
        with self.writer.block(f"for {turn} in range(_first, _last):"):
            self._block_coordinates()
            begun = len(self.writer.lines)
            self._clear_marks()
            self.write(self.items)
            if len(self.writer.lines) == begun:  # coordinates that nothing reads are not written
                self.writer.line("pass")

    @property
    def _in_panels(self) -> bool:
        """Whether blocks take turns in panels, a few wide: those that go through memory tile by
        tile, with a barrier for each, find more of it in the cache, since neighbours share it.
        Checked blocks run in the order of the grid: the lab runs those that it is asked for."""
        loops = [item for item in walk(self.items) if isinstance(item, BlockFor)]
        meets = (isinstance(item, Meet) for loop in loops for item in walk(loop.body))
        return not (self.whole_grid or self.program.checked) and any(meets)

    def _block_coordinates(self) -> None:
        lines = ["_bx = _block % _gx", "_by = _block // _gx % _gy", "_bz = _block // (_gx * _gy)"]
        if self._in_panels:
            lines = [
                "_bz = _turn // (_gx * _gy)",
                "_turn = _turn % (_gx * _gy)",
                f"_across = _turn // ({PANEL} * _gy) * {PANEL}",
                f"_wide = _min({PANEL}, _gx - _across)",
                "_turn = _turn - _across * _gy",
                "_by = _turn // _wide",
                "_bx = _turn % _wide + _across",
                "_block = _bx + _gx * (_by + _gy * _bz)",
            ]
        for line in lines:
            self.writer.line(line)

    def _clear_marks(self) -> None:
        for array in sorted(self.expressions.marked):
            self.writer.line(f"_written_{array}[...] = False")

    def dtype_name(self, dtype: types.Type) -> str:
        return self.program.extern(dtype, str(dtype))

    def memory(
        self, shape: tuple[int, ...], per_thread: bool, dtype: types.Type, extra: int = 0
    ) -> str:
        """An array for this block, or under grid barriers for every block of the grid at once."""
        kind = self.dtype_name(dtype)
        threads = self.program.threads * self.together
        if not self.whole_grid:
            size = (*shape, threads + extra) if per_thread else shape
            return f"_stack_array({size!r}, {kind})"
        parts = [str(n) for n in shape]
        parts = [*parts, f"_last * {threads}"] if per_thread else ["_last", *parts]
        return f"_empty(({', '.join(parts)},), {kind})"

    def _declare(self) -> None:
        writer, program = self.writer, self.program
        for array in program.arrays.values():
            if array.shape is None:
                self._declare_dynamic(array)
                continue
            private = self.expressions.private.get(array.name)
            if private is not None and private.lane == "_tx":
                sizes = {"_j": self.together, "_ty": program.block[1]}
                rows = [sizes[name] for name in private.row]
                shape = (*rows, *array.shape, program.block[0])
                dtype = self.dtype_name(array.dtype)
                writer.line(f"{array.name} = _stack_array({shape!r}, {dtype})")
                continue
            shape, several = array.shape, self.whole_grid and not private
            if array.name in self.copies:
                shape, several = (self.copies[array.name], *shape), True
            name = f"_all_{array.name}" if several else array.name
            memory = self.memory(shape, private is not None, array.dtype)
            writer.line(f"{name} = {memory}")
            if array.name in self.expressions.marked:
                marks = self.memory(array.shape, False, types.boolean)
                writer.line(f"{name.replace(array.name, '_written_' + array.name)} = {marks}")
        ahead = {
            i.stmt.args[1].id
            for i in walk(self.items)
            if isinstance(i, Meet) and collectives.reads_ahead(self, i)
        }
        for name in sorted(self.storage.slots):
            kind = self.kinds.get(name, types.boolean)
            if not isinstance(kind, types.Number | types.Boolean):
                raise Unstructured(
                    f"{program.filename}:{program.line}: variable {name!r} of type {kind} is"
                    " carried across a barrier; only numbers and views can be"
                )
            extra = WARP_SIZE if name in ahead else 0
            writer.line(f"_s_{name} = {self.memory((), True, kind, extra)}")
        row_slots: dict[str, int] = {}  # how many rows have one at a time
        for plan, storage in self._all_plans():
            row_slots |= {n: max(plan.rows, row_slots.get(n, 1)) for n in storage.slots}
        for name, rows in sorted(row_slots.items()):
            dtype = self.dtype_name(self.kinds[name])
            writer.line(f"_r_{name} = _stack_array({rows * program.block[0]}, {dtype})")

    def _all_plans(self) -> list[tuple[RowPlan, Storage]]:
        interiors = [(plan, storage) for plan, storage, _ in self.interiors.values()]
        return [*self.plans.values(), *self.plain.values(), *interiors]

    def _declare_dynamic(self, array: ArrayDecl) -> None:
        """Every dynamic shared array of a block begins at the same address, as on CUDA."""
        if "_shared" not in self.declared:
            self.declared.add("_shared")
            size = "(_last, _shared_bytes)" if self.whole_grid else "_shared_bytes"
            self.program.externs["_empty"] = np.empty
            self.writer.line(f"_shared = _empty({size}, {self.dtype_name(types.uint8)})")
        if not self.whole_grid:
            dtype = self.dtype_name(array.dtype)
            self.writer.line(f"{array.name} = _view_bytes(_shared, {dtype})")

    def enter_block(self) -> None:
        """Under grid barriers: loop over the blocks, each with its part of the shared memory."""
        writer = self.writer
        writer.line("for _block in range(_first, _last):")
        writer.depth += 1
        self._block_coordinates()
        for array in self.program.arrays.values():
            if array.shape is None:
                dtype = self.dtype_name(array.dtype)
                writer.line(f"{array.name} = _view_bytes(_shared[_u(_block)], {dtype})")
            elif array.name not in self.expressions.private:
                writer.line(f"{array.name} = _all_{array.name}[_u(_block)]")

    # -- items -----------------------------------------------------------------------------

    def write(self, items: list[Item]) -> None:
        for item in items:
            getattr(self, "write_" + type(item).__name__)(item)

    def write_Scalars(self, item: Scalars) -> None:
        self.statements.write(item.body)

    def write_BlockIf(self, item: BlockIf) -> None:
        with self.writer.block(f"if {self.expressions.text(item.test)}:"):
            self.write(item.body)
        if item.orelse:
            with self.writer.block("else:"):
                self.write(item.orelse)

    def write_BlockFor(self, item: BlockFor) -> None:
        with self.writer.block(f"for {item.target} in {self.expressions.text(item.iter)}:"):
            self.write(item.body)

    def write_BlockWhile(self, item: BlockWhile) -> None:
        test = self.expressions.text(item.test)
        with self.writer.block("while True:" if item.pre else f"while {test}:"):
            if item.pre:
                self.write(item.pre)
                with self.writer.block(f"if not ({test}):"):
                    self.writer.line("break")
            self.write(item.body)

    def write_MaskIf(self, item: MaskIf) -> None:
        line = self.writer.line
        for mask in filter(None, (item.taken, item.other)):
            line(f"_any_{mask} = False")
            line(f"_all_{mask} = True")
        with self.thread_loop(None, names(item.test)):
            test = f"bool({self.expressions.text(item.test)})"
            present = f"_s_{item.mask}[_u(_t)] and " if item.mask else ""
            line(f"_s_{item.taken}[_u(_t)] = {present}{test}")
            self._note(item.taken)
            if item.other:
                line(f"_s_{item.other}[_u(_t)] = {present}not _s_{item.taken}[_u(_t)]")
                self._note(item.other)
        with self.writer.block(f"if _any_{item.taken}:"):
            self.write(item.body)
        if item.other:
            with self.writer.block(f"if _any_{item.other}:"):
                self.write(item.orelse)

    def _note(self, mask: str) -> None:
        """Whether any, and whether all threads are in `mask`."""
        with self.writer.block(f"if _s_{mask}[_u(_t)]:"):
            self.writer.line(f"_any_{mask} = True")
        with self.writer.block("else:"):
            self.writer.line(f"_all_{mask} = False")

    def write_MaskWhile(self, item: MaskWhile) -> None:
        line, mask = self.writer.line, f"_s_{item.taken}[_u(_t)]"
        with self.thread_loop(None, set()):
            line(f"{mask} = {f'_s_{item.mask}[_u(_t)]' if item.mask else 'True'}")
        with self.writer.block("while True:"):
            line(f"_all_{item.taken} = False")
            self.write(item.pre)
            line(f"_any_{item.taken} = False")
            with self.thread_loop(item.taken, names(item.test)):
                with self.writer.block(f"if {self.expressions.text(item.test)}:"):
                    line(f"_any_{item.taken} = True")
                with self.writer.block("else:"):
                    line(f"{mask} = False")
            with self.writer.block(f"if not _any_{item.taken}:"):
                line("break")
            self.write(item.body)

    def write_Meet(self, item: Meet) -> None:
        collectives.write(self, item)

    # -- thread loops ----------------------------------------------------------------------

    def thread_loop(self, mask: str | None, reads: set[str]):
        """A loop over the threads of `mask` with the variables `reads` brought in."""
        return _ThreadLoop(self, mask, reads)

    def write_Region(self, item: Region) -> None:
        if not item.body:
            return
        self.writer.line(f"# threads, from line {item.line}")
        fast = self.plans.get(id(item))
        if item.mask is None and fast is not None:
            self._unmasked(item)
        elif fast is not None and (item.in_loop or fast[0].lifted):
            with self.writer.block(f"if _all_{item.mask}:"):
                self._unmasked(item)
            with self.writer.block("else:"):
                self._rows(*self.plain[id(item)], item.mask)
        else:
            self._rows(*self.plain[id(item)], item.mask)

    def _unmasked(self, item: Region) -> None:
        """A region that all threads of the block run."""
        interior = self.interiors.get(id(item))
        if interior is None:
            self._rows(*self.plans[id(item)], None)
            return
        plan, storage, checks = interior
        with self.writer.block(
            f"if {' and '.join(checks)}:  # no thread of the block is at an edge"
        ):
            self._rows(plan, storage, None, checks=False)
        with self.writer.block("else:"):
            edge, storage = self.plans[id(item)]
            self._rows(edge, storage, None, checks=edge.lifted, at_edge=True)

    def _rows(
        self,
        plan: RowPlan,
        storage: Storage,
        mask: str | None,
        checks: bool = True,
        at_edge: bool = False,
    ) -> None:
        """Loops over the rows of a block, each run as `plan` says; none where nothing is left."""
        writer, depth, before = self.writer, self.writer.depth, len(self.writer.lines)
        self.open_rows(plan.rows)
        x = self.program.block[0]
        if plan.lanes < x:
            writer.line(f"for _x0 in range(0, {x}, {plan.lanes}):")
            writer.depth += 1
        begun = len(writer.lines)
        RowEmitter(self, plan, storage, mask, checks, at_edge).write(plan.items)
        if len(writer.lines) == begun:
            del writer.lines[before:]
        writer.depth = depth

    def open_rows(self, together: int = 1) -> None:
        """Enter the loops over the blocks (under grid barriers) and over y and z.

        Of rows that go `together`, `_y0` is the first."""
        writer = self.writer
        _, y, z = self.program.block
        if self.whole_grid:
            self.enter_block()
        for name, size, step in (("_tz", z, 1), ("_ty" if together == 1 else "_y0", y, together)):
            if size == step:
                writer.line(f"{name} = 0")
                continue
            writer.line(f"for {name} in range({size if step == 1 else f'0, {size}, {step}'}):")
            writer.depth += 1

    def row_range(self, lanes: int) -> tuple[str, str]:
        """Where a row of threads begins and ends in x."""
        x = self.program.block[0]
        return ("0", str(x)) if lanes >= x else ("_x0", f"_x0 + {lanes}")

    def linear(self) -> str:
        """The position of a thread among all that have slots."""
        linear = ast.unparse(calls.linear_thread(self.program))
        return f"_block * {self.program.threads} + {linear}" if self.whole_grid else linear

    def zero(self, name: str) -> str:
        kind = self.kinds.get(name, types.intp)
        if isinstance(kind, types.Number | types.Boolean):
            return f"{self.dtype_name(kind)}(0)"
        return "0"

    def bring_in(self, reads: set[str]) -> None:
        """Load or compute again, in this thread, the variables `reads`."""
        order: list[str] = []
        loads: set[str] = set()

        def need(name: str) -> None:
            if name in self.storage.rebuilt:
                if name not in order:
                    for other in sorted(names(self.storage.rebuilt[name].value) & self.variables):
                        need(other)
                    if name not in order:
                        order.append(name)
            elif name in self.storage.slots:
                loads.add(name)

        for name in sorted(reads & self.variables | (reads & self.storage.slots)):
            need(name)
        for name in sorted(loads):
            self.writer.line(f"{name} = _s_{name}[_u(_t)]")
        for name in order:
            self.statements.write([self.storage.rebuilt[name]])


class _ThreadLoop:
    """Context manager: `for _tz ... for _ty ... for _tx ...`, a mask test, incoming variables."""

    def __init__(self, emitter: Emitter, mask: str | None, reads: set[str]) -> None:
        self.emitter, self.mask, self.reads = emitter, mask, reads

    def __enter__(self) -> None:
        emitter, writer = self.emitter, self.emitter.writer
        self.depth = writer.depth
        emitter.open_rows()
        writer.line(f"for _tx in range({emitter.program.block[0]}):")
        writer.depth += 1
        writer.line(f"_t = {emitter.linear()}")
        if self.mask:
            writer.line(f"if _s_{self.mask}[_u(_t)]:")
            writer.depth += 1
        emitter.bring_in(self.reads)

    def __exit__(self, *exception: object) -> None:
        self.emitter.writer.depth = self.depth


def names_in(item: Item) -> set[str]:
    """The names that an item mentions itself."""
    match item:
        case Region() | Scalars():
            return {n.id for s in item.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        case Meet():
            return set().union(*(names(a) for a in item.stmt.args))
        case MaskIf() | MaskWhile() | BlockIf() | BlockWhile():
            return names(item.test)
        case BlockFor():
            return names(item.iter)
    return set()
