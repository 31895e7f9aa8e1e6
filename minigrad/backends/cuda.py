"""How kernels on a GPU compute: `backends.cuda.matmul.allow_tf32`."""

from __future__ import annotations

import importlib
import importlib.util

from minigrad._names import namespace


class _MatMul:
    """Flags of the matrix product."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may round their inputs to TF32 on tensor cores."""
        return _precision().get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _precision().set_float32_matmul_precision("high" if value else "highest")


def _precision():
    return importlib.import_module("kernels.launchers.matmul")


matmul = _MatMul()


def is_built() -> bool:
    """Whether CuPy, which holds arrays on a GPU, is installed."""
    return importlib.util.find_spec("cupy") is not None


__getattr__, __dir__ = namespace(__name__)
