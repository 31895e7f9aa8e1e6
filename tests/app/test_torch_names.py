"""Programs that import torch: `as_torch`, names that are missing, tensors of the two libraries."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from enum import EnumType
from types import ModuleType
from unittest import mock

import pytest

import minigrad
from minigrad import nn, optim, utils


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_torch_program_runs_on_minigrad():
    """Every form of import, one that is missing, and modules that stay what they were."""
    out = run(
        """
        import minigrad
        minigrad.as_torch()
        minigrad.as_torch()  # a second time: no effect
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        import torch.backends.cudnn as cudnn
        import torch.backends.cuda
        import torch.backends.mps
        from functorch import make_functional, vmap
        from torch.nn.modules.linear import Linear
        from torch.optim.lr_scheduler import StepLR
        from torch.utils.data import DataLoader, TensorDataset
        import torch.jit.annotations
        assert torch.torch is torch is minigrad and nn is minigrad.nn and Linear is nn.Linear
        assert torch.__name__ == "torch"  # programs compare it
        from minigrad import lowrank
        assert make_functional is minigrad.functorch.make_functional and vmap is torch.vmap
        assert nn.__spec__.name == nn.__name__ == "minigrad.nn"
        cudnn.benchmark = True
        assert minigrad.backends.cudnn.benchmark
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = StepLR(optimizer, 1)
        x = torch.randn(8, 3)
        for x, y in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        schedule.step()
        print(type(model[0].weight.grad).__module__)
        try:
            import torch.masked
        except ImportError as error:
            print(error.name, "|", error)
        """
    )
    assert out.splitlines() == [
        "minigrad.tensor",
        "torch.masked | No module named 'torch.masked': this program runs on minigrad, which has "
        "no minigrad.masked",
    ]


def test_files_of_torch_that_have_another_place_here():
    run(
        """
        import minigrad
        minigrad.as_torch()
        import importlib
        import torch
        from torch.functional import einsum
        from torch.nn import grad
        from torch.nn.common_types import _size_2_t
        from torch.nn.modules.channelshuffle import ChannelShuffle
        from torch.nn.modules.instancenorm import InstanceNorm2d, _InstanceNorm
        assert InstanceNorm2d is torch.nn.InstanceNorm2d
        assert issubclass(InstanceNorm2d, _InstanceNorm)
        assert grad is torch.nn.grad and torch.nn.common_types._size_2_t == _size_2_t
        for name in "Adadelta Adagrad Adamax AdamW ASGD NAdam RAdam RMSprop Rprop".split():
            found = importlib.import_module(f"torch.optim.{name.lower()}")
            assert getattr(found, name) is getattr(torch.optim, name)
        import warnings
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        """
    )


def test_the_command_runs_a_torch_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch\nfrom torch import nn\n"
        "print(torch.__spec__.name, nn.Linear(2, 3)(torch.ones(2)).shape, sys.argv[1:], __name__)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "minigrad", "run", str(program), "--lr", "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "minigrad minigrad.Size([3]) ['--lr', '1'] __main__\n"


def test_as_torch_comes_before_torch():
    out = run(
        """
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        import minigrad
        try:
            minigrad.as_torch()
        except RuntimeError as error:
            print(error)
        """
    )
    assert "torch has been imported already" in out


@pytest.mark.parametrize(
    ("namespace", "name", "wanted"),
    [
        (minigrad, "Adam", "minigrad.optim.Adam"),
        (minigrad, "zeross", "zeros"),
        (nn, "Linaer", "Linear"),
        (nn, "linear", "Linear"),
        (nn, "kaiming_uniform_", "minigrad.nn.init.kaiming_uniform_"),
        (nn.functional, "Relu", "relu"),
        (nn.init, "xavier_unifrom_", "xavier_uniform_"),
        (nn.modules, "Conv2D", "Conv2d"),
        (optim, "ADAM", "Adam"),
        (optim.lr_scheduler, "StepLr", "StepLR"),
        (utils.data, "Dataloader", "DataLoader"),
        (minigrad.cuda, "is_avail", "is_available"),
        (minigrad.autograd, "gradd", "grad"),
        (minigrad.backends, "cuddn", "cudnn"),
        (minigrad.accelerator, "is_availabel", "is_available"),
        (optim, "SDG", "SGD"),
        (optim.swa_utils, "AverageModel", "AveragedModel"),
        (minigrad.cuda, "memory_alocated", "memory_allocated"),
        (nn.utils.rnn, "pad_sequences", "pad_sequence"),
        (nn.utils.parametrize, "register_parametrisation", "register_parametrization"),
        (nn.parameter, "Paramter", "Parameter"),
        (minigrad.distributions, "Nrmal", "Normal"),
        (minigrad.linalg, "choleksy", "cholesky"),
        (minigrad.fft, "rftt", "rfft"),
        (minigrad.special, "expitt", "expit"),
        (minigrad.backends.cudnn, "benchmrk", "benchmark"),
        (minigrad.random, "manual_sed", "manual_seed"),
        (minigrad.datasets, "digit", "digits"),
        (utils.tensorboard, "SumaryWriter", "SummaryWriter"),
        (utils.checkpoint, "checkpont", "checkpoint"),
    ],
)
def test_a_missing_name_is_answered_with_the_closest(namespace, name, wanted):
    with pytest.raises(AttributeError) as caught:
        getattr(namespace, name)
    message = str(caught.value)
    assert message.startswith(f"module '{namespace.__name__}' has no attribute '{name}'")
    assert message.endswith(f"did you mean '{wanted}'?")


def test_missing_names_are_looked_up_fast():
    """`hasattr` asks for no closest name; the error can be sent to another process."""
    with pytest.raises(AttributeError) as caught:
        _ = minigrad.zeross
    assert type(caught.value).__name__ == "AttributeError"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with mock.patch("difflib.get_close_matches", side_effect=AssertionError):
        assert not hasattr(minigrad, "zeross")


def namespaces():
    """Every module that can be reached from `minigrad` by public names."""
    found, waiting = {}, [minigrad]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            values = (getattr(module, name) for name in dir(module))
            modules = [v for v in values if isinstance(v, ModuleType)]
            waiting += [m for m in modules if m.__name__.startswith("minigrad")]
    return found


def test_namespaces_hold_public_names_only():
    """No `annotations`, `np` or `Any`; functions and classes have a help text."""
    found = namespaces()
    assert {"minigrad.nn.utils.rnn", "minigrad.optim.lr_scheduler", "minigrad.backends.cuda"} <= {
        *found
    }
    for place, module in found.items():
        names = dir(module)
        assert names and "annotations" not in names, place
        assert set(names) >= set(getattr(module, "__all__", ())), place
        for name in names:
            value = getattr(module, name)
            assert not name.startswith("_"), f"{place}.{name}"
            home = getattr(value, "__module__", None) or "minigrad"
            if place not in (
                "minigrad.multiprocessing",
                "minigrad.types",
            ):  # the standard library's
                assert home.split(".")[0] in ("minigrad", "kernels", "builtins"), f"{place}.{name}"
                described = value.__doc__ or isinstance(value, EnumType)
                assert not callable(value) or described, f"{place}.{name} has no docstring"
                assert not isinstance(value, ModuleType) or value.__name__.startswith("minigrad")


def test_names_that_nothing_is_close_to():
    for namespace in (minigrad, nn, nn.functional, optim):
        with pytest.raises(AttributeError, match="a part of torch that minigrad doesn't have"):
            _ = namespace.qqqqqq
        assert not hasattr(namespace, "_private")


def test_a_misspelt_attribute_is_answered_by_python():
    """In the traceback. Tensor has no `__getattr__`: it would slow every access."""
    out = run(
        """
        import sys
        import minigrad
        from minigrad import distributions, nn, optim

        sys.stderr = sys.stdout
        layer = nn.Linear(2, 2)
        for value, name in (
            (minigrad.zeros(2), "sizee"),
            (layer, "wieght"),
            (nn.Sequential(nn.ReLU()), "paramaters"),
            (distributions.Bernoulli(0.5), "log_porb"),
            (optim.SGD(layer.parameters()), "zero_gard"),
        ):
            try:
                getattr(value, name)
            except AttributeError as error:
                sys.__excepthook__(type(error), error.with_traceback(None), None)
        """
    )
    wanted = ("size", "weight", "parameters", "log_prob", "zero_grad")
    for line, name in zip(out.splitlines(), wanted, strict=True):
        assert line.endswith(f"Did you mean: '{name}'?")


def mixtures(torch):
    mine, theirs = minigrad.ones(2, 3), torch.ones(2, 3)
    layer, their_layer = nn.Linear(3, 4), torch.nn.Linear(3, 4)
    return [
        lambda: mine + theirs,
        lambda: theirs * mine,
        lambda: mine @ theirs.T,
        lambda: mine == theirs,
        lambda: mine.add_(theirs),
        lambda: minigrad.relu(theirs),
        lambda: minigrad.cat([mine, theirs]),
        lambda: minigrad.stack([theirs]),
        lambda: minigrad.from_numpy(theirs),
        lambda: layer(theirs),
        lambda: nn.CrossEntropyLoss()(theirs, theirs),
        lambda: nn.MSELoss()(mine, theirs),
        lambda: nn.Parameter(theirs),
        lambda: optim.SGD(their_layer.parameters()),
    ], [
        lambda: torch.add(theirs, mine),
        lambda: torch.cat([theirs, mine]),
        lambda: their_layer(mine),
    ]


def test_tensors_of_two_libraries(torch):
    """The error says which is whose; both conversions that it names work."""
    here, there = mixtures(torch)
    for program in here:
        with pytest.raises(TypeError, match=r"torch\.(Tensor|Parameter)"):
            program()
    for program in there:
        with pytest.raises(TypeError, match="expected torch.Tensor, got minigrad.Tensor"):
            program()
    x = torch.ones(2, requires_grad=True)
    assert minigrad.from_dlpack(x.detach()).tolist() == [1, 1]
    assert torch.from_dlpack(minigrad.ones(2, requires_grad=True).detach()).tolist() == [1, 1]


def test_flags_of_libraries():
    backends = minigrad.backends
    assert not backends.cudnn.is_available() and not backends.mps.is_available()
    outside = backends.cudnn.benchmark
    with backends.cudnn.flags(benchmark=not outside):
        assert backends.cudnn.benchmark != outside
    assert backends.cudnn.benchmark == outside
    with pytest.raises(TypeError, match="'fast'"), backends.cudnn.flags(fast=True):
        pass
    before = minigrad.get_float32_matmul_precision()
    try:
        backends.cuda.matmul.allow_tf32 = True
        assert minigrad.get_float32_matmul_precision() == "high"
        assert backends.cuda.matmul.allow_tf32
        backends.cuda.matmul.allow_tf32 = False
        assert minigrad.get_float32_matmul_precision() == "highest"
    finally:
        minigrad.set_float32_matmul_precision(before)
    assert isinstance(backends.cuda.is_built(), bool)


def test_help_of_operations():
    """Every method is described, by more than its own name; examples give what they say."""
    for name in dir(minigrad.Tensor):
        value = inspect.getattr_static(minigrad.Tensor, name)
        if not name.startswith("_") and (callable(value) or isinstance(value, property)):
            assert value.__doc__ or name in ("T", "mT", "H", "mH"), name
            assert not re.match(rf"{name}\((.*)\) = {name}\(\1\)", value.__doc__ or ""), name
    from minigrad.ops._meanings import MEANINGS

    names = {"minigrad": minigrad, "inf": minigrad.inf, "nan": minigrad.nan}
    for name in (*MEANINGS, "scatter", "gather"):
        text = inspect.getdoc(getattr(minigrad.Tensor, name))
        example = text.partition("Example::\n\n")[2]
        call, _, result = example.partition("# ")
        wanted = re.sub(r"\n +# ", "\n", result).strip()
        assert repr(eval(call.strip(), names)) == wanted, name
    signature = inspect.signature(minigrad.Tensor.scatter_)
    assert [*signature.parameters][:4] == ["input", "dim", "index", "src"]
    assert "changes this tensor" in minigrad.Tensor.scatter_.__doc__


def test_libraries_find_the_version_of_the_package():
    out = run(
        """
        import importlib.metadata as metadata
        import minigrad
        minigrad.as_torch()
        import torch
        assert metadata.version("torch") == torch.__version__
        assert metadata.distribution("torch").metadata["Name"] == "torch"
        assert metadata.distribution("torch").locate_file("nn/__init__.py").exists()
        print(metadata.version("numpy").count("."), metadata.packages_distributions()["torch"][0])
        """
    )
    assert out.split() == ["2", "torch"]
