"""Pictures without a drawing library: one list of shapes, written as SVG, as PNG and as text.

A picture is drawn in pixels from the top left. Its SVG stands alone: attributes instead of styles,
no script, nothing fetched, its own background (so that it reads the same on a light and on a dark
page) and ids that no other figure of the page has. The PNG is drawn by matplotlib (extra `plot`)
from the same shapes. `text` says the same in words and numbers, for a terminal or a screen reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

PAPER, INK, MUTED, GRID = "#ffffff", "#1f2328", "#59636e", "#d8dee4"
BLUE, ORANGE, GREEN, RED, PURPLE = "#2f6db8", "#d97706", "#2e8b57", "#c0392b", "#7d5ba6"
#: fills that black text can be read on, for blocks, warps and kinds of kernels
PASTELS = (
    "#aecbeb", "#f6cf9b", "#b3dfc1", "#f3b7b0", "#d3c2e8", "#f5e6a1", "#a9dde0", "#e8c3d9",
)  # fmt: skip
#: light to dark, for counts
RAMP = (
    "#f3f6fa", "#dce8f5", "#bcd5ee", "#93bbe2", "#6a9fd4", "#3a72b0", "#2c69ad", "#1d5091",
    "#123a6f",
)  # fmt: skip
SANS, MONO = "system-ui, Segoe UI, Helvetica, Arial, sans-serif", "ui-monospace, Menlo, monospace"


class Picture:
    """Shapes on a page of `width` by `height` pixels. `print` shows its text form.

    `svg()` is the drawing as a string, `png()` as bytes, `save(path)` writes .svg, .png or .txt.
    In a notebook it is shown by itself.
    """

    def __init__(self, width: float, height: float, title: str, text: str = "") -> None:
        self.width, self.height, self.title, self.text = width, height, title, text
        self.shapes: list[tuple[str, dict[str, Any]]] = []
        self.rect(0.5, 0.5, width - 1, height - 1, fill=PAPER, stroke=GRID, radius=6)
        if title:
            self.label(16, 22, fitted(title, width - 32, 13 * 1.1), 13, INK, bold=True)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        stroke: str = "none",
        line: float = 1,
        radius: float = 0,
        tip: str = "",
    ) -> None:
        """A rectangle; `tip` is what a browser shows when the pointer rests on it."""
        here = dict(x=x, y=y, width=width, height=height, rx=radius)
        self.shapes.append(("rect", here | _look(fill, stroke, line) | {"tip": tip}))

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = INK, line: float = 1
    ) -> None:
        self.path([(x1, y1), (x2, y2)], stroke, line)

    def path(
        self,
        points: Sequence[tuple[float, float]],
        stroke: str = INK,
        line: float = 1.5,
        fill: str = "none",
    ) -> None:
        """Straight lines from point to point; with a fill, the area that they enclose."""
        self.shapes.append(("path", {"points": points} | _look(fill, stroke, line)))

    def arrow(self, points: Sequence[tuple[float, float]], stroke: str = MUTED) -> None:
        """A path whose end has a head."""
        self.path(points, stroke, 1.2)
        (x0, y0), (x, y) = points[-2:]
        length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5 or 1
        dx, dy = (x - x0) / length * 6, (y - y0) / length * 6
        back = (x - dx, y - dy)
        left, right = (back[0] - dy / 2, back[1] + dx / 2), (back[0] + dy / 2, back[1] - dx / 2)
        self.path([(x, y), left, right, (x, y)], "none", 0, stroke)

    def cells(
        self, x: float, y: float, side: float, colours: Sequence[Sequence[str | None]],
        gap: float = 0, tall: float | None = None,
    ) -> None:  # fmt: skip
        """A table of coloured cells, `side` wide and `tall` high; None leaves one out. Neighbours
        of one colour and all cells of one colour are one shape, so that a large table is small."""
        tall = side if tall is None else tall
        boxes: dict[str, list] = {}
        for i, row in enumerate(colours):
            start = 0
            for j in range(1, len(row) + 1):
                if j < len(row) and row[j] == row[start] and not gap:
                    continue
                if (colour := row[start]) is not None:
                    box = (x + start * side, y + i * tall, (j - start) * side - gap, tall - gap)
                    boxes.setdefault(colour, []).append(box)
                start = j
        for colour, some in boxes.items():
            self.shapes.append(("boxes", {"boxes": some} | _look(colour, "none", 0)))

    def label(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """A line of text whose baseline starts (or has its "middle", or "end") at (x, y)."""
        here = dict(x=x, y=y, text=text, size=size, fill=fill, anchor=anchor, bold=bold, mono=mono)
        self.shapes.append(("text", here))

    def crop(self, height: float) -> None:
        """Make the page as tall as its content needs."""
        self.height = height
        self.shapes[0][1]["height"] = height - 1

    def paste(self, other: Picture, x: float, y: float) -> None:
        """Another picture's shapes, with its top left corner at (x, y)."""
        for kind, shape in other.shapes:
            moved = dict(shape)
            if "points" in shape:
                moved["points"] = [(px + x, py + y) for px, py in shape["points"]]
            elif "boxes" in shape:
                moved["boxes"] = [(bx + x, by + y, w, h) for bx, by, w, h in shape["boxes"]]
            else:
                moved["x"], moved["y"] = shape["x"] + x, shape["y"] + y
            self.shapes.append((kind, moved))

    def svg(self) -> str:
        """The picture as an SVG document, to be saved or put into a page."""
        body = "".join(_SVG[kind](shape) for kind, shape in self.shapes)
        about = f"{escape(self.title)}</title><desc>{escape(self.text[:2000])}</desc>"
        prefix = "f" + hashlib.blake2s((about + body).encode(), digest_size=5).hexdigest()
        size = f'width="{plain(self.width)}" height="{plain(self.height)}"'
        box = f'viewBox="0 0 {plain(self.width)} {plain(self.height)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} role="img" '
            f'aria-labelledby="{prefix}-title" font-family="{SANS}">'
            f'<title id="{prefix}-title">{about}{body}</svg>'
        )

    def png(self, scale: float = 2) -> bytes:
        """The picture as a PNG of 256 colours, `scale` pixels a pixel. Needs matplotlib."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise RuntimeError(
                "a PNG is drawn by matplotlib: pip install 'minigrad[plot]' (an SVG needs nothing)"
            ) from error
        figure = Figure(figsize=(self.width / 72, self.height / 72), dpi=72 * scale)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        for order, (kind, shape) in enumerate(self.shapes):
            _PNG[kind](axes, shape, order)
        canvas.draw()
        return _compressed(canvas.buffer_rgba())

    def save(self, path: str | os.PathLike) -> None:
        """Write the picture; the name's ending, .svg, .png or .txt, says how."""
        ending = os.path.splitext(path)[1]
        made = {".svg": self.svg, ".png": self.png, ".txt": lambda: self.text + "\n"}.get(ending)
        if made is None:
            raise ValueError(f"a picture is saved as .svg, .png or .txt, not {ending or path}")
        content = made()
        data = content if isinstance(content, bytes) else content.encode()
        with open(path, "wb") as file:
            file.write(data)

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """All three forms: a page shows the best that it can."""
        bundle: dict[str, Any] = {"image/svg+xml": self.svg(), "text/plain": self.text}
        with contextlib.suppress(RuntimeError):  # no matplotlib: the SVG and the text remain
            bundle["image/png"] = self.png()
        return bundle


class Drawn:
    """In a notebook: the `picture()`, and the text beside it."""

    def picture(self) -> Picture:
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self.picture()._repr_mimebundle_() | {"text/plain": str(self)}


def _compressed(pixels: Any) -> bytes:
    """RGBA pixels as a PNG with a palette: a third of the bytes, and no colour is off by more than
    a few of 255 steps."""
    from PIL import Image  # which matplotlib needs as well

    coverage, none = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    image = Image.fromarray(np.asarray(pixels)).convert("RGB")
    stream = io.BytesIO()
    image.quantize(256, method=coverage, dither=none).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def plain(value: float) -> str:
    """A number in as few characters as show it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def shade(value: float, most: float) -> str:
    """The colour of a count from 0 to `most`."""
    if most <= 0 or value <= 0:
        return RAMP[0]
    return RAMP[min(1 + int(value / most * (len(RAMP) - 1)), len(RAMP) - 1)]


def ink_on(fill: str) -> str:
    """The colour of text on a colour of RAMP: whichever has more contrast, 4.5 or more."""
    return PAPER if fill in RAMP[5:] else INK


def width_of(text: str, size: float, mono: bool = False) -> float:
    """About how many pixels a line of text takes."""
    return len(text) * size * (0.62 if mono else 0.58)


def fitted(text: str, width: float, size: float, mono: bool = False) -> str:
    """The text, cut where it would be wider than `width` pixels."""
    room = int(width / (size * (0.62 if mono else 0.58)))
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def _look(fill: str, stroke: str, line: float) -> dict[str, Any]:
    return {"fill": fill, "stroke": stroke, "line": line if stroke != "none" else 0}


def _paint(shape: dict[str, Any]) -> str:
    text = f' fill="{shape["fill"]}"'
    if shape["stroke"] != "none":
        text += f' stroke="{shape["stroke"]}" stroke-width="{plain(shape["line"])}"'
    return text


def _svg_rect(shape: dict[str, Any]) -> str:
    names = ["x", "y", "width", "height", *(["rx"] if shape["rx"] else [])]
    where = " ".join(f'{name}="{plain(shape[name])}"' for name in names)
    if shape["tip"]:
        return f"<rect {where}{_paint(shape)}><title>{escape(shape['tip'])}</title></rect>"
    return f"<rect {where}{_paint(shape)}/>"


def _svg_path(shape: dict[str, Any]) -> str:
    steps = "L".join(f"{plain(x)} {plain(y)}" for x, y in shape["points"])
    return f'<path d="M{steps}"{_paint(shape)}/>'


def _svg_boxes(shape: dict[str, Any]) -> str:
    boxes = [[plain(number) for number in box] for box in shape["boxes"]]
    steps = "".join(f"M{x} {y}h{w}v{h}h-{w}z" for x, y, w, h in boxes)
    return f'<path d="{steps}"{_paint(shape)}/>'


def _svg_text(shape: dict[str, Any]) -> str:
    extra = f' text-anchor="{shape["anchor"]}"' if shape["anchor"] != "start" else ""
    extra += ' font-weight="600"' if shape["bold"] else ""
    extra += f' font-family="{MONO}" xml:space="preserve"' if shape["mono"] else ""
    where = f'x="{plain(shape["x"])}" y="{plain(shape["y"])}" font-size="{plain(shape["size"])}"'
    return f'<text {where} fill="{shape["fill"]}"{extra}>{escape(shape["text"])}</text>'


def _png_rect(axes: Any, shape: dict[str, Any], order: int) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    look = dict(facecolor=shape["fill"], edgecolor=shape["stroke"], lw=shape["line"], zorder=order)
    where = (shape["x"], shape["y"]), shape["width"], shape["height"]
    if shape["rx"]:
        style = f"round,pad=0,rounding_size={shape['rx']}"
        axes.add_patch(FancyBboxPatch(*where, boxstyle=style, **look))
    else:
        axes.add_patch(Rectangle(*where, **look))


def _png_path(axes: Any, shape: dict[str, Any], order: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    look = dict(facecolor=shape["fill"], edgecolor=shape["stroke"], lw=shape["line"], zorder=order)
    axes.add_patch(PathPatch(Path(shape["points"]), fill=shape["fill"] != "none", **look))


def _png_boxes(axes: Any, shape: dict[str, Any], order: int) -> None:
    from matplotlib.collections import PolyCollection

    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in shape["boxes"]]
    axes.add_collection(PolyCollection(corners, facecolor=shape["fill"], lw=0, zorder=order))


def _png_text(axes: Any, shape: dict[str, Any], order: int) -> None:
    axes.text(
        shape["x"], shape["y"], shape["text"].replace("$", r"\$"), color=shape["fill"],
        fontsize=shape["size"] * 0.93, va="baseline", zorder=order,
        ha={"start": "left", "middle": "center", "end": "right"}[shape["anchor"]],
        weight="bold" if shape["bold"] else "normal",
        family="monospace" if shape["mono"] else "sans-serif",
    )  # fmt: skip


_SVG = {"rect": _svg_rect, "path": _svg_path, "boxes": _svg_boxes, "text": _svg_text}
_PNG = {"rect": _png_rect, "path": _png_path, "boxes": _png_boxes, "text": _png_text}
