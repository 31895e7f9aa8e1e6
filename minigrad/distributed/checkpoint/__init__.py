"""Checkpoints of training on several ranks: one file per rank, and an index.

    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optim_state, "step": step}
    checkpoint.save(state, checkpoint_id="run/step-100")
    ...
    checkpoint.load(state, checkpoint_id="run/step-100")     # in place
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optim"])

`minigrad.distributed.checkpoint.state_dict` has the functions that name the parameters and the
state of the optimiser in the same way whether DistributedDataParallel, ZeroRedundancyOptimizer or
FSDP divides them: so another number of ranks, or another way of dividing, loads the same files.
`Periodic` saves and restores a whole run.

A save writes new files beside those of the save before, and then replaces the index, in one step of
the file system. So an interrupted save leaves the former one as it was.
"""

from __future__ import annotations

import os
from typing import Any

from minigrad._names import namespace
from minigrad.distributed.checkpoint import state_dict
from minigrad.distributed.checkpoint.files import CheckpointException, Shard
from minigrad.distributed.checkpoint.loading import read
from minigrad.distributed.checkpoint.periodic import Periodic
from minigrad.distributed.checkpoint.saving import write

__all__ = ["CheckpointException", "Periodic", "Shard", "load", "save", "state_dict"]


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> None:
    """Write the state of all ranks to the folder `checkpoint_id`. All ranks call it.

    state_dict: of tensors, `Shard`s, plain values, objects with `state_dict` and `load_state_dict`
        (a Module, an Optimizer), and dicts and lists of them. Tensors that several ranks have
        under one name must be equal, and are written once; other values are the lowest rank's.
    no_dist: only this process takes part.

    Raises CheckpointException on every rank when one cannot write, or their tensors do not fit
    together or differ; a former checkpoint in the folder is whole then.
    """
    _refuse("save", storage_writer=storage_writer, planner=planner)
    write(state_dict, _folder("save", checkpoint_id), process_group, no_dist)


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill `state_dict` in place from the folder `checkpoint_id`. All ranks call it.

    Tensors are written into, other values replaced. The number of ranks may differ from that of the
    save. Entries of the checkpoint that `state_dict` does not have are left out.

    Raises CheckpointException on every rank when one finds no whole checkpoint, a torn file, files
    of several saves, or no entry of a name and shape that it has; nothing is changed then, except
    where the elements of a tensor are damaged.
    """
    _refuse("load", storage_reader=storage_reader, planner=planner)
    read(state_dict, _folder("load", checkpoint_id), process_group, no_dist)


def _folder(operation: str, checkpoint_id: Any) -> str:
    if not isinstance(checkpoint_id, str | os.PathLike):
        raise TypeError(
            f"checkpoint.{operation}: expected checkpoint_id= with the path of a folder, got "
            f"{checkpoint_id!r}"
        )
    return os.fspath(checkpoint_id)


def _refuse(operation: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(
                f"checkpoint.{operation}: {name}= is not available in minigrad; name the folder "
                "with checkpoint_id="
            )


__getattr__, __dir__ = namespace(__name__)
