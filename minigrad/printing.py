"""Printing of tensors, in torch's format."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.backends import is_batched
from minigrad.tensor import Tensor, wrap


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = _Options()
_PROFILES = {"default": _Options(), "short": _Options(2, 1000, 2), "full": _Options(4, math.inf)}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Number of digits, the size above which tensors are shortened, items at each edge, line width,
    and whether to use scientific notation (None: depending on the range of the values)."""
    if profile is not None:
        OPTIONS.__dict__.update(_PROFILES[profile].__dict__)
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems}
    given["linewidth"] = linewidth
    OPTIONS.__dict__.update({k: v for k, v in given.items() if v is not None})
    OPTIONS.sci_mode = sci_mode


class _Formatter:
    """One width and notation for all printed values."""

    def __init__(self, shown: np.ndarray) -> None:
        self.parts = None
        if shown.dtype.kind == "c":
            self.parts = _Formatter(shown.real), _Formatter(abs(shown.imag))
            self.width = max((len(self(v)) for v in shown.reshape(-1).tolist()), default=1)
            return
        self.floating = shown.dtype.kind == "f"
        self.whole = self.scientific = False
        values = shown.reshape(-1)
        if not self.floating:
            self.width = max((len(str(v)) for v in values.tolist()), default=1)
            return
        sized = values[np.isfinite(values) & (values != 0)]  # nan, inf have no digits
        if sized.size:
            self._choose(np.abs(sized))
        else:
            self.whole = True
        self.width = max((len(self._text(v)) for v in sized.tolist()), default=1)

    def _choose(self, sizes: np.ndarray) -> None:
        big, small = float(sizes.max()), float(sizes.min())
        self.whole = bool((sizes == np.ceil(sizes)).all())
        self.scientific = big / small > 1000 or big > 1e8
        if not self.whole:
            self.scientific = self.scientific or small < 1e-4
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode

    def _text(self, value: Any) -> str:
        if not self.floating:
            return str(value)
        if not math.isfinite(value):
            return str(value)
        if self.scientific:
            return f"{value:.{OPTIONS.precision}e}"
        return f"{value:.0f}." if self.whole else f"{value:.{OPTIONS.precision}f}"

    def __call__(self, value: Any) -> str:
        if self.parts is not None:
            real, imag = self.parts
            sign = "-" if math.copysign(1, value.imag) < 0 else "+"
            return f"{real(value.real)}{sign}{imag(abs(value.imag)).strip()}j"
        return self._text(value).rjust(self.width)


def _shortened(array: np.ndarray) -> np.ndarray:
    """The elements that are printed: the edges of every long dimension."""
    edge = OPTIONS.edgeitems
    for dim, n in enumerate(array.shape):
        if n > 2 * edge:
            kept = [*range(edge), *range(n - edge, n)]
            array = np.take(array, kept, axis=dim)
    return array


def _vector(row: np.ndarray, indent: int, form: _Formatter, shorten: bool) -> str:
    edge = OPTIONS.edgeitems
    values = [form(v) for v in row.tolist()]
    if shorten and len(values) > 2 * edge:
        values = [*values[:edge], " ...", *values[-edge:]]
    per_line = max(1, (OPTIONS.linewidth - indent) // (form.width + 2))
    lines = [values[i : i + per_line] for i in range(0, len(values), per_line)] or [[]]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"


def _nested(array: np.ndarray, indent: int, form: _Formatter, shorten: bool) -> str:
    if array.ndim == 0:
        return form(array.item())
    if array.ndim == 1:
        return _vector(array, indent, form, shorten)
    edge = OPTIONS.edgeitems
    rows: list[Any] = list(array)
    if shorten and len(rows) > 2 * edge:
        rows = [*rows[:edge], None, *rows[-edge:]]
    parts = ["..." if r is None else _nested(r, indent + 1, form, shorten) for r in rows]
    separator = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(parts) + "]"


def values_text(tensor: Tensor, indent: int) -> str:
    """The elements, without notes; `indent` columns are before the first line."""
    array = tensor.detach().cpu()._array
    if not array.size:
        return "[]"
    if dtypes.category(array.dtype) == dtypes.FLOATING and array.itemsize == 2:
        array = array.astype(np.float32)
    shorten = array.size > OPTIONS.threshold
    form = _Formatter(_shortened(array) if shorten else array)
    return _nested(array, indent, form, shorten)


def unsaid() -> tuple:
    """The dtypes that a text does not say."""
    own_complex = dtypes.from_numpy_dtype(dtypes.scalar_dtype(1j))
    return (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_, own_complex)


def format_tensor(tensor: Tensor) -> str:
    """The text of `repr(tensor)`."""
    if is_batched(tensor._array):
        return _format_elements(tensor._array)
    kind = type(tensor)
    name = "Parameter containing:\ntensor" if kind.__name__ == "Parameter" else "tensor"
    if kind.__module__.partition(".")[0] != "minigrad":
        name = kind.__name__  # a program's subclass
    prefix = f"{name.rpartition(chr(10))[2]}("
    array = tensor._array
    notes = []
    if not isinstance(array, np.ndarray):
        notes.append(f"device='{tensor.device}'")
    if tensor.is_meta or array.size == 0:
        body = "..." if tensor.is_meta else "[]"
        if tensor.is_meta or array.ndim != 1:
            notes.append(f"size={tuple(array.shape)}")
        if tensor.dtype is not dtypes.get_default_dtype():
            notes.append(f"dtype={tensor.dtype}")
    else:
        body = values_text(tensor, len(prefix))
        if tensor.dtype not in unsaid():
            notes.append(f"dtype={tensor.dtype}")
    node = tensor.grad_fn
    if node is not None:
        notes.append(f"grad_fn=<{node.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    return with_notes(f"{name}({body}", notes, len(prefix)) + ")"


def _format_elements(array: Any) -> str:
    """All elements of a tensor inside of `vmap`, as torch shows them."""
    values = textwrap.indent(format_tensor(wrap(array.whole)), "    ")
    return f"BatchedTensor(lvl={len(array.shape.levels)}, bdim=0, value=\n{values}\n)"


def with_notes(text: str, notes: list[str], indent: int) -> str:
    """Adds notes after the values, on a new line if they don't fit."""
    length = len(text) - text.rfind("\n") + 1
    for note in notes:
        if length + len(note) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + note
            length = indent + len(note)
        else:
            text += ", " + note
            length += len(note) + 2
    return text
