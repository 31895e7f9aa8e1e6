"""The names of nodes, which print with a tensor: torch's."""

from __future__ import annotations

import pytest

import minigrad

# `m` is torch or minigrad, `F` its nn.functional, x is (2, 3, 4, 4), v (6,), a (3, 3), b (2, 3, 3);
# all positive and requiring gradients; i is (1,), the index 1.
EXPRESSIONS = """
1 - v; v - 1; v**2; v.square(); v**3; v.sum(); v.sum(0); v.mean(); a.mean(1); v.prod(); a.prod(0)
v.max(); a.max(0)[0]; a.min(1)[0]; v.min(); a.amax(0); a.amin(); v.std(); a.var(0)
m.var_mean(a)[0]; m.std_mean(a)[1]; a.median(0)[0]; v.median(); v.topk(2)[0]; v.sort()[0]
a.kthvalue(1)[0]; a.mode()[0]; v.clamp(0); v.clamp(0, 1); v.clamp(max=1); v.log1p(); v.cumsum(0)
v.add(v, alpha=2); v.sub(v, alpha=2); v.dot(v); a.mv(a[0]); a @ a; b.bmm(b)
a @ a[0]; a[0] @ a; v @ v; b @ a; F.linear(b, a); F.linear(a, a); a[None]; a[:, None]; a[..., 0]
b.max(1)[0]; b.min(2, keepdim=True)[0]
m.addmm(a, a, a, beta=2); m.baddbmm(b, b, b); m.addr(a, a[0], a[0]); a.tril(); a.triu(); a.trace()
v.repeat(2); v.tile(2); v.roll(1); v.unbind()[0]; v.logsumexp(0); a.index_select(0, i)
a.index_add(0, i, a[:1]); a.masked_select(a > 0); v.take(i); v.unfold(0, 2, 1); v.softmax(0)
v.dist(v * 2); m.linalg.svd(a)[1]; m.linalg.qr(a)[0]; m.linalg.eigh(a)[0]; m.linalg.slogdet(a)[1]
m.cross(a, a, dim=1); m.block_diag(a, a); v.deg2rad(); m.fmax(v, v); m.rsub(v, 2)
m.div(v, v, rounding_mode="floor"); a.median(); v.nansum(); v.erfinv(); m.logaddexp2(v, v)
F.conv3d(x[None], x[None]); F.conv_transpose2d(x, x[:1].mT.expand(3, 3, 4, 4))
F.conv_transpose2d(x, x[:1].mT.expand(3, 3, 4, 4), a[0])
F.max_pool3d(x[None], 2); F.avg_pool3d(x[None], 2); F.avg_pool2d(x, 2); F.avg_pool2d(x[0], 2)
F.max_pool2d(x[0], 2); F.adaptive_avg_pool2d(x, 2); F.adaptive_max_pool2d(x, 2); F.group_norm(x, 3)
F.pixel_shuffle(x.view(1, 12, 2, 4), 2); F.channel_shuffle(x.view(1, 6, 4, 4), 2); F.softshrink(v)
F.hardshrink(v); F.softsign(v); F.logsigmoid(v); F.gelu(v, approximate="tanh"); F.prelu(v, v[:1])
F.pad(x, (1, 1, 1, 1), "reflect"); F.pad(x[0], (1, 1), "replicate"); F.pad(x, (1, 1))
F.grid_sample(x, x[:, 0, :, :2, None].expand(2, 4, 2, 2)); F.interpolate(x, scale_factor=2)
F.interpolate(x, scale_factor=2, mode="bicubic"); F.interpolate(x, scale_factor=2, mode="bilinear")
F.interpolate(x, scale_factor=2, mode="nearest-exact"); F.multi_margin_loss(a, i.expand(3))
F.fractional_max_pool2d(x, 2, output_size=2); m.fft.rfft(v); m.fft.irfft(m.fft.rfft(v))
"""
LINES = [part.strip() for part in EXPRESSIONS.replace("\n", ";").split(";") if part.strip()]


def node(m, line):
    def made(*shape):
        count = 1
        for n in shape:
            count *= n
        return (m.arange(1.0, count + 1).reshape(shape) / (count + 1)).requires_grad_()

    names = dict(
        m=m, F=m.nn.functional, x=made(2, 3, 4, 4), v=made(6), a=made(3, 3), b=made(2, 3, 3)
    )
    return eval(line, names | {"i": m.tensor([1])}).grad_fn


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES)
def test_as_torch(line, torch):
    assert node(minigrad, line).name() == node(torch, line).name()


def test_an_argument_that_is_returned_keeps_its_name():
    x = minigrad.ones(2, 3, requires_grad=True) * 2
    for same in (x.sum_to_size(2, 3), minigrad.nn.functional.pad(x, (0, 0)), x.tril(5)):
        assert same.grad_fn is x.grad_fn or same is not x
    assert x.grad_fn.name() == "MulBackward0"


LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits")  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_inputs_of_a_loss_come_next(torch, loss, reduction):
    """The first tutorial prints them."""
    found = []
    for t in (minigrad, torch):
        x, y = (t.full((2, 3), 0.5, requires_grad=True) for _ in range(2))
        made = getattr(t.nn.functional, loss)(x * 1, y, reduction=reduction).grad_fn
        following = [node.name().rpartition("::")[2] for node, _ in made.next_functions]
        found.append((made.name(), following))
    assert found[0] == found[1]


def test_classes_of_nodes_have_their_names_wherever_a_program_meets_them():
    x = minigrad.ones(3, requires_grad=True)
    node, names = (x * 2).exp().sum().grad_fn, []
    while node.next_functions:
        names.append(type(node).__name__)
        node = node.next_functions[0][0]
    assert names == ["SumBackward0", "ExpBackward0", "MulBackward0"]
    edge = minigrad.autograd.graph.get_gradient_edge(x.exp())
    assert type(edge.node).__name__ == "ExpBackward0"
