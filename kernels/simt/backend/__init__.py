"""From a generated Python module to machine code, through Numba and LLVM."""
