"""Random kernels with barriers in loops and integers of all widths, against the reference.

8 kernels by default, 2000 with `-m slow`. Another first seed: MINIGRAD_TEST_SEED=123. A failure
prints the whole kernel with its seed.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from kernels.simt import cuda
from tests.simt.semantics import fuzz_blocks

FIRST = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))
MODES = (False, None, False, True)  # `debug` of one kernel after the other


def wrong(seed: int) -> str | None:
    """What a random kernel does wrong."""
    case = fuzz_blocks.generate(seed)
    debug = MODES[seed % len(MODES)]
    kernel = fuzz_blocks.load(case, cuda, lambda function: cuda.jit(function, debug=debug))
    arguments = case.arguments()
    try:
        kernel[case.grid, case.block](*arguments)
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}\n{case.text}"
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    return fuzz_blocks.difference(case, fuzz_blocks.run_reference(case), arrays[case.inputs :])


def compare(seeds: range) -> None:
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    failures = list(filter(None, map(wrong, seeds)))
    assert not failures, f"{len(failures)} of {len(seeds)} kernels:\n" + "\n\n".join(failures)


@pytest.mark.filterwarnings("ignore")
def test_random_kernels_with_barriers_in_loops():
    compare(range(FIRST, FIRST + 8))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chunk", range(40))
def test_two_thousand_random_kernels(chunk):
    compare(range(FIRST + 1000 + chunk * 50, FIRST + 1050 + chunk * 50))


def test_the_comparison_can_fail():
    case = fuzz_blocks.generate(0)
    expected = fuzz_blocks.run_reference(case)
    changed = [x.copy() for x in expected]
    changed[2][-1] += 1
    assert fuzz_blocks.difference(case, expected, expected) is None
    assert case.text in fuzz_blocks.difference(case, expected, changed)


def test_what_overflows_is_not_compared():
    case = fuzz_blocks.generate(1164)
    expected = fuzz_blocks.run_reference(case)
    assert (
        case.undefined and fuzz_blocks.difference(case, expected, [x + 1 for x in expected]) is None
    )
    case = fuzz_blocks.generate(0)
    fuzz_blocks.run_reference(case)
    assert not case.undefined


def test_the_reference_has_numbas_integers():
    int8, uint8, uint64 = (fuzz_blocks.CASTS[name] for name in ("int8", "uint8", "uint64"))
    assert int8(200) == -56 and uint8(-1) == 255
    assert uint8(1) - uint8(2) == 2**64 - 1  # unsigned, 64 bits
    assert uint8(1) - int8(2) == -1
    assert int8(-100) // 7 == -15 and int8(-100) % 7 == 5
    assert int8(-128) >> 3 == -16 and uint8(255) << 60 == 15 << 60
    assert ~uint8(0) == 255 and -uint8(255) == 1 and -(~uint8(254)) == 2**64 - 1
    with pytest.raises(AssertionError, match="float64"):
        uint64(1) + int8(1)
