"""From the plan of a block to the text of a Python module that Numba compiles."""
