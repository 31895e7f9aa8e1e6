"""The program: one kernel in normal form, for one block shape."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import types as pytypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core import types
from numba.np.numpy_support import from_dtype

from kernels.simt.devlib import half
from kernels.simt.ir.safety import Safety


@dataclass
class ArrayDecl:
    """A `shared.array` or `local.array`. `shape` is None for dynamic shared memory."""

    name: str
    space: str  # "shared" or "local"
    shape: tuple[int, ...] | None
    dtype: types.Type
    line: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of an array that is not dynamic shared memory."""
        assert self.shape is not None
        return self.shape


@dataclass
class Function:
    """A device function that is compiled on its own rather than inlined."""

    name: str
    params: list[str]
    body: list[ast.stmt]
    depth: str | None = None  # of one that calls itself: the parameter that counts the calls
    placed: bool = False  # whether it gets the thread's and the block's coordinates, too


@dataclass
class Interleaving:
    """Blocks that differ in `axis` only (`_by` or `_bx`) store the same in the arrays `common`."""

    axis: str
    common: set[str]


@dataclass
class Program:
    """The normal form of a kernel and what its names mean."""

    name: str
    filename: str
    line: int
    block: tuple[int, int, int]
    safety: Safety = Safety.UNCHECKED
    params: list[str] = field(default_factory=list)
    given: dict[str, types.Array] = field(default_factory=dict)  # array parameters, not assigned
    tuples: dict[str, int] = field(default_factory=dict)  # tuple parameters, not assigned: lengths
    body: list[ast.stmt] = field(default_factory=list)
    arrays: dict[str, ArrayDecl] = field(default_factory=dict)
    functions: dict[Any, Function] = field(default_factory=dict)
    externs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    captured: set[str] = field(default_factory=set)  # those that are memory of device arrays
    fields: set[str] = field(default_factory=set)  # of all records that the kernel may touch
    cooperative: bool = False
    interleaving: Interleaving | None = None  # what neighbouring blocks have in common
    turned: int = 0  # the axis that has changed places with x, if any
    joined: int = 1  # neighbouring blocks along x that `block` stands for
    returned: str | None = None  # the flag of threads that have returned
    #: functions that threads of a block must call one after the other
    ordered: set[str] = field(default_factory=set)
    places: dict[tuple, str] = field(default_factory=dict)  # where shared arrays are declared
    taken: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)  # what SSA renaming made of which name

    @property
    def checked(self) -> bool:
        """Whether every index is checked on the way."""
        return self.safety is Safety.BOUNDS or self.debug

    @property
    def debug(self) -> bool:
        """Whether all that the debug mode checks is checked."""
        return self.safety is Safety.DEBUG or self.recorded

    @property
    def recorded(self) -> bool:
        """Whether the lab records the kernel, which looks at the sources of shuffles itself."""
        return self.safety is Safety.RECORDED

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def blocks(self) -> str:
        """In words, how large blocks are and how they run."""
        x, y, z = self.block
        sizes, along = [x // self.joined, y, z], "xyz"[self.turned]
        sizes[0], sizes[self.turned] = sizes[self.turned], sizes[0]
        text = "block ({}, {}, {})".format(*sizes)
        text += f", x and {along} exchanged" if self.turned else ""
        return text + (f", {self.joined} neighbours in {along} as one" if self.joined > 1 else "")

    def in_source_names(self, text: str) -> str:
        """`text` with the variables called as the kernel's author calls them."""
        for name in sorted(self.renamed, key=len, reverse=True):
            text = re.sub(rf"\b{name}\b(?!\()", self.renamed[name], text)
        return text

    def fresh(self, base: str) -> str:
        """A variable name that nothing uses yet, close to `base`."""
        base = base.strip("_") or "v"
        if keyword.iskeyword(base):  # of `lambda_`
            base += "_"
        elif not base.isidentifier():  # of `_1`
            base = f"v{base}"
        name, number = base, 1
        while name in self.taken or hasattr(builtins, name):  # generated code calls range(), min()
            name, number = f"{base}_{number}", number + 1
        self.taken.add(name)
        return name

    def extern(self, value: Any, hint: str) -> str:
        """The name under which the generated module will know `value`."""
        for name, known in self.externs.items():
            if known is value:
                return name
        base = "_" + "".join(c if c.isalnum() else "_" for c in hint).strip("_")
        name, number = base, 1
        while name in self.externs or name in RESERVED:
            name, number = f"{base}_{number}", number + 1
        self.externs[name] = value
        return name

    def constant_array(self, value: np.ndarray) -> str:
        """The name of the hidden argument that carries a global array, frozen now as on CUDA."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"_const{len(self.constants)}"
        self.constants[name] = value
        self.fields |= field_names(from_dtype(value.dtype))
        return name

    def type_of_constant(self, name: str, kind: types.Array) -> types.Array:
        """The type of a constant of `kind`: kernels cannot write to a copy that is frozen."""
        return kind if name in self.captured else kind.copy(readonly=True)

    def captured_array(self, memory: np.ndarray) -> str:
        """The name of the hidden argument that carries a global device array: no copy."""
        name = self.constant_array(memory)
        self.captured.add(name)
        return name


def field_names(kind: Any) -> set[str]:
    """The names of the fields of a record, or of the records in an array or a tuple."""
    if isinstance(kind, types.Array):
        return field_names(kind.dtype)
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return set().union(*map(field_names, parts))
    if not isinstance(kind, types.Record):
        return set()
    return set(kind.fields).union(*(field_names(kind.typeof(name)) for name in kind.fields))


#: names that generated code uses for its own purposes
RESERVED = frozenset(
    "_tx _ty _tz _bx _by _bz _gx _gy _gz _t _u _block _position _across _wide _first _last _any"
    " _rest _piece"
    " _all _min _max _error _shared _j _joined _begin _in_panel _down _tall _w _chunk _tiles"
    " _iterations _full _inside _in_rows _is_last _part _lo _hi _x0 _y0 _sx _warp _end"
    " _delta _other _away _span".split()
)


def importable(value: Any) -> tuple[str, str] | None:
    """(module, name) from which generated code can import `value`, or None."""
    if isinstance(value, pytypes.ModuleType):
        return (value.__name__, "")
    if isinstance(value, types.Type):
        for home in (types, half):
            if getattr(home, value.name, None) is value:
                return (home.__name__, value.name)
        return None
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not module or not name or module == "__main__":
        return None
    import sys

    found = getattr(sys.modules.get(module), name, None)
    return (module, name) if found is value else None
