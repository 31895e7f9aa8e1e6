"""Random numbers inside kernels: `cuda.random` of numba.cuda, number for number.

xoroshiro128+ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018), one
state per thread, the states 2^64 steps apart; SplitMix64 makes the first one from the seed. (The
kernels of this project use Philox instead: `kernels.numba_cuda.random`.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, njit, uint64

from kernels.simt.device.arrays import DeviceNDArray, device_array

xoroshiro128p_dtype = np.dtype([("s0", np.uint64), ("s1", np.uint64)], align=True)

_JUMP = (uint64(0xBEAC0467EBA5FACB), uint64(0xD86B048B86AA9922))
_TWO_PI_32 = np.float32(2 * math.pi)
_TWO_PI_64 = np.float64(2 * math.pi)


@njit
def rotl(x, k):
    """The bits of a uint64 rotated left by `k`."""
    return (x << uint64(k)) | (x >> uint64(64 - k))


@njit
def init_xoroshiro128p_state(states, index, seed):
    """Set one state from a 64-bit seed by SplitMix64."""
    z = uint64(seed) + uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    z = z ^ (z >> uint64(31))
    states[index]["s0"] = z
    states[index]["s1"] = z


@njit
def xoroshiro128p_next(states, index):
    """The next uint64 of state `index`."""
    s0 = states[index]["s0"]
    s1 = states[index]["s1"]
    result = s0 + s1
    s1 ^= s0
    states[index]["s0"] = rotl(s0, 55) ^ s1 ^ (s1 << uint64(14))
    states[index]["s1"] = rotl(s1, 36)
    return result


@njit
def xoroshiro128p_jump(states, index):
    """Advance state `index` by 2^64 steps."""
    s0 = uint64(0)
    s1 = uint64(0)
    for word in _JUMP:
        for bit in range(64):
            if word & (uint64(1) << uint64(bit)):
                s0 ^= states[index]["s0"]
                s1 ^= states[index]["s1"]
            xoroshiro128p_next(states, index)
    states[index]["s0"] = s0
    states[index]["s1"] = s1


@njit
def uint64_to_unit_float64(x):
    """The upper 53 bits as a float64 in [0, 1)."""
    return float64(uint64(x) >> uint64(11)) * 2.0**-53


@njit
def uint64_to_unit_float32(x):
    """The same, rounded: a float32 in [0, 1]."""
    return float32(uint64_to_unit_float64(x))


@njit
def xoroshiro128p_uniform_float64(states, index):
    """A float64 in [0, 1)."""
    return uint64_to_unit_float64(xoroshiro128p_next(states, index))


@njit
def xoroshiro128p_uniform_float32(states, index):
    """A float32 in [0, 1]: a float64 in [0, 1) rounded, as in numba.cuda."""
    return float32(xoroshiro128p_uniform_float64(states, index))


@njit
def xoroshiro128p_normal_float32(states, index):
    """A normally distributed float32 (Box and Muller, 1958); takes two steps."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(float32(-2.0) * math.log(u1)) * math.cos(_TWO_PI_32 * u2)


@njit
def xoroshiro128p_normal_float64(states, index):
    """A normally distributed float64 from two float32 uniforms, as in numba.cuda."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(float64(-2.0) * math.log(u1)) * math.cos(_TWO_PI_64 * u2)


@njit
def init_xoroshiro128p_states_cpu(states, seed, subsequence_start):
    """Fill a NumPy array of states: the first from the seed, each other 2^64 steps further."""
    if states.size == 0:
        return
    init_xoroshiro128p_state(states, 0, seed)
    for _ in range(subsequence_start):
        xoroshiro128p_jump(states, 0)
    for i in range(1, states.size):
        states[i] = states[i - 1]
        xoroshiro128p_jump(states, i)


def init_xoroshiro128p_states(
    states: DeviceNDArray, seed: int, subsequence_start: int = 0, stream: Any = 0
) -> None:
    """Fill a device array of states; `subsequence_start` skips that many times 2^64 steps."""
    init_xoroshiro128p_states_cpu(states.memory, np.uint64(seed), np.uint64(subsequence_start))


def create_xoroshiro128p_states(
    n: int, seed: int, subsequence_start: int = 0, stream: Any = 0
) -> DeviceNDArray:
    """A device array of `n` states (dtype `xoroshiro128p_dtype`), one for each thread."""
    states = device_array(n, dtype=xoroshiro128p_dtype, stream=stream)
    init_xoroshiro128p_states(states, seed, subsequence_start, stream)
    return states
