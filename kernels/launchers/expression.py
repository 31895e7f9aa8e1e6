"""Table texts as statements of a kernel's language, in a compute type that both call `T`.

Calls become assignments of their own (`t0 = exp(x)`) and equal calls are computed once; literals
are written `T(0.5)`, so that a float32 kernel holds no double. A language says how it writes an
assignment, a choice, and the functions of `kernels.pointwise.FUNCTIONS`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_INT_IDENTITIES = frozenset(("ceil", "floor", "rint", "trunc"))


class Translator:
    """Turns one expression text into statements and a final expression, for one compute dtype."""

    assignment = "{} = {}"
    choice = "({1} if {0} else {2})"
    float_calls: Mapping[str, str] = {}

    def __init__(self, dtype: np.dtype) -> None:
        self.kind = dtype.kind
        self.suffix = "f" if dtype.itemsize == 4 else ""  # C: rintf(float), rint(double)
        self.statements: list[str] = []
        self.temporaries: dict[str, str] = {}

    @classmethod
    def translate(cls, text: str, dtype: np.dtype) -> tuple[list[str], str]:
        """Statements and the final expression of a table text."""
        translator = cls(dtype)
        result = translator(ast.parse(text, mode="eval").body)
        return translator.statements, result

    def __call__(self, node: ast.expr) -> str:
        return getattr(self, f"visit_{type(node).__name__.lower()}")(node)

    def visit_name(self, node: ast.Name) -> str:
        return node.id

    def visit_constant(self, node: ast.Constant) -> str:
        return f"T({node.value!r})"

    def visit_unaryop(self, node: ast.UnaryOp) -> str:
        x = self(node.operand)
        if isinstance(node.op, ast.USub):
            return f"(-{x})"
        return f"({x} == T(0))" if self.kind == "b" else f"(~{x})"

    def visit_binop(self, node: ast.BinOp) -> str:
        return self.operation(_OPERATORS[type(node.op)], self(node.left), self(node.right))

    def operation(self, operator: str, a: str, b: str) -> str:
        return f"({a} {operator} {b})"

    def visit_compare(self, node: ast.Compare) -> str:
        return f"({self(node.left)} {_OPERATORS[type(node.ops[0])]} {self(node.comparators[0])})"

    def visit_call(self, node: ast.Call) -> str:
        name = node.func.id
        arguments = [self.named(self(a)) for a in node.args]
        special = getattr(self, f"call_{name}", None)
        if special is not None:
            return self.named(special(*arguments))
        if self.kind == "f":
            return self.named(f"{self.float_calls[name]}({', '.join(arguments)})")
        if name in _INT_IDENTITIES:
            return arguments[0]
        raise TypeError(f"{name} needs a float compute dtype, not kind {self.kind!r}")

    def named(self, text: str) -> str:
        """A variable that holds `text`; names and literals stay as they are."""
        if text.isidentifier() or text.startswith("T("):
            return text
        if text not in self.temporaries:
            self.temporaries[text] = f"t{len(self.temporaries)}"
            self.statements.append(self.assignment.format(self.temporaries[text], text))
        return self.temporaries[text]

    def call_where(self, c: str, a: str, b: str) -> str:
        return self.choice.format(c, a, b)

    def call_maximum(self, a: str, b: str, operator: str = ">") -> str:
        if self.kind != "f":
            return self.choice.format(f"{a} {operator} {b}", a, b)
        # a NaN wins: of a by the comparison. The inner choice is one instruction on x86.
        better = self.named(self.choice.format(f"{b} {operator} {a}", b, a))
        return self.choice.format(f"{b} == {b}", better, b)

    def call_minimum(self, a: str, b: str) -> str:
        return self.call_maximum(a, b, "<")

    def call_sign(self, x: str) -> str:  # 0 for NaN
        positive = self.choice.format(f"{x} > T(0)", "T(1)", "T(0)")
        if self.kind in "bu":
            return positive
        return self.choice.format(f"{x} < T(0)", "T(-1)", positive)

    def call_abs(self, x: str) -> str:
        if self.kind in "bu":
            return x
        return f"{self.float_calls['abs']}({x})" if self.kind == "f" else f"abs({x})"

    def call_isnan(self, x: str) -> str:
        return f"{self.float_calls['isnan']}({x})" if self.kind == "f" else f"({x} != {x})"

    def call_isinf(self, x: str) -> str:
        return f"{self.float_calls['isinf']}({x})" if self.kind == "f" else f"({x} != {x})"
