"""The two file formats: IDX (MNIST, Fashion-MNIST) and the binary records of CIFAR-10.

Each reader checks the sizes in a header, and raises DatasetError for an invalid file.
"""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np

from minigrad.datasets.download import DatasetError

IDX_UNSIGNED_BYTE = 8
CIFAR_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The uint8 array of `ndim` dimensions in an IDX file, gzipped if its name ends with .gz.

    The format: two zero bytes, a type code, the number of dimensions, each dimension as a
    big-endian 32-bit integer, the elements in C order.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise DatasetError(f"{path}: no such file") from None
        raise DatasetError(f"{path}: not a whole gzip file ({error})") from None
    start = 4 + 4 * ndim
    if len(raw) < start or raw[:4] != bytes((0, 0, IDX_UNSIGNED_BYTE, ndim)):
        raise DatasetError(
            f"{path}: expected an IDX file of unsigned bytes with {ndim} dimensions, got one that "
            f"starts with {raw[:4].hex(' ') or 'nothing'}"
        )
    shape = struct.unpack_from(f">{ndim}I", raw, 4)
    if len(raw) - start != math.prod(shape):
        raise DatasetError(
            f"{path}: the header says {shape}, which is {math.prod(shape)} bytes, and the file "
            f"holds {len(raw) - start}"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read_cifar(path: Path, members: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,), both uint8, from `members` of CIFAR-10's archive.

    The archive is not extracted to disk, so it can't write files.
    """
    parts = []
    try:
        with tarfile.open(path) as archive:
            for name in members:
                member = archive.extractfile(f"cifar-10-batches-bin/{name}")
                if member is None:
                    raise DatasetError(f"{path}: {name} is not a plain file")
                parts.append(member.read())
    except KeyError as error:
        raise DatasetError(f"{path}: {error.args[0]}") from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DatasetError(f"{path}: not a whole tar archive ({error})") from None
    raw = b"".join(parts)
    if not raw or len(raw) % CIFAR_RECORD:
        raise DatasetError(
            f"{path}: expected records of {CIFAR_RECORD} bytes, got {len(raw)} bytes in all"
        )
    records = np.frombuffer(raw, np.uint8).reshape(-1, CIFAR_RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
