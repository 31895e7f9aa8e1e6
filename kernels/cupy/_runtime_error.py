"""The error of CUDA's runtime functions."""

from __future__ import annotations

NAMES = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    217: (
        "cudaErrorPeerAccessUnsupported",
        "peer access is not supported",
    ),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    801: ("cudaErrorNotSupported", "operation not supported"),
}


class CUDARuntimeError(RuntimeError):
    """A call that CUDA's runtime refuses; `status` is its number."""

    def __init__(self, status: int, hint: str = "") -> None:
        self.status = status
        name, text = NAMES.get(status, ("cudaErrorUnknown", "unknown error"))
        super().__init__(f"{name}: {text}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple:
        return type(self), (self.status,)


def check_device(device: int) -> int:
    """0, the one device. Raises CUDARuntimeError for another."""
    if device != 0:
        raise CUDARuntimeError(
            101, f"device {device} does not exist; there is one, device 0, this machine's CPU"
        )
    return 0
