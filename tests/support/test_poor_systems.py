"""What a system may lack: a home, a disk that holds, a locale of all letters, threads."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from kernels.support import cache, thread_pool
from minigrad.distributed import groups

ROOT = Path(__file__).resolve().parents[2]

#: A locale in which Python takes texts and names of files for ASCII where nobody says otherwise.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

UNICODE = """
import numpy as np
import kernels
from kernels import lab
from kernels.simt import cuda
from kernels.support import cache


@cuda.jit
def größe(a):
    a[cuda.threadIdx.x] *= 2  # 漢


@cuda.jit
def LONG(a):
    a[cuda.threadIdx.x] *= 2


double = kernels.raw_kernel('''
extern "C" __global__ void twice(float* a) { a[threadIdx.x] *= 2; }  // größe → 漢
''', "twice")
a = np.ones(32, np.float32)
größe[1, 32](a)
LONG[1, 32](a)
lab.profile(LONG, 1, 32, a)
double((1,), (32,), (a,))
made = [p for p in cache.cache_folder().rglob("*") if p.suffix in (".py", ".so")]
assert len(made) >= 4 and all(map(cache.is_intact, made)), made
print(a.sum())
"""


def run(folder, program, **environment):
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    return cache.cache_folder()


@pytest.mark.parametrize("given", [None, "", "~nobody-has-this-name/cache"])
def test_a_user_without_a_home(monkeypatch, tmp_path, given):
    """`docker run --user 12345`: the number is no user's, and HOME is not set."""

    def unknown(user):
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("MINIGRAD_CACHE_DIR", raising=False)
    if given is not None:
        monkeypatch.setenv("MINIGRAD_CACHE_DIR", given)
    own = tmp_path / f"minigrad-{os.getuid()}"
    assert cache.cache_folder() == own / "kernels"
    assert not own.stat().st_mode & 0o022, "others can write"


def aged(path):
    path.parent.mkdir(exist_ok=True)
    path.touch() if path.suffix else path.mkdir()
    os.utime(path, (0, time.time() - 2 * cache._LEFT))
    return path


def test_what_killed_processes_left_is_removed(folder):
    left = [folder / "a.py.lock", folder / "host" / "b.so.lock"]
    left += [folder / "a.pyx1.tmp", folder / "host" / "build-x"]
    kept = [aged(folder / "a.py"), aged(folder / "host" / "prelude-x"), folder / "c.py.lock"]
    for path in left:
        aged(path)
    young = folder / "b.pyx1.tmp"
    young.touch()
    with kept[-1].open("wb") as held:
        assert cache._locked(held, 0)
        with cache.alone(folder / "d.py"):  # the first kernel that a process makes
            pass
        assert [path for path in left if path.exists()] == []
        assert all(path.exists() for path in [*kept, young])


def test_a_lock_that_is_removed_before_it_is_locked_is_made_again(folder, monkeypatch):
    """By the sweep of another process, which takes it for what a killed one has left."""
    path, locked = folder / "a.so", cache._locked
    cache.sweep()

    def swept(file, seconds):
        monkeypatch.setattr(cache, "_locked", locked)
        cache.sweep()
        return locked(file, seconds)

    with cache.alone(folder / "b.so"):  # this process has swept
        pass
    monkeypatch.setattr(cache, "_locked", swept)
    with cache.alone(path) as first, cache.alone(path, waits=False) as second:
        assert first and not second


def test_a_killed_process_keeps_nobody_waiting(folder):
    program = """
from kernels.support import cache
with cache.alone(cache.cache_folder() / "a.py"):
    print("has it", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        with cache.alone(folder / "a.py", waits=False) as mine:
            assert not mine
        process.kill()
        process.wait()
    with cache.alone(folder / "a.py", waits=False) as mine:
        assert mine
    assert not (folder / "a.py.lock").exists()


def test_any_name_in_any_locale(tmp_path):
    assert (
        run(
            tmp_path,
            UNICODE.replace("LONG", "k" * 245),
            MINIGRAD_CACHE_DIR=str(tmp_path / "漢 b"),
            **ASCII,
        )
        == "512.0\n"
    )


def test_an_empty_setting_is_none(monkeypatch, tmp_path):
    for name in ("NUM_THREADS", "BACKEND", "CUDA_DEBUG", "CACHE_DIR"):
        monkeypatch.setenv(f"MINIGRAD_{name}", "")
    program = (
        "from kernels import dispatch, simt; print(dispatch.backend(), simt.get_num_threads())"
    )
    assert run(tmp_path, program) == f"auto {thread_pool.cores()}\n"


@pytest.mark.parametrize("given", ["no", "0", "-1", "²", "1.5"])
def test_a_number_of_threads_that_is_none(monkeypatch, given):
    monkeypatch.setenv("MINIGRAD_NUM_THREADS", given)
    monkeypatch.setattr(thread_pool.wanted, "value", 0)
    with pytest.raises(ValueError, match="MINIGRAD_NUM_THREADS must be a positive integer"):
        thread_pool.get_num_threads()


def test_a_system_that_allows_no_more_threads(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(thread_pool, "_workers", [])
    monkeypatch.setattr(thread_pool, "_pid", os.getpid())
    ran: list[int] = []
    assert thread_pool.run(lambda first, last: ran.extend(range(first, last)) or 0, 10, 4) == 0
    assert ran == list(range(10))


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e300", "soon"])
def test_a_time_to_wait_that_is_none(monkeypatch, given):
    monkeypatch.setenv("MINIGRAD_DISTRIBUTED_TIMEOUT", given)
    with pytest.raises(ValueError, match="MINIGRAD_DISTRIBUTED_TIMEOUT: expected seconds"):
        groups._seconds(None)
