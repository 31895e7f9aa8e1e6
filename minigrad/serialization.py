"""`save` and `load`: tensors and plain Python data in one file. Loading never runs code.

The file is an uncompressed zip archive.  ``minigrad.json`` describes the object in JSON; types that
JSON doesn't have are dicts with one key, the tag.  ``data/0``, ``data/1``, ... are the elements of
the arrays, little-endian, in row-major order.  Tensors that share memory are stored once and share
memory again when loaded; strided views are stored contiguous.  The checksums of the archive detect
damage.

Saving to a path is atomic: a temporary file in the same folder is written, flushed to the disk and
then renamed, so that at any moment either the old or the new file is there, complete.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
import re
import secrets
import shutil
import time
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

import minigrad
from minigrad import dtypes
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Size, Tensor, wrap

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_VERSION = 1
_STRUCTURE = "minigrad.json"
_MAX_DEPTH = 200  # of nested containers; far below Python's recursion limit
_SECONDS = 60  # after which a temporary file that is not locked is a leftover
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal content gives equal files

# Exceptions inside `load` for a damaged or malicious file; all become one RuntimeError.
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, KeyError, ValueError, TypeError, IndexError),
    *(NotImplementedError, RecursionError, OverflowError, AttributeError),
)

File = str | os.PathLike | IO[bytes]


# ------------------------------------------------------------------------ saving


def save(obj: Any, f: File) -> None:
    """Write `obj` to a path (atomically) or to a binary file object.

    Args:
        obj: tensors, parameters, NumPy arrays, None, bool, int, float, str, bytes, dtypes,
            devices, and lists, tuples, sets, dicts, OrderedDicts and Counters of them; so any
            ``state_dict()``.
        f: the path, or an object with ``write``.
    Raises:
        TypeError: `obj` holds something else; nothing is written.
        RuntimeError: the folder does not exist.
    """
    writer = _Writer()
    root = writer.encode(obj, "obj", 0)  # before a file is created
    structure = json.dumps({"format": "minigrad", "version": _VERSION, "root": root})
    if not isinstance(f, (str, os.PathLike)):
        _write_archive(f, structure, writer.arrays)
        return
    with _atomic_file(os.fspath(f)) as file:
        _write_archive(file, structure, writer.arrays)


def _write_archive(file: IO[bytes], structure: str, arrays: list[np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_STRUCTURE, _EPOCH), structure)
        for i, array in enumerate(arrays):
            info = zipfile.ZipInfo(f"data/{i}", _EPOCH)
            info.file_size = array.nbytes  # lets zipfile choose 64-bit sizes where needed
            with archive.open(info, "w", force_zip64=array.nbytes >= 2**31) as entry:
                entry.write(array.reshape(-1).view(np.uint8).data)


@contextlib.contextmanager
def _atomic_file(path: str) -> Iterator[IO[bytes]]:
    """A new file that replaces `path` when the block ends; deleted if the block fails."""
    path = os.path.realpath(path)  # a symbolic link stays, and names the new file
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    if os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise IsADirectoryError(f"save: {path} is a directory, expected a file name")
        buffer = io.BytesIO()  # a pipe or device can't be replaced and has no positions
        yield buffer
        with open(path, "wb") as file:
            file.write(buffer.getbuffer())
        return
    _remove_leftovers(folder, name)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:  # also for KeyboardInterrupt: leave no temporary file
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _flush_folder(folder)


def _remove_leftovers(folder: str, name: str) -> None:
    """Remove the temporary files of saves to `name` whose process was killed.

    A save holds a lock on its file, which ends with its process. The youngest files are left: a
    save that has just begun may not hold its lock yet.
    """
    leftover = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{12}}\.tmp")
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if leftover.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > _SECONDS:
                with contextlib.suppress(OSError), open(entry.path, "rb+") as file:
                    _lock(file)
                    os.unlink(entry.path)


def _lock(file: IO[bytes]) -> None:
    """Lock a file for this process; OSError where another holds it. Nothing on Windows, which does
    not remove a file that is open."""
    if fcntl is not None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _flush_folder(folder: str) -> None:
    """Write the renaming to the disk too, on systems that can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


class _Writer:
    """Turns an object into JSON data and a list of arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._known: dict[tuple, int] = {}
        self._keep: list[Any] = []  # kept alive until written, so that addresses stay unique
        self._open: set[int] = set()

    def encode(self, obj: Any, path: str, depth: int) -> Any:
        if obj is None or type(obj) in (bool, int, str):
            return obj
        if type(obj) is float:
            return obj if math.isfinite(obj) else {"float": repr(obj)}
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, (np.ndarray, np.generic)):
            return self._numpy(obj, path)
        if isinstance(obj, bytes):
            return {"bytes": base64.b64encode(obj).decode("ascii")}
        if isinstance(obj, minigrad.dtype):
            return {"dtype": obj.name}
        if isinstance(obj, minigrad.device):
            return {"device": str(obj)}
        return self._container(obj, path, depth)

    def _container(self, obj: Any, path: str, depth: int) -> Any:
        tag = _TAGS.get(type(obj))
        if tag is None:
            raise TypeError(_refusal(obj, path))
        if id(obj) in self._open:
            raise ValueError(f"save: {path} contains itself")
        if depth >= _MAX_DEPTH:
            raise ValueError(f"save: {path[:80]}... is nested more than {_MAX_DEPTH} deep")
        self._open.add(id(obj))
        if isinstance(obj, dict):
            items: list[Any] = [
                [self._key(key, path), self.encode(value, f"{path}[{key!r}]", depth + 1)]
                for key, value in obj.items()
            ]
        else:
            items = [self.encode(value, f"{path}[{i}]", depth + 1) for i, value in enumerate(obj)]
        node = {tag: items}
        if isinstance(obj, OrderedDict) and hasattr(obj, "_metadata"):
            # `Module.state_dict` stores the versions of the modules there.
            node["metadata"] = self.encode(obj._metadata, f"{path}._metadata", depth + 1)
        self._open.discard(id(obj))
        return node

    def _key(self, key: Any, path: str) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(not isinstance(part, (str, int, float, bool, type(None))) for part in parts):
            raise TypeError(
                f"save: {path} has a key of type {type(key).__name__}; keys must be strings, "
                "numbers, None or tuples of them"
            )
        return self.encode(key, path, 0)

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        node = self._array(tensor.detach().cpu()._array, tensor._array)
        node["dtype"] = tensor.dtype.name
        node["device"] = str(tensor.device)
        node["requires_grad"] = bool(tensor.requires_grad and tensor.is_leaf)
        return {"parameter" if isinstance(tensor, Parameter) else "tensor": node}

    def _numpy(self, value: Any, path: str) -> dict[str, Any]:
        if value.dtype.kind not in "biuf":
            raise TypeError(f"save: {path} is a NumPy array of {value.dtype}; expected numbers")
        node = self._array(np.asarray(value), None)
        node["dtype"] = value.dtype.name
        return {"numpy" if isinstance(value, np.ndarray) else "numpy_scalar": node}

    def _array(self, array: np.ndarray, identity: Any) -> dict[str, Any]:
        """Store `array` once for all arrays with the memory of `identity`."""
        key = None
        if isinstance(identity, np.ndarray):
            pointer = identity.__array_interface__["data"][0]
            key = (pointer, identity.shape, identity.strides, identity.dtype.name)
        number = self._known.get(key) if key is not None else None
        if number is None:
            number = len(self.arrays)
            data = np.asarray(array, order="C")
            self.arrays.append(data.astype(data.dtype.newbyteorder("<"), copy=False))
            self._keep.append(identity)
            if key is not None:
                self._known[key] = number
        return {"storage": number, "shape": list(array.shape)}


_TAGS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    Size: "size",
    dict: "dict",
    OrderedDict: "ordered_dict",
    Counter: "counter",
    set: "set",
    frozenset: "frozenset",
}


def _refusal(obj: Any, path: str) -> str:
    name = type(obj).__name__
    if isinstance(obj, (Module, Optimizer)):
        return (
            f"save: {path} is a {name}, and loading one would mean running code from the file; "
            f"save its {path}.state_dict() and load that with load_state_dict()"
        )
    return (
        f"save: {path} is of type {name}, which cannot be stored; a file holds tensors, numbers, "
        "text, None, and lists, tuples, sets and dicts of them"
    )


# ------------------------------------------------------------------------ loading


def load(
    f: File,
    map_location: Any = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
) -> Any:
    """Read what `save` wrote, from a path or a binary file object.

    Args:
        map_location: where tensors go: a device, a dict from saved to wanted device, or a function
            ``(tensor on the CPU, saved device) -> Tensor or None``; None restores the saved device.
        weights_only: accepted for compatibility with torch; loading never runs code.
    Raises:
        FileNotFoundError: there is no such file.
        RuntimeError: the file is damaged or truncated, has another format, or its tensors are from
            a GPU that is not available (then pass ``map_location="cpu"``).
    """
    if pickle_module is not None:
        raise ValueError("load: pickle_module must be None; minigrad files hold no pickles")
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load_file(file, os.fspath(f), map_location)
    if not hasattr(f, "read"):
        raise TypeError(f"load: expected a path or a binary file object, got {type(f).__name__}")
    seekable = hasattr(f, "seekable") and f.seekable()
    return _load_file(f if seekable else io.BytesIO(f.read()), "the file", map_location)


def _load_file(file: IO[bytes], name: str, map_location: Any) -> Any:
    try:
        structure, arrays = _read_archive(file, name)
        decoded = _Reader(arrays).decode(structure["root"], 0)
    except _DAMAGE as error:
        raise RuntimeError(
            f"load: {name} is damaged or was not written by minigrad.save "
            f"({type(error).__name__}: {error})"
        ) from error
    # Devices and map_location are used only after the whole file was checked.
    return _place(decoded, map_location)


def _read_archive(file: IO[bytes], name: str) -> tuple[dict[str, Any], list[bytes]]:
    start = file.tell()
    head = file.read(2)
    total = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if head[:1] == b"\x80":
        raise RuntimeError(_foreign(name))
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        if any(entry.endswith("data.pkl") for entry in entries):
            raise RuntimeError(_foreign(name))
        _check_entries(entries, total)
        structure = json.loads(_read_entry(archive, entries[_STRUCTURE]).tobytes())
        if structure["format"] != "minigrad":
            raise ValueError(f"format is {structure['format']!r}")
        if structure["version"] > _VERSION:
            raise RuntimeError(
                f"load: {name} has format version {structure['version']}, this minigrad reads "
                f"up to {_VERSION}; update minigrad"
            )
        arrays = [_read_entry(archive, entries[f"data/{i}"]) for i in range(len(entries) - 1)]
    return structure, arrays


def _foreign(name: str) -> str:
    return (
        f"load: {name} is a pickle (as torch.save writes), and loading pickles can run code, so "
        "minigrad does not; in torch, turn the state dict into NumPy arrays, "
        "{k: v.numpy() for k, v in state.items()}, np.savez them and make tensors of those"
    )


def _check_entries(entries: dict[str, zipfile.ZipInfo], total: int) -> None:
    """Reject an archive whose entries would expand to more than its size."""
    size = 0
    for info in entries.values():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"entry {info.filename!r} is compressed")
        size += info.file_size
    if size > total:
        raise ValueError(f"entries of {size} bytes in a file of {total}")


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """The bytes of one entry, checksum verified, in memory that an array can own."""
    raw = np.empty(info.file_size, np.uint8)
    view = memoryview(raw)
    with archive.open(info) as entry:
        done = 0
        while done < len(view):
            count = entry.readinto(view[done:])
            if not count:
                raise EOFError(f"entry {info.filename!r} ends early")
            done += count
        entry.read(1)  # zipfile checks the checksum at the end of the entry
    return raw


class _Decoded:
    """A tensor whose device is not chosen yet."""

    def __init__(self, array: np.ndarray, node: dict[str, Any], parameter: bool) -> None:
        self.array = array
        self.device = minigrad.device(node["device"])
        self.requires_grad = _typed(node["requires_grad"], bool)
        self.parameter = parameter


class _Reader:
    """Turns JSON data and the bytes of arrays back into objects; both are checked."""

    def __init__(self, storages: list[np.ndarray]) -> None:
        self._storages = storages
        self._arrays: dict[tuple, np.ndarray] = {}

    def decode(self, node: Any, depth: int) -> Any:
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError("a list without a tag")
            return node
        if depth > _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} deep")
        tag = next(iter(node), None)
        value = node[tag]
        if tag in ("tensor", "parameter"):
            return _Decoded(self._array(value), value, tag == "parameter")
        if tag == "numpy":
            return self._array(value)
        if tag == "numpy_scalar":
            return self._array(value)[()]
        if tag == "float":
            return float({"nan": "nan", "inf": "inf", "-inf": "-inf"}[value])
        if tag == "bytes":
            return base64.b64decode(value, validate=True)
        if tag == "dtype":
            return _dtype(value)
        if tag == "device":
            return minigrad.device(_typed(value, str))
        return self._container(tag, node, depth)

    def _container(self, tag: str, node: dict[str, Any], depth: int) -> Any:
        kind = {tag: cls for cls, tag in _TAGS.items()}[tag]
        items = _typed(node[tag], list)
        if not issubclass(kind, dict):
            return kind([self.decode(item, depth + 1) for item in items])
        result = kind()
        for key, value in items:
            key = self.decode(key, depth + 1)
            if isinstance(key, _Decoded):
                raise TypeError("a tensor as a key")
            result[key] = self.decode(value, depth + 1)
        if "metadata" in node:
            result._metadata = self.decode(node["metadata"], depth + 1)
        return result

    def _array(self, node: dict[str, Any]) -> np.ndarray:
        number = _typed(node["storage"], int)
        shape = tuple(_typed(size, int) for size in node["shape"])
        dtype = _dtype(node["dtype"]).numpy
        if number < 0 or any(size < 0 for size in shape):
            raise ValueError("a negative size or storage number")
        raw = self._storages[number]
        if math.prod(shape) * dtype.itemsize != raw.size:
            raise ValueError(
                f"data/{number} has {raw.size} bytes, a {dtype} array of shape {shape} "
                f"needs {math.prod(shape) * dtype.itemsize}"
            )
        key = (number, shape, dtype.name)
        if key not in self._arrays:
            array = raw.view(dtype.newbyteorder("<")).reshape(shape)
            self._arrays[key] = array.astype(dtype, copy=False)
        return self._arrays[key]


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _dtype(name: Any) -> Any:
    for dtype in dtypes.ALL:
        if dtype.name == name:
            return dtype
    raise ValueError(f"unknown dtype {name!r}")


def _place(obj: Any, map_location: Any) -> Any:
    """Replace every `_Decoded` by a Tensor on its device; shared memory stays shared."""
    moved: dict[int, Tensor] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, _Decoded):
            return tensor_of(node)
        if isinstance(node, dict):
            for key in node:
                node[key] = visit(node[key])
            if hasattr(node, "_metadata"):
                node._metadata = visit(node._metadata)
            return node
        if isinstance(node, (list, tuple, set, frozenset)):
            return type(node)([visit(item) for item in node])
        return node

    def tensor_of(node: _Decoded) -> Tensor:
        if id(node.array) not in moved:
            moved[id(node.array)] = _move(wrap(node.array), node.device, map_location)
        data = moved[id(node.array)]
        if node.parameter:
            return Parameter(data, requires_grad=node.requires_grad)
        return data.detach().requires_grad_(node.requires_grad)

    return visit(obj)


def _move(tensor: Tensor, saved: Any, map_location: Any) -> Tensor:
    target: Any = map_location
    if isinstance(map_location, dict):
        wanted = {str(minigrad.device(k)): v for k, v in map_location.items()}
        target = wanted.get(str(saved))
    elif isinstance(map_location, Callable):
        result = map_location(tensor, str(saved))
        if isinstance(result, Tensor):
            return result
        target = result
    if target is None:
        target = saved
        if saved.type == "cuda" and not minigrad.cuda.is_available():
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but "
                "minigrad.cuda.is_available() is False. If you are running on a CPU-only "
                "machine, please use minigrad.load with map_location=minigrad.device('cpu') "
                "to map your storages to the CPU."
            )
    return tensor.to(minigrad.device(target))
