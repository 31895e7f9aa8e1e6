"""The host's C++ compiler: finds it, calls it, and caches the libraries on disk.

Libraries lie in `host/` in the cache folder (MINIGRAD_CACHE_DIR), named by a digest of all that
they depend on: the source, the options, the headers, the compiler and the CPU. Each is made under
a temporary name and moved into place, so two processes may compile the same kernel at once.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from kernels.support.cache import alone, cache_folder, fall_back, is_intact, seal, write
from kernels.support.errors import CompileError

_HERE = Path(__file__).parent
_INCLUDE = _HERE / "include"
_CANDIDATES = ("g++", "clang++", "c++")
PLAIN, CHECKED, RECORDED = "plain", "checked", "recorded"  # ways to compile a kernel
_FLAGS = (
    "-std=c++17 -O3 -fPIC -shared -w -fno-exceptions -fno-rtti -fno-math-errno"
    " -fno-trapping-math -fno-strict-aliasing -fno-threadsafe-statics -fno-stack-protector"
    " -fwrapv -ffp-contract=fast -fno-delete-null-pointer-checks -fno-finite-loops"
).split()
_GNU_FLAGS = ["-fmax-errors=10", "-fdiagnostics-color=never", "-fno-semantic-interposition"]
# What a kernel is linked with: g++ takes 13 ms to read the C++ library, which `runtime` has loaded.
_GNU_LINKED = ["-nodefaultlibs", "-lm", "-lc", "-lgcc"]
# In checked mode: checks before each load and store, and at each index of an array type; the
# sanitizers' own libraries are not linked: runtime/checks.h has what is called. g++ looks into
# shadow memory (runtime/shadow.h) by itself; where there is none, every check is a call.
_GNU_BOUNDS = ["-fsanitize=bounds-strict"]
_CLANG_BOUNDS = "-fsanitize=array-bounds -fsanitize-recover=array-bounds".split()
_CHECKED = "-g1 -fno-omit-frame-pointer -fsanitize=kernel-address -DMGH_CHECKED".split()
_SHADOW_CHECKED = (
    "--param asan-stack=1 --param asan-globals=1"
    " --param asan-instrumentation-with-call-threshold=1000000 -fasan-shadow-offset=0x7fff8000"
).split()
_GNU_CHECKED = (
    "-O1 --param asan-stack=0 --param asan-globals=0"
    " --param asan-instrumentation-with-call-threshold=0"
).split()
_CLANG_CHECKED = (
    "-O1 -mllvm -asan-stack=0 -mllvm -asan-globals=0"
    " -mllvm -asan-instrumentation-with-call-threshold=0"
).split()
# For the lab: without optimisation, so that each access of the source is one, with a call before it
# and at the beginning of each basic block (runtime/record.h).
_RECORDED = (
    "-O0 -g1 -fno-omit-frame-pointer -fsanitize=thread -fsanitize-coverage=trace-pc -DMGH_RECORDING"
).split()
_GNU_VOLATILE = "--param tsan-distinguish-volatile=1".split()
_CLANG_VOLATILE = "-mllvm -tsan-distinguish-volatile".split()
_RECORDED_LINK = ["-Wl,--wrap=memcpy,--wrap=memset,--wrap=__cxa_thread_atexit"]
_PRELUDE = ["-include", "minigrad/prelude.h"]
_OF_THE_SOURCE = re.compile(r"^[^:\n]+:\d+:(\d+:)? (fatal )?error: ", re.MULTILINE)
_NO_SPACE = os.strerror(errno.ENOSPC)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # another folder helps
_verified: set[Path] = set()  # precompiled files, in this process
RUNTIME_FLAGS: list[str] = []  # for the runtime alone; the tests build it in its portable form
_CLANG_FLAGS = ["-ferror-limit=10", "-fno-color-diagnostics"]


def find_compiler() -> str:
    """The path of the C++ compiler: $CXX, else g++ or clang++ on PATH. Raises CompileError."""
    return _find(os.environ.get("CXX"), os.environ.get("PATH"))


@lru_cache(maxsize=8)
def _find(chosen: str | None, path: str | None) -> str:
    for candidate in (chosen,) if chosen else _CANDIDATES:
        found = shutil.which(candidate, path=path)
        if found:
            return found
    looked = f"CXX={chosen}" if chosen else " or ".join(_CANDIDATES[:2]) + " on PATH"
    raise CompileError(
        f"no C++ compiler found ({looked}); CUDA C kernels run on NumPy arrays through one: install"
        " g++ (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS:"
        " xcode-select --install), or set CXX to the compiler's path"
    )


@lru_cache(maxsize=8)
def _version(compiler: str) -> str:
    done = subprocess.run(
        [compiler, "--version"], capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        raise CompileError(f"{compiler} --version failed: {done.stderr.strip()}")
    return done.stdout


def is_gnu(compiler: str) -> bool:
    """Whether it is g++: clang++ may answer to that name too."""
    return "clang" not in _identity(compiler)


@lru_cache(maxsize=8)
def _identity(compiler: str) -> str:
    """The compiler's version, kept on disk: asking it takes as long as a warm start may."""
    real = os.path.realpath(compiler)
    status = os.stat(real)
    key = hashlib.sha256(f"{real} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
    stored = _folder() / f"compiler-{key[:16]}.txt"
    if not is_intact(stored):
        write(stored, _version(compiler).encode())
        seal(stored, [stored])
    return stored.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _cpu() -> str:
    """What -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join([platform.machine(), *(x for x in first if x.startswith(wanted))])


@lru_cache(maxsize=1)
def _headers() -> bytes:
    digest = hashlib.sha256()
    for path in sorted([*_INCLUDE.rglob("*"), *(_HERE / "runtime").iterdir()]):
        if path.is_file():
            digest.update(f"{path.relative_to(_HERE)}\0".encode())
            digest.update(path.read_bytes())
    return digest.digest()


def _folder() -> Path:
    folder = cache_folder() / "host"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _flags(compiler: str) -> list[str]:
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    special = _GNU_FLAGS if is_gnu(compiler) else _CLANG_FLAGS
    flags = [*_FLAGS, native, *special, f"-I{_INCLUDE}"]
    if platform.system() == "Darwin":
        flags += ["-undefined", "dynamic_lookup"]
    else:
        flags += ["-fstack-clash-protection"]
    return flags


def _sanitized(mode: str, gnu: bool) -> list[str]:
    """What a mode adds to the compiler's options."""
    bounds = _GNU_BOUNDS if gnu else _CLANG_BOUNDS
    if mode == CHECKED:
        return [*_CHECKED, *bounds, *_checks(gnu)]
    told_apart = _GNU_VOLATILE if gnu else _CLANG_VOLATILE
    return [*_RECORDED, *told_apart, *bounds] if mode == RECORDED else []


def _checks(gnu: bool) -> list[str]:
    """How accesses are checked in checked mode."""
    if not gnu:
        return _CLANG_CHECKED
    return _SHADOW_CHECKED if runtime().mgh_have_shadow() else _GNU_CHECKED


def library(
    unit: str,
    options: tuple[str, ...] = (),
    extra: tuple[tuple[str, str], ...] = (),
    mode: str = PLAIN,
    prelude: bool = True,
    smaller: Callable[[str], str | None] = lambda messages: None,
) -> Path:
    """The shared library made of the C++ text `unit`, from the cache or compiled now.

    `extra` are files (name, text) that lie beside it while it is compiled: compilers quote from
    them in their messages. The unit begins with what nvcc declares by itself (`prelude`). Where the
    compiler refuses it, what `smaller` makes of the messages is tried instead. Raises CompileError
    with what the compiler said at last.
    """
    arguments = unit, options, extra, mode, prelude, smaller
    try:
        return _library(*arguments)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        fall_back(error)
        return _library(*arguments)


def _library(
    unit: str,
    options: tuple[str, ...],
    extra: tuple[tuple[str, str], ...],
    mode: str,
    prelude: bool,
    smaller: Callable[[str], str | None],
) -> Path:
    compiler = find_compiler()
    more = shlex.split(os.environ.get("MINIGRAD_CXXFLAGS", "")) if prelude else []
    flags = [*_flags(compiler), *more, *options]
    sanitized = _sanitized(mode, is_gnu(compiler))
    digest = hashlib.sha256(_headers())
    for part in (unit, *flags, *sanitized, _identity(compiler), _cpu()):
        digest.update(part.encode() + b"\0")
    path = _folder() / f"{digest.hexdigest()[:40]}.so"
    if is_intact(path):
        return path
    with alone(path), tempfile.TemporaryDirectory(dir=_folder(), prefix="build-") as build:
        if is_intact(path):  # another process has made it in the meantime
            return path
        for name, text in extra:
            Path(build, name).write_text(text, encoding="utf-8")
        tried: str | None = unit
        while tried is not None:
            Path(build, "unit.cpp").write_text(tried, encoding="utf-8")
            messages = _compile(compiler, flags, sanitized, mode, prelude, build)
            if messages is None:
                os.replace(Path(build, "unit.so"), path)
                seal(path, [path])
                return path
            tried = smaller(messages)
    raise CompileError(messages)


def _compile(
    compiler: str, flags: list[str], sanitized: list[str], mode: str, prelude: bool, build: str
) -> str | None:
    """Make unit.so of unit.cpp in a folder; None, or what the compiler said against it."""
    gnu = is_gnu(compiler)
    linking: list[str] = []
    unit = [compiler, "unit.cpp", *flags, *sanitized]
    if prelude and (mode == RECORDED or (mode == CHECKED and not gnu)):
        unit += ["-c", "-o", "unit.o"]
        wrapped = _RECORDED_LINK if mode == RECORDED else []
        # without the sanitizers' options, which bring their libraries
        linking = [compiler, "unit.o", *flags, *wrapped, "-o", "unit.so"]
    else:
        unit += [*(_GNU_LINKED if prelude and gnu else []), "-o", "unit.so"]
    included = _PRELUDE if prelude else []
    if prelude and gnu:
        included = ["-include", str(_precompiled(compiler, [*flags, *sanitized]))]
    failed, messages = _call([*unit, *included], build)
    if failed and prelude and gnu and not _OF_THE_SOURCE.search(messages):
        failed, messages = _call([*unit, *_PRELUDE], build)  # the precompiled file may be bad
    if linking and not failed:
        failed, messages = _call(linking, build)
    return _readable(messages, build) if failed else None


def _call(command: list[str], folder: str) -> tuple[int, str]:
    """The exit status of a compiler and its messages. When this is interrupted (Ctrl-C), the
    compiler and the programs that it started end too. Raises OSError where the disk is full."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        env={**os.environ, "TMPDIR": folder},
    ) as running:
        try:
            _, messages = running.communicate()
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    if running.returncode and _NO_SPACE in messages:
        raise OSError(errno.ENOSPC, _NO_SPACE, folder)
    return running.returncode, messages


def _precompiled(compiler: str, flags: list[str]) -> Path:
    """A file that includes the prelude, beside which g++ finds it in a form already read: a kernel
    then compiles in two thirds of the time. What does not fit a compilation, g++ passes over."""
    digest = hashlib.sha256(_headers())
    for part in (*flags, _identity(compiler), _cpu()):
        digest.update(part.encode() + b"\0")
    header = _folder() / f"prelude-{digest.hexdigest()[:16]}" / "prelude.h"
    made = header.with_suffix(".h.gch")
    if made not in _verified and not is_intact(made):
        header.parent.mkdir(exist_ok=True)
        write(header, b'#include "minigrad/prelude.h"\n')
        with tempfile.TemporaryDirectory(dir=_folder(), prefix="build-") as build:
            command = [compiler, *flags, "-x", "c++-header", str(header), "-o", "prelude.h.gch"]
            if not _call(command, build)[0]:
                os.replace(Path(build, "prelude.h.gch"), made)
                seal(made, [header, made])
    _verified.add(made)
    return header


def _readable(messages: str, build: str) -> str:
    """The compiler's messages without our own files in them."""
    lines = messages.replace(f"{build}/", "").splitlines()
    dropped = re.compile(r"^(In file included from |\s+from )|compilation terminated|^unit\.cpp:")
    return "\n".join(line for line in lines if not dropped.search(line)).strip()


def source_lines(library: str, addresses: list[int]) -> list[tuple[str, int]]:
    """(file, line) of addresses in a library with debug information, inlined calls first.

    Empty where the machine has no addr2line (it comes with g++'s binutils).
    """
    tool = shutil.which("addr2line")
    if tool is None:
        return []
    command = [tool, "-i", "-e", library, *(hex(address) for address in addresses)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    found = re.findall(r"^(.*?):(\d+)(?: \(.*)?$", done.stdout, re.MULTILINE)
    return [(file, int(line)) for file, line in found]


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL:
    """The runtime that all kernels share, loaded so that their libraries find it."""
    options = [f"-I{_HERE / 'runtime'}", *RUNTIME_FLAGS]
    if platform.system() == "Linux":
        options.append("-Wl,--no-as-needed")  # the C++ library, for the kernels'
    loaded = ctypes.CDLL(
        str(library('#include "runtime.cpp"\n', tuple(options), prelude=False)),
        mode=ctypes.RTLD_GLOBAL,
    )
    loaded.mgh_have_shadow.restype = ctypes.c_bool
    loaded.mgh_output_size.restype = ctypes.c_size_t
    loaded.mgh_take_output.restype = ctypes.c_size_t
    loaded.mgh_place.restype = ctypes.c_void_p
    loaded.mgh_place.argtypes = (ctypes.c_uint, ctypes.c_size_t, ctypes.c_bool)
    loaded.mgh_launch.argtypes = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    loaded.mgh_stop.argtypes = (ctypes.c_void_p,)
    loaded.mgh_stop.restype = None
    return loaded
