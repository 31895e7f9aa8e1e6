"""Stores of one lane by a masked store of integers, as stores of an element.

LLVM before 23 makes one store of a truncation and a masked store (AVX-512), and of that, where the
mask is a constant with a single lane, a store of the element before its truncation: up to 7 bytes
behind it are overwritten (llvm/llvm-project issue 179489). The loop over a row of nine threads has
such a store.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

_STORE = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.v\d+i(?P<bits>\d+)\.p0"
    r"\((?P<kind><\d+ x i\d+>) (?P<value>[%@][\w.$\"-]+), ptr (?P<how>[\w ]*)"
    r"(?P<place>[%@][\w.$\"-]+), (?:i32 (?P<align>\d+), )?<\d+ x i1> <(?P<mask>[^>]+)>\).*$",
    re.MULTILINE,
)
_ALIGN = re.compile(r"\balign (\d+)")


def plain(module: Any) -> Any:
    """The optimised module, or where it has such stores another one without them."""
    text = str(module)
    if "@llvm.masked.store." not in text:
        return module
    count = 0

    def replaced(found: re.Match) -> str:
        nonlocal count
        lanes = [lane.split()[-1] == "true" for lane in found["mask"].split(",")]
        if sum(lanes) != 1:
            return found[0]
        count += 1
        lane, element, kind = lanes.index(True), f"i{found['bits']}", found["kind"]
        given = _ALIGN.search(found["how"])
        align = min(int(found["align"] or (given[1] if given else 1)), int(found["bits"]) // 8)
        one, place = f"%lane.{count}", f"%place.{count}"
        return (
            f"  {one} = extractelement {kind} {found['value']}, i64 {lane}\n"
            f"  {place} = getelementptr inbounds {element}, ptr {found['place']}, i64 {lane}\n"
            f"  store {element} {one}, ptr {place}, align {align}"
        )

    text = _STORE.sub(replaced, text)
    if not count:
        return module
    changed = llvm.parse_assembly(text)
    changed.name = module.name
    return changed
