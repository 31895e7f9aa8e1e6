"""Kernels run thread by thread in Python: what is not compiled, and the stepper of the lab."""
