"""Fission: a kernel in normal form cut into pieces that a block runs one after the other.

Between two collectives the threads of a block are independent, so what lies between becomes a
`Region`, run as a loop over the threads. Control flow around a collective moves outside of the
thread loops: once for the block where all threads agree (`BlockIf`, `BlockFor`, `BlockWhile`), with
a mask of the threads that take part where they may not (`MaskIf`, `MaskWhile`).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple

from kernels.simt.analysis.uniformity import Facts, has_effects, has_loads, is_scalar_unit
from kernels.simt.frontend.structure import ends_threads
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import (
    Collective,
    counter,
    defined,
    expressions,
    names,
    statements,
)
from kernels.simt.ir.program import Program
from kernels.simt.ir.safety import Safety


@dataclass(eq=False)
class Item:
    """A piece of the block's program; `mask` names the threads that run it (None: all).

    Items are compared and hashed by identity: each is a place in the block's program."""

    line: int
    mask: str | None


class FarWalks(NamedTuple):
    """Whether neighbours in x read rows of memory that are far apart, or write them."""

    read: bool = False
    written: bool = False


NOT_FAR = FarWalks()


@dataclass(eq=False)
class Region(Item):
    body: list[ast.stmt] = field(default_factory=list)
    in_loop: bool = False
    far: FarWalks = NOT_FAR


@dataclass(eq=False)
class Scalars(Item):
    """Statements on scalars, run once for the block."""

    body: list[ast.stmt] = field(default_factory=list)


@dataclass(eq=False)
class BlockIf(Item):
    test: ast.expr
    body: list[Item]
    orelse: list[Item]


@dataclass(eq=False)
class BlockFor(Item):
    target: str
    iter: ast.expr
    body: list[Item]
    hint: Hint | None = None


@dataclass(eq=False)
class BlockWhile(Item):
    pre: list[Item]
    test: ast.expr
    body: list[Item]


@dataclass(eq=False)
class MaskIf(Item):
    """`body` by the threads of `taken`, `orelse` by those of `other` (None without an else)."""

    test: ast.expr
    taken: str
    other: str | None
    body: list[Item]
    orelse: list[Item]


@dataclass(eq=False)
class MaskWhile(Item):
    taken: str
    pre: list[Item]
    test: ast.expr
    body: list[Item]


@dataclass(eq=False)
class CollectivePoint(Item):
    """A collective. `live` are the threads that it waits for."""

    stmt: Collective
    live: str | None


@dataclass
class Context:
    """Where in the block's program we are."""

    mask: str | None = None
    live: str | None = None  # that a barrier waits for
    running: str | None = None  # that the other lanes of their warp wait for
    tail: bool = True  # nothing follows what is being split
    in_loop: bool = False

    def but(self, **changes) -> Context:
        return Context(**{**self.__dict__, **changes})


def line_of(stmt: ast.stmt) -> int:
    """The source line of a statement; 0 for one that the compiler made from nothing."""
    return getattr(stmt, "lineno", 0)


def _is_barrier(stmt: Collective) -> bool:
    return stmt.kind.startswith("syncthreads") or stmt.kind == "cg.GridGroup.sync"


def _waits(body: list[ast.stmt], barriers_only: bool) -> bool:
    met = (s for s in statements(body) if isinstance(s, Collective))
    return any(_is_barrier(s) or not barriers_only for s in met)


class Fission:
    """Splits the body of a program; `masks` collects the mask variables that it introduced."""

    def __init__(self, program: Program, facts: Facts) -> None:
        self.program, self.facts = program, facts
        self.masks: list[str] = []

    def split(self, body: list[ast.stmt], at: Context) -> list[Item]:
        """The items for a statement list."""
        items: list[Item] = []
        region: list[ast.stmt] = []

        def flush() -> None:
            if region:
                items.append(Region(line_of(region[0]), at.mask, list(region), at.in_loop))
                region.clear()

        for position, stmt in enumerate(body):
            if id(stmt) in self.facts.collective:
                flush()
                tail = at.tail and position == len(body) - 1
                items += self.around_collective(stmt, at.but(tail=tail))
            elif self.is_scalar(stmt):
                if not self.may_precede(stmt, region):
                    flush()
                if items and isinstance(items[-1], Scalars):
                    items[-1].body.append(stmt)
                else:
                    items.append(Scalars(line_of(stmt), at.mask, [stmt]))
            else:
                region.append(stmt)
        flush()
        return items

    def is_scalar(self, stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.Assign):
            return defined(stmt) in self.facts.scalars
        return isinstance(stmt, ast.If | ast.For | ast.While) and is_scalar_unit(self.facts, stmt)

    def may_precede(self, stmt: ast.stmt, region: list[ast.stmt]) -> bool:
        """Whether a scalar statement can run before the threads run `region`."""
        written = {defined(inner) for inner in statements([stmt])} - {None}
        touched: set[str] = set()
        for inner in statements(region):
            touched |= {defined(inner) or ""}.union(*(names(e) for e in expressions(inner)))
        if written & touched:
            return False
        read = [expr for inner in statements([stmt]) for expr in expressions(inner)]
        loads = any(has_loads(self.program, expr) for expr in read)
        return not (loads and any(has_effects(self.program, s) for s in region))

    def around_collective(self, stmt: ast.stmt, at: Context) -> list[Item]:
        line = line_of(stmt)
        match stmt:
            case Collective():
                return [
                    CollectivePoint(
                        line, at.mask, stmt, at.live if _is_barrier(stmt) else at.running
                    )
                ]
            case ast.If() if self.facts.at_block_level(stmt.test):
                body, orelse = self.split(stmt.body, at), self.split(stmt.orelse, at)
                return [BlockIf(line, at.mask, stmt.test, body, orelse)]
            case ast.If():
                return [self.masked_if(stmt, at)]
            case ast.For():
                inside = at.but(tail=False, in_loop=True)
                body = self.split(stmt.body, inside)
                return [BlockFor(line, at.mask, counter(stmt), stmt.iter, body)]
            case ast.While() if self.facts.at_block_level(stmt.test):
                inside = at.but(tail=False, in_loop=True)
                pre = self.split(getattr(stmt, "pre", []), inside)
                return [BlockWhile(line, at.mask, pre, stmt.test, self.split(stmt.body, inside))]
            case ast.While():
                return [self.masked_while(stmt, at)]
        raise AssertionError(f"no collective in {ast.dump(stmt)}")

    def new_mask(self, base: str) -> str:
        name = self.program.fresh(base)
        self.masks.append(name)
        return name

    def masked_if(self, stmt: ast.If, at: Context) -> MaskIf:
        taken = self.new_mask("active")
        other = self.new_mask("inactive") if stmt.orelse else None
        body = self.split(stmt.body, self.beside(stmt, stmt.orelse, taken, at))
        orelse: list[Item] = []
        if other:
            orelse = self.split(stmt.orelse, self.beside(stmt, stmt.body, other, at))
        return MaskIf(line_of(stmt), at.mask, stmt.test, taken, other, body, orelse)

    def waits_for_all(self, stmt: ast.stmt) -> bool:
        """Whether a barrier in `stmt` waits for threads that have come to the kernel's end without
        one. New GPUs let the others go on, but CUDA forbids it, so the debug mode finds it; a
        `return` is allowed."""
        return self.program.safety is Safety.DEBUG and not ends_threads(stmt)

    def beside(self, stmt: ast.If, side: list[ast.stmt], mask: str, at: Context) -> Context:
        """Where the threads of `mask` are while the others run `side` of `stmt`: threads with
        no barrier there may run ahead, and no barrier waits for them."""
        ahead = at.tail and not _waits(side, barriers_only=True) and not self.waits_for_all(stmt)
        live = mask if ahead else at.live
        running = mask if at.tail and not _waits(side, barriers_only=False) else at.running
        return at.but(mask=mask, live=live, running=running)

    def masked_while(self, stmt: ast.While, at: Context) -> MaskWhile:
        taken = self.new_mask("looping")
        left = {"running": taken} if at.tail else {}
        if at.tail and not self.waits_for_all(stmt):
            left["live"] = taken
        inside = at.but(mask=taken, tail=False, in_loop=True, **left)
        pre = self.split(getattr(stmt, "pre", []), inside)
        body = self.split(stmt.body, inside)
        return MaskWhile(line_of(stmt), at.mask, taken, pre, stmt.test, body)


def fission(program: Program, facts: Facts) -> tuple[list[Item], list[str]]:
    """(the block's program, the masks it uses)."""
    splitter = Fission(program, facts)
    return splitter.split(program.body, Context()), splitter.masks


def walk(items: list[Item]):
    """Every item, outer before inner."""
    for item in items:
        yield item
        for inner in vars(item).values():
            if isinstance(inner, Item):
                yield inner
            elif isinstance(inner, list) and inner and isinstance(inner[0], Item):
                yield from walk(inner)


def names_in(item: Item) -> set[str]:
    """The names that an item mentions itself."""
    match item:
        case Region() | Scalars():
            return {n.id for s in item.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        case CollectivePoint():
            return set().union(*(names(a) for a in item.stmt.args))
        case MaskIf() | MaskWhile() | BlockIf() | BlockWhile():
            return names(item.test)
        case BlockFor():
            return names(item.iter)
    return set()
