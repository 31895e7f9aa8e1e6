"""The pickle in a file of `save`: what torch.save writes for the same object, opcode by opcode.

Only what `load` reads is written: tensors, numbers, text, plain containers, whole modules. The
elements of tensors are not in the pickle; a "persistent" id names the entry of the archive.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np

import minigrad
from minigrad import dtypes
from minigrad.devices import address
from minigrad.nn import functional
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter, is_lazy
from minigrad.ops.sparse_tensor import SparseTensor
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Size, Tensor

MAX_DEPTH = 200  # of nested containers; far below Python's recursion limit
# torch's class of a storage by dtype; the dtypes without one are stored as bytes.
STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
_CONTAINERS = {list, tuple, dict, OrderedDict, Counter, Size, set, frozenset}
_STATELESS = {set: ("__builtin__", "set"), frozenset: ("__builtin__", "frozenset")}


class _Place(NamedTuple):
    """Where a tensor is: entry data/`number` has `count` elements, the first one at `offset`. The
    entry has a type unless tensors of several dtypes share it."""

    number: int
    count: int
    offset: int
    typed: bool


class Writer:
    """`write(obj)` gives the pickle; `arrays` are the archive's entries data/0, data/1, ..."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._views: dict[tuple, Any] = {}
        self._places: dict[tuple, _Place] = {}

    def write(self, obj: Any) -> bytes:
        """TypeError for what cannot be stored, ValueError for what contains itself."""
        self._pass(obj)  # finds the tensors, of which some may be views of one memory
        self._lay_out()
        return self._pass(obj)

    def _pass(self, obj: Any) -> bytes:
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[int, int] = {}
        self._keep: list[Any] = []  # kept alive until written, so that addresses stay unique
        self._open: set[int] = set()
        self._any(obj, "obj", 0)
        return bytes(self._out + b".")

    def _lay_out(self) -> None:
        """One entry for all views whose memory overlaps (on a GPU: for equal views)."""
        for first, last, group in _overlapping(self._views):
            arrays = [self._views[key] for key in group]
            item = arrays[0].itemsize
            typed = len({a.dtype for a in arrays}) == 1 and arrays[0].dtype.name in STORAGES
            count = (last - first) // item
            for key, array in zip(group, arrays):
                offset = (address(array) - first) // item if array.size else 0
                self._places[key] = _Place(len(self.arrays), count, offset, typed)
            flat = _memory(arrays[0], count)
            self.arrays.append(flat.astype(flat.dtype.newbyteorder("<"), copy=False))

    # ---------------------------------------------------------------- opcodes

    def _global(self, module: str, name: str) -> None:
        self._out += f"c{module}\n{name}\n".encode()

    def _int(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self._out += b"J" + struct.pack("<i", value)
            return
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        size = len(data)
        self._out += b"\x8a" + bytes([size]) if size < 256 else b"\x8b" + struct.pack("<i", size)
        self._out += data

    def _text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._out += b"X" + struct.pack("<I", len(data)) + data

    def _bytes(self, value: bytes) -> None:
        self._global("_codecs", "encode")
        self._out += b"("
        self._text(value.decode("latin1"))
        self._text("latin1")
        self._out += b"tR"

    def _put(self, obj: Any) -> None:
        """Remember the object on top of the stack, which later ones refer to."""
        self._out += b"r" + struct.pack("<I", len(self._memo))
        self._memo[id(obj)] = len(self._memo)
        self._keep.append(obj)

    def _tuple(self, values: tuple, path: str, depth: int) -> None:
        self._out += b"("
        for i, value in enumerate(values):
            self._any(value, f"{path}[{i}]", depth)
        self._out += b"t"

    def _call(self, module: str, name: str, *args: Any) -> None:
        """The result of a function that `load` knows."""
        self._global(module, name)
        self._tuple(args, name, 0)
        self._out += b"R"

    # ---------------------------------------------------------------- objects

    def _any(self, obj: Any, path: str, depth: int) -> None:
        kind = type(obj)
        if obj is None or kind is bool:
            self._out += {None: b"N", True: b"\x88", False: b"\x89"}[obj]
        elif kind is int:
            self._int(obj)
        elif kind is float:
            self._out += b"G" + struct.pack(">d", obj)
        elif kind is str:
            self._text(obj)
        elif isinstance(obj, bytes):
            self._bytes(obj)
        elif isinstance(obj, minigrad.dtype):
            self._global("torch", obj.name)
        elif isinstance(obj, minigrad.device):
            self._call("torch", "device", *filter(lambda x: x is not None, (obj.type, obj.index)))
        elif isinstance(obj, minigrad.layout):
            self._call("torch.serialization", "_get_layout", f"torch.{obj.name}")
        elif kind is tuple and not obj:
            self._out += b")"
        elif id(obj) in self._memo and id(obj) not in self._open:
            self._out += b"j" + struct.pack("<I", self._memo[id(obj)])
        else:
            self._object(obj, path, depth)

    def _object(self, obj: Any, path: str, depth: int) -> None:
        if is_lazy(obj):
            raise TypeError(f"save: {path} has no shape yet; call its module once, then save it")
        if isinstance(obj, Tensor):
            self._tensor(obj)
        elif type(obj) is complex:
            self._call("__builtin__", "complex", obj.real, obj.imag)
        elif isinstance(obj, np.ndarray | np.generic):
            self._numpy(obj, path)
        elif callable(obj) and vars(functional).get(getattr(obj, "__name__", None)) is obj:
            self._global("torch.nn.functional", obj.__name__)  # an activation of a module
        elif isinstance(obj, Module) or type(obj) in _CONTAINERS:
            if id(obj) in self._open:
                raise ValueError(f"save: {path} contains itself")
            if depth >= MAX_DEPTH:
                raise ValueError(f"save: {path[:80]}... is nested more than {MAX_DEPTH} deep")
            self._open.add(id(obj))
            self._container(obj, path, depth + 1)
            self._open.discard(id(obj))
        else:
            raise TypeError(_refusal(obj, path))

    def _container(self, obj: Any, path: str, depth: int) -> None:
        kind = type(obj)
        if isinstance(obj, Module):
            self._global(kind.__module__, kind.__qualname__)
            self._out += b")\x81"
            self._put(obj)
            self._items(vars(obj), path, depth, b"}")
            self._out += b"b"
        elif kind is tuple:
            self._tuple(obj, path, depth)
            self._put(obj)
        elif kind is list:
            self._out += b"]"
            self._put(obj)
            self._out += b"("
            for i, value in enumerate(obj):
                self._any(value, f"{path}[{i}]", depth)
            self._out += b"e"
        elif kind in _STATELESS:
            self._call(*_STATELESS[kind], list(obj))
        elif kind is Size:
            self._call("torch", "Size", tuple(obj))
        elif kind is Counter:
            self._call("collections", "Counter", dict(obj))
        else:
            self._mapping(obj, path, depth)

    def _mapping(self, obj: dict, path: str, depth: int) -> None:
        if type(obj) is dict:
            self._out += b"}"
            self._put(obj)
            self._items(obj, path, depth)
            return
        self._call("collections", "OrderedDict")
        self._put(obj)
        self._items(obj, path, depth)
        if hasattr(obj, "_metadata"):  # `Module.state_dict` stores the versions of modules there
            self._items({"_metadata": obj._metadata}, path, depth, b"}")
            self._out += b"b"

    def _items(self, items: dict, path: str, depth: int, start: bytes = b"") -> None:
        self._out += start + b"("
        for key, value in items.items():
            if not is_plain_key(key):
                raise TypeError(
                    f"save: {path} has a key of type {type(key).__name__}; keys must be strings, "
                    "numbers, None or tuples of them"
                )
            self._any(key, path, depth)
            self._any(value, f"{path}[{key!r}]", depth)
        self._out += b"u"

    # ---------------------------------------------------------------- arrays

    def _tensor(self, tensor: Tensor) -> None:
        if isinstance(tensor, Parameter):
            args = tensor.detach(), tensor.requires_grad, OrderedDict()
            self._call("torch._utils", "_rebuild_parameter", *args)
            self._put(tensor)
            return
        if isinstance(tensor, SparseTensor):
            self._call("torch._utils", "_rebuild_sparse_tensor", tensor.layout, tensor._parts())
            self._put(tensor)
            return
        array, name = tensor._array, tensor.dtype.name
        key = (str(tensor.device), address(array), array.shape, array.strides, name)
        # torch has no negative strides; the key, which needs the array, is that of the view.
        stored = array.copy() if any(step < 0 for step in array.strides) else array
        array = self._views.setdefault(key, stored)
        self._keep.append(tensor)
        place = self._places.get(key, _Place(0, 0, 0, True))
        self._global("torch._utils", f"_rebuild_tensor_v{2 if place.typed else 3}")
        self._out += b"("
        self._storage(place, name, str(tensor.device), array.itemsize)
        strides = tuple(step // array.itemsize for step in array.strides)
        grad = tensor.requires_grad
        rest = (place.offset, tuple(array.shape), strides, grad, OrderedDict())
        for value in rest if place.typed else (*rest, tensor.dtype):
            self._any(value, "tensor", 0)
        self._out += b"tR"
        self._put(tensor)

    def _storage(self, place: _Place, name: str, device: str, itemsize: int) -> None:
        self._out += b"("
        self._text("storage")
        if place.typed:
            self._global("torch", STORAGES.get(name, ""))
        else:
            self._global("torch.storage", "UntypedStorage")
        self._text(str(place.number))
        self._text(device)
        self._int(place.count * (1 if place.typed else itemsize))
        self._out += b"tQ"

    def _numpy(self, value: Any, path: str) -> None:
        if value.dtype.kind not in "biuf":
            raise TypeError(f"save: {path} is a NumPy array of {value.dtype}; expected numbers")
        code = value.dtype.newbyteorder("<").str[1:]
        data = np.asarray(value, order="C").astype(value.dtype.newbyteorder("<")).tobytes()
        if isinstance(value, np.generic):
            self._global("numpy._core.multiarray", "scalar")
            self._out += b"("
            self._call("numpy", "dtype", code, False, True)
            self._bytes(data)
            self._out += b"tR"
            return
        self._global("numpy._core.multiarray", "_reconstruct")
        self._out += b"("
        self._global("numpy", "ndarray")
        self._any((0,), path, 0)
        self._bytes(b"b")
        self._out += b"tR"
        self._put(value)
        self._out += b"("
        self._int(1)
        self._any(tuple(value.shape), path, 0)
        self._call("numpy", "dtype", code, False, True)
        self._out += b"\x89"
        self._bytes(data)
        self._out += b"tb"


def _end(array: Any) -> int:
    """The address behind the last element."""
    if not array.size:
        return address(array)
    reach = sum((n - 1) * step for n, step in zip(array.shape, array.strides))
    return address(array) + reach + array.itemsize


def _overlapping(views: dict[tuple, Any]) -> list[tuple[int, int, list[tuple]]]:
    """(first address, last address, keys of views) of memory that views share, elements of one size
    together. The first view of a group begins where its memory does."""
    groups: list[tuple[int, int, list[tuple]]] = []
    spans = [(key[0], address(a), _end(a), a.itemsize, key) for key, a in views.items()]
    last_kind = None
    for device, first, last, item, key in sorted(spans, key=lambda span: span[:4]):
        start, end, group = groups[-1] if groups else (0, 0, [])
        shared = first < end and last_kind == (device, item) and (first - start) % item == 0
        if shared and (device == "cpu" or (first, last) == (start, end)):
            groups[-1] = (start, max(end, last), [*group, key])
        else:
            groups.append((first, last, [key]))
        last_kind = (device, item)
    return groups


def _memory(array: Any, count: int) -> np.ndarray:
    """`count` elements in memory, from the first one of an array, as a flat NumPy array."""
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))
    module = minigrad.backends.array_module(array)
    return module.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,)).get()


def _refusal(obj: Any, path: str) -> str:
    name = type(obj).__name__
    if isinstance(obj, Optimizer):
        return (
            f"save: {path} is a {name}, and loading one would mean running code from the file; "
            f"save its {path}.state_dict() and load that with load_state_dict()"
        )
    return (
        f"save: {path} is of type {name}, which cannot be stored; a file holds tensors, modules, "
        "numbers, text, None, and lists, tuples, sets and dicts of them"
    )


def is_plain_key(key: Any) -> bool:
    """Whether a file may have this key, or element of a set: hashing it takes no long time."""
    parts = key if type(key) is tuple else (key,)
    return all(part is None or isinstance(part, str | bytes | int | float) for part in parts)


def dtype_named(name: str) -> Any:
    """minigrad's dtype of this name, or None."""
    return next((dtype for dtype in dtypes.ALL if dtype.name == name), None)
