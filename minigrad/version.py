"""What programs ask about the installation, with torch's names: `cuda` is the version of CUDA that
the GPU's driver takes, or None without a GPU."""

from __future__ import annotations

from typing import Any

from minigrad._torch_names import TORCH_VERSION

__version__ = TORCH_VERSION
debug = False
hip = xpu = git_version = None


def __getattr__(name: str) -> Any:
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from minigrad.backends import current
    from minigrad.cuda import is_available

    if not is_available():
        return None
    number = current.cupy().cuda.runtime.runtimeGetVersion()
    return f"{number // 1000}.{number % 1000 // 10}"


def __dir__() -> list[str]:
    return ["cuda", "debug", "git_version", "hip", "xpu"]
