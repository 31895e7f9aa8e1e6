"""A reader of pickles that runs no code: it knows a few functions by name and nothing else.

The standard library's `pickle.Unpickler` imports what a file names. Here the opcodes are decoded by
`pickletools.genops`, which only splits the bytes, and each name must be in a table.
"""

from __future__ import annotations

import functools
import math
import pickle
import pickletools
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import IO, Any

import numpy as np

import minigrad
from minigrad._meta import MetaArray
from minigrad._pickle_writer import STORAGES, dtype_named, is_plain_key
from minigrad.nn import functional, modules
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.ops.sparse_make import rebuilt
from minigrad.tensor import Size, Tensor, wrap


class RefusedError(pickle.UnpicklingError, RuntimeError):
    """A file asks for something that loading does not do."""


class _Name:
    """A name in a pickle: what a call of it gives, or None for one that is not called."""

    def __init__(self, text: str, call: Callable | None) -> None:
        self.text, self.call = text, call


class _Storage:
    """The elements of tensors, flat: bytes for a storage without a type."""

    def __init__(self, array: Any) -> None:
        self.array = array


_LITERALS = set(
    "BININT BININT1 BININT2 LONG1 LONG4 INT LONG BINFLOAT FLOAT BINUNICODE SHORT_BINUNICODE"
    " BINUNICODE8 UNICODE BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING SHORT_BINSTRING".split()
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Reader:
    """Reads one pickle. storage: from (name, dtype or None for bytes, device, elements) to a flat
    array. allowed: classes that the program has declared safe, by their full names."""

    def __init__(self, storage: Callable[..., Any], allowed: dict[str, type]) -> None:
        self._storage, self._allowed = storage, allowed
        self.functions = FUNCTIONS
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes | IO[bytes]) -> Any:
        """The object; a file is left at its end. RefusedError for what is not allowed; other
        exceptions for damage."""
        for opcode, arg, _ in pickletools.genops(data):
            name = opcode.name
            if name == "STOP":
                if len(self._stack) != 1:
                    raise ValueError("the pickle does not end with one object")
                return self._stack.pop()
            self._run(name, arg)
        raise EOFError("the pickle has no end")

    def _run(self, name: str, arg: Any) -> None:
        stack = self._stack
        if name in _LITERALS:
            stack.append(arg)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[arg] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[arg])
        else:
            handler = getattr(self, f"_op_{name.lower()}", None)
            if handler is None:
                raise RefusedError(f"the opcode {name} of pickles is not allowed")
            handler(arg)

    def _pop(self, count: int) -> list:
        if count > len(self._stack) - (self._marks[-1] if self._marks else 0):
            raise ValueError("the pickle takes more than it has")
        found = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return found

    def _since_mark(self) -> list:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    # ---------------------------------------------------------------- opcodes

    def _op_proto(self, arg: int) -> None:
        pass

    _op_frame = _op_proto

    def _op_mark(self, arg: None) -> None:
        self._marks.append(len(self._stack))

    def _op_memoize(self, arg: None) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _op_tuple(self, arg: None) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _op_append(self, arg: None) -> None:
        (item,) = self._pop(1)
        _only(self._stack[-1], list).append(item)

    def _op_appends(self, arg: None) -> None:
        items = self._since_mark()
        _only(self._stack[-1], list).extend(items)

    def _op_additems(self, arg: None) -> None:
        items = self._since_mark()
        _only(self._stack[-1], set).update(map(_key, items))

    def _op_setitem(self, arg: None) -> None:
        self._set(self._pop(2))

    def _op_setitems(self, arg: None) -> None:
        self._set(self._since_mark())

    def _set(self, items: list) -> None:
        target = _only(self._stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def _op_global(self, arg: str) -> None:
        module, _, name = arg.partition(" ")
        self._stack.append(self._named(module, name))

    def _op_stack_global(self, arg: None) -> None:
        self._stack.append(self._named(*(_only(part, str) for part in self._pop(2))))

    def _op_reduce(self, arg: None) -> None:
        function, args = self._pop(2)
        if not isinstance(function, _Name) or function.call is None:
            raise RefusedError("a call of something that is not an allowed function")
        self._stack.append(function.call(*_only(args, tuple)))

    def _op_newobj(self, arg: None) -> None:
        cls, args = self._pop(2)
        if not isinstance(cls, type) or args != ():
            raise RefusedError("an object of something that is not an allowed class")
        self._stack.append(cls.__new__(cls))

    def _op_build(self, arg: None) -> None:
        (state,) = self._pop(1)
        obj = self._stack[-1]
        if isinstance(obj, _Array):
            self._stack[-1] = array = obj.filled(*_only(state, tuple))
            for key, value in self._memo.items():
                self._memo[key] = array if value is obj else value
        elif isinstance(obj, np.dtype):
            pass  # byte order and layout of a plain dtype, which are the only ones that there are
        elif type(obj) is OrderedDict:
            obj._metadata = _only(state, dict)["_metadata"]
        elif type(obj) in (*self._allowed.values(), *_layers().values()):
            _restore(obj, _only(state, dict))
        else:
            raise RefusedError(f"a state for an object of type {type(obj).__name__}")

    def _op_binpersid(self, arg: None) -> None:
        (identity,) = self._pop(1)
        if _only(identity, tuple)[:1] == ("module",) and isinstance(identity[1], type):
            self._stack.append(identity[1])  # before version 1.6, with its source, which is not run
            return
        tag, kind, key, device, count, *part = identity
        if tag != "storage" or not isinstance(kind, _Name):
            raise RefusedError(f"a persistent object {tag!r}")
        dtype = None if kind.text == "torch.storage.UntypedStorage" else _TYPED[kind.text]
        array = self._storage(key, dtype, device, _only(count, int))
        if part and part[0] is not None:  # before version 1.6: of a storage that is part of another
            _, offset, length = _only(part[0], tuple)
            if not 0 <= _only(offset, int) <= offset + _only(length, int) <= array.size:
                raise ValueError(f"elements {offset} to {offset + length} of {array.size}")
            array = array[offset : offset + length]
        self._stack.append(_Storage(array))

    # ---------------------------------------------------------------- names

    def _named(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in self.functions:
            return _Name(full, self.functions[full])
        if full in self._allowed:
            return self._allowed[full]
        if module == "torch":
            dtype = dtype_named(name)
            if dtype is not None:
                return dtype
        root, _, rest = module.partition(".")
        own = root in ("torch", "minigrad")
        if own and rest.startswith("nn.modules.") and name in _layers():
            return _layers()[name]
        if own and rest == "nn.functional" and name in functional.__all__:
            return getattr(functional, name)
        raise RefusedError(
            f"the file names {full}, and loading runs no code: only tensors, numbers, text, "
            "containers and layers are read; a class of your own is allowed by "
            f"minigrad.serialization.add_safe_globals([{name}])"
        )


def _only(value: Any, kind: type) -> Any:
    """The value, if it is of that type (or a subclass of dict, for OrderedDict)."""
    if type(value) is not kind and not (kind is dict and type(value) is OrderedDict):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _key(key: Any) -> Any:
    """A key of a dict or an element of a set."""
    if not is_plain_key(key):
        raise TypeError(f"a key of type {type(key).__name__}")
    return key


@functools.cache
def _layers() -> dict[str, type]:
    """The classes of layers by name, whichever of the modules they are in."""
    return {
        name: cls
        for module in vars(modules).values()
        if isinstance(module, ModuleType)
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, Module)
    }


def _restore(obj: Any, state: dict) -> None:
    """Give an object that was made without `__init__` its attributes."""
    if isinstance(obj, Module):
        Module.__init__(obj)
    if any(not isinstance(name, str) for name in state):
        raise TypeError("an attribute whose name is no string")
    obj.__dict__.update(state)


class _Array:
    """A NumPy array before its state."""

    def filled(self, _: int, shape: tuple, dtype: np.dtype, fortran: bool, data: bytes) -> Any:
        """The array. ValueError where shape and data don't fit."""
        if type(data) is str:  # Python 2's, which `genops` decodes
            data = data.encode("latin1")
        flat = np.frombuffer(_only(data, bytes), dtype).astype(dtype.newbyteorder("="))
        return flat.reshape(shape, order="F" if fortran else "C")


def _numpy_dtype(code: str, *_: Any) -> np.dtype:
    dtype = np.dtype(_only(code, str))
    if dtype.kind not in "biuf":
        raise RefusedError(f"a NumPy dtype {code!r}")
    return dtype.newbyteorder("<")


def _numpy_scalar(dtype: np.dtype, data: bytes) -> Any:
    return np.frombuffer(_only(data, bytes), dtype).astype(dtype.newbyteorder("="))[0]


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise RefusedError(f"text in the encoding {encoding!r}")
    return _only(text, str).encode("latin1")


def _tensor(
    storage: _Storage,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool,
    hooks: Any,
    dtype: Any = None,
    metadata: Any = None,
) -> Tensor:
    """A tensor of a storage, whose elements are all inside of it."""
    array = _only(storage, _Storage).array
    if isinstance(dtype, minigrad.dtype):
        array = array.view(dtype.numpy)
    numbers = [offset, *_only(size, tuple), *_only(stride, tuple)]
    if any(_only(n, int) < 0 for n in numbers) or len(size) != len(stride):
        raise ValueError(f"a tensor with offset {offset}, size {size}, stride {stride}")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if math.prod(size) and last >= array.size:
        raise ValueError(f"a tensor reaches element {last} of a storage with {array.size}")
    if not math.prod(size):
        view = array[:0].reshape(size)
    elif isinstance(array, MetaArray):
        view = array[: math.prod(size)].reshape(size)
    else:
        strides = tuple(s * array.itemsize for s in stride)
        xp = np if isinstance(array, np.ndarray) else minigrad.backends.array_module(array)
        view = xp.lib.stride_tricks.as_strided(array[offset:], size, strides)
    return wrap(_unlazy(view, metadata)).requires_grad_(_only(requires_grad, bool))


def _unlazy(view: Any, metadata: Any) -> Any:
    """The elements of a tensor that torch keeps as the conjugate or the negative of its storage."""
    lazy = {key for key, value in _only(metadata or {}, dict).items() if value}
    if lazy - {"conj", "neg"}:
        raise RefusedError(f"a tensor with {', '.join(sorted(map(str, lazy)))}")
    view = view.conj() if "conj" in lazy else view
    return -view if "neg" in lazy else view


def _tensor_v2(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    grad: Any,
    hooks: Any,
    metadata: Any = None,
) -> Tensor:
    return _tensor(storage, offset, size, stride, grad, hooks, None, metadata)


def _tensor_v1(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    return _tensor(storage, offset, size, stride, False, None)


def _sparse(kind: Any, parts: tuple) -> Tensor:
    return rebuilt(_only(kind, minigrad.layout), _only(parts, tuple))


def _layout(name: str) -> minigrad.layout:
    found = getattr(minigrad, _only(name, str).removeprefix("torch."))
    return _only(found, minigrad.layout)


def _parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Parameter:
    return Parameter(_only(data, Tensor), requires_grad=_only(requires_grad, bool))


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    return _Array()


def without_sparse(reader: Reader) -> Reader:
    """The reader, for a file whose storages have no elements so far, which sparse tensors check."""
    reader.functions = FUNCTIONS | {_REBUILD_SPARSE: lambda *parts: None}
    return reader


_REBUILD_SPARSE = "torch._utils._rebuild_sparse_tensor"
_TYPED = {f"torch.{storage}": dtype_named(name) for name, storage in STORAGES.items()}
FUNCTIONS: dict[str, Callable | None] = {
    "torch._utils._rebuild_tensor": _tensor_v1,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    _REBUILD_SPARSE: _sparse,
    "torch.serialization._get_layout": _layout,
    "torch.Size": lambda sizes: Size(_only(n, int) for n in _only(sizes, tuple)),
    "torch.device": lambda kind, index=None: minigrad.device(_only(kind, str), index),
    "torch.storage.UntypedStorage": None,
    **dict.fromkeys(_TYPED),
    "collections.OrderedDict": lambda: OrderedDict(),  # its items follow
    "collections.Counter": lambda counts: Counter(_only(counts, dict)),
    "__builtin__.set": lambda items: set(map(_key, _only(items, list))),
    "__builtin__.frozenset": lambda items: frozenset(map(_key, _only(items, list))),
    "__builtin__.complex": lambda real, imag: complex(_only(real, float), _only(imag, float)),
    "_codecs.encode": _encode,
    "numpy.dtype": _numpy_dtype,
    "numpy.ndarray": None,
}
for _module in ("numpy._core.multiarray", "numpy.core.multiarray"):
    FUNCTIONS |= {f"{_module}.scalar": _numpy_scalar, f"{_module}._reconstruct": _reconstruct}
for _name in ("set", "frozenset", "complex"):
    FUNCTIONS[f"builtins.{_name}"] = FUNCTIONS[f"__builtin__.{_name}"]
