"""CuPy's own index of names: what each one is, as CuPy 14.2 lists it.

`index.txt` has a line per name: its module, the name, its kind, and the signature of a function or
the types of a ufunc. `docs/site/cupy_index.py` writes it from an installed CuPy.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """A name of CuPy. `kind`: function, ufunc, class, value or module; `text`: the signature of a
    function, or the types of a ufunc ("ff->f dd->d")."""

    kind: str
    text: str


@cache
def _lines() -> list[str]:
    return (Path(__file__).parent / "index.txt").read_text(encoding="utf-8").splitlines()


@cache
def entries(module: str) -> dict[str, Entry]:
    """The names of a module of CuPy, such as "cupy" or "cupyx.scipy.special"."""
    found = {}
    for line in _lines():
        if line.startswith(f"{module} "):
            _, name, kind, *text = line.split(" ", 3)
            found[name] = Entry(kind, text[0] if text else "")
    return found


def modules() -> list[str]:
    """The modules in the index, in order."""
    return list(dict.fromkeys(line.split(" ", 1)[0] for line in _lines()))
