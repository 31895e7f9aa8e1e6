"""Rarer names of torch, each run with torch and with minigrad: values, dtypes, gradients, errors.

What torch's table of samples (`op_db`) has is compared there; here are names that it lacks, forms
that work in place, and inputs of no dimension, without elements and out of order in memory.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import minigrad
from minigrad import backends

# Every line is an expression: `m` is torch or minigrad; `x` (3, 4), `y` (4, 3) and `v` (5,), all of
# float64, require a gradient, whose values are compared too; `t` is y transposed, `e` (0, 4) empty,
# `s` of no dimension, `i` (3, 4) of integers; `changed(a, f)` is a clone of a after f has changed
# it.
PROGRAMS = {
    "in_place": """
        changed(x, lambda a: a.absolute_())
        changed(x, lambda a: a.sgn_())
        changed(x, lambda a: a.addmm_(x, m.ones(4, 4).double(), beta=2, alpha=3))
        changed(v, lambda a: a.addmv_(m.ones(5, 4).double(), x[0]))
        changed(x, lambda a: a.addr_(x[:, 0], x[0]))
        changed(x[None], lambda a: a.baddbmm_(x[None], (x.t() @ x)[None]))
        changed(x, lambda a: a.addbmm_(x[None], (x.t() @ x)[None], beta=0.5))
        changed(x, lambda a: a.cumsum_(1))
        changed(x, lambda a: a.cumprod_(0))
        changed(t, lambda a: a.cumsum_(0))
        changed(e, lambda a: a.cumsum_(0))
        changed(s, lambda a: a.cumsum_(0))
        changed(x, lambda a: a.scatter_reduce_(1, i, x, 'amax'))
        changed(x, lambda a: a.fill_diagonal_(7))
        changed(t, lambda a: a.fill_diagonal_(7.5))
        changed(x.reshape(6, 2), lambda a: a.fill_diagonal_(1, wrap=True))
        changed(x.detach().reshape(6, 2), lambda a: a.fill_diagonal_(1, True))
        changed(m.zeros(7, 3), lambda a: a.fill_diagonal_(1, True))
        changed(m.zeros(4, 3), lambda a: a.fill_diagonal_(1, True))
        changed(m.zeros(2500, 1), lambda a: a.fill_diagonal_(1, True))
        changed(m.zeros(5, 0), lambda a: a.fill_diagonal_(1, True))
        changed(m.zeros(3, 7), lambda a: a.t().fill_diagonal_(1, True))
        changed(m.zeros(3, 3, 3), lambda a: a.fill_diagonal_(2))
        m.zeros(3, 3, 2).fill_diagonal_(2)
        v.clone().fill_diagonal_(2)
        changed(x, lambda a: a.greater_(0))
        changed(x, lambda a: a.less_equal_(t))
        changed(i, lambda a: a.not_equal_(1))
        changed(x, lambda a: a.negative_())
        changed(x, lambda a: a.float_power_(2))
        changed(x.float(), lambda a: a.float_power_(2))
        changed(x, lambda a: a.put_(m.tensor([0, -1]), m.ones(2).double()))
        changed(x, lambda a: a.put_(m.tensor([1, 1]), v[:2], accumulate=True))
        changed(x, lambda a: a.put_(m.tensor([99]), v[:1]))
        changed(x, lambda a: a.renorm_(2, 0, 1.0))
        changed(x, lambda a: a.index_reduce_(0, m.tensor([0, 2]), x[:2], 'amin'))
        changed(x, lambda a: a.deg2rad_().rad2deg_())
        changed(x.tanh(), lambda a: a.erfinv_())
        changed(x.detach(), lambda a: a.heaviside_(m.ones(4).double()))
        changed(x, lambda a: a.i0_())
        changed(x.exp(), lambda a: a.igamma_(m.ones(4).double()))
        changed(i, lambda a: a.gcd_(m.tensor(2)))
        changed(i, lambda a: a.lcm_(m.tensor(3)))
        changed(x, lambda a: a.ldexp_(m.tensor(3)))
        changed(x.exp() + 3, lambda a: a.mvlgamma_(2))
        changed(x.exp(), lambda a: a.polygamma_(1))
        changed(x, lambda a: a.nextafter_(m.ones(4).double()))
        changed(x, lambda a: a.arctan2_(m.ones(4).double()))
        changed(x, lambda a: a.fix_())
        changed(x.tanh(), lambda a: a.arcsin_())
        changed(i, lambda a: a.arctan_())
        x.absolute_()
        changed(x, lambda a: a.addmm_(x, x))
    """,
    "functions_in_place": """
        changed(x, lambda a: m.relu_(a))
        changed(x, lambda a: m.sigmoid_(a))
        changed(x, lambda a: m.exp_(a))
        changed(x, lambda a: m.clamp_(a, -1, 1))
        changed(x, lambda a: m.clamp_min_(a, 0.5))
        changed(x, lambda a: m.neg_(a))
        changed(x, lambda a: m.celu_(a, 2.))
        changed(x, lambda a: m.selu_(a))
        changed(x, lambda a: m.threshold_(a, 0.5, 3.))
        changed(x, lambda a: m.dropout_(a, 0.0, True))
        changed(x, lambda a: m.dropout_(a, 0.5, False))
        changed(x, lambda a: m.dropout_(a, 1.0, True))
        changed(x, lambda a: m.alpha_dropout_(a, 0.5, False))
        changed(x, lambda a: m.rrelu_(a))
        changed(x, lambda a: m.log1p_(m.square_(a)))
        changed(x, lambda a: m.index_put_(a, [m.tensor([0])], v[:4]))
        changed(x, lambda a: m.round_(a))
        changed(v, lambda a: m.addmv_(a, m.ones(5, 4).double(), x[0]))
        m.detach_(x * 1)
        m.relu_(x)
        m.dropout_(x.clone(), 2., True)
    """,
    "elements": """
        x.broadcast_to((2, 3, 4))
        m.broadcast_to(x, (3, 3))
        m.broadcast_to(s, [2])
        x.addbmm(m.ones(2, 3, 5).double(), m.ones(2, 5, 4).double(), beta=2, alpha=0.5)
        m.addbmm(x, m.ones(2, 3, 5), m.ones(3, 5, 4))
        m.addr(x, v[:3], v[:4], alpha=2)
        m.addr(i, i[:, 0], i[0], beta=2, alpha=3)
        m.addr(x, v, v)
        x.mode()
        m.mode(i, 0, keepdim=True)
        m.mode(i, dim=-1)
        m.mode(e, 1)
        m.mode(s)
        m.mode(m.tensor([1., nan, nan, 2.]))
        m.put(x, m.tensor([[0, 5]]), v[:2])
        m.put(t, m.tensor([0, 5]), v[:2])
        m.put(x, m.tensor([0.]), v[:1])
        m.put(x, m.tensor([0]), v[:2])
        m.put(e, m.tensor([], dtype=m.int64), v[:0])
        m.renorm(x, 1, 1, 0.5)
        m.renorm(v, 1, 0, 0.5)
        m.renorm(x, 0, 1, 0.5)
        m.index_reduce(x, 1, m.tensor([1, 1, 0]), t[:, :3], 'mean', include_self=False)
        m.index_reduce(x, 1, m.tensor([1, 1]), x, 'prod')
        m.index_reduce(x, 1, m.tensor([1, 1, 0, 0]), x, 'sum')
        m.is_nonzero(s)
        m.zeros(1).is_nonzero()
        m.is_nonzero(x)
        m.is_nonzero(e)
        x.is_same_size(t)
        x.is_same_size(y)
        x.is_cpu
        m.is_signed(i)
        m.is_signed(i.byte())
        x.prelu(v[:1])
        x.prelu(v[:4])
        x.prelu(v)
        x.hardshrink(1.0)
        m.hardshrink(e)
        m.nextafter(x, t)
        m.nextafter(m.tensor(1.), m.tensor(inf))
        m.nextafter(i, i)
        m.frexp(x)
        m.frexp(m.tensor([0., inf, -inf, 1e-310, 1e300], dtype=m.float64))
        m.frexp(m.tensor([65504., 6e-8]).half())
        m.frexp(i)
        x.narrow_copy(1, 1, 2)
        x.as_strided_scatter(v[:2].reshape(2, 1), (2, 1), (4, 1), 1).shape
        x.detach()[:, 1:].as_strided_scatter(v[:2].detach(), (2,), (4,))
        x.detach()[:, 1:].as_strided_scatter(v[:4].detach(), (4,), (2,), 1)
        x.detach().t().as_strided_scatter(v[:4].detach().reshape(2, 2), (2, 2), (4, 2), 1)
        x.new_empty_strided((2, 3), (1, 2)).stride()
        m.empty_strided((2, 3), (1, 2), dtype=m.int32).stride()
        m.empty_strided((2, 3), (1, 2)).dtype == m.float32
        m.empty_strided((2, 3), (1,))
        m.empty_strided((0, 3), (1, 2)).shape
        x.dim_order()
        t.dim_order()
        t.dim_order() + s.dim_order()
    """,
    "functions": """
        m.gradient(v)
        m.gradient(x, spacing=2., dim=1, edge_order=2)
        m.gradient(t, spacing=(1., 3.))
        m.gradient(x, spacing=(m.tensor([0., 1., 4.]), m.tensor([0., 2., 3., 9.])), edge_order=2)
        m.gradient(i)
        m.gradient(v, spacing=(m.tensor([0., 1., 2., 4., 8.]),), dim=0)
        m.gradient(v, dim=(0, 0))
        m.gradient(x, spacing=[1., 2., 3.])
        m.gradient(v[:1])
        m.vander(v.detach())
        m.vander(v.detach(), 3, increasing=True)
        m.vander(i[0])
        m.vander(v, 0)
        m.vander(x)
        m.range(1, 4)
        m.range(0, 1, 0.25)
        m.range(5, 1, -2, dtype=m.int64)
        m.range(1, 4, -1)
        m.range(1, 4, 0)
        m.range(m.tensor(1), 3)
        m.row_stack([x, x[0]])
        m.frombuffer(bytearray(b'abcdefgh'), dtype=m.int16)
        m.frombuffer(bytearray(b'abcdefgh'), dtype=m.uint8, count=3, offset=2)
        m.frombuffer(bytearray(b'abc'), dtype=m.int16)
        m.frombuffer(bytearray(b'abcd'), dtype=m.int16, count=3)
        m.frombuffer(bytearray(b'abcd'), dtype=m.int16, offset=4)
        m.frombuffer(bytearray(b''), dtype=m.int16)
        m.typename(x).split('.')[-1]
        m.typename(i).split('.')[-1]
        m.typename(m.nn.Parameter).split('.', 1)[1]
        m.typename(m.nn.ReLU()).split('.')[-1]
        m.typename(3)
        m.cosine_similarity(x, t, dim=0)
        m.cosine_similarity(v, s, 0)
        m.threshold(x, 0.5, 2)
    """,
    "layers": """
        m.layer_norm(x, (4,), v[:4], v[1:])
        m.layer_norm(x, [4], eps=0.1, cudnn_enable=False)
        m.layer_norm(x, (3,))
        m.batch_norm(x, v[:4], v[1:], None, None, True, 0.1, 1e-5, True)
        m.batch_norm(x, None, None, v[:4].detach(), v[1:].detach().exp(), False, 0.1, 1e-5, True)
        m.batch_norm(x, None, None)
        m.group_norm(x, 2, v[:4], v[1:], 1e-5, False)
        m.instance_norm(x[None], None, v[:3], None, None, True, 0.1, 1e-5, False)
        m.rms_norm(x, (4,), v[:4])
        m.dropout(x, 0.5, train=False)
        m.alpha_dropout(x, 0.5, False)
        m.feature_alpha_dropout(x, 0.5, train=False)
        m.feature_dropout(x, 0.5, False)
        m.feature_dropout(v, 0.5, True)
        m.alpha_dropout(x)
        m.bilinear(x, y.t()[:3], m.ones(2, 4, 4).double(), v[:2])
        m.pixel_shuffle(m.arange(16.).reshape(1, 4, 2, 2), 2)
        m.pixel_unshuffle(m.arange(16.).reshape(1, 1, 4, 4), 2)
        m.channel_shuffle(m.arange(16.).reshape(1, 4, 2, 2), 2)
        m.pairwise_distance(x, t, 1, keepdim=True)
        m.pdist(x)
        m.pdist(v)
        m.rrelu(x, 0.1, 0.3)
        m.constant_pad_nd(x, (1, 0), 2)
        m.grid_sampler(m.ones(1, 1, 2, 2), m.zeros(1, 1, 1, 2), 0, 1, True)
        m.affine_grid_generator(m.ones(1, 2, 3), (1, 1, 2, 2), False)
        m.nuclear_norm(x)
        m.frobenius_norm(x, [1], True)
        m.max_pool1d_with_indices(x[None], 2)
        m.nn.functional.max_pool1d_with_indices(x[None], 2, stride=1)
        m.nn.functional.max_pool2d_with_indices(x[None], 2)
        m.nn.functional.max_pool3d_with_indices(x[None, None], (1, 2, 2))
        m.nn.functional.adaptive_max_pool1d_with_indices(x[None], 2)
        m.nn.functional.adaptive_max_pool2d_with_indices(x[None], 2)
        m.nn.functional.adaptive_max_pool3d_with_indices(x[None, None], (1, 2, 2))
        m.nn.functional.upsample_nearest(x[None, None], scale_factor=2)
        m.nn.functional.upsample_bilinear(x[None, None], (5, 7))
    """,
    "losses": """
        m.kl_div(x, t.exp(), 2)
        m.kl_div(x, t, reduction=0, log_target=True)
        m.kl_div(x, t, reduction='mean')
        m.kl_div(x, t, 3)
        m.binary_cross_entropy_with_logits(x, t.sigmoid(), None, v[:4].detach(), 1)
        m.binary_cross_entropy_with_logits(x, t.sigmoid(), reduction=0)
        m.margin_ranking_loss(v, v.flip(0), v.detach().sign(), 0.3, 1)
        m.margin_ranking_loss(v, v.flip(0), v.detach().sign())
        m.cosine_embedding_loss(x, t, v[:3].detach().sign(), 0.1, 2)
        m.hinge_embedding_loss(v, v.detach().sign(), 0.5, 0)
        m.poisson_nll_loss(x, t.exp(), True, False, 1e-8, 1)
        m.triplet_margin_loss(x, t, x + 1, 0.5, 1., 1e-6, True, 2)
        m.triplet_margin_loss(x, t, x + 1)
        m.ctc_loss(x.log_softmax(-1), m.tensor([1, 2]), m.tensor(3), m.tensor(2), 0, 2, True)
    """,
    "call_forms": """
        m.repeat_interleave(m.tensor([2, 0, 3]))
        m.repeat_interleave(repeats=m.tensor([2, 0, 3], dtype=m.int32), output_size=5)
        m.repeat_interleave(m.tensor([2.0, 1.0]))
        m.repeat_interleave(m.tensor([2, -1]))
        m.repeat_interleave(m.tensor([[2, 1]]))
        x.float().detach().view(dtype=m.int32)
        changed(v, lambda a: a.copy_(other=v * 2))
        changed(v, lambda a: a.pow_(exponent=2))
        changed(i, lambda a: a.pow_(-1))
        changed(v, lambda a: a.uniform_(**{'from': 1.0, 'to': 1.0}))
        changed(v, lambda a: a.uniform_(2.0, to=2.0))
        changed(v, lambda a: a.random_(to=1))
        changed(v, lambda a: a.random_(**{'from': 3, 'to': 4}))
        v.clone().uniform_(a=0.0, b=1.0)
        m.gather(x, 1, i, sparse_grad=False)
        m.searchsorted(sorted_sequence=m.arange(5.0), input=m.tensor([2.0, 3.5]))
        m.searchsorted(m.arange(5.0), values=m.tensor([2.0, 3.5]))
        m.bucketize(input=m.tensor([2.0, 3.5]), boundaries=m.arange(5.0))
        x.swapaxes(axis0=0, axis1=1)
        x.swapaxes(dim0=0, dim1=1)
        m.swapaxes(x, axis0=0, axis1=1)
        changed(x.detach(), lambda a: a.swapaxes_(axis0=0, axis1=1))
        x.hsplit(sections=2)
        m.hsplit(x, indices=[1])
        y.vsplit(sections=2)
        m.dsplit(x.reshape(1, 3, 4), indices=(1, 2))
        m.tensor_split(x, tensor_indices_or_sections=m.tensor(2), dim=1)
        m.split_with_sizes(input=x, split_sizes=[1, 2])
        m.dot(v, tensor=v)
        v.dot(other=v)
        m.eye(2).cholesky_solve(input2=m.eye(2))
        m.embedding(x, indices=m.tensor([0, 2]))
        m.isin(m.tensor([1, 2]), test_element=1)
        m.isin(element=1, test_elements=m.tensor([1, 2]))
        m.empty(0, dtype=m.result_type(tensor=v, other=2))
        m.empty(0, dtype=m.result_type(scalar=2.0, tensor=i))
        m.empty(0, dtype=m.result_type(scalar1=2, scalar2=3.0))
        m.result_type(tensor1=v, tensor2=i)
        m.where(m.tensor([2, 0], dtype=m.uint8), m.tensor([1.0, 2.0]), 0.0)
        m.where(i, x, 0.0)
        m.scatter_reduce(x.detach(), 0, i, x.detach(), reduce='max')
        m.scatter_reduce(x.detach(), 0, i, x.detach(), reduce='min')
        m.scatter_reduce(x, 0, i, x, reduce='multiply')
        x.detach().clone().resize_(size=(2, 2))
        changed(x.detach(), lambda a: m.zero_(input=a))
        x.shape * 2, 2 * x.shape, x.shape + (1,), (1,) + x.shape, x.shape[1:], x.shape[:0].numel()
        type(x.shape * 2).__name__, type(x.shape[1:]).__name__, type((1,) + x.shape).__name__
        x.shape + [1]
        [1] + x.shape
        m.Size([2.5])
        m.Size(m.tensor([2, 3]))
        m.normal(m.zeros(2), -1.0)
        changed(i, lambda a: a.normal_())
        changed(i, lambda a: a.uniform_())
        changed(i, lambda a: a.exponential_())
        changed(i > 1, lambda a: a.random_(3))
        changed(i > 1, lambda a: a.random_(1, 2))
        changed(i.to(m.uint8), lambda a: a.random_(300))
        changed(i.to(m.int8), lambda a: a.random_(-200, 2))
        changed(x.to(m.bfloat16).detach(), lambda a: a.random_(3, 4)).float()
        changed(x.to(m.complex64).detach(), lambda a: a.random_(3, 4))
        changed(x.to(m.complex64).detach(), lambda a: a.normal_(2.0, 0.0))
    """,
    "creation_forms": """
        m.arange(end=4)
        m.arange(1, end=4)
        m.arange(start=1, end=4, step=2)
        m.arange(start=4)
        m.arange(end=4, step=2)
        m.arange(1, None)
        m.arange(3, layout=m.strided, pin_memory=False)
        m.randint(high=1, size=(2,))
        m.randint(2, high=3, size=[2])
        m.randint(low=2, high=3, size=(2,), layout=m.strided)
        m.randint(low=3, size=(2,))
        m.randint(0, 5, 3)
        m.randint(2.0, (2,))
        x.new_zeros(size=(2,))
        x.new_ones((2,), layout=m.strided)
        x.new_full(size=(2,), fill_value=3)
        x.new_full(2, 5)
        x.new_tensor([1, 2], device='cpu')
        m.zeros_like(x, layout=m.strided)
        m.eye(2, layout=m.strided)
        m.range(0, 4, 2)
        m.range(3)
        m.linspace(1 + 1j, 2, 3)
        m.linspace(m.tensor(0.0), m.tensor(1.0), 3)
        m.linspace(1j, 2, 3, dtype=m.float32)
        m.logspace(1j, 2, 3)
        m.hamming_window(5, True, 0.5, 0.4)
        m.hann_window(5, layout=m.strided)
        m.asarray([1.0, 2.0], requires_grad=True).is_leaf
        m.asarray(obj=v)
        m.asarray(v.detach(), copy=True)
        m.asarray(v.detach(), copy=False, dtype=m.float32)
        m.asarray([1, 2], copy=False)
        m.asarray(v * 2, requires_grad=False)
        m.asarray(bytearray(b'abcd'), dtype=m.uint8)
        m.asarray(b'abcd')
        m.full(2, 5)
        m.full((2,), m.tensor([3.0]))
        m.full(m.tensor(2), 5)
        m.zeros(True)
        m.zeros((True, 2))
        m.zeros(m.tensor([2, 3]))
        m.zeros()
        m.rand()
        m.from_numpy(x.numpy(force=True)[::-1])
        m.as_tensor(x.numpy(force=True)[:, ::-1])
    """,
    "refused": """
        x.sum(0, 1)
        x.sum(0, keepdim=1)
        x.sum(0, True)
        x.mean(0, 1)
        x.max(0, 1)
        x.amax(0, 1)
        x.argmax(0, 1)
        x.argmax((0, 1))
        x.std(0, 1)
        x.std(0, True)
        x.var(0, True, True)
        x.prod(0, 1)
        x.prod((0, 1))
        x.all(0, 1)
        x.norm(2, 0, 1)
        x.logsumexp(0, 1)
        x.median(0, 1)
        x.kthvalue(1, 0, 1)
        x.softmax(0, 1)
        x.sort(0, 1)
        x.topk(2, 0, 1)
        m.cat(x)
        m.stack(x)
        m.hstack(x)
        m.vstack(x)
        m.dstack(x)
        m.column_stack(x)
        x.gather(0, i.short())
        x.gather(0, i.int())
        x.gather(0, [0])
        x.index_select(0, [0])
        x.index_select(0, 0)
        x.index_select(0, m.tensor([0], dtype=m.int16))
        x.take([0])
        x.masked_fill([True], 0)
        x.masked_select([True])
        x.scatter(0, [0], 1)
        x.scatter_add(0, i, 1)
        x.index_add(0, m.tensor([0]), 1)
        x.index_fill(0, [0], 1)
        x.index_copy(0, m.tensor([0]), 1)
        m.nn.functional.embedding(i.short(), x)
        'a' in v, 1
        None in v, 1
        np.float32(1) in v, 1
        x.__delitem__(0)
        x.tensor_split(2)[0].clone().mul_(2)
    """,
}


def outcome(value: Any) -> Any:
    """What must be equal: dtype, shape, place in the graph and values of every tensor."""
    if isinstance(value, tuple | list) and type(value).__name__ != "Size":
        return [outcome(v) for v in value]
    if hasattr(value, "requires_grad"):
        name = str(value.dtype).rpartition(".")[2]
        return name, tuple(value.shape), value.requires_grad, value.numpy(force=True)
    return tuple(value) if type(value).__name__ == "Size" else value


def evaluate(m: Any, line: str) -> Any:
    rng = np.random.default_rng(0)
    x, y = (m.tensor(rng.standard_normal(n), requires_grad=True) for n in ((3, 4), (4, 3)))
    v = m.tensor(rng.standard_normal(5), requires_grad=True)
    i = m.tensor(rng.integers(0, 3, (3, 4)))

    def changed(a: Any, change: Any) -> Any:
        a = a.clone()
        assert change(a) is a
        return a

    names = dict(m=m, x=x, y=y, v=v, t=y.t(), e=x[:0], s=x.sum(), i=i, changed=changed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = eval(line, names | {"nan": np.nan, "inf": np.inf, "np": np})
            parts = value if isinstance(value, tuple | list) else [value]
            parts = [p for p in parts if getattr(p, "requires_grad", False)]
            found = outcome(value)
            grads = (
                m.autograd.grad([(p * p).sum() for p in parts], [x, y, v], allow_unused=True)
                if parts
                else ()
            )
    except Exception as error:
        return type(error)
    return found, [0.0 if g is None else g.numpy(force=True) for g in grads]


def same(ours: Any, theirs: Any, line: str) -> None:
    if isinstance(theirs, np.ndarray | float) and not isinstance(theirs, bool):
        zero = isinstance(theirs, float) or isinstance(ours, float)  # None beside zeros
        assert zero or ours.shape == theirs.shape, line
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-7, err_msg=line)
    elif isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs), line
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, line)
    elif isinstance(theirs, type):
        assert isinstance(ours, type) and issubclass(ours, theirs), (line, ours, theirs)
    else:
        assert ours == theirs, line


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_torch(name, torch):
    with backends.use("numpy"):
        for line in filter(None, map(str.strip, PROGRAMS[name].splitlines())):
            same(evaluate(minigrad, line), evaluate(torch, line), line)
