"""The way of a launch's bytes as a picture: kernel, both cache levels, memory."""

from __future__ import annotations

from typing import Any

from kernels.lab.draw.canvas import INK, MUTED, RAMP, Picture, fitted, ink_on, shade

_WIDE, _TALL = 140, 62


def memory_chart(e: Any) -> Picture:
    """Of an `Estimate`: units as boxes, darker where they are busy for more of the estimated time;
    on the arrows what goes between them. Nsight Compute's memory chart has the same units,
    measured."""
    first = e.bounds.get("L1 and shared memory", 0.0) / e.seconds
    busy = {name: e.bounds.get(name, 0.0) / e.seconds for name in ("L2", "DRAM")}
    title = f"{e.kernel} on {e.gpu.name}: what goes through memory (an estimate)"
    picture = Picture(920, 252, title)
    said = [title]
    boxes = (  # place, name, lines, share of the time
        (16, 56, "kernel", [f"{e.occupancy.warps} warps on an SM"], None),
        (256, 56, "L1", [f"{e.hits[0]:.0%} of loads found"], first),
        (256, 156, "shared memory", [f"{e.wavefronts:,.0f} wavefronts"], first),
        (504, 56, "L2", [f"{e.hits[1]:.0%} found or written"], busy["L2"]),
        (752, 56, "DRAM", [f"{e.gpu.bandwidth:g} GB/s at most"], busy["DRAM"]),
    )
    for x, y, name, lines, share in boxes:
        fill = RAMP[0] if share is None else shade(share, 1.0)
        picture.rect(x, y, _WIDE, _TALL, fill, MUTED, radius=4)
        lines = lines + ([f"busy {share:.0%} of the time"] if share is not None else [])
        picture.label(x + _WIDE / 2, y + 20, name, 12, ink_on(fill), "middle", bold=True)
        for i, line in enumerate(lines):
            text = fitted(line, _WIDE - 6, 10)
            picture.label(x + _WIDE / 2, y + 36 + 15 * i, text, 10, ink_on(fill), "middle")
        said.append(f"{name}: {', '.join(lines)}")
    asked, second, memory = (f"{share:.0%} read" for share in e.read)
    arrows = (
        (156, 256, 87, (f"{e.requests:,.0f} requests", f"{_bytes(e.asked_bytes)}, {asked}")),
        (396, 504, 87, (_bytes(e.l2_bytes), second)),
        (644, 752, 87, (_bytes(e.dram_bytes), memory)),
    )
    for start, end, y, words in arrows:
        picture.arrow([(start + 2, y), (end - 2, y)])
        for i, word in enumerate(words):
            picture.label((start + end) / 2, y - 8 + 24 * i, word, 10, INK, "middle")
    picture.arrow([(86, 56 + _TALL), (86, 187), (254, 187)])
    picture.label(170, 179, f"{e.shared_requests:,.0f} requests", 10, INK, "middle")
    note = "darker: busy for more of the time; L1 and shared memory are one unit, counted together"
    picture.label(16, 240, note, 11, MUTED)
    said += [
        f"{e.requests:,.0f} requests ask L1 for {_bytes(e.asked_bytes)}, L1 asks L2 for"
        f" {_bytes(e.l2_bytes)}, L2 moves {_bytes(e.dram_bytes)} from and to DRAM",
        f"of these bytes: {asked}, {second}, {memory}; the others are written",
        f"{e.shared_requests:,.0f} requests to shared memory",
    ]
    picture.text = "\n".join(said)
    return picture


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
