"""Which operators may fail on their data.

In:     an operator, or a call in a torch-level graph.
Out:    whether a call of it, with arguments of the right sizes and types, may be an error: an index out of range, a
        singular matrix. What is not known to take whatever its arguments hold may.
Reads on: `ir/failing.py`, for computations.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import fx

from pliant.graph.contracts import known_name

# Operators whose results are defined for all elements of their arguments, beside views and pointwise ones, by the types that
# their kernels have, or that are refused where the call is captured: all, those of numbers, those with an order, floats.
_OF_ALL = frozenset(
    """clone copy_ copy _to_copy empty empty_like empty_strided new_empty new_empty_strided full zeros ones full_like zeros_like
    ones_like arange cat stack cumsum cumprod native_dropout rand randn randint rand_like randn_like randperm uniform
    normal_functional as_strided as_strided_scatter slice_scatter select_scatter diagonal_scatter flip roll nonzero unique_dim
    _unique2 sum mean var std any all prod argmax argmin var_mean linalg_vector_norm constant_pad_nd tril triu""".split()
)
_OF_NUMBERS = frozenset("mm bmm addmm baddbmm addmv mv addbmm addr dot vdot convolution _convolution linear".split())
_ORDERED = frozenset("sort cummax cummin amax amin max min".split())
_OF_FLOATS = frozenset("logcumsumexp _prelu_kernel avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d".split())
_TOTAL = frozenset(
    """convolution_backward mkldnn_convolution mkldnn_rnn_layer mkldnn_rnn_layer_backward native_batch_norm
    native_batch_norm_backward _native_batch_norm_legit_functional native_layer_norm native_layer_norm_backward
    native_group_norm native_group_norm_backward max_pool2d_with_indices max_pool3d_with_indices avg_pool2d_backward
    avg_pool3d_backward topk _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data logsumexp""".split()
).union(_OF_ALL, _OF_NUMBERS, _ORDERED, _OF_FLOATS)
_MOVES = frozenset("repeat isin bucketize count_nonzero _local_scalar_dense alias lift_fresh lift_fresh_copy".split())
_TOTAL_FAMILIES = ("_scaled_dot_product", "_fft_", "upsample_", "_upsample_")
# Functions and methods of PyTorch of which the same holds, and which are no operators, or composed of such.
_TOTAL_CALLS = frozenset(
    """getattr size dim numel stride shape matmul einsum softmax log_softmax layer_norm rms_norm group_norm batch_norm
    instance_norm dropout relu gelu silu mish elu selu celu leaky_relu hardtanh sigmoid tanh conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d scaled_dot_product_attention interpolate pad chunk split flatten unflatten
    reshape view_as expand_as type_as contiguous to float half bfloat16 double int long bool cpu type concat concatenate
    hstack vstack meshgrid norm std_mean new_tensor tensor detach requires_grad_ zero_ fill_ get_device mse_loss l1_loss
    smooth_l1_loss huber_loss where masked_fill hardswish hardsigmoid softplus multi_head_attention_forward truediv
    itruediv""".split()
)
_PARTIAL = frozenset(("floor_divide", "remainder", "fmod", "bernoulli", "binary_cross_entropy"))


@functools.cache
def operator_may_fail(func: Any) -> bool:
    """Whether a call of it may be an error."""
    if func is operator.getitem:
        return False
    if getattr(func, "namespace", "") != "aten":
        return True
    name = func._schema.name.removeprefix("aten::")
    if name in _TOTAL or name.startswith(_TOTAL_FAMILIES):
        return False
    rounds = name == "div" and "mode" in func._overloadname
    return rounds or name in _PARTIAL or not (torch.Tag.pointwise in func.tags or func.is_view)


@functools.cache
def kernel_may_lack(func: Any, dtype: torch.dtype) -> bool:
    """Whether eager may have no kernel of the operator for elements of this type, which only its call tells."""
    name = func._schema.name.removeprefix("aten::")
    if name in _OF_ALL or name in _MOVES or name.startswith("_fft_") or torch.Tag.pointwise in func.tags or func.is_view:
        return False
    if dtype.is_complex:
        return name not in _OF_NUMBERS
    if dtype is torch.bool:
        return name not in _ORDERED
    return name in _OF_FLOATS and not dtype.is_floating_point or name not in _TOTAL and dtype in (torch.float16, torch.bfloat16)


def call_may_fail(node: fx.Node) -> bool:
    """The same of a call in a torch-level graph: an operator, a function or method of PyTorch, one of Python's operators."""
    if hasattr(node.target, "_schema"):
        return operator_may_fail(node.target)
    name = known_name(node).strip("_")
    if name in ("getitem", "setitem"):
        return any(isinstance(v, fx.Node) and _is_tensor(v) for v in _indices(node.args[1]))
    if name in ("div", "divide"):
        return node.kwargs.get("rounding_mode") is not None
    if node.op == "call_function" and not _is_of_torch(node.target):
        return True
    return name not in _TOTAL_CALLS and _name_may_fail(name) and _name_may_fail(name.removeprefix("i"))


def _indices(index: Any) -> tuple[Any, ...]:
    return tuple(index) if isinstance(index, tuple | list) else (index,)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_of_torch(func: Any) -> bool:
    module = getattr(func, "__module__", None) or ""
    return module.partition(".")[0] in ("", "torch", "_operator", "builtins")


@functools.cache
def _name_may_fail(name: str) -> bool:
    """Whether any operator of the name that takes tensors may fail. Others are Python's, in the language of scripts."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [getattr(packet, one) for one in packet.overloads() if "out" not in one] if packet is not None else []
    return not overloads or any(operator_may_fail(one) for one in overloads if "Tensor" in str(one._schema).partition("->")[0])
