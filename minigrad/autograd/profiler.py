"""`torch.autograd.profiler`'s names: the records of `minigrad.profiler`, without a schedule.

Example::

    with profile() as prof:
        train(x, y)
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
"""

from __future__ import annotations

from typing import Any

from minigrad import profiler
from minigrad._names import namespace
from minigrad.profiler import Average, Event, record_function
from minigrad.profiler import Averages as EventList

__all__ = ["EventList", "emit_nvtx", "profile", "record_function"]

__getattr__, __dir__ = namespace(__name__)


class profile(profiler.profile):
    """Records the kernel launches of a block, or nothing if it is not `enabled`.

    The other arguments are torch's, and have no effect: launches are recorded wherever they run.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cpu: bool = True,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.enabled = enabled

    def start(self) -> None:
        """Begin the record, if it is enabled; RuntimeError inside another profile."""
        if self.enabled:
            super().start()

    @property
    def function_events(self) -> list[Event]:
        """The launches and blocks, in order."""
        return self.events()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The table of `key_averages`."""
        return self.key_averages().table(sort_by, row_limit, **options)

    def total_average(self) -> Average:
        """All launches and blocks as one."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all launches and blocks in microseconds, each counted once."""
        return self.key_averages().self_cpu_time_total

    def __str__(self) -> str:
        return self.table()


class emit_nvtx:
    """A block whose operations are ranges of NVTX: NotImplementedError where one begins."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        if self.enabled:
            raise NotImplementedError(
                "emit_nvtx: operations are no ranges of NVTX; fix: minigrad.cuda.nvtx.range(name) "
                "around parts of the program"
            )

    def __exit__(self, *error: object) -> None:
        pass
