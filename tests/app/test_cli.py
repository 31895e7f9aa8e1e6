"""The command line: what each command prints, and the one line that a mistake gets."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import kernels
import minigrad
from kernels import simt
from minigrad import cli, datasets, training
from minigrad.commands import bench, doctor, plot, train

ROOT = Path(__file__).resolve().parents[2]


def shell(*argv: str, **environment: str) -> subprocess.CompletedProcess:
    """`python -m minigrad ARGV` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "minigrad", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def status(argv: list[str]) -> int:
    """The exit status of a command line that is run in this process."""
    try:
        return cli.main(argv)
    except SystemExit as error:  # argparse leaves this way
        return error.code


@pytest.fixture(autouse=True)
def _same_backend_afterwards():
    before = minigrad.backends.get()
    yield
    minigrad.backends.set(before)


def epoch_lines(text: str) -> list[str]:
    """The lines of epochs, without their seconds."""
    lines = [line for line in text.splitlines() if line.startswith("epoch ")]
    return [re.sub(r"\s+[\d.]+ s$", "", line) for line in lines]


# help and mistakes


@pytest.mark.parametrize("argv", [["--help"], *([name, "--help"] for name in cli.COMMANDS)])
def test_help(argv, capsys):
    assert status(argv) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: minigrad")
    assert "%" not in text  # an unformatted default


def test_the_module_is_the_command():
    done = shell("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("minigrad ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train", "--epochs", "0"], "--epochs: expected a whole number above 0, got '0'"),
        (["train", "--epochs", "1.5"], "--epochs: expected a whole number above 0, got '1.5'"),
        (["train", "--epochs", "many"], "--epochs: expected a whole number above 0, got 'many'"),
        (["train", "--batch-size", "-3"], "--batch-size: expected a whole number above 0"),
        (["train", "--seed", "x"], "--seed: expected an integer of up to 64 bits, got 'x'"),
        (["train", "--seed", str(2**64)], "--seed: expected an integer of up to 64 bits"),
        (["train", "--lr", "nan"], "--lr: expected a number above 0, got 'nan'"),
        (["train", "--lr", "inf"], "--lr: expected a number above 0, got 'inf'"),
        (["train", "--model", "transformer"], "invalid choice: 'transformer'"),
        (["train", "--dataset", "imagenet"], "invalid choice: 'imagenet'"),
        (["train", "--optimizer", "lion"], "invalid choice: 'lion'"),
        (["train", "--backend", "cudnn"], "'cudnn'"),
        (["train", "--device", "tpu"], "tpu"),
        (["train", "--save", "no/such/folder/net.mg"], "--save: there is no folder no/such/folder"),
        (["train", "--plot", "no/such/folder/a.png"], "--plot: there is no folder no/such/folder"),
        (["train", "--timeline", "a.jpg"], "--timeline: expected a .svg, .png or .txt file: a.jpg"),
        (["train", "--save", "."], "--save: . is a folder; name a file in it"),
        (["catalog", "quantum"], "no kernel family 'quantum'; there are"),
        (["bench", "tpu"], "invalid choice: 'tpu'"),
        (["bench", "--json"], "unrecognized arguments: --json"),
    ],
)
def test_a_mistake_is_one_kind_line(argv, message, capsys):
    assert status(argv) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("minigrad")
    assert "epoch" not in out


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (["train", "--backend", "cudnn"], {}),
        (["train"], {"MINIGRAD_BACKEND": "cudnn"}),
        (["doctor"], {"MINIGRAD_NUM_THREADS": "'cudnn'"}),
    ],
)
def test_no_traceback_from_a_process(argv, environment):
    done = shell(*argv, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "'cudnn'" in done.stderr


def test_a_terminal_that_lacks_a_letter(monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), "ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(doctor, "run", lambda args: print("3 × 4"))
    cli.main(["doctor"])
    screen.flush()
    assert screen.buffer.getvalue() == b"3 ? 4\n"


def test_a_missing_gpu_is_named(capsys):
    if minigrad.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert status(["train", "--device", "cuda"]) == 2
    assert "cuda" in capsys.readouterr().err


def test_a_missing_matplotlib_is_named(monkeypatch, tmp_path, capsys):
    util, find = plot.importlib.util, plot.importlib.util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    assert status(["train", "--plot", str(tmp_path / "a.png")]) == 2
    assert "pip install 'minigrad[plot]'" in capsys.readouterr().err


def test_offline_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", ("http://127.0.0.1:9/",))
    assert status(["train", "--dataset", "mnist"]) == 2
    err = capsys.readouterr().err.strip()
    assert "could not be downloaded" in err
    assert len(err.splitlines()) == 1


def test_a_loss_that_is_not_finite_stops_the_training(capsys):
    argv = ["train", "--backend", "numpy", "--model", "mlp", "--optimizer", "sgd", "--lr", "1e30"]
    assert status([*argv, "--epochs", "1"]) == 2
    assert "a smaller --lr may help" in capsys.readouterr().err


def test_an_interrupt_is_not_a_traceback(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli._command("catalog"), "run", interrupted)
    assert status(["catalog"]) == 130
    assert capsys.readouterr().err == "minigrad catalog: interrupted\n"


# train


def test_train_reaches_98_percent_with_its_defaults():
    done = shell("train")
    assert done.returncode == 0, done.stderr
    final = re.search(r"^test accuracy ([\d.]+)%", done.stdout, re.MULTILINE)
    assert float(final[1]) >= 98.0
    assert len(epoch_lines(done.stdout)) == 12
    table = done.stdout.partition("launches")[2]
    for family in ("conv", "pool", "matmul", "cross_entropy", "adam"):
        assert family in table, f"no {family} kernel in the table of kernels that ran"


@pytest.mark.parametrize(("backend", "model"), [("numba", "cnn"), ("numpy", "mlp")])
def test_the_same_seed_gives_the_same_result(backend, model, capsys):
    argv = ["train", "--epochs", "2", "--backend", backend]  # the kernels of the test above
    argv += ["--model", model]
    runs = []
    for seed in ("1", "1", "2"):
        assert status([*argv, "--seed", seed]) == 0
        runs.append(epoch_lines(capsys.readouterr().out))
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_other_model_and_optimisers_learn(optimizer, capsys):
    argv = ["train", "--model", "mlp", "--epochs", "4", "--optimizer", optimizer]
    assert status([*argv, "--backend", "numpy"]) == 0
    final = re.search(r"test accuracy ([\d.]+)%", capsys.readouterr().out)
    assert float(final[1]) > 90


def test_save_plot_and_timeline(tmp_path, capsys):
    saved, curves, timeline = (tmp_path / name for name in ("net.mg", "curves.png", "steps.txt"))
    argv = ["train", "--model", "mlp", "--epochs", "2", "--backend", "numpy"]
    argv += ["--save", str(saved), "--plot", str(curves), "--timeline", str(timeline)]
    assert status(argv) == 0
    printed = re.search(r"test accuracy ([\d.]+)%", capsys.readouterr().out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "net.mg", "steps.txt"]
    assert timeline.read_text().count("adam_") == 2  # of the large weights, of all others
    assert curves.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    checkpoint = minigrad.load(saved)
    assert checkpoint["model"] == "mlp"
    from minigrad.commands import models

    model = models.build("mlp", minigrad.nn, (1, 8, 8))
    model.load_state_dict(checkpoint["state_dict"])
    images, labels = datasets.digits(train=False).tensors
    scaling = checkpoint["scaling"]
    with minigrad.no_grad():
        guess = model((images - scaling["mean"]) / scaling["std"]).argmax(dim=1)
    accuracy = float((guess == labels).float().mean())
    assert f"{accuracy:.2%}" == f"{printed[1]}%"
    assert checkpoint["test_accuracy"] == pytest.approx(accuracy)


def test_an_interrupted_training_keeps_the_last_epoch(tmp_path, monkeypatch, capsys):
    def interrupted(run):
        if run.epoch == 1:
            raise KeyboardInterrupt
        one_epoch(run)

    one_epoch = training.Fit._one_epoch
    monkeypatch.setattr(training.Fit, "_one_epoch", interrupted)
    saved = tmp_path / "net.mg"
    assert status(["train", "--model", "mlp", "--backend", "numpy", "--save", str(saved)]) == 130
    accuracy = re.search(r"test loss \S+ accuracy +([\d.]+)%", capsys.readouterr().out)[1]
    assert f"{minigrad.load(saved)['test_accuracy']:.2%}" == f"{accuracy}%"


def test_the_curve_of_one_epoch_has_one_tick():
    row = {"epoch": 1, "loss": 1.9, "accuracy": 0.41, "valid_loss": 1.1, "valid_accuracy": 0.63}
    drawing = plot.figure(training.History([row]), "cnn on digits")
    drawing.draw_without_rendering()
    for axes in drawing.axes:
        low, high = axes.get_xlim()
        assert [x for x in axes.get_xticks() if low <= x <= high] == [1]
    labels = [t.get_text() for t in drawing.axes[0].get_yticklabels(which="both")]
    assert "1.5" in labels
    assert not [text for text in labels if "$" in text or "e" in text]  # 0.06, not 6 * 10^-2


def test_the_first_run_says_that_it_compiles(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "kernels"
    monkeypatch.setattr(simt, "cache_folder", lambda: str(folder))
    train._announce_compilation("numba")
    assert str(folder) in capsys.readouterr().out
    train._announce_compilation("numpy")
    folder.mkdir()
    (folder / "kernel.py").touch()
    train._announce_compilation("numba")
    assert capsys.readouterr().out == ""


def test_a_network_fits_every_data_set():
    from minigrad.commands import models

    for shape in ((1, 8, 8), (1, 28, 28), (3, 32, 32)):
        for name in models.MODELS:
            model = models.build(name, minigrad.nn, shape)
            with minigrad.backends.use("numpy"), minigrad.no_grad():
                assert tuple(model(minigrad.zeros(2, *shape)).shape) == (2, 10)
    with pytest.raises(ValueError, match="'cnn', 'mlp'"):
        models.build("rnn", minigrad.nn, (1, 8, 8))


# doctor, catalog, bench


def test_doctor_describes_this_machine(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "x").write_bytes(bytes(1 << 20))
    assert status(["doctor"]) == 0
    text = capsys.readouterr().out
    for title in ("machine", "packages", "gpu", "cache", "what runs where"):
        assert f"\n{title}\n" in f"\n{text}"
    assert f"{tmp_path / 'datasets'} (1 file(s), 1.0 MiB)" in text
    assert f"{doctor.cores()} usable by this process" in text
    assert re.search(r"numba +\d+\.\d+", text)


def test_catalog_lists_every_kernel(capsys):
    assert status(["catalog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[: lines.index("")] if "" in lines else lines  # a legend may follow
    assert len(table) == 1 + len(kernels.catalog())
    assert lines[0].split()[:3] == ["family", "dialect", "version"]
    assert lines[0].split()[-1] == "idea"
    assert {"matmul", "exp", "sum", "cuda"} <= set(dir(kernels))
    assert status(["catalog", "matmul"]) == 0
    ladder = capsys.readouterr().out.partition("\n\n")[0].splitlines()[1:]
    assert len(ladder) > 2
    assert all(line.startswith("matmul ") for line in ladder)


@pytest.mark.needs("cuda.bindings")
def test_catalog_compiles_one_family(monkeypatch, tmp_path):
    """Of a family the same figures as of all, without compiling the others."""
    from kernels.lab.gpu_model import nvrtc, resources

    compiled = []

    def build(code, names, *args, **kwargs):
        compiled.extend(names)
        return dict.fromkeys(names, nvrtc.Facts(1, 2, 3, 4, 5, 6, ()))

    monkeypatch.setattr(nvrtc, "build", build)
    rows = {(line.family, line.version) for line in resources.measure("80", "cumsum")}
    versions = {row[2] for row in kernels.catalog() if row[:2] == ("cumsum", "cupy")}
    assert rows == {("cumsum", version) for version in versions}
    assert len(compiled) < 40


def test_a_closed_pipe_is_not_a_traceback():
    command = f"{sys.executable} -m minigrad catalog | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=os.environ
    )
    # What is compiled on the first run, and where nothing can be kept, is said there, too.
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    assert done.stdout.startswith("family")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["catalog", "gpus", "scale", "doctor"])
def test_a_full_disk_is_one_line(command):
    """The buffer is written at the end by the first, and by Python's exit if nobody else does."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "minigrad", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    wanted = f"minigrad {command}: cannot write standard output: No space left on device"
    assert wanted in done.stderr.splitlines()


@pytest.mark.parametrize("option", ["--layers", "--batch", "--nodes"])
def test_scale_refuses_sizes_that_no_cluster_has(option, capsys):
    assert status(["scale", option, "9" * 30]) == 2
    assert f"{option}: expected a whole number above 0 and below" in capsys.readouterr().err
    assert status(["scale", option, str(2**31 - 1)]) in (0, 2)  # a prime: in no time


@pytest.mark.parametrize("size", ["9" * 15, "9" * 30])
@pytest.mark.parametrize("how", ["", "zeros:", "arange:"])
def test_lab_refuses_arrays_that_fit_nowhere(how, size, tmp_path, capsys):
    path = tmp_path / "own.py"
    path.write_text("from kernels import cuda\n\n\n@cuda.jit\ndef k(x):\n    x[0] = 1.0\n")
    argument = f"{how}float32[{size}]"
    given = ["lab", f"{path}::k", "--grid", "1", "--block", "1", "--args", argument]
    assert status(given) == 2
    assert f"minigrad lab: --args: {argument}: " in capsys.readouterr().err


def test_bench_names_the_benchmarks(capsys):
    assert status(["bench"]) == 0
    out = capsys.readouterr().out
    for name, (program, _, what) in bench.BENCHMARKS.items():
        assert name in out and what in out
        assert (ROOT / "benchmarks" / f"{program}.py").exists()


def test_bench_hands_its_options_on(monkeypatch):
    commands = []
    finished = types.SimpleNamespace(returncode=3)
    monkeypatch.setattr(
        bench.subprocess, "run", lambda command, **_: commands.append(command) or finished
    )
    assert status(["bench", "gpu", "--only", "matmul", "--minutes", "9"]) == 3
    assert commands[0][1].endswith("ladders.py")
    assert commands[0][2:] == ["--device", "gpu", "--only", "matmul", "--minutes", "9"]


def test_bench_outside_the_source_tree_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "bench.py"))
    assert status(["bench", "simt"]) == 2
    assert "clone the project" in capsys.readouterr().err


PROGRAMS = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if "argparse" in p.read_text()]


# All in one process, which imports what they share once. Each loads its own neighbours anew.
EXPLAIN = """
import contextlib, io, json, pathlib, runpy, sys, traceback
form, folder, *names = sys.argv[1:]
started, told = sys.path[1:], {}  # without the folder of this program, which has none
for name in names:
    path = pathlib.Path(folder, f"{name}.py")
    for module, of in list(sys.modules.items()):
        if folder in str(getattr(of, "__file__", "")):
            del sys.modules[module]
    sys.path[:] = [folder if form == "script" else str(path.parents[1]), *started]
    sys.argv = [str(path), "--help"]
    told[name] = out = [None, ""]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            if form == "script":
                runpy.run_path(str(path), run_name="__main__")
            else:
                runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            out[0] = end.code
        except BaseException:
            out[0] = traceback.format_exc()
    out[1] = text.getvalue()
print(json.dumps(told))
"""


@pytest.mark.parametrize("form", ["script", "module"])
def test_each_benchmark_explains_itself(form):
    """As a script from any folder, and as a module of the source tree."""
    arguments = [form, str(ROOT / "benchmarks"), *(path.stem for path in PROGRAMS)]
    done = subprocess.run(
        [sys.executable, "-c", EXPLAIN, *arguments],
        capture_output=True,
        text=True,
        cwd="/" if form == "script" else ROOT,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [*told] == [path.stem for path in PROGRAMS]
    measuring = {program for program, _, _ in bench.BENCHMARKS.values()}
    for name, (code, text) in told.items():
        assert code == 0, f"{name}: {code}"
        assert "usage:" in text, name
        assert "--json" in text or name not in measuring, name


def test_console_script_is_installed():
    if importlib.util.find_spec("minigrad") is None or "minigrad" not in _scripts():
        pytest.skip("a source tree that is not installed: only `python -m minigrad` is there")
    assert _scripts()["minigrad"] == "minigrad.cli:main"


def _scripts() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {script.name: script.value for script in entry_points(group="console_scripts")}


@pytest.mark.parametrize("name", ["nosuch", "nosuch.part", "minigrad.nosuch"])
def test_a_module_that_is_not_there(name):
    """In a process of its own: there torch is minigrad."""
    done = shell("run", "-m", name)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"minigrad run: No module named {name}"
