"""`numba.cuda.testing`: what test suites written for numba.cuda import from there."""

from __future__ import annotations

import contextlib
import io
import platform
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.simt.device.context import get_current_device

__all__ = ["CUDATestCase", "TestCase", "captured_stderr", "captured_stdout", "unittest"]

Decorator = Callable[[Any], Any]


_PRECISION = {"single": 2.0**-23, "double": 2.0**-52}


def captured_stdout() -> contextlib.redirect_stdout:
    """A context whose value holds what is printed meanwhile."""
    return contextlib.redirect_stdout(io.StringIO())


def captured_stderr() -> contextlib.redirect_stderr:
    """The same for standard error."""
    return contextlib.redirect_stderr(io.StringIO())


class TestCase(unittest.TestCase):
    """Tests with Numba's comparison."""

    def assertPreciseEqual(
        self, first: Any, second: Any, prec: str = "exact", ulps: int = 1, msg: str | None = None,
        ignore_sign_on_zero: bool = False, abs_tol: Any = None,
    ) -> None:  # fmt: skip
        """Equal in kind and value, NaN to NaN; within `ulps` of "single" or "double" precision."""
        if isinstance(first, list | tuple):
            self.assertIs(type(first), type(second), msg)
            self.assertEqual(len(first), len(second), msg)
            for a, b in zip(first, second):
                self.assertPreciseEqual(a, b, prec, ulps, msg, ignore_sign_on_zero, abs_tol)
            return
        one, other = np.asarray(first), np.asarray(second)
        if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape), msg)
        self.assertEqual(one.dtype.kind, other.dtype.kind, msg)
        if one.dtype.kind not in "fc":
            np.testing.assert_array_equal(one, other, msg or "")
            return
        relative = 0.0 if prec == "exact" else ulps * _PRECISION[prec]
        absolute = relative if abs_tol == "eps" else abs_tol or 0.0
        np.testing.assert_allclose(one, other, relative, absolute, err_msg=msg or "")
        if not ignore_sign_on_zero and one.dtype.kind == "f":
            zeros = (one == 0) & (other == 0)
            np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(other[zeros]))


class CUDATestCase(TestCase):
    """Tests of kernels."""

    FLOAT16_RTOL = np.finfo(np.float16).eps


class ContextResettingTestCase(CUDATestCase):
    """Tests that reset the device's context: there is nothing to reset here."""


def _never(reason: str) -> Decorator:
    """A test that is skipped nowhere here."""
    return unittest.skipIf(False, reason)


def _no_gpu(reason: str) -> Decorator:
    """A test of what only NVIDIA's compilers or drivers have."""
    return unittest.skip(f"{reason} (kernels run on the CPU)")


# Kernels run here as on hardware, not as on Numba's simulator.
skip_on_cudasim = skip_if_external_memmgr = skip_under_cuda_memcheck = _never
skip_on_wsl2 = skip_with_nvdisasm = skip_on_nvjitlink_13_1_sm_120 = _never
skip_unless_cudasim = skip_unless_conda_cudatoolkit = skip_without_nvdisasm = _no_gpu
skip_if_nvjitlink_missing = _no_gpu


def skip_on_standalone_numba_cuda(test: Any) -> Any:
    """Numba is there."""
    return test


def skip_on_arm(reason: str) -> Decorator:
    """Skips a test on ARM's processors."""
    return unittest.skipIf(platform.machine() in ("aarch64", "arm64"), reason)


def cc_X_or_above(major: int, minor: int) -> bool:
    """Whether the device has that compute capability."""
    return get_current_device().compute_capability >= (major, minor)


def _unless(major: int, minor: int) -> Decorator:
    return lambda test: unittest.skipUnless(
        cc_X_or_above(major, minor), f"requires cc >= {major}.{minor}"
    )(test)


skip_unless_cc_50, skip_unless_cc_53, skip_unless_cc_60 = (
    _unless(5, 0),
    _unless(5, 3),
    _unless(6, 0),
)
skip_unless_cc_75, skip_unless_cc_90 = _unless(7, 5), _unless(9, 0)
skip_if_cuda_includes_missing = _no_gpu("CUDA's headers")
skip_if_curand_kernel_missing = _no_gpu("curand_kernel.h")
skip_if_cudadevrt_missing = _no_gpu("cudadevrt")
xfail_unless_cudasim = unittest.expectedFailure


def cudadevrt_missing() -> bool:
    """There is no device runtime to link."""
    return True


class ForeignArray:
    """An array that other libraries only see through `__cuda_array_interface__`."""

    def __init__(self, arr: Any) -> None:
        self._arr = arr
        self.__cuda_array_interface__ = arr.__cuda_array_interface__
