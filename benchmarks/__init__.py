"""The benchmarks: `python -m benchmarks.NAME`, or `python benchmarks/NAME.py` from any folder.

A script finds `measure` beside itself; this lets modules of the package find it in the same way. So
no file here may have the name of a package that something imports, such as `coverage`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
