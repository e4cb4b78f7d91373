"""Normalization, convolution, attention, losses, dropout.

Holds:  memory formats are those of the kernels: a convolution is channels last if its input or weight is (float64 on the
        CPU never, and of signals where the weight is); norms and pooling follow their input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from pliant import operators_torch_adapter, torch_adapter
from pliant.graph.layouts import preserved_strides
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import (
    Dim,
    Sizes,
    TensorSpec,
    certain,
    channels_last_strides,
    holds,
    is_channels_last,
    is_row_major,
    keys_of,
    product,
    require,
    require_floats,
    require_same,
    row_major_strides,
    suggests_channels_last,
    wrap_dim,
)
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten
_Maybe = TensorSpec | None
_Three = tuple[_Maybe, _Maybe, _Maybe]


def suggested(x: TensorSpec, size: Sizes | None = None) -> TensorSpec:
    """A fresh tensor in the memory format that `x` suggests."""
    size = x.size if size is None else size
    return x.like(size, channels_last_strides(size) if suggests_channels_last(x) else None)


# -- normalization ----------------------------------------------------------------------------------------------------
def _statistics_dtype(x: TensorSpec, weight: _Maybe) -> torch.dtype:
    """Means are kept in float32 for half types: always on a GPU, on the CPU where the weight is."""
    if x.dtype in (torch.bfloat16, torch.float16) and x.device.type != "cpu":
        return torch.float32
    return _mixed_dtype(x, weight)


def _mixed_dtype(x: TensorSpec, weight: _Maybe) -> torch.dtype:
    """float32 for half types where the weight has another type."""
    is_half = x.dtype in (torch.bfloat16, torch.float16)
    return torch.float32 if is_half and weight is not None and weight.dtype != x.dtype else x.dtype


def _require_dtypes(x: TensorSpec, what: str, *parameters: _Maybe) -> None:
    """Floats; on CPUs with parameters of the same dtype, or all of them float32 beside a half type."""
    require_floats(x, what)
    found = {parameter.dtype for parameter in parameters if parameter is not None}
    if x.device.type != "cpu" or found <= {x.dtype}:
        return
    if x.dtype not in (torch.bfloat16, torch.float16) or found != {torch.float32}:
        raise RuntimeError(f"{what}: parameters of {', '.join(sorted(map(str, found)))} beside {x.dtype}")


@rule(_aten.native_layer_norm.default)
def layer_norm(
    x: TensorSpec, shape: Sequence[Dim], weight: _Maybe, bias: _Maybe, eps: float
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    _require_dtypes(x, "layer_norm", weight, bias)
    kept = x.ndim - len(shape)
    require(len(shape) > 0, "layer_norm: normalized_shape is empty")
    require(kept >= 0, "layer_norm: normalized_shape has more dimensions than the input")
    require_same(x.size[kept:], tuple(shape), "layer_norm: the input does not end in normalized_shape")
    for parameter in (weight, bias):
        if parameter is not None:
            require_same(parameter.size, tuple(shape), "layer_norm: a parameter is not of normalized_shape")
    mean = x.like((*x.size[:kept], *[1] * len(shape)), dtype=_statistics_dtype(x, weight))
    return x.like(), mean, mean


@rule(_aten.native_layer_norm_backward.default)
def layer_norm_backward(
    grad: TensorSpec, x: TensorSpec, shape: Sequence[Dim], mean: TensorSpec, rstd: TensorSpec, weight: _Maybe,
    bias: _Maybe, mask: Sequence[bool],
) -> _Three:  # fmt: skip
    return (
        x.like() if mask[0] else None,
        weight.like() if mask[1] and weight is not None else None,
        bias.like() if mask[2] and bias is not None else None,
    )


@rule(_aten.native_batch_norm.default, _aten._native_batch_norm_legit.default)
def batch_norm(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, running_mean: _Maybe, running_var: _Maybe, training: bool,
    momentum: float, eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:  # fmt: skip
    """A GPU's own kernel gives the statistics that it used in either mode."""
    _require_dtypes(x, "batch_norm", weight, bias, running_mean, running_var)
    saved = x.like((x.size[1] if training or x.device.type == "cuda" else 0,), dtype=_statistics_dtype(x, weight))
    _require_channels(x, weight, bias, running_mean, running_var)
    return _normalized(x), saved, saved


def _require_channels(x: TensorSpec, *parameters: _Maybe) -> None:
    for parameter in parameters:
        if parameter is not None:
            require_same(parameter.size, x.size[1:2], "batch_norm: a parameter does not have one element a channel")


def _normalized(x: TensorSpec) -> TensorSpec:
    """In the memory format of `x`, on a GPU in its order; on the CPU channels last too where `x` lies so, whatever its sizes of 1
    suggest."""
    if x.device.type == "cuda":
        return x.like(stride=preserved_strides(x))
    if x.device.type == "cpu" and x.ndim in (4, 5) and 1 in x.size_key and not is_row_major(x) and is_channels_last(x):
        return x.like(stride=channels_last_strides(x.size))
    return suggested(x)


@rule(_aten.cudnn_batch_norm.default)
def cudnn_batch_norm(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, running_mean: _Maybe, running_var: _Maybe, training: bool,
    momentum: float, eps: float,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    _, saved, _ = batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    saved = saved if training else saved.like((0,))
    return suggested(x), saved, saved, x.like((0,), dtype=torch.uint8)


@rule(_aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, training: bool, momentum: float, eps: float
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    return batch_norm(x, weight, bias, None, None, training, momentum, eps)


@rule(_aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, mean: TensorSpec, var: TensorSpec, momentum: float, eps: float
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    return batch_norm(x, weight, bias, mean, var, False, momentum, eps)


@rule(_aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, mean: TensorSpec, var: TensorSpec, training: bool, momentum: float,
    eps: float,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    return (*batch_norm(x, weight, bias, mean, var, training, momentum, eps), mean.like(), var.like())


@rule(_aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, mean: TensorSpec, var: TensorSpec, momentum: float, eps: float
) -> tuple[TensorSpec, ...]:
    return (*batch_norm_with_reserve(x, weight, bias, mean, var, momentum, eps), mean.like(), var.like())


@rule(_aten._batch_norm_with_update.default)
def batch_norm_with_reserve(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, mean: TensorSpec, var: TensorSpec, momentum: float, eps: float
) -> tuple[TensorSpec, ...]:
    return (*batch_norm(x, weight, bias, mean, var, True, momentum, eps), x.like((0,), dtype=torch.uint8))


@rule(_aten.native_batch_norm_backward.default)
def batch_norm_backward(
    grad: TensorSpec, x: TensorSpec, weight: _Maybe, running_mean: _Maybe, running_var: _Maybe, save_mean: _Maybe,
    save_invstd: _Maybe, train: bool, eps: float, mask: Sequence[bool],
) -> _Three:  # fmt: skip
    _require_channels(x, weight, *((save_mean, save_invstd) if train else (running_mean, running_var)))
    dtype = weight.dtype if weight is not None else _statistics_dtype(x, weight)
    per_channel = x.like((x.size[1],), dtype=dtype)
    return suggested(x) if mask[0] else None, per_channel if mask[1] else None, per_channel if mask[2] else None


@rule(_aten.native_group_norm.default)
def group_norm(
    x: TensorSpec, weight: _Maybe, bias: _Maybe, n: Dim, c: Dim, hxw: Dim, group: int, eps: float
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    _require_dtypes(x, "group_norm", weight, bias)
    require(product(x.size) == n * c * hxw, "group_norm: other sizes than those given")
    mean = x.like((n, group), dtype=_mixed_dtype(x, weight))  # on every device
    return suggested(x) if x.device.type == "cpu" else x.like(), mean, mean


@rule(_aten.native_group_norm_backward.default)
def group_norm_backward(
    grad: TensorSpec, x: TensorSpec, mean: TensorSpec, rstd: TensorSpec, weight: _Maybe, n: Dim, c: Dim, hxw: Dim,
    group: int, mask: Sequence[bool],
) -> _Three:  # fmt: skip
    per_channel = x.like((c,), dtype=weight.dtype if weight is not None else mean.dtype)
    grad_input = suggested(x) if x.device.type == "cpu" else x.like()
    return grad_input if mask[0] else None, per_channel if mask[1] else None, per_channel if mask[2] else None


# -- convolution ------------------------------------------------------------------------------------------------------
def per_dim(values: Sequence[Dim], rank: int) -> list[Dim]:
    return list(values) * rank if len(values) == 1 else list(values)


_Geometry = Sequence[Sequence[Dim]]  # stride, padding, dilation: one number a spatial dimension


def convolved(
    size: Sequence[Dim], kernel: Sequence[Dim], stride: Sequence[Dim], padding: Sequence[Dim], dilation: Sequence[Dim]
) -> list[Dim]:
    """How many places a kernel has along each dimension."""
    # out = floor((in + 2 p - d (k - 1) - 1) / s) + 1
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    for n, p, r in zip(size, padding, reach):
        require(n + 2 * p - r >= 1, "convolution: the kernel is larger than the padded input")
    return [(n + 2 * p - r - 1) // s + 1 for n, p, r, s in zip(size, padding, reach, stride)]


def _transposed(size: Sequence[Dim], kernel: Sequence[Dim], geometry: _Geometry, extra: Sequence[Dim]) -> list[Dim]:
    stride, padding, dilation = geometry
    # out = (in - 1) s - 2 p + d (k - 1) + extra + 1
    many = zip(size, kernel, stride, padding, dilation, extra)
    return [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in many]


@rule(_aten.convolution.default)
def convolution(
    x: TensorSpec, weight: TensorSpec, bias: _Maybe, stride: Sequence[Dim], padding: Sequence[Dim],
    dilation: Sequence[Dim], transposed: bool, output_padding: Sequence[Dim], groups: Dim,
) -> TensorSpec:  # fmt: skip
    rank = weight.ndim - 2
    if x.dtype is not weight.dtype:
        raise RuntimeError(f"convolution: input is {x.dtype} and weight {weight.dtype}")
    require(x.ndim == weight.ndim, f"convolution: expected an input with {weight.ndim} dimensions")
    geometry = [per_dim(values, rank) for values in (stride, padding, dilation)]
    for step in geometry[0]:
        require(step > 0, "non-positive stride is not supported")
    if transposed:
        require_same(x.size[1:2], weight.size[:1], "convolution: the channels of input and weight differ")
        spatial = _transposed(x.size[2:], weight.size[2:], geometry, per_dim(output_padding, rank))
        channels = weight.size[1] * groups
    else:
        require_same(x.size[1:2], (weight.size[1] * groups,), "convolution: the channels of input and weight differ")
        spatial = convolved(x.size[2:], weight.size[2:], *geometry)
        channels = weight.size[0]
    size = (x.size[0], channels, *spatial)
    last = _runs_channels_last(x, weight) and _keeps_channels_last(x, weight, geometry, transposed, output_padding, groups)
    return x.like(size, _channels_last(size) if last else None)


def _keeps_channels_last(
    x: TensorSpec, weight: TensorSpec, geometry: _Geometry, transposed: bool, extra: Sequence[Dim], groups: Dim
) -> bool:
    """Volumes on the CPU are row-major where ATen's own kernels convolve them and not oneDNN's, which are called for
    several, for large ones, and for wide or grouped kernels."""
    if x.ndim != 5 or x.device.type != "cpu":
        return True
    if not operators_torch_adapter.has_library_convolution(x.dtype):
        return False
    stride, _, dilation = geometry
    if transposed and any(e >= s for e, s in zip(per_dim(extra, 3), stride)):
        return False
    if x.dtype is not torch.float32:
        return True
    height, width = weight.size[-2:]
    worthwhile = groups != 1 or (holds(height > 3) and holds(width > 3))
    if not (worthwhile or certain(x.size[0] > 1) or certain(product(x.size[:4]) > 20480)):
        return False
    spread = any(n != 1 for n in (*stride, *dilation)) or not (holds(height == 1) and holds(width == 1))
    return spread or torch.get_num_threads() > 1 or certain(x.size[0] >= 16)


def _runs_channels_last(x: TensorSpec, weight: TensorSpec) -> bool:
    if weight.ndim == 3:  # signals, which are made row-major, are convolved as images of one row
        (n, c, length), (by_n, by_c, step) = weight.size, weight.stride
        return suggests_channels_last(weight.view((n, c, 1, length), (by_n, by_c, length * step, step)))
    return suggests_channels_last(x) or suggests_channels_last(weight)


def _channels_last(size: Sizes) -> Sizes:
    """Strides of a convolution's images, or signals."""
    if len(size) != 3:
        return channels_last_strides(size)
    by_n, by_c, _, step = channels_last_strides((*size[:2], 1, size[2]))
    return by_n, by_c, step


@rule(_aten.convolution_backward.default)
def convolution_backward(
    grad: TensorSpec, x: TensorSpec, weight: TensorSpec, bias_sizes: Any, stride: Sequence[Dim],
    padding: Sequence[Dim], dilation: Sequence[Dim], transposed: bool, output_padding: Sequence[Dim], groups: Dim,
    mask: Sequence[bool],
) -> _Three:  # fmt: skip
    geometry = [per_dim(values, weight.ndim - 2) for values in (stride, padding, dilation)]
    last = _runs_channels_last(x, weight) and _keeps_channels_last(x, weight, geometry, transposed, output_padding, groups)

    def fresh(like: TensorSpec) -> TensorSpec:
        return like.like(stride=_channels_last(like.size) if last else None)

    channels = grad.size[1]
    return (
        fresh(x) if mask[0] else None,
        fresh(weight) if mask[1] else None,
        grad.like((channels,)) if mask[2] else None,
    )


# -- attention --------------------------------------------------------------------------------------------------------
def _heads_inside(like: TensorSpec, size: Sizes, dtype: torch.dtype) -> TensorSpec:
    """A [batch, heads, length, ...] view of memory laid out [batch, length, heads, ...]."""
    batch, heads, length, *rest = size
    b, l, h, *inner = row_major_strides((batch, length, heads, *rest))
    return TensorSpec(size, (b, h, l, *inner), dtype, like.device)


@cache
def _flash_follows_query() -> tuple[bool, bool]:
    """Whether the results of flash attention, and its gradients, keep the operands' strides: releases differ."""
    with torch_adapter.below_python_dispatch(), torch.no_grad():
        x = torch.zeros(1, 2, 3, 4)
        out, logsumexp = _aten._scaled_dot_product_flash_attention_for_cpu.default(x, x, x)
        backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        grad = backward(out, x, x, x, out, logsumexp, 0.0, False)[0]
        return out.stride() == x.stride(), grad.stride() == x.stride()


def _flash_result(x: TensorSpec, size: Sizes, follows: bool) -> TensorSpec:
    if follows and (x.size_key == keys_of(size) or all(n == m for n, m in zip(x.size, size, strict=True))):
        return TensorSpec(size, preserved_strides(x), x.dtype, x.device)
    if follows:
        raise UnsupportedOperator("attention with another head size for values", kind="attention-sizes")
    return _heads_inside(x, size, x.dtype)


@rule(_aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_for_cpu(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: _Maybe = None, scale: float | None = None,
) -> tuple[TensorSpec, TensorSpec]:  # fmt: skip
    batch, heads, length, _ = query.size
    wide = torch.float32 if query.dtype in (torch.bfloat16, torch.float16) else query.dtype
    out = _flash_result(query, (batch, heads, length, value.size[3]), _flash_follows_query()[0])
    return out, _heads_inside(query, (batch, heads, length), wide)


@rule(_aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_for_cpu_backward(
    grad: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, *_: Any, **__: Any
) -> tuple[TensorSpec, ...]:
    follows = _flash_follows_query()[1]
    return tuple([_flash_result(x, x.size, follows) for x in (query, key, value)])


@rule(_aten._native_multi_head_attention.default)
def native_multi_head_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, embed_dim: Dim, num_head: Dim, qkv_weight: TensorSpec,
    qkv_bias: TensorSpec, proj_weight: TensorSpec, proj_bias: TensorSpec, mask: _Maybe = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[TensorSpec, _Maybe]:  # fmt: skip
    """What `nn.MultiheadAttention` calls in evaluation: without the weights where they are not asked for."""
    require(query.ndim == key.ndim == value.ndim == 3, "native_multi_head_attention: expected 3-D tensors")
    (rows, length, width), (_, others, _) = query.size, key.size
    require(width == embed_dim, "native_multi_head_attention: another embed_dim")
    require(qkv_weight.size[0] == 3 * width and qkv_weight.size[1] == width, "native_multi_head_attention: other weights")
    heads = () if average_attn_weights else (num_head,)
    weights = query.like((rows, *heads, length, others)) if need_weights else None
    return query.like((rows, length, width)), weights


@rule(_aten.glu.default)
def glu(x: TensorSpec, dim: int = -1) -> TensorSpec:
    require_floats(x, "glu")
    require(x.ndim > 0, "glu does not support tensors without dimensions")
    d = wrap_dim(dim, x.ndim)
    require(x.size[d] % 2 == 0, "glu: the halved dimension must be even")
    half = (*x.size[:d], x.size[d] // 2, *x.size[d + 1 :])
    return TensorSpec(half, preserved_strides(x.view(half, x.stride)), x.dtype, x.device)


# -- bags of embeddings, recurrent cells, losses of libraries ---------------------------------------------------------
@rule(_aten._embedding_bag.default, _aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: TensorSpec, indices: TensorSpec, offsets: TensorSpec, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: _Maybe = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    bags = offsets.size[0] - int(include_last_offset)
    if weight.device.type == "cuda":
        best = offsets.like((bags, weight.size[1]) if mode == 2 else (0,))
        return weight.like((bags, weight.size[1])), indices.like(), offsets.like(), best
    if weight.device.type != "cpu":
        raise UnsupportedOperator("embedding_bag on this device", kind="embedding-bag-device")
    narrow = weight.dtype in (torch.float32, torch.float16, torch.bfloat16)
    dense = holds(weight.stride[1] == 1)
    dense = dense and (per_sample_weights is None or holds(per_sample_weights.stride[0] == 1))
    fused = mode == 0 and narrow and dense and padding_idx < 0  # sums the rows at once and keeps no map to bags
    count = offsets.like((bags,))
    best = offsets.like((bags, weight.size[1])) if mode == 2 else count
    return weight.like((bags, weight.size[1])), indices.like((0,) if fused else indices.size), count, best


@rule(_aten._thnn_fused_gru_cell.default)
def fused_gru_cell(
    input_gates: TensorSpec, hidden_gates: TensorSpec, hx: TensorSpec, *_: _Maybe
) -> tuple[TensorSpec, TensorSpec]:
    """The new state, and what its derivative reads: five numbers for each of the state."""
    return hx.like(), hx.like((hx.size[0], hx.size[1] * 5))


@rule(_aten._thnn_fused_gru_cell_backward.default)
def fused_gru_cell_backward(grad: TensorSpec, workspace: TensorSpec, has_bias: bool) -> tuple[_Maybe, ...]:
    rows, width = grad.size
    gates, bias = grad.like((rows, width * 3)), grad.like((width * 3,)) if has_bias else None
    return gates, gates, grad.like(), bias, bias


def library_computes_ctc_loss(log_probs: TensorSpec, targets: TensorSpec, *_: Any) -> bool:
    """Libraries of GPUs take targets of 32 bits alone; whether they take those depends on their lengths."""
    if log_probs.device.type == "cuda" and targets.dtype is torch.int32:
        raise UnsupportedOperator("whether cuDNN computes the CTC loss", kind="ctc-device")
    return False


for _name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):  # the second is of some versions only
    if _packet := getattr(_aten, _name, None):
        RULES.add(dict.fromkeys((_packet.default, _packet.Tensor), library_computes_ctc_loss))
