"""`SummaryWriter`, with torch's names and arguments."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from minigrad.utils.tensorboard import records


class SummaryWriter:
    """Writes numbers and text to a file of `log_dir`, which `tensorboard --logdir` shows.

    log_dir: by default runs/<date and time>_<host><comment>. The file is written to at once.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        os.makedirs(self.log_dir, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._path = os.path.join(self.log_dir, f"{name}.{id(self)}{filename_suffix}")
        self._file = open(self._path, "wb")  # noqa: SIM115 - closed by close()
        self._write(records.event(time.time(), file_version=b"brain.Event:2"))

    def get_logdir(self) -> str:
        """The folder of the file."""
        return self.log_dir

    def _write(self, message: bytes) -> None:
        self._file.write(records.record(message))
        self._file.flush()

    def _add(self, summary: bytes, step: int | None, walltime: float | None) -> None:
        now = time.time() if walltime is None else walltime
        self._write(records.event(now, None if step is None else int(step), summary=summary))

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number (or a tensor of one element) at a step."""
        self._add(records.scalar(tag, float(scalar_value)), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers of one chart, under the tags main_tag/name."""
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{name}", value, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text at a step."""
        self._add(records.text(tag, text_string), global_step, walltime)

    def flush(self) -> None:
        """Write what is not written yet to the disk."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
