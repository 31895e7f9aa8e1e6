"""The lab's packages stand one on the other: nothing imports from a later one, and no two files
import each other."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.test_architecture import ROOT, imported, sources

ORDER = ("draw", "gpu_model", "report", "record", "course")  # bottom to top
LAB = "kernels.lab."


def arrows(path) -> set[str]:
    """The modules of the lab that a file imports, in any form, without `kernels.lab.`"""
    return {name.removeprefix(LAB) for name in imported(path) if name.startswith(LAB)}


def module(path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix(LAB)


FILES = {module(path): path for path in sources("kernels/lab") if path.parent.name != "lab"}


def test_every_file_is_in_a_package():
    assert {name.partition(".")[0] for name in FILES} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_earlier_ones_only(package):
    later = ORDER[ORDER.index(package) + 1 :]
    wrong = [
        f"{name} imports {other}"
        for name, path in FILES.items()
        if name.split(".")[0] == package
        for other in sorted(arrows(path))
        if other.split(".")[0] in later
    ]
    assert wrong == []


def test_no_circles():
    graph = {name: arrows(path) & set(FILES) for name, path in FILES.items()}
    assert any(graph.values())
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")
