"""A report's kernel on one GPU that is not there: registers, occupancy, roofline, clock, SASS."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kernels.lab.gpu_model import sass
from kernels.lab.gpu_model.clock import Estimate
from kernels.lab.gpu_model.compiled import Compiled
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.gpu_model.occupancy import LIMITS, Occupancy
from kernels.lab.gpu_model.roofline import Roofline
from kernels.support.errors import CompileError, LaunchError

OLDEST = (7, 5)  # compute capability that today's compilers know; older chips get its code
SHOWN_OPCODES = 6
_MEMORY = ("LD", "ST", "ATOM", "RED", "CCTL")


@dataclass(frozen=True)
class OnGPU:
    """What is known of a launch on a GPU. None is what could not be found out; `missing` says why.

    opcodes: how many instructions of each kind the machine code has, most first.
    """

    gpu: GPU
    roofline: Roofline
    compiled: Compiled | None = None
    occupancy: Occupancy | None = None
    estimate: Estimate | None = None
    opcodes: dict[str, int] | None = None
    missing: tuple[str, ...] = ()

    @property
    def bound(self) -> str:
        """What limits the kernel by its roofline: "memory" or "arithmetic"."""
        return self.roofline.bound(self.roofline.points[0])

    @property
    def least(self) -> float:
        """Seconds that the roofline allows."""
        return self.roofline.seconds(self.roofline.points[0])

    def __str__(self) -> str:
        cc = f"{self.gpu.cc[0]}.{self.gpu.cc[1]}"
        rows = [f"on {self.gpu.name} (compute capability {cc})"]
        rows += [f"  {name:<11} {text}" for name, text in self._rows()]
        return "\n".join([*rows, *(f"  not known: {reason}" for reason in self.missing)])

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        if self.compiled is not None:
            made = self.compiled
            spilled = made.spill_stores + made.spill_loads
            text = f"{made.registers} per thread, " + (
                f"{made.spill_stores} bytes spilled" if spilled else "nothing spilled"
            )
            rows.append(("registers", text))
        if self.occupancy is not None:
            full, most = self.occupancy, LIMITS[self.occupancy.cc].warps
            blocks = f"{full.blocks} block{'' if full.blocks == 1 else 's'}"
            text = f"{full.share:.0%}: {blocks}, {full.warps} of {most} warps of an SM"
            rows.append(("occupancy", f"{text}; limited by {', '.join(full.limited_by)}"))
        point = self.roofline.points[0]
        text = f"{self.bound} limits it: at least {duration(self.least)}"
        if point.flops:
            text = (
                f"{point.intensity:.3g} operations per byte, the ridge is at"
                f" {self.roofline.ridge:.3g}: {text}"
            )
        rows.append(("roofline", text + ", were each sector moved from memory"))
        if self.estimate is not None:
            first, second = [*self.estimate.bounds][:2]
            low, high = duration(self.estimate.low), duration(self.estimate.high)
            text = f"about {duration(self.estimate.seconds)} ({low} to {high}, an estimate)"
            rows.append(("clock", f"{text}, set by {first}, then {second}"))
        if self.opcodes:
            count = sum(self.opcodes.values())
            rows.append(("SASS", f"{count} instructions: {_named(self.opcodes)}"))
        return rows


def _named(opcodes: dict[str, int]) -> str:
    """How often each opcode comes: those of memory, then the most frequent of the others."""
    memory = [name for name in opcodes if name.startswith(_MEMORY)]
    other = [name for name in opcodes if name not in memory]
    groups = memory, other[:SHOWN_OPCODES]
    text = "; ".join(", ".join(f"{opcodes[n]} {n}" for n in names) for names in groups if names)
    return f"{text}, ..." if len(other) > SHOWN_OPCODES else text


def duration(seconds: float) -> str:
    """3.2e-6 as "3.2 us"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def on_gpu(report: Any, gpu: GPU) -> OnGPU:
    """Find out what there is to know of a report's launch on a GPU."""
    roofline = report.roofline(gpu)
    missing: list[str] = []
    try:
        made = report.compiled(max(gpu.cc, OLDEST))
    except CompileError as error:
        return OnGPU(gpu, roofline, missing=(_first_line(error),))
    full = report.occupancy(gpu.cc) if gpu.cc >= OLDEST else made.occupancy(report.threads)
    opcodes = estimate = None
    try:
        opcodes = dict(Counter(sass.instructions(made.sass(), made.entry)).most_common())
    except CompileError as error:
        missing.append(_first_line(error))
    try:
        estimate = report.time(gpu)
    except (CompileError, LaunchError, ValueError) as error:
        missing.append(_first_line(error))
    return OnGPU(gpu, roofline, made, full, estimate, opcodes, tuple(missing))


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
