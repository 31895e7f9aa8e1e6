"""Writes CuPy's index of names, and the page that lists which of them are here.

    python docs/site/cupy_index.py           docs/cupy-names.md, from kernels/cupy/index.txt
    python docs/site/cupy_index.py --index   kernels/cupy/index.txt, from an installed CuPy

The second needs CuPy, but no GPU.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parents[2]
INDEX, PAGE = ROOT / "kernels/cupy/index.txt", ROOT / "docs/cupy-names.md"
MODULES = """cupy cupy.fft cupy.linalg cupy.random cupy.polynomial.polynomial
cupy.polynomial.polyutils cupyx cupyx.linalg cupyx.signal cupyx.scipy.fft cupyx.scipy.fftpack
cupyx.scipy.interpolate cupyx.scipy.linalg cupyx.scipy.ndimage cupyx.scipy.signal
cupyx.scipy.signal.windows cupyx.scipy.sparse cupyx.scipy.sparse.csgraph cupyx.scipy.sparse.linalg
cupyx.scipy.spatial cupyx.scipy.spatial.distance cupyx.scipy.special cupyx.scipy.stats""".split()
NUMPY, SCIPY = "2.1", "1.17"  # the oldest that have all names on the page
DROPPED = ("btdtr", "btdtri", "sph_harm")  # by SciPy: only an old one has them


# --- the index, from CuPy


def import_cupy() -> None:
    """Import CuPy where its CUDA libraries are missing: nothing of them is called."""
    warnings.simplefilter("ignore")
    for name in ("cublas", "cusolver", "cusparse", "curand", "cufft"):
        module = f"cupy_backends.cuda.libs.{name}"
        try:
            importlib.import_module(module)
        except ImportError:
            sys.modules[module] = MagicMock(__spec__=None)
    pathfinder = importlib.import_module("cuda.pathfinder")
    library = SimpleNamespace(abs_path="", _handle_uint=0)
    pathfinder.load_nvidia_dynamic_lib = lambda *args, **options: library


def default(value: Any) -> str:
    """A default as it is written: types by their names."""
    if isinstance(value, type):
        plain = value in (float, int, bool, complex)
        return value.__name__ if plain else repr(value.__name__)
    return repr(value)


def signature(function: Any) -> str:
    """The parameters of a function without annotations."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "(*args, **kwargs)"
    parts, starred = [], False
    for p, following in zip(parameters, [*parameters[1:], None]):
        starred |= p.kind is p.VAR_POSITIONAL
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(stars + p.name + ("" if p.default is p.empty else f"={default(p.default)}"))
        ends = following is None or following.kind is not p.POSITIONAL_ONLY
        if p.kind is p.POSITIONAL_ONLY and ends:
            parts.append("/")
    return f"({', '.join(parts)})"


def described(value: Any, ufunc: type) -> str:
    if isinstance(value, ufunc):
        return "ufunc " + " ".join(value.types)
    if isinstance(value, ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return f"function {signature(value)}" if callable(value) else "value"


def index() -> str:
    """A line per name of CuPy."""
    import_cupy()
    ufunc = importlib.import_module("cupy").ufunc
    lines = []
    for name in MODULES:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
        for key in sorted(public):
            value = getattr(module, key)
            inner = isinstance(value, ModuleType)
            own = inner and name in ("cupy", "cupyx") and value.__name__.startswith(f"{name}.")
            if key != "annotations" and (own or not inner):
                lines.append(f"{name} {key} {described(value, ufunc)}")
    return "\n".join(lines) + "\n"


# --- the page, from the index


def missing(module: str) -> tuple[int, list[str]]:
    """(how many names of a module there are in CuPy, those that are not here)."""
    from kernels.cupy._index import entries

    names = entries(module)
    try:
        ours = importlib.import_module(f"kernels.{module}")
    except ModuleNotFoundError:
        return len(names), list(names)
    return len(names), [n for n in names if n in DROPPED or not hasattr(ours, n)]


def page() -> str:
    rows, sums = [], {"cupy": [0, 0], "cupyx": [0, 0], "cupyx.scipy": [0, 0]}
    for module in MODULES:
        count, absent = missing(module)
        listed = ", ".join(f"`{name}`" for name in absent) or "none"
        rows.append(f"| `{module}` | {count - len(absent)} of {count} | {listed} |")
        part = "cupyx.scipy" if module.startswith("cupyx.scipy") else module.split(".")[0]
        sums[part][0] += count - len(absent)
        sums[part][1] += count
    totals = ", ".join(
        f"{there} of {count} of `{part}` ({there / count:.1%})"
        for part, (there, count) in sums.items()
    )
    return f"""# The names of CuPy

Which names of CuPy 14.2 are in `kernels.cupy` and `kernels.cupyx`, by CuPy's own index. A name that
is missing raises an error that says so; `cupy.cuda` is not in the index. Before NumPy {NUMPY} and
SciPy {SCIPY} some more are missing. `python docs/site/cupy_index.py` writes this page.

In all: {totals}.

| module | there | missing |
| --- | --- | --- |
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    if "--index" in sys.argv:
        INDEX.write_text(index())
    else:
        sys.path.insert(0, str(ROOT))
        PAGE.write_text(page())
