"""Whether `kernels` is the package that comes with minigrad: another on PyPI has that name too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

try:
    from kernels import catalog as _ours  # noqa: F401 - the other package has no such name
except ImportError as error:
    spec = importlib.util.find_spec("kernels")
    found = Path(spec.origin) if spec and spec.origin else None
    expected = Path(__file__).parents[1] / "kernels" / "__init__.py"
    if found == expected and error.name != "kernels":
        raise  # a module that our package needs is missing
    raise ImportError(
        f"minigrad needs the package `kernels` that it is installed with ({expected.parent}), but"
        f" `import kernels` finds {found or 'none of its files'}. Hugging Face's package `kernels`"
        " installs the same name, and one environment cannot hold both: make an environment for"
        " minigrad (python3 -m venv), or remove the other (pip uninstall kernels) and then install"
        " minigrad again",
        name="kernels",
    ) from error
