"""Sequences of different lengths as one batch: padded, or packed without the padding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import minigrad
from minigrad._names import namespace
from minigrad.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """The steps of several sequences, without padding: all first steps, all second ones, ...

    data (steps of all sequences, *); batch_sizes: per step, how many sequences have it (int64, on
    the CPU); sorted_indices: where each sequence, longest first, was in the batch, or None.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequence in nn.utils.rnn. https://pytorch.org/docs/stable/nn.html"
                "#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Data on a device or of a dtype; the indices go to the device too."""
        data = self.data.to(*args, **kwargs)
        indices = (i if i is None else i.to(data.device) for i in self[2:])
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self) -> PackedSequence:
        """This sequence on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """This sequence on a GPU."""
        return self.to("cuda" if device is None else device)

    def double(self) -> PackedSequence:
        """With data of float64."""
        return self.to(dtype=minigrad.float64)

    def float(self) -> PackedSequence:
        """With data of float32."""
        return self.to(dtype=minigrad.float32)

    def half(self) -> PackedSequence:
        """With data of float16."""
        return self.to(dtype=minigrad.float16)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another one."""
    if permutation is None:
        return None
    numbers = minigrad.arange(permutation.numel(), device=permutation.device)
    return minigrad.empty_like(permutation).scatter_(0, permutation, numbers)


def _places(lengths: list[int], batch: int) -> tuple[list[int], list[int]]:
    """Of each packed step its place t * batch + b in the padded steps, and the batch sizes."""
    sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
    return [t * batch + b for t, size in enumerate(sizes) for b in range(size)], sizes


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences (T, B, *), or (B, T, *) with `batch_first`, of these lengths.

    lengths: B integers, descending unless `enforce_sorted` is False. ValueError, RuntimeError for
    others.
    """
    if not isinstance(lengths, Tensor):
        lengths = minigrad.tensor(lengths, dtype=minigrad.int64)
    lengths = lengths.to(dtype=minigrad.int64)
    if lengths.device.type != "cpu":
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
        )
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    numbers = lengths.tolist()
    _check_lengths(numbers, input.shape[1])
    places, sizes = _places(numbers, input.shape[1])
    rows = input.reshape(-1, *input.shape[2:])
    data = rows.index_select(0, minigrad.tensor(places, device=input.device))
    return PackedSequence(data, minigrad.tensor(sizes), order)


def _check_lengths(lengths: list[int], batch: int) -> None:
    if len(lengths) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} "
            f"(batch_size={batch})"
        )
    if any(b > a for a, b in itertools.pairwise(lengths)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if lengths[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )


def padded_rows(sizes: list[int]) -> list[int]:
    """For each place t * B + b of padded steps the number of the packed step, or that of a step of
    another sequence where the sequence has ended."""
    rows, first = [], 0
    for size in sizes:
        rows += [first + min(b, size - 1) for b in range(sizes[0])]
        first += size
    return rows


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Padded sequences (T, B, *), or (B, T, *) with `batch_first`, and their lengths (B,).

    total_length: T, at least the longest length (default: that).
    """
    data, sizes = sequence.data, sequence.batch_sizes.tolist()
    steps, batch = len(sizes), sizes[0]
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but "
            f"got total_length={total_length} and max sequence length being {steps}"
        )
    lengths = minigrad.tensor([sum(size > b for size in sizes) for b in range(batch)])
    rows = minigrad.tensor(padded_rows(sizes), device=data.device)
    padded = data.index_select(0, rows).reshape(steps, batch, *data.shape[1:])
    total = steps if total_length is None else total_length
    if total > steps:
        shape = (total - steps, *padded.shape[1:])
        more = minigrad.zeros(shape, dtype=data.dtype, device=data.device)
        padded = minigrad.cat([padded, more])
    ended = minigrad.arange(total).unsqueeze(1) >= lengths  # (T, B)
    ended = ended.reshape(total, batch, *(1,) * (data.dim() - 1)).to(data.device)
    padded = padded.masked_fill(ended, padding_value)
    order = sequence.unsorted_indices
    if order is not None:
        padded, lengths = padded.index_select(1, order), lengths.index_select(0, order.cpu())
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (length, *) as one (T, B, *), or (B, T, *) with `batch_first`, padded on one side."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    steps = max(len(s) for s in sequences)
    padded = []
    for s in sequences:
        shape = (steps - len(s), *s.shape[1:])
        filler = minigrad.full(shape, padding_value, dtype=s.dtype, device=s.device)
        padded.append(minigrad.cat([s, filler] if padding_side == "right" else [filler, s]))
    return minigrad.stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch, as a list."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(rows, lengths.tolist())]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, *), the longest first unless `enforce_sorted` is False."""
    lengths = [len(s) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch, as a list."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


__getattr__, __dir__ = namespace(__name__)
