"""Several pictures in order: a strip on paper, a slider in a notebook."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from kernels.lab.draw.canvas import PAPER, Picture

_SLIDER = (
    "for (const [i, frame] of [...this.parentNode.nextElementSibling.children].entries()) "
    "frame.style.display = i == this.value ? '' : 'none'"
)


class Frames:
    """Pictures, one after the other. `frames[i]` is one of them.

    `svg()`, `png()`, `text` and `save(path)` show all in a column; a notebook shows one at a time,
    with a slider (and, where scripts do not run, all of them).
    """

    def __init__(self, frames: Sequence[Picture]) -> None:
        if not frames:
            raise ValueError("frames: expected at least one picture")
        self.frames = list(frames)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Picture:
        return self.frames[index]

    @property
    def text(self) -> str:
        return "\n\n".join(frame.text for frame in self.frames)

    def __str__(self) -> str:
        return self.text

    def strip(self, columns: int = 1) -> Picture:
        """All frames in one picture, in rows of `columns`."""
        wide = max(frame.width for frame in self.frames)
        tall = max(frame.height for frame in self.frames)
        rows = -(-len(self.frames) // columns)
        page = Picture(wide * columns, tall * rows, "", self.text)
        page.title, page.shapes = self.frames[0].title, []
        page.rect(0, 0, page.width, page.height, fill=PAPER)
        for i, frame in enumerate(self.frames):
            page.paste(frame, i % columns * wide, i // columns * tall)
        return page

    def svg(self) -> str:
        return self.strip().svg()

    def png(self, scale: float = 2) -> bytes:
        return self.strip().png(scale)

    def save(self, path: str | os.PathLike) -> None:
        """Write the strip as .svg, .png or .txt, or the slider as .html."""
        if os.path.splitext(path)[1] != ".html":
            return self.strip().save(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html())

    def html(self) -> str:
        """A slider over the frames: one small script in it, nothing fetched."""
        hidden = [
            f"<div{'' if i == 0 else ' style=display:none'}>{frame.svg()}</div>"
            for i, frame in enumerate(self.frames)
        ]
        slider = (
            f'<input type="range" min="0" max="{len(self) - 1}" value="0" aria-label="frame" '
            f'style="width:100%;max-width:{self.frames[0].width:.0f}px" oninput="{_SLIDER}">'
        )
        return f"<div><div>{slider}</div><div>{''.join(hidden)}</div></div>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/html": self.html(), "text/plain": self.text}
        with contextlib.suppress(RuntimeError):  # no matplotlib
            bundle["image/png"] = self.png()
        return bundle
