"""A checkpoint of a whole run every N steps."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Any

from minigrad.distributed.checkpoint.files import INDEX, Ranks
from minigrad.distributed.checkpoint.loading import read
from minigrad.distributed.checkpoint.saving import write
from minigrad.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from minigrad.nn.modules.module import Module

_STEP = re.compile(r"step-(\d{8})")


class Periodic:
    """Saves model and optimiser to `folder`/step-N every `every` steps, and restores the last one.

        saver = checkpoint.Periodic("run", model, optimizer, every=100)
        for step in range(saver.restore(), steps):
            ...
            saver.after_step()

    All ranks call `restore` and `after_step`; another number of ranks, or another way of dividing
    the same model, goes on from the same files.

    keep: how many checkpoints stay. more: objects with `state_dict` and `load_state_dict` by name,
    the same on all ranks (a schedule of learning rates, say).

    Attributes:
        step: how many steps are done.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: Module,
        optimizer: Any,
        every: int,
        keep: int = 2,
        more: dict[str, Any] | None = None,
        process_group: Any = None,
    ) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Periodic: {name} must be a whole number above 0, got {value!r}")
        self.folder, self.every, self.keep = os.fspath(folder), every, keep
        self.model, self.optimizer, self.more = model, optimizer, dict(more or {})
        self._group = process_group
        self.step = 0

    def _state(self) -> dict[str, Any]:
        model, optim = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optim, "step": self.step, "more": dict(self.more)}

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step:08d}")

    def restore(self) -> int:
        """Load the last whole checkpoint, if there is one; returns the number of steps done."""
        ranks = Ranks("load", self.folder, self._group, False)
        found = ranks.everywhere(lambda: max(saved(self.folder), default=0))
        if len(set(found)) > 1:
            ranks.everywhere(lambda: _raise_different(found))
        if found[0]:
            state = self._state()
            read(state, self._path(found[0]), self._group, False, strict=True)
            set_state_dict(
                self.model,
                self.optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optim"],
            )
            self.step = state["step"]
        return self.step

    def after_step(self) -> bool:
        """Count a step, and save if it is time; whether it was."""
        self.step += 1
        if self.step % self.every:
            return False
        self.save()
        return True

    def save(self) -> None:
        """Save now, and remove the oldest beyond `keep`."""
        write(self._state(), self._path(self.step), self._group, False)
        if Ranks("save", self.folder, self._group, False).rank == 0:
            for step in sorted(saved(self.folder))[: -self.keep]:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._path(step), INDEX))  # no checkpoint any more
                shutil.rmtree(self._path(step), ignore_errors=True)


def saved(folder: str) -> list[int]:
    """The steps of the whole checkpoints in a folder."""
    with contextlib.suppress(FileNotFoundError):
        return [
            int(found[1])
            for entry in os.scandir(folder)
            if (found := _STEP.fullmatch(entry.name))
            and os.path.exists(os.path.join(entry.path, INDEX))
        ]
    return []


def _raise_different(found: list[int]) -> None:
    raise ValueError(
        f"the ranks see different checkpoints, the last ones of steps {found}: all need the same "
        "file system"
    )
