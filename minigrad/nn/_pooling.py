"""The pooling functions of `minigrad.nn.functional` that are not a kernel of their own."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad import ops
from minigrad.tensor import Tensor


def _output_size(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[int, ...]:
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}"
        )
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
    if len(wanted) != dims:
        raise RuntimeError(f"{name}: output_size must be {dims}, got {len(wanted)} numbers")
    sizes = input.shape[-dims:]
    return tuple(int(n) if w is None else int(w) for w, n in zip(wanted, sizes, strict=True))


def _window(i: int, size: int, out: int) -> tuple[int, int]:
    """First and one-past-last input position of output `i`; windows may overlap by one."""
    return i * size // out, -((-(i + 1) * size) // out)


def _averaging_matrix(size: int, out: int, like: Tensor) -> Tensor:
    """(out, size): row i averages the window of output i."""
    rows = []
    for i in range(out):
        start, stop = _window(i, size, out)
        rows.append([1 / (stop - start) if start <= j < stop else 0.0 for j in range(size)])
    return minigrad.tensor(rows, dtype=like.dtype, device=like.device).reshape(out, size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Mean over an (oh, ow) grid of windows that covers input (N, C, H, W); None keeps a size"""
    out = _output_size("adaptive_avg_pool2d", input, output_size, 2)
    height, width = input.shape[-2:]
    if 0 not in out and height % out[0] == 0 and width % out[1] == 0:
        return ops.avg_pool2d(input, (height // out[0], width // out[1]))
    # Unequal windows: the mean is linear in each direction, so two matrix products do it.
    left = _averaging_matrix(height, out[0], input)
    right = _averaging_matrix(width, out[1], input)
    return left @ input @ right.t()


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Mean over `output_size` windows that cover the last dimension of input (N, C, L)"""
    (out,) = _output_size("adaptive_avg_pool1d", input, output_size, 1)
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, out)).squeeze(-2)


def _adaptive_max_indices(height: int, width: int, out: tuple[int, int]) -> list[list[int]]:
    """For each output the flat positions of its window, padded to one length by repetition."""
    cells = []
    for i in range(out[0]):
        top, bottom = _window(i, height, out[0])
        for j in range(out[1]):
            left, right = _window(j, width, out[1])
            cells.append([r * width + c for r in range(top, bottom) for c in range(left, right)])
    longest = max(map(len, cells))
    return [cell + cell[:1] * (longest - len(cell)) for cell in cells]


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over an (oh, ow) grid of windows that covers input (N, C, H, W)

    With `return_indices` also the position of each maximum in the flattened H * W plane.
    """
    out = _output_size("adaptive_max_pool2d", input, output_size, 2)
    height, width = input.shape[-2:]
    if 0 not in out and height % out[0] == 0 and width % out[1] == 0:
        kernel = (height // out[0], width // out[1])
        return ops.max_pool2d(input, kernel, return_indices=return_indices)
    lead = tuple(input.shape[:-2])
    cells = minigrad.tensor(_adaptive_max_indices(height, width, out), device=input.device)
    flat = input.reshape(*lead, height * width)
    windows = flat[..., cells.reshape(-1)].reshape(*lead, *cells.shape)
    values, where = windows.max(-1)
    values = values.reshape(*lead, *out)
    if not return_indices:
        return values
    rows = minigrad.arange(cells.shape[0], device=input.device)
    return values, cells[rows, where].reshape(*lead, *out)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over `output_size` windows that cover the last dimension of input (N, C, L)"""
    (out,) = _output_size("adaptive_max_pool1d", input, output_size, 1)
    result = adaptive_max_pool2d(input.unsqueeze(-2), (1, out), return_indices)
    if return_indices:
        return result[0].squeeze(-2), result[1].squeeze(-2)
    return result.squeeze(-2)
