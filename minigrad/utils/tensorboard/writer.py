"""`SummaryWriter`, with torch's names and arguments."""

from __future__ import annotations

import functools
import io
import os
import socket
import time
from typing import Any

import numpy as np

from minigrad.tensor import Tensor
from minigrad.utils.tensorboard import records


def _array(values: Any) -> np.ndarray:
    """A tensor or numbers as an array of the CPU."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


@functools.cache
def _growing_edges() -> np.ndarray:
    positive = 1e-12 * 1.1 ** np.arange(775)
    return np.concatenate([-positive[::-1], [0], positive])


class SummaryWriter:
    """Writes numbers, text, pictures and histograms to a file of `log_dir`.

    `tensorboard --logdir` shows them.

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

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """The distribution of a tensor's elements. bins: "tensorflow" (edges that grow by 10% from
        1e-12), or what `numpy.histogram_bin_edges` takes."""
        x = _array(values).reshape(-1)
        if x.size == 0:
            raise ValueError(f"add_histogram: {tag!r} has no values")
        edges = _growing_edges() if bins == "tensorflow" else np.histogram_bin_edges(x, bins)
        self._add(records.histogram(tag, x, edges), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture of uint8, or of floats from 0 to 1; dataformats: the order of its dimensions,
        "CHW", "HWC" or "HW"."""
        self.add_images(tag, _array(img_tensor)[None], global_step, walltime, "N" + dataformats)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Pictures beside each other in one, in rows of at most eight."""
        pixels = _array(img_tensor)
        if sorted(dataformats) not in (sorted("NHWC"), sorted("NHW")) or pixels.ndim != len(
            dataformats
        ):
            raise ValueError(
                f"add_images: expected {len(dataformats)} dimensions {dataformats}, got an array "
                f"of shape {pixels.shape}"
            )
        if "C" not in dataformats:
            pixels, dataformats = pixels[..., None], dataformats + "C"
        pixels = pixels.transpose([dataformats.index(d) for d in "NHWC"])
        if pixels.dtype != np.uint8:
            pixels = (pixels.clip(0, 1) * 255).astype(np.uint8)
        n, height, width, channels = pixels.shape
        columns = min(n, 8)
        rows = -(-n // columns)
        grid = np.zeros((rows * columns, height, width, channels), np.uint8)
        grid[:n] = pixels
        grid = grid.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
        picture = grid.reshape(rows * height, columns * width, channels)
        summary = records.image(tag, *picture.shape, records.png(picture))
        self._add(summary, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib; `close` closes it."""
        file = io.BytesIO()
        figure.savefig(file, format="png")
        width, height = (int(size * figure.dpi) for size in figure.get_size_inches())
        self._add(records.image(tag, height, width, 4, file.getvalue()), global_step, walltime)
        if close:
            figure.clear()

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
