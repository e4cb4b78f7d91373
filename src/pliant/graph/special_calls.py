"""Calls that a rule over descriptions cannot serve: they change a fake in place, or make unbacked symbols.

In:     the mode, the operator, its arguments (fakes).
Out:    what the operator returns. Never remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter
from pliant.errors import DataDependentError
from pliant.graph import random_state
from pliant.graph.generator_states import CPU_BYTES
from pliant.graph.shape_rules.indexing import index
from pliant.graph.shape_rules.views import METADATA_WRITES
from pliant.graph.tensor_spec import TensorSpec, broadcast, holds, require_same, row_major_strides, same_dim
from pliant.graph.unsupported import UnsupportedOperator

if TYPE_CHECKING:
    from pliant.graph.fake_mode import FakeMode

_aten = torch.ops.aten
SPECIAL: dict[Any, Callable[..., Any]] = {}


def _restride(mode: FakeMode, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return mode.restrided(x, METADATA_WRITES[func](x.spec, *args, **kwargs))


SPECIAL.update(dict.fromkeys(METADATA_WRITES, _restride))


def _special(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        SPECIAL.update(dict.fromkeys(operators, function))
        return function

    return register


def _count(mode: FakeMode, func: Any, mask: Any) -> Any:
    """How many elements of `mask` are not zero: the same symbol as long as the mask has the same value."""
    env, key = mode.shape_env, mode.value_key(mask)
    known = mode.counts.get(key)
    if known is not None and env is not None and not env.replayed:
        return env.wrap(known[0])
    count = _unbacked_size(mode, func)
    mode.counts[key] = (count.node.expr, mask)
    return count


def _unbacked_size(mode: FakeMode, func: Any) -> Any:
    """A fresh size, at least 0."""
    if not mode.allow_unbacked or mode.shape_env is None:
        raise DataDependentError(f"the size of what `{func}` returns depends on values", kind="data-dependent")
    env = mode.shape_env
    mode.unbacked_made += 1
    expr = env.create_unbacked(lo=0, origin=str(func), size=True)
    env.mark_size_like(expr)
    return env.wrap(expr)


@_special(_aten._local_scalar_dense.default)
def _item(mode: FakeMode, func: Any, x: Any) -> Any:
    if not mode.allow_unbacked or mode.shape_env is None or x.spec.dtype.is_complex:
        raise DataDependentError("the value of a tensor's element is needed", kind="data-dependent")
    env, dtype = mode.shape_env, x.spec.dtype
    mode.unbacked_made += 1
    if dtype.is_floating_point:
        return env.wrap(env.create_unbacked(float, origin=str(func)))
    if dtype is torch.bool:
        return env.wrap(env.create_unbacked(bool, origin=str(func)))
    limits = torch.iinfo(dtype)
    bounds: dict[str, Any] = {} if dtype is torch.int64 else {"lo": limits.min, "hi": limits.max}
    return env.wrap(env.create_unbacked(origin=str(func), **bounds))


def _fresh(mode: FakeMode, x: Any, *size: Any, dtype: torch.dtype | None = None, stride: Any = None) -> Any:
    spec: TensorSpec = x.spec
    return mode.new(size, row_major_strides(size) if stride is None else stride, dtype or spec.dtype, spec.device)


@_special(_aten.equal.default, _aten.is_nonzero.default, _aten.allclose.default)
def _truth(mode: FakeMode, func: Any, *_: Any, **__: Any) -> Any:
    """A Python truth value computed from elements."""
    if not mode.allow_unbacked or mode.shape_env is None:
        raise DataDependentError(f"what `{func}` says depends on values", kind="data-dependent")
    mode.unbacked_made += 1
    return mode.shape_env.wrap(mode.shape_env.create_unbacked(bool, origin=str(func)))


@_special(_aten.nonzero.default)
def _nonzero(mode: FakeMode, func: Any, x: Any) -> Any:
    many = _count(mode, func, x)
    # The kernel fills a [rank, n] buffer and returns its transpose.
    return _fresh(mode, x, many, x.dim(), dtype=torch.int64, stride=(1, many))


@_special(_aten.masked_select.default)
def _masked_select(mode: FakeMode, func: Any, x: Any, mask: Any) -> Any:
    broadcast(x.spec.size, mask.spec.size)
    same = len(x.spec.size) == len(mask.spec.size) and x.spec.size_key == mask.spec.size_key
    return _fresh(mode, x, _count(mode, func, mask) if same else _unbacked_size(mode, func))


@_special(_aten.repeat_interleave.Tensor)
def _repeat_interleave(mode: FakeMode, func: Any, repeats: Any, *, output_size: Any = None) -> Any:
    many = output_size if output_size is not None else _unbacked_size(mode, func)
    return _fresh(mode, repeats, many, dtype=torch.int64)


@_special(_aten._ctc_loss.Tensor)
def _ctc_loss(mode: FakeMode, func: Any, log_probs: Any, targets: Any, *_: Any) -> Any:
    """A loss for each sequence, and what its derivative reads: as wide as the longest target asks for."""
    steps, batch = log_probs.spec.size[:2]
    return _fresh(mode, log_probs, batch), _fresh(mode, log_probs, batch, steps, _unbacked_size(mode, func))


@_special(_aten._ctc_loss_backward.Tensor)
def _ctc_loss_backward(mode: FakeMode, func: Any, grad: Any, log_probs: Any, *_: Any) -> Any:
    return _fresh(mode, log_probs, *log_probs.spec.size)


@_special(_aten.bincount.default)
def _bincount(mode: FakeMode, func: Any, x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return _fresh(mode, x, _unbacked_size(mode, func), dtype=dtype)


@_special(_aten._unique2.default)
def _unique2(
    mode: FakeMode, func: Any, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    many = _unbacked_size(mode, func)
    inverse = _fresh(mode, x, *(x.spec.size if return_inverse else (0,)), dtype=torch.int64)
    counts = _fresh(mode, x, many if return_counts else 0, dtype=torch.int64)
    return _fresh(mode, x, many), inverse, counts


@_special(_aten._unique.default)
def _unique(mode: FakeMode, func: Any, x: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _unique2(mode, func, x, sorted, return_inverse)[:2]


@_special(_aten.unique_consecutive.default)
def _unique_consecutive(
    mode: FakeMode, func: Any, x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    many = _unbacked_size(mode, func)
    if dim is None:
        values, positions = _fresh(mode, x, many), x.spec.size
    else:
        values, positions = _kept_along(mode, x, dim, many), (x.spec.size[dim],)
    inverse = _fresh(mode, x, *(positions if return_inverse else (0,)), dtype=torch.int64)
    return values, inverse, _fresh(mode, x, many if return_counts else 0, dtype=torch.int64)


@_special(_aten.unique_dim.default)
def _unique_dim(mode: FakeMode, func: Any, x: Any, dim: int, *args: Any, **kwargs: Any) -> Any:
    many = _unbacked_size(mode, func)
    inverse = _fresh(mode, x, x.spec.size[dim], dtype=torch.int64)
    return _kept_along(mode, x, dim, many), inverse, _fresh(mode, x, many, dtype=torch.int64)


def _kept_along(mode: FakeMode, x: Any, dim: int, many: Any) -> Any:
    """Some of the slices along a dimension; the kernels put that dimension first and then back."""
    d = dim % x.dim()
    size = (*x.spec.size[:d], many, *x.spec.size[d + 1 :])
    rest = size[:d] + size[d + 1 :]
    inner = row_major_strides((many, *rest))
    return _fresh(mode, x, *size, stride=(*inner[1 : d + 1], inner[0], *inner[d + 1 :]))


@_special(_aten._has_same_storage_numel.default)
def _same_storage(mode: FakeMode, func: Any, x: Any, other: Any) -> Any:
    """Asked of a tangent before it is paired with its primal."""
    sizes = [one.spec.storage_bytes() // one.spec.dtype.itemsize for one in (x, other)]
    return bool(sizes[0] == sizes[1])


@_special(_aten.is_same_size.default)
def _is_same_size(mode: FakeMode, func: Any, x: Any, other: Any) -> Any:
    return len(x.spec.size) == len(other.spec.size) and all(bool(a == b) for a, b in zip(x.spec.size, other.spec.size))


@_special(_aten.index.Tensor)
def _masked_index(mode: FakeMode, func: Any, x: Any, indices: Any) -> Any:
    """`x[mask]`: the mask is replaced by the columns of `nonzero`, whose length is an unbacked size."""
    rest = x.spec.size
    columns: list[TensorSpec | None] = []
    for one in indices:
        if one is None:
            columns.append(None)
            continue
        if one.spec.dtype not in (torch.bool, torch.uint8):
            raise DataDependentError("indexing by a mask and other tensors at once", kind="data-dependent")
        if sum(i is not None for i in indices) > 1:
            raise DataDependentError("indexing by several masks", kind="data-dependent")
        at = len(columns)
        require_same(one.spec.size, rest[at : at + one.dim()], "the shape of the mask does not match")
        if not one.dim():
            return _fresh(mode, x, *rest[:at], _count(mode, func, one), *rest[at:])
        columns += [TensorSpec((_count(mode, func, one),), (1,), torch.int64, one.spec.device)] * one.dim()
    spec = index(x.spec, columns)
    return _fresh(mode, x, *spec.size, stride=spec.stride)


@_special(_aten._fused_sdp_choice.default)
def _fused_sdp_choice(
    mode: FakeMode, func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False,
) -> int:  # fmt: skip
    """The kernel that the CPU would take: flash attention (1) where its conditions hold, else the composition (0)."""
    specs = [one.spec for one in (query, key, value)]
    if any(spec.device.type != "cpu" for spec in specs):
        raise UnsupportedOperator("attention kernels of this device", kind="attention-device")
    usable = torch_adapter.flash_attention_enabled() and dropout_p == 0 and _flash_operands(specs, enable_gqa)
    return int(usable and (attn_mask is None or _flash_mask(attn_mask, *specs[:2])))


def _flash_operands(specs: list[TensorSpec], enable_gqa: bool) -> bool:
    query, key, value = specs
    if any(spec.ndim != 4 or spec.dtype is not query.dtype for spec in specs):
        return False
    if query.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        return False
    heads_match = enable_gqa or (same_dim(query.size[1], key.size[1]) and same_dim(key.size[1], value.size[1]))
    dims_match = same_dim(query.size[3], key.size[3]) and same_dim(key.size[3], value.size[3])
    batches_match = same_dim(query.size[0], key.size[0]) and same_dim(key.size[0], value.size[0])
    lengths = (query.size[2], key.size[2])
    dense = all(same_dim(spec.stride[3], 1) for spec in specs)
    return heads_match and dims_match and batches_match and dense and not any(holds(n == 0) for n in lengths)


def _flash_mask(mask: Any, query: TensorSpec, key: TensorSpec) -> bool:
    if mask.requires_grad:
        return False
    wanted = (query.size[0], query.size[1], query.size[2], key.size[2])
    size = mask.spec.size
    if len(size) not in (2, 4):
        return False
    return all(same_dim(n, 1) or same_dim(n, want) for n, want in zip(size, wanted[4 - len(size) :]))


@_special(random_state.random_state)
def _random_state(mode: FakeMode, func: Any) -> Any:
    return mode.new((CPU_BYTES,), (1,), torch.uint8, torch.device("cpu"))


@_special(random_state.set_random_state, random_state.seed, random_state.seed_generator)
def _random_state_set(mode: FakeMode, func: Any, *values: Any) -> None:
    return None


@_special(_aten.resize_as_.default)
def _resize_as(mode: FakeMode, func: Any, x: Any, other: Any, **_: Any) -> Any:
    raise UnsupportedOperator(f"`{func}` resizes an argument", kind="resize")
