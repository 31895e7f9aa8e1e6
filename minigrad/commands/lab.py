"""Run kernels under the lab's recorder and explain them line by line: sectors of global memory,
bank conflicts, divergence, races and errors. TARGET is a family of the catalog (`matmul`), whose
versions are profiled on a small problem, or your own kernel: `path/to/file.py::kernel`, or in
CUDA C `path/to/file.cu::kernel` (`file.cu::tile<float, 16>` for an instance of a template)."""

from __future__ import annotations

import argparse
import importlib.util
import math
import re
import shutil
import sys
import tempfile
import textwrap
import webbrowser
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.support.names import did_you_mean
from minigrad.commands import CommandError

HELP = "explain kernels line by line: memory, bank conflicts, divergence, races"
_EXAMPLE = "example"
WIDTH = 100  # of prose, where the output is no terminal
_DIALECTS = {"numba": "numba", "cuda_c": "cupy"}  # folder of the dialect -> its name
_ARRAY = re.compile(r"(?:(zeros|arange|random):)?([a-z]+[0-9]*)\[([0-9, ]*)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", help="a family, or file.py::kernel or file.cu::kernel")
    parser.add_argument("--version", metavar="V", help="only this version of a family")
    parser.add_argument(
        "--dialect", choices=_DIALECTS, default="numba", help="the dialect of the family"
    )
    own = parser.add_argument_group(
        "a kernel of your own",
        f"A Python file may have a function `{_EXAMPLE}()` (or `{_EXAMPLE}_KERNEL()`) that returns"
        " (grid, block, args), or (grid, block, args, shared bytes). Otherwise give them here. A"
        " kernel that is named as an exercise (`kernels.lab.exercises`) is checked as such.",
    )
    own.add_argument("--grid", help="blocks: 64, or 8,8")
    own.add_argument("--block", help="threads per block: 256, or 16,16")
    own.add_argument(
        "--args",
        nargs="+",
        metavar="ARG",
        help="arguments: numbers (100, 0.5) and arrays (float32[64,64] of random numbers,"
        " zeros:float32[64], arange:int64[64])",
    )
    own.add_argument("--shared", type=int, default=None, help="bytes of dynamic shared memory")
    parser.add_argument(
        "--gpu", metavar="NAME", help="also say what the kernel would do on this GPU: 'RTX 4090'"
    )
    parser.add_argument("--blocks", type=int, help="run only this number of blocks of the grid")
    parser.add_argument(
        "--html", metavar="PATH", help="also save a page to step through a block, line by line"
    )
    parser.add_argument(
        "--open", action="store_true", help="show that page in the browser (of one report)"
    )
    parser.add_argument("--png", metavar="PATH", help="also save the report as a picture")
    parser.add_argument("--json", metavar="PATH", help="also save the report as JSON")


def run(args: argparse.Namespace) -> int:
    if args.target is None:
        _list()
    elif "::" in args.target or args.target.endswith((".py", ".cu")):
        return _own_kernel(args)
    else:
        _ladder(args)
    return 0


def _list() -> None:
    from kernels.lab.course import ladders

    print("minigrad lab FAMILY, or minigrad lab FILE.py::KERNEL, or minigrad lab FILE.cu::KERNEL.")
    print("The families and their versions:")
    for family, versions in ladders.families().items():
        print(f"  {family:<22} {', '.join(version for version, _ in versions)}")


# A family of the catalog


def _ladder(args: argparse.Namespace) -> None:
    from kernels.lab.course import ladders
    from kernels.lab.report.listing import LEGEND, listing

    if args.grid or args.block or args.args or args.shared is not None:
        raise CommandError("--grid, --block, --args and --shared are for file.py::kernel")
    dialect = _DIALECTS[args.dialect]
    known = ladders.families(dialect)
    if args.target not in known:
        raise CommandError(
            f"no kernel family {args.target!r}"
            + (did_you_mean(args.target, known) or f"; there are {', '.join(known)}")
            + "; a kernel of your own is named file.py::kernel"
        )
    versions = [version for version, _ in known[args.target]]
    if args.version not in (None, *versions):
        raise CommandError(
            f"{args.target} has no version {args.version!r}; it has {', '.join(versions)}"
            + did_you_mean(args.version, versions)
        )
    gpu, width = _gpu(args.gpu), _width()
    profiles, reports = [], []
    for profile in ladders.profile_versions(args.target, args.version, dialect):
        profiles.append(profile)
        reports += [launch.report for launch in profile.launches]
        title = f"── {profile.version}: {profile.idea}\n   {profile.problem.text}"
        print(_wrapped(title, width, 3) + "\n")
        for launch in profile.launches:
            print(listing(launch.report, legend=False, width=width) + "\n")
            if gpu is not None:
                print(_wrapped(str(launch.report.on(gpu)), width) + "\n")
    print(f"── {args.target}\n\n{ladders.summary(profiles, width)}\n")
    if gpu is not None:
        print(f"on {gpu.name}\n\n{ladders.on_gpu(profiles, gpu, width)}\n")
    print(textwrap.fill(LEGEND, width or WIDTH))
    _save(args, reports)


# A kernel in a file


def _own_kernel(args: argparse.Namespace) -> int:
    from kernels.lab.record.profiler import profile
    from kernels.support.errors import SimtError

    gpu = _gpu(args.gpu)
    if args.version is not None:
        raise CommandError("--version is for a family of the catalog")
    path, _, name = args.target.partition("::")
    module = None if path.endswith(".cu") else _load(Path(path))
    name, kernel = _kernel(module, path, name) if module else _kernel_of_cuda_c(path, name)
    launch = _launch(args, module, path, name, kernel)
    if launch is None:
        return _check(args, kernel, gpu)
    grid, block, given, shared = launch
    try:
        report = profile(kernel, grid, block, *given, shared=shared, blocks=args.blocks)
    except (SimtError, TypeError, ValueError) as error:
        raise CommandError(f"{path}::{name}: {error}") from None
    _print(report, gpu)
    _save(args, [report])
    return 1 if report.races or report.errors else 0


def _gpu(name: str | None) -> Any:
    """The GPU that --gpu names."""
    from kernels import lab

    try:
        return None if name is None else lab.gpu(name)
    except ValueError as error:
        raise CommandError(f"--{error}") from None


def _width() -> int:
    """Characters of a line of the terminal; 0 where the output goes elsewhere: as it comes."""
    return max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else 0


def _print(report: Any, gpu: Any) -> None:
    from kernels.lab.report.listing import listing

    print(listing(report, width=_width()))
    if gpu is not None:
        print("\n" + _wrapped(str(report.on(gpu)), _width()))


def _wrapped(text: str, width: int, indented: int = 14) -> str:
    """Lines broken at the width, what follows indented: below the text of `name  text`."""
    indent = " " * indented
    return "\n".join(
        textwrap.fill(line, width or WIDTH, subsequent_indent=indent) for line in text.splitlines()
    )


def _check(args: argparse.Namespace, kernel: Any, gpu: Any) -> int:
    """Try a kernel that is named as an exercise, on the problems of that exercise."""
    from kernels.lab.course import exercises

    result = exercises.check(kernel)
    print(f"the exercise {exercises.text(exercises.name_of(kernel))}\n\n{result}")
    if result.report is not None:
        print()
        _print(result.report, gpu)
        _save(args, [result.report])
    return 0 if result else 1


def _is_exercise(kernel: Any) -> bool:
    from kernels.lab.course import exercises

    return exercises.name_of(kernel) in exercises.names()


def _must_be_a_file(path: Path) -> None:
    if not path.is_file():
        is_folder = " (it is a folder; name the file in it)" if path.is_dir() else ""
        raise CommandError(f"there is no file {path}{is_folder}")


def _load(path: Path) -> ModuleType:
    _must_be_a_file(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # as `import` does; `inspect` needs it
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CommandError(
            f"{path} raises {type(error).__name__} when it is imported: {error}"
        ) from None
    finally:
        sys.path.remove(str(path.parent))
    return module


def _kernel(module: ModuleType, path: str, name: str) -> tuple[str, Any]:
    """The kernel `name`, or the only kernel of the module."""
    from kernels.host import RawKernel

    kernels = {
        key: value
        for key, value in vars(module).items()
        if (hasattr(value, "py_func") and not getattr(value, "device", False))
        or isinstance(value, RawKernel)
    }
    name = _chosen(path, name, list(kernels), "@cuda.jit")
    return name, kernels[name]


def _kernel_of_cuda_c(path: str, name: str) -> tuple[str, Any]:
    """The kernel `name` of a .cu file, which may include files from its folder."""
    from kernels import raw_kernel
    from kernels.host import source

    _must_be_a_file(Path(path))
    try:
        code = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not a text in UTF-8") from None
    plain = name.partition("<")[0].rpartition("::")[2].strip()
    _chosen(path, plain, list(source.kernels(code)), "__global__")
    name = name or next(iter(source.kernels(code)))
    include = (f"-I{Path(path).resolve().parent}",)
    together = source.waits_for_grid(code, name)
    return name, raw_kernel(code, name, include, enable_cooperative_groups=together)


def _chosen(path: str, name: str, kernels: list[str], mark: str) -> str:
    """The name of the kernel to run; CommandError if the file doesn't have it."""
    there = f"its kernels are {', '.join(kernels)}" if kernels else f"it has none ({mark})"
    if not name and len(kernels) == 1:
        return kernels[0]
    if not name:
        raise CommandError(f"which kernel of {path}? say {path}::NAME; {there}")
    if name not in kernels:
        raise CommandError(f"{path} has no kernel {name!r}; {there}{did_you_mean(name, kernels)}")
    return name


def _launch(args: argparse.Namespace, module: ModuleType | None, path: str, name: str, kernel: Any):
    """(grid, block, arguments, shared bytes), from the command line or from the file; None for a
    kernel that is named as an exercise, where neither says it."""
    if args.args is not None or args.grid or args.block:
        if args.args is None or not args.grid or not args.block:
            raise CommandError("--grid, --block and --args go together")
        given = [_argument(text) for text in args.args]
        return (
            _numbers("--grid", args.grid),
            _numbers("--block", args.block),
            given,
            args.shared or 0,
        )
    for example in (f"{_EXAMPLE}_{name}", _EXAMPLE):
        if callable(getattr(module, example, None)):
            made = getattr(module, example)()
            if not isinstance(made, tuple) or len(made) not in (3, 4):
                raise CommandError(
                    f"{path}: {example}() must return (grid, block, args), or (grid, block, args,"
                    f" shared bytes); it returned {type(made).__name__}"
                )
            return (*made, 0)[:4] if args.shared is None else (*made[:3], args.shared)
    if _is_exercise(kernel):
        return None
    names = _parameters(kernel)
    either = (
        f"define in {path}\n    def {_EXAMPLE}():\n"
        f"        return grid, block, ({', '.join(names)},)\nor pass options"
    )
    raise CommandError(
        f"{name}({', '.join(names)}) has no launch configuration: "
        f"{either if module else 'pass options'}, for example"
        " --grid 4 --block 256 --args " + " ".join("'float32[1000]'" for _ in names)
    )


def _parameters(kernel: Any) -> list[str]:
    """The names of a kernel's parameters."""
    if hasattr(kernel, "py_func"):
        code = kernel.py_func.__code__
        return list(code.co_varnames[: code.co_argcount])
    from kernels.lab.record.cuda_c_profiler import parameters

    return parameters(kernel)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in re.split(r"[,x]", text))
    except ValueError:
        raise CommandError(f"{option}: expected 256 or 16,16, got {text!r}") from None


def _argument(text: str) -> Any:
    """A kernel argument from its description."""
    import numpy as np

    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    found = _ARRAY.fullmatch(text.replace(" ", ""))
    try:
        how, dtype, shape = found.groups()
        dtype = np.dtype(dtype)
        sizes = tuple(int(size) for size in shape.split(","))
    except (AttributeError, TypeError, ValueError):
        raise CommandError(
            f"--args: expected a number, or an array as float32[64,64], zeros:float32[64] or"
            f" arange:int64[64], got {text!r}"
        ) from None
    try:
        if how == "zeros":
            return np.zeros(sizes, dtype)
        if how == "arange" or (how is None and dtype.kind in "iu"):
            return np.arange(math.prod(sizes)).astype(dtype).reshape(sizes)
        return np.random.default_rng(0).random(sizes).astype(dtype)
    except (MemoryError, ValueError) as error:  # too large, or a negative size
        raise CommandError(f"--args: {text}: {error}") from None


def _save(args: argparse.Namespace, reports: list) -> None:
    """Write the files of --html, --png and --json; with several reports, one numbered file each."""
    if args.open and reports:
        args.html = args.html or str(Path(tempfile.mkdtemp(prefix="minigrad-lab-")) / "steps.html")
    for option in ("html", "png", "json"):
        target = getattr(args, option)
        if target is None:
            continue
        for number, report in enumerate(reports, 1):
            path = Path(target)
            if len(reports) > 1:
                path = path.with_stem(f"{path.stem}-{number}")
            try:
                if option == "html":
                    report.save_html(path)
                elif option == "png":
                    report.save_png(path)
                else:
                    path.write_text(report.json(), encoding="utf-8")
            except (OSError, RuntimeError, ValueError) as error:
                raise CommandError(f"--{option} {path}: {error}") from None
            print(f"saved {path}")
    if args.open and reports:
        last = Path(args.html).with_stem(f"{Path(args.html).stem}-{len(reports)}")
        webbrowser.open((last if len(reports) > 1 else Path(args.html)).resolve().as_uri())
