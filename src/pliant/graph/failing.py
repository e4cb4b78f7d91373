"""Which operators may fail on their data.

In:     an operator.
Out:    whether a call of it, with arguments of the right sizes and types, may be an error: an index out of range, a
        singular matrix. What is not known to take whatever its arguments hold may.
Reads on: `ir/failing.py`, for computations.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

# Operators whose results are defined for all elements of their arguments, beside views and pointwise ones.
_TOTAL = frozenset(
    """mm bmm addmm baddbmm addmv mv addbmm addr dot vdot convolution convolution_backward _convolution linear
    mkldnn_convolution mkldnn_rnn_layer mkldnn_rnn_layer_backward native_batch_norm native_batch_norm_backward
    _native_batch_norm_legit_functional native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d avg_pool2d_backward
    avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool3d clone copy_ copy _to_copy empty empty_like empty_strided
    new_empty new_empty_strided full zeros ones full_like zeros_like ones_like arange cat stack sort topk cumsum cumprod
    cummax cummin logcumsumexp native_dropout rand randn randint rand_like randn_like randperm uniform normal_functional
    as_strided as_strided_scatter slice_scatter select_scatter diagonal_scatter flip roll nonzero unique_dim _unique2 sum
    mean amax amin max min var std any all prod argmax argmin var_mean _softmax _log_softmax _softmax_backward_data
    _log_softmax_backward_data logsumexp linalg_vector_norm constant_pad_nd tril triu""".split()
)
_TOTAL_FAMILIES = ("_scaled_dot_product", "_fft_", "upsample_", "_upsample_")
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
