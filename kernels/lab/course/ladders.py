"""A small problem for each family of kernels, to be profiled version by version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import kernels
from kernels import launchers
from kernels.lab.gpu_model.gpus import GPU
from kernels.lab.record.capture import Launch, profiled
from kernels.lab.report.listing import ratio, short
from kernels.lab.report.measurement import Counts
from kernels.lab.report.on_gpu import duration


class Problem(NamedTuple):
    """What an operation of `kernels` is called with, and how that is said."""

    name: str
    args: tuple
    keywords: dict[str, Any]

    def run(self, **more: Any) -> Any:
        return getattr(kernels, self.name)(*self.args, **self.keywords, **more)

    @property
    def text(self) -> str:
        """The call, with shapes in the place of arrays."""
        shown = [_shown(arg) for arg in self.args]
        shown += [f"{name}={_shown(value)}" for name, value in self.keywords.items()]
        return f"{self.name}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return getattr(value, "name", None) or str(value)


def problem(family: str, version: str) -> Problem:
    """A problem small enough to be profiled in well under a second, on which the family runs that
    version. Raises KeyError for a family there is no problem for."""
    operation = launchers.operations()[family]
    args, keywords = operation.problem(version)
    if operation.takes_version and version not in operation.by_shape:
        keywords = {**keywords, "version": version}
    if family == "pointwise":
        family, args = args[0].name, args[1:]
    return Problem(family, args, keywords)


class VersionProfile(NamedTuple):
    """A version of a ladder, profiled: most launch one kernel, some several."""

    version: str
    idea: str
    problem: Problem
    launches: list[Launch]


def families(dialect: str = "numba") -> dict[str, list[tuple[str, str]]]:
    """(version, idea) of every family in "numba" or "cupy", but for what has no CPU to be recorded
    on."""
    found: dict[str, list[tuple[str, str]]] = {}
    for family, version, idea in launchers.catalog(dialect):
        if version not in launchers.operations()[family].gpu_only:
            found.setdefault(family, []).append((version, idea))
    return found


def profile_versions(
    family: str, version: str | None = None, dialect: str = "numba"
) -> Iterator[VersionProfile]:
    """Profile the versions of a family (or one of them), each on its problem."""
    for name, idea in families(dialect)[family]:
        if version in (None, name):
            what = problem(family, name)
            with profiled() as launches:
                what.run(backend=dialect)
            yield VersionProfile(name, idea, what, launches)


def on_gpu(profiles: list[VersionProfile], gpu: GPU, width: int = 0) -> str:
    """A table of the versions on a GPU; those that launch several kernels have a row for each."""
    table = [
        ("version", "regs", "occupancy", "limited by", "least time", "bound", "clock", "set by")
    ]
    notes = set()
    for one in profiles:
        for launch in one.launches:
            found = launch.report.on(gpu)
            notes |= set(found.missing)
            full, time = found.occupancy, found.estimate
            table.append(
                (
                    one.version,
                    str(found.compiled.registers) if found.compiled else "",
                    f"{full.share:.0%}" if full else "",
                    full.limited_by[0] if full else "",
                    duration(found.least),
                    found.bound,
                    duration(time.seconds) if time else "",
                    time.bound if time else "",
                )
            )
    return "\n".join([_aligned(table, width), *(f"not known: {note}" for note in sorted(notes))])


def summary(profiles: list[VersionProfile], width: int = 0) -> str:
    """A table of the versions: what each moves, and how well. width: see `_aligned`."""
    header = ("version", "lanes", "requests", "sectors", "of ideal", "wavefronts", "banks")
    table = [(*header, "flops", "flops/byte")]
    for one in profiles:
        total = Counts()
        for launch in one.launches:
            total.add(launch.report.totals)
        moved = 32 * total.sectors
        table.append(
            (
                one.version,
                ratio(32 * total.lane_share),
                short(total.requests),
                short(total.sectors),
                f"{total.sector_efficiency:.0%}" if total.sectors else "",
                short(total.wavefronts) if total.shared_requests else "",
                f"x{ratio(1 / total.bank_efficiency)}" if total.shared_requests else "",
                short(total.flops) if total.flops else "",
                f"{total.flops / moved:.2f}" if total.flops and moved else "",
            )
        )
    return _aligned(table, width)


def _aligned(table: Sequence[tuple[str, ...]], width: int = 0) -> str:
    """Columns side by side; those that do not fit into `width` characters follow below (0: all
    beside each other)."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    groups: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        taken = widths[0] + sum(widths[j] + 2 for j in [*groups[-1], i])
        if width and groups[-1] and taken > width:
            groups.append([])
        groups[-1].append(i)
    return "\n\n".join(
        "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in group)]).rstrip()
            for row in table
        )
        for group in groups
    )
