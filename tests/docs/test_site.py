"""The documentation: a site that builds without warnings, and files that say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMMANDS = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.needs("mkdocs")
def test_the_site_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["-f", str(DOCS / "site" / "mkdocs.yml"), "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    for path in [*DOCS.glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]:
        folder = "notebooks" if path.suffix == ".ipynb" else "."
        assert (tmp_path / folder / path.stem / "index.html").exists(), path
    assert "gradcheck" in (tmp_path / "api" / "minigrad.autograd" / "index.html").read_text()


def test_links_between_files_lead_somewhere():
    for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([\w./-]+\.\w+)(?:#[\w-]+)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_paths_in_the_pages_exist():
    for path in DOCS.glob("*.md"):
        for name in re.findall(
            r"`((?:minigrad|kernels|benchmarks|tests|docs)/[\w/.]*)`", path.read_text()
        ):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_every_notebook_links_to_the_glossary():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert "(../docs/glossary.md" in path.read_text(), path.name


def test_every_term_of_the_glossary_has_a_number_or_an_example():
    terms = re.split(r"^### ", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(terms) > 40
    lacking = [t.splitlines()[0] for t in terms if not re.search(r"\d|`|such as", t)]
    assert lacking == []


def test_the_changelog_begins_with_this_version():
    newest = re.search(r"^## (\S+)", (DOCS / "changelog.md").read_text(), re.MULTILINE)
    assert newest[1] == minigrad.__version__


def test_contributing_has_the_test_command():
    assert COMMANDS[1] in (DOCS / "contributing.md").read_text()


def read(path: str) -> dict:
    import yaml

    return yaml.safe_load((ROOT / path).read_text())


def jobs() -> dict:
    return read(".github/workflows/ci.yml")["jobs"]


def steps(job: dict) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.needs("yaml")
def test_the_workflow_runs_the_two_commands_of_the_readme():
    assert steps(jobs()["commands"]) == COMMANDS
    oldest = jobs()["commands"]["strategy"]["matrix"]["python"][0]
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()
    assert [name for name, job in jobs().items() if job.get("continue-on-error")] == []


@pytest.mark.needs("yaml")
def test_the_workflow_lints_as_the_commit_hook_does():
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff-check", "ruff-format"]
    assert steps(jobs()["lint"])[1:] == ["ruff check .", "ruff format --check ."]


@pytest.mark.needs("yaml")
def test_the_workflow_builds_the_site_as_contributing_says():
    assert steps(jobs()["site"])[-1] in (DOCS / "contributing.md").read_text()
