"""Tensors in the safetensors format, with the functions of `safetensors.torch`.

`minigrad run` and `as_torch()` give this module where a program imports `safetensors.torch`. The
package `safetensors` reads the files (extra `files`): a header in JSON, then the elements of the
tensors. A file never holds code.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from typing import IO, Any

import ml_dtypes
import numpy as np

from minigrad._names import kind, namespace
from minigrad.devices import device as Device
from minigrad.nn import Module
from minigrad.serialization import atomic_file
from minigrad.tensor import Tensor, wrap

try:
    import safetensors as _library
    from safetensors import SafetensorError
except ImportError:
    raise ImportError(
        "minigrad.safetensors needs the package safetensors: pip install 'minigrad[files]'"
    ) from None

_real_open = _library.safe_open  # `as_torch` puts the class of this module in its place

_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64,
    "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_, "C64": np.complex64,
}  # fmt: skip
_CODES = {np.dtype(kind): code for code, kind in _DTYPES.items()}

File = str | os.PathLike[str]


# ------------------------------------------------------------------------ saving


def save_file(tensors: Mapping[str, Tensor], filename: File, metadata: Any = None) -> None:
    """Write tensors by name to a file; a file of that name is replaced once all is written.

    metadata: a dict of text, which the header keeps.
    Raises:
        ValueError: something that is no tensor, is not contiguous or has a dtype that the format
            lacks; nothing is written.
        RuntimeError: tensors that share memory (`save_model` stores them once).
    """
    arrays, text, path = _checked("save_file", tensors), _text(metadata), os.fspath(filename)
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise SafetensorError(f"save_file: {path}: No such file or directory")
    # Not by the library: before 0.8 it writes into the old file, and 0.8 replaces links and devices
    # and gives every file the mode 0o600.
    with atomic_file(path) as file:
        _write(file, arrays, text)


def save(tensors: Mapping[str, Tensor], metadata: Any = None) -> bytes:
    """The bytes of such a file, see `save_file`."""
    file = io.BytesIO()
    _write(file, _checked("save", tensors), _text(metadata))
    return file.getvalue()


def _write(file: IO[bytes], arrays: dict[str, np.ndarray], text: dict[str, str] | None) -> None:
    """The length of the header, the header, and the elements: those of wide dtypes first, so that
    all are aligned."""
    header: dict[str, Any] = {} if text is None else {"__metadata__": text}
    names, end = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0
    for name in names:
        array, start = arrays[name], end
        end += array.nbytes
        code = _CODES[array.dtype]
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": (start, end)}
    described = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    described += b" " * (-len(described) % 8)
    file.write(len(described).to_bytes(8, "little") + described)
    for name in names:
        file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def save_model(
    model: Module, filename: File, metadata: Any = None, force_contiguous: bool = True
) -> None:
    """Write the state of a module. Tensors of the same memory (tied weights) are stored once; the
    header names the others."""
    state: dict[str, Tensor] = model.state_dict()
    notes = dict(metadata or {})
    for kept, dropped in _duplicates(state).items():
        for name in dropped:
            notes.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: value.contiguous() for name, value in state.items()}
    save_file(state, filename, notes or None)


def _text(metadata: Any) -> dict[str, str] | None:
    for item in (metadata or {}).items():
        if not all(isinstance(part, str) for part in item):
            raise TypeError(f"safetensors: metadata must be text, got {item!r}; use str()")
    return metadata


def _checked(owner: str, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The arrays to write, on the CPU."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"{owner}: expected a dict of tensors by name, got {kind(tensors)}")
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"{owner}: expected names of type str, got {name!r}")
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{owner}: key {name!r} is invalid, expected minigrad.Tensor, got {kind(value)}"
            )
    if shared := [names for names in _sharing(tensors) if len(names) > 1]:
        raise RuntimeError(
            f"{owner}: some tensors share memory: {shared}; they would be stored twice and be "
            "independent when loaded. save_model stores them once, clone() separates them"
        )
    arrays = {}
    for name, value in tensors.items():
        if not value.is_contiguous():
            raise ValueError(
                f"{owner}: the tensor {name!r} is not contiguous; save its contiguous()"
            )
        array = value.detach().cpu()._array
        if array.dtype not in _CODES:
            raise ValueError(f"{owner}: the format has no {value.dtype}, the dtype of {name!r}")
        arrays[name] = array
    return arrays


def storage_ptr(tensor: Tensor) -> int:
    """The address of the memory that a tensor is a part of."""
    return tensor.untyped_storage().data_ptr()


def storage_size(tensor: Tensor) -> int:
    """The bytes of the memory that a tensor is a part of."""
    return tensor.untyped_storage().nbytes()


def _extent(value: Tensor) -> tuple[int, int]:
    """The first byte of a tensor's elements, and the byte after the last one."""
    steps: Any = value.stride()
    last = sum((n - 1) * step for n, step in zip(value.shape, steps))
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()


def _sharing(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """The names of tensors in groups: those of a group overlap in memory."""
    found = sorted((str(t.device), *_extent(t), name) for name, t in tensors.items() if t.numel())
    groups: list[list[str]] = []
    reached = ("", 0)  # the device of the last group, and the end of its memory
    for where, start, stop, name in found:
        if where == reached[0] and start < reached[1]:
            groups[-1].append(name)
            reached = (where, max(stop, reached[1]))
        else:
            groups.append([name])
            reached = (where, stop)
    return [sorted(names) for names in groups]


def _duplicates(state: Mapping[str, Tensor], preferred: Iterable[str] = ()) -> dict[str, list[str]]:
    """Of tensors that share memory: the name of one that covers the others, and the others."""
    wanted, found = set(preferred), {}
    for names in _sharing(state):
        extents = [_extent(state[name]) for name in names]
        whole = min(a for a, _ in extents), max(b for _, b in extents)
        covering = sorted(name for name, extent in zip(names, extents) if extent == whole)
        if not covering:
            raise RuntimeError(
                f"save_model: of the tensors {names}, which overlap, none covers all"
            )
        kept = next((name for name in covering if name in wanted), covering[0])
        found[kept] = sorted(name for name in names if name != kept)
    return {kept: dropped for kept, dropped in found.items() if dropped}


# ------------------------------------------------------------------------ loading


def load_file(filename: File, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Tensor]:
    """The tensors of a file by name, on a device.

    backend: accepted for compatibility with `safetensors.torch`.
    Raises:
        FileNotFoundError: there is no such file.
        SafetensorError: the file is damaged, truncated or has another format.
        TypeError: it holds a dtype that tensors here don't have, such as float8.
    """
    with safe_open(filename, "pt", device) as file:
        return file.get_tensors()


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of such a file, see `load_file`."""
    found = {}
    for name, entry in _library.deserialize(data):
        array = np.frombuffer(entry["data"], _dtype("load", name, entry["dtype"]))
        found[name] = wrap(array.reshape(entry["shape"]).copy())
    return dict(sorted(found.items()))


def load_model(
    model: Module,
    filename: File,
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[set[str], list[str]]:
    """Load a file of `save_model` into a module; the missing and the unexpected names.

    RuntimeError where there are such names and `strict` is set, or shapes differ.
    """
    state = load_file(filename, device)
    tied = _duplicates(model.state_dict(), state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    left = set(missing)
    for name in (name for dropped in tied.values() for name in dropped):
        if name in left:
            left.remove(name)
        else:
            unexpected.append(name)
    if strict and (left or unexpected):
        problem = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", left), ("Unexpected", unexpected)):
            if names:
                listed = ",".join(f'"{name}"' for name in sorted(names))
                problem.append(f"    {what} key(s) in state_dict: {listed}")
        raise RuntimeError("\n".join(problem))
    return left, unexpected


def _dtype(owner: str, name: str, code: str) -> np.dtype:
    if code not in _DTYPES:
        raise TypeError(
            f"{owner}: the tensor {name!r} has dtype {code}, which minigrad doesn't have; it has "
            + ", ".join(_DTYPES)
        )
    return np.dtype(_DTYPES[code])


class safe_open:
    """A file whose tensors are read one by one: `with safe_open(filename, "pt") as file: ...`

    framework: "pt" (or "minigrad") gives tensors on `device`, "np" NumPy arrays.
    """

    def __init__(
        self, filename: File, framework: str, device: Any = "cpu", *, backend: str = "mmap"
    ) -> None:
        names = {"pt": True, "torch": True, "pytorch": True, "minigrad": True}
        names |= {"np": False, "numpy": False}
        if framework not in names:
            raise SafetensorError(f"safe_open: framework {framework!r} is none of {[*names]}")
        self._tensors, self._device = names[framework], Device(device)
        self._file = _real_open(os.fspath(filename), "np")

    def __enter__(self) -> safe_open:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return list(self._file.keys())

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order in which the file holds them."""
        return list(self._file.offset_keys())

    def metadata(self) -> dict[str, str] | None:
        """The text in the header."""
        return self._file.metadata()

    def get_slice(self, name: str) -> Slice:
        """A tensor of which only a part is read: `file.get_slice(name)[:10]`."""
        return Slice(self._file.get_slice(name), name, self._tensors, self._device)

    def get_tensor(self, name: str) -> Any:
        """A tensor."""
        self.get_slice(name)  # checks the dtype
        array = self._file.get_tensor(name)
        return wrap(array).to(self._device) if self._tensors else array

    def get_tensors(self) -> dict[str, Any]:
        """All tensors by name."""
        return {name: self.get_tensor(name) for name in self.keys()}


class Slice:
    """A tensor in a file, which indexing reads."""

    def __init__(self, found: Any, name: str, tensors: bool, device: Device) -> None:
        self._found, self._tensors, self._device = found, tensors, device
        _dtype("safe_open", name, found.get_dtype())

    def get_shape(self) -> list[int]:
        """The whole shape."""
        return self._found.get_shape()

    def get_dtype(self) -> str:
        """The dtype as the format names it, such as "F32"."""
        return self._found.get_dtype()

    def __getitem__(self, index: Any) -> Any:
        array = self._found[index]
        return wrap(np.asarray(array)).to(self._device) if self._tensors else array


__getattr__, __dir__ = namespace(__name__)
