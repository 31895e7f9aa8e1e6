"""Libraries of CUDA C in the cache: made again where they are damaged or the disk is full."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import tempfile
from pathlib import Path

import pytest

from kernels.host import compiler
from kernels.support import cache
from kernels.support.errors import CompileError

numbers = itertools.count(os.getpid())


def unit(number: int | str) -> str:
    return f'extern "C" int answer() {{ return {number}; }}\n'


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


@pytest.mark.parametrize("damage", ["cut short", "empty", "one bit", "no seal"])
def test_a_damaged_library_is_made_again(damage):
    number = next(numbers)
    path = compiler.library(unit(number), prelude=False)
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "no seal":
        cache.break_seal(path)
    kept = {
        "cut short": content[:middle],
        "empty": b"",
        "one bit": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
        "no seal": content,
    }[damage]
    path.unlink()  # not in place: it may be loaded
    path.write_bytes(kept)
    assert compiler.library(unit(number), prelude=False) == path
    assert path.read_bytes() == content and cache.is_intact(path)
    assert answer(path) == number


def test_an_intact_library_is_not_made_again(monkeypatch):
    number = next(numbers)
    path = compiler.library(unit(number), prelude=False)
    monkeypatch.setattr(compiler, "_call", None)
    assert compiler.library(unit(number), prelude=False) == path


def test_more_options_make_another_library(monkeypatch):
    text = f"#ifndef MORE\n#define MORE {next(numbers)}\n#endif\n{unit('MORE')}"
    first = compiler.library(text)
    monkeypatch.setenv("MINIGRAD_CXXFLAGS", "-O1 '-DMORE=(6 * 7)'")
    assert answer(compiler.library(text)) == 42
    assert answer(first) != 42


@pytest.fixture
def compilations(monkeypatch):
    """What the compiler is called with for units, from now on."""
    compiler.runtime()  # checked mode asks it, and it is compiled as well
    call, commands = compiler._call, []

    def noting(command, place):
        if "unit.cpp" in command:
            commands.append(command)
        return call(command, place)

    monkeypatch.setattr(compiler, "_call", noting)
    return commands


@pytest.mark.parametrize("mode", [compiler.PLAIN, compiler.CHECKED, compiler.RECORDED])
def test_a_refused_source_is_compiled_once(mode, compilations):
    with pytest.raises(CompileError, match="(?s)k.cu:1:.*unknown"):
        compiler.library('#line 1 "k.cu"\nint x = unknown;\n', mode=mode)
    assert len(compilations) == 1


def test_a_precompiled_prelude_that_cannot_be_read_is_done_without(compilations, monkeypatch):
    if not compiler.is_gnu(compiler.find_compiler()):
        pytest.skip("only g++ has a precompiled prelude")
    precompiled = compiler._precompiled

    def cut_short(*args):
        header = precompiled(*args)
        copy = header.parent / "cut-short" / header.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(header.read_bytes())
        content = header.with_suffix(".h.gch").read_bytes()
        copy.with_suffix(".h.gch").write_bytes(content[: len(content) // 2])
        return copy

    monkeypatch.setattr(compiler, "_precompiled", cut_short)
    number = next(numbers)
    assert answer(compiler.library(unit(number))) == number
    assert len(compilations) == 2


@pytest.mark.parametrize("by_compiler", [False, True])
def test_a_full_disk_does_not_stop_a_kernel(by_compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path / "full"))
    monkeypatch.setattr(cache, "_substitutes", {})
    cache._usable.cache_clear()
    compiler._identity.cache_clear()
    call, folder = compiler._call, tempfile.TemporaryDirectory

    def full(command, place):
        if tmp_path in Path(place).parents and by_compiler:
            command = ["sh", "-c", f"echo as: {os.strerror(errno.ENOSPC)} >&2; exit 1"]
        return call(command, place)

    def make(dir, prefix):
        if tmp_path in Path(dir).parents and not by_compiler:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(dir))
        return folder(dir=dir, prefix=prefix)

    monkeypatch.setattr(compiler, "_call", full)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", make)
    number = next(numbers)
    with pytest.warns(UserWarning, match="this process only.*No space left.*MINIGRAD_CACHE"):
        path = compiler.library(unit(number), prelude=False)
    assert tmp_path not in path.parents and answer(path) == number
    cache._usable.cache_clear()
