"""Type hints: mypy finds no more than it did, and type checkers see the methods of Tensor."""

from __future__ import annotations

import json

import pytest

from tests import findings, methods


@pytest.mark.needs("mypy")
def test_no_package_has_more_findings():
    found = findings.by_package(findings.run_mypy())
    allowed = json.loads(findings.COUNTS.read_text())
    more = [
        line for name, lines in found.items() for line in lines if len(lines) > allowed.get(name, 0)
    ]
    assert not more, "\n".join(["more findings than tests/findings.json allows:", *more])
    counts = {name: len(found.get(name, ())) for name in allowed}
    assert counts == allowed, "fewer findings: `python tests/findings.py` writes the new counts"


def test_findings_are_counted_by_package():
    output = "a/b/c.py:1: error: x  [misc]\na/b/c.pyi:2: error: y\na/d.py:7: note: z\nerror: w\n"
    assert {name: len(lines) for name, lines in findings.by_package(output).items()} == {"a/b": 2}


def test_the_methods_of_tensor_are_listed():
    assert methods.STUB.read_text() == methods.text(), "run `python tests/methods.py`"
