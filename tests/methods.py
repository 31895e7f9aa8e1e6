"""Writes minigrad/_methods.pyi and _functions.pyi, for type checkers: what `export` adds to Tensor
and to minigrad.

    python tests/methods.py

They are added where their operation is defined, so a type checker cannot see them, and an editor
cannot complete them, without these lists.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "minigrad" / "_methods.pyi"
FUNCTIONS_STUB = ROOT / "minigrad" / "_functions.pyi"
HEADER = '''"""What `export` adds to {}. Written by tests/methods.py."""

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

'''
KNOWN = {"Any", "None", "Sequence", "tuple", "list", "np", "object", "str"}
BUILTINS = ("bool", "float", "int")  # Tensor has methods with these names


def methods() -> Iterator[tuple[str, Callable, bool]]:
    """(name, function, whether it is a property) of what other modules add to Tensor."""
    from minigrad import Tensor

    for name, value in sorted(vars(Tensor).items()):
        function = value.fget if isinstance(value, property) else value
        if name.startswith("__i") and (plain := f"__{name[3:]}") in vars(Tensor):
            function = vars(Tensor)[plain]  # += has the arguments of +
        if inspect.isfunction(function) and function.__module__ != Tensor.__module__:
            yield name, function, isinstance(value, property)


def text() -> str:
    """The text of the stub."""
    imports: dict[str, str] = {}
    lines = []
    for name, function, is_property in methods():
        lines += ["    @property"] * is_property
        differs = "  # type: ignore[override]" * (name in ("__eq__", "__ne__"))  # not a bool
        lines.append(f"    def {name}{_signature(function, imports)}: ...{differs}")
    return HEADER.format("Tensor") + "\n".join(
        [*_needed(imports), "", "class Methods:", *lines, ""]
    )


def _needed(imports: dict[str, str]) -> list[str]:
    return sorted(f"from {module} import {name}" for name, module in imports.items())


def functions() -> str:
    """The text of the stub of functions."""
    from minigrad import _LAZY_NAMES
    from minigrad._out import NAMES
    from minigrad.creation import LEGACY
    from minigrad.tensor import FUNCTIONS

    late = [
        f"from {place.removesuffix(f'.{name}')} import {name} as {name}"
        for name, place in _LAZY_NAMES.items()
    ]
    imports = {"Tensor": "minigrad.tensor", "dtype": "minigrad.dtypes"}
    lines = [
        f"def {name}{_signature(function, imports, self=False, out=name in NAMES)}: ..."
        for name, function in sorted(FUNCTIONS.items())
    ]
    lines += [f"class {name}(Tensor): ..." for name in LEGACY]
    lines += [f"{name}: dtype" for name in BUILTINS]
    return HEADER.format("minigrad") + "\n".join([*_needed(imports), *late, "", *lines, ""])


def _signature(
    function: Callable, imports: dict[str, str], self: bool = True, out: bool = False
) -> str:
    signature = inspect.signature(function)
    first, *others = signature.parameters.values() or (None,)
    if first is None:
        return f"() -> {_annotation(signature.return_annotation, function, imports)}"
    function = inspect.unwrap(function)
    others = [parameter for parameter in others if not self or parameter.name != "out"]
    if out:
        others = [p for p in others if p.name != "out"]
        place = len(others) - (others[-1:] != [] and others[-1].kind is first.VAR_KEYWORD)
        given = inspect.Parameter("out", first.KEYWORD_ONLY, default=None, annotation="Any")
        others.insert(place, given)
    given = [first.replace(annotation=first.empty) if self else first, *others]
    if self and first.kind is not first.VAR_POSITIONAL:
        given[0] = given[0].replace(name="self")
    parts = [_parameter(parameter, function, imports) for parameter in given]
    kinds = [parameter.kind for parameter in given]
    if first.KEYWORD_ONLY in kinds and first.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(first.KEYWORD_ONLY), "*")
    if first.POSITIONAL_ONLY in kinds:
        parts.insert(len(kinds) - kinds[::-1].index(first.POSITIONAL_ONLY), "/")
    result = _annotation(signature.return_annotation, function, imports)
    return f"({', '.join(parts)}) -> {result}"


def _parameter(parameter: inspect.Parameter, function: Callable, imports: dict[str, str]) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    part = stars + parameter.name
    if parameter.name != "self":
        part += f": {_annotation(parameter.annotation, function, imports)}"
    if parameter.default is not parameter.empty:
        simple = parameter.default is None or isinstance(parameter.default, int | float | str)
        part += f" = {parameter.default!r}" if simple else " = ..."
    return part


def _annotation(annotation: object, function: Callable, imports: dict[str, str]) -> str:
    if annotation is inspect.Parameter.empty:
        return "Any"
    for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*", str(annotation)):
        if name not in (*KNOWN, *BUILTINS):
            owner = getattr(function.__globals__[name], "__module__", None)
            found = owner if str(owner).startswith("minigrad") else function.__module__
            imports.setdefault(name, found)
    return re.sub(rf"\b({'|'.join(BUILTINS)})\b", r"builtins.\1", str(annotation))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    STUB.write_text(text())
    FUNCTIONS_STUB.write_text(functions())
