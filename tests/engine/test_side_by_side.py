"""Small programs, each run with torch and with minigrad: one value or error type for both."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import minigrad
from minigrad import backends

# Every line is an expression: `m` is torch or minigrad, `F` its functions of nn, `x` (3, 4) needs a
# gradient, `r` has integers, `h(t)` is t in bfloat16, `grad(f)` is the gradient of f(x).sum(),
# `slope2(f)` also that of its sum, `hooked(hook)` the first with a hook on the way, `written(f)` a
# tensor of one element after f has changed it, `memory(t)` the address of its storage, `again(t)` t
# from a pickle, `slope(f)` f(x) and its gradient, `i(...)` int32, `abs1(t)` positive,
# `smoothed(t, classes)` the cross entropy with smoothed targets, where classes 0 and 1 weigh 0.
PROGRAMS = {
    "numbers_out_of_range": """
        m.tensor([-1.5], dtype=m.uint8)
        m.tensor([-0.5], dtype=m.uint8)
        m.tensor(-1.0, dtype=m.uint16)
        m.tensor([-1, 3.7], dtype=m.uint8)
        m.tensor([3.7, [-1, 2.0]][1], dtype=m.uint8)
        m.ByteTensor([-1.5])
        m.zeros(1, dtype=m.uint8).new_tensor([[-1.5]])
        m.tensor([-1], dtype=m.uint8)
        m.ones(2, dtype=m.int8).add(m.ones(2, dtype=m.int8), alpha=300)
        m.ones(2, dtype=m.int8).add(m.ones(2, dtype=m.int8), alpha=-128)
        m.ones(2, dtype=m.int8).add(1, alpha=300)
        m.ones(2, dtype=m.int8).sub(m.ones(2, dtype=m.int32), alpha=300)
        m.ones(2, dtype=m.uint8).sub(m.ones(2, dtype=m.uint8), alpha=255)
        m.ones(2, dtype=m.int8).add_(m.ones(2, dtype=m.int8), alpha=300)
        m.ones(2, dtype=m.int8).add(m.ones(2, dtype=m.int8), alpha=1.5)
        m.ones(2, dtype=m.int8).add(m.ones(2), alpha=300.5)
        m.ones(2).add(m.ones(2), alpha=1e39)
        m.ones(2).add(m.ones(2), alpha=2j)
        m.ones(2).add(m.ones(2), alpha=inf)
        m.ones(2, dtype=m.half).add(1, alpha=1e6)
        m.ones(2).add(m.ones(2), alpha=m.tensor(3))
        m.rsub(m.ones(2, dtype=m.int8), 2, alpha=300)
        m.ones(2, dtype=m.int8).addcmul(m.ones(2).char(), m.ones(2).char(), value=300)
        m.ones(2, dtype=m.half).addcmul(m.ones(2).half(), m.ones(2).half(), value=7e4)
        m.ones(2, 2).char().addmm(m.ones(2, 2).char(), m.ones(2, 2).char(), beta=300)
        m.ones(2, 2).char().addmm(m.ones(2, 2).char(), m.ones(2, 2).char(), alpha=300)
        m.ones(2).char().index_add(0, m.tensor([0]), m.ones(1).char(), alpha=300)
        m.ones(2).half().index_add(0, m.tensor([0]), m.ones(1).half(), alpha=7e4)
    """,
    "numpys_words": """
        r.prod(axis=0)
        m.cumprod(r, axis=1)
        r.cumprod(axis=1)
        m.softmax(r, axis=0).shape
        r.log_softmax(axis=1).shape
        m.stack([r, r], axis=2)
        m.unsqueeze(r, axis=1)
        r[:1].squeeze(axis=0)
        r.sort(axis=0)
        m.sort(r, axis=0, descending=True)
        r.argsort(axis=1)
        m.argmax(r, axis=1, keepdims=True)
        m.var(r, axis=0, keepdims=True).shape
        r.amax(axis=(0, 1), keepdims=True)
        r.all(axis=0)
        r.median(axis=0)
        type(r.median(axis=0)).__name__
        r.topk(2, axis=1)
        m.gather(r, axis=0, index=m.tensor([[0, 0]]))
        r.index_select(axis=1, index=m.tensor([1]))
        r.chunk(2, axis=1)
        r.unbind(axis=0)
        r.logsumexp(axis=1, keepdims=True).shape
        m.linalg.norm(r, axis=0).shape
        m.fft.fft(r, axis=0).shape
        m.add(x=r, x2=r)
        m.swapaxes(r, axis0=0, axis1=1)
        m.cumprod(r, axis=0, dim=0)
        m.cumprod(r, 0, axis=0)
        r.cumprod(0, axis=0)
        m.flip(r, axis=0)
        m.roll(r, 1, axis=0)
        m.cumprod(r, axes=0)
    """,
    "nodes_of_indexing": """
        x[0].grad_fn.name()
        x[-1, 2].grad_fn.name()
        x[0, :2].grad_fn.name()
        x[:2, 0].grad_fn.name()
        x[:, 0].grad_fn.name()
        x[..., 0].grad_fn.name()
        x[0, ...].grad_fn.name()
        x[1:].grad_fn.name()
        x[None].grad_fn.name()
        x[0, None].grad_fn.name()
        x[[0, 1]].grad_fn.name()
        x.select(0, 1).grad_fn.name()
        x.narrow(0, 1, 2).grad_fn.name()
        type(x[0].grad_fn).__name__
        grad(lambda x: x[0] * 2)
        grad(lambda x: x[:, 1, None] ** 2)
    """,
    "nodes_of_functions": """
        x.t().grad_fn.name()
        x.unsqueeze(0).grad_fn.name()
        x[:1].squeeze(0).grad_fn.name()
        x[:1].squeeze().grad_fn.name()
        type(x.t().grad_fn).__name__
        m.nn.functional.conv1d(x[None], m.ones(1, 3, 2)).grad_fn.name()
        m.nn.functional.mish(x).grad_fn.name()
        m.nn.functional.glu(x).grad_fn.name()
        m.nn.functional.cross_entropy(x, m.tensor([0, 1, 2])).grad_fn.name()
        m.nn.functional.cross_entropy(x, m.tensor([0, 1, -100])).grad_fn.name()
        m.nn.functional.cross_entropy(x, m.tensor([0, 1, 2]), reduction='none').grad_fn.name()
        m.nn.functional.cross_entropy(x[None], m.tensor([[0, 1, 2, 0]])).grad_fn.name()
        m.nn.functional.nll_loss(x, m.tensor([0, 1, 2]), reduction='sum').grad_fn.name()
        m.nn.functional.mse_loss(x, r).grad_fn.name()
        m.nn.functional.mse_loss(x, r, reduction='none').grad_fn.name()
        m.nn.functional.smooth_l1_loss(x, r).grad_fn.name()
        m.nn.functional.huber_loss(x, r).grad_fn.name()
        m.nn.functional.l1_loss(x, r).grad_fn.name()
        m.nn.functional.binary_cross_entropy(x.sigmoid(), m.ones(3, 4)).grad_fn.name()
        m.nn.functional.binary_cross_entropy_with_logits(x, m.ones(3, 4)).grad_fn.name()
        repr(m.nn.functional.mse_loss(x * 0, m.zeros(3, 4)))
        m.nn.functional.binary_cross_entropy(x.sigmoid(), m.full((3, 4), 1.1))
        m.nn.functional.binary_cross_entropy(x.sigmoid(), m.full((3, 4), nan))
    """,
    "element_by_element": """
        m.tensor([1.0, 2]).apply_(lambda v: v * 2)
        m.tensor([[1, 2], [3, 4]]).t().apply_(lambda v: v + 0.5)
        m.tensor([1.0, 2]).apply_(lambda v: "a")
        m.tensor([1.0, 2]).map_(m.tensor([3.0, 4]), lambda a, b: a * b)
        m.tensor([[1.0, 2]]).map_(m.tensor([3.0]), lambda a, b: a - b)
        m.tensor([1.0, 2]).map_(m.tensor([3, 4]), lambda a, b: a * b)
        m.tensor([1.0, 2]).map_(m.tensor([3.0, 4, 5]), lambda a, b: a * b)
        x.apply_(abs)
        x.detach().map_(x, lambda a, b: a)
        m.nonzero_static(m.tensor([[1, 0], [2, 3]]), size=2)
        m.tensor([1, 0]).nonzero_static(size=3, fill_value=7)
        m.nonzero_static(m.tensor(3.0), size=2)
        m.nonzero_static(m.ones(2), size=-1)
        m.nonzero_static(m.zeros(2, 3), size=0)
        m.logical_not(m.tensor([1j, 0, 2]))
        m.logical_and(m.tensor([1j, 0, 2]), m.tensor([1j, 1, 0]))
        m.tensor([1j, 0, 2]).logical_or(m.tensor([0.0, 0, 1]))
        m.logical_xor(m.tensor([1j, 0, 2]), m.tensor(1))
        m.tensor([1j, 0, 2]).logical_not_()
    """,
    "second_derivatives_of_lines": """
        slope2(lambda v: m.relu(v))
        slope2(lambda v: m.nn.functional.leaky_relu(v))
        slope2(lambda v: m.nn.functional.hardtanh(v))
        slope2(lambda v: m.nn.functional.relu6(v))
        slope2(lambda v: m.nn.functional.threshold(v, 0.1, 0.2))
        slope2(lambda v: m.prelu(v, m.tensor([0.2])))
        slope2(lambda v: m.relu(v) ** 3)
        slope2(lambda v: m.relu(v * v))
        slope2(lambda v: v * 2)
    """,
    "casts": """
        x.int()
        x.bool().float()
        x.long().sum()
        x.half()
        m.zeros(2, dtype=float)
        m.zeros(2, dtype=int)
        m.zeros(2).to(float)
        m.tensor(None)
        m.tensor([None])
        m.tensor({'a': 1})
        m.tensor('a')
        m.tensor(['a'])
        m.tensor([1, [2]])
        m.tensor([[1], 2])
        m.tensor([1.5, 'a'])
        m.meshgrid(x, x)
        m.meshgrid()
        m.meshgrid(m.ones(2), m.ones(2).double())
        m.finfo(m.half).resolution
        m.finfo(m.bfloat16).resolution
        m.finfo(m.float32).resolution
        m.float_power(2, m.tensor([1, 2]))
    """,
    "bool": """
        -m.tensor([True])
        m.ones(2) - m.tensor([True, False])
        m.tensor([True, False]) - 1
        m.tensor([1, 2]) - True
        m.tensor([True, False]).logical_not_()
    """,
    "signals": """
        m.einsum(x.detach(), [0, 1], m.ones(4, 2), [1, 2], [2, 0])
        m.einsum(x.detach(), [30, ...], m.ones(3), [30])
        m.einsum(x.detach(), [60, 1])
        m.einsum(m.ones(2, 3), [0, 1], [])
        m.ldexp(m.tensor([0.001]).half(), m.tensor([16]))
        m.ldexp(m.ones(2).bfloat16(), m.tensor([1, 2])).float()
        m.ldexp(m.tensor([1, 2]), m.tensor([1, 2]))
        (m.bartlett_window(6) * 1e4).round()
        (m.bartlett_window(5, periodic=False, dtype=m.float64) * 1e4).round()
        (m.kaiser_window(6) * 1e4).round()
        (m.kaiser_window(5, False, 3.0) * 1e4).round()
        (m.kaiser_window(1) * 1e4).round()
        m.kaiser_window(-1)
        m.stft(m.ones(16), 4)
        m.func.linearize(lambda v: v**2, x.detach())[1](m.ones(3, 4))
    """,
    "segments": """
        m.segment_reduce(x.detach(), "sum", lengths=m.tensor([1, 0, 2]))
        m.segment_reduce(x.detach(), "mean", offsets=m.tensor([0, 1, 1, 3]))
        m.segment_reduce(x.detach(), "mean", lengths=m.tensor([1, 0, 2]), initial=2)
        m.segment_reduce(x.detach(), "max", lengths=m.tensor([1, 0, 2]))
        m.segment_reduce(x.detach(), "min", lengths=m.tensor([[1, 3]] * 3), axis=1)
        m.segment_reduce(x.detach(), "prod", lengths=m.tensor([1, 1]), unsafe=True)
        grad(lambda x: m.segment_reduce(x * 0 + 1, "max", lengths=m.tensor([3]), initial=1))
        m.segment_reduce(m.tensor([1.0, nan, 3.0]), "max", lengths=m.tensor([3]))
        m.segment_reduce(x.detach(), "sum", lengths=m.tensor([1, 1]))
        m.segment_reduce(x.detach(), "sum", lengths=m.tensor([4, -1]))
        m.segment_reduce(x.detach(), "sum")
        m.segment_reduce(x.detach(), "some", lengths=m.tensor([3]))
        m.segment_reduce(x.detach(), "sum", indices=m.tensor([0, 0, 1]))
        m.segment_reduce(x.detach(), "sum", lengths=m.tensor([3]), axis=1)
        m.segment_reduce(x.detach(), "sum", lengths=m.tensor([3]), axis=2)
        m.segment_reduce(x.int(), "sum", lengths=m.tensor([3]))
    """,
    "complex": """
        grad(lambda x: m.complex(x * 0 + 2, x * 0 - 1).prod(1).real)
        grad(lambda x: m.complex(x * m.tensor([0.0, 1, 1, 0]), x * 0).prod(1).real)
        grad(lambda x: m.complex(x * 0 + 2, x * 0 - 1).cumprod(0).imag)
        grad(lambda x: m.complex(x * 2, -x).cumsum(0).real)
        m.view_as_real(m.tensor([[1 + 2j, 3], [2, 1j], [0.5, 2 - 1j]]).prod(0, keepdim=True))
        m.view_as_real(m.tensor([[1 + 2j, 3], [2, 1j], [0.5, 2 - 1j]]).prod())
        m.view_as_real(m.zeros(2, 0, dtype=m.complex64).prod(1))
        m.view_as_real(m.ones(3).prod(dtype=m.complex64))
        m.view_as_real(m.tensor([1 + 2j, 3, 2]).cumsum(-1, dtype=m.complex128))
        m.tensor([[1 + 1j, 3 + 1j], [2j, 2 + 4j]]).var(1)
        m.tensor([[1 + 1j, 3 + 1j], [2j, 2j]]).std(1, correction=0)
        m.tensor([1 + 1j, 3 + 1j]).var(2)
    """,
    "limits": """
        m.arange(3).clamp(max=2**63)
        m.arange(3).clamp_(min=-2**63, max=2**63 - 1)
        m.arange(3, dtype=m.int32).clamp(max=2**40)
        m.arange(3, dtype=m.int8).clip(0, 300)
        m.arange(3, dtype=m.int8).clamp(max=300.0)
        m.arange(3, dtype=m.uint8).clamp(min=-5)
        m.ones(2).half().clamp(max=1e6)
        m.ones(2).half().clamp(max=inf)
        m.where(m.tensor([True, False]), m.arange(2), 2**63)
        m.where(m.tensor([True, False]), 2**40, m.arange(2, dtype=m.int32))
        m.where(m.tensor([True, False]), m.arange(2, dtype=m.uint8), -5)
        m.arange(2, dtype=m.int8).where(m.tensor([True, False]), 300)
        m.where(m.tensor([True, False]), m.arange(2, dtype=m.int8), 300.0)
        m.where(m.tensor([True, False]), 1e40, 2.0)
        m.where(m.tensor([True, False]), m.ones(2), -1e40)
        m.where(m.tensor([True, False]), m.ones(2).double(), -1e40)
        m.where(m.tensor([True, False]), m.arange(2), 1e40)
        m.where(m.tensor([True, False]), m.arange(2), -inf)
        m.where(m.tensor([True, False]), m.ones(2).half(), 1e40)
        m.where(m.tensor([True, False]), m.ones(2).half(), 2**20)
        m.nn.functional.hardtanh(m.ones(2).half(), -1e6, 1e6)
        m.nn.functional.threshold(m.arange(2, dtype=m.int8), 5, 300)
        m.nn.functional.threshold(m.ones(2).half(), 5, 1e6)
        m.nn.functional.pad(m.arange(2, dtype=m.int8), (1, 1), value=300)
        m.nn.functional.pad(m.arange(2, dtype=m.uint8), (1, 1), value=-1)
        m.nn.functional.pad(m.ones(2).half(), (1, 1), value=1e6)
        m.zeros(2, 2).half().fill_diagonal_(1e6)
        m.zeros(2, 2, dtype=m.int8).fill_diagonal_(300)
    """,
    "dtypes_of_out": """
        m.sum(x.detach(), 1, out=m.zeros(3).double())
        m.sum(x.detach(), 1, out=m.zeros(3).int())
        m.sum(r > 0, 1, out=m.zeros(3).bool())
        m.nansum(x.detach(), 1, out=m.zeros(3).double())
        m.prod(x.detach()[:, :2], 1, out=m.zeros(3).double())
        m.cumsum(x.detach(), 1, out=m.zeros(3, 4).double())
        m.cumsum(x.detach(), 1, out=m.zeros(3, 4).int())
        m.cumprod(r, 1, out=m.zeros(3, 4).int())
        m.arange(0, 2, 0.5, out=m.zeros(4).int())
        m.linspace(0, 1, 4, out=m.zeros(4).int())
        m.full((2,), 2.5, out=m.zeros(2).int())
        m.eye(2, out=m.zeros(2, 2).int())
        m.max(r, out=m.zeros(()).double())
        m.max(r, -r, out=m.zeros(3, 4).double())
        m.mean(r.long(), out=m.zeros(()))
        m.mm(m.eye(2), m.eye(2), out=m.zeros(2, 2).double())
        m.where(r > 0, r, -r, out=m.zeros(3, 4).half())
        m.topk(r, 1, out=(m.ones(3, 1), m.ones(3, 1).int()))
        m.sum(r, 0, dtype=m.float64, out=m.zeros(4))
        m.stack([r, r], out=m.zeros(2, 3, 4).long())
        m.hstack([r, r], out=m.zeros(3, 8).long())
        m.abs(m.complex(r, r * 0), out=m.zeros(3, 4))
    """,
    "ranges": """
        m.tensor([300], dtype=m.uint8)
        m.tensor([-1, 255], dtype=m.uint8)
        m.tensor(-300, dtype=m.uint8)
        m.tensor([1.5, -1.5], dtype=m.int32)
        m.tensor([1e10], dtype=m.int32)
        m.tensor([2**40], dtype=m.int32)
        m.tensor([1.0, inf], dtype=m.int64)
        m.tensor([nan], dtype=m.int8)
        m.tensor([1e10], dtype=m.float16)
        m.tensor(np.array([300]), dtype=m.uint8)
        m.full((2,), 300, dtype=m.uint8)
        m.full((2,), 1.5, dtype=m.int32)
        m.full((2,), 70000.0, dtype=m.float16)
        m.full((2,), inf, dtype=m.float16)
        m.full((2,), 1e300)
        m.ones(2, dtype=m.uint8).fill_(300)
        m.ones(2, dtype=m.uint8).fill_(-1)
        m.ones(2, dtype=m.uint8).fill_(-1.5)
        m.ones(2, dtype=m.int64).fill_(1.5)
        m.ones(2, dtype=m.int64).fill_(inf)
        m.ones(2, dtype=m.float16).fill_(-1e9)
        m.ones(2, dtype=m.bfloat16).fill_(-1e9).float()
        m.ones(2, dtype=m.uint8) + 300
        m.ones(2, dtype=m.int64).masked_fill(m.tensor([True, False]), 1.5)
        m.ones(2, dtype=m.int64).masked_fill(m.tensor([True, False]), -inf)
        m.ones(2, dtype=m.uint8).masked_fill(m.tensor([True, False]), 300)
        m.zeros(2, dtype=m.bool).masked_fill(m.tensor([True, False]), 0.5)
        m.ones(2, dtype=m.float16).masked_fill(m.tensor([True, False]), -1e9)
        m.ones(2, dtype=m.float16).masked_fill(m.tensor([True, False]), -inf)
        m.ones(2).masked_fill(m.tensor([True, False]), 1j)
        m.ones(2, dtype=m.int64).index_fill(0, m.tensor([0]), 1.5)
        m.ones(2, dtype=m.float16).scatter(0, m.tensor([0]), -1e9)
        m.ones(2, dtype=m.int64).scatter(0, m.tensor([0]), 1.5)
        changed(m.ones(2, dtype=m.uint8), 0, 300)
        changed(m.ones(2, dtype=m.uint8), 0, -1)
        changed(m.ones(2, dtype=m.int64), 0, 2.5)
        changed(m.ones(2, dtype=m.int64), 0, inf)
        changed(m.ones(2, dtype=m.float16), 0, -1e9)
        changed(m.ones(2, dtype=m.float16), m.tensor([True, False]), -1e9)
        changed(m.ones(2, dtype=m.uint8), m.tensor([True, False]), 300)
        changed(m.ones(2), 0, 1e300)
        repr(m.finfo(m.float32)) + repr(m.finfo(m.float64))
        m.bincount(m.tensor([0, 1]), m.ones(2))
        m.bincount(m.tensor([0, 1]), m.ones(2, dtype=m.float64))
        m.bincount(m.tensor([0, 1]), m.ones(2, dtype=m.int32))
    """,
    "windows": """
        (m.signal.windows.bartlett(6) * 1e4).round()
        (m.signal.windows.bartlett(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.blackman(6) * 1e4).round()
        (m.signal.windows.blackman(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.cosine(6) * 1e4).round()
        (m.signal.windows.cosine(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.hamming(6) * 1e4).round()
        (m.signal.windows.hamming(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.hann(6) * 1e4).round()
        (m.signal.windows.hann(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.nuttall(6) * 1e4).round()
        (m.signal.windows.nuttall(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.exponential(6) * 1e4).round()
        (m.signal.windows.exponential(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.gaussian(6) * 1e4).round()
        (m.signal.windows.gaussian(5, sym=False, dtype=m.float64) * 1e4).round()
        (m.signal.windows.kaiser(6) * 1e4).round()
        (m.signal.windows.kaiser(5, sym=False, dtype=m.float64) * 1e4).round()
        m.signal.windows.hann(1), m.signal.windows.hann(0), m.signal.windows.hann(1, sym=False)
        m.signal.windows.hann(3, requires_grad=True)
        (m.signal.windows.exponential(5, center=1.0, tau=2.0, sym=False) * 1e4).round()
        (m.signal.windows.general_cosine(5, a=[0.46, 0.23, 0.31]) * 1e4).round()
        (m.signal.windows.general_hamming(5, alpha=0.6, sym=False) * 1e4).round()
        m.signal.windows.hann(-1)
        m.signal.windows.hann(3, dtype=m.int32)
        m.signal.windows.gaussian(5, std=-1)
        m.signal.windows.kaiser(5, beta=-1)
        m.signal.windows.exponential(5, center=1.0)
        m.signal.windows.exponential(5, tau=0)
        m.signal.windows.general_cosine(5, a=[])
        m.signal.windows.general_cosine(5, a=3)
    """,
    "in_place": """
        m.zeros(1, 3).expand(2, 3).add_(1)
        m.zeros(1, 3).expand(2, 3).copy_(m.ones(2, 3))
        m.zeros(1, 3).expand(2, 3).zero_()
        (x * 1).zero_()
        (x * 1).copy_(m.ones(3, 4))
        grad(lambda x: (x * 1).zero_())
        grad(lambda x: (x * 1).fill_(2.) + x)
        m.zeros(()).__setitem__(..., 5)
        written(lambda t: t.__setitem__(..., 5))
        written(lambda t: t[()].add_(1))
        m.zeros(2).fill_(None)
        m.zeros(2).fill_('a')
        m.zeros(2).masked_fill(m.zeros(2) > 0, None)
        m.zeros(2).addcmul(m.ones(2), m.ones(2), value=None)
        m.tensor([100, 100]).byte().cumsum_(0)
        m.tensor([True, False]).cumsum_(0)
        m.tensor([True, False]).cumprod_(0)
        r.cumsum_(0, dtype=m.float64)
        r.cumprod_(1, dtype=m.float32)
        r.cumprod_(axis=0)
    """,
    "index": """
        x[1.0]
        x['a']
        x[m.tensor(True)]
        x[m.tensor(False)].shape
        x[None, True, 1]
        x.detach().clone().__setitem__(0, m.ones(1, 1, 4))
        x.detach().clone().__setitem__(0, None)
        x.detach().clone().__setitem__((0, 0), 'a')
        x.detach().clone().__setitem__(x > 0, 'a')
    """,
    "arguments": """
        x.permute(dims=(1, 0))
        x.flip(dims=(0,))
        m.flip(x, dims=[0, 1])
        m.tile(x, dims=(2, 1))
        m.reshape(x, shape=(4, 3))
        x.view(size=(2, 6)) + x.reshape(shape=(2, 6))
        x[:, :1].expand(size=(3, 2)) + x[:, :1].repeat(repeats=(1, 2))
        x.view(2.0, 6)
        x.view('a')
        x.reshape(3, 4.0)
        x.sum(1.0)
        x.sum('a')
        x.transpose('a', 0)
        m.stack([x, 3])
        m.equal(x, 3)
        m.nn.Linear(4, 2)(np.ones((1, 4), np.float32))
        m.nn.Conv2d(1, 2, 3)([1.0])
        format(x, '.2f')
        m.autograd.grad(x.sum(), [])
    """,
    "nan": """
        m.tensor([1., nan, 2.]).median()
        m.tensor([[1., nan, 2.], [3., 1., 2.]]).median(1)
        m.tensor([[1., nan, 2.], [3., 1., 2.]]).median(1, keepdim=True)
        m.tensor([3, 1, 2, 2]).median()
        m.tensor(5.).median(0)
        grad(lambda x: m.cat([x, x]).median())
        grad(lambda x: (x * 0 + 1).std(1))
    """,
    "storage": """
        memory(r.t()[1:]) == memory(r) != memory(r.clone())
        r.t()[1:].untyped_storage().nbytes()
        len(r[:1].untyped_storage())
        r[1:].untyped_storage().size()
        r[:1].untyped_storage().tolist() == r.untyped_storage().tolist()
        list(m.arange(3.0).untyped_storage()[3:8])
        m.arange(6.0).view(2, 3).t()[1:].storage().tolist()
        len(r[1:].storage())
        r.storage().element_size()
        m.ones(2).bfloat16().storage()[1]
        memory(m.zeros(0))
        m.ones(3).expand(4, 3).untyped_storage().nbytes()
        repr(m.arange(2.0).storage()).replace('minigrad', 'torch')
        repr(r.untyped_storage()).replace('minigrad', 'torch')
    """,
    "fake_quantize": """
        slope(lambda x: m.fake_quantize_per_tensor_affine(x, 0.1, 2, -8, 7))
        slope(lambda x: m.fake_quantize_per_tensor_affine(x, m.tensor(0.3), m.tensor(1), 0, 15))
        m.fake_quantize_per_tensor_affine(m.tensor([nan, inf, 0.05, 0.15]), 0.1, 0, -8, 7)
        m.fake_quantize_per_tensor_affine(x.detach().half(), 0.1, 0, -8, 7)
        slope(lambda x: m.fake_quantize_per_channel_affine(x, abs1(r[:, 1]), i(0, 3, 5), 0, 0, 9))
        m.fake_quantize_per_channel_affine(x, abs1(r[0]), i(0, 3, 5, 1), 1, 0, 9)
        m.fake_quantize_per_channel_affine(x, abs1(r[0]), i(0, 3, 5, 1), 0, 0, 9)
        m.fake_quantize_per_channel_affine(x, abs1(r[0]), i(0, 3, 5), 0, 0, 9)
        m.fake_quantize_per_channel_affine(x, abs1(r[0]), m.tensor([0, 3, 5, 1]), 1, 0, 9)
        m.fake_quantize_per_tensor_affine(x, 0.1, 0, 3, 1)
        m.fake_quantize_per_tensor_affine(x, 0.1, 9, 0, 7)
        m.fake_quantize_per_tensor_affine(x.long(), 0.1, 0, 0, 7)
    """,
    "small_names": """
        complex(m.tensor(1 + 2j))
        complex(m.tensor([2.5]))
        complex(m.ones(2))
        (1, 2) + m.ones(3).shape
        type((1,) + m.ones(3).shape).__name__
        m.ones(3).shape + (1,)
        r.unsafe_chunk(2)
        m.unsafe_split(r, 2)
        r.is_nested
        m.version.cuda
        m.nn.attention.SDPBackend.MATH.name
        m.from_dlpack(m.to_dlpack(r))
        m.utils.dlpack.from_dlpack(m.utils.dlpack.to_dlpack(r.bfloat16()))
        m.nn.utils.clip_grad_norm([x], 1.0)
        m.nn.utils.stateless.functional_call(m.nn.ReLU(), {}, r)
        m.nn.Transformer(8, 2, 1, 1, 8)._reset_parameters()
    """,
    "as_saved": """
        again(x * 2)
        again(x[1:])
        again(x.detach())
        again([r, r[0]])
    """,
    "empty": """
        m.zeros(0, 3).median()
        m.zeros(0, 3).amax(0)
        m.zeros(0, 3).amin((0, 1))
        m.zeros(0, 3).amax(1)
        m.zeros(0, 3).logsumexp(0)
        m.zeros(0, 3).logsumexp(1)
    """,
    "settings": """
        m.nn.Conv2d(1, 2, 0)(m.zeros(1, 1, 5, 5))
        m.nn.Conv2d(1, 2, 3, dilation=-1)(m.zeros(1, 1, 5, 5))
        m.nn.Conv1d(1, 2, 3, dilation=0)(m.zeros(1, 1, 5))
        m.nn.ConvTranspose2d(1, 2, 3, dilation=-1)(m.zeros(1, 1, 5, 5))
        m.nn.MaxPool2d(2, dilation=-1)(m.zeros(1, 1, 5, 5))
        m.nn.MaxPool1d(2, dilation=0)(m.zeros(1, 1, 5))
        m.zeros(2).random_(0)
        m.zeros(2).random_(3, 3)
        m.zeros(2).exponential_(-1)
        m.zeros(2).bernoulli_(2.)
        m.randperm(-1)
        m.arange(nan)
        m.linspace(0, 1, -1)
        m.eye(-1)
        m.nn.functional.one_hot(m.tensor([]).long())
        m.nn.AvgPool2d(2)(m.zeros(1, 1, 4, 4).int())
        m.nn.functional.dropout(m.ones(3).int(), 0.5)
        m.nn.functional.cross_entropy(m.ones(2, 3).int(), m.tensor([0, 1]))
        m.nn.functional.glu(m.ones(2, 3))
        m.utils.data.default_collate([('a', 1), ('b', 2)])
    """,
    "repr": """
        repr(m.linalg.slogdet(m.eye(2))).replace('minigrad', 'torch')
        repr(m.slogdet(m.eye(2))).replace('minigrad', 'torch')
        repr(m.linalg.eigh(m.eye(2))).replace('minigrad', 'torch')
        repr(m.linalg.svd(m.eye(2))).replace('minigrad', 'torch')
        repr(m.frexp(m.ones(2))).replace('minigrad', 'torch')
        repr(m.aminmax(m.ones(2))).replace('minigrad', 'torch')
        repr(m.linalg.inv_ex(m.eye(1))).replace('minigrad', 'torch')
        repr(m.histogram(m.ones(2), 1)).replace('minigrad', 'torch')
        repr(m.nn.ModuleList([m.nn.ReLU(), m.nn.ReLU(), m.nn.Sequential(m.nn.Tanh()), m.nn.ReLU()]))
        repr(m.nn.Sequential(m.nn.ModuleList([m.nn.Sequential(m.nn.Tanh()) for _ in range(3)])))
    """,
    "sixteen_bits": """
        m.ones(3).bfloat16().add(m.ones(3).bfloat16(), alpha=0.3)
        m.ones(3).bfloat16().sub(m.ones(3).bfloat16(), alpha=2j)
        m.addmm(h(x[0]), h(x.T), h(x))
        m.addmm(h(x), h(x), h(x.T @ x), beta=0.7, alpha=1.3)
        m.addmm(h(x).half(), h(x).half(), h(x.T @ x).half(), beta=0.7, alpha=1.3)
        m.baddbmm(h(x), h(x)[None], h(x.T @ x)[None], alpha=1.3)
        m.nn.functional.mish(h(x))
        m.nn.functional.glu(h(x), 1)
        h(x).var(1)
        h(x).half().std(1)
        m.std_mean(h(x), 0)
        m.nn.functional.group_norm(h(x)[None], 3, x[:, 0], x[:, 1])
        m.nn.functional.group_norm(h(x).reshape(3, 2, 2), 1, h(x)[0, :2], h(x)[1, :2])
        m.cosine_similarity(m.full((3, 2), 300.0).half(), m.full((1, 2), 300.0).half())
        m.nn.functional.hardshrink(m.full((2,), 0.3).bfloat16(), 0.3)
        m.addmm(m.ones(4).double(), m.ones(2, 3), m.ones(3, 4))
        m.addmm(m.ones(1, 2, 4), m.ones(2, 3), m.ones(3, 4))
        m.addmm(m.ones(3), m.ones(2, 3), m.ones(3, 4))
        m.addmm(m.ones(1, 1), m.ones(2, 3), m.ones(3, 4))
        m.addmv(m.ones(2), m.ones(2, 3), m.ones(3).double())
        m.baddbmm(m.ones(2).half(), m.ones(1, 2, 3), m.ones(1, 3, 2))
    """,
    "ties": """
        grad(lambda x: (x / (x > 0)).round().median())
        grad(lambda x: m.where(x > 0, x, nan).median())
        grad(lambda x: m.nn.functional.embedding_bag(i(0, 1, 2)[None], x - x.detach(), mode="max"))
        grad(lambda x: m.nn.functional.embedding_bag(i(2, 0, 2), x * 0 + x, i(0, 2), mode="max"))
        grad(lambda x: m.nn.functional.lp_pool2d((x - x.detach())[None], 3.0, 2))
        grad(lambda x: m.nn.functional.lp_pool1d(x - x.detach(), 1.5, 2))
    """,
    "hooks": """
        hooked(lambda g: 3)
        hooked(lambda g: g.double())
        hooked(lambda g: g[:1])
        hooked(lambda g: g * 2)
    """,
}

# The same, on both backends that run here: what kernels do in a corner.
KERNELS = {
    "none_counts": """
        grad(lambda x: m.nn.functional.cross_entropy(x, m.full((3,), -100)))
        grad(lambda x: m.nn.functional.cross_entropy(x[0], m.tensor(-100)))
        slope(lambda x: smoothed(x, m.tensor([0, 1, 0])))
        slope2(lambda x: smoothed(x, m.tensor([0, 1, 0])))
        slope(lambda x: smoothed(x, m.tensor([-100, 1, -100])))
        m.func.grad(lambda v: m.nanmean(v, 1).sum())(m.tensor([[nan, nan], [1, nan]]))
        m.func.grad(lambda v: m.nansum(v, 1).sum())(m.tensor([[nan, nan], [1, nan]]))
    """,
    "signs_of_zero": """
        m.digamma(m.tensor([-0.0, 0.0]))
        m.func.grad(lambda v: v.lgamma().sum())(m.tensor([-0.0, 0.0]).double())
    """,
    "largest_differences": """
        slope(lambda x: m.cdist(x - x.detach() + r, r[:2], p=inf))
        slope(lambda x: m.cdist(x[None] - x.detach(), m.ones(2, 2, 4), p=inf))
        slope(lambda x: m.pdist(x - x.detach() + m.eye(3, 4), inf))
    """,
    "padded_infinity": """
        grad(lambda x: m.nn.functional.max_pool2d(x[None] * 0 - inf, 3, 1, 1))
        m.nn.functional.max_pool2d(x[None] - inf, 3, 2, 1, return_indices=True)
    """,
}


def outcome(value: Any) -> Any:
    """What must be equal: dtype, shape, place in the graph and values of every tensor."""
    if isinstance(value, tuple | list):
        return [outcome(v) for v in value]
    if hasattr(value, "requires_grad"):
        dtype = str(value.dtype).rpartition(".")[2]
        detached = value.detach().float() if dtype == "bfloat16" else value.detach()
        return dtype, tuple(value.shape), value.requires_grad, detached.numpy()
    return value


def evaluate(m: Any, line: str) -> Any:
    data = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x = m.tensor(data, requires_grad=True)

    def grad(f: Any) -> Any:
        return m.autograd.grad(f(x).sum(), x)

    def slope2(f: Any) -> Any:
        (first,) = m.autograd.grad(f(x).sum(), x, create_graph=True)
        return first, first.requires_grad and m.autograd.grad(first.sum(), x)

    def hooked(hook: Any) -> Any:
        y = x * 1
        y.register_hook(hook)
        return m.autograd.grad(y.sum(), x)

    def written(f: Any) -> Any:
        t = m.zeros(())
        f(t)
        return t

    def changed(t: Any, index: Any, value: Any) -> Any:
        t[index] = value
        return t

    names = dict(
        m=m,
        F=m.nn.functional,
        written=written,
        changed=changed,
        x=x,
        r=(x.detach() * 4).round(),
        grad=grad,
        slope2=slope2,
        slope=lambda f: (f(x), m.autograd.grad(f(x).sum(), x)),
        smoothed=lambda t, classes: m.nn.functional.cross_entropy(
            t, classes, m.tensor([0.0, 0, 1, 2]), label_smoothing=0.1
        ),
        abs1=lambda t: t.abs() / 8 + 0.1,
        i=lambda *numbers: m.tensor(numbers, dtype=m.int32),
        h=lambda t: t.detach().bfloat16(),
        hooked=hooked,
        memory=lambda t: t.untyped_storage().data_ptr(),
        again=lambda t: pickle.loads(pickle.dumps(t)),
        np=np,
        nan=np.nan,
        inf=np.inf,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return outcome(eval(line, names))
    except Exception as error:
        return type(error)


def check(programs: str, torch: Any) -> None:
    for line in filter(None, map(str.strip, programs.splitlines())):
        ours, theirs = evaluate(minigrad, line), evaluate(torch, line)
        np.testing.assert_equal(ours, theirs, err_msg=line)


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_torch(name, torch):
    with backends.use("numpy"):
        check(PROGRAMS[name], torch)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_like_torch(name, backend, torch):
    with backends.use(backend):
        check(KERNELS[name], torch)
