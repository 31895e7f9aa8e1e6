"""Runs the programs of this folder one after the other and saves what each computed."""

import importlib
import sys

import numpy as np

folder, *names = sys.argv[1:]
for name in names:
    print(f"--- {name}")
    np.savez(f"{folder}/{name}.npz", **importlib.import_module(name).main([]))
