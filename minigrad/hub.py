"""Downloads of files and checkpoints, with torch.hub's names."""

from __future__ import annotations

import hashlib
import os
import re
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlparse as urlparse

from tqdm import tqdm

from kernels.support.cache import user_folder
from minigrad._names import namespace
from minigrad.serialization import atomic_file, load

_TIMEOUT, _CHUNK = 30, 1 << 18  # seconds without data, bytes
HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")  # in the names of published checkpoints


def get_dir() -> str:
    """The folder of downloads: `hub` in that which MINIGRAD_CACHE_DIR names, or in
    ~/.cache/minigrad."""
    return str(user_folder("MINIGRAD_CACHE_DIR", "~/.cache/minigrad") / "hub")


def download_url_to_file(
    url: str, dst: str | os.PathLike, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what `url` has to the file `dst`, once all of it is there.

    RuntimeError where its SHA-256 does not begin with `hash_prefix`; nothing is left then.
    """
    digest, done = hashlib.sha256(), 0
    with (
        urllib.request.urlopen(url, timeout=_TIMEOUT) as source,
        atomic_file(os.path.expanduser(dst)) as file,
    ):
        length = source.headers.get("Content-Length")
        total = None if length is None else int(length)
        with tqdm(total=total, unit="B", unit_scale=True, disable=not progress) as bar:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
                done += len(chunk)
        if total is not None and done < total:
            raise OSError(f"{url}: the connection ended after {done} of {total} bytes")
        found = digest.hexdigest()[: len(hash_prefix or "")]
        if hash_prefix and found != hash_prefix:
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """What the checkpoint at `url` holds, downloaded once into `model_dir` (default: `checkpoints`
    in `get_dir()`); `minigrad.load` reads it, without running code.

    check_hash: the name of the file ends with the beginning of its SHA-256, which is compared.
    """
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.exists():
        named = HASH_REGEX.search(path.name) if check_hash else None
        download_url_to_file(url, path, named[1] if named else None, progress)
    return load(path, map_location=map_location)


__getattr__, __dir__ = namespace(__name__)
