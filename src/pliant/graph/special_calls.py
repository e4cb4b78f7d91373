"""Calls that a rule over descriptions cannot serve: they change a fake in place, or make unbacked symbols.

In:     the mode, the operator, its arguments (fakes).
Out:    what the operator returns. Never remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.errors import DataDependentError
from pliant.graph.shape_rules.views import METADATA_WRITES
from pliant.graph.tensor_spec import TensorSpec, row_major_strides

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeMode

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


def _unbacked_size(mode: FakeMode, func: Any, hi: Any = None) -> Any:
    """A fresh size, at least 0, and at most `hi` where that is a plain number."""
    if not mode.allow_unbacked or mode.shape_env is None:
        raise DataDependentError(f"the size of what `{func}` returns depends on values", kind="data-dependent")
    env = mode.shape_env
    expr = env.create_unbacked(lo=0, hi=hi if type(hi) is int else None, origin=str(func))
    env.mark_size_like(expr)
    return env.wrap(expr)


@_special(_aten._local_scalar_dense.default)
def _item(mode: FakeMode, func: Any, x: Any) -> Any:
    if not mode.allow_unbacked or mode.shape_env is None or x.spec.dtype.is_complex:
        raise DataDependentError("the value of a tensor's element is needed", kind="data-dependent")
    env, dtype = mode.shape_env, x.spec.dtype
    if dtype.is_floating_point:
        return env.wrap(env.create_unbacked(float, origin=str(func)))
    if dtype is torch.bool:
        return env.wrap(env.create_unbacked(bool, origin=str(func)))
    limits = torch.iinfo(dtype)
    bounds = {} if dtype is torch.int64 else {"lo": limits.min, "hi": limits.max}
    return env.wrap(env.create_unbacked(origin=str(func), **bounds))


def _fresh(mode: FakeMode, x: Any, *size: Any, dtype: torch.dtype | None = None, stride: Any = None) -> Any:
    spec: TensorSpec = x.spec
    return mode.new(size, row_major_strides(size) if stride is None else stride, dtype or spec.dtype, spec.device)


@_special(_aten.nonzero.default)
def _nonzero(mode: FakeMode, func: Any, x: Any) -> Any:
    many = _unbacked_size(mode, func)
    # The kernel fills a [rank, n] buffer and returns its transpose.
    return _fresh(mode, x, many, x.dim(), dtype=torch.int64, stride=(1, many))


@_special(_aten.masked_select.default)
def _masked_select(mode: FakeMode, func: Any, x: Any, mask: Any) -> Any:
    return _fresh(mode, x, _unbacked_size(mode, func))


@_special(_aten.repeat_interleave.Tensor)
def _repeat_interleave(mode: FakeMode, func: Any, repeats: Any, *, output_size: Any = None) -> Any:
    return _fresh(mode, repeats, output_size if output_size is not None else _unbacked_size(mode, func), dtype=torch.int64)


@_special(_aten.bincount.default)
def _bincount(mode: FakeMode, func: Any, x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return _fresh(mode, x, _unbacked_size(mode, func), dtype=dtype)


@_special(_aten._unique2.default)
def _unique2(
    mode: FakeMode, func: Any, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    many = _unbacked_size(mode, func)
    inverse = _fresh(mode, x, *(x.spec.size if return_inverse or return_counts else (0,)), dtype=torch.int64)
    counts = _fresh(mode, x, many if return_counts else 0, dtype=torch.int64)
    return _fresh(mode, x, many), inverse, counts


@_special(_aten.unique_dim.default, _aten.unique_consecutive.default)
def _unique_dim(mode: FakeMode, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    raise DataDependentError(f"`{func}` has a size that depends on values", kind="data-dependent")


@_special(_aten.is_same_size.default)
def _is_same_size(mode: FakeMode, func: Any, x: Any, other: Any) -> Any:
    return len(x.spec.size) == len(other.spec.size) and all(bool(a == b) for a, b in zip(x.spec.size, other.spec.size))
