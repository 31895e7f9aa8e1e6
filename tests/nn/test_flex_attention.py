"""`nn.attention.flex_attention`: scores and masks by functions, as torch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad
from minigrad.nn.attention import flex_attention as flex

B, H, GROUPS, L, S, E = 2, 4, 2, 37, 51, 8


def _arrays(rng, heads=H, batch=B):
    shapes = (B, H, L, E), (batch, heads, S, E), (batch, heads, S, E + 1)
    return [rng.standard_normal(shape) for shape in shapes]


def _mods(m, rng):
    """Functions of every kind, made of the tensors of a framework."""
    slopes, bias = rng.standard_normal(H), rng.standard_normal((B, H, L, S))
    documents = rng.integers(0, 3, (B, S))
    slopes, bias, documents = (m.from_numpy(x) for x in (slopes, bias, documents))
    return {
        "none": None,
        "alibi": lambda score, b, h, q, k: score + slopes[h] * (k - q),
        "bias": lambda score, b, h, q, k: score + bias[b, h, q, k],
        "cap": lambda score, b, h, q, k: m.tanh(score / 2) * 2,
        "where": lambda score, b, h, q, k: m.where(q >= k, score, -float("inf")),
        "documents": lambda b, h, q, k: documents[b, q] == documents[b, k],
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: abs(q - k) < 4,
    }


def _reference(torch, arrays, score_mod, mask_mod, groups=1):
    """By torch's `vmap` over single scores; the result, lse and gradients."""
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in arrays)
    keys, values = (x.repeat_interleave(groups, 1).expand(B, -1, -1, -1) for x in (k, v))
    scores = q @ keys.transpose(-2, -1) / E**0.5
    every = [torch.arange(n) for n in (B, H, L, S)]

    def mapped(mod, *scores):
        dims = [[n if i == d else None for i in range(4)] for d, n in enumerate((0, 0, 0, 0))]
        for d in reversed(range(4)):
            mod = torch.vmap(mod, in_dims=(*[0] * len(scores), *dims[d]))
        return mod(*scores, *every)

    if score_mod is not None:
        scores = mapped(score_mod, scores)
    if mask_mod is not None:
        scores = scores.masked_fill(~mapped(mask_mod), -float("inf"))
    nowhere = (scores == -float("inf")).all(-1, keepdim=True)
    weights = scores.masked_fill(nowhere, 0).softmax(-1).masked_fill(nowhere, 0)
    out = weights @ values
    (out**2).sum().backward()
    return [x.detach().numpy() for x in (out, scores.logsumexp(-1), q.grad, k.grad, v.grad)]


@pytest.mark.parametrize(
    ("score", "mask"),
    [
        *[(name, "none") for name in ("none", "alibi", "bias", "cap", "where")],
        *[("none", "documents"), ("none", "window"), ("alibi", "causal"), ("bias", "documents")],
    ],
)
@pytest.mark.parametrize("heads", [H, GROUPS])
def test_against_vmap_of_torch(score, mask, heads, rng, torch):
    arrays = _arrays(rng, heads, batch=1 if mask != "none" else B)
    seed = rng.integers(1 << 30)
    theirs = _mods(torch, np.random.default_rng(seed))
    wanted = _reference(torch, arrays, theirs[score], theirs[mask], H // heads)
    mods = _mods(minigrad, np.random.default_rng(seed))
    block_mask = mods[mask] and flex.create_block_mask(mods[mask], B, H, L, S, BLOCK_SIZE=16)
    q, k, v = (minigrad.from_numpy(x).requires_grad_() for x in arrays)
    options = {"score_mod": mods[score], "block_mask": block_mask, "enable_gqa": heads != H}
    out = flex.flex_attention(q, k, v, **options)
    out.square().sum().backward()
    again, aux = flex.flex_attention(q, k, v, **options, return_aux=flex.AuxRequest(lse=True))
    assert aux.max_scores is None
    found = [out.detach(), aux.lse.detach(), q.grad, k.grad, v.grad]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-9)
    np.testing.assert_allclose(again.detach().numpy(), wanted[0], atol=1e-9)


def test_functions_that_are_not_elementwise(rng):
    """Each call is for one score, whatever the function does with it."""
    table = minigrad.from_numpy(rng.standard_normal((3, 4)))
    x = minigrad.from_numpy(rng.standard_normal((1, 1, 3, 4)))
    for mod in (
        lambda score, b, h, q, k: score + table[q].sum(),
        lambda score, b, h, q, k: score + score.sum(),
        lambda score, b, h, q, k: score + table[q, :3].max() * k,
    ):
        found = flex._everywhere(mod, (1, 1, 3, 4), None, x)
        for i in range(3):
            for j in range(4):
                at = [minigrad.tensor(n) for n in (0, 0, i, j)]
                assert abs(found[0, 0, i, j] - mod(x[0, 0, i, j], *at)) < 1e-9


@pytest.mark.parametrize(("size", "separate"), [(16, True), ((8, 32), True), (16, False)])
def test_masks_of_blocks_as_torch(size, separate, rng, torch):
    theirs = importlib.import_module("torch.nn.attention.flex_attention")
    masks = []
    for m, module in ((minigrad, flex), (torch, theirs)):
        mods = _mods(m, np.random.default_rng(3))
        for mod in (
            mods["causal"],
            module.and_masks(mods["causal"], mods["window"]),
            module.or_masks(mods["documents"], mods["causal"]),
            module.noop_mask,
        ):
            options = {"BLOCK_SIZE": size, "separate_full_blocks": separate, "device": "cpu"}
            masks.append(module.create_block_mask(mod, B, None, L, S, **options))
            masks[-1].dense = module.create_mask(mod, B, None, L, S, device="cpu")
    for mine, wanted in zip(masks[:4], masks[4:], strict=True):
        assert mine.shape == wanted.shape and mine.BLOCK_SIZE == wanted.BLOCK_SIZE
        assert abs(mine.sparsity() - wanted.sparsity()) < 1e-4
        np.testing.assert_array_equal(mine.to_dense().numpy(), wanted.to_dense().numpy())
        np.testing.assert_array_equal(mine.dense.numpy(), wanted.dense.numpy())
        for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
            left, right = getattr(mine, name), getattr(wanted, name)
            assert (left is None) == (right is None)
            if left is not None:
                assert str(left.dtype) == str(right.dtype).replace("torch", "minigrad")
                np.testing.assert_array_equal(left.numpy(), right.numpy())


def test_a_mask_from_a_function_of_scores():
    mask = flex.create_mask(
        lambda score, b, h, q, k: minigrad.where(q > k, score, -float("inf")), 1, 2, 3, 3
    )
    np.testing.assert_array_equal(mask.numpy(), np.tril(np.ones((1, 2, 3, 3), bool), -1))


def test_refusals(rng, reference_backend):
    q, k, v = (minigrad.from_numpy(x) for x in _arrays(rng))
    mask = flex.create_block_mask(flex.noop_mask, None, None, L, S)
    with pytest.raises(NotImplementedError, match="4 dimensions"):
        flex.flex_attention(q[0], k[0], v[0])
    for message, args, options in (
        ("same dtype", (q.float(), k, v), {}),
        ("don't fit", (q, k[..., 1:], v), {}),
        ("enable_gqa=True", (q, k[:, :2], v[:, :2]), {}),
        ("multiple of kv heads", (q, k[:, :3], v[:, :3]), {"enable_gqa": True}),
        ("same batch size", (q, k[:1], v[:1]), {}),
        ("created for", (q[:, :, 1:], k, v), {"block_mask": mask}),
        ("got both", (q, k, v), {"return_lse": True, "return_aux": flex.AuxRequest()}),
    ):
        with pytest.raises(ValueError, match=message):
            flex.flex_attention(*args, **options)
    with pytest.raises(RuntimeError, match="and_masks: expected functions"):
        flex.and_masks(1)
