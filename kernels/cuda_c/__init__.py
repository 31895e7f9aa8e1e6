"""Dialect 2: the kernels in CUDA C, run by CuPy on a GPU or compiled for the CPU by `kernels.host`.

One .cu file a family: its versions in order from naive to fast, each with the one idea it adds;
beside it a module that says how each kernel is launched. The functions are those of
`kernels.reference`; where a family has a ladder they also take `version=`.
"""

from kernels import launchers

globals().update(launchers.bind(__name__))
