"""Small programs with odd inputs, each run with torch and with minigrad as in
`test_side_by_side.py`: what is refused, and with which type of error."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m
from minigrad import backends
from tests.engine.test_side_by_side import check

PROGRAMS = {
    "unpool": """
        F.max_unpool1d(m.ones(1, 1, 2), m.tensor([[[0, 1]]]), 2, output_size=(1, 5))
        F.max_unpool1d(m.ones(1, 1, 2), m.tensor([[[0, 9]]]), 2)
        F.max_unpool1d(m.ones(1, 0, 2), m.zeros(1, 0, 2).long(), 2)
        F.max_unpool1d(m.ones(0, 1, 2), m.zeros(0, 1, 2).long(), 2)
        F.max_unpool2d(m.ones(1, 1, 1, 2), m.tensor([[[[0, -1]]]]), 2)
        F.max_unpool2d(m.ones(1, 1, 1, 2), m.tensor([[[[0, 1]]]]), 2, output_size=(1, 2, 4))
        F.max_unpool2d(m.ones(1, 1, 0, 2), m.zeros(1, 1, 0, 2).long(), 2)
        F.max_unpool3d(m.ones(1, 1, 1, 1, 2), m.tensor([[[[[0, 1]]]]]), 2, stride=0)
        F.max_unpool3d(m.ones(1, 0, 1, 1, 2), m.zeros(1, 0, 1, 1, 2).long(), 2)
    """,
    "fractional": """
        F.fractional_max_pool2d(m.ones(1, 1, 4, 4), (2, 2, 2), output_size=2)
        F.fractional_max_pool2d(m.ones(1, 1, 4, 4), 2, 2, None, False, m.ones(1, 1, 3))
        F.fractional_max_pool2d(m.ones(1, 1, 4, 4), 2, 2, None, False, m.ones(1, 1, 2).double())
        F.fractional_max_pool2d(m.ones(1, 4, 4), 2, 2, None, False, m.ones(1, 2))
        F.fractional_max_pool2d(r.view(1, 3, 2, 2), 1, 2, None, False, m.ones(2, 3, 2) / 2)
        F.fractional_max_pool3d(m.ones(1, 1, 4, 4, 4), 2, 2, None, False, m.ones(1, 1, 2))
    """,
    "bilinear": """
        F.bilinear(m.ones(2, 3), m.ones(2, 4), m.ones(3, 4))
        F.bilinear(m.ones(2, 3), m.ones(2, 4), m.ones(5, 4, 4))
        F.bilinear(m.ones(3, 3), m.ones(1, 4), m.ones(5, 3, 4))
        F.bilinear(m.ones(2, 3), m.ones(2, 4).double(), m.ones(5, 3, 4))
        F.bilinear(m.ones(2, 3), m.ones(2, 4), m.ones(5, 3, 4), m.ones(1))
        F.bilinear(m.ones(2, 3), m.ones(2, 4), m.ones(5, 3, 4), m.ones(5).double())
        F.bilinear(m.ones(3), m.ones(4), m.ones(5, 3, 4), m.ones(5))
        F.bilinear(m.ones(0, 3), m.ones(0, 4), m.ones(5, 3, 4))
    """,
    "borders": """
        F.pad(m.ones(1, 1, 3), (-2, -1), mode="replicate")
        F.pad(m.ones(1, 1, 3), (-2, -1), mode="reflect")
        F.pad(m.ones(1, 1, 3), (-2, -1), mode="circular")
        F.pad(m.ones(1, 1, 3, 3), (-2, -1, 1, 1), mode="replicate")
        F.pad(m.ones(1, 1, 0), (1, 1), mode="replicate")
        F.pad(m.ones(1, 0, 3), (1, 1), mode="reflect")
        F.pad(m.ones(0, 1, 3), (1, 1), mode="reflect")
        F.pad(m.ones(1, 0, 3, 3), (1, 1, 1, 1), mode="replicate")
        F.pad(m.ones(1, 0, 3), (1, 1), mode="circular")
        F.pad(m.ones(1, 1, 3, 3), (1, 1, 1), mode="reflect")
        F.pad(m.ones(1, 1, 3), (1, 1), mode="reflect", value=2)
        F.pad(m.ones(1, 1, 3), (1, 1), mode="circular", value=0)
    """,
    "repeats": """
        m.repeat_interleave(m.ones(3), m.ones(3, 1).long())
        m.repeat_interleave(m.ones(3), "a")
        m.repeat_interleave(m.ones(3), True)
        m.repeat_interleave(m.ones(3), np.int64(2))
        m.repeat_interleave(m.ones(3), m.tensor([1, 2]))
    """,
    "sorted": """
        m.searchsorted(m.ones(2), None)
        m.searchsorted(m.ones(2), "a")
        m.searchsorted(m.ones(2), [1.0])
        m.searchsorted(m.ones(2), np.float32(1.0))
        m.searchsorted(m.ones(2), m.tensor([1j]))
        m.searchsorted(m.ones(2), 1.0, sorter=m.tensor([0, 5]))
        m.searchsorted(m.ones(2), 1.0, sorter=m.tensor([-1, 1]))
        m.bucketize(None, m.ones(2))
        m.bucketize(m.tensor([1j]), m.ones(2))
    """,
    "losses": """
        slope(lambda x: F.hinge_embedding_loss(x, x.sign(), reduction="none"))
        slope(lambda x: F.cosine_embedding_loss(x - x.detach() + 1, x * 0 + 1, x[:, 0].sign()))
        F.cross_entropy(m.zeros(0), m.zeros(0))
        F.cross_entropy(m.zeros(0, 3), m.zeros(0, 3))
        F.cross_entropy(m.zeros(3, 0), m.zeros(3, 0))
        F.cross_entropy(m.zeros(0, 3), m.zeros(0, 3), reduction="sum")
        F.kl_div(r, r.long())
        F.kl_div(r.long(), r, log_target=True)
        F.kl_div(m.tensor([1j]), m.tensor([1j]), log_target=True, reduction="sum")
    """,
    "functions": """
        F.rrelu(r.long())
        F.instance_norm(m.zeros(0, 3))
        F.instance_norm(m.zeros(0, 3, 2))
        m.pow(r > 0, -1)
        m.pow(r > 0, 2)
        (m.ones(2) > 0) ** 300
        m.lerp(r, r, m.ones(4).double())
        m.lerp(r, r, m.ones(4).half())
        m.lerp(r, -r, m.tensor(0.5).double())
        m.lerp(r, r.double(), 0.5)
        m.nanmedian(m.zeros(3, 0), -1)
        m.nanmedian(m.zeros(0), 0)
        m.nanmedian(m.zeros(3, 0), 0).values
        m.cartesian_prod(m.tensor(1.0), m.ones(2))
        m.cartesian_prod(m.ones(2, 2))
        m.tensor(1.0).unflatten(-1, (1, 1))
        slope(lambda x: m.copysign(x * 0 + 3e38, -m.ones(4)))
    """,
    "complex": """
        m.logit(m.complex(r, r), 0.1)
        m.complex(r, r).requires_grad_().max(-1)
        m.complex(r, r).requires_grad_().min(0)
        m.complex(r, r).max(0)
        m.complex(r, r).abs_()
        m.complex(r, r).absolute_()
        (-r).absolute_()
        m.special.xlog1py(r, m.complex(r, r))
        m.arange(3, dtype=m.complex64)
        m.arange(1j, 3)
        m.arange(3 + 0j)
        m.range(0, 3, dtype=m.complex64)
        m.randperm(3, dtype=m.complex64)
        m.bernoulli(m.complex(r, r), 0.5)
    """,
    "whole numbers": """
        m.range(0, 3, dtype=m.bool)
        m.randperm(3, dtype=m.bool)
        m.bernoulli(r.long())
        m.bernoulli(r > 0)
        m.bernoulli(r.long()[:0])
        m.bernoulli(r.long(), 1.0)
        m.tensor(True).kthvalue(1)
        m.tensor([True]).kthvalue(1)
        m.tensor(1j).kthvalue(1)
    """,
    "too large": """
        (r / 0).nan_to_num(1e40, 1e39, -1e300)
        (r / 0).half().nan_to_num(1e5, 1e39, -7e4)
        (r / 0).double().nan_to_num(1e40, 1e39, -1e300)
        (r / 0).nan_to_num_(posinf=1e39)
    """,
    "resized": """
        r[:, ::2].resize_(3, 2)
        r.t().resize_((4, 3))
        r.t().resize_as_(m.ones(4, 3))
        r.t().resize_(4, 3).stride()
        r.t().resize_(4, 3, memory_format=m.contiguous_format)
        r.t().resize_(2, 6)
        r.t().resize_(3, 4)
        m.tensor(2.0).resize_(())
    """,
    "products": """
        m.addbmm(m.ones(2, 2), m.ones(2, 3), m.ones(1, 3, 2))
        m.addbmm(m.ones(2, 2), m.ones(1, 2, 3), m.ones(1, 2, 3))
        m.addbmm(m.ones(2, 2), m.ones(1, 2, 3), m.ones(2, 3, 2))
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_torch(name, torch):
    with backends.use("numpy"):
        check(PROGRAMS[name], torch)


@pytest.mark.parametrize("triangle", ["tril", "triu"])
def test_a_bool_and_an_integer_after_a_triangle_of_bools(triangle):
    """A triangle chooses between bools and the number 0 and is a bool; what is remembered of that
    launch is not of `where` with such operands, which is an integer."""
    chosen = m.tensor([[True, False, True], [True, True, False]])
    with backends.use("numba"):
        for _ in range(2):
            assert getattr(chosen, triangle)().dtype == m.bool
            found = m.where(chosen, chosen, 2)
            assert found.dtype == m.int64 and found.tolist() == [[1, 2, 1], [1, 1, 2]]


def test_a_composed_function_names_itself_in_its_refusal():
    x = m.tensor([1j])
    for args in ((x, 2), (2, x), (m.ones(1), x)):
        with pytest.raises(NotImplementedError, match="xlog1py"):
            m.special.xlog1py(*args)


def test_no_pseudoinverse_of_nan():
    with pytest.raises(m.linalg.LinAlgError, match="pinv"):
        m.linalg.pinv(m.full((2, 2), float("nan")))


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[1:]], ids=["whole", "part"])
def test_no_gradient_passes_what_was_rounded_in_place(view):
    """`//=` has no gradient; that is so, too, once its launch is remembered."""
    with backends.use("numba"):
        for _ in range(4):
            x = m.tensor([5.0, -7.0, 3.0], requires_grad=True)
            y = x * 2
            part = view(y)
            part.floor_divide_(4)
            y.sum().backward()
            assert part.tolist() == [2, -4, 1][-len(part) :]
            assert x.grad.tolist() == [2.0] * (3 - len(part)) + [0.0] * len(part)


INPUTS = {
    "float": lambda: m.tensor([[0.5, -1.5, 2.0], [3.0, 0.0, -0.25]]),
    "transposed": lambda: m.tensor([[0.5, -1.5], [2.0, 3.0], [0.0, -0.25]]).t(),
    "half": lambda: m.tensor([[0.5, -1.5, 2.0], [3.0, 0.0, -0.25]]).half(),
    "int": lambda: m.tensor([[1, -2, 3], [0, 5, -4]]),
    "byte": lambda: m.tensor([[1, 2, 3], [0, 5, 4]]).byte(),
    "bool": lambda: m.tensor([[True, False, True], [True, True, False]]),
    "number": lambda: m.tensor(2.5),
}
ORDERED = """
    x.tril(); m.where(x > 0, x, 0); m.where(x > 0, x, 2); m.where(x > 0, x, 2.5)
    m.where(x > 0, 1, x); x + 1; x + True; x + 1.5; x * x; x * 2; 2 - x; x / 2; x // 2; x % 2
    x**2; -x; x.abs(); x == 1; x < 0.5; x.clone().add_(1); x.clone().mul_(2.5)
    x.clone().floor_divide_(2); x.clone().copy_(x * 2); x.clone().masked_fill_(x > 0, 2)
    x.clone().fill_(3); x.clone().clamp_(0, 1); x.clamp(max=1.5); x.sum(); x.sum(0); x.mean(0)
    x.amax(0); x.cumsum(0); x.sort(0).values; x.masked_fill(x > 0, 7); m.maximum(x, x * 2)
    m.stack([x, x]); x.flip(0); x.exp(); x.sqrt(); x.softmax(0); x.round(); x.norm()
"""


def _with_gradient(line: str, make) -> list:
    x = make()
    if x.is_floating_point():
        x.requires_grad_()
    try:
        y = eval(line, {"m": m, "x": x})
    except (RuntimeError, IndexError) as error:
        return [type(error).__name__]
    found = [str(y.dtype), y.detach().float().numpy()]
    if y.requires_grad:
        (g,) = m.autograd.grad(y.float().sum(), x, allow_unused=True)
        found.append(None if g is None else g.float().numpy())
    return found


def test_results_do_not_depend_on_what_ran_before(rng):
    """Launches are remembered by their operands: in any order, and again, they are the same."""
    cases = [
        (line, make)
        for line in ORDERED.replace("\n", ";").split(";")
        if line.strip()
        for make in INPUTS.values()
    ]
    with backends.use("numpy"):
        expected = [_with_gradient(line.strip(), make) for line, make in cases]
    with backends.use("numba"):
        for i in [i for _ in range(3) for i in rng.permutation(len(cases))]:
            line, make = cases[i]
            found = _with_gradient(line.strip(), make)
            assert len(found) == len(expected[i]) and found[0] == expected[i][0], line
            for ours, right in zip(found[1:], expected[i][1:], strict=True):
                np.testing.assert_allclose(ours, right, rtol=2e-3, atol=1e-6, err_msg=line)
