"""numba-cuda hands the driver PTX, where it would make machine code of it by NVIDIA's assembler.

The one place where it decides that is `CUDACodeLibrary.get_cubin`.
"""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Replace `CUDACodeLibrary.get_cubin`; without numba-cuda nothing."""
    try:
        from numba.cuda.codegen import CUDACodeLibrary
    except ImportError:
        return
    from cuda.core import ObjectCode
    from numba.cuda.cudadrv.driver import _Linker

    def get_cubin(self: Any, cc: Any = None) -> Any:
        cc = self._ensure_cc(cc)
        if cc not in self._cubin_cache:
            texts = [self.get_asm_str(cc=cc), *(linked(f, cc) for f in self._linking_files)]
            self._cubin_cache[cc] = ObjectCode.from_ptx("\n".join(texts).encode())
        return self._cubin_cache[cc]

    def linked(file: Any, cc: Any) -> str:
        """CUDA C that a kernel is linked with (functions of bfloat16) as PTX, compiled once."""
        key = getattr(file, "data", file), cc
        if key not in made:
            linker = _Linker(cc=cc, lto=False)
            linker.add_file_guess_ext(file, False)
            made[key] = "\n".join(o.code.decode() for o in linker._object_codes).replace("\0", "")
        return made[key]

    made: dict[tuple, str] = {}

    CUDACodeLibrary.get_cubin = get_cubin
