"""Where the time of the tests goes, from the report that pytest writes:

.venv/bin/python -m pytest -q -n auto --dist worksteal --junitxml=times.xml
.venv/bin/python tests/times.py times.xml
"""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree


def folders(report: str) -> list[tuple[str, int, float]]:
    """(folder, number of tests, seconds), the longest first."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        place = "/".join(parts[: 3 if parts[1] in ("simt", "lab") else 2])
        seconds[place] += float(case.get("time", 0))
        tests[place] += not case.findall("skipped")
    return [(place, tests[place], time) for place, time in seconds.most_common()]


if __name__ == "__main__":
    found = folders(sys.argv[1])
    total = sum(time for _, _, time in found)
    print("| folder | tests | seconds | share |\n|---|---:|---:|---:|")
    for place, count, time in found:
        print(f"| `{place}` | {count} | {time:.0f} | {time / total:.0%} |")
    print(f"| together | {sum(count for _, count, _ in found)} | {total:.0f} | 100% |")
