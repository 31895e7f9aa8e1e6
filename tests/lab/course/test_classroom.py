"""A folder of submissions: right and wrong ones, and ones that would harm the judge."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

from kernels.lab.course import classroom, exercises, progress
from minigrad import cli
from tests.lab.course import submissions

CASES = {**submissions.RIGHT, **submissions.WRONG, **submissions.HARMFUL}


def test_there_are_forty():
    assert len(CASES) + len(submissions.ENDLESS) >= 40


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict[str, classroom.Submission]:
    folder = tmp_path_factory.mktemp("class")
    submissions.write(folder, CASES)
    (folder / "ada").mkdir()
    (folder / "ada" / "work.py").write_text(CASES["right"].text)
    (folder / "ada" / "zero.py").write_text("def saxpy(a, x")
    (folder / "readme.txt").write_text("no submission")
    (folder / "linked.py").symlink_to("right.py")
    (folder / "everyone").symlink_to(folder)
    forkserver._forkserver._stop()  # that of the notebooks would cost 2 s for each submission
    found = classroom.judge(folder, submissions.EXERCISES, seconds=200, gigabytes=2)
    return {one.student: one for one in found}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limits of memory")
@pytest.mark.parametrize("name", CASES)
def test_the_judge_says_of_each(judged, name):
    case, found = CASES[name], judged[name]
    assert found.points == case.points, found
    said = "\n".join([found.problem, *(one.hint for one in found.verdicts.values())])
    assert case.said in said, said
    if name in submissions.RIGHT:
        assert found.problem == ""
    assert not (Path.home() / "minigrad-was-here").exists()


def test_a_file_that_cannot_be_loaded_does_not_cost_the_others(judged):
    assert set(judged) == {*CASES, "ada", "linked", "everyone"}
    assert judged["ada"].verdicts["add_ten"].file == "work.py"
    assert judged["ada"].points == 1
    assert judged["ada"].problem.startswith("zero.py: SyntaxError")


@pytest.mark.parametrize("name", ["linked", "everyone"])
def test_a_link_to_other_submissions_is_none(judged, name):
    assert judged[name].points == 0
    assert judged[name].problem.startswith("it links to another submission, ")


def test_time_is_limited(tmp_path):
    submissions.write(tmp_path, submissions.ENDLESS)
    for one in classroom.judge(tmp_path, ["add_ten"], seconds=3):
        assert one.problem.startswith("more than 3 seconds: ")
        assert submissions.ENDLESS[one.student].said in one.problem


def test_a_program_that_used_the_server_of_forks_before(tmp_path):
    """Then the judge's modules are not preloaded, and the time for that is no submission's."""
    for name, case in (("right", CASES["right"]), ("endless", submissions.ENDLESS["endless"])):
        (tmp_path / name).mkdir()
        submissions.write(tmp_path / name, {name: case})
    program = f"""
import multiprocessing, pathlib
from kernels.lab.course import classroom
before = multiprocessing.get_context("forkserver").Process(target=int)
before.start()
before.join()
for name, seconds in ("right", 60), ("endless", 0.5):
    for one in classroom.judge(pathlib.Path({str(tmp_path)!r}) / name, ["add_ten"], seconds):
        print(one.points, one.problem)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    right, endless = run.stdout.splitlines()
    assert right == "1 ", run.stdout + run.stderr
    assert endless == "0 more than 0.5 seconds: stopped while endless.py was loaded"


def test_students_have_data_of_their_own(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        exercises,
        "check",
        lambda kernel, name, seed: seeds.append(seed) or exercises.Result(True, ""),
    )
    for student in ("ada", "bob", "ada"):
        classroom._verdict("saxpy", None, Path("x.py"), student)
    assert seeds[0] == seeds[2] != seeds[1]


def test_the_command_writes_points_and_hints(tmp_path, capsys):
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "ada.py").write_text(CASES["right"].text)
    (folder / "bob.py").write_text(CASES["early"].text)
    (folder / "dan").mkdir()
    (folder / "eve.cu").write_text(CASES["cuda-c"].text.replace("int i", "int j"))
    table, verdicts = tmp_path / "points.csv", tmp_path / "verdicts.json"
    command = ["course", "check", str(folder), "--exercises", "add_ten", "saxpy"]
    assert cli.main([*command, "--csv", str(table), "--json", str(verdicts)]) == 0
    printed = capsys.readouterr().out
    assert "ada   1 of 2  add_ten" in printed
    assert "add_ten: 1 element was never written" in printed
    assert re.search(r"dan +0 of 2\n +LookupError: no kernel in it", printed)
    assert re.search(r"add_ten does not compile: .i. was not declared", printed)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(r["student"], r["add_ten"], r["saxpy"], r["points"]) for r in rows] == [
        ("ada", "1", "", "1"),
        ("bob", "0", "", "0"),
        ("dan", "", "", "0"),
        ("eve", "0", "", "0"),
    ]
    assert json.loads(verdicts.read_text())[0]["verdicts"]["add_ten"]["passed"] is True


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check", "nowhere"], "there is no folder nowhere"),
        (["check", __file__], "it is a file; name the folder that holds it"),
        (["check", "."], "has no submissions"),
        (["check", ".", "--exercises", "adten"], "no exercise 'adten'; did you mean add_ten?"),
        (["check", ".", "--seconds", "0"], "must be positive"),
        (["show", "saxpi"], "no exercise 'saxpi'; did you mean saxpy?"),
        (["show", "wmma_matmul", "--dialect", "numba"], "wmma_matmul is for cuda_c"),
        (["hint", "saxpy", "9"], "saxpy has hints 1 to 2, not 9"),
        (["assignment", "nowhere/a.ipynb", "saxpy"], "nowhere/a.ipynb"),
    ],
)
def test_mistakes_on_the_command_line(arguments, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["course", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_an_assignment_has_the_marks_of_nbgrader(tmp_path):
    import nbformat

    path = tmp_path / "week1.ipynb"
    names = ["saxpy", "fix_guard", "float4_scale"]
    assert cli.main(["course", "assignment", str(path), *names, "--points", "3"]) == 0
    made = nbformat.read(path, 4)
    nbformat.validate(made)
    marks = [cell.metadata.nbgrader for cell in made.cells]
    assert len({mark.grade_id for mark in marks}) == len(marks) == 10
    assert [mark.points for mark in marks if mark.grade] == [3, 3, 3]
    assert [mark.grade_id for mark in marks if mark.solution] == names
    assert all(not mark.locked for mark in marks if mark.solution)
    texts = {cell.id: cell.source for cell in made.cells}
    assert "out[i] = x[i + 1] - x[i]" in texts["fix-guard-text"]
    assert "float a, const float* x, float* out, int n" in texts["float4-scale-text"]
    for name in names:
        cell = texts[name.replace("_", "-")]
        assert cell.index("### BEGIN SOLUTION") < cell.index("### END SOLUTION")
        compile(cell, name, "exec")


def test_exercises_and_hints_are_shown(capsys):
    assert cli.main(["course", "show", "saxpy"]) == 0
    shown = capsys.readouterr().out
    assert "# out[i] = a * x[i] + y[i]." in shown and "def saxpy(a, x, y, out):" in shown
    compile(shown, "saxpy", "exec")
    assert cli.main(["course", "show", "wmma_matmul"]) == 0
    assert "// out = a @ b on tensor cores" in capsys.readouterr().out
    assert cli.main(["course", "hint", "saxpy"]) == 0
    assert "More: minigrad course hint saxpy 2" in capsys.readouterr().out
    assert cli.main(["course", "hint", "saxpy", "2"]) == 0
    assert "More" not in capsys.readouterr().out


def test_progress_is_kept_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINIGRAD_DATA_DIR", str(tmp_path / "data"))
    assert progress.solved() == {}
    from kernels.lab.course import solutions

    assert exercises.check(solutions.add_ten)
    assert list(progress.solved()) == ["add_ten"]
    assert cli.main(["course"]) == 0
    shown = capsys.readouterr().out
    assert "[x] add_ten" in shown
    assert "[>] saxpy" in shown
    assert f"1 of {len(exercises.names())} solved" in shown
    progress.path().write_text("{damaged")
    assert progress.solved() == {}
    progress.record("saxpy")
    assert list(progress.solved()) == ["saxpy"]


def test_a_folder_that_cannot_be_written_costs_the_record_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIGRAD_DATA_DIR", str(tmp_path / "file"))
    progress.record("saxpy")
    assert progress.solved() == {}
