"""The messages of TensorBoard's plugins: settings of runs ("hparams"), precision-recall curves.

The fields are those of hparams/plugin_data.proto and api.proto, pr_curves/plugin_data.proto, and of
TensorFlow's tensor.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minigrad.utils.tensorboard.records import bytes_field, varint

_KINDS = {"text": 1, "bool": 2, "number": 3}  # DataType
_SUCCESS = 1


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _summary(tag: str, metadata: bytes, content: bytes = b"") -> bytes:
    """The message Summary with one value."""
    return bytes_field(1, bytes_field(1, tag.encode()) + content + bytes_field(9, metadata))


def _of_plugin(name: str, content: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, content))


def _value(value: Any) -> bytes:
    """The message google.protobuf.Value: a text, or a number, as which bools are shown."""
    if isinstance(value, str):
        return bytes_field(3, value.encode())
    return varint(2 << 3 | 1) + struct.pack("<d", value)


def _setting(name: str, value: Any, domain: Iterable | None) -> bytes:
    kind = _KINDS["text" if isinstance(value, str) else "number"]
    result = bytes_field(1, name.encode()) + _number(4, kind)
    if domain is not None:
        result += bytes_field(5, b"".join(bytes_field(1, _value(v)) for v in domain))
    return result


def hparams(
    settings: Mapping[str, Any], metrics: Iterable[str], domains: Mapping[str, Iterable]
) -> list[bytes]:
    """The messages Summary of a run's start: what is set and measured, the settings, the end."""
    infos = [
        *(bytes_field(4, _setting(k, v, domains.get(k))) for k, v in settings.items()),
        *(bytes_field(5, bytes_field(1, bytes_field(2, tag.encode()))) for tag in metrics),
    ]
    pairs = (
        bytes_field(1, bytes_field(1, k.encode()) + bytes_field(2, _value(v)))
        for k, v in settings.items()
    )
    parts = {
        "experiment": bytes_field(2, b"".join(infos)),
        "session_start_info": bytes_field(3, b"".join(pairs)),
        "session_end_info": bytes_field(4, _number(1, _SUCCESS)),
    }
    return [_summary(f"_hparams_/{n}", _of_plugin("hparams", part)) for n, part in parts.items()]


def _counts(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """(6, n): true and false positives, true and false negatives, precision and recall at the
    thresholds 0, 1 / (n - 1), .. 1; a prediction counts from the threshold below it."""
    place = np.floor(predictions * (n - 1)).astype(np.int64)

    def reached(weight: np.ndarray) -> np.ndarray:
        found = np.bincount(place, weight, n)[:n]
        return found[::-1].cumsum()[::-1]

    hits, alarms = reached(weights * labels), reached(weights * ~labels)
    precision = hits / np.maximum(hits + alarms, 1e-7)
    recall = hits / max(hits[0], 1e-7)
    return np.stack([hits, alarms, alarms[0] - alarms, hits[0] - hits, precision, recall])


def pr_curve(
    tag: str, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray, thresholds: int
) -> bytes:
    """The message Summary with the curve of predictions from 0 to 1 for labels of bools."""
    data = _counts(labels, predictions, weights, thresholds).astype("<f4")
    sizes = b"".join(bytes_field(2, _number(1, size)) for size in data.shape)
    tensor = _number(1, 1) + bytes_field(2, sizes) + bytes_field(5, data.tobytes())
    content = _number(1, 0) + _number(2, thresholds)
    return _summary(tag, _of_plugin("pr_curves", content), bytes_field(8, tensor))
