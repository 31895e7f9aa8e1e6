"""TensorBoard's files: records of protocol buffers, each with its length and checksums.

A record is the length (8 bytes), a checksum of the length, the message, a checksum of the message;
a checksum is CRC-32C, rotated and shifted by a constant ("masked"). The messages are `Event` of
TensorFlow's event.proto and `Summary` of summary.proto.
"""

from __future__ import annotations

import functools
import struct
import zlib

import numpy as np

_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, reversed


@functools.cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    """The CRC-32C of the bytes (RFC 3720)."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(message: bytes) -> bytes:
    """A message as a record of the file."""
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


def varint(value: int) -> bytes:
    """A number of the format of protocol buffers."""
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])


def bytes_field(field: int, value: bytes) -> bytes:
    """A field of a message that is bytes, a text or another message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def event(time: float, step: int | None = None, **content: bytes) -> bytes:
    """The message Event: `file_version`, `graph_def` or `summary`."""
    fields = {"file_version": 3, "graph_def": 4, "summary": 5}
    result = varint(1 << 3 | 1) + struct.pack("<d", time)
    if step is not None:
        result += varint(2 << 3) + varint(step & 0xFFFFFFFFFFFFFFFF)
    return result + b"".join(bytes_field(fields[name], value) for name, value in content.items())


def scalar(tag: str, value: float) -> bytes:
    """The message Summary with one number."""
    number = varint(2 << 3 | 5) + struct.pack("<f", value)
    return bytes_field(1, bytes_field(1, tag.encode()) + number)


def text(tag: str, value: str) -> bytes:
    """The message Summary with one text: a tensor of strings for the plugin "text"."""
    plugin = bytes_field(9, bytes_field(1, bytes_field(1, b"text")))
    shape = bytes_field(2, bytes_field(2, varint(1 << 3) + varint(1)))
    strings = varint(1 << 3) + varint(7) + shape + bytes_field(8, value.encode())
    name = bytes_field(1, f"{tag}/text_summary".encode())
    return bytes_field(1, name + bytes_field(8, strings) + plugin)


def _floats(field: int, *values: float) -> bytes:
    return b"".join(
        varint(field + i << 3 | 1) + struct.pack("<d", value) for i, value in enumerate(values)
    )


def histogram(tag: str, values: np.ndarray, edges: np.ndarray) -> bytes:
    """The message Summary with the counts of the values between consecutive `edges`."""
    counts, _ = np.histogram(values, edges)
    kept = np.flatnonzero(counts)
    first, last = max(kept[0] - 1, 0), kept[-1] + 1
    x = values.astype(np.float64)
    totals = x.min(), x.max(), x.size, x.sum(), np.square(x).sum()
    limits = edges[first + 1 : last + 1].astype("<f8").tobytes()
    buckets = counts[first:last].astype("<f8").tobytes()
    content = _floats(1, *totals) + bytes_field(6, limits) + bytes_field(7, buckets)
    return bytes_field(1, bytes_field(1, tag.encode()) + bytes_field(5, content))


def png(pixels: np.ndarray) -> bytes:
    """Pixels (height, width, channels) of 1 to 4 bytes as a PNG file (RFC 2083)."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    rows = pixels.astype(np.uint8).reshape(height, -1)
    lines = np.hstack([np.zeros((height, 1), np.uint8), rows])  # each begins with its filter, none
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines.tobytes()))
        + chunk(b"IEND", b"")
    )


def image(tag: str, height: int, width: int, channels: int, file: bytes) -> bytes:
    """The message Summary with one picture, a PNG file."""
    sizes = enumerate((height, width, channels), 1)
    content = b"".join(varint(field << 3) + varint(size) for field, size in sizes)
    return bytes_field(
        1, bytes_field(1, tag.encode()) + bytes_field(4, content + bytes_field(4, file))
    )
