"""What arrays give back stays with the process: later ones of the sizes touch no new pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource
import numpy as np
from kernels.support.memory import keep_freed
kept = keep_freed()
def step():
    arrays = [np.ones(n << 16, np.float32) for n in (1, 60, 3, 20, 2, 40)]
    del arrays[::2], arrays
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
@pytest.mark.parametrize("own", [{}, {"MALLOC_TRIM_THRESHOLD_": "0"}], ids=["ours", "the user's"])
def test_freed_memory_stays_unless_the_user_has_settings(own):
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path), **own}
    command = [sys.executable, "-c", COUNT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    assert (kept == "True") == (not own)
    assert (int(faults) < 100) == (not own)
