"""Small names of torch that programs import, call or ask for."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

pytestmark = pytest.mark.usefixtures("reference_backend")


def test_modules_that_have_functions_again():
    functional = importlib.import_module("minigrad.functional")
    assert functional.einsum is mg.einsum and functional.norm is mg.norm
    modes = importlib.import_module("minigrad.autograd.grad_mode")
    assert modes.no_grad is mg.no_grad and modes.inference_mode is mg.inference_mode


def test_memory_formats_are_values_of_a_type_of_their_own():
    for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"):
        value = getattr(mg, name)
        assert isinstance(value, mg.memory_format) and not isinstance(value, mg.layout)
        assert repr(value) == f"minigrad.{name}"
        assert copy.deepcopy(value) is pickle.loads(pickle.dumps(value)) is value
    assert not isinstance(mg.strided, mg.memory_format) and isinstance(mg.strided, mg.layout)
    assert mg.ones(1, 2, 3, 4).to(memory_format=mg.channels_last).shape == (1, 2, 3, 4)


def test_flags_and_counts_of_dimensions():
    x = mg.ones(2, 3)
    assert not any(getattr(x, f"is_{kind}") for kind in "xla ipu mtia maia vulkan mkldnn".split())
    assert not x.is_distributed() and mg.get_device(x) == -1
    assert (x.sparse_dim(), x.dense_dim()) == (0, 2)
    assert (x.to_sparse(1).sparse_dim(), x.to_sparse(1).dense_dim()) == (1, 1)


def test_lu_as_a_method():
    a = mg.tensor([[1.0, 2.0], [4.0, 3.0]])
    packed, pivots = a.lu()
    assert packed.tolist() == [[4, 3], [0.25, 1.25]] and pivots.tolist() == [2, 2]
    assert a.lu(get_infos=True)[2].item() == 0


def test_fill_makes_another_tensor():
    x = mg.zeros(2, dtype=mg.int64)
    assert mg.fill(x, mg.tensor(3)).tolist() == [3, 3] and x.tolist() == [0, 0]
    assert mg.fill(x, 2).dtype is mg.int64


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_convolutions_as_functions(d, groups, rng):
    how = {"stride": 2, "padding": 1, "groups": groups}
    x = mg.tensor(rng.normal(size=(2, 4, *[5] * d)), requires_grad=True)
    w = mg.tensor(rng.normal(size=(2, 4 // groups, *[3] * d)), requires_grad=True)
    y = getattr(F, f"conv{d}d")(x, w, **how)
    g = mg.tensor(rng.normal(size=tuple(y.shape)))
    y.backward(g)
    for name, arguments, wanted in (
        ("input", (x.shape, w, g), x.grad),
        ("weight", (x, w.shape, g), w.grad),
    ):
        found = getattr(nn.grad, f"conv{d}d_{name}")(*arguments, **how)
        np.testing.assert_allclose(found.detach().numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)
        assert found.requires_grad  # of the other operand
    with mg.no_grad():
        assert not nn.grad.conv1d_input((1, 1, 3), mg.ones(1, 1, 2), mg.ones(1, 1, 2)).requires_grad


def test_scripted_modules_are_saved_and_frozen():
    module, file = nn.Linear(2, 1), io.BytesIO()
    mg.jit.save(mg.jit.script(module), file)
    file.seek(0)
    x = mg.ones(1, 2)
    assert mg.jit.load(file)(x).tolist() == module(x).tolist()
    with pytest.raises(RuntimeError, match="Please call .eval"):
        mg.jit.freeze(module)
    assert mg.jit.freeze(module.eval()) is mg.jit.optimize_for_inference(module) is module


def test_assert_allclose():
    mg.testing.assert_allclose(mg.ones(2), mg.ones(2, dtype=mg.float64))
    mg.testing.assert_allclose([1.0, float("nan")], mg.tensor([1.0, float("nan")]))
    with pytest.raises(AssertionError, match="not close"):
        mg.testing.assert_allclose(mg.ones(2), [1.0, 1.1])


def test_several_tensors_as_one():
    together = mg._utils
    tensors = [mg.ones(2, 3), mg.zeros(4), mg.ones(3).double(), mg.ones(10)]
    groups = [[t.shape for t in group] for group in together._take_tensors(tensors, 40)]
    assert groups == [[(2, 3), (4,)], [(10,)], [(3,)]]
    flat = together._flatten_dense_tensors(tensors[:2])
    parts = together._unflatten_dense_tensors(flat, tensors[:2])
    assert [part.shape for part in parts] == [(2, 3), (4,)] and flat.shape == (10,)
    flat[9] = 5  # they are views
    assert parts[1].tolist() == [0, 0, 0, 5]


def test_weights_by_norm_and_direction(rng):
    v, g = mg.tensor(rng.standard_normal((4, 3))), mg.tensor(rng.random((4, 1)) + 0.5)
    np.testing.assert_allclose(
        mg.norm_except_dim(v, 1, 0), np.abs(v.numpy()).sum(1, keepdims=True), rtol=1e-12
    )
    np.testing.assert_allclose(mg.norm_except_dim(v, 2, -1), np.linalg.norm(v.numpy()))
    np.testing.assert_allclose(mg.norm_except_dim(mg._weight_norm(v, g)), g)
    np.testing.assert_array_equal(mg.norm_except_dim(v[0]), v[0].abs())
    across = mg._weight_norm(v, g[:3].t(), 1)
    np.testing.assert_allclose(mg.norm_except_dim(across, 2, 1), g[:3].t())


def test_whether_casts_are_kept():
    assert mg.is_autocast_cache_enabled()
    mg.set_autocast_cache_enabled(False)
    assert not mg.is_autocast_cache_enabled()
    mg.set_autocast_cache_enabled(True)
    mg.clear_autocast_cache()


def test_batch_norms_without_statistics():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert mg.func.replace_all_batch_norm_modules_(model) is model
    assert [name for name, _ in model[1].named_buffers()] == []
    x = mg.tensor([[1.0, 2.0], [3.0, 5.0]])
    np.testing.assert_allclose(model.eval()(x).mean(0).detach(), [0, 0], atol=1e-6)
    assert mg.func.vmap(model)(mg.stack([x, 2 * x])).shape == (2, 2, 2)


IMPORTS = """
import torch
from torch._tensor import Tensor
from torch.autograd.gradcheck import gradcheck
from torch.cuda.amp.autocast_mode import autocast
from torch.cuda.amp.grad_scaler import GradScaler
from torch.distributed.distributed_c10d import ReduceOp
from torch.nn import _reduction
from torch.nn.modules.transformer import _get_activation_fn, _get_clones
from torch.utils.data._utils.collate import default_collate
from torch.utils.data._utils import worker
print(default_collate is torch.utils.data._utils.collate.default_collate)
x = torch.ones(2).double().requires_grad_()
print(isinstance(x, Tensor), gradcheck(torch.sin, x))
print(len(_get_clones(torch.nn.ReLU(), 3)), _get_activation_fn("relu") is torch.nn.functional.relu)
"""


def test_files_of_torch_that_programs_import_from(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(IMPORTS)
    command = [sys.executable, "-m", "minigrad", "run", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "True", "3", "True"]


def test_what_copies_of_transformers_call(rng):
    mask = mg.tensor([True, False])
    found = F._canonical_mask(mask, "mask", None, "other", mg.float64)
    assert found.tolist() == [-np.inf, 0] and found.dtype == mg.float64
    numbers = mg.tensor([0.5, 1.0])
    assert F._canonical_mask(numbers, "mask", mg.float32, "other", mg.float64) is numbers
    with pytest.warns(UserWarning, match="mismatched mask and other"):
        F._canonical_mask(mask, "mask", mg.float32, "other", mg.float32)
    with pytest.raises(AssertionError, match="only bool and floating types of mask"):
        F._canonical_mask(mask.long(), "mask", None, "other", mg.float32)
    assert F._none_or_dtype(None) is None and F._none_or_dtype(numbers) == mg.float32
    w, b, x = (mg.tensor(rng.standard_normal(shape)) for shape in ((6, 2), (6,), (3, 2)))
    for found, i in zip(F._in_projection_packed(x, 2 * x, x, w, b), range(3), strict=True):
        scaled = 2 * x if i == 1 else x
        part = slice(2 * i, 2 * i + 2)
        np.testing.assert_allclose(found, scaled @ w[part].t() + b[part])


def test_reductions_as_numbers():
    reduction = importlib.import_module("minigrad.nn._reduction")
    assert [reduction.get_enum(word) for word in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.raises(ValueError, match="no is not a valid value"):
        reduction.get_enum("no")
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert reduction.legacy_get_string(False, None) == "sum"


def test_leaves_for_a_second_run():
    x = mg.ones(2, requires_grad=True)
    first, number = mg.utils.checkpoint.detach_variable((x * 2, 3))
    assert first.is_leaf and first.requires_grad and number == 3
    with pytest.warns(UserWarning, match="None of the inputs"):
        mg.utils.checkpoint.check_backward_validity((mg.ones(1), 2))
