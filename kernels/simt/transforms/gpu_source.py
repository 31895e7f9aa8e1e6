"""Rewrites a kernel's source so that a GPU's compiler makes shorter loops of it.

numba-cuda compiles Python as it is written: an index is a signed number, which is compared with 0
at each access and moved if it is negative, and `range` is an iterator whose number of iterations
LLVM does not see. Here indices that are never negative become unsigned, floor divisions and
remainders of such numbers too, and `for ... in range` becomes `while`, which LLVM unrolls. The
kernel computes the same values, and its lines keep their numbers.

tests/kernels/test_sass.py counts what that does to the inner loops.
"""

from __future__ import annotations

import ast
import pickle
from types import CellType, FunctionType

from numba.core import types

from kernels.simt.analysis.source_ranges import Range, SourceRanges
from kernels.simt.frontend import resolve, source

_UNSIGNED, _SIGNED, _COUNTER = "_uint64", "_int64", "_int32"
_CASTS = {_UNSIGNED: types.uint64, _SIGNED: types.int64, _COUNTER: types.int32}


def rewritten(func: FunctionType) -> FunctionType:
    """A copy of `func` of rewritten source, with the same globals, closure and defaults; `func`
    where its source holds something that `SourceRanges` does not follow."""
    tree = pickle.loads(pickle.dumps(source.of(func).tree))  # faster than copy.deepcopy
    ranges = SourceRanges(func, tree)
    taken = set(ranges.values) | set(func.__code__.co_names) | set(func.__code__.co_freevars)
    if not ranges.understood or taken & set(_CASTS):
        return func
    tree = _Rewriter(func, ranges).visit(tree)
    tree.decorator_list = []
    return _compiled(func, tree)


def _compiled(func: FunctionType, tree: ast.FunctionDef) -> FunctionType:
    free = func.__code__.co_freevars
    parameters = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    arguments, tree.returns = tree.args, None
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        parameter.annotation = None  # may name what only the defining scope has
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [d and ast.Constant(None) for d in arguments.kw_defaults]
    outer = ast.FunctionDef("_outer", parameters, [tree], [])
    module = ast.fix_missing_locations(ast.Module([outer], []))
    code = compile(module, func.__code__.co_filename, "exec").co_consts[0]
    code = next(c for c in code.co_consts if hasattr(c, "co_code"))
    cells: dict[str, CellType] = dict(zip(free, func.__closure__ or ()))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(
        code, {**func.__globals__, **_CASTS}, func.__name__, func.__defaults__, closure
    )
    made.__kwdefaults__, made.__module__ = func.__kwdefaults__, func.__module__
    made.__qualname__, made.__doc__ = func.__qualname__, func.__doc__
    return made


class _Rewriter(ast.NodeTransformer):
    """Visits statements in their order, with the names that conditions around them prove natural
    (`ranges.assumed`) and those that a true variable would (`self.tests`)."""

    def __init__(self, func: FunctionType, ranges: SourceRanges) -> None:
        self.func, self.ranges, self.loops = func, ranges, 0
        self.tests: dict[str, set[str]] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        index = node.slice
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        natural = [not isinstance(p, ast.Constant) and self._is_natural(p) for p in parts]
        self.generic_visit(node)
        if isinstance(node.value, ast.Name):  # not x.shape[i]
            index = node.slice
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            parts = [_cast(_UNSIGNED, p) if fine else p for p, fine in zip(parts, natural)]
            node.slice = ast.Tuple(parts, ast.Load()) if isinstance(index, ast.Tuple) else parts[0]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        natural = isinstance(node.op, ast.FloorDiv | ast.Mod)
        with self.ranges.assuming_nothing():  # what is compared with 0 may be a float
            natural = natural and self._is_natural(node.left) and self._is_natural(node.right)
        self.generic_visit(node)
        if not natural:
            return node
        node.left, node.right = _cast(_UNSIGNED, node.left), _cast(_UNSIGNED, node.right)
        return _cast(_SIGNED, node)  # uint64 and int64 would give float64

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        proven = self._proven(node.value)
        self.generic_visit(node)
        self._forget(node)
        if isinstance(node.targets[0], ast.Name):
            self.tests[node.targets[0].id] = proven - {node.targets[0].id}
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign:
        self.generic_visit(node)
        self._forget(node)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        proven = self._proven(node.test)
        node.test = self.visit(node.test)
        node.body = self._branch(node.body, proven)
        node.orelse = self._branch(node.orelse, set())
        self._forget(node)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        with self.ranges.assuming(self._proven(node.test)):
            node.body = self.visit(node.body)
        node.test, node.orelse = self.visit(node.test), self.visit(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self._forget(node)
        proven = self._proven(node.test)
        node.test = self.visit(node.test)
        node.body = self._branch(node.body, proven)
        node.orelse = self._branch(node.orelse, set())
        self._forget(node)
        return node

    def _branch(self, statements: list[ast.stmt], proven: set[str]) -> list[ast.stmt]:
        """Statements that run where `proven` are natural."""
        found: list[ast.stmt] = []
        tests = {name: set(proves) for name, proves in self.tests.items()}
        with self.ranges.assuming(proven):
            for statement in statements:
                made = self.visit(statement)
                found += made if isinstance(made, list) else [made]
        self.tests = tests
        return found

    def _proven(self, test: ast.expr) -> set[str]:
        """The names that are natural where `test` holds."""
        match test:
            case ast.Name(id=name):
                return self.tests.get(name, set())
            case ast.BoolOp(op=ast.And(), values=values):
                return set().union(*map(self._proven, values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                found = set()
                for a, op, b in zip([left, *others], ops, others):
                    match a, op, b:
                        case (low, ast.LtE() | ast.Lt(), ast.Name(id=name)) if self._is_natural(
                            low
                        ):
                            found.add(name)
                        case (ast.Name(id=name), ast.GtE() | ast.Gt(), low) if self._is_natural(
                            low
                        ):
                            found.add(name)
                return found
        return set()

    def _forget(self, statement: ast.stmt) -> None:
        """What is proven of the names that a statement assigns holds no longer."""
        stored = (ast.Store, ast.Del)
        nodes = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        for name in {n.id for n in nodes if isinstance(n.ctx, stored)}:
            self.ranges.assumed.discard(name)
            self.tests.pop(name, None)
            for proven in self.tests.values():
                proven.discard(name)

    def visit_For(self, node: ast.For) -> ast.For | list[ast.stmt]:
        """for i in range(start, stop, step): ... as

        stop_ = stop; next_ = start
        while next_ < stop_:
            i = next_; next_ += step
            ...
        """
        if (versions := self._of_two_lengths(node)) is not None:
            return self.visit(versions)
        arguments, step = self._range(node)
        counter = step and self._fits_a_counter(arguments)
        node.iter = self.visit(node.iter)
        self._forget(node)
        node.body, node.orelse = self._branch(node.body, set()), self._branch(node.orelse, set())
        self._forget(node)
        if not step:
            return node
        arguments, _ = self._range(node)  # as rewritten
        self.loops += 1
        following, end = f"_next{self.loops}", f"_stop{self.loops}"
        start, stop = ([ast.Constant(0), *arguments] if len(arguments) == 1 else arguments)[:2]
        moved: ast.expr = ast.BinOp(_read(following), ast.Add(), ast.Constant(step))
        if counter:  # 32 bits: one instruction less to compare, one less to add
            moved = _cast(_COUNTER, moved)
        before = [_assign(following, _cast(_COUNTER if counter else _SIGNED, start))]
        if not isinstance(stop, ast.Constant):
            before, stop = [_assign(end, stop), *before], _read(end)
        inside = ast.Compare(_read(following), [ast.Lt() if step > 0 else ast.Gt()], [stop])
        turn = [ast.Assign([node.target], _read(following)), _assign(following, moved)]
        loop = ast.While(inside, [*turn, *node.body], node.orelse)
        for statement in (*before, loop, *turn):
            ast.copy_location(statement, node)
        return [*before, loop]

    def _of_two_lengths(self, node: ast.For) -> ast.If | None:
        """`for i in range(min(n, rest))`, where n is a known number, as a loop of n turns, which
        LLVM unrolls, and one of fewer. None for other loops, and with barriers or shuffles."""
        match self._range(node)[0]:
            case [ast.Call(func=ast.Name(id=name), args=[n, rest], keywords=[])]:
                known = self.ranges.of(n)
                plain = name not in self.ranges.values and resolve.lookup(self.func, name) is min
            case _:
                return None
        methods = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        apart = not node.orelse and not any("sync" in method for method in methods)
        if not (plain and apart and known and known.low == known.high):
            return None
        count, fewer = ast.Constant(int(known.low)), pickle.loads(pickle.dumps(node))
        node.iter.args, fewer.iter.args = [count], fewer.iter.args[0].args[1:]  # type: ignore[attr-defined]
        found = ast.If(ast.Compare(rest, [ast.GtE()], [count]), [node], [fewer])
        return ast.fix_missing_locations(ast.copy_location(found, node))

    def _is_natural(self, node: ast.expr) -> bool:
        known = self.ranges.of(node)
        return known is not None and known.low >= 0

    def _range(self, node: ast.For) -> tuple[list[ast.expr], int | None]:
        """The arguments of a loop over `range`, and its step if that is a known number."""
        match node:
            case ast.For(
                target=ast.Name(),
                iter=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]),
            ) if name not in self.ranges.values and resolve.lookup(self.func, name) is range:
                known = self.ranges.of(arguments[2]) if len(arguments) == 3 else Range(1, 1)
                known = known if known and known.low == known.high else None
                return arguments, int(known.low) if known else None
        return [], None

    def _fits_a_counter(self, arguments: list[ast.expr]) -> bool:
        found = [self.ranges.of(a) for a in arguments]
        return all(part is not None and max(map(abs, part)) < 2**30 for part in found)


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _cast(name: str, value: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(_read(name), [value], []), value)
