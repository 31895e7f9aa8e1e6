"""CUDA C compiled for a GPU is kept on disk: found by what it depends on, never stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.host import gpu_module, nvrtc
from kernels.support import cache
from kernels.support.errors import CompileError

pytestmark = pytest.mark.needs("cuda.bindings")

CODE = """
__constant__ float factor = 3;
template <class T> __global__ void scale(T* x) { x[threadIdx.x] *= factor; }
"""


@pytest.fixture
def files(monkeypatch, tmp_path):
    """The files that CuPy is told to load, each with how often NVRTC had compiled by then."""
    loaded, compiled, real = [], [], nvrtc.translate

    def module(path, enable_cooperative_groups):
        loaded.append((Path(path), len(compiled)))
        return SimpleNamespace(get_function=lambda name: name)

    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__file__="cupy.py", RawModule=module))
    monkeypatch.setattr(nvrtc, "translate", lambda *a: compiled.append(a) or real(*a))
    return loaded


def load(code=CODE, options=(), capability="80", names=("scale<float>",)):
    return gpu_module.GpuModule(code, options, names, capability)


def test_what_was_compiled_is_found_again(files):
    assert load().get_function("scale<float>") == load().get_function("scale<float>")
    load(CODE + " "), load(options=("-DX=1",)), load(capability="90"), load(names=("scale<int>",))
    load(), load(capability="90")
    assert [count for _, count in files] == [1, 1, 2, 3, 4, 5, 5, 5]
    (first, _), (again, _), *others = files
    assert first == again and first.read_bytes().startswith(b"\x7fELF")
    assert others[-1][0] == others[2][0] != first


def test_what_is_damaged_or_includes_files_is_compiled_again(files):
    load()
    path = files[0][0]
    path.write_bytes(path.read_bytes()[:-8])
    load()
    assert files[1] == (path, 2) and cache.kept(path.name)
    for _ in range(2):
        load(options=("-I.",))
        load('#include "cuda_fp16.h"\n' + CODE)
    assert [count for _, count in files[2:]] == [3, 4, 5, 6]


def test_what_it_is_compiled_for(files, monkeypatch):
    wgmma = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    load(wgmma, ("-arch=sm_90a",), "90", ("k",))
    with pytest.raises(CompileError, match="wgmma"):
        load(wgmma, (), "90", ("k",))
    assert nvrtc.target("90") == "sm_90"
    assert nvrtc.target("999").startswith("compute_1")
    load(capability="999")  # a GPU newer than the compiler: the driver gets PTX
    assert b".target sm_1" in files[-1][0].read_bytes()
    with pytest.raises(CompileError, match="not for compute capability 10"):
        load(capability="10")


PROGRAM = """
from tests import software_gpu

software_gpu.install("8.0")

import cupy, numpy as np
from kernels import raw_module
from kernels.host import nvrtc

compiled, real = [], nvrtc.translate
nvrtc.translate = lambda *a: compiled.append(a) or real(*a)
module = raw_module({code!r}, (), ("scale<float>",))
for device in (0, 1):
    with cupy.cuda.Device(device):
        x = cupy.ones(32, np.float32)
        module.get_function("scale<float>")((1,), (32,), (x,))
        assert x.get().tolist() == [3] * 32
print(len(compiled))
"""


@pytest.mark.needs("numba_cuda")
def test_a_second_process_compiles_nothing(tmp_path):
    code = f"{CODE}// {tmp_path}"  # is not in the cache yet
    (tmp_path / "program.py").write_text(PROGRAM.format(code=code))
    folders = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, str(tmp_path / "program.py")]
    for count in (1, 0):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == str(count), done.stderr
