"""SSA renaming: a variable that is reused for something else becomes another variable.

`x = a[i]; ...; x = a` gives `x` two unrelated live ranges, maybe of two types. Two definitions
belong to one def-use web if both reach some use; each web gets a name of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from kernels.simt.ir.nodes import Collective, assign, clone, defined, load, nodes_in
from kernels.simt.ir.program import Program

Env = dict[str, frozenset[int]]


def _merge(*envs: Env | None) -> Env | None:
    """The definitions that reach a join of paths; None is an unreachable path."""
    live = [env for env in envs if env is not None]
    if not live:
        return None
    result = dict(live[0])
    for env in live[1:]:
        for name, ids in env.items():
            result[name] = result.get(name, frozenset()) | ids
    return result


class _Reaching:
    """Reaching definitions over the structured program; definitions that share a use are joined."""

    def __init__(self, variables: Iterable[str]) -> None:
        self.variables = set(variables)
        self.parent: list[int] = []
        self.of_node: dict[int, int] = {}  # id of a Name node -> a definition it belongs to
        self.defs: dict[int, int] = {}  # id of a statement -> its definition
        self.name_of: list[str] = []
        self.loops: list[tuple[list[Env | None], list[Env | None]]] = []

    def new(self, name: str) -> int:
        self.parent.append(len(self.parent))
        self.name_of.append(name)
        return len(self.parent) - 1

    def find(self, d: int) -> int:
        while self.parent[d] != d:
            self.parent[d] = self.parent[self.parent[d]]
            d = self.parent[d]
        return d

    def use(self, expr: ast.AST, env: Env) -> None:
        for node in nodes_in(expr):
            if isinstance(node, ast.Name) and node.id in self.variables:
                ids = env.get(node.id)
                if not ids:  # read before any assignment: a web of its own
                    ids = env[node.id] = frozenset([self.defs.setdefault(id(node), -1)])
                    if -1 in ids:
                        self.defs[id(node)] = self.new(node.id)
                        ids = env[node.id] = frozenset([self.defs[id(node)]])
                first, *others = ids
                for other in others:
                    self.parent[self.find(other)] = self.find(first)
                self.of_node[id(node)] = first

    def define(self, stmt: ast.stmt, target: ast.Name, env: Env) -> None:
        if id(stmt) not in self.defs:
            self.defs[id(stmt)] = self.new(target.id)
        d = self.defs[id(stmt)]
        self.of_node[id(target)] = d
        env[target.id] = frozenset([d])

    def block(self, body: list[ast.stmt], env: Env | None) -> Env | None:
        for stmt in body:
            if env is None:
                return None
            env = self.statement(stmt, env)
        return env

    def statement(self, stmt: ast.stmt, env: Env) -> Env | None:
        match stmt:
            case ast.If():
                self.use(stmt.test, env)
                return _merge(self.block(stmt.body, dict(env)), self.block(stmt.orelse, dict(env)))
            case ast.For():
                self.use(stmt.iter, env)
                return self.loop(stmt, env)
            case ast.While():
                return self.loop(stmt, env)
            case ast.Break():
                self.loops[-1][0].append(env)
                return None
            case ast.Continue():
                self.loops[-1][1].append(env)
                return None
            case ast.Assign():
                self.use(stmt.value, env)
                target = stmt.targets[0]
                if isinstance(target, ast.Name):
                    self.define(stmt, target, env)
                else:
                    self.use(target, env)
            case Collective():
                for arg in stmt.args:
                    self.use(arg, env)
                if stmt.dest is not None:
                    self.define(stmt, stmt.dest, env)
            case ast.Expr():
                self.use(stmt.value, env)
            case ast.Raise():
                if stmt.exc is not None:
                    self.use(stmt.exc, env)
                return None
        return env

    def loop(self, stmt: ast.For | ast.While, env: Env) -> Env | None:
        head: Env = env
        while True:
            breaks: list[Env | None] = []
            continues: list[Env | None] = []
            self.loops.append((breaks, continues))
            inside: Env | None = dict(head)
            if isinstance(stmt, ast.For):
                leave: Env | None = dict(head)
                self.define(stmt, stmt.target, inside)
            else:
                inside = self.block(getattr(stmt, "pre", []), inside)
                if inside is not None:
                    self.use(stmt.test, inside)
                leave = inside and dict(inside)
                if isinstance(stmt.test, ast.Constant) and stmt.test.value:
                    leave = None
            end = self.block(stmt.body, inside)
            self.loops.pop()
            new = _merge(head, end, *continues)
            if new == head:
                return _merge(leave, *breaks)
            head = new


def rename(program: Program) -> None:
    """Give every def-use web its own name. Parameters are never assigned afterwards."""
    program.body = body = clone(program.body)
    assigned = {
        name
        for node in nodes_in(ast.Module(body, []))
        if isinstance(node, ast.stmt) and (name := defined(node))
    }
    undefined = {
        node.id
        for node in nodes_in(ast.Module(body, []))
        if isinstance(node, ast.Name) and node.id in program.taken
    }
    params = set(program.params)
    known = params | set(program.arrays) | set(program.constants)
    reaching = _Reaching(assigned | (undefined - known))
    entry = {p: reaching.new(p) for p in program.params if p in assigned}
    reaching.block(body, {name: frozenset([d]) for name, d in entry.items()})
    names: dict[int, str] = {}
    taken: set[str] = set(params)
    copies = []
    for name, d in entry.items():
        root = reaching.find(d)
        used = any(reaching.find(other) == root for other in reaching.of_node.values())
        names[root] = program.fresh(name) if used else name
        if used:
            copies.append(assign(names[root], load(name), body[0]))
    for d, name in enumerate(reaching.name_of):
        root = reaching.find(d)
        if root not in names:
            names[root] = name if name not in taken else program.fresh(name)
            taken.add(names[root])
            if names[root] != name:
                program.renamed[names[root]] = name
    for node in nodes_in(ast.Module(body, [])):
        if isinstance(node, ast.Name) and id(node) in reaching.of_node:
            node.id = names[reaching.find(reaching.of_node[id(node)])]
    program.body = copies + body
