"""The table of operations, continued: shapes, indexing and layers."""

from __future__ import annotations

import numpy as np

from tests.engine.samples import CLASSES, EDGE, INDEX, MASK, ROWS, SAMPLES, case, softmax

__all__ = ["SAMPLES"]

# --- shapes ---
case("reshape", lambda m, x: x.reshape(2, -1), (4, 3), ref=lambda x: x.reshape(2, -1))
case("view", lambda m, x: x.view(6, 2), (4, 3), ref=lambda x: x.reshape(6, 2))
case(
    "reshape_transposed", lambda m, x: x.t().reshape(6, 2), (4, 3), ref=lambda x: x.T.reshape(6, 2)
)
case("permute", lambda m, x: x.permute(2, 0, 1), (2, 3, 4), ref=lambda x: x.transpose(2, 0, 1))
case("transpose", lambda m, x: x.transpose(0, -1), (2, 3, 4), ref=lambda x: x.swapaxes(0, -1))
case("T", lambda m, x: x.T, (3, 4), ref=lambda x: x.T)
case("movedim", lambda m, x: m.movedim(x, 0, -1), (2, 3, 4), ref=lambda x: np.moveaxis(x, 0, -1))
case("expand", lambda m, x: x.expand(2, 3, -1), (3, 1), ref=lambda x: np.broadcast_to(x, (2, 3, 1)))
case("squeeze", lambda m, x: x.squeeze(), (3, 1, 2, 1), ref=np.squeeze)
case("squeeze_dim", lambda m, x: x.squeeze(1), (3, 1, 2, 1), ref=lambda x: x.squeeze(1))
case("unsqueeze", lambda m, x: x.unsqueeze(-1), (3, 2), ref=lambda x: x[..., None])
case("flatten", lambda m, x: x.flatten(1), (2, 3, 4), ref=lambda x: x.reshape(2, 12))
case("unflatten", lambda m, x: x.unflatten(1, (2, -1)), (2, 6), ref=lambda x: x.reshape(2, 2, 3))
case("split", lambda m, x: x.split(2, dim=1)[1], (3, 5), ref=lambda x: x[:, 2:4])
case("split_sizes", lambda m, x: m.split(x, [1, 3], 0)[1], (4, 2), ref=lambda x: x[1:])
case("chunk", lambda m, x: x.chunk(2)[0], (3, 2), ref=lambda x: x[:2])
case("unbind", lambda m, x: x.unbind(1)[2], (3, 4), ref=lambda x: x[:, 2])
case("narrow", lambda m, x: x.narrow(1, 1, 2), (3, 4), ref=lambda x: x[:, 1:3])
case("select", lambda m, x: x.select(1, -1), (3, 4), ref=lambda x: x[:, -1])
case("diagonal", lambda m, x: x.diagonal(1), (3, 4), ref=lambda x: x.diagonal(1))
case(
    "unfold",
    lambda m, x: x.unfold(1, 3, 1),
    (2, 6),
    ref=lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1),
)
case(
    "cat",
    lambda m, a, b: m.cat([a, b], 1),
    (3, 2),
    (3, 4),
    ref=lambda a, b: np.concatenate([a, b], 1),
)
case(
    "stack",
    lambda m, a, b: m.stack((a, b), dim=1),
    (3, 2),
    (3, 2),
    ref=lambda a, b: np.stack([a, b], 1),
)
case("flip", lambda m, x: x.flip(0, 1), (3, 4), ref=lambda x: x[::-1, ::-1])
case("roll", lambda m, x: x.roll(1, 0), (3, 4), ref=lambda x: np.roll(x, 1, 0))
case("roll_flat", lambda m, x: m.roll(x, -2), (3, 4), ref=lambda x: np.roll(x, -2))
case("roll_some", lambda m, x: x.roll((5, -1, 3), (0, 2, 2)), (3, 2, 4),
     ref=lambda x: np.roll(x, (5, -1, 3), (0, 2, 2)))  # fmt: skip
case("repeat", lambda m, x: x.repeat(2, 1, 3), (2, 3), ref=lambda x: np.tile(x, (2, 1, 3)))
case(
    "repeat_interleave",
    lambda m, x: x.repeat_interleave(2, dim=1),
    (2, 3),
    ref=lambda x: x.repeat(2, 1),
)
case("tril", lambda m, x: x.tril(1), (4, 4), ref=lambda x: np.tril(x, 1))
case("triu", lambda m, x: m.triu(x, diagonal=-1), (2, 4, 3), ref=lambda x: np.triu(x, -1))
case("diag_vector", lambda m, x: m.diag(x, 1), (3,), ref=lambda x: np.diag(x, 1))
case("diag_matrix", lambda m, x: m.diag(x), (3, 3), ref=np.diag)
case(
    "diag_embed",
    lambda m, x: m.diag_embed(x, -1),
    (2, 3),
    ref=lambda x: np.stack([np.diag(r, -1) for r in x]),
)
case(
    "meshgrid",
    lambda m, a, b: m.meshgrid(a, b, indexing="xy")[0],
    (3,),
    (2,),
    ref=lambda a, b: np.meshgrid(a, b)[0],
)
case(
    "pad",
    lambda m, x: m.nn.functional.pad(x, (1, 2, 0, -1), value=3.0),
    (3, 4),
    ref=lambda x: np.pad(x[:-1], ((0, 0), (1, 2)), constant_values=3),
)
case(
    "pad_reflect",
    lambda m, x: m.nn.functional.pad(x, (1, 2), mode="reflect"),
    (1, 2, 4),
    ref=lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), mode="reflect"),
)
case("contiguous_copy", lambda m, x: x.t().contiguous(), (3, 4), ref=lambda x: x.T)
case("clone", lambda m, x: x.clone(), (3, 4), ref=lambda x: x)
case("detach", lambda m, x: x.detach() * 2, (3, 4), ref=lambda x: 2 * x, grad=False)

# --- indexing ---
case("getitem_int", lambda m, x: x[1], (3, 4), ref=lambda x: x[1])
case("getitem_slices", lambda m, x: x[1:, ::2], (3, 4), ref=lambda x: x[1:, ::2])
case("getitem_none", lambda m, x: x[:, None, ..., 0], (3, 4, 2), ref=lambda x: x[:, None, ..., 0])
case("getitem_list", lambda m, x: x[[2, 0, 2]], (3, 4), ref=lambda x: x[[2, 0, 2]])
case("getitem_tensor", lambda m, x, i: x[i], (3, 4), INDEX, ref=lambda x, i: x[i])
case(
    "getitem_two_tensors", lambda m, x, i: x[i, :, i], (3, 4, 3), ROWS, ref=lambda x, i: x[i, :, i]
)
case("getitem_adjacent", lambda m, x, i: x[:, i, i], (2, 3, 3), ROWS, ref=lambda x, i: x[:, i, i])
case(
    "getitem_int_and_tensor",
    lambda m, x, i: x[0, :, i],
    (2, 4, 3),
    ROWS,
    ref=lambda x, i: x[0][:, i],
)
case("getitem_negative", lambda m, x: x[[-1, 0]], (3, 4), ref=lambda x: x[[-1, 0]])
case("getitem_mask", lambda m, x, k: x[k], (3, 4), MASK, ref=lambda x, k: x[k])
case(
    "getitem_mask_rows",
    lambda m, x, k: x[k[:, 0], 1:],
    (3, 4),
    MASK,
    ref=lambda x, k: x[k[:, 0], 1:],
)
case(
    "gather",
    lambda m, x, i: x.gather(1, i),
    (2, 3),
    INDEX,
    ref=lambda x, i: np.take_along_axis(x, i, 1),
)
case("scatter", lambda m, x, i, s: m.scatter(x, 1, i[:, 1:], s), (2, 3), INDEX, (2, 2))
case("scatter_add", lambda m, x, i, s: x.scatter_add(1, i, s), (2, 3), INDEX, (2, 3))
case("index_select", lambda m, x, i: x.index_select(1, i), (2, 3), ROWS, ref=lambda x, i: x[:, i])
case("index_add", lambda m, x, i, s: x.index_add(0, i, s), (3, 2), ROWS, (3, 2))
case("index_add_columns", lambda m, x, i, s: x.index_add(1, i, s), (2, 3), ROWS, (2, 3))
case("masked_select", lambda m, x, k: x.masked_select(k), (3, 4), MASK, ref=lambda x, k: x[k])
case("take", lambda m, x, i: m.take(x, i), (3, 4), INDEX, ref=lambda x, i: x.ravel()[i])
case(
    "embedding",
    lambda m, w, i: m.nn.functional.embedding(i, w),
    (3, 4),
    INDEX,
    ref=lambda w, i: w[i],
)
case(
    "embedding_padding",
    lambda m, w, i: m.nn.functional.embedding(i, w, padding_idx=0),
    (3, 4),
    INDEX,
    grad=False,
)
case("sort", lambda m, x: x.sort(1, descending=True).values, (3, 4), ref=lambda x: -np.sort(-x, 1))
case("argsort", lambda m, x: m.argsort(x, dim=0), (3, 4), ref=lambda x: x.argsort(0), grad=False)
case("topk", lambda m, x: x.topk(2, dim=1)[0], (3, 4), ref=lambda x: -np.sort(-x, 1)[:, :2])
case(
    "topk_few",
    lambda m, x: x.topk(2, 0, largest=False)[0],
    (12, 3),
    ref=lambda x: np.sort(x, 0)[:2],
)
case("kthvalue", lambda m, x: x.kthvalue(2, 1)[0], (3, 4), ref=lambda x: np.sort(x, 1)[:, 1])
case("nonzero", lambda m, x: m.nonzero(x), EDGE, ref=lambda x: np.stack(x.nonzero(), 1), grad=False)

# --- layers ---
case("softmax", lambda m, x: x.softmax(1), (3, 4), ref=lambda x: softmax(x, 1))
case("softmax_first", lambda m, x: m.softmax(x, 0), (3, 4, 2), ref=lambda x: softmax(x, 0))
case("log_softmax", lambda m, x: m.log_softmax(x, -1), (3, 4), ref=lambda x: np.log(softmax(x, -1)))
case(
    "cross_entropy",
    lambda m, x, t: m.nn.functional.cross_entropy(x, t),
    (5, 4),
    CLASSES,
    ref=lambda x, t: -np.log(softmax(x, 1))[np.arange(5), t].mean(),
)
case(
    "cross_entropy_smooth",
    lambda m, x, t, w: m.nn.functional.cross_entropy(x, t, w, ignore_index=2, label_smoothing=0.1),
    (5, 4),
    CLASSES,
    np.array([1.0, 2, 3, 0.5]),
    frozen=(2,),
)
case("nll_loss", lambda m, x, t: m.nn.functional.nll_loss(x.log_softmax(1), t), (5, 4), CLASSES)
case(
    "mse_loss",
    lambda m, a, b: m.nn.functional.mse_loss(a, b),
    (3, 4),
    (3, 4),
    ref=lambda a, b: ((a - b) ** 2).mean(),
)
EACH = {"reduction": "none"}  # so that their gradients' kernels are those of test_edges
case(
    "smooth_l1",
    lambda m, a, b: m.nn.functional.smooth_l1_loss(a, b, beta=0.7, **EACH),
    (3, 4),
    (3, 4),
)
case("huber", lambda m, a, b: m.nn.functional.huber_loss(a, b, delta=0.7, **EACH), (3, 4), (3, 4))
case(
    "bce",
    lambda m, a, b: m.nn.functional.binary_cross_entropy(a, b, **EACH),
    (3, 4),
    (3, 4),
    domain=(0.1, 0.9),
)
case(
    "bce_logits",
    lambda m, a, b: m.nn.functional.binary_cross_entropy_with_logits(a, b, **EACH),
    (3, 4),
    (3, 4),
    domain=(0.1, 0.9),
)
case(
    "conv2d",
    lambda m, x, w, b: m.nn.functional.conv2d(x, w, b, padding=1),
    (2, 2, 4, 5),
    (3, 2, 3, 3),
    (3,),
)
case(
    "conv2d_strided",
    lambda m, x, w: m.nn.functional.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    (1, 2, 5, 5),
    (2, 2, 3, 2),
)
for _pool in ("max_pool2d", "avg_pool2d"):
    case(
        f"{_pool}_larger_than_the_image",
        lambda m, x, f=_pool: getattr(m.nn.functional, f)(x, 3, 2, ceil_mode=True),
        (2, 2, 2, 3),
        gradgrad=False,
    )
case(  # its gradient in the rows and columns that no window covers is zero
    "conv2d_windows_apart",
    lambda m, x, w: m.nn.functional.conv2d(x, w, stride=3),
    (2, 2, 8, 7),
    (2, 2, 2, 3),
)
case(
    "conv2d_groups",
    lambda m, x, w: m.nn.functional.conv2d(x, w, groups=2),
    (1, 4, 4, 3),
    (4, 2, 3, 3),
)
case(
    "conv2d_same",
    lambda m, x, w: m.nn.functional.conv2d(x, w, padding="same"),
    (1, 1, 4, 4),
    (1, 1, 2, 3),
)
case(
    "conv1d",
    lambda m, x, w: m.nn.functional.conv1d(x, w, stride=2, padding=1),
    (2, 3, 7),
    (2, 3, 3),
)
case(
    "conv_transpose2d",
    lambda m, x, w, b: m.nn.functional.conv_transpose2d(
        x, w, b, stride=(2, 1), padding=1, output_padding=(1, 0), dilation=(1, 2)
    ),  # the kernels of conv2d_strided
    (1, 2, 3, 3),
    (2, 2, 3, 2),
    (2,),
)
case(
    "conv_transpose1d",
    lambda m, x, w: m.nn.functional.conv_transpose1d(x, w, stride=2),
    (1, 2, 3),
    (2, 2, 3),
)
case("max_pool2d", lambda m, x: m.nn.functional.max_pool2d(x, 2), (2, 2, 4, 4))
case(
    "max_pool2d_overlap",
    lambda m, x: m.nn.functional.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    (1, 2, 6, 5),
)
case("max_pool1d", lambda m, x: m.nn.functional.max_pool1d(x, 2), (2, 3, 6))
case(
    "avg_pool2d",
    lambda m, x: m.nn.functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    (1, 2, 5, 6),
)
case("avg_pool1d", lambda m, x: m.nn.functional.avg_pool1d(x, 2), (2, 3, 6))
case(
    "adaptive_avg_pool2d", lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, (2, 3)), (1, 2, 5, 6)
)
case(
    "adaptive_max_pool2d", lambda m, x: m.nn.functional.adaptive_max_pool2d(x, (2, 3)), (1, 1, 3, 5)
)
case("adaptive_avg_pool1d", lambda m, x: m.nn.functional.adaptive_avg_pool1d(x, 3), (2, 2, 7))
case(
    "batch_norm",
    lambda m, x, w, b: m.nn.functional.batch_norm(x, None, None, w, b, training=True),
    (4, 3, 2),
    (3,),
    (3,),
)
case(
    "batch_norm_plain",
    lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True),
    (5, 3),
)
case(
    "batch_norm_eval",
    lambda m, x, u, v, w, b: m.nn.functional.batch_norm(x, u, v, w, b),
    (4, 3, 2),
    np.array([0.1, 0.2, 0.3]),
    np.array([1.0, 2, 3]),
    (3,),
    (3,),
    frozen=(1, 2),
)
case(
    "layer_norm",
    lambda m, x, w, b: m.nn.functional.layer_norm(x, (4,), w, b),
    (2, 3, 4),
    (4,),
    (4,),
)
case(
    "rms_norm",
    lambda m, x, w: m.nn.functional.rms_norm(x, (3, 4), w, 1e-5),
    (2, 3, 4),
    (3, 4),
    ref=lambda x, w: x * w / np.sqrt((x * x).mean((1, 2), keepdims=True) + 1e-5),
)
case("group_norm", lambda m, x, w, b: m.nn.functional.group_norm(x, 2, w, b), (2, 4, 3), (4,), (4,))
case("normalize", lambda m, x: m.nn.functional.normalize(x, dim=1), (3, 4))
case(
    "cosine_similarity",
    lambda m, a, b: m.nn.functional.cosine_similarity(a, b, dim=1),
    (3, 4),
    (3, 4),
)


def attend(q, k, v, mask=0.0, scale=None):
    scores = np.einsum("...le,...se->...ls", q, k) * (scale or q.shape[-1] ** -0.5)
    return softmax(scores + mask, -1) @ v


BLIND = np.array([[True, False, True], [False, False, False], [True, True, True], [False] * 3])
BIAS = np.array([[0.5, -1, -np.inf], [0, 0, 0], [-np.inf, 1, 0], [2, 0, 1]])
case(
    "attention",
    lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.7),
    (2, 1, 2, 4),
    (2, 2, 3, 4),
    (2, 2, 3, 5),
    ref=lambda q, k, v: attend(q, k, v, scale=0.7),
)
case(
    "attention_causal",
    lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    (2, 4, 4),
    (2, 3, 4),
    (2, 3, 4),
    ref=lambda q, k, v: attend(q, k, v, np.where(np.tri(4, 3) > 0, 0, -np.inf)),
)
case(
    "attention_mask",
    lambda m, q, k, v, k_: m.nn.functional.scaled_dot_product_attention(q, k, v, k_),
    (2, 2, 4, 4),
    (2, 2, 3, 4),
    (2, 2, 3, 4),
    BLIND,
)
case(
    "attention_bias_grouped",
    lambda m, q, k, v, b: m.nn.functional.scaled_dot_product_attention(q, k, v, b, enable_gqa=True),
    (1, 4, 4, 4),
    (1, 2, 3, 4),
    (1, 2, 3, 4),
    BIAS,
    ref=lambda q, k, v, b: attend(q, k.repeat(2, 1), v.repeat(2, 1), b),
    frozen=(3,),
)
case(
    "attention_bias_learned",
    lambda m, q, k, v, b: m.nn.functional.scaled_dot_product_attention(q, k, v, b),
    (4, 4),
    (3, 4),
    (3, 4),
    (4, 3),
    ref=attend,
)
