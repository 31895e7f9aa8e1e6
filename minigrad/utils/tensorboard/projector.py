"""Files of TensorBoard's projector: vectors, their labels and pictures beside an event file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from minigrad.utils.tensorboard import records


def _write_rows(path: str, rows: Sequence) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write("\t".join(map(str, row)) + "\n")


def _sprite(pictures: np.ndarray) -> bytes:
    """Pictures (N, C, H, W) of floats from 0 to 1 in a square of rows, as a PNG file."""
    n, channels, height, width = pictures.shape
    side = math.ceil(math.sqrt(n))
    grid = np.zeros((side * side, channels, height, width), np.float32)
    grid[:n] = pictures
    grid = grid.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2)
    pixels = grid.reshape(side * height, side * width, channels)
    return records.png((pixels.clip(0, 1) * 255).astype(np.uint8))


def write(
    log_dir: str,
    name: str,
    vectors: np.ndarray,
    labels: Sequence | None,
    header: Sequence[str] | None,
    pictures: np.ndarray | None,
) -> None:
    """Vectors (N, D) under log_dir/name, and an entry for them in projector_config.pbtxt."""
    folder = os.path.join(log_dir, *name.split("/"))
    os.makedirs(folder, exist_ok=True)
    step, _, tag = name.partition("/")
    lines = [f'tensor_name: "{tag}:{step}"']
    if labels is not None:
        rows = [row if isinstance(row, list | tuple) else (row,) for row in labels]
        _write_rows(os.path.join(folder, "metadata.tsv"), [header, *rows] if header else rows)
        lines.append(f'metadata_path: "{name}/metadata.tsv"')
    if pictures is not None:
        with open(os.path.join(folder, "sprite.png"), "wb") as file:
            file.write(_sprite(pictures))
        size = [f"  single_image_dim: {n}" for n in (pictures.shape[3], pictures.shape[2])]
        lines += ["sprite {", f'  image_path: "{name}/sprite.png"', *size, "}"]
    _write_rows(os.path.join(folder, "tensors.tsv"), vectors.tolist())
    lines.append(f'tensor_path: "{name}/tensors.tsv"')
    text = "embeddings {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    with open(os.path.join(log_dir, "projector_config.pbtxt"), "a", encoding="utf-8") as file:
        file.write(text)
