"""einsum: the labels of an equation, and the products that its pairs of operands become."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from minigrad.ops.matmul import MatMul
from minigrad.ops.pointwise import POINTWISE
from minigrad.tensor import Tensor, export


@export(method=False)
def einsum(equation: str, *operands: Any) -> Tensor:
    """Einstein's summation: "ij,jk->ik". Pairs of operands are contracted by batched matmul.

    Without an equation: each operand is followed by a list of its labels (0 to 51, and `...`), and
    the last list, if there is one more, is that of the result.
    """
    if isinstance(equation, Tensor):
        equation, operands = _from_lists((equation, *operands))
    tensors = list(operands[0] if isinstance(operands[0], list | tuple) else operands)
    inputs, output, lengths = _plan(equation, tuple([x._array.shape for x in tensors]))
    pairs = [_diagonals(labels, x) for labels, x in zip(inputs, tensors, strict=True)]
    labels, value = pairs[0]
    for i, (other_labels, other) in enumerate(pairs[1:], start=1):
        later = {c for names, _ in pairs[i + 1 :] for c in names} | set(output)
        labels, value = _contract(labels, value, other_labels, other, later, lengths)
    gone = [i for i, c in enumerate(labels) if c not in output]
    if gone:
        value = value.sum(gone)
        labels = [c for c in labels if c in output]
    if labels == output and len(tensors) > 1:
        return value
    return value.permute([labels.index(c) for c in output])


@functools.lru_cache(1024)
def _plan(equation: str, shapes: tuple) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """The labels of the operands and of the result, and how long each dimension is; raises for
    what does not fit."""
    inputs, output = _parse(equation, shapes)
    lengths: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for label, n in zip(labels, shape, strict=True):
            seen = lengths.setdefault(label, n)
            if seen == 1:
                lengths[label] = n
            elif n not in (1, seen):
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {n} for operand {i} which does not "
                    f"broadcast with previously seen size {seen}"
                )
    return inputs, output, lengths


def _from_lists(given: tuple) -> tuple[str, tuple]:
    """The equation, and the operands, of labels in lists."""
    operands, lists = given[: len(given) & ~1 : 2], given[1::2]
    texts = ["".join(map(_label, labels)) for labels in lists]
    equation = ",".join(texts)
    return (
        f"{equation}->{''.join(map(_label, given[-1]))}" if len(given) % 2 else equation
    ), operands


def _label(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    if not 0 <= number < 52:
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)


def _parse(equation: str, shapes: Sequence[tuple]) -> tuple[list[list[str]], list[str]]:
    """Labels per operand and of the result; an ellipsis becomes labels "0", "1", ..."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise RuntimeError(
            f"einsum(): the equation has {len(terms)} operands, but {len(shapes)} were given"
        )
    counts = [
        len(shape) - len(term.replace("...", "")) for term, shape in zip(terms, shapes, strict=True)
    ]
    for i, (term, count) in enumerate(zip(terms, counts, strict=True)):
        if count < 0 or (count and "..." not in term):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation does not match the number of "
                f"dimensions for operand {i}: {term!r} for shape {list(shapes[i])}"
            )
    widest = max(counts)

    def expand(term: str, count: int) -> list[str]:
        head, dots, tail = term.partition("...")
        batch = [str(d) for d in range(widest - count, widest)] if dots else []
        return [*head, *batch, *tail]

    inputs = [expand(term, count) for term, count in zip(terms, counts, strict=True)]
    if arrow:
        output = expand(right, widest)
    else:
        every = [c for labels in inputs for c in labels]
        batch = [str(d) for d in range(widest)]
        output = batch + sorted({c for c in every if c.isalpha() and every.count(c) == 1})
    for c in output:
        if not any(c in labels for labels in inputs):
            raise RuntimeError(f"einsum(): output subscript {c} does not appear in any operand")
    return inputs, output


def _diagonals(labels: list[str], x: Tensor) -> tuple[list[str], Tensor]:
    """An operand without repeated labels: "ii" is its diagonal."""
    labels = list(labels)
    for label in set(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second)
            labels = [c for i, c in enumerate(labels) if i not in (first, second)] + [label]
    return labels, x


def _contract(
    a_labels: list[str], a: Tensor, b_labels: list[str], b: Tensor, later: set, lengths: dict
) -> tuple[list[str], Tensor]:
    """Multiply two operands and sum over the labels that are not needed later."""
    a_labels, a = _sum_private(a_labels, a, set(b_labels) | later)
    b_labels, b = _sum_private(b_labels, b, set(a_labels) | later)
    shared = [c for c in a_labels if c in b_labels]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    rows = [c for c in a_labels if c not in shared]
    cols = [c for c in b_labels if c not in shared]
    left = _arranged(a_labels, a, batch, rows, inner, lengths)
    right = _arranged(b_labels, b, batch, inner, cols, lengths)
    product = MatMul.apply(left, right) if inner else POINTWISE["mul"](left, right)
    return batch + rows + cols, _of_shape(product, [lengths[c] for c in batch + rows + cols])


def _sum_private(labels: list[str], x: Tensor, used: set) -> tuple[list[str], Tensor]:
    gone = [i for i, c in enumerate(labels) if c not in used]
    return ([c for c in labels if c in used], x.sum(gone)) if gone else (labels, x)


def _arranged(labels: list, x: Tensor, batch: list, m: list, n: list, lengths: dict) -> Tensor:
    """x as (batch, m, n), or without a batch (m, n): groups of labels, each as one dimension."""
    order = batch + m + n
    if labels != order:
        x = x.permute([labels.index(c) for c in order])
    whole = tuple([lengths[c] for c in order])
    if x._array.shape != whole:
        x = x.expand(whole)
    groups = (batch, m, n) if batch else (m, n)
    return _of_shape(x, [math.prod([lengths[c] for c in group]) for group in groups])


def _of_shape(x: Tensor, shape: list[int]) -> Tensor:
    return x if x._array.shape == tuple(shape) else x.reshape(shape)
