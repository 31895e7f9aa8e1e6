"""Recording a step looks for tensors among all objects of the process (minigrad/compiler/lift.py):
in a process that ran thousands of tests, among millions. Those of earlier files are left out."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> None:
    gc.collect()
    gc.freeze()
