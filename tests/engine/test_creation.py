"""Making tensors, and turning them into other things."""

from __future__ import annotations

import copy
import math
import pickle
import sys

import numpy as np
import pytest

import minigrad as mg

FACTORIES = {
    "zeros": lambda m: m.zeros(2, 3),
    "zeros_tuple": lambda m: m.zeros((2, 3), dtype=m.int64),
    "ones_size": lambda m: m.ones(size=(2,)),
    "full_int": lambda m: m.full((2,), 3),
    "full_float": lambda m: m.full([2, 1], 3.5),
    "arange": lambda m: m.arange(5),
    "arange_float": lambda m: m.arange(0, 1, 0.25),
    "arange_down": lambda m: m.arange(5, 0, -2),
    "arange_dtype": lambda m: m.arange(3, dtype=m.float32),
    "linspace": lambda m: m.linspace(-1, 1, 7),
    "logspace": lambda m: m.logspace(0, 2, 3),
    "eye": lambda m: m.eye(2, 3),
    "tensor_list": lambda m: m.tensor([[1, 2], [3, 4]]),
    "tensor_mixed": lambda m: m.tensor([1, 2.5, True]),
    "tensor_bool": lambda m: m.tensor([True, False]),
    "tensor_scalar": lambda m: m.tensor(3.0),
    "tensor_empty": lambda m: m.tensor([]),
    "tensor_numpy": lambda m: m.tensor(np.arange(3.0)),
    "tensor_of_tensors": lambda m: m.tensor([m.tensor(1.0), m.tensor(2.0)]),
    "tensor_dtype": lambda m: m.tensor([1, 2], dtype=m.float64),
    "like": lambda m: m.ones_like(m.zeros(2, dtype=m.int32)),
    "full_like": lambda m: m.full_like(m.zeros(2), 7),
    "new_zeros": lambda m: m.ones(1, dtype=m.float64).new_zeros(2, 2),
    "new_tensor": lambda m: m.ones(1).new_tensor([1, 2]),
    "new_full": lambda m: m.arange(2).new_full((2,), 4),
    "FloatTensor": lambda m: m.FloatTensor([1, 2]),
    "LongTensor": lambda m: m.LongTensor([[1], [2]]),
    "Tensor": lambda m: m.Tensor([1, 2]),
    "Tensor_sizes": lambda m: m.Tensor(2, 3).zero_(),
    "as_tensor": lambda m: m.as_tensor([1.5, 2]),
    "tril_indices": lambda m: m.tril_indices(3, 3),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_match_torch(name, torch):
    ours, theirs = FACTORIES[name](mg), FACTORIES[name](torch)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


def test_factory_options_and_errors():
    assert mg.zeros(2, requires_grad=True).requires_grad
    assert mg.empty(2, 3, dtype=mg.float64).shape == (2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shape'"):
        mg.zeros(shape=(2,))
    with pytest.raises(RuntimeError, match="negative dimension"):
        mg.zeros(-1)
    with pytest.raises(ValueError, match=r"expected sequence of length 2 at dim 1 \(got 1\)"):
        mg.tensor([[1, 2], [3]])
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        mg.arange(5, 1)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point"):
        mg.zeros(2, dtype=mg.int64, requires_grad=True)


def test_cupy_that_cannot_be_imported_is_no_gpu(tmp_path, monkeypatch):
    """As where HOME cannot be written to: CuPy makes its cache folder when it is imported."""
    (tmp_path / "cupy.py").write_text("raise PermissionError('no folder for you')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.warns(UserWarning, match="no folder for you; set CUPY_CACHE_DIR"):
        assert not mg.cuda.is_available()
    with pytest.raises(RuntimeError, match="no folder for you; fix: set CUPY_CACHE_DIR"):
        mg.ones(1, device="cuda")


def test_devices():
    assert mg.device("cpu") == mg.zeros(1).device and str(mg.device("cuda", 1)) == "cuda:1"
    assert repr(mg.device("cuda:0")) == "device(type='cuda', index=0)"
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        mg.device("tpu")
    layer, x, other = mg.nn.Linear(2, 2), mg.ones(2), mg.device("mps:1")
    assert other != x.device and (other.type, other.index) == ("mps", 1)
    for call in (
        lambda d: mg.zeros(2, device=d),
        lambda d: mg.tensor([1.0], device=d),
        lambda d: mg.empty(2, device=d),
        lambda d: mg.full((2,), 1.0, device=d),
        lambda d: mg.arange(3, device=d),
        lambda d: mg.linspace(0, 1, 3, device=d),
        lambda d: mg.eye(2, device=d),
        lambda d: mg.randn(2, device=d),
        lambda d: mg.randint(3, (2,), device=d),
        lambda d: mg.randperm(3, device=d),
        lambda d: mg.zeros_like(x, device=d),
        lambda d: mg.as_tensor(np.ones(2), device=d),
        lambda d: mg.nn.Linear(2, 2, device=d),
        lambda d: mg.Generator(device=d),
        lambda d: x.new_zeros(2, device=d),
        lambda d: mg.empty(2, device="meta").to(d),
        x.to,
        layer.to,
        lambda d: layer.to_empty(device=d),
    ):
        for name in ("mps", "xpu:0", mg.device("hpu")):
            with pytest.raises(RuntimeError, match="no tensors on|Cannot copy out of meta"):
                call(name)
    if mg.cuda.is_available():
        pytest.skip("there is a GPU: nothing to refuse")
    for call in (
        lambda: mg.zeros(1, device="cuda"),
        lambda: mg.ones(1).cuda(),
        lambda: mg.ones(1).to("cuda"),
        lambda: mg.cuda.FloatTensor([1.0]),
    ):
        with pytest.raises(RuntimeError, match='device "cuda"'):
            call()
    assert mg.cuda.device_count() == 0
    assert not mg.accelerator.is_available() and mg.accelerator.current_accelerator() is None
    assert not mg.backends.cudnn.is_available() and not mg.backends.mps.is_available()
    mg.backends.cudnn.benchmark = True  # kept, without effect
    mg.cuda.empty_cache()
    mg.cuda.manual_seed_all(0)


def test_numpy_shares_memory_both_ways():
    array = np.arange(6.0)
    t = mg.from_numpy(array)
    t[0] = 7
    array[1] = 8
    assert array[0] == 7 and t[1].item() == 8
    assert t.numpy() is array or np.shares_memory(t.numpy(), array)
    assert np.shares_memory(mg.as_tensor(array).numpy(), array)
    assert not np.shares_memory(mg.tensor(array).numpy(), array)
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\) instead"):
        mg.ones(1, requires_grad=True).numpy()
    assert mg.ones(1, requires_grad=True).numpy(force=True).tolist() == [1]
    with pytest.raises(TypeError, match="expected np.ndarray"):
        mg.from_numpy([1])


def test_numpy_functions_take_tensors():
    t = mg.arange(4.0)
    assert np.asarray(t).sum() == 6 and np.array(t, dtype=np.int64).dtype == np.int64
    assert np.mean(t.numpy()) == t.mean().item()
    product = np.ones(4) * t
    assert isinstance(product, mg.Tensor) and product.dtype is mg.float64
    assert isinstance(np.float64(2) * t, mg.Tensor) and (t + np.ones(4)).dtype is mg.float64


def test_functions_of_numpy_return_tensors():
    t = mg.tensor([1.0, 4.0])
    for result, expected in [(np.sqrt(t), [1, 2]), (np.add(t, 1), [2, 5]), (np.sum(t), 5)]:
        assert isinstance(result, mg.Tensor)
        assert result.dtype == mg.float32
        assert result.tolist() == expected
    assert np.multiply(t, 1j).dtype is mg.complex64


def test_dlpack_both_ways(torch):
    t = mg.arange(6.0).reshape(2, 3)
    array = np.from_dlpack(t)
    assert np.shares_memory(array, t.numpy())
    theirs = torch.from_dlpack(t)
    theirs[0, 0] = 9
    assert t[0, 0].item() == 9
    back = mg.from_dlpack(torch.arange(3))
    assert back.dtype is mg.int64 and back.tolist() == [0, 1, 2]
    assert t.__dlpack_device__()[0] == 1
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(mg.ones(1, requires_grad=True))


def test_dlpack_of_bfloat16(torch):
    t = mg.tensor([[1.0, -2.5], [0.0, 3.0]], dtype=mg.bfloat16)
    theirs = torch.from_dlpack(t.T)
    assert theirs.dtype is torch.bfloat16 and theirs.tolist() == [[1, 0], [-2.5, 3]]
    theirs[0, 0] = 9
    back = mg.from_dlpack(theirs)
    assert back.dtype is mg.bfloat16 and t[0, 0].item() == 9
    back[1, 1] = 7
    assert t.tolist() == [[9, -2.5], [0, 7]]
    assert mg.from_dlpack(torch.arange(3, dtype=torch.uint8)).dtype is mg.uint8


def test_python_values():
    assert mg.tensor(2.5).item() == 2.5 and isinstance(mg.tensor(2).item(), int)
    assert mg.tensor([[1, 2]]).tolist() == [[1, 2]] and mg.tensor(True).item() is True
    assert (
        float(mg.tensor([2.5])) == 2.5
        and int(mg.tensor(2.9)) == 2
        and bool(mg.tensor(0.0)) is False
    )
    assert [10, 20][mg.tensor(1)] == 20 and f"{mg.tensor(1.234):.2f}" == "1.23"
    assert math.sqrt(mg.tensor(4.0)) == 2
    assert 2.0 in mg.arange(4.0) and 9 not in mg.arange(4.0)
    assert [x.item() for x in mg.arange(3)] == [0, 1, 2] and len(mg.zeros(4, 2)) == 4
    assert mg.ones(2, dtype=mg.bfloat16).tolist() == [1.0, 1.0]


def test_python_value_errors():
    two = mg.ones(2)
    with pytest.raises(
        RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"
    ):
        two.item()
    with pytest.raises(ValueError, match="only one element tensors"):
        float(two)
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(two)
    with pytest.raises(RuntimeError, match="no values is ambiguous"):
        bool(mg.ones(0))
    with pytest.raises(TypeError, match="only integer tensors of a single element"):
        _ = [1][mg.tensor(0.0)]
    with pytest.raises(TypeError, match="len.. of a 0-d tensor"):
        len(mg.tensor(1.0))
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        list(mg.tensor(1.0))


def test_shape_attributes():
    x = mg.zeros(2, 3, 4)
    assert x.shape == x.size() == (2, 3, 4) and x.size(-1) == 4 and x.shape.numel() == 24
    assert isinstance(x.shape[1:], mg.Size) and repr(x.shape) == "minigrad.Size([2, 3, 4])"
    assert x.dim() == x.ndim == 3 and x.numel() == x.nelement() == 24 and x.element_size() == 4
    assert x.stride() == (12, 4, 1)
    assert x.transpose(0, 2).stride() == (1, 4, 12) and not x.transpose(0, 2).is_contiguous()
    assert x[1].storage_offset() == 12 and x.nbytes == 96
    with pytest.raises(IndexError, match=r"range of \[-3, 2\], but got 5"):
        x.size(5)


def test_pickle_and_deepcopy():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    x.note = "kept"
    x.grad = mg.ones(2)
    for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert copied.equal(x.detach()) and copied.requires_grad and copied.grad.tolist() == [1, 1]
        assert copied.note == "kept" and not np.shares_memory(copied.data.numpy(), x.data.numpy())
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1]
    view = pickle.loads(pickle.dumps(mg.arange(6.0)[::2]))
    assert view.tolist() == [0, 2, 4] and view.requires_grad is False
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)
    result = pickle.loads(pickle.dumps(x * 2))  # a leaf, as in torch
    assert result.is_leaf and result.requires_grad and result.equal((x * 2).detach())
    assert pickle.loads(pickle.dumps(mg.float32)) is mg.float32


def test_subclasses_and_attributes():
    class Marked(mg.Tensor):
        pass

    base = mg.ones(2)
    x = mg.Tensor._make_subclass(Marked, base, True)
    assert (
        isinstance(x, Marked) and x.requires_grad and np.shares_memory(x.data.numpy(), base.numpy())
    )
    assert type(x * 2) is Marked
    x.anything = 3
    assert x.anything == 3
    assert mg.is_tensor(x) and not mg.is_tensor(3)


def test_missing_names_say_so():
    for name in ("quantized_batch_norm", "no_such_name"):
        with pytest.raises(
            AttributeError, match=f"has no attribute '{name}'.*minigrad doesn't have"
        ):
            getattr(mg, name)
    assert "randn" in dir(mg) and mg.__version__
    assert mg.pi == math.pi and mg.inf == math.inf


def test_functions_are_pickled_by_their_public_names():
    functions = [mg.tanh, mg.true_divide, mg.linalg.det, mg.fft.fft, mg.special.erf]
    functions += [mg.nn.functional.relu, mg.poisson, mg.lu_solve]
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function


def test_number_of_threads():
    before = mg.get_num_threads()
    mg.set_num_threads(1)
    try:
        assert mg.get_num_threads() == 1
        with pytest.raises(ValueError, match="positive integer"):
            mg.set_num_threads(0)
    finally:
        mg.set_num_threads(before)


@pytest.mark.parametrize("make", [lambda v: [v], lambda v: [[1, v]], lambda v: v])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64, 10**400])
def test_integers_of_more_than_64_bits(value, make):
    """They became negative ones, or floats."""
    for dtype in (None, mg.int64, mg.int32):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            mg.tensor(make(value), dtype=dtype)
    with pytest.raises((ValueError, RuntimeError)):
        mg.full((2,), value)
    if value < 10**300:
        assert mg.tensor(make(value), dtype=mg.float64).flatten()[-1].item() == float(value)
    assert mg.tensor(2**64 - 1, dtype=mg.uint64).item() == 2**64 - 1
    assert mg.tensor([1, 1e30]).tolist() == pytest.approx([1, 1e30])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", 128), ("int8", -129), ("uint8", 256), ("uint8", -256), ("int16", 1e5),
     ("int32", 2**31), ("int64", 1e19), ("int32", math.nan), ("uint8", math.inf)],
)  # fmt: skip
def test_numbers_that_an_integer_dtype_does_not_have(dtype, value):
    dtype = getattr(mg, dtype)
    for call in (
        lambda: mg.tensor([1, value], dtype=dtype),
        lambda: mg.tensor(value, dtype=dtype),
        lambda: mg.full((2,), value, dtype=dtype),
    ):
        with pytest.raises(RuntimeError, match="cannot be converted to type .* without overflow"):
            call()
    assert mg.tensor([-1, 3.7], dtype=dtype).tolist()[1] == 3
    assert mg.tensor(-1, dtype=mg.uint8).item() == 255


def test_complex_numbers_are_no_real_ones():
    for dtype in (mg.float32, mg.int32):
        with pytest.raises(TypeError, match="expected real numbers for .*32, got complex ones"):
            mg.tensor([1 + 1j], dtype=dtype)
    assert mg.tensor([1j], dtype=mg.bool).item() is True


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_of_numpy_that_compute_otherwise():
    matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
    for given in (matrix, masked):
        t = mg.from_numpy(given)
        assert type(t._array) is np.ndarray
        assert (t * t).tolist() == [[1, 4], [9, 16]] and t.sum().item() == 10
        t[0, 0] = 1.0
    swapped = np.arange(3.0).astype(">f4" if sys.byteorder == "little" else "<f4")
    with pytest.raises(ValueError, match=r"byte order different .*newbyteorder"):
        mg.from_numpy(swapped)


NESTED = {  # the dtype and the values, as torch infers them
    "tensors of one element": (lambda t: [t([1]), t([[2]])], "int64", [1, 2]),
    "mixed with numbers": (lambda t: [1, t([2.5])], "float32", [1, 2.5]),
    "at any depth": (lambda t: [[1, t([2])], (3, 4)], "int64", [[1, 2], [3, 4]]),
    "a float is of the default dtype": (lambda t: [t(1.5), 2], "float32", [1.5, 2]),
    "beside integers, too": (lambda t: [t(1), 2.5], "float32", [1, 2.5]),
    "the widest is last": (lambda t: [2.5, t(1.5, dtype=mg.float64)], "float64", [2.5, 1.5]),
    "a number of NumPy, last": (lambda t: [2, np.float64(1.5)], "float64", [2, 1.5]),
    "a number of NumPy, first": (lambda t: [np.float32(1.5), 2], "float32", [1.5, 2]),
    "integers of NumPy": (lambda t: [np.int8(1), 2.5], "float32", [1, 2.5]),
    "complex": (lambda t: [t(1j), 2], "complex64", [1j, 2]),
    "two kinds of 16 bits": (lambda t: [t(1.0).bfloat16(), t(2.0).half()], "float32", [1, 2]),
    "arrays": (lambda t: [np.array([1, 2]), [3, 4.5]], "float32", [[1, 2], [3, 4.5]]),
    "arrays of one element": (lambda t: [np.array([1.0]), [2]], "float64", [[1], [2]]),
}


@pytest.mark.parametrize("name", NESTED)
def test_parts_of_all_kinds(name):
    make, dtype, values = NESTED[name]
    found = mg.tensor(make(mg.tensor))
    assert (found.dtype, found.tolist()) == (getattr(mg, dtype), values)
    assert mg.tensor(make(mg.tensor), dtype=mg.complex128).tolist() == values


def test_parts_that_are_no_numbers():
    endless: list = []
    endless.append(endless)
    for data, error, text in (
        ([1.0, None], RuntimeError, "Could not infer dtype of NoneType"),
        ([mg.tensor(1), None], RuntimeError, "Could not infer dtype of NoneType"),
        ([1.0, "a"], TypeError, "invalid data type 'str'"),
        (["a"], ValueError, "expected numbers, not str"),
        ("a", TypeError, "invalid data type 'str'"),
        ([np.int64(1), 2**70], ValueError, "Overflow when unpacking"),
        ([mg.tensor(1), [2]], TypeError, "not a sequence"),
        (endless, ValueError, "too many dimensions"),
    ):
        with pytest.raises(error, match=text):
            mg.tensor(data)
    with pytest.raises(RuntimeError, match="without overflow"):
        mg.tensor([np.float32(300), 1], dtype=mg.uint8)
    with pytest.raises(TypeError, match="real numbers"):
        mg.tensor([np.complex64(1j), 1], dtype=mg.float32)


MADE = {
    "ones": lambda **how: mg.ones(2, **how),
    "empty": lambda **how: mg.empty(2, **how),
    "ones_like": lambda **how: mg.ones_like(mg.ones(2), **how),
    "new_ones": lambda **how: mg.ones(2).new_ones(2, **how),
    "new_tensor": lambda **how: mg.ones(2).new_tensor([1.0], **how),
    "full": lambda **how: mg.full((2,), 1.0, **how),
    "full_like": lambda **how: mg.full_like(mg.ones(2), 1.0, **how),
    "new_full": lambda **how: mg.ones(2).new_full((2,), 1.0, **how),
    "eye": lambda **how: mg.eye(2, **how),
    "tril_indices": lambda **how: mg.tril_indices(2, 2, **how),
    "triu_indices": lambda **how: mg.triu_indices(2, 2, **how),
    "empty_strided": lambda **how: mg.empty_strided((2,), (1,), **how),
    "new_empty_strided": lambda **how: mg.ones(2).new_empty_strided((2,), (1,), **how),
    "arange": lambda **how: mg.arange(3, **how),
    "range": lambda **how: mg.range(0, 3, **how),
    "linspace": lambda **how: mg.linspace(0, 1, 3, **how),
    "logspace": lambda **how: mg.logspace(0, 1, 3, **how),
    "rand": lambda **how: mg.rand(2, **how),
    "randn_like": lambda **how: mg.randn_like(mg.ones(2), **how),
    "randint": lambda **how: mg.randint(3, (2,), **how),
    "randint_like": lambda **how: mg.randint_like(mg.ones(2), 3, **how),
    "randperm": lambda **how: mg.randperm(3, **how),
    "normal": lambda **how: mg.normal(0.0, 1.0, (2,), **how),
    "hann_window": lambda **how: mg.hann_window(3, **how),
    "fftfreq": lambda **how: mg.fft.fftfreq(3, **how),
    "rfftfreq": lambda **how: mg.fft.rfftfreq(3, **how),
}


@pytest.mark.parametrize("name", MADE)
def test_layouts_in_which_nothing_is_made(name):
    assert MADE[name](layout=mg.strided).layout is mg.strided
    with pytest.raises(NotImplementedError, match=r"layout minigrad.sparse_coo here: .*to_sparse"):
        MADE[name](layout=mg.sparse_coo)


def test_zeros_in_a_sparse_layout():
    x = mg.ones(2, 3)
    for zeros in (mg.zeros(2, 3, layout=mg.sparse_coo), mg.zeros_like(x, layout=mg.sparse_coo)):
        assert zeros.is_sparse and zeros.to_dense().tolist() == [[0] * 3] * 2
    assert x.new_zeros(2, 3, layout=mg.sparse_coo).is_sparse
