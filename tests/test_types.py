"""Type hints: mypy finds no more than it did, and type checkers see the methods of Tensor."""

from __future__ import annotations

import json
import re

import pytest

from tests import findings, methods


def test_findings_are_counted_by_package():
    output = "a/b/c.py:1: error: x  [misc]\na/b/c.pyi:2: error: y\na/d.py:7: note: z\nerror: w\n"
    assert {name: len(lines) for name, lines in findings.by_package(output).items()} == {"a/b": 2}


def test_methods_and_functions_are_listed():
    assert methods.STUB.read_text() == methods.text(), "run `python tests/methods.py`"
    assert methods.FUNCTIONS_STUB.read_text() == methods.functions(), "run tests/methods.py"


REVEALED = {
    "x": "Tensor",
    "x @ x.T": "Tensor",
    "1 - x": "Tensor",
    "x == 1": "Tensor",
    "+x": "Tensor",
    "x.sum(dim=1, keepdim=True)": "Tensor",
    "x.view(-1)": "Tensor",
    "x.scatter_(1, x.long(), 1.0)": "Tensor",
    "x.shape": "Size",
    "x.dtype": "dtype",
    "minigrad.cat([x, x])": "Tensor",
    "minigrad.acos(x)": "Tensor",
    "minigrad.arange(3)": "Tensor",
    "minigrad.linalg.inv(x)": "Tensor",
    "nn.functional.relu(x)": "Tensor",
    "nn.Linear(2, 3)": "Linear",
    "nn.Linear(2, 3).weight": "Parameter",
    "minigrad.optim.Adam([x])": "Adam",
    "minigrad.utils.data.DataLoader([1])": "DataLoader",
    "minigrad.vision.transforms.Compose([])": "Compose",
    "minigrad.cuda.memory_allocated()": "int",
}


@pytest.mark.needs("mypy")
def test_no_package_has_more_findings_and_programs_see_types(tmp_path):
    """One run of mypy, which takes half a minute, for both: what it finds in the packages, and
    whether a program sees the types of methods, functions, layers and lazily imported modules."""
    program = tmp_path / "program.py"
    lines = ["import minigrad", "from minigrad import nn", "x = minigrad.randn(3, 3)"]
    program.write_text("\n".join([*lines, *(f"reveal_type({text})" for text in REVEALED)]))
    output = findings.run_mypy("minigrad", "kernels", str(program))

    revealed = re.findall(r'Revealed type is "([^"]*)"', output)
    assert [name.rpartition(".")[2] for name in revealed] == [*REVEALED.values()], output
    if problem := findings.uncounted():
        pytest.skip(problem)
    found = findings.by_package(output)
    allowed = json.loads(findings.COUNTS.read_text())
    more = [
        line for name, lines in found.items() for line in lines if len(lines) > allowed.get(name, 0)
    ]
    assert not more, "\n".join(["more findings than tests/findings.json allows:", *more])
    counts = {name: len(found.get(name, ())) for name in allowed}
    assert counts == allowed, "fewer findings: `python tests/findings.py` writes the new counts"
