"""The interpreter: runs kernels thread by thread in Python, as a fallback and to step through."""
