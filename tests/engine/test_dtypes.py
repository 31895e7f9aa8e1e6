"""Promotion, defaults and conversions between dtypes: torch's rules."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import minigrad as mg

NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
OPERATIONS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "eq": lambda a, b: a == b,
    "pow": lambda a, b: a**b,
}

pytestmark = pytest.mark.usefixtures("reference_backend")


def name(dtype) -> str:
    return str(dtype).rpartition(".")[2]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_result_dtypes_match_torch(operation, torch):
    """All pairs of dtypes, as vectors, 0-dimensional tensors and Python scalars."""
    call = OPERATIONS[operation]
    shapes = [(2,), ()]
    for a, b, sa, sb in itertools.product(NAMES, NAMES, shapes, shapes):
        if operation == "pow" and a == b == "bool":
            continue  # torch has none
        ours = [mg.ones(s, dtype=getattr(mg, n)) for s, n in ((sa, a), (sb, b))]
        theirs = [torch.ones(s, dtype=getattr(torch, n)) for s, n in ((sa, a), (sb, b))]
        assert name(call(*ours).dtype) == name(call(*theirs).dtype), (a, sa, b, sb)
    for a, scalar, shape in itertools.product(NAMES, (True, 2, 2.5), shapes):
        if operation == "pow" and a == "bool" and scalar is True:
            continue
        ours = mg.ones(shape, dtype=getattr(mg, a))
        theirs = torch.ones(shape, dtype=getattr(torch, a))
        assert name(call(ours, scalar).dtype) == name(call(theirs, scalar).dtype), (a, scalar)
        if operation != "pow":
            assert name(call(scalar, ours).dtype) == name(call(scalar, theirs).dtype)


@pytest.mark.parametrize("reduction", ["sum", "prod", "cumsum", "exp", "abs", "argmax", "sigmoid"])
def test_unary_result_dtypes_match_torch(reduction, torch):
    for n in NAMES:
        if reduction in ("abs", "argmax") and n == "bool":
            continue
        args = (0,) if reduction == "cumsum" else ()
        ours = getattr(mg.ones(2, dtype=getattr(mg, n)), reduction)(*args)
        theirs = getattr(torch.ones(2, dtype=getattr(torch, n)), reduction)(*args)
        assert name(ours.dtype) == name(theirs.dtype), n


def test_promote_types_and_result_type_match_torch(torch):
    for a, b in itertools.product(NAMES, NAMES):
        ours = mg.promote_types(getattr(mg, a), getattr(mg, b))
        assert name(ours) == name(torch.promote_types(getattr(torch, a), getattr(torch, b)))
        assert mg.can_cast(getattr(mg, a), getattr(mg, b)) == torch.can_cast(
            getattr(torch, a), getattr(torch, b)
        )


def test_half_precision_rounds_once():
    for dtype, step in ((mg.float16, 2.0**-11), (mg.bfloat16, 2.0**-8)):
        x = mg.full((2,), 1 + step, dtype=mg.float32).to(dtype)
        assert x.tolist() == [1.0, 1.0]  # half a unit in the last place: to even
        y = mg.ones(4096, dtype=dtype).sum()
        assert y.dtype is dtype and y.item() == 4096  # summed in float32
    assert repr(mg.ones(1, dtype=mg.bfloat16)) == "tensor([1.], dtype=minigrad.bfloat16)"


def test_default_dtype():
    assert mg.get_default_dtype() is mg.float32
    mg.set_default_dtype(mg.float64)
    try:
        assert mg.ones(1).dtype is mg.tensor(1.5).dtype is mg.float64
        assert (mg.arange(3) * 1.5).dtype is mg.float64
    finally:
        mg.set_default_dtype(mg.float32)
    with pytest.raises(TypeError, match="only floating-point types"):
        mg.set_default_dtype(mg.int64)


def test_aliases_and_attributes():
    assert mg.float is mg.float32 and mg.long is mg.int64 and mg.double is mg.float64
    assert mg.int is mg.int32 and mg.half is mg.float16 and mg.bool.itemsize == 1
    assert mg.float32.is_floating_point and not mg.int64.is_floating_point
    assert mg.int8.is_signed and not mg.uint8.is_signed
    assert repr(mg.float32) == "minigrad.float32"
    assert mg.finfo(mg.float32).eps == np.finfo(np.float32).eps
    assert mg.iinfo(mg.int8).max == 127
    with pytest.raises(TypeError):
        mg.finfo(mg.int64)
    with pytest.raises(TypeError):
        mg.iinfo(mg.float32)


def test_casts():
    x = mg.tensor([1.7, -1.7])
    assert x.long().tolist() == [1, -1] and x.int().dtype is mg.int32
    assert x.double().float().equal(x) and x.half().dtype is mg.float16
    assert x.bool().tolist() == [True, True] and x.to(mg.uint8).dtype is mg.uint8
    assert x.type(mg.float64).dtype is mg.float64
    assert x.type() == "minigrad.FloatTensor" and x.type("torch.LongTensor").dtype is mg.int64
    assert x.type_as(mg.arange(2)).dtype is mg.int64
    assert x.to("cpu") is x and x.to(x) is x and x.to("cpu", mg.float64).dtype is mg.float64
    assert x.to(mg.float32, copy=True) is not x
    assert isinstance(x, mg.FloatTensor) and not isinstance(x, mg.LongTensor)
    y = mg.ones(2, requires_grad=True)
    (y.double() * 3).sum().backward()
    assert y.grad.dtype is mg.float32 and y.grad.tolist() == [3, 3]


def test_unsupported_types_are_named():
    with pytest.raises(TypeError, match="datetime64"):
        mg.from_numpy(np.zeros(2, "datetime64[s]"))
    with pytest.raises(ValueError, match="expected numbers, not str"):
        mg.tensor(["a"])
    with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
        _ = mg.tensor(True) - mg.tensor(True)
    for call in (lambda x: x & x, lambda x: x << 1, lambda x: x | x):
        with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
            call(mg.ones(2))
    with pytest.raises(TypeError, match="integer and Boolean-type"):
        _ = ~mg.ones(2)
    with pytest.raises(RuntimeError, match="negative integer powers"):
        _ = mg.tensor([2]) ** -1
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _ = mg.tensor([2]) // 0
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        mg.arange(3).mean()
    with pytest.raises(RuntimeError, match="only support floating point"):
        mg.arange(3).var()
    with pytest.raises(TypeError, match="unsupported operand|must be Tensor"):
        _ = mg.ones(2) + "a"


@pytest.mark.parametrize("join", [mg.cat, mg.stack, mg.hstack, mg.vstack])
@pytest.mark.parametrize(
    "dtypes", [("float32", "int64"), ("int64", "bool"), ("float32", "float16")]
)
def test_joined_tensors_have_the_widest_dtype_in_any_order(join, dtypes):
    wide, narrow = (mg.tensor([1, 0], dtype=getattr(mg, name)) for name in dtypes)
    for parts in ([wide, narrow], [narrow, wide], [wide, wide, narrow]):
        assert join(parts).dtype == wide.dtype
        assert join(parts).flatten().tolist() == [1, 0] * len(parts)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_are_rounded_before_they_are_compared(dtype):
    """A tensor of 16 bits is equal to 0.1 where it is the number of its dtype next to 0.1."""
    x = mg.tensor([0.1, 1 / 3, 2049.0, -1.0], dtype=getattr(mg, dtype))
    wide = mg.tensor(0.1, dtype=mg.float64)  # without dimensions: it does not change the dtype
    assert [(x == n).tolist().index(True) for n in (0.1, 1 / 3, 2049, -1, wide)] == [0, 1, 2, 3, 0]
    assert (wide == x).tolist() == (x == 0.1).tolist() == [True, False, False, False]
    assert (x != 0.1).tolist() == [False, True, True, True]
    assert not (x[:1] < 0.1).any() and not (x[:1] > 0.1).any()
    assert (x[:1] <= 0.1).all() and (x[:1] >= wide).all()
    assert (x[:1] % 0.1).tolist() == mg.fmod(x[:1], 0.1).tolist() == [0]
    assert mg.isin(x, 0.1).tolist() == [True, False, False, False]
    assert (x < 1e30).all()
    assert (x == x.float()).all() and (x[:1] != mg.tensor([0.1])).all()  # float32, with dimensions


def test_dtypes_that_no_tensor_has(torch):
    """Programs compare with the dtypes of few bits; every maker refuses a tensor of one."""
    x, layer = mg.ones(2), mg.nn.Linear(2, 2)
    small = [f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
    small += [f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)]
    for name in small:
        ours, theirs = (getattr(m, name) for m in (mg, torch))
        assert str(ours) == str(theirs).replace("torch", "minigrad")
        for attribute in ("itemsize", "is_floating_point", "is_complex", "is_signed"):
            assert getattr(ours, attribute) == getattr(theirs, attribute), name
        if "float" in name and name != "float8_e8m0fnu":  # numbers without a sign, nor zero
            limits = ["bits", "max", "min", "tiny", "smallest_normal", "resolution"]
            limits += ["eps"] * (name != "float8_e5m2fnuz")  # 1/8 in torch, with 2 bits after the 1
            for limit in limits:
                assert getattr(mg.finfo(ours), limit) == getattr(torch.finfo(theirs), limit), limit
        assert ours != x.dtype and pickle.loads(pickle.dumps(ours)) is ours
        for made in (
            lambda d: mg.zeros(2, dtype=d),
            lambda d: mg.empty(2, dtype=d, device="meta"),
            lambda d: mg.tensor([1.0], dtype=d),
            x.to,
            x.type,
            x.view,
            layer.to,
            mg.set_default_dtype,
            lambda d: mg.promote_types(d, mg.float32),
        ):
            with pytest.raises(TypeError, match=f"{name}: minigrad has no tensors|floating"):
                made(ours)


def test_clamp_by_numbers_of_another_category(torch):
    """A float promotes integers; an integer stays one of the tensor's dtype."""
    for low, high in ((0.5, None), (None, 2.5), (0.5, 2), (1, 2), (None, 2), (-1, None)):
        for name in ("int64", "int32", "uint8", "float32", "float64", "float16"):
            if name == "uint8" and low == -1:
                continue
            found = []
            for m in (mg, torch):
                x = m.tensor([0, 1, 2, 3]).to(getattr(m, name))
                for _ in range(4):
                    y = x.clamp(low, high)
                found.append((str(y.dtype).partition(".")[2], y.tolist()))
            assert found[0] == found[1]
