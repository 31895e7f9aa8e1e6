"""`python -m benchmarks.readme_programs`: what it compares, and that it finds differences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAME = """\
import torch
net = torch.nn.Sequential(torch.nn.Linear(1024, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
net(torch.randn(8, 1024))
"""
OTHER_VALUES = """\
scale = 1.01 if "minigrad" in torch.__version__ else 1.0
class Scaled(torch.nn.Linear):
    def forward(self, x): return super().forward(x.detach()) * scale
Scaled(4, 4)(torch.rand(2, 4))
"""
FAILS = "if 'minigrad' in torch.__version__: raise KeyError('lost')"
NOT_EVEN_TORCH = "nonsense()"


@pytest.mark.needs("torch")
def test_programs_of_a_package(tmp_path):
    info = tmp_path / "some_package-1.0.dist-info"
    info.mkdir()
    programs = [SAME, OTHER_VALUES, FAILS, NOT_EVEN_TORCH]
    text = "\n".join(f"```python\n{source}\n```" for source in programs)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Some-Package\n\n{text}\n")
    command = [sys.executable, "-m", "benchmarks.readme_programs", str(tmp_path), "some-package"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    *problems, total = done.stdout.splitlines()
    assert total == "some-package: 1 of 3 programs agree"
    assert problems[0].startswith("some-package 1: Scaled: output 0: 0.0")
    assert problems[-1] == "some-package 2: KeyError: 'lost'"
    assert any("gradient of weight" in problem for problem in problems)
