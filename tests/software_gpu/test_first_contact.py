"""The command for a GPU that is seen for the first time, on the software GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import first_contact

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "first_contact.py"), "--software"]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="fine"/>
<testcase classname="tests.a" name="wrong[1]"><failure message="3 is not 4">log</failure></testcase>
<testcase classname="tests.a" name="wrong[2]"><failure message="3 is not 4">log</failure></testcase>
<testcase classname="tests.a" name="broken"><error message="no module">log</error></testcase>
<testcase classname="tests.a" name="left"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


def results(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.needs("numba_cuda", "cupy", "nvidia")
@pytest.mark.parametrize(
    "only", [["doctor", "devices", "launches"], pytest.param([], marks=pytest.mark.slow)], ids=len
)
def test_it_runs_and_writes_a_page(tmp_path, only):
    chosen = ["--only", *only] if only else ["--minutes", "30"]
    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path), *chosen], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(tmp_path)
    ended = {r["phase"]: r["status"] for r in found if "phase" in r}
    assert set(only) <= set(ended) and set(ended.values()) == {0}
    assert any(r.get("passed") for r in found)
    page = (tmp_path / "page.md").read_text()
    assert "0 failed" in page and "the times mean nothing" in page


def test_failures_of_tests_come_first_and_in_groups(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRST_CONTACT_OUT", str(tmp_path))
    (tmp_path / "tests.xml").write_text(JUNIT)
    first_contact.note_tests(tmp_path / "tests.xml")
    first_contact.note_tests(tmp_path / "missing.xml")
    first_contact.note(phase="step", status="no end within 9 s", seconds=9, log="step.log")
    first_contact.note(left_out="lab")
    page = first_contact.page(tmp_path, software=True)
    assert "3 failed, 1 passed.\nPhases that did not end well: step (no end within 9 s).\n" in page
    assert "No time was left for: lab.\n" in page
    assert page.index("- 2 x 3 is not 4") < page.index("- 1 x no module") < page.index("## Phases")
    assert '"test": "tests.a::wrong[2]"' in page


def test_tests_that_are_cut_by_their_limit_leave_what_ran(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRST_CONTACT_OUT", str(tmp_path))
    (tmp_path / "test_slow.py").write_text(
        "import time\ndef test_a(): pass\ndef test_b(): assert 3 == 4\n"
        "def test_c(): time.sleep(60)\n"
    )
    junit = tmp_path / "tests.xml"
    options = [
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        f"--junitxml={junit}",
        f"--rootdir={tmp_path}",
    ]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_slow.py")]
    phase = first_contact.Phase("tests", command, 1)
    ended = first_contact.run(phase, tmp_path, 16, software=False)
    assert ended["status"] == "no end within 16 s" and ended["seconds"] < 16
    first_contact.note_tests(junit)
    assert [r["passed"] for r in results(tmp_path)] == [True, False]
