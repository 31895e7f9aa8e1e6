"""Downloads a file once, checks its checksum and resumes interrupted downloads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from kernels.support.cache import turn, user_folder

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without data
_OTHERS = 3600  # seconds that another process may take to download the same file


class DatasetError(RuntimeError):
    """A data set is not available: no network, a wrong checksum, a damaged file."""


def cache_folder(root: str | os.PathLike | None = None) -> Path:
    """The folder of downloaded data sets.

    `root` if given, else `datasets` in the folder that the environment variable
    MINIGRAD_CACHE_DIR names, else `~/.cache/minigrad/datasets`.
    """
    if root is not None:
        return Path(root).expanduser()
    return user_folder("MINIGRAD_CACHE_DIR", "~/.cache/minigrad") / "datasets"


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(urls: Sequence[str], folder: Path, checksum: str) -> Path:
    """The file at `urls` (mirrors of one file), downloaded into `folder` if it is missing.

    The bytes are written to `NAME.part`, which a later call resumes. It is renamed to `NAME` when
    its SHA-256 is `checksum`. Raises DatasetError if no mirror answers or the checksum differs.
    """
    target = folder / urls[0].rpartition("/")[2]
    if not target.exists():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        with turn(target, _OTHERS):  # two processes would write into one `.part`
            return _found(urls, target, checksum)
    return _found(urls, target, checksum)


def _found(urls: Sequence[str], target: Path, checksum: str) -> Path:
    folder, name = target.parent, target.name
    if target.exists():
        if sha256(target) == checksum:
            return target
        raise DatasetError(
            f"{target}: the checksum differs from the published one ({checksum}), so the file is "
            "damaged; delete it and run this again to download it anew"
        )
    part = folder / f"{name}.part"
    failures = []
    for url in urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(url, part)
        except OSError as error:  # urllib's URLError and time-outs are OSErrors too
            failures.append(f"{url}: {_reason(error)}")
            continue
        if sha256(part) == checksum:
            os.replace(part, target)
            return target
        part.unlink()
        failures.append(f"{url}: the checksum of what came is not {checksum}")
    raise DatasetError(
        f"{name} could not be downloaded ({'; '.join(failures)}). If this machine is offline, copy "
        f"the file from another one into {folder}"
    )


def _reason(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(getattr(error, "reason", None) or error)


def _download(url: str, part: Path) -> None:
    """Append the missing bytes of `url` to `part`."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "minigrad"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # "range not satisfiable": the part is complete already
            raise
        error.close()
        return
    with response:
        resumed = have and response.status == 206
        length = response.headers.get("Content-Length")
        total = int(length) + (have if resumed else 0) if length else None
        with (
            open(part, "ab" if resumed else "wb") as file,
            tqdm(
                desc=part.stem,
                total=total,
                initial=have if resumed else 0,
                unit="B",
                unit_scale=True,
                leave=False,
                disable=None,  # not where standard error is a file
            ) as bar,
        ):
            while block := response.read(CHUNK):
                file.write(block)
                bar.update(len(block))
        if total is not None and part.stat().st_size < total:
            raise OSError(f"the connection ended after {part.stat().st_size} of {total} bytes")
