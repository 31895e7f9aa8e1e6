"""Operations on the device meta: shapes, dtypes and errors of results, compared with torch's."""

from __future__ import annotations

import pytest

import minigrad

LAYERS = """
    nn.Conv1d(5, 4, 3)(s)
    nn.Conv2d(3, 4, 3, stride=2, padding=1)(x)
    nn.ConvTranspose2d(3, 4, 3)(x)
    nn.BatchNorm2d(3)(x)
    nn.GroupNorm(3, 3)(x)
    nn.LayerNorm(8)(s)
    nn.InstanceNorm2d(3)(x)
    nn.MaxPool2d(2)(x)
    nn.AvgPool2d(2)(x)
    nn.AdaptiveAvgPool2d(1)(x)
    nn.Upsample(scale_factor=2, mode="bilinear")(x)
    nn.Dropout()(x)
    nn.GELU()(x)
    nn.PReLU()(x)
    nn.Softmax(-1)(s)
    nn.Embedding(10, 4)(i)
    nn.LSTM(8, 6)(s)[0]
    nn.GRU(8, 6, batch_first=True, bidirectional=True)(s)[0]
    nn.MultiheadAttention(8, 2)(s, s, s)[0]
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(s)
    nn.Flatten()(x)
    nn.Linear(6, 3)(v)
    F.cross_entropy(v, y)
    F.nll_loss(v, y)
    F.mse_loss(v, v)
    F.scaled_dot_product_attention(s, s, s, is_causal=True)
    v.max(1)
    v.argmax(1)
    (v > 0).any()
    v.half() + v.double()
    v.sum(0) @ v.T
    v.cumsum(0)
    v.clone().add_(1)
    t.cat([v, v.exp()], 1)
    t.where(v > 0, v, 0.0)
    t.einsum("bij,bkj->bik", s, s)
    v @ v
    v + t.ones(6)
    v.sum().item()
    bool(v.sum())
    v.nonzero()
    v[v > 0]
    v.tolist()
    v.equal(v)
    v.data_ptr() + t.zeros(1)
    v.normal_(), v.uniform_(), v.exponential_(), v.bernoulli_(), v.cauchy_()
    t.empty(3, requires_grad=True).normal_()
    t.empty(3, requires_grad=True).uniform_()
    t.empty(3, requires_grad=True).exponential_()
    v.copy_(v.clone()), v.copy_(v), v[:2].copy_(v[3])
    v.bernoulli(), v.multinomial(2), v[0].multinomial(3, True)
    v.median(), *v.median(1), *v.median(0, True), t.zeros(3, dtype=t.long).median()
    v.nanmedian(), *v.nanmedian(1), *v.mode(), *v.mode(0, True)
    t.histc(v), t.histc(v, 5), t.searchsorted(v, v, out_int32=True), t.bucketize(v, v[0])
    v.take(i), v.diag(), v.diagonal(1), v.as_strided((2, 3), (1, 2)), v.as_strided((3,), (2,), 1)
    t.view_as_real(c), c.sgn(), c.exp() * 2, c.abs()
    t.stft(x[0, 0, 0], 4, window=v[0, :4], return_complex=True)
    t.linalg.inv(m), t.inverse(m), *t.linalg.inv_ex(m)
    t.linalg.cholesky(m), t.linalg.cholesky(m.mH, upper=True), t.linalg.solve(m, m[0, :, :2])
    *t.linalg.slogdet(m), *t.linalg.slogdet(m.to(t.complex64)), t.linalg.det(m), *t.slogdet(m)
    *t.linalg.svd(s), *t.linalg.svd(s, full_matrices=False), *t.svd(s.mT), t.linalg.svdvals(s)
    *t.linalg.svd(s.to(t.complex128), False), s
    *t.linalg.eigh(m), t.linalg.eigvalsh(m), *t.linalg.eig(m), t.linalg.eigvals(m.double())
    *t.linalg.qr(s), *t.linalg.qr(s.mT, "complete"), *t.linalg.qr(s, "r"), t.linalg.pinv(s)
    t.linalg.matrix_power(m, -2), t.linalg.tensorinv(m[0], 1), t.linalg.matrix_norm(s, "nuc")
""".strip().splitlines()


def outcome(line, t):
    d = {"device": "meta"}
    names = {
        "t": t, "nn": t.nn, "F": t.nn.functional, "x": t.empty(2, 3, 8, 8, **d),
        "s": t.empty(2, 5, 8, **d), "v": t.empty(4, 6, **d),
        "i": t.zeros(2, 5, dtype=t.long, **d), "y": t.zeros(4, dtype=t.long, **d),
        "m": t.empty(2, 4, 4, **d), "c": t.empty(2, 3, dtype=t.complex64, **d),
    }  # fmt: skip
    try:
        with t.device("cpu" if "t.ones" in line else "meta"):
            found = eval(f"({line})", names)
    except Exception as error:
        return NotImplementedError if isinstance(error, NotImplementedError) else type(error)
    parts = found if isinstance(found, tuple) else (found,)
    return [(tuple(p.shape), str(p.dtype).rpartition(".")[2], str(p.device)) for p in parts]


def test_like_torch(torch):
    for line in map(str.strip, LAYERS):
        assert outcome(line, minigrad) == outcome(line, torch), line


def test_indices_without_data():
    x, i = (minigrad.empty(3, 4, 5, device="meta"), minigrad.empty(2, 1, device="meta").long())
    row = i.reshape(2)
    for found, shape in (
        (x[row], (2, 4, 5)),
        (x[i], (2, 1, 4, 5)),
        (x[:, row], (3, 2, 5)),
        (x[row, :, row], (2, 4)),
        (x[i, row], (2, 2, 5)),
        (x.index_select(1, row), (3, 2, 5)),
        (minigrad.nn.functional.interpolate(x, size=7), (3, 4, 7)),
    ):
        assert found.is_meta and found.shape == shape
    leaf = minigrad.empty(3, 4, device="meta", requires_grad=True)
    leaf[row].sum().backward()
    assert leaf.grad.is_meta and leaf.grad.shape == (3, 4)


def test_orders_without_data():
    x = minigrad.empty(3, 400, device="meta", requires_grad=True)
    for pair, shape in (
        (x.sort(0, descending=True), (3, 400)),
        (x.topk(5), (3, 5)),
        (x.topk(2, dim=0, largest=False), (2, 400)),
        (x.topk(1), (3, 1)),
        (x.kthvalue(2, 1), (3,)),
    ):
        values, indices = pair
        assert values.is_meta and indices.is_meta and values.shape == indices.shape == shape
        assert values.dtype == minigrad.float32 and indices.dtype == minigrad.int64
    assert x.argsort().shape == (3, 400) and x.quantile(0.5, 1).shape == (3,)
    hot = minigrad.nn.functional.one_hot(x.detach().long(), 5)
    assert hot.is_meta and hot.shape == (3, 400, 5)
    x.topk(2).values.sum().backward()
    assert x.grad.is_meta and x.grad.shape == (3, 400)


def test_gradients_have_shapes():
    nn = minigrad.nn
    with minigrad.device("meta"):
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
        )
        layer = nn.TransformerEncoderLayer(8, 2, 16)  # whose gradients are sums of several
        layer(minigrad.rand(3, 2, 8)).square().mean().backward()
        x, y = minigrad.rand(2, 3, 8, 8), minigrad.zeros(2, dtype=minigrad.long)
        nn.functional.cross_entropy(model(x), y).backward()
    for p in (*model.parameters(), *layer.parameters()):
        assert p.grad.is_meta and p.grad.shape == p.shape
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model[-1](minigrad.empty(2, 3, device="meta"))


def test_what_scipy_computes_is_refused_by_name():
    for function in (minigrad.linalg.lu_factor, minigrad.linalg.lu):
        with pytest.raises(NotImplementedError, match="linalg: not implemented .* device meta"):
            function(minigrad.empty(3, 3, device="meta"))


def test_gradients_of_decompositions_have_shapes():
    names = "inv det slogdet svdvals eigvalsh cholesky eigh qr eig".split()
    for name, complex_ in [(name, c) for name in names for c in (False, True)]:
        dtype = minigrad.complex64 if complex_ else minigrad.float32
        a = minigrad.empty(2, 3, 3, dtype=dtype, device="meta", requires_grad=True)
        found = getattr(minigrad.linalg, name)(a)
        parts = found if isinstance(found, tuple) else (found,)
        sum([part.abs().sum() for part in parts if part.requires_grad]).backward()
        assert a.grad.is_meta and a.grad.shape == a.shape and a.grad.dtype == dtype


@pytest.mark.parametrize("name", "SGD Adam AdamW Adagrad Adadelta RMSprop Adamax Rprop".split())
def test_a_step_of_an_optimiser(torch, name):
    """It makes the state, counts, and marks the parameters as changed."""
    kept = []
    for t in (minigrad, torch):
        layer = t.nn.Linear(3, 4, device="meta")
        layer.load_state_dict(layer.state_dict())
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(t.optim, name)(layer.parameters(), lr=0.1, **options)
        versions = []
        for _ in range(2):
            layer(t.empty(2, 3, device="meta")).sum().backward()
            before = layer.weight._version
            optimizer.step()
            versions.append(layer.weight._version > before)
        state = optimizer.state_dict()["state"][1]
        kept.append([(k, tuple(v.shape), v.device.type) for k, v in state.items()])
        kept[-1] += [versions, float(state.get("step", 2))]
    assert kept[0] == kept[1] and kept[0][-1] == 2
