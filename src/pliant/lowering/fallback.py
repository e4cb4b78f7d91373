"""What becomes of a call that no rule serves: the operator itself, called as eager calls it.

In:     an overload with its arguments and fake results.
Out:    tensors that lie where the call puts its results; numbers as expressions.
Holds:  always correct; sizes and strides of results are those of the fakes (the wrapper checks them where not sure).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pliant.errors import InternalError
from pliant.ir.loops import Extern
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import COMPUTED, Tensor
from pliant.targets.registry import has_target
from pliant.torch_adapter import OpOverload

# Kernels of attention on GPUs. PyTorch chose one by how far apart rows lie, those of dimensions of one element too, and it
# refuses rows that lie otherwise.
_ASK_STRIDES = (
    "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_flash_attention_", "aten::_efficient_attention_", "aten::_cudnn_attention_",
)  # fmt: skip
# Operators whose result is their first argument, written in places: each has a form that writes there.
_WRITE_PLACES = frozenset(
    f"aten::{name}"
    for name in "scatter scatter_add scatter_reduce index_put index_add index_copy index_fill index_reduce put masked_scatter".split()
)
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def lower_call(
    low: Lowering, target: Any, value: Any, args: Sequence[Any], kwargs: dict[str, Any], out_variant: Any = None
) -> Any:
    """The results of an extern call of `target`, nested as the operator returns them."""
    if getattr(getattr(target, "_schema", None), "is_mutable", False):
        raise InternalError(f"`{target}` writes its arguments inside a functional graph", kind="lower")
    written = _written_in_place(low, target, value, args, kwargs)
    if written is not None:
        return written
    fakes = flatten(value)
    results = low.extern(target, args, kwargs, fakes, out_variant)
    flat: list[Any] = [
        r if r is not None or not isinstance(f, _NUMBERS) else low.size(f) for r, f in zip(results, fakes)
    ]
    return _nested(value, iter(flat)) if isinstance(value, (list, tuple)) else flat[0] if flat else None


def _written_in_place(
    low: Lowering, target: Any, value: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Tensor | None:
    """The result of an operator that writes places, in memory made for what it starts from: nothing is copied. None where
    that lies in memory already, or another operator reads it."""
    twin = twin_that_writes(target)
    if twin is None or not isinstance(value, torch.Tensor):
        return None
    start = args[0]
    if low.binds or not isinstance(start, Tensor) or start.dtype not in COMPUTED:
        return None
    kept = start.view is not None or start.materialize is not None or start.rebase is not None or start.uses > 1
    if kept or start.dtype is not value.dtype or start.shape != low.shape_of(value) or not has_target(value.device):
        return None
    fresh = Tensor(low, start.dtype, start.shape, start.exact_at)
    fresh.fake = value
    fresh.view = low.store(fresh, low.strides_of(value))
    given = tuple([low.argument(a) for a in args[1:]])
    named = {name: low.argument(a) for name, a in kwargs.items()}
    written = Extern(twin, (fresh.view, *given), named, (), mutates=(fresh.view.buffer,), origin=low.origin)
    low.computations.append(written)
    return fresh


def twin_that_writes(target: Any) -> Any:
    """The form of an operator that writes places, which writes these places of its first argument; None of other targets."""
    if not isinstance(target, OpOverload) or target._schema.name not in _WRITE_PLACES:
        return None
    return getattr(getattr(torch.ops.aten, f"{target._schema.name[6:]}_"), target._overloadname, None)


def asks_strides(target: Any) -> bool:
    """Whether the operator works only on operands that lie as eager's do. Those of the CPU read any."""
    name = target._schema.name if isinstance(target, OpOverload) else ""
    return name.startswith(_ASK_STRIDES) and "_for_cpu" not in name


def flatten(value: Any) -> list[Any]:
    """The results of a call as a flat list."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for one in value for leaf in (flatten(one) if isinstance(one, (list, tuple)) else [one])]


def _nested(value: Any, flat: Iterator[Any]) -> Any:
    """Flat results, nested as `value` is."""
    return [_nested(one, flat) for one in value] if isinstance(value, (list, tuple)) else next(flat)


def call(low: Lowering, target: Any, fake: torch.Tensor, *args: Any, out_variant: Any = None, **kwargs: Any) -> Tensor:
    """The single tensor of an extern call."""
    result = low.extern(target, args, kwargs, [fake], out_variant)[0]
    assert result is not None
    return result
