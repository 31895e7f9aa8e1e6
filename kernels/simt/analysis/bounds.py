"""Conditions, checked once per launch, under which every index of a kernel is inside its array.

An abstract interpretation of the normal form: each integer variable has an interval whose ends are
expressions of launch constants (sizes, integer parameters, the grid); an `if` narrows intervals
inside it, and a loop keeps what its body does not change (P. Cousot and R. Cousot, "Abstract
interpretation", 1977). An access whose interval is known gives a condition such as
`_min(_gx * 64, n) - 1 < x.shape[0]`. A launch for which all conditions hold runs without a check
per access. An index that was itself loaded from memory has no interval: no proof.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
from collections.abc import Iterator

from numba.core import types

from kernels.simt.analysis.intervals import (
    TOP,
    TRUTH,
    End,
    Interval,
    State,
    divided,
    equal,
    greatest,
    greatest_known,
    hull,
    is_plain,
    joined,
    least,
    least_known,
    limits_of,
    meet,
    moved,
    natural,
    negated,
    partitions,
    plus,
    product,
    quotient,
    spelled,
    total,
    weakened,
)
from kernels.simt.analysis.ranges import OPPOSITE, Ranges, constant
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    Collective,
    Loop,
    binary,
    bodies,
    call,
    const,
    defined,
    load,
    names,
    statements,
)
from kernels.simt.ir.program import Program

_MOST_TEXT = 6000  # characters of all conditions together
_ROUNDS = 4  # over a loop's body, to find what it keeps


class Unproven(Exception):
    """Some index has no known interval."""


def conditions(program: Program, kinds: dict[str, types.Type], ranges: Ranges) -> list[str] | None:
    """What must hold so that no access of `program` is out of bounds; None if that is not known.

    The conditions are Python expressions of the generated function's parameters.
    """
    inside = (n for f in program.functions.values() for s in f.body for n in ast.walk(s))
    if any(isinstance(node, ast.Subscript) for node in inside):
        return None  # device functions that are compiled on their own are not looked into
    prover = _Prover(program, kinds, ranges)
    try:
        prover.block(program.body)
    except Unproven:
        return None
    return list(prover.found)


class _Prover:
    def __init__(self, program: Program, kinds: dict[str, types.Type], ranges: Ranges) -> None:
        self.program, self.kinds, self.ranges = program, kinds, ranges
        self.state = State({}, {}, {})
        self.found: dict[str, None] = {}
        self.views: dict[str, list[ast.expr]] = {}  # the shapes of rows of arrays
        self.strides: dict[int, tuple[int, int] | None] = {}  # of loops, by identity
        self.given: list[str] = []  # launch-constant tests around the place
        self.trying = 0  # > 0 while it is found out what a loop keeps
        written = {defined(stmt) for stmt in statements(program.body)}
        self.params = set(program.params) - written

    # -- statements ------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        """Interpret statements in order; whether their end can be reached."""
        for stmt in body:
            match stmt:
                case Loop():
                    self.loop(stmt, stmt.test, [*stmt.pre])
                case ast.For():
                    self.counted(stmt)
                case ast.While():
                    self.loop(stmt, stmt.test, [])
                case ast.If():
                    if not self.branch(stmt):
                        return False
                case ast.Assign():
                    self.assign(stmt)
                case Collective():
                    for arg in stmt.args:
                        self.value(arg)
                    if stmt.dest is not None:
                        self.state.forget(stmt.dest.id)
                case ast.Expr():
                    self.value(stmt.value)
                case ast.Break() | ast.Continue() | ast.Return() | ast.Raise():
                    return False
                case ast.Pass():
                    pass
                case _:
                    raise Unproven
        return True

    def assign(self, stmt: ast.Assign) -> None:
        target, value = stmt.targets[0], stmt.value
        if not isinstance(target, ast.Name):
            self.value(value)
            self.value(target)
            return
        name = target.id
        if isinstance(self.kinds.get(name), types.Array):
            shape = self.row(value)
            if list(map(ast.dump, self.views.setdefault(name, shape))) != list(
                map(ast.dump, shape)
            ):
                raise Unproven
            return
        interval = self.value(value)
        self.state.forget(name)
        self.state.variables[name] = self.fitted(interval, self.kinds.get(name))
        if isinstance(value, ast.Compare | ast.BoolOp) and name not in names(value):
            self.state.tests[name] = value

    def row(self, value: ast.expr) -> list[ast.expr]:
        """The shape of a view `array[i]`, whose index is proven as others are, or of an alias."""
        if isinstance(value, ast.Name):
            return self.shape(value.id)
        if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
            raise Unproven
        parts = _parts(value.slice)
        shape = self.shape(value.value.id)
        self.access(value.value.id, parts)
        return shape[len(parts) :]

    def branch(self, stmt: ast.If) -> bool:
        self.value(stmt.test)
        before, ends = self.state, []
        for body, holds in ((stmt.body, True), (stmt.orelse, False)):
            self.state = before.copy()
            with self.assuming(stmt.test, holds):
                reached = self.block(body)
            if reached:
                ends.append(self.state)
        if ends:
            self.state = joined(ends)
        return bool(ends)

    def counted(self, stmt: ast.For) -> None:
        """`for target in range(...)`."""
        if getattr(stmt.iter, "func", None) is None or stmt.iter.func.id != "range":
            raise Unproven
        args = [self.value(arg) for arg in stmt.iter.args]
        start, stop = (Interval(const(0), const(0)), args[0]) if len(args) == 1 else args[:2]
        last = plus(stop.high, -1)
        inside = Interval(start.low, last)
        if len(args) == 3:
            step = constant(stmt.iter.args[2])
            first = None if start.low is None else constant(start.low)
            if step is not None and step < 0:
                inside = Interval(plus(stop.low, 1), start.high)
            elif step is not None and first is not None and equal(start.low, start.high):
                steps = quotient(plus(last, -first), const(step))
                inside = Interval(start.low, plus(product(steps, const(step)), first))
            elif not self.is_positive(stmt.iter.args[2], args[2]):
                inside = TOP
        name = stmt.target.id
        entry = self.kept(stmt, [], None, lambda: self.state.variables.update({name: inside}))
        self.state = entry.copy()
        self.state.forget(name)
        self.state.variables[name] = inside
        self.block(stmt.body)
        self.leave(stmt, entry)
        self.state.forget(name)

    def loop(self, stmt: ast.While, test: ast.expr, pre: list[ast.stmt]) -> None:
        self.strides[id(stmt)] = self.stride(stmt, test)
        entry = self.kept(stmt, pre, test, lambda: None)
        self.state = entry.copy()
        self.once(stmt, pre, test)
        self.leave(stmt, entry)

    def stride(self, stmt: ast.While, test: ast.expr) -> tuple[int, int] | None:
        """(first value, step) of the counter of `while counter < stop`, where both are numbers."""
        match test:
            case ast.Compare(left=ast.Name(id=counter), ops=[ast.Lt()]):
                low, high = self.state.variables.get(counter, TOP)
                inner = [s for body in bodies(stmt) for s in statements(body)]
                changes = [s for s in inner if defined(s) == counter]
                value = getattr(changes[0], "value", None) if len(changes) == 1 else None
                match value:
                    case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=by) if (
                        name == counter and equal(low, high) and constant(low) is not None
                    ):
                        step = constant(by)
                        return (constant(low), step) if step is not None and step > 0 else None
        return None

    def leave(self, stmt: ast.stmt, entry: State) -> None:
        """After a loop: what held at its head, unless it is left from the middle."""
        inner = [s for body in bodies(stmt) for s in statements(body)]
        self.state = entry
        if getattr(stmt, "pre", []) or any(isinstance(s, ast.Break) for s in inner):
            for name in {defined(s) for s in inner} - {None}:
                entry.forget(name)

    def once(self, stmt: ast.stmt, pre: list[ast.stmt], test: ast.expr | None) -> None:
        """One iteration."""
        self.block(pre)
        if test is None:
            self.block(stmt.body)
            return
        self.value(test)
        with self.assuming(test, True):
            if self.strides.get(id(stmt)):
                self.learn(test.left, Interval(None, self.last(test, *self.strides[id(stmt)])))
            self.block(stmt.body)

    def last(self, test: ast.Compare, first: int, step: int) -> End:
        """The last value of a counter that begins at `first` and ends below a limit."""
        self.trying += 1
        high = self.value(test.comparators[0]).high
        self.trying -= 1
        steps = quotient(plus(high, -1 - first), const(step))
        return plus(product(steps, const(step)), first)

    def kept(self, stmt: ast.stmt, pre: list[ast.stmt], test: ast.expr | None, begin) -> State:
        """What holds at the head of every iteration of a loop."""
        inner = [s for body in bodies(stmt) for s in statements(body)]
        changed = {name for name in map(defined, inner) if name is not None}
        jumps = any(isinstance(s, ast.Continue) for s in inner)
        state = self.state.copy()
        hoped = {name: state.variables.get(name, TOP) for name in changed}
        for name in changed:
            state.forget(name)
        for _ in range(0 if jumps else _ROUNDS):
            self.state = state.copy()
            self.state.variables.update(hoped)
            begin()
            self.trying += 1
            self.once(stmt, pre, test)
            self.trying -= 1
            after = self.state.variables
            weaker = {n: weakened(hoped[n], after.get(n, TOP)) for n in changed}
            if weaker == hoped:
                break
            hoped = weaker
        else:
            hoped = {}
        state.variables.update(hoped)
        return state

    # -- what conditions say ---------------------------------------------------------------

    @contextlib.contextmanager
    def assuming(self, test: ast.expr, holds: bool) -> Iterator[None]:
        """Narrow intervals by `test`, here and in `ranges`, while the block lasts."""
        self.ranges.assumed.append(self.ranges.shown(test, holds))
        uniform = self.launch_constant(test)
        if uniform:
            text = ast.unparse(test)
            self.given.append(f"not ({text})" if holds else f"({text})")
        self.narrow(test, holds)
        try:
            yield
        finally:
            self.ranges.assumed.pop()
            if uniform:
                self.given.pop()

    def narrow(self, test: ast.expr, holds: bool) -> None:
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                self.narrow(inner, not holds)
            case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == holds:
                for value in values:
                    self.narrow(value, holds)
            case ast.Name(id=name) if name in self.state.tests:
                self.narrow(self.state.tests[name], holds)
            case ast.Compare() if holds or len(test.ops) == 1:
                terms = [test.left, *test.comparators]
                for left, op, right in zip(terms, test.ops, terms[1:]):
                    self.compare(left, type(op) if holds else _OPPOSITE.get(type(op)), right)

    def compare(self, left: ast.expr, op: type | None, right: ast.expr) -> None:
        if op in (ast.Gt, ast.GtE):
            left, right = right, left
            op = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}[op]
        if op not in (ast.Lt, ast.LtE, ast.Eq, ast.NotEq) or not self.whole(left, right):
            return
        self.trying += 1  # the accesses in a test were looked at before
        a, b = self.value(left), self.value(right)
        self.trying -= 1
        if op is ast.NotEq:
            for one, its, other in ((left, a, b), (right, b, a)):
                same = other.low is not None and equal(other.low, other.high)
                if same and equal(its.low, other.low):
                    self.learn(one, Interval(plus(its.low, 1), None))
            return
        gap = 1 if op is ast.Lt else 0
        difference = binary(right, ast.Sub(), left)
        self.learn(difference, Interval(const(gap), None if op is not ast.Eq else const(0)))
        self.learn(left, Interval(b.low if op is ast.Eq else None, plus(b.high, -gap)))
        self.learn(right, Interval(plus(a.low, gap), a.high if op is ast.Eq else None))

    def whole(self, *exprs: ast.expr) -> bool:
        """Whether these are integers, as far as types are known: a < 2.5 says nothing of a <= 1."""
        for expr in exprs:
            for node in ast.walk(expr):
                if isinstance(node, ast.Constant) and not isinstance(node.value, int):
                    return False
                kind = self.kinds.get(getattr(node, "id", ""))
                if isinstance(kind, types.Float | types.Complex):
                    return False
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    return False
        return True

    def learn(self, expr: ast.expr, interval: Interval) -> None:
        """`expr` lies in `interval` here; so does, moved and scaled, its one variable."""
        if isinstance(expr, ast.Constant):
            return
        text = spelled(expr)
        known = self.state.narrowed.get(text, (TOP, None))[0]
        read = frozenset(names(expr))
        if isinstance(expr, ast.Name) and not self.launch_constant(expr, (*THREAD, *BLOCK)):
            known = self.state.variables.get(expr.id, TOP)
            self.state.variables[expr.id] = meet(known, interval)
            return
        self.state.narrowed[text] = meet(known, interval), read
        match expr:
            case ast.BinOp(left=inner, op=ast.Add(), right=other) if constant(other) is not None:
                self.learn(inner, moved(interval, -constant(other)))
            case ast.BinOp(left=other, op=ast.Add(), right=inner) if constant(other) is not None:
                self.learn(inner, moved(interval, -constant(other)))
            case ast.BinOp(left=inner, op=ast.Sub(), right=other) if constant(other) is not None:
                self.learn(inner, moved(interval, constant(other)))
            case ast.BinOp(left=inner, op=ast.Mult(), right=other) if (constant(other) or 0) > 0:
                self.learn(inner, divided(interval, constant(other)))
            case ast.BinOp(left=other, op=ast.Mult(), right=inner) if (constant(other) or 0) > 0:
                self.learn(inner, divided(interval, constant(other)))

    # -- expressions -----------------------------------------------------------------------

    def value(self, node: ast.expr) -> Interval:
        """The interval of an expression; the accesses in it are proven on the way."""
        low, high = self.computed(node)
        if self.state.narrowed and isinstance(node, ast.Name | ast.BinOp | ast.Subscript):
            low, high = meet(Interval(low, high), self.narrowed(node))
        if low is None and self.ranges.nonnegative(node):
            low = const(0)
        return Interval(low, high)

    def narrowed(self, node: ast.expr) -> Interval:
        """What conditions say about an expression, or, if it is a sum, about a part of it."""
        found = self.state.narrowed.get(spelled(node), (TOP, None))[0]
        for part, rest in partitions(node):
            known = self.state.narrowed.get(spelled(part))
            if known is not None:
                (low, high), more = known[0], self.value(rest)
                found = meet(found, Interval(total(low, more.low), total(high, more.high)))
        return found

    def computed(self, node: ast.expr) -> Interval:
        match node:
            case ast.Constant(value=bool()):
                return TRUTH
            case ast.Constant(value=int()):
                return Interval(node, node)
            case ast.Name():
                return self.variable(node)
            case ast.BinOp(left=a, op=op, right=b):
                return self.arithmetic(self.value(a), op, self.value(b), a, b)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                low, high = self.value(a)
                return Interval(negated(high), negated(low))
            case ast.UnaryOp(op=ast.Not(), operand=a):
                self.value(a)
                return TRUTH
            case ast.BoolOp(op=op, values=values):
                return self.boolean(op, values)
            case ast.Compare(left=a, comparators=others):
                for part in (a, *others):
                    self.value(part)
                return TRUTH
            case ast.IfExp(test=test, body=a, orelse=b):
                return self.chosen(test, a, b)
            case ast.Attribute(value=ast.Name(id=array), attr="size" | "ndim"):
                return Interval(node, node) if array in self.params else TOP
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=array), attr="shape")):
                axis = constant(node.slice)
                if axis is None or axis < 0:
                    raise Unproven
                length = self.shape(array)[axis]
                return Interval(length, length)
            case ast.Subscript(value=ast.Attribute(attr="strides")):
                return TOP
            case ast.Subscript():
                return self.element(node)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.called(name, args, node)
            case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
                self.value(inner)
                return TOP
            case ast.Tuple(elts=elements):
                for element in elements:
                    self.value(element)
                return TOP
            case ast.Constant():
                return TOP
        raise Unproven

    def variable(self, node: ast.Name) -> Interval:
        name = node.id
        if name in THREAD:
            x, y, z = self.program.block
            last = (x // self.program.joined, y, z)[THREAD.index(name)] - 1
            return Interval(const(0), const(last))
        if name in BLOCK:
            return Interval(const(0), plus(load(GRID[BLOCK.index(name)]), -1))
        if name in GRID:
            return Interval(node, node)
        kind = self.kinds.get(name)
        if name in self.params and isinstance(kind, types.Integer):
            exact = call("_int64", node) if kind == types.uint64 else node
            return Interval(exact, exact)
        return self.state.variables.get(name, TOP)

    def boolean(self, op: ast.boolop, values: list[ast.expr]) -> Interval:
        """Each part is evaluated only where the ones before it let it be."""
        before = self.state.copy()
        with contextlib.ExitStack() as stack:
            for part in values:
                self.value(part)
                stack.enter_context(self.assuming(part, isinstance(op, ast.And)))
        self.state = before
        return TRUTH

    def chosen(self, test: ast.expr, a: ast.expr, b: ast.expr) -> Interval:
        self.value(test)
        before, either = self.state, []
        for expr, holds in ((a, True), (b, False)):
            self.state = before.copy()
            with self.assuming(test, holds):
                either.append(self.value(expr))
        self.state = before
        return hull(*either)

    def element(self, node: ast.Subscript) -> Interval:
        base = node.value
        if isinstance(base, ast.Tuple):  # `for d in (16, 8, 4, 2, 1)`
            low, high = (None if e is None else constant(e) for e in self.value(node.slice))
            if low is None or high is None or not 0 <= low <= high < len(base.elts):
                raise Unproven
            return functools.reduce(hull, map(self.value, base.elts[low : high + 1]))
        if not isinstance(base, ast.Name):
            raise Unproven
        kind = self.array_kind(base.id)
        if kind is None:
            raise Unproven
        self.access(base.id, _parts(node.slice))
        small = isinstance(kind.dtype, types.Integer) and kind.dtype.bitwidth <= 16
        return limits_of(kind.dtype) if small else TOP

    def called(self, name: str, args: list[ast.expr], node: ast.Call) -> Interval:
        function = self.program.externs.get(name)
        label = getattr(function, "__name__", name)
        if node.keywords:
            raise Unproven
        if "atomic_" in name or "atomic_" in label:
            return self.atomic(label, args)
        if name == "len" and isinstance(args[0], ast.Name):
            length = self.shape(args[0].id)[0]
            return Interval(length, length)
        if any(self.hands_on(arg) for arg in args):
            raise Unproven  # what it reads there is not seen from here
        found = [self.value(arg) for arg in args]
        if label in ("min", "minimum", "builtin_min"):
            return Interval(least([i.low for i in found]), least_known([i.high for i in found]))
        if label in ("max", "maximum", "builtin_max"):
            return Interval(
                greatest_known([i.low for i in found]), greatest([i.high for i in found])
            )
        if isinstance(function, types.Integer) and self.whole(*args):
            return self.fitted(found[0], function)
        if name == "int" and self.whole(*args):
            return found[0]
        return TOP

    def atomic(self, label: str, args: list[ast.expr]) -> Interval:
        if "compare_and_swap" in label or not isinstance(args[0], ast.Name):
            raise Unproven
        self.access(args[0].id, _parts(args[1]))
        for arg in args[2:]:
            self.value(arg)
        return TOP

    def hands_on(self, node: ast.expr) -> bool:
        """Whether an expression may be an array, or a part of one."""
        match node:
            case ast.Name(id=name):
                return self.array_kind(name) is not None
            case ast.Attribute(value=ast.Name()):
                return False
            case ast.Subscript(value=ast.Name(id=name)):
                kind = self.array_kind(name)
                return kind is not None and len(_parts(node.slice)) < kind.ndim
        return any(map(self.hands_on, ast.iter_child_nodes(node)))

    def arithmetic(
        self, a: Interval, op: ast.operator, b: Interval, left: ast.expr, right: ast.expr
    ) -> Interval:
        match op:
            case ast.Add():
                return Interval(total(a.low, b.low), total(a.high, b.high))
            case ast.Sub():
                found = Interval(total(a.low, negated(b.high)), total(a.high, negated(b.low)))
                return self.unwrapped(found, left, right)
            case ast.Mult():
                return self.product(a, b)
            case ast.FloorDiv() if self.is_positive(right, b) and self.is_natural(a):
                low = quotient(a.low, b.high)
                return Interval(low if low is not None else const(0), quotient(a.high, b.low))
            case ast.Mod() if self.is_positive(right, b):
                high = plus(b.high, -1)
                return Interval(const(0), least_known([a.high, high]) if natural(a) else high)
            case ast.RShift() if self.is_natural(a) and constant(right) is not None:
                return Interval(*(quotient(end, const(1 << constant(right))) for end in a))
            case ast.RShift() if self.is_natural(a):
                return Interval(const(0), a.high)
            case ast.LShift() if 0 <= (constant(right) or 0) < 31:
                return self.product(a, Interval(*[const(1 << (constant(right) or 0))] * 2))
            case ast.BitAnd() if natural(a) or natural(b):
                ends = [i.high for i in (a, b) if natural(i)]
                return Interval(const(0), least_known(ends))
            case ast.BitOr() | ast.BitXor() if natural(a) and natural(b):
                ends = [constant(i.high) if i.high is not None else None for i in (a, b)]
                if None not in ends:
                    return Interval(const(0), const((1 << max(ends).bit_length()) - 1))
        return TOP

    def unwrapped(self, found: Interval, left: ast.expr, right: ast.expr) -> Interval:
        """A difference; one of unsigned numbers must not be negative."""
        unsigned = any(
            isinstance(kind := self.kinds.get(name), types.Integer) and not kind.signed
            for name in names(left) | names(right)
        )
        return self.fitted(found, types.uint64) if unsigned else found

    def product(self, a: Interval, b: Interval) -> Interval:
        for one, other in ((a, b), (b, a)):
            factor = constant(one.low) if equal(one.low, one.high) else None
            if factor is not None:
                ends = [product(const(factor), end) for end in other]
                return Interval(*(ends if factor >= 0 else reversed(ends)))
        if self.is_natural(a) and self.is_natural(b):
            return Interval(product(a.low, b.low), product(a.high, b.high))
        return TOP

    def is_positive(self, node: ast.expr, interval: Interval) -> bool:
        """Whether `node` is at least 1, if need be as a condition of the launch."""
        if self.ranges.positive(node):
            return True
        return interval.low is not None and self.must(interval.low, ast.GtE(), const(1))

    def is_natural(self, interval: Interval) -> bool:
        """Whether all of an interval is at least 0, if need be as a condition of the launch."""
        return interval.low is not None and self.must(interval.low, ast.GtE(), const(0))

    def fitted(self, interval: Interval, kind: types.Type | None) -> Interval:
        """`interval` as values of type `kind`, in which they must not wrap around."""
        if not isinstance(kind, types.Integer):
            return TRUTH if isinstance(kind, types.Boolean) else interval
        limits = limits_of(kind)
        if kind == types.uint64:
            limits = Interval(const(0), None)
        elif kind.bitwidth == 64:
            return interval
        for end, limit, op in zip(interval, limits, (ast.GtE(), ast.LtE())):
            if end is None or (limit is not None and not self.must(end, op, limit)):
                return limits if kind != types.uint64 else Interval(const(0), None)
        return interval

    # -- accesses --------------------------------------------------------------------------

    def array_kind(self, name: str) -> types.Array | None:
        """The type of an array; None for other names."""
        if name in self.program.arrays:
            array = self.program.arrays[name]
            return types.Array(array.dtype, len(array.shape or (0,)), "C")
        if name in self.program.constants:
            value = self.program.constants[name]
            return types.Array(types.intp, value.ndim, "A")
        kind = self.kinds.get(name)
        return kind if isinstance(kind, types.Array) else None

    def shape(self, name: str) -> list[ast.expr]:
        """The lengths of an array's axes."""
        array = self.program.arrays.get(name)
        if name in self.views:
            return self.views[name]
        if array is not None and array.shape is None:
            return [binary(load("_shared_bytes"), ast.FloorDiv(), const(itemsize(array.dtype)))]
        if array is not None:
            return [const(int(length)) for length in array.shape]
        if name in self.program.constants:
            return [const(int(length)) for length in self.program.constants[name].shape]
        kind = self.kinds.get(name)
        if name not in self.params or not isinstance(kind, types.Array):
            raise Unproven
        shape = ast.Attribute(load(name), "shape", ast.Load())
        return [ast.Subscript(shape, const(axis), ast.Load()) for axis in range(kind.ndim)]

    def access(self, name: str, parts: list[ast.expr]) -> None:
        shape = self.shape(name)
        if len(parts) > len(shape):
            raise Unproven
        for part, length in zip(parts, shape):
            if isinstance(part, ast.Slice | ast.Starred):
                raise Unproven
            low, high = self.value(part)
            if not self.whole(part) or low is None or high is None:
                if self.trying:
                    continue
                raise Unproven
            begins = const(0)
            if constant(low) is not None and constant(low) < 0:  # counts from the end
                begins = negated(length)
            fine = self.must(low, ast.GtE(), begins) and self.must(high, ast.Lt(), length)
            if not (fine or self.trying):
                raise Unproven

    def must(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> bool:
        """Whether `a op b` holds, now or as a condition of the launch."""
        numbers = constant(a), constant(b)
        if None not in numbers:
            return _HOLDS[type(op)](*numbers)
        if self.trying or is_plain(a, op, b):
            return True
        text = ast.unparse(ast.fix_missing_locations(ast.Compare(a, [op], [b])))
        if self.given:
            text = f"({' or '.join((*self.given, text))})"
        self.found[text] = None
        if sum(map(len, self.found)) > _MOST_TEXT:
            raise Unproven
        return True

    def launch_constant(self, expr: ast.expr, more: tuple[str, ...] = ()) -> bool:
        """Whether an expression has one value for the whole launch, and reads no memory; names in
        `more` are taken to have one."""
        for node in ast.walk(expr):
            if isinstance(node, ast.Name) and node.id not in {*self.params, *GRID, *more}:
                return False
            if isinstance(node, ast.Call):
                return False
            if isinstance(node, ast.Subscript) and not isinstance(node.value, ast.Attribute):
                return False
        return True


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


_OPPOSITE = {**OPPOSITE, ast.Eq: ast.NotEq}
_HOLDS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.GtE: operator.ge}
