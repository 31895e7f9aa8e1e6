"""Complex numbers where the table of operations has none: dtypes, and what has no order."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m
from minigrad import backends
from minigrad.autograd.check import GradcheckError

Z = np.array([[1 + 2j, 0.5 - 1j], [-2 + 0.1j, 3j]])


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_powers_in_double_precision(kind):
    z = m.tensor(Z.astype(kind))
    for power in (m.float_power(z, 2 - 1j), z.float_power(m.tensor(2 - 1j)), z ** (2 - 1j)):
        np.testing.assert_allclose(power.numpy(), Z ** (2 - 1j), rtol=1e-5)
    assert m.float_power(z, 2).dtype == m.float_power(2, z).dtype == m.complex128
    assert m.float_power(m.ones(2), 1j).dtype == m.complex128


def test_ldexp_of_a_complex_exponent():
    x = np.array([[1.5, -2.0], [0.5, 3.0]])
    found = m.ldexp(m.tensor(x), m.tensor(Z))
    np.testing.assert_allclose(found.numpy(), x * 2**Z, rtol=1e-6)


def test_logsumexp_is_shifted_by_the_largest_real_part():
    z = Z + np.array([[800.0], [0.0]])
    expected = np.log(np.exp(Z).sum(1)) + np.array([800, 0])
    np.testing.assert_allclose(m.logsumexp(m.tensor(z), 1).numpy(), expected, rtol=1e-12)


F = m.nn.functional
COMPOSED = {
    "logaddexp": (
        lambda z: m.logaddexp(z, z.flip(0)),
        lambda z: np.log(np.exp(z) + np.exp(z[::-1])),
    ),
    "softsign": (F.softsign, lambda z: z / (1 + abs(z))),
    "rms_norm": (
        lambda z: F.rms_norm(z, (2,), z[0], 0.1),
        lambda z: z * z[0] / np.sqrt((z * z).mean(1, keepdims=True) + 0.1),
    ),
    "logcumsumexp": (lambda z: z.logcumsumexp(0), lambda z: np.log(np.cumsum(np.exp(z), 0))),
    "renorm": (
        lambda z: z.renorm(2, 0, 1.5),
        lambda z: z * np.minimum(1, 1.5 / (np.linalg.norm(z, axis=1, keepdims=True) + 1e-7)),
    ),
    "dot": (lambda z: m.dot(z[0], z[1]), lambda z: z[0] @ z[1]),
    "vdot": (lambda z: m.vdot(z[0], z[1]), lambda z: z[0].conj() @ z[1]),
}


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", COMPOSED)
def test_functions_of_complex_numbers(name, kind):
    ours, reference = COMPOSED[name]
    z = np.concatenate([Z, Z[::-1] * 0.3, Z * 0.2 - 1j])
    found = ours(m.tensor(z.astype(kind)))
    assert found.numpy().dtype == kind
    np.testing.assert_allclose(
        found.numpy(), reference(z), rtol=1e-5 if kind == np.complex64 else 1e-12
    )
    assert m.autograd.gradcheck(ours, m.tensor(z, requires_grad=True))


def test_logarithms_of_sums_without_overflow():
    a, b = (m.tensor(values) for values in ([900 + 1j, -np.inf, np.inf], [-900, -np.inf, 1j]))
    assert m.logaddexp(a, b).tolist() == [900 + 1j, -np.inf, np.inf]
    running = m.tensor([-900.0 + 1j, 0.5, 900]).logcumsumexp(0)
    np.testing.assert_allclose(running.numpy(), [-900 + 1j, 0.5, 900], rtol=1e-6)


UNORDERED = {
    "sort": lambda z: z.sort(),
    "argsort": lambda z: z.argsort(),
    "msort": lambda z: z.msort(),
    "topk": lambda z: z.topk(1),
    "kthvalue": lambda z: z.kthvalue(1),
    "median": lambda z: z.median(),
    "nanmedian": lambda z: z.nanmedian(),
    "mode": lambda z: z.mode(),
    "unique": lambda z: z.unique(),
    "searchsorted": lambda z: m.searchsorted(z, z),
    "bucketize": lambda z: m.bucketize(z, m.tensor([1.0])),
    "isin": lambda z: m.isin(z, z),
    "nansum": lambda z: z.nansum(),
    "heaviside": lambda z: m.heaviside(z, z),
    "isposinf": lambda z: z.isposinf(),
    "isneginf": lambda z: z.isneginf(),
    "deg2rad": lambda z: z.deg2rad(),
    "rad2deg": lambda z: z.rad2deg(),
    "max": lambda z: z.max(),
    "lt": lambda z: z < 1,
}


@pytest.mark.parametrize("name", UNORDERED)
def test_complex_numbers_have_no_order(name):
    with pytest.raises(RuntimeError, match=r"for 'ComplexDouble'|complex|isin\(\): ComplexDouble"):
        UNORDERED[name](m.tensor(Z))


def test_a_number_before_a_real_tensor():
    x = np.array([1.5, -2.0, 0.3])
    for power in (1j, 2.0 - 1j):
        np.testing.assert_allclose((power ** m.tensor(x)).numpy(), (power + 0j) ** x, rtol=1e-12)
    assert (1j == m.tensor([0.0, 1.0])).tolist() == [False, False]


class Conjugated(m.autograd.Function):
    """z * z with the gradient of a function that is not holomorphic."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


def test_gradcheck_compares_both_parts():
    z = m.tensor(Z, requires_grad=True)
    assert m.autograd.gradcheck(lambda z: z * z.conj().exp() + z.abs(), z)
    assert m.autograd.gradcheck(lambda z, x: z * x, (z, m.ones(2, dtype=m.double)))
    assert m.autograd.gradgradcheck(lambda z: z * z * z.conj(), z)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        m.autograd.gradcheck(Conjugated.apply, z)


def test_gradcheck_of_results_without_a_graph():
    x = m.tensor([1.0, 2.0], dtype=m.double, requires_grad=True)
    with pytest.raises(GradcheckError, match="expected to be zero"):
        m.autograd.gradcheck(lambda x: x.detach() * 2, x)
    assert m.autograd.gradcheck(lambda x: m.ones(2, dtype=m.double), x)
    assert m.autograd.gradcheck(lambda x: x.argmax(), x)


def test_parts_are_assigned():
    z = m.tensor(Z)
    z.real, z.imag = m.ones(2, 2, dtype=m.double), m.tensor(2.0)
    assert z.tolist() == [[1 + 2j] * 2] * 2
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        m.ones(2).imag = m.ones(2)


def test_python_numbers_of_complex_ones():
    assert float(m.tensor(2 + 0j)) == int(m.tensor(2 + 0j)) == 2
    for function in (float, int):
        with pytest.raises(RuntimeError, match="cannot be converted to type double"):
            function(m.tensor(2 + 1j))


def test_sums_have_the_dtype_that_is_asked_for():
    z = m.tensor(Z.astype(np.complex64))
    assert z.sum(dtype=m.complex128).dtype == m.complex128
    assert z.sum(0, dtype=m.float32).tolist() == z.real.sum(0).tolist()
    with pytest.raises(RuntimeError, match=r"argmax\(\): does not support complex input"):
        z.argmax()


def test_layers_of_complex_numbers(rng):
    layer = m.nn.Linear(2, 3).to(m.complex64)
    z = m.tensor(Z.astype(np.complex64))
    weight, bias = (p.detach().numpy() for p in layer.parameters())
    for x in (z, z[0], m.stack([z, z])):
        expected = x.numpy() @ weight.T + bias
        np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-5)
        assert m.nn.functional.linear(x, layer.weight).shape == expected.shape
    layer(z).abs().sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == m.complex64


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (1, 0, 2)])
def test_gradients_of_parts_in_any_layout(order, rng):
    def part(*shape):
        return m.tensor(rng.standard_normal(shape))

    z = m.complex(part(3, 4), part(3, 4)).requires_grad_()
    w = part(*[(3, 4, 2)[d] for d in order])
    (m.view_as_real(z).permute(order) * w).sum().backward()
    back = w.permute([order.index(d) for d in range(3)]).numpy()
    assert np.array_equal(z.grad.numpy(), back[..., 0] + 1j * back[..., 1])


def test_numbers_of_parts_are_a_view():
    x = m.arange(8.0, dtype=m.float64).reshape(2, 2, 2).clone()
    z = m.view_as_complex(x)
    z[0].mul_(2j)
    assert x[0].tolist() == [[-2, 0], [-6, 4]] and z._base is x and z._version == x._version == 1
    assert m.view_as_complex(m.zeros(0, 2)).shape == (0,)

    def written(x):
        y = x * 1
        m.view_as_complex(y)[0].mul_(m.view_as_complex(x)[1] * 2j)
        return y

    leaf = m.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    assert m.autograd.gradcheck(written, leaf) and m.autograd.gradgradcheck(written, leaf)
    for wrong, message in (
        (x.transpose(0, 2), "last dimension with stride 1"),
        (m.arange(9.0)[1:].reshape(4, 2), "storage_offset divisible by 2"),
        (m.zeros(2, 3)[:, :2], "stride divisible by 2"),
    ):
        with pytest.raises(RuntimeError, match=message):
            m.view_as_complex(wrong)


@pytest.mark.parametrize("name", ["sum", "mean", "nansum"])
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "int64"])
def test_real_numbers_are_added_up_as_complex_ones(name, kind):
    x = m.tensor([[1.5, 2.25], [3.0, 4.5]]).to(getattr(m, kind))
    for dim in (None, 1):
        wanted = getattr(x.double(), name)(dim)
        found = getattr(m, name)(x, dim, dtype=m.complex128)
        assert found.dtype is m.complex128 and found.tolist() == wanted.to(m.complex128).tolist()
    leaf = m.ones(3, requires_grad=True)
    m.sum(leaf, dtype=m.complex64).real.backward()
    assert leaf.grad.tolist() == [1, 1, 1]


def test_products_of_complex_numbers_are_scaled_by_any_number():
    z = m.tensor(Z)
    for beta, alpha in ((0.5, 1.5), (2j, 1 - 1j), (0, 0.25)):
        scale = {"beta": beta, "alpha": alpha}
        for found, product in (
            (z.addmm(z, z, **scale), Z @ Z),
            (z[None].baddbmm(z[None], z[None], **scale)[0], Z @ Z),
            (z.addbmm(z[None], z[None], **scale), Z @ Z),
            (z.addr(z[0], z[1], **scale), np.outer(Z[0], Z[1])),
        ):
            np.testing.assert_allclose(found.numpy(), beta * Z + alpha * product, rtol=1e-12)
        found = z[0].addmv(z, z[1], **scale)
        np.testing.assert_allclose(found.numpy(), beta * Z[0] + alpha * (Z @ Z[1]), rtol=1e-12)


def test_means_of_scattered_complex_numbers():
    z, index = m.tensor(Z), m.tensor([[0, 1]])
    found = z.scatter_reduce(0, index, z[:1], "mean")
    np.testing.assert_allclose(found[1, 1].item(), (Z[1, 1] + Z[0, 1]) / 2)


CONVOLUTIONS = {
    "conv1d": ((2, 4, 6), (4, 2, 3)),
    "conv2d": ((1, 2, 4, 5), (4, 1, 2, 3)),
    "conv3d": ((1, 2, 3, 3, 4), (4, 1, 2, 1, 2)),
    "conv_transpose1d": ((2, 4, 6), (4, 2, 3)),
    "conv_transpose2d": ((1, 2, 3, 3), (2, 2, 2, 3)),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "numpy") for name in CONVOLUTIONS),
        ("conv2d", "numba"),
        ("conv_transpose2d", "numba"),
    ],
)
def test_convolutions_of_complex_numbers(name, backend, rng):
    """Beside real ones of the parts, and with their gradients by differences."""
    x, w = (
        m.tensor(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        for shape in CONVOLUTIONS[name]
    )
    bias = m.tensor([1j, 2, -1j, 1], dtype=m.complex128)
    options = {"stride": 2, "padding": 1, "groups": 2}

    def convolution(x, w, bias=None):
        return getattr(m.nn.functional, name)(x, w, bias, **options)

    with m.backends.use(backend):
        found = convolution(x, w, bias)
        none = found - convolution(x, w)
        real = convolution(x.real, w.real) - convolution(x.imag, w.imag)
        imaginary = convolution(x.real, w.imag) + convolution(x.imag, w.real)
        np.testing.assert_allclose((found - none).real, real, atol=1e-12)
        np.testing.assert_allclose((found - none).imag, imaginary, atol=1e-12)
        np.testing.assert_allclose(none.movedim(1, -1).reshape(-1, 4)[0], bias, atol=1e-12)
        leaves = [t.requires_grad_() for t in (x, w, bias)]
        assert m.autograd.gradcheck(convolution, leaves, fast_mode=True)
        assert m.autograd.gradgradcheck(convolution, leaves, fast_mode=True)
        x.requires_grad_(False)
        assert m.autograd.gradcheck(lambda w: convolution(x, w), leaves[1], fast_mode=True)


def test_silu_of_complex_numbers():
    z = m.tensor(Z, requires_grad=True)
    np.testing.assert_allclose(m.nn.functional.silu(z).detach(), Z / (1 + np.exp(-Z)))
    assert m.autograd.gradcheck(m.nn.functional.silu, z)
    assert m.autograd.gradgradcheck(m.nn.functional.silu, z)


CUTS = """
sqrt rsqrt log log2 log10 log1p asin acos atan asinh acosh atanh reciprocal square exp sigmoid tanh
""".split()


@pytest.mark.parametrize("name", CUTS)
def test_gradients_at_the_cuts_as_torch(name, torch, rng):
    """On the negative real axis, from either side; of acosh, whose line adds 1, from above."""
    for side in (1,) if name == "acosh" else (1, -1):
        values = -rng.uniform(0.1, 3, 6) + complex(0, 0.0) * side
        found = []
        for t in (m, torch):
            z = t.tensor(np.conj(values) if side < 0 else values, requires_grad=True)
            getattr(t, name)(z).backward(t.tensor(np.full(6, 0.7 - 0.3j)))
            found.append(z.grad.detach().numpy())
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


def test_a_product_of_nothing_is_part_of_the_graph():
    z = m.zeros(2, 0, 3, dtype=m.complex64, requires_grad=True)
    for product in (z.prod(), z.prod(1), z.prod(1, keepdim=True)):
        assert product.requires_grad and (product == 1).all()
    z.prod(1).abs().sum().backward()
    assert z.grad.shape == z.shape


def test_functions_of_single_numbers_in_place_and_of_real_ones_only():
    z = m.tensor(1.0 + 2.0j)
    assert m.logcumsumexp(z, 0) == z
    for backend in ("numpy", "numba"):
        with backends.use(backend), pytest.raises(NotImplementedError, match="polygamma"):
            m.polygamma(1, z)
    leaf = m.tensor([3.0 + 4.0j], requires_grad=True)
    changed = leaf.clone().sgn_()
    changed.real.sum().backward()
    other = m.tensor([3.0 + 4.0j], requires_grad=True)
    other.sgn().real.sum().backward()
    assert m.allclose(changed, m.tensor([0.6 + 0.8j])) and m.allclose(leaf.grad, other.grad)
