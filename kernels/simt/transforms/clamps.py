"""Clamps that a loop makes needless.

In `for i in range(min(n, end - start))`, `min(start + i, last)` is `start + i`: i < end - start,
and `last` is `end - 1`, or the greatest of that and other numbers. A kernel that loads a tile reads
its last element again where the tile goes beyond the end, and then uses no more than there is;
where the memory is read instead of the tile (`tile_forwarding`), the clamp stands in that loop.
"""

from __future__ import annotations

import ast

from kernels.simt.analysis.uniformity import Facts
from kernels.simt.ir.nodes import counter, defined, range_arguments, statements
from kernels.simt.ir.program import Program

LEAST, GREATEST = ("min", "minimum", "builtin_min"), ("max", "maximum", "builtin_max")


def arguments(program: Program, node: ast.expr, names: tuple[str, ...]) -> list[ast.expr]:
    """The arguments of a call of one of these functions."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    function = program.externs.get(node.func.id)
    return node.args if getattr(function, "__name__", node.func.id) in names else []


class Unclamped(ast.NodeTransformer):
    """Statements without such clamps."""

    def __init__(self, program: Program, facts: Facts) -> None:
        self.program, self.facts = program, facts
        self.ends: dict[str, list[tuple[str, ast.expr]]] = {}  # by counter: (start, end)

    def visit_For(self, node: ast.For) -> ast.For:
        name, bounds = counter(node), range_arguments(node)
        changed = {defined(stmt) for stmt in statements(node.body)}
        if len(bounds) == 1 and name not in changed:
            for part in arguments(self.program, bounds[0], LEAST):
                read = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
                match part:
                    case ast.BinOp(end, ast.Sub(), start) if not changed & read:
                        self.ends.setdefault(name, []).append((ast.dump(start), end))
        self.generic_visit(node)
        self.ends.pop(name, None)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match arguments(self.program, node, LEAST):
            case [ast.BinOp(left, ast.Add(), ast.Name(i)) as plain, last]:
                for start, end in self.ends.get(i, ()):
                    if ast.dump(left) == start and self._reaches(last, end):
                        return plain
        return node

    def _reaches(self, last: ast.expr, end: ast.expr) -> bool:
        """Whether `last` is at least `end` - 1."""
        if isinstance(last, ast.Name):
            value = self._once(last.id)
            return value is not None and self._reaches(value, end)
        if greatest := arguments(self.program, last, GREATEST):
            return any(self._reaches(part, end) for part in greatest)
        match last:
            case ast.BinOp(stop, ast.Sub(), ast.Constant(1)) if ast.dump(stop) == ast.dump(end):
                return all(self._is_fixed(n.id) for n in ast.walk(end) if isinstance(n, ast.Name))
        return False

    def _once(self, name: str) -> ast.expr | None:
        """What a variable is, that is assigned to once, outside of loops."""
        sites = self.facts.defs.get(name, [])
        if len(sites) != 1 or not isinstance(sites[0].stmt, ast.Assign):
            return None
        loops = any(isinstance(c, ast.For | ast.While) for c in sites[0].controls)
        return None if loops else sites[0].stmt.value

    def _is_fixed(self, name: str) -> bool:
        given = name in self.program.params or name in self.program.externs
        return self._once(name) is not None or (given and name not in self.facts.defs)
