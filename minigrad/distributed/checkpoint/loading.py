"""Reading a checkpoint into a state dict."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import minigrad
from minigrad import serialization
from minigrad.backends import array_module
from minigrad.distributed.checkpoint.files import (
    FORMAT,
    HEADER,
    INDEX,
    RANK_FILE,
    Ranks,
    Shard,
    Slot,
    header,
    is_stateful,
    shards,
    slots,
    unfolded,
)

LISTED = 5  # names in an error


def read(
    state: dict[str, Any], folder: str, group: Any, no_dist: bool, strict: bool = False
) -> None:
    """See `checkpoint.load`. strict: every entry must have its place on some rank."""
    ranks = Ranks("load", folder, group, no_dist)
    inner = unfolded(state)
    wanted = list(slots(inner))
    whole = [""] if strict else list(_objects(state))
    index: dict[str, Any] = {}

    def check() -> list[str]:
        index.update(read_index(folder))
        _check_entries(index, wanted)
        _check_files(index, folder, _needed(index, wanted))
        return [slot.name for slot in wanted]

    names = ranks.everywhere(check)
    ranks.everywhere(lambda: _check_all_used(index, set().union(*names), tuple(whole)))

    def fill() -> None:
        for slot in wanted:
            parts = shards(slot.value)
            if not parts:
                slot.put(index["values"][slot.name])
            for part in parts:
                _fill(part, slot.name, index, folder)

    ranks.everywhere(fill)
    _refolded(state, inner)


def _objects(state: Any, name: str = "") -> Iterator[str]:
    """The prefixes of the names in objects with a state: it must be complete."""
    if is_stateful(state):
        yield name
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _objects(value, f"{name}{key}.")


def _refolded(value: Any, loaded: Any) -> Any:
    """The same containers and objects with loaded values."""
    if is_stateful(value):
        value.load_state_dict(loaded)
    elif isinstance(value, dict):
        for key, part in value.items():
            value[key] = _refolded(part, loaded[key])
    elif isinstance(value, list) and isinstance(loaded, list) and len(value) == len(loaded):
        value[:] = [_refolded(part, new) for part, new in zip(value, loaded)]
    else:
        return loaded
    return value


# --- checks, before anything is changed


def read_index(folder: str) -> dict[str, Any]:
    """The index of a checkpoint. CheckpointException comes of the errors that it raises."""
    if not os.path.isdir(folder):
        raise FileNotFoundError("there is no such folder (all ranks need the same file system)")
    path = os.path.join(folder, INDEX)
    if not os.path.exists(path):
        if any(RANK_FILE.fullmatch(name) for name in os.listdir(folder)):
            raise FileNotFoundError(
                f"there are files of ranks, but no {INDEX}: the save was interrupted before its end"
            )
        raise FileNotFoundError(f"the folder has no {INDEX}: it is no checkpoint")
    index = serialization.load(path, map_location="cpu")
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ValueError(f"{INDEX} is not of a checkpoint of format {FORMAT}")
    return index


def _check_entries(index: dict[str, Any], wanted: list[Slot]) -> None:
    """Raise ValueError where the checkpoint is of something else."""
    wrong = []
    for slot in wanted:
        parts = shards(slot.value)
        kind = "tensors" if parts else "values"
        if slot.name not in index[kind]:
            wrong.append(f"it has no {kind[:-1]} {slot.name!r}")
        elif parts and (shape := tuple(index[kind][slot.name]["shape"])) != parts[0].shape:
            wrong.append(f"{slot.name!r} has shape {shape} there, {parts[0].shape} here")
    _raise_other(wrong, index)


def _check_all_used(index: dict[str, Any], names: set[str], prefixes: tuple[str, ...]) -> None:
    """Raise ValueError for entries below a prefix that are on no rank."""
    there = [name for name in (*index["tensors"], *index["values"]) if name.startswith(prefixes)]
    unused = [name for name in there if name not in names]
    _raise_other([f"it has {name!r}, which is not here" for name in unused], index)


def _raise_other(wrong: list[str], index: dict[str, Any]) -> None:
    if wrong:
        more = f"; and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
        raise ValueError(
            f"the checkpoint is of another model, optimiser or state: "
            f"{'; '.join(wrong[:LISTED])}{more}"
        )


def _needed(index: dict[str, Any], wanted: list[Slot]) -> list[int]:
    """The ranks whose files this one reads."""
    needed = set()
    for slot in wanted:
        for part in shards(slot.value):
            needed |= {piece[0] for piece in _pieces(index, slot.name, part)}
    return sorted(needed)


def _pieces(index: dict[str, Any], name: str, shard: Shard) -> list[tuple]:
    """The pieces of a tensor that have elements of a shard."""
    tensor = index["tensors"][name]
    if tensor["dim"] != shard.dim:
        return tensor["pieces"] if shard.tensor.numel() else []
    return [p for p in tensor["pieces"] if p[2] < shard.stop and shard.start < p[3]]


def _check_files(index: dict[str, Any], folder: str, ranks: list[int]) -> None:
    """Raise an error for files that are missing, torn, or of another save."""
    for rank in ranks:
        name, size = index["files"][rank]["name"], index["files"][rank]["bytes"]
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            others = sorted(
                entry
                for entry in os.listdir(folder)
                if (found := RANK_FILE.fullmatch(entry)) and int(found[1]) == rank
            )
            hint = f"; {others[0]} is of another save: files are mixed" if others else ""
            raise FileNotFoundError(f"the file {name} of rank {rank} is missing{hint}")
        if (found_size := os.path.getsize(path)) != size:
            raise ValueError(f"{name} is torn: it has {found_size} bytes, expected {size}")
        with open(path, "rb") as file:
            if file.read(HEADER) != header(index["save"], rank):
                raise ValueError(f"{name} is not of this save: files of several saves are mixed")


# --- elements


def _fill(shard: Shard, name: str, index: dict[str, Any], folder: str) -> None:
    """Write the elements of a shard."""
    tensor = index["tensors"][name]
    if tensor["dim"] == shard.dim:
        flat = _elements(shard, name, index, folder)
    else:  # divided along another dimension: through the whole tensor
        kind = getattr(minigrad, tensor["dtype"])
        every = Shard(minigrad.empty(shard.size, dtype=kind), shard.shape, 0, tensor["dim"])
        moved = np.moveaxis(np.empty(shard.shape, np.uint8), tensor["dim"], 0).shape
        whole = np.moveaxis(_elements(every, name, index, folder).reshape(moved), 0, tensor["dim"])
        flat = np.moveaxis(whole, shard.dim, 0).reshape(-1)[shard.start : shard.stop]
    array = shard.tensor._array
    array[...] = array_module(array).asarray(flat.reshape(array.shape))
    shard.tensor._counter[0] += 1


def _elements(shard: Shard, name: str, index: dict[str, Any], folder: str) -> np.ndarray:
    """The elements of a shard, of a tensor that is stored along the same dimension."""
    dtype = getattr(minigrad, index["tensors"][name]["dtype"]).numpy
    flat = np.empty(shard.stop - shard.start, dtype)
    for rank, offset, start, stop, checksum in _pieces(index, name, shard):
        file = index["files"][rank]["name"]
        elements = np.fromfile(os.path.join(folder, file), dtype, stop - start, offset=offset)
        if zlib.crc32(elements.view(np.uint8).data) != checksum:
            raise ValueError(f"{file} is damaged: the elements of {name!r} have another checksum")
        low, high = max(start, shard.start), min(stop, shard.stop)
        flat[low - shard.start : high - shard.start] = elements[low - start : high - start]
    return flat
