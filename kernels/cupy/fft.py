"""`cupy.fft`: NumPy's transforms of device arrays; complex64 of float32, as CuPy."""

from __future__ import annotations

from ._module import names_of


class _PlanCache:
    """The cache of cuFFT's plans, which NumPy's transforms do not have."""

    def clear(self) -> None:
        """Nothing is kept."""

    def get_size(self) -> int:
        return 0

    def set_size(self, size: int) -> None:
        """Nothing is kept."""


class _Config:
    """Settings of CuPy's transforms; plans and several GPUs do not matter here."""

    enable_nd_planning = True
    use_multi_gpus = False

    def get_plan_cache(self) -> _PlanCache:
        return _PlanCache()

    def show_plan_cache_info(self) -> None:
        print("no plans are cached: the transforms are NumPy's")


config = _Config()
__getattr__, __dir__ = names_of("cupy.fft", "numpy.fft", globals())
