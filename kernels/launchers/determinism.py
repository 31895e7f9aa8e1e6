"""Whether results must repeat bit by bit, where a GPU's kernels add in no fixed order.

Only additions by index have such kernels (`embedding_backward`, `scatter_add`, the gradient of a
max pooling of unknown windows). On a CPU all kernels repeat.
"""

from __future__ import annotations

import warnings

_MODES = ("default", "warn", "error")
_mode = "default"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Take kernels that add in a fixed order; RuntimeError (or a warning) where there is none."""
    global _mode
    _mode = "default" if not mode else "warn" if warn_only else "error"


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 "default", 1 "warn" or 2 "error": `use_deterministic_algorithms` by one number or name."""
    name = _MODES[debug_mode] if debug_mode in (0, 1, 2) else debug_mode
    if name not in _MODES:
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, "
            f"got {debug_mode}"
        )
    use_deterministic_algorithms(name != "default", warn_only=name == "warn")


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, as for `set_deterministic_debug_mode`."""
    return _MODES.index(_mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` has turned them on."""
    return _mode != "default"


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it has been set to warn only."""
    return _mode == "warn"


def refuse(name: str) -> None:
    """To be called before a launch that does not repeat: an error, a warning, or nothing."""
    message = (
        f"{name} does not have a deterministic implementation on a GPU, but you set "
        "'use_deterministic_algorithms(True)'. You can turn off determinism just for this "
        "operation, or you can use the 'warn_only=True' option"
    )
    if _mode == "error":
        raise RuntimeError(message)
    if _mode == "warn":
        warnings.warn(message, stacklevel=3)
