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
from minigrad.utils.tensorboard import plugins, projector, records
from minigrad.utils.tensorboard.graph import graph


def _array(values: Any) -> np.ndarray:
    """A tensor or numbers as an array of the CPU."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _setting(name: str, value: Any) -> str | float:
    """A setting as its message has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | np.number | Tensor):
        return float(value)
    raise ValueError(
        f"add_hparams: {name!r} should be one of int, float, str, bool, or a tensor of one "
        f"element, got {type(value).__name__}"
    )


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

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """The operations of model(*input_to_model) that have gradients, by module; the model is
        called once. input_to_model: the input, or a tuple of them. The other arguments have no
        effect."""
        if input_to_model is None:
            raise ValueError("add_graph: input_to_model is missing; the model is called with it")
        self._write(records.event(time.time(), graph_def=graph(model, input_to_model)))

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """The precision-recall curve of predictions from 0 to 1 for labels 0 and 1, of at most 127
        thresholds."""
        truth, guess = _array(labels).reshape(-1) > 0.5, _array(predictions).reshape(-1)
        if truth.shape != guess.shape or not ((guess >= 0) & (guess <= 1)).all():
            raise ValueError(
                f"add_pr_curve: expected as many predictions from 0 to 1 as labels, got "
                f"{guess.size} for {truth.size} labels"
            )
        weight = np.ones(guess.shape) if weights is None else _array(weights).reshape(-1)
        summary = plugins.pr_curve(tag, truth, guess, weight, min(num_thresholds, 127))
        self._add(summary, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """The settings of a run (texts, numbers, bools) and its metrics, in a folder of their own:
        run_name, by default the time."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        settings = {k: _setting(k, v) for k, v in hparam_dict.items()}
        given = hparam_domain_discrete or {}
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for summary in plugins.hparams(settings, metric_dict, given):
                writer._add(summary, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: list[str] | None = None,
    ) -> None:
        """Vectors (N, D) for the projector. metadata: a label for each, or a list of them, which
        metadata_header names. label_img: pictures (N, C, H, W) of floats from 0 to 1."""
        vectors = _array(mat)
        pictures = None if label_img is None else _array(label_img)
        for name, values in (("metadata", metadata), ("label_img", pictures)):
            if values is not None and len(values) != len(vectors):
                raise AssertionError(
                    f"add_embedding: expected as many of {name} as vectors, got {len(values)} for "
                    f"{len(vectors)}"
                )
        name = f"{global_step or 0:05d}/{tag}"
        projector.write(self.log_dir, name, vectors, metadata, metadata_header, pictures)

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
