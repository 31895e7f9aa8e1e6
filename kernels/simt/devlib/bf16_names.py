"""The two names that `numba.cuda.bf16` has for each conversion."""

from __future__ import annotations

import re

_KINDS = {
    "float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16",
    "ushort": "uint16", "int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64",
}  # fmt: skip


def second_name(name: str) -> str | None:
    """What newer versions of numba-cuda call a conversion of `bf16`: int16_to_bfloat16_rn is
    short2bfloat16_rn."""
    match = re.fullmatch(r"(bfloat16(2|_as_))?([a-z]+?)((2|_as_)bfloat16)?(_r[nzdu])?", name)
    if not match or bool(match[1]) == bool(match[4]) or match[3] not in _KINDS:
        return None
    kind, verb = _KINDS[match[3]], "_as_" if "_as_" in name else "_to_"
    whole = f"bfloat16{verb}{kind}" if match[1] else f"{kind}{verb}bfloat16"
    return whole + (match[6] or "")
