"""The random numbers of GPUs come from the generator that all devices share: its state is that of
every GPU, and of the CPU. The functions that ask about one GPU raise RuntimeError without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minigrad import random
from minigrad._names import namespace
from minigrad.backends import device_module
from minigrad.cuda.properties import device_count
from minigrad.devices import device as Device
from minigrad.tensor import Tensor

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _check_gpu(device: Any) -> None:
    """RuntimeError unless this GPU is there."""
    where, runtime = Device(device), device_module("cuda").cuda.runtime
    if where.type != "cuda" or (where.index or 0) >= runtime.getDeviceCount():
        raise RuntimeError(f"Invalid device argument: expected a GPU of this machine, got {device}")


def manual_seed(seed: int) -> None:
    """Seed the default generator, which all devices share."""
    random.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the default generator with a random number of the operating system."""
    random.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the default generator."""
    _check_gpu("cuda")
    return random.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The default generator's state: 16 bytes (uint8)."""
    _check_gpu(device)
    return random.get_rng_state()


def get_rng_state_all() -> list[Tensor]:
    """The state once for each GPU: an empty list without one."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Restore the state of the default generator."""
    _check_gpu(device)
    random.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restore a state of `get_rng_state_all`: that of the last GPU, as they share one."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


__getattr__, __dir__ = namespace(__name__)
