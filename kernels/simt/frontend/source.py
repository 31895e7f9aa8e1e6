"""The syntax tree of a Python function, with line numbers of its file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from functools import cache
from types import FunctionType

from kernels.support.errors import CompileError, Unstructured


@dataclass(frozen=True)
class Source:
    """A function's text and tree. `first_line` is the line of `text` in `filename`."""

    text: str
    filename: str
    first_line: int
    tree: ast.FunctionDef

    def line(self, number: int) -> str:
        lines = self.text.splitlines()
        index = number - self.first_line
        return lines[index].strip() if 0 <= index < len(lines) else ""


@cache
def of(func: FunctionType) -> Source:
    """The source of `func`.

    Raises CompileError for functions without retrievable source (made by `exec` from a string
    that is not registered in `linecache`, typed at a bare prompt) and for anything but a `def`.
    """
    name = getattr(func, "__qualname__", repr(func))
    try:
        lines, first = inspect.getsourcelines(func)
    except (OSError, TypeError) as error:
        raise _not_found(name, str(error)) from error
    text = "".join(lines)
    first = max(first, 1)
    if func.__name__ == "<lambda>":
        return Source(text, func.__code__.co_filename, first, _lambda(func, text, first))
    module = _parse(text, name)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == func.__name__:
            ast.increment_lineno(module, first - 1)
            _stamp(node, func.__code__.co_filename)
            return Source(text, func.__code__.co_filename, first, node)
    # Python 3.13 takes what `exec` made for a part of the text of `python -c`
    raise _not_found(name, f"{func.__code__.co_filename} holds no `def` of it")


def _not_found(name: str, why: str) -> Unstructured:
    return Unstructured(
        f"the source of kernel {name!r} cannot be found ({why}); define it with `def` in a file, a"
        " notebook cell or a doctest, or register its text in `linecache`"
    )


def _lambda(func: FunctionType, text: str, first: int) -> ast.FunctionDef:
    """The lambda expression that `func` was made from, as a `def`: found in the whole file, for its
    own lines may be a part of a statement."""
    try:
        module = ast.parse("".join(inspect.findsource(func)[0]))
    except SyntaxError:  # a notebook's cell with other than Python in it
        module = _parse(text, func.__qualname__)
        ast.increment_lineno(module, first - 1)
    line = func.__code__.co_firstlineno
    found = [n for n in ast.walk(module) if isinstance(n, ast.Lambda) and n.lineno == line]
    names = func.__code__.co_varnames[: func.__code__.co_argcount]
    found = [n for n in found if tuple(a.arg for a in n.args.args) == names]
    if len(found) > 1:  # several on one line: told apart by the columns of their bodies
        columns = {start for *_, start, _ in func.__code__.co_positions() if start is not None}
        body_columns = [
            {n.col_offset for n in ast.walk(f.body) if hasattr(n, "col_offset")} for f in found
        ]
        found = [f for f, c in zip(found, body_columns) if c & columns and min(c) >= min(columns)]
    if len(found) != 1:
        raise CompileError(f"{func.__qualname__!r} cannot be told apart in its source; use `def`")
    return from_lambda(found[0], func.__code__.co_filename)


def from_lambda(node: ast.Lambda, filename: str) -> ast.FunctionDef:
    """A lambda expression as a `def`."""
    returned = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.copy_location(ast.FunctionDef("lambda_", node.args, [returned], []), node)
    _stamp(made, filename)
    return made


def _parse(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(text))
    except SyntaxError:
        try:  # a multi-line string or comment at column 0 defeats dedent
            return ast.parse("if True:\n" + text)
        except SyntaxError as error:
            raise CompileError(f"the source of kernel {name!r} cannot be parsed") from error


def _stamp(tree: ast.AST, filename: str) -> None:
    for node in ast.walk(tree):
        node.source = filename
        match node:  # Python's compiler turns a list that is only iterated or searched into a tuple
            case ast.For(iter=ast.List(elts=items) as listed):
                node.iter = ast.copy_location(ast.Tuple(items, ast.Load()), listed)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.List() as listed]):
                node.comparators = [ast.copy_location(ast.Tuple(listed.elts, ast.Load()), listed)]
