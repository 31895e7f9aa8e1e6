"""Writing a checkpoint."""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from typing import Any

import numpy as np

from minigrad import serialization
from minigrad.distributed.checkpoint.files import (
    FORMAT,
    INDEX,
    RANK_FILE,
    Ranks,
    Shard,
    file_name,
    header,
    slots,
    unfolded,
)


def write(state: dict[str, Any], folder: str, group: Any, no_dist: bool) -> None:
    """See `checkpoint.save`."""
    ranks = Ranks("save", folder, group, no_dist)
    mine: dict[str, Any] = {}

    def begin() -> tuple[dict[str, tuple], list[str], str]:
        os.makedirs(folder, exist_ok=True)
        mine.update(_entries(state))
        found = {name: entry for name, entry in mine.items() if isinstance(entry, Shard)}
        tensors = {
            name: (tuple(shard.shape), shard.tensor.dtype.name, shard.start, shard.stop)
            for name, shard in found.items()
        }
        return tensors, [name for name in mine if name not in tensors], secrets.token_hex(8)

    said = ranks.everywhere(begin)
    token = said[0][2]
    tensors, owners = ranks.everywhere(lambda: _shared_plan(said))[ranks.rank]

    def put() -> tuple[int, list[tuple], dict[str, Any]]:
        chosen = [name for name, owner in owners.items() if ranks.rank in owner]
        size, pieces = _write_pieces(folder, token, ranks.rank, mine, chosen)
        taken = {name for _, names, _ in said[: ranks.rank] for name in names}
        values = [name for name in said[ranks.rank][1] if name not in taken]
        return size, pieces, {name: mine[name] for name in values}

    written = ranks.everywhere(put)

    def finish() -> None:
        if ranks.rank == 0:
            _write_index(folder, token, tensors, written)
            _remove_others(folder, token)

    ranks.everywhere(finish)


def _entries(state: dict[str, Any]) -> dict[str, Any]:
    """The shards and values by name."""
    entries: dict[str, Any] = {}
    for slot in slots(unfolded(state)):
        if slot.name in entries:
            raise ValueError(f"two entries have the name {slot.name!r}")
        shard = slot.shard()
        entries[slot.name] = slot.value if shard is None else shard
        if shard is not None and not 0 <= shard.start <= shard.stop <= shard.size:
            raise ValueError(
                f"{slot.name}: a shard of elements {shard.start} to {shard.stop} is not inside of "
                f"shape {tuple(shard.shape)}"
            )
    return entries


def _shared_plan(said: list[tuple]) -> tuple[dict[str, dict], dict[str, list[int]]]:
    """Shape and dtype of every tensor, and the ranks that write a part of it."""
    tensors: dict[str, dict] = {}
    parts: dict[str, dict[tuple[int, int], int]] = {}
    for rank, (mine, _, _) in enumerate(said):
        for name, (shape, dtype, start, stop) in mine.items():
            first = tensors.setdefault(name, {"shape": shape, "dtype": dtype, "rank": rank})
            if (first["shape"], first["dtype"]) != (shape, dtype):
                raise ValueError(
                    f"{name} has shape {first['shape']} {first['dtype']} on rank {first['rank']}, "
                    f"and {shape} {dtype} on rank {rank}"
                )
            if start < stop:
                parts.setdefault(name, {}).setdefault((start, stop), rank)
    owners = {}
    for name, tensor in tensors.items():
        found = parts.get(name, {})
        size, end = int(np.prod(tensor["shape"], dtype=np.int64)), 0
        for start, stop in sorted(found):
            if start != end:
                what = "no rank has" if end < start else "several parts have"
                raise ValueError(
                    f"{name}: {what} the elements {min(start, end)} to {max(start, end)}"
                )
            end = stop
        if end != size:
            raise ValueError(f"{name}: no rank has the elements {end} to {size}")
        owners[name] = sorted(set(found.values()))
    return tensors, owners


def _write_pieces(
    folder: str, token: str, rank: int, entries: dict[str, Any], names: list[str]
) -> tuple[int, list[tuple]]:
    """Write this rank's file: its size, and (name, offset, start, stop, checksum) by piece."""
    pieces = []
    with open(os.path.join(folder, file_name(token, rank)), "xb") as file:
        file.write(header(token, rank))
        for name in names:
            shard = entries[name]
            flat = np.ascontiguousarray(shard.tensor.cpu()._array).reshape(-1).view(np.uint8)
            pieces.append((name, file.tell(), shard.start, shard.stop, zlib.crc32(flat.data)))
            file.write(flat.data)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    serialization.flush_folder(folder)
    return size, pieces


def _write_index(folder: str, token: str, tensors: dict, written: list[tuple]) -> None:
    """The last step: from here on the new files are the checkpoint."""
    entries: dict[str, Any] = {
        name: {"shape": tensor["shape"], "dtype": tensor["dtype"], "pieces": []}
        for name, tensor in tensors.items()
    }
    values: dict[str, Any] = {}
    for rank, (_, pieces, found) in enumerate(written):
        values |= found
        for name, *place in pieces:
            entries[name]["pieces"].append((rank, *place))
    files = {
        rank: {"name": file_name(token, rank), "bytes": size}
        for rank, (size, _, _) in enumerate(written)
    }
    index = {"format": FORMAT, "save": token, "ranks": len(written), "files": files}
    serialization.save({**index, "tensors": entries, "values": values}, os.path.join(folder, INDEX))


def _remove_others(folder: str, token: str) -> None:
    """Files of former saves, and of interrupted ones."""
    for entry in os.scandir(folder):
        found = RANK_FILE.fullmatch(entry.name)
        if found and found[2] != token:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
