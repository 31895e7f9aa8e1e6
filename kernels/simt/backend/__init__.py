"""The back end: a generated Python module becomes machine code, through Numba and LLVM.

This is the only package that uses or overrides undocumented parts of Numba, llvmlite and
numba-cuda; a test of the architecture holds everything else to what they document.
`.ci/numba_versions` runs the compiler's tests with the oldest and the newest Numba that
`pyproject.toml` allows.
"""
