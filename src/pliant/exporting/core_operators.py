"""The core operators: what `decompose()` leaves, as far as there is a rule.

Holds:  those that PyTorch tags as its core set, by name so that they are the same for every PyTorch;
        `docs/core-operators.md` is this list (a test compares them).
"""

from __future__ import annotations

from typing import Any

from pliant.torch_adapter import OpOverload

# Of ATen; without an overload's name: `default`.
CORE = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward _embedding_bag _fft_c2r
    _fft_r2c _local_scalar_dense _log_softmax _native_batch_norm_legit _native_batch_norm_legit.no_stats
    _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy abs acos acosh add.Scalar add.Tensor addmm
    alias amax amin any any.dim any.dims arange.start_step argmax argmin as_strided asin asinh atan atan2 atan2.out
    atanh avg_pool2d avg_pool2d_backward avg_pool3d bitwise_and.Scalar bitwise_and.Tensor bitwise_not
    bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar bitwise_xor.Tensor bmm cat ceil clamp clamp.Tensor clone
    col2im constant_pad_nd convolution convolution_backward copy cos cosh cumsum diagonal div.Scalar div.Scalar_mode
    div.Tensor div.Tensor_mode elu embedding embedding_dense_backward empty.memory_format empty_strided eq.Scalar
    eq.Tensor erf exp expand expm1 fill.Scalar flip floor fmod.Scalar fmod.Tensor full full_like gather ge.Scalar
    ge.Tensor gelu grid_sampler_2d gt.Scalar gt.Tensor hardtanh index.Tensor index_put index_select isinf isnan
    le.Scalar le.Tensor leaky_relu log log10 log1p log2 logical_and logical_not logical_or logical_xor lt.Scalar
    lt.Tensor masked_scatter max.dim max_pool2d_with_indices max_pool2d_with_indices_backward
    max_pool3d_with_indices maximum mean mean.dim min.dim minimum mm mul.Scalar mul.Tensor native_dropout
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward ne.Scalar ne.Tensor
    neg nonzero permute pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod prod.dim_int rand randn randperm
    reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu remainder.Scalar remainder.Tensor repeat
    replication_pad2d replication_pad3d round rsqrt scalar_tensor scatter.src scatter.value scatter_add
    scatter_reduce.two select.int select_scatter sigmoid sign sin sinh slice.Tensor slice_scatter sort
    split_with_sizes sqrt squeeze.dim squeeze.dims sub.Scalar sub.Tensor sum.dim_IntList sym_numel sym_size.int
    sym_storage_offset sym_stride.int tan tanh topk trunc unsqueeze upsample_bilinear2d.vec upsample_nearest2d.vec
    var.correction var.dim view where.self
    """.split()
)


def name_of(target: OpOverload) -> str:
    """aten.add.Tensor: add.Tensor, and aten.relu.default: relu"""
    return str(target).removeprefix("aten.").removesuffix(".default")


def is_core(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.namespace == "aten" and name_of(target) in CORE
