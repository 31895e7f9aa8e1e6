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
    file_name,
    header,
    shards,
    slots,
    unfolded,
)

Part = tuple[str, int, int]  # the name of a tensor, and the elements from start to stop


def write(state: dict[str, Any], folder: str, group: Any, no_dist: bool) -> None:
    """See `checkpoint.save`."""
    ranks = Ranks("save", folder, group, no_dist)
    mine: dict[str, Any] = {}

    def begin() -> tuple[dict[str, tuple], list[str], str]:
        os.makedirs(folder, exist_ok=True)
        mine.update(_entries(state))
        found = {name: parts for name, value in mine.items() if (parts := shards(value))}
        tensors = {
            name: (tuple(p.shape), p.tensor.dtype.name, p.dim, [(q.start, q.stop) for q in parts])
            for name, parts in found.items()
            for p in parts[:1]
        }
        return tensors, [name for name in mine if name not in tensors], secrets.token_hex(8)

    said = ranks.everywhere(begin)
    token = said[0][2]
    tensors, owners = ranks.everywhere(lambda: _shared_plan(said))[ranks.rank]
    ranks.everywhere(lambda: _check_copies(ranks, owners, mine))

    def put() -> tuple[int, list[tuple], dict[str, Any]]:
        chosen = [part for part, holders in owners.items() if holders[0] == ranks.rank]
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
    """The tensors and values by name."""
    entries: dict[str, Any] = {}
    for slot in slots(unfolded(state)):
        if slot.name in entries:
            raise ValueError(f"two entries have the name {slot.name!r}")
        entries[slot.name] = slot.value
        for part in shards(slot.value):
            if not 0 <= part.start <= part.stop <= part.size:
                raise ValueError(
                    f"{slot.name}: a shard of elements {part.start} to {part.stop} is not inside "
                    f"of shape {tuple(part.shape)}"
                )
    return entries


def _shared_plan(said: list[tuple]) -> tuple[dict[str, dict], dict[Part, list[int]]]:
    """Shape and dtype of every tensor, and the ranks that have each part."""
    tensors: dict[str, dict] = {}
    owners: dict[Part, list[int]] = {}
    for rank, (mine, _, _) in enumerate(said):
        for name, (shape, dtype, dim, parts) in mine.items():
            first = tensors.setdefault(
                name, {"shape": shape, "dtype": dtype, "dim": dim, "rank": rank}
            )
            if (first["shape"], first["dtype"], first["dim"]) != (shape, dtype, dim):
                raise ValueError(
                    f"{name} has shape {first['shape']} {first['dtype']} on rank {first['rank']}, "
                    f"and {shape} {dtype} on rank {rank}"
                    + ("" if first["dim"] == dim else "; it is divided along other dimensions")
                )
            for start, stop in parts:
                if start < stop:
                    owners.setdefault((name, start, stop), []).append(rank)
    ends = dict.fromkeys(tensors, 0)
    for name, start, stop in sorted(owners):
        if start != ends[name]:
            what = "no rank has" if ends[name] < start else "several parts have"
            low, high = sorted((start, ends[name]))
            raise ValueError(f"{name}: {what} the elements {low} to {high}")
        ends[name] = stop
    for name, tensor in tensors.items():
        size = int(np.prod(tensor["shape"], dtype=np.int64))
        if ends[name] != size:
            raise ValueError(f"{name}: no rank has the elements {ends[name]} to {size}")
    return tensors, owners


def _check_copies(ranks: Ranks, owners: dict[Part, list[int]], entries: dict[str, Any]) -> None:
    """Raise ValueError where ranks have other values under one name, of which one would be lost."""
    shared = [part for part, holders in owners.items() if len(holders) > 1]
    mine = {
        part: zlib.crc32(_bytes(entries, part).data)
        for part in shared
        if ranks.rank in owners[part]
    }
    sums = ranks.everywhere(lambda: mine)
    for part in shared:
        first, *others = owners[part]
        for rank in others:
            if sums[rank][part] != sums[first][part]:
                raise ValueError(
                    f"{part[0]} has other values on rank {rank} than on rank {first}: the ranks "
                    "have diverged, or it is a rank's own (give it a name with the rank in it) or "
                    "a buffer (checkpoint.state_dict.get_model_state_dict takes the first rank's)"
                )


def _bytes(entries: dict[str, Any], part: Part) -> np.ndarray:
    """The elements of a part that this rank has."""
    name, start, _ = part
    (found,) = [one for one in shards(entries[name]) if one.start == start and one.tensor.numel()]
    array = np.ascontiguousarray(found.tensor.cpu()._array)
    return array.reshape(-1).view(np.uint8)


def _write_pieces(
    folder: str, token: str, rank: int, entries: dict[str, Any], parts: list[Part]
) -> tuple[int, list[tuple]]:
    """Write this rank's file: its size, and (name, offset, start, stop, checksum) by piece."""
    pieces = []
    with open(os.path.join(folder, file_name(token, rank)), "xb") as file:
        file.write(header(token, rank))
        for name, start, stop in parts:
            flat = _bytes(entries, (name, start, stop))
            pieces.append((name, file.tell(), start, stop, zlib.crc32(flat.data)))
            file.write(flat.data)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    serialization.flush_folder(folder)
    return size, pieces


def _write_index(folder: str, token: str, tensors: dict, written: list[tuple]) -> None:
    """The last step: from here on the new files are the checkpoint."""
    entries: dict[str, Any] = {
        name: {**{key: tensor[key] for key in ("shape", "dtype", "dim")}, "pieces": []}
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
