"""The sources of these tests are CUDA C: NVIDIA's compiler takes them too, with NVIDIA's headers.

What only the host's compiler takes would prove nothing of the kernels that people write.
"""

from __future__ import annotations

import pytest

from kernels.lab.gpu_model import nvrtc
from tests.host import (
    test_cub,
    test_groups,
    test_language,
    test_launch_bounds,
    test_libcu,
    test_programs,
    test_small_floats,
)
from tests.host import test_tensor_cores as tensor_cores

SOURCES = {
    "small floats": (test_small_floats.MODULE.code, test_small_floats.MODULE._names),
    "groups": (test_groups.MODULE.code, test_groups.MODULE._names),
    "barriers and pipelines": (test_libcu.MODULE.code, test_libcu.MODULE._names),
    "atomics": (test_libcu.ATOMICS.code, test_libcu.ATOMICS._names),
    "CUB": (test_cub.MODULE.code, test_cub.MODULE._names),
    "launch bounds": (test_launch_bounds.MODULE.code, test_launch_bounds.MODULE._names),
    "fragments": (tensor_cores.WMMA.code, tensor_cores.WMMA._names),
    "inline PTX": (tensor_cores.PTX.code, tensor_cores.PTX._names),
    "habits": (test_language.PUBLIC, ("mix",)),
    "tree sum": (test_programs.TREE_SUM, ("tree_sum<float>",)),
}


@pytest.mark.needs("cuda.bindings")
@pytest.mark.parametrize("name", SOURCES)
def test_sources_of_these_tests_compile_for_a_gpu(name):
    code, names = SOURCES[name]
    assert list(nvrtc.build(code, names, "80")) == list(names)
