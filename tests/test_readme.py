"""The README's programs run and print what it says; its commands are those that CI runs."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SEPARATOR = "=== end of block {} ==="


def blocks() -> list[tuple[str, str]]:
    """The (program, output) pairs: each python block and the text block that follows it."""
    return re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", README, re.DOTALL)


def test_every_python_block_has_its_output():
    assert len(blocks()) == README.count("```python") >= 4


def test_the_programs_print_what_the_readme_says(tmp_path):
    """All blocks in order, as one program: kernels need a source file to be read from."""
    program = "\n".join(
        f"{code}\nprint({SEPARATOR.format(number)!r})" for number, (code, _) in enumerate(blocks())
    )
    path = tmp_path / "readme.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    rest = done.stdout
    for number, (code, expected) in enumerate(blocks()):
        got, _, rest = rest.partition(SEPARATOR.format(number) + "\n")
        matches = doctest.OutputChecker().check_output(expected, got, OPTIONS)
        assert matches, f"{code}\nprinted\n{got}\nand the README says\n{expected}"


def test_the_first_program_is_a_dozen_lines():
    code, _ = blocks()[0]
    assert len(code.splitlines()) <= 18
    assert README.index("```python") < README.index("-m venv")


def commands() -> list[str]:
    return re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)


def test_there_are_two_commands_and_ci_runs_the_second():
    first, second = commands()
    assert first.endswith("minigrad train")
    assert "-m pytest" in second
    ci = (ROOT / ".ci" / "run").read_text()
    assert "grep -m 1 -- '-m pytest' README.md" in ci
    assert 'tests "With what the README\'s command installs" "$bare"' in ci
    # What the grep finds is the command, not a sentence about it.
    assert next(line for line in README.splitlines() if "-m pytest" in line) == second


def test_the_readme_names_what_there_is():
    """Every MINIGRAD_ variable that the sources read is documented, and no other."""
    documented = set(re.findall(r"MINIGRAD_[A-Z_]+", README))
    used = set()
    for folder in ("minigrad", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"[\"'](MINIGRAD_[A-Z_]+)[\"']", path.read_text()))
    assert documented == used
    for path in re.findall(r"`((?:minigrad|kernels|benchmarks|tests)/[\w/.]*)`", README):
        assert (ROOT / path).exists(), path
