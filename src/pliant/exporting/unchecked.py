"""Operators whose kernels do not check what they are given: places in memory, numbers of elements.

In:     a call of a file's graph: the operator and its arguments, tensors as nodes.
Out:    `may_leave_memory`: whether the kernel might read or write behind the memory of its tensors.
Holds:  what a derivative is given of its forward operator has to be that one's result, of the same tensors, where its elements
        are places; otherwise it has the size of it, which the forward operator's shape rule tells.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.exporting.program import described
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import key_of
from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten
Given = Mapping[str, Any]
Row = Callable[[Given], bool]


def may_leave_memory(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    is_safe = _ROWS.get(target)
    return is_safe is not None and not is_safe(_by_name(target, args, kwargs))


def _by_name(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip([one.name for one in target._schema.arguments], args)), **kwargs}


def _sizes(node: Any) -> tuple[Any, ...]:
    return tuple(node.meta["val"].spec.size_key)


def _checks_lengths(given: Given) -> bool:
    """`segment_reduce`: offsets are never checked."""
    return not given.get("unsafe") and given.get("offsets") is None


def _has_pairs(given: Given) -> bool:
    """`_cdist_backward`: distances and their gradients are those of all pairs of rows. It is called of transposed ones, too."""
    one, other, grad, found = (_sizes(given[name]) for name in ("x1", "x2", "grad", "cdist"))
    batches = zip_longest(reversed(one[:-2]), reversed(other[:-2]), fillvalue=1)
    batch = [b if a == 1 else a for a, b in batches]
    return grad == found == (*reversed(batch), one[-2], other[-2])


def _grad(given: Given) -> Any:
    return next((given[name] for name in ("grad_output", "grad_out", "grad_w", "grad") if name in given), None)


# ---- results of the forward operator
def _derivative(forward: OpOverload, results: Mapping[str, int | None], like: int | None = None, apart: str = "") -> Row:
    """Whether the arguments `results` are what `forward` gave at these places of the tensors that the derivative is given under
    the same names, and the gradient has the size of the result `like` (None: of the one result). Tensors in `apart` are not given."""
    names = [one.name for one in forward._schema.arguments if "Tensor" in str(one.type) and one.name not in apart.split()]

    def is_its_result(given: Given) -> bool:
        calls = [_call(given.get(name), item) for name, item in results.items()]
        made = calls[0]
        if made is None or any(one is not made for one in calls) or made.target is not forward:
            return False
        before, grad = _by_name(forward, made.args, made.kwargs), _grad(given)
        found: Any = made.meta["val"] if like is None else made.meta["val"][like]
        if not isinstance(grad, fx.Node) or _sizes(grad) != tuple(found.spec.size_key):
            return False
        if "num_weights" in given and _sizes(before["weight"])[0] != given["num_weights"]:
            return False
        return all(before.get(name) is given.get(name) for name in names)

    return is_its_result


def _call(result: Any, item: int | None) -> fx.Node | None:
    """The call of which a node is the result, or the item of it."""
    if not isinstance(result, fx.Node) or item is None:
        return result if isinstance(result, fx.Node) else None
    if result.target is not operator.getitem or result.args[1] != item:
        return None
    call: Any = result.args[0]
    return call if isinstance(call, fx.Node) else None


# ---- sizes of the forward operator's results
def _as_forward(forward: OpOverload, results: Mapping[str, int | None], **more: Any) -> Row:
    """Whether the arguments `results` have the sizes of what `forward` would make of the other arguments, which have the same
    names; `more`: of those that it has alone."""
    arguments = forward._schema.arguments

    def has_sizes(given: Given) -> bool:
        known = {name: described(value) for name, value in given.items()} | more
        values = [known.get(one.name, one.default_value) for one in arguments if not one.kwarg_only]
        named = {one.name: known[one.name] for one in arguments if one.kwarg_only and one.name in known}
        mode = next(one.fake_mode for one in pytree.tree_leaves(values) if isinstance(one, FakeTensor))
        with torch.no_grad():
            found = mode.compute(forward, values, named)
        made = {name: found if item is None else found[item] for name, item in results.items()}
        return all(isinstance(given[name], fx.Node) and _sizes(given[name]) == tuple(one.spec.size_key) for name, one in made.items())

    return has_sizes


def _of_rows(given: Given) -> bool:
    """`embedding_dense_backward`: a gradient for each index, of rows that the forward operator looked up, which checks that they are there."""
    grad, indices = _sizes(_grad(given)), given["indices"]
    looked_up = [user for user in indices.users if user.target is _aten.embedding.default and user.args[1] is indices and user.users]
    return grad[:-1] == _sizes(indices) and any(_sizes(one.args[0]) == (given["num_weights"], grad[-1]) for one in looked_up)


def _of_channels(given: Given) -> bool:
    """Batch norm and its derivative: the statistics that it reads are there, and what it is given has one element a channel,
    one behind the other: the derivative reads statistics as if strides were 1."""
    sizes, training = _sizes(given["input"]), given.get("train", given.get("training", False))
    saved, running = ("save_mean", "save_invstd"), ("running_mean", "running_var")
    made = training and "save_mean" not in given
    read = () if made else saved if training else running
    parts: list[Any] = [given.get(name) for name in ("weight", "bias", *running, *(saved if training else ())) if given.get(name) is not None]
    there = all(isinstance(given.get(name), fx.Node) for name in read)
    grad = _grad(given)
    dense = all(one.meta["val"].spec.stride == (1,) for one in parts)
    return len(sizes) > 1 and there and dense and all(_sizes(one) == sizes[1:2] for one in parts) and (grad is None or _sizes(grad) == sizes)


def _of_images(rank: int) -> Row:
    """The derivative of a mean over places: images of as many, as deep."""

    def same_images(given: Given) -> bool:
        one, other = _sizes(_grad(given)), _sizes(given["self"])
        return len(one) == len(other) >= rank + 1 and one[:-rank] == other[:-rank]

    return same_images


def _scaled(given: Given) -> bool:
    """Images that are resized: scales are those of their sizes, if they are given."""
    before = given["input_size"] if "input_size" in given else given["self"].meta["val"].size_
    scales = (given.get("scales_h"), given.get("scales_w"))
    pairs = zip(before[2:], given["output_size"], scales, strict=True)
    return all(scale is None or key_of(math.trunc(old * scale)) == key_of(new) for old, new, scale in pairs)


def _one_lstm(given: Given) -> bool:
    """`mkldnn_rnn_layer`: a layer of an LSTM in one direction, whose weights and states are as large as it says."""
    if given["mode"] != 2 or given["batch_sizes"] or given["batch_first"] or not 0 < given["num_layers"] < 1 << 16:
        return False
    weights, states = [given[f"weight{i}"] for i in range(4)], [given["hx_"], given["cx_"]]
    width, (_, batch, inputs) = given["hidden_size"], _sizes(given["input"])
    wanted = [(4 * width, inputs), (4 * width, width), (4 * width,), (4 * width,)]
    dtypes = {one.meta["val"].spec.dtype for one in (given["input"], *weights, *states)}
    sized = [*map(_sizes, weights)] == wanted and all(_sizes(one)[-2:] == (batch, width) for one in states)
    return sized and len(dtypes) == 1 and all(len(_sizes(one)) == 2 or _sizes(one)[0] == 1 for one in states)


def _normed(given: Given) -> bool:
    """`_weight_norm_interface` and its derivative: a length for each part along the dimension, of one dtype."""
    saved = "saved_" if "saved_v" in given else ""
    v, g, dim = given[f"{saved}v"], given[f"{saved}g"], given.get("dim", 0)
    sizes = _sizes(v)
    lengths = tuple(n if i == dim else 1 for i, n in enumerate(sizes))
    like_v, like_g = [v, *[given[name] for name in ("grad_w",) if name in given]], [g, *[given[name] for name in ("saved_norms",) if name in given]]
    alike = len({one.meta["val"].spec.dtype for one in (*like_v, g)}) == 1
    return alike and 0 <= dim < len(sizes) and {*map(_sizes, like_v)} == {sizes} and {*map(_sizes, like_g)} == {lengths}


def _encodes(given: Given) -> bool:
    """Attention, or a layer of an encoder, in one kernel: weights are as large as the embedding, masks as the sequence."""
    width, heads = given["embed_dim"], given["num_heads"] if "num_heads" in given else given["num_head"]
    sequences = [given[name] for name in ("src", "query", "key", "value") if name in given]
    first = _sizes(sequences[0])
    if len(first) != 3 or any(_sizes(one) != first for one in sequences) or first[2] != width or heads <= 0 or width % heads:
        return False
    inner = _sizes(given["ffn_weight_1"])[:1] if "ffn_weight_1" in given else ()
    wanted = {
        "qkv_weight": (3 * width, width), "qkv_bias": (3 * width,), "proj_weight": (width, width), "proj_bias": (width,),
        **{f"norm_{kind}_{i}": (width,) for kind in ("weight", "bias") for i in (1, 2)},
        "ffn_weight_1": (*inner, width), "ffn_bias_1": inner, "ffn_weight_2": (width, *inner), "ffn_bias_2": (width,),
    }  # fmt: skip
    tensors = [*sequences, *[given[name] for name in wanted if name in given]]
    alike = len({one.meta["val"].spec.dtype for one in tensors}) == 1
    return alike and all(_sizes(given[name]) == size for name, size in wanted.items() if name in given) and _masks(given, first, heads)


def _masks(given: Given, sizes: tuple[Any, ...], heads: int) -> bool:
    """Whether the mask, if there is one, is as large as its kind says."""
    mask, (batch, length, _) = given.get("mask"), sizes
    kinds = {0: (length, length), 1: (batch, length), 2: (batch, heads, length, length)}
    return mask is None or _sizes(mask) == kinds.get(given.get("mask_type", None))


def _attends(given: Given) -> bool:
    """Attention on GPUs: queries of as many batches and as wide as keys, a value for each key."""
    query, key, value = (_sizes(given[name]) for name in ("query", "key", "value"))
    return len(query) == len(key) == len(value) == 4 and (query[0], query[3]) == (key[0], key[3]) and key[:3] == value[:3]


_ATTENTIONS = {
    getattr(_aten, f"_scaled_dot_product_{kind}_attention").default: getattr(_aten, f"_scaled_dot_product_{kind}_attention_backward").default
    for kind in ("flash", "efficient", "cudnn")
}
_PADDED = {
    f"{kind}_pad{rank}d": _as_forward(getattr(_aten, f"{kind}_pad{rank}d").default, {"grad_output": None})
    for kind in ("reflection", "replication") for rank in (1, 2, 3)
}  # fmt: skip
_BATCH_NORMS = (
    _aten.native_batch_norm.default, _aten.native_batch_norm_backward.default, _aten._native_batch_norm_legit.no_stats,
    _aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit_no_training.default,
    _aten._batch_norm_with_update_functional.default,
)  # fmt: skip
_BAG = {"offset2bag": 1, "bag_size": 2, "maximum_indices": 3}
_ROWS: dict[OpOverload, Row] = {
    _aten.max_pool2d_with_indices_backward.default: _derivative(_aten.max_pool2d_with_indices.default, {"indices": 1}, 1),
    _aten.max_pool3d_with_indices_backward.default: _derivative(_aten.max_pool3d_with_indices.default, {"indices": 1}, 1),
    _aten.adaptive_max_pool2d_backward.default: _derivative(_aten.adaptive_max_pool2d.default, {"indices": 1}, 1),
    _aten.adaptive_max_pool3d_backward.default: _derivative(_aten.adaptive_max_pool3d.default, {"indices": 1}, 1),
    _aten.fractional_max_pool2d_backward.default: _derivative(_aten.fractional_max_pool2d.default, {"indices": 1}, 1, "random_samples"),
    _aten.fractional_max_pool3d_backward.default: _derivative(_aten.fractional_max_pool3d.default, {"indices": 1}, 1, "random_samples"),
    _aten._pdist_backward.default: _derivative(_aten._pdist_forward.default, {"pdist": None}),
    _aten._cdist_backward.default: _has_pairs,
    _aten.segment_reduce.default: _checks_lengths,
    _aten._segment_reduce_backward.default: _derivative(_aten.segment_reduce.default, {"output": None}),
    _aten._ctc_loss_backward.Tensor: _derivative(_aten._ctc_loss.Tensor, {"neg_log_likelihood": 0, "log_alpha": 1}, 0),
    _aten._embedding_bag_backward.default: _derivative(_aten._embedding_bag.default, _BAG, 0, "weight per_sample_weights"),
    _aten._embedding_bag_dense_backward.default: _derivative(
        _aten._embedding_bag.default, _BAG, 0, "weight offsets per_sample_weights"
    ),
    _aten._embedding_bag_per_sample_weights_backward.default: _derivative(
        _aten._embedding_bag.default, {"offset2bag": 1}, 0, "per_sample_weights"
    ),
    _aten.embedding_dense_backward.default: _of_rows,
    **dict.fromkeys(_BATCH_NORMS, _of_channels),
    _aten._adaptive_avg_pool2d_backward.default: _of_images(2),
    _aten._adaptive_avg_pool3d_backward.default: _of_images(3),
    _aten.avg_pool2d_backward.default: _as_forward(_aten.avg_pool2d.default, {"grad_output": None}),
    _aten.avg_pool3d_backward.default: _as_forward(_aten.avg_pool3d.default, {"grad_output": None}),
    _aten.native_layer_norm_backward.default: _as_forward(
        _aten.native_layer_norm.default, {"grad_out": 0, "mean": 1, "rstd": 2}, eps=1e-5
    ),
    _aten.native_group_norm_backward.default: _as_forward(
        _aten.native_group_norm.default, {"grad_out": 0, "mean": 1, "rstd": 2}, bias=None, eps=1e-5
    ),
    _aten._fused_rms_norm_backward.default: _as_forward(_aten._fused_rms_norm.default, {"grad_out": 0, "rstd": 1}, eps=1e-5),
    _aten.glu_backward.default: _as_forward(_aten.glu.default, {"grad_output": None}),
    _aten.convolution_backward.default: _as_forward(_aten.convolution.default, {"grad_output": None}, bias=None),
    _aten.grid_sampler_2d_backward.default: _as_forward(_aten.grid_sampler_2d.default, {"grad_output": None}),
    _aten.grid_sampler_3d_backward.default: _as_forward(_aten.grid_sampler_3d.default, {"grad_output": None}),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _as_forward(
        _aten._scaled_dot_product_flash_attention_for_cpu.default, {"grad_out": 0, "out": 0, "logsumexp": 1}
    ),
    **{getattr(_aten, f"{name}_backward").default: row for name, row in _PADDED.items()},
    **{getattr(_aten, f"_upsample_{kind}2d_aa{end}").default: _scaled for kind in ("bilinear", "bicubic") for end in ("", "_backward")},
    **dict.fromkeys(_ATTENTIONS, _attends),
    **{backward: _derivative(forward, {"out": 0, "logsumexp": 1}, 0) for forward, backward in _ATTENTIONS.items()},
    **dict.fromkeys((_aten._weight_norm_interface.default, _aten._weight_norm_interface_backward.default), _normed),
    _aten._transformer_encoder_layer_fwd.default: _encodes,
    _aten._native_multi_head_attention.default: _encodes,
    _aten.mkldnn_rnn_layer.default: _one_lstm,
}
