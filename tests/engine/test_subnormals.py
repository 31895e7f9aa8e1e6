"""`set_flush_denormal`: results that would be subnormal numbers are 0, on every OS thread."""

from __future__ import annotations

import platform
import threading

import numpy as np
import pytest

import minigrad

x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="other processors are not told"
)
SMALL = 1e-20  # its square is subnormal in float32


@pytest.fixture(autouse=True)
def as_before():
    before = minigrad.get_num_threads()
    yield
    minigrad.set_num_threads(before)
    minigrad.set_flush_denormal(False)


@x86
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_each_thread_that_helps_does_as_the_one_that_launches(backend, threads):
    minigrad.set_num_threads(threads)
    x = minigrad.full((1 << 20,), SMALL)
    with minigrad.backends.use(backend):
        for flush in (False, True, False):
            assert minigrad.set_flush_denormal(flush) is True
            for _ in range(5):  # the first ones find out how long it takes
                y = (x * x).numpy()
                wanted = 0 if flush else np.float32(SMALL) * np.float32(SMALL)
                np.testing.assert_array_equal(y, np.full_like(y, wanted))


@x86
def test_a_thread_has_a_setting_of_its_own():
    x, found = minigrad.full((4,), SMALL), []

    def work():
        minigrad.set_flush_denormal(True)
        found.extend((x * x).tolist())

    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert found == [0] * 4
    assert all((x * x) != 0)


@x86
def test_halves_and_operands_keep_their_subnormal_numbers():
    """float16 is converted by way of subnormal numbers of float32."""
    bits = np.arange(1, 1024, dtype=np.uint16)
    x = minigrad.from_numpy(bits.view(np.float16))
    minigrad.set_flush_denormal(True)
    for y in (x * 1, x.float().half(), x.clone()):
        np.testing.assert_array_equal(y.numpy().view(np.uint16), bits)
    tiny = minigrad.from_numpy(np.array([1], np.uint32).view(np.float32))
    assert (tiny * 2.0**30).item() == 2.0**-119


@pytest.mark.skipif(platform.machine() in ("x86_64", "AMD64"), reason="these can be told")
def test_other_processors_cannot():
    assert minigrad.set_flush_denormal(True) is False


def test_what_is_not_a_bool_is_refused():
    with pytest.raises(RuntimeError, match="flush_denormal expects a bool, but got int"):
        minigrad.set_flush_denormal(1)
