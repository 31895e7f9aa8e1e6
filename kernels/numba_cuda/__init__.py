"""Dialect 1: the kernels as Numba CUDA, compiled for the CPU by `kernels.simt` or run on a GPU.

One file per family: its versions in order from naive to fast, each with the one idea that it adds.
Checks, allocation and the choice of a version are in `kernels.launchers`. The functions are
those of `kernels.reference`; where a family has a ladder they also take `version=`.
"""

from kernels import launchers

globals().update(launchers.bind(__name__))
