"""What `kernels.lab.profile` returns: a measurement that shows itself, as text, HTML or picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernels.lab.draw.canvas import Picture
from kernels.lab.gpu_model.clock import Estimate
from kernels.lab.gpu_model.compiled import Compiled, compiled
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.gpus import gpu as named
from kernels.lab.gpu_model.occupancy import Occupancy, occupancy
from kernels.lab.gpu_model.roofline import Roofline, roofline
from kernels.lab.report import interactive
from kernels.lab.report.html import page
from kernels.lab.report.listing import listing
from kernels.lab.report.measurement import Measurement
from kernels.lab.report.on_gpu import OnGPU, on_gpu
from kernels.lab.report.sheet import sheet
from kernels.lab.report.steps import Trace

MOST_EVENTS = 100_000  # lines executed by threads that a saved page keeps
SHOWN_EVENTS = 20_000  # lines executed by threads that a notebook's page keeps


@dataclass
class Report(Measurement):
    """A kernel's run under the recorder. `str(report)` is an annotated listing.

    `trace(events)` runs the first recorded block again, line by line, `clock(gpu=...)` the launch
    for `time`; None where the arguments were too large to keep.
    """

    trace: Callable[[int], Trace] | None = field(default=None, repr=False)
    clock: Callable[..., Estimate] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        found = f"races: {len(self.races)}, errors: {len(self.errors)}"
        return f"<{self.name}, grid {self.grid}, block {self.block}, {found}; print() shows more>"

    def __str__(self) -> str:
        return listing(self)

    def _repr_html_(self) -> str:
        if self.trace is None:
            return page(self)
        steps = interactive.frame(interactive.page(self.trace(SHOWN_EVENTS), self.findings))
        return f"{page(self)}<details><summary>step by step</summary>{steps}</details>"

    def save_html(self, path: str | Path) -> None:
        """Write a page with the listing, the findings and each step of a block (of CUDA C without
        variables): one file that needs no server and no network."""
        if self.trace is None:
            html = interactive.listing_page(self.name, page(self))
        else:
            html = interactive.page(self.trace(MOST_EVENTS), self.findings, page(self))
        interactive.save(path, html)

    def compiled(self, cc: tuple[int, int] | float | str = (8, 0)) -> Compiled:
        """What NVIDIA's compilers make of the kernel for compute capability `cc`: registers, PTX,
        machine code. Needs their wheels (the extra `cuda13`), not a GPU."""
        return compiled(self.kernel, *self.types, cc=cc)

    def occupancy(self, cc: tuple[int, int] | float | str) -> Occupancy:
        """How full this launch makes an SM of compute capability `cc`; see `compiled`."""
        return occupancy(self.compiled(cc).registers, self.shared_bytes, self.threads, cc)

    def roofline(
        self, gpu: str | GPU, precision: str = "fp32", seconds: float | None = None
    ) -> Roofline:
        """The kernel under the roof of a GPU, for the whole grid. `seconds` is a measured time.

        Its bytes are those of the sectors that warps ask for: what caches serve is among them, so
        that the kernel can be faster than this roof.
        """
        if seconds is None:
            return roofline(self, gpu, precision)
        work = (self.flops * self.scale, self.global_bytes * self.scale, seconds)
        return roofline({self.name: work}, gpu, precision)

    def time(self, gpu: str | GPU) -> Estimate:
        """About how long the launch takes on a GPU: `kernels.lab.time` with the same arguments.
        Raises ValueError where they were too large to keep."""
        if self.clock is None:
            raise ValueError(
                f"{self.name}: its arguments were not kept; call kernels.lab.time(kernel, grid,"
                " block, *args, gpu=...)"
            )
        return self.clock(gpu=gpu)

    def on(self, gpu: str | GPU) -> OnGPU:
        """All of these on one GPU, with what the machine code consists of: registers, occupancy,
        roofline, clock. What cannot be found out (without NVIDIA's compilers) is said."""
        return on_gpu(self, named(gpu))

    def picture(self) -> Picture:
        """The listing as a picture: SVG, PNG (needs matplotlib, the extra `plot`) or text."""
        return sheet(self)

    def save_png(self, path: str | Path) -> None:
        """Write the picture; the ending of the path, .png, .svg or .txt, says how."""
        self.picture().save(path)
