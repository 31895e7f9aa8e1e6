"""The kernel after each pass, as text: what `inspect_passes` of a kernel shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kernels.simt.analysis.affine import Clip
from kernels.simt.driver.pipeline import PASSES, Compilation
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import BLOCK, GRID, THREAD, Collective, Loop, Unsigned, clone, counter
from kernels.simt.ir.program import Program
from kernels.simt.ir.safety import Safety
from kernels.simt.plan.parts import (
    BlockPlan,
    ClippedLoop,
    ClippedRow,
    EachBlock,
    FirstBlock,
    GuardedLoop,
    RegionPlan,
    RowVersion,
    SquareLoop,
    ThreadLoop,
    TileLoop,
)
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockIf,
    BlockWhile,
    CollectivePoint,
    Item,
    MaskIf,
    MaskWhile,
    Region,
    Scalars,
)
from kernels.simt.transforms.row_vectorise import GuardIf

UNCHANGED = "(nothing changes)"
_COORDINATES = {
    f"_{short}{axis}": f"{name}.{axis}"
    for short, name in (("t", "threadIdx"), ("b", "blockIdx"), ("g", "gridDim"))
    for axis in "xyz"
}
assert set(_COORDINATES) == {*THREAD, *BLOCK, *GRID}
_INDENT = "    "
Lines = Iterator[str]


class PassTexts(dict[str, str]):
    """Names of passes, in their order, with the kernel after each; `str()` shows all of them."""

    def __str__(self) -> str:
        width = 88
        return "\n\n".join(
            f"{f'-- {number}. {name} ':-<{width}}\n{text}"
            for number, (name, text) in enumerate(self.items(), 1)
        )

    __repr__ = __str__


def passes(compilation: Compilation) -> PassTexts:
    """Run all passes and list the kernel after each."""
    watcher = _Watcher()
    compilation.watch = watcher
    compilation.run(PASSES)
    return watcher.found


class _Watcher:
    """Lists the kernel after each pass; a pass that changes nothing says so."""

    def __init__(self) -> None:
        self.found = PassTexts()
        self.form = ""

    def __call__(self, name: str, c: Compilation) -> None:
        if name == "choice":  # the passes that it ran again are listed
            return
        self.found[f"{name}, not interleaved" if name in self.found else name] = self.text(name, c)

    def text(self, name: str, c: Compilation) -> str:
        match name:
            case "types":
                return "\n".join(f"{k}: {v}" for k, v in sorted(c.kinds.items()) if k[0] != "_")
            case "uniformity":
                return "\n".join(_uniformity(c))
            case "bounds":
                return _bounds(c)
            case "fission":
                return "\n".join(_items(c.items))
            case "storage":
                return "\n".join(_storage(c))
            case "plan":
                return "\n".join(_plan(c))
            case "module":
                return c.text
        before, self.form = self.form, normal_form(c.program)
        return UNCHANGED if before == self.form else self.form


def _bounds(c: Compilation) -> str:
    """What a launch must fulfil so that no access needs a check."""
    if c.safety is not Safety.PROVEN:
        return f"(nothing to prove: {c.safety.value})"
    if c.conditions is None:
        return "some index is not known: every access is checked"
    return "\n".join(c.conditions) or "every index is inside its array"


# -- the normal form ---------------------------------------------------------------------------


def normal_form(program: Program) -> str:
    """The normal form as Python, with the source line of each statement."""
    lines = [f"def {program.name}({', '.join(program.params)}):  # {program.blocks}"]
    for array in program.arrays.values():
        shape = "0" if array.shape is None else repr(array.shape)
        declaration = f"{array.name} = cuda.{array.space}.array({shape}, {array.dtype})"
        lines.append(_located(_INDENT + declaration, array.line))
    if program.interleaving is not None:
        axis, common = program.interleaving.axis, sorted(program.interleaving.common)
        note = f"blocks along {_COORDINATES[axis]} fill {', '.join(common)} with the same"
        lines.append(f"{_INDENT}# interleaved: {note}")
    return "\n".join([*lines, *_statements(program.body, _INDENT)])


def _located(text: str, line: int) -> str:
    return f"{text:<72}  # line {line}" if line else text


def _statements(body: list[ast.stmt], indent: str = "") -> Lines:
    for stmt in body or [ast.Pass()]:
        header, *inner = _statement(stmt)
        yield _located(indent + header, getattr(stmt, "lineno", 0))
        for part in inner:
            if isinstance(part, str):
                yield indent + part
            else:
                yield from _statements(part, indent + _INDENT)


def _statement(stmt: ast.stmt) -> tuple[str, *tuple[str | list[ast.stmt], ...]]:
    """The header of a statement, then statement lists inside of it and headers between them."""
    match stmt:
        case Collective():
            dest = f"{stmt.dest.id} = " if stmt.dest is not None else ""
            return (f"{dest}cuda.{stmt.kind}({', '.join(map(text, stmt.args))})",)
        case ast.If():
            orelse = ["else:", stmt.orelse] if stmt.orelse else []
            return (f"if {text(stmt.test)}:", stmt.body, *orelse)
        case ast.For():
            hint = getattr(stmt, "hint", None)
            return (f"for {counter(stmt)} in {text(stmt.iter)}:{_hint(hint)}", stmt.body)
        case Loop() if stmt.pre:
            stop = ast.If(ast.UnaryOp(ast.Not(), stmt.test), [ast.Break()], [])
            return ("while True:", [*stmt.pre, stop, *stmt.body])
        case ast.While():
            return (f"while {text(stmt.test)}:", stmt.body)
    return (text(stmt),)


def text(node: ast.AST) -> str:
    """An expression or simple statement, with the coordinates as CUDA names them."""
    return ast.unparse(ast.fix_missing_locations(_Coordinates().visit(clone(node))))


class _Coordinates(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_COORDINATES.get(node.id, node.id), node.ctx)

    def visit_Unsigned(self, node: Unsigned) -> ast.expr:
        """The index alone: casts are seen in the generated module."""
        return self.visit(node.value)


def _hint(hint: Hint | None) -> str:
    shown = {Hint.UNROLL: "  # unrolled", Hint.UNROLL_4: "  # unrolled by 4"}
    return "" if hint is None else shown.get(hint, "")


# -- what is known, and the items of a block ---------------------------------------------------


def _uniformity(c: Compilation) -> Lines:
    facts = c.facts
    own = sorted(name for name in facts.defs if name not in facts.scalars)
    yield f"once per block: {_list(sorted(facts.scalars))}"
    yield f"per thread:     {_list(own)}"
    for site in facts.sites:
        if id(site.stmt) in facts.divergent:
            yield _located(f"threads disagree: {_statement(site.stmt)[0]}", _line(site.stmt))


def _list(found: list[str]) -> str:
    return ", ".join(found) or "nothing"


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _storage(c: Compilation) -> Lines:
    yield f"spill arrays: {_list(sorted(c.storage.spilled))}"
    yield "rematerialised:" if c.storage.rematerialised else "rematerialised: nothing"
    yield from _statements([c.storage.rematerialised[n] for n in sorted(c.storage.rematerialised)])
    zeroed = sorted(set().union(*c.storage.zeroed.values()))
    if zeroed:
        yield f"set to zero first: {_list(zeroed)}"


def _items(items: Sequence[Item], indent: str = "", plan: BlockPlan | None = None) -> Lines:
    for item in items:
        for line in _item(item, plan):
            yield indent + line


def _item(item: Item, plan: BlockPlan | None) -> Lines:
    mask = f" of {item.mask}" if item.mask else ""
    inside: list[tuple[str | None, list[Item]]] = [(None, getattr(item, "body", []))]
    match item:
        case Region():
            yield from _region(item, mask, plan)
            return
        case Scalars():
            yield f"once{mask}:"
            yield from _statements(item.body, _INDENT)
            return
        case CollectivePoint():
            yield from _statements([item.stmt])
            return
        case BlockIf():
            yield f"if {text(item.test)}:"
            inside.append(("else:", item.orelse))
        case BlockFor():
            yield f"for {item.target} in {text(item.iter)}:{_hint(item.hint)}"
        case BlockWhile():
            yield f"while {text(item.test)}:" if not item.pre else "while True:"
            if item.pre:
                yield from _items(item.pre, _INDENT, plan)
                yield f"{_INDENT}if not {text(item.test)}: break"
        case MaskIf():
            yield f"threads{mask} with {text(item.test)}, mask {item.taken}:"
            inside.append((f"the others, mask {item.other}:", item.orelse))
        case MaskWhile():
            yield f"while any of mask {item.taken}:"
            yield from _items(item.pre, _INDENT, plan)
            yield f"{_INDENT}threads{mask} without {text(item.test)} leave"
        case _ if plan is not None:
            yield from _interleaved_item(item, plan)
            return
    for header, body in inside:
        if header is not None and body:
            yield header
        yield from _items(body, _INDENT, plan)


def _region(item: Region, mask: str, plan: BlockPlan | None) -> Lines:
    if plan is None:
        yield f"threads{mask}:"
        yield from _statements(item.body, _INDENT)
    elif item in plan.regions:
        yield f"threads{mask}, from line {item.line}:"
        for line in _versions(plan.regions[item]):
            yield _INDENT + line


# -- the plan ----------------------------------------------------------------------------------


def _plan(c: Compilation) -> Lines:
    plan = c.plan
    if plan is None:
        yield "Interleaving does not pay: a block keeps more for itself than blocks have in common."
        return
    if plan.interleaving is not None:
        axis = _COORDINATES[plan.interleaving.axis]
        yield f"{plan.interleaving.together} blocks along {axis} are interleaved"
    if plan.strides is not None:
        line, together = plan.strides.loop.line, plan.strides.together
        yield f"{together} blocks run each iteration of the loop of line {line} together"
    panel = plan.panel if plan.interleaving is None else plan.interleaving.panel
    if panel is not None:
        yield f"blocks run in panels, {panel} wide"
    for array in plan.declarations:
        yield f"declare {array.name}: {array.dtype} {getattr(array, 'shape', '')}".rstrip()
    yield from _items(plan.items, "", plan)


def _interleaved_item(item: Item, plan: BlockPlan) -> Lines:
    match item:
        case EachBlock():
            yield "for each interleaved block:"
            yield from _items(item.items, _INDENT, plan)
        case FirstBlock():
            yield "the first block, for all that are interleaved:"
            yield from _items([item.region], _INDENT, plan)
        case TileLoop():
            yield f"for {item.target} up to {text(item.stop)}, {item.count} iterations at a time:"
            yield from _items(item.fills, _INDENT, plan)
            if item.checks:
                yield f"{_INDENT}without own tiles where {_checks(item.checks)}:"
            inner = _INDENT + _INDENT * bool(item.checks)
            if item.full is not None:
                yield f"{inner}# as many iterations as there can be, where {text(item.full.test)}"
            for element in item.ahead:
                yield f"{inner}ask for the line of {text(element)} in the rows that come next"
            yield from _items(item.at_once, inner, plan)
            if item.one_by_one:
                yield f"{_INDENT}other iterations, one by one:"
                yield from _items(item.one_by_one, _INDENT * 2, plan)
            if item.final_rows is not None:
                checks = _checks(item.final_checks) if item.final_checks else "always"
                yield f"{_INDENT}in each row's last iterations, where {checks}:"
            yield from _items(item.after, _INDENT + _INDENT * bool(item.final_rows), plan)


def _versions(region: RegionPlan) -> Lines:
    if region.guard_free is not None:
        yield f"guard-free version, where {_checks(region.checks)}:"
        yield from _rows(region.guard_free)
    if region.every_thread is not None:
        yield "otherwise:" if region.guard_free is not None else "every thread:"
        yield from _rows(region.every_thread)
    if region.masked is not None:
        yield "threads of the mask:"
        yield from _rows(region.masked)


def _rows(version: RowVersion) -> Lines:
    notes = [f"{version.lanes} threads in a row"]
    squares = any(isinstance(item, SquareLoop) for item in version.items)
    how = "a square, copied in registers" if squares else "unroll-and-jam"
    notes += [f"{version.rows} rows together ({how})"] * (version.rows > 1)
    notes += ["one after the other"] * version.ordered
    notes += [f"rows from {text(bound)} on are left out" for bound in version.below]
    yield f"{_INDENT}# {', '.join(notes)}"
    for item in version.items:
        for line in _row_item(item):
            yield _INDENT + line


def _row_item(item: Item) -> Lines:
    match item:
        case ThreadLoop():
            yield from _thread_loop(item)
        case ClippedLoop():
            if item.otherwise is not None:
                yield f"unless {_checks(item.clip.checks())}:"
                yield from _indented(_thread_loop(item.otherwise))
                yield "else:"
            yield _clipped(item.clip)
            if item.common:
                yield from _statements(item.common, _INDENT)
            yield from _indented(_thread_loop(item.part))
        case ClippedRow():
            yield _clipped(item.clip)
            for inner in item.items:
                yield from _indented(_row_item(inner))
        case SquareLoop():
            yield from _statements(item.body)
        case GuardedLoop():
            yield f"where {_checks(item.checks)}:"
            yield from _indented(_thread_loop(item.guard_free))
            yield "else:"
            yield from _indented(_thread_loop(item.otherwise))
        case GuardIf():
            yield f"if {text(item.everywhere)}:  # the whole row"
            for inner in item.body:
                yield from _indented(_row_item(inner))
            if item.otherwise is not None:
                yield "else:"
                yield from _indented(_row_item(item.otherwise))
        case BlockFor() | BlockWhile() | BlockIf():
            test = item.iter if isinstance(item, BlockFor) else item.test
            header = f"for {item.target} in" if isinstance(item, BlockFor) else type(item).__name__
            yield f"{header.replace('Block', '').lower()} {text(test)}:{_hint(_hint_of(item))}"
            for inner in item.body:
                yield from _indented(_row_item(inner))
        case Scalars():
            yield from _statements(item.body)


def _clipped(clip: Clip) -> str:
    bounds = [f"threadIdx.x >= {text(low)}" for low in clip.low]
    bounds += [f"threadIdx.x < {text(high)}" for high in clip.high]
    if clip.step is not None:
        bounds.append(f"(threadIdx.x - ({text(clip.phase)})) % ({text(clip.step)}) == 0")
    return f"the threads with {' and '.join([*map(text, clip.conditions), *bounds])}:"


def _checks(checks: list[str]) -> str:
    """Conditions of generated code, with the coordinates as CUDA names them."""
    return re.sub(r"\w+", lambda word: _COORDINATES.get(word[0], word[0]), " and ".join(checks))


def _hint_of(item: Item) -> Hint | None:
    return getattr(item, "hint", None)


def _indented(lines: Lines) -> Lines:
    return (_INDENT + line for line in lines)


def _thread_loop(loop: ThreadLoop) -> Lines:
    yield f"for threadIdx.x in range({loop.first}, {loop.last}):"
    if loop.inputs.loaded:
        yield f"{_INDENT}# load {', '.join(loop.inputs.loaded)}"
    yield from _statements([*loop.inputs.rematerialised, *loop.body], _INDENT)
    if loop.stored:
        yield f"{_INDENT}# store {', '.join(loop.stored)}"
