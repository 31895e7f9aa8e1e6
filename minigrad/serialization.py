"""`save` and `load`: tensors, modules and plain Python data in one file, in torch's format. Loading
never runs code.

The file is an uncompressed zip archive. ``data.pkl`` is a pickle, written by `_pickle_writer` and
read by `_pickle_reader`, which knows a few names and refuses all others. ``data/0``, ``data/1`` and
so on are the elements of the tensors, little-endian. Tensors of the same memory are stored once and
share memory again when loaded; views keep their strides. The checksums of the archive detect
damage.

Saving to a path is atomic: a temporary file in the same folder is written, flushed to the disk and
then renamed, so that at any moment either the old or the new file is there, complete.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np

import minigrad
from minigrad._names import namespace
from minigrad._pickle_reader import FUNCTIONS, Reader, RefusedError, without_sparse
from minigrad._pickle_writer import Writer
from minigrad.devices import device
from minigrad.tensor import Tensor, wrap

MAP_LOCATION = Callable | device | str | dict[str, str] | None  # what `load` takes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_ROOT = "archive"  # the folder of the archive that holds everything
_LONGEST = 200  # bytes of a file's name in that of a temporary file: systems allow 255 in all
_SECONDS = 60  # after which a temporary file that is not locked is a leftover
# The first numbers of the format before version 1.6.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal content gives equal files

# Exceptions inside `load` for a damaged or malicious file; all become one RuntimeError.
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, KeyError, ValueError, TypeError, IndexError),
    *(NotImplementedError, RecursionError, OverflowError, AttributeError, MemoryError),
)

File = str | os.PathLike | IO[bytes]


# ------------------------------------------------------------------------ saving


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write `obj` to a path (atomically) or to a binary file object; torch.load reads it, too.

    Args:
        obj: tensors, parameters, modules, NumPy arrays, None, bool, int, float, str, bytes, dtypes,
            devices, and lists, tuples, sets, dicts, OrderedDicts and Counters of them; so any
            ``state_dict()``.
        f: the path, or an object with ``write``.
        pickle_module, pickle_protocol: accepted for compatibility with torch.
    Raises:
        TypeError: `obj` holds something else; nothing is written.
        RuntimeError: the folder does not exist.
    """
    writer = Writer()
    pickled = writer.write(obj)  # before a file is created
    if not isinstance(f, (str, os.PathLike)):
        _write_archive(f, pickled, writer.arrays)
        return
    with atomic_file(os.fspath(f)) as file:
        _write_archive(file, pickled, writer.arrays)


def _write_archive(file: IO[bytes], pickled: bytes, arrays: list[np.ndarray]) -> None:
    entries = {"data.pkl": pickled, "byteorder": b"little"}
    entries |= {f"data/{i}": array.view(np.uint8).data for i, array in enumerate(arrays)}
    entries["version"] = b"3\n"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(f"{_ROOT}/{name}", _EPOCH)
            info.file_size = len(content)  # lets zipfile choose 64-bit sizes where needed
            with archive.open(info, "w", force_zip64=len(content) >= 2**31) as entry:
                entry.write(content)


@contextlib.contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
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
    name = os.fsdecode(os.fsencode(name)[:_LONGEST])
    _remove_leftovers(folder, name)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            with contextlib.suppress(OSError):  # a file system without locks
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
    flush_folder(folder)


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


def flush_folder(folder: str) -> None:
    """Write the renaming to the disk too, on systems that can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):  # a folder that only names can be put into, a file system
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ------------------------------------------------------------------------ loading


def load(
    f: File,
    map_location: Any = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Read what `save` or torch.save wrote, from a path or a binary file object.

    torch's format before version 1.6, which many published weights have, is read, too.

    Whole modules are read if their classes are layers, or declared safe (`add_safe_globals`).

    Args:
        map_location: where tensors go: a device, a dict from saved to wanted device, or a function
            ``(tensor on the CPU, saved device) -> Tensor or None``; None restores the saved device.
        mmap, weights_only: accepted for compatibility with torch; loading never runs code.
    Raises:
        FileNotFoundError: there is no such file.
        RuntimeError: the file is damaged or truncated, has another format, or its tensors are from
            a GPU that is not available (then pass ``map_location="cpu"``); a pickle.UnpicklingError
            too where it asks for something that loading does not do.
    """
    if pickle_module is not None:
        raise ValueError("load: pickle_module must be None; pickles are read by minigrad itself")
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load_file(file, os.fspath(f), map_location)
    if not hasattr(f, "read"):
        raise TypeError(f"load: expected a path or a binary file object, got {type(f).__name__}")
    seekable = hasattr(f, "seekable") and f.seekable()
    return _load_file(f if seekable else io.BytesIO(f.read()), "the file", map_location)


def _load_file(file: IO[bytes], name: str, map_location: Any) -> Any:
    try:
        return _read(file, name, map_location)
    except RefusedError as error:
        raise RefusedError(f"load: {name}: {error}") from None
    except _DAMAGE as error:
        raise RuntimeError(
            f"load: {name} is damaged or was not written by save ({type(error).__name__}: {error})"
        ) from error


def _read(file: IO[bytes], name: str, map_location: Any) -> Any:
    start = file.tell()
    head = file.read(9)
    total = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if head[:1] == b"\x80":
        return _read_pickles(file, name, total, map_location)
    if head[6:] == b"\0\0{":  # the length of the header, then JSON
        raise RuntimeError(
            f"load: {name} has the format safetensors; minigrad.safetensors.load_file reads it"
        )
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        (pickled,) = [entry for entry in entries if entry.endswith("data.pkl")]
        root = pickled.removesuffix("data.pkl")
        _check_entries(entries, total)
        content = {entry: _read_entry(archive, info) for entry, info in entries.items()}
    if content.get(f"{root}byteorder", np.zeros(0)).tobytes() == b"big":
        raise RuntimeError(f"load: {name} was written on a machine with another byte order")
    # Devices are used only after the whole file was checked.
    reader = Reader(_Storages(content, f"{root}data/", map_location), dict(_safe))
    return reader.read(content[pickled].tobytes())


def _read_pickles(file: IO[bytes], name: str, total: int, map_location: Any) -> Any:
    """What torch wrote before version 1.6, as many published weights are: pickles of a magic
    number, a version, the machine, the object and the keys of the storages, then the elements of
    each storage after their number."""
    end = file.tell() + total

    def one() -> Any:
        return Reader(_refuse_storage, {}).read(file)

    if one() != _MAGIC or one() != _VERSION:
        raise RuntimeError(f"load: {name} is a pickle that torch.save did not write")
    if one().get("little_endian") is not True:
        raise RuntimeError(f"load: {name} was written on a machine with another byte order")
    start = file.tell()
    sizes: dict[str, tuple[int, int]] = {}  # elements, and bytes of all

    def measure(key: str, dtype: Any, device: str, count: int) -> np.ndarray:
        kind = np.dtype(np.uint8) if dtype is None else dtype.numpy
        if not 0 <= count * kind.itemsize <= end - start:
            raise ValueError(f"storage {key} of {count} elements in a file of {total} bytes")
        sizes[key] = count, count * kind.itemsize
        return np.empty(count, kind)

    without_sparse(Reader(measure, dict(_safe))).read(
        file
    )  # to learn how many bytes an element has
    content = {}
    for key in one():
        count, size = sizes[key]
        if int.from_bytes(file.read(8), "little", signed=True) != count:
            raise ValueError(f"storage {key} does not have the {count} elements that are asked for")
        content[key] = np.frombuffer(bytearray(file.read(size)), np.uint8)
        if content[key].size != size:
            raise EOFError(f"storage {key} ends early")
    file.seek(start)
    return Reader(_Storages(content, "", map_location), dict(_safe)).read(file)


def _refuse_storage(*args: Any) -> Any:
    raise RefusedError("a tensor where there can't be one")


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


class _Storages:
    """The flat arrays of an archive, each on its device."""

    def __init__(self, content: dict[str, np.ndarray], folder: str, map_location: Any) -> None:
        self._content, self._folder, self._map_location = content, folder, map_location
        self._known: dict[tuple, Any] = {}

    def __call__(self, key: str, dtype: Any, device: str, count: int) -> Any:
        if type(key) is not str or type(device) is not str:
            raise TypeError("a storage without a name or a device")
        if (key, dtype, device) not in self._known:
            raw = self._content[self._folder + key]
            kind = np.dtype(np.uint8) if dtype is None else dtype.numpy
            if raw.size != count * kind.itemsize:
                raise ValueError(f"data/{key} has {raw.size} bytes, expected {count} of {kind}")
            array = (raw != 0) if kind == np.bool_ else raw.view(kind.newbyteorder("<"))
            moved = _move(wrap(array.astype(kind, copy=False)), device, self._map_location)
            self._known[key, dtype, device] = moved._array
        return self._known[key, dtype, device]


def _move(tensor: Tensor, location: str, map_location: Any) -> Tensor:
    """The elements of a storage on the device that `map_location` says."""
    saved = minigrad.device(location)
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


def default_restore_location(storage: Tensor, location: str) -> Tensor:
    """The elements that a function given as `map_location` gets, on the device of this name."""
    return _move(storage, location, None)


# ------------------------------------------------------------------------ whole modules

_safe: dict[str, type] = {}  # by full name: what `load` may make objects of


def add_safe_globals(safe_globals: Iterable[type]) -> None:
    """Let `load` make objects of these classes: without `__init__`, with the saved attributes.

    What it reads anyway, such as the functions that make NumPy's arrays, may be among them.
    """
    for cls in safe_globals:
        name = f"{getattr(cls, '__module__', '')}.{getattr(cls, '__qualname__', '')}"
        if not isinstance(cls, type) and name not in FUNCTIONS:
            raise TypeError(f"add_safe_globals: expected classes, got {cls!r}")
        _safe[name] = cls


def get_safe_globals() -> list[type]:
    """The classes that were declared safe."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Declare no class safe any more."""
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Iterable[type]) -> Iterator[None]:
    """A block in which classes are declared safe; see `add_safe_globals`."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


__getattr__, __dir__ = namespace(__name__)
