"""Fixes for findings, in the words of the kernel's own source."""

from __future__ import annotations

import ast
import linecache
import re
from typing import NamedTuple

_LOOP = re.compile(r"\b(?:while|for)\s*\(")
_NAME = re.compile(r"[A-Za-z_]\w*(?!\w|\s*[.(\[]|\s*->)")
_C_WORDS = {"true", "false", "int", "unsigned", "long", "size_t", "const", "auto"}


class LoopCondition(NamedTuple):
    """The condition of a loop at `line` as text, its variables, and those that the loop changes.

    waits: whether it reads elements of arrays or calls functions, so that other threads can end it.
    """

    line: int
    text: str
    variables: tuple[str, ...]
    changed: frozenset[str]
    waits: bool = False


def guard_hint(array: str, axis: int, index: int, source: str) -> str:
    """How to guard an access outside of `array`; `source` is its line."""
    text = _index_text(array, axis, source)
    bound = f"{array}.shape[{axis}]"
    if index < 0:
        return f"guard the access: `if {text or 'index'} >= 0:`"
    if text is None:
        return f"guard the access: its index must be less than {bound}"
    if text.isidentifier():
        return f"guard the access: `if {text} < {bound}:`"
    return f"guard the access: `{text}` must be less than {bound}"


def _index_text(array: str, axis: int, source: str) -> str | None:
    """The index of `array` on an axis, as a line of Python's source writes it."""
    line = source.strip()
    try:
        tree = ast.parse(line + " pass" if line.endswith(":") else line)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        index = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == array:
            index = node.slice
        elif isinstance(node, ast.Call) and len(node.args) > 1:  # cuda.atomic.add(array, index, ..)
            index = node.args[1] if ast.unparse(node.args[0]) == array else None
        if index is not None:
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return ast.unparse(parts[axis]) if axis < len(parts) else None
    return None


def python_loop(filename: str, lineno: int) -> LoopCondition | None:
    """The condition of the `while` at a line of a Python file."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and node.lineno == lineno:
            parts = (n for n in ast.walk(node.test) if isinstance(n, ast.Attribute | ast.Subscript))
            arrays = {id(part.value) for part in parts}
            names = (n for n in ast.walk(node.test) if isinstance(n, ast.Name))
            variables = dict.fromkeys(n.id for n in names if id(n) not in arrays)
            changed = {
                n.id
                for statement in node.body
                for n in ast.walk(statement)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            text = ast.unparse(node.test)
            tests = [node.test]
            if isinstance(node.test, ast.Constant):  # then what leads to a `break`
                tests = [n.test for n in ast.walk(node) if isinstance(n, ast.If)]
            return LoopCondition(
                lineno, text, tuple(variables), frozenset(changed), any(map(_waits, tests))
            )
    return None


def _waits(test: ast.expr) -> bool:
    elements = (n for n in ast.walk(test) if isinstance(n, ast.Subscript))
    calls = any(isinstance(n, ast.Call) for n in ast.walk(test))
    return calls or any(getattr(n.value, "attr", "") != "shape" for n in elements)


def c_loop(lines: list[str], lineno: int) -> LoopCondition | None:
    """The condition of the `while` or `for` at a line of CUDA C, or of the nearest above it."""
    for number in range(min(lineno, len(lines)), 0, -1):
        found = _LOOP.search(lines[number - 1])
        if found is None:
            continue
        head = _in_parentheses(lines[number - 1][found.end() :])
        parts = head.split(";")
        text = (parts[1] if len(parts) == 3 else head).strip()
        variables = tuple(name for name in _NAME.findall(text) if name not in _C_WORDS)
        body = (parts[2] if len(parts) == 3 else "") + "\n" + "\n".join(lines[number:lineno])
        assigned = {name for name in variables if _is_assigned(name, body)}
        return LoopCondition(number, text, variables, frozenset(assigned))
    return None


def _in_parentheses(text: str) -> str:
    """The text up to the parenthesis that closes what is open before it."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[:position]
    return text


def _is_assigned(name: str, text: str) -> bool:
    pattern = rf"(\+\+|--)\s*{name}\b|\b{name}\s*(\+\+|--|(<<|>>|[-+*/%&|^])?=(?!=))"
    return re.search(pattern, text) is not None


def endless_loop(condition: LoopCondition | None) -> tuple[str, str]:
    """(message, hint) for a loop that does not end, or has not for millions of iterations."""
    if condition is None:
        return (
            "this thread does not end",
            "does each of its loops change what its condition compares?",
        )
    text, variables, changed = condition.text, condition.variables, condition.changed
    if not variables:
        return "this loop does not end: is its `break` ever reached?", f"`{text}` is always true"
    name = next((n for n in variables if n in changed), variables[0])
    if name in changed:
        return (
            "this loop was stopped after millions of iterations:"
            f" does `{name}` change in the right direction?",
            f"`{text}` was still true; if so many are meant, profile a smaller launch",
        )
    return (
        f"this loop does not end: does `{name}` change?",
        f"change `{name}` in the loop's body, so that `{text}` becomes false",
    )
