"""Where the processor time of the tests goes, from the report that pytest writes:

.venv/bin/python -m pytest -q -n auto --dist worksteal --junitxml=times.xml
.venv/bin/python tests/times.py times.xml

A test's time is its own and that of the programs that it waited for; other programs on the machine
hardly change it.
"""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree

SLOWEST = 20


def place(case: ElementTree.Element) -> str:
    """The folder of a test, or its file in `tests`."""
    parts = case.get("classname", "").split(".")
    return "/".join(parts[: 3 if parts[1] in ("simt", "lab") else 2])


def processor(case: ElementTree.Element) -> float:
    """Seconds of processor time, which tests/conftest.py notes."""
    noted = case.find("properties/property[@name='processor']")
    return 0.0 if noted is None else float(noted.get("value", 0))


def folders(cases: list[ElementTree.Element]) -> list[tuple[str, int, float]]:
    """(folder, number of tests, seconds), the longest first."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in cases:
        seconds[place(case)] += processor(case)
        tests[place(case)] += not case.findall("skipped")
    return [(where, tests[where], time) for where, time in seconds.most_common()]


if __name__ == "__main__":
    cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
    total = sum(map(processor, cases))
    print("| folder | tests | seconds | share |\n|---|---:|---:|---:|")
    for where, count, time in folders(cases):
        print(f"| `{where}` | {count} | {time:.0f} | {time / total:.0%} |")
    print(f"| together | {sum(not c.findall('skipped') for c in cases)} | {total:.0f} | 100% |\n")
    for case in sorted(cases, key=processor, reverse=True)[:SLOWEST]:
        print(f"{processor(case):6.1f} {case.get('classname')}::{case.get('name')}")
