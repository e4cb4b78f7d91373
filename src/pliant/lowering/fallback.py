"""What becomes of a call that no rule serves: the operator itself, called as eager calls it.

In:     an overload with its arguments and fake results.
Out:    tensors that lie where the call puts its results; numbers as expressions.
Holds:  always correct; sizes and strides of results are those of the fakes (the wrapper checks them where not sure).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.errors import InternalError
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import Tensor
from pliant.torch_adapter import OpOverload

# Kernels of attention on GPUs. PyTorch chose one by how far apart rows lie, those of dimensions of one element too, and it
# refuses rows that lie otherwise.
_ASK_STRIDES = (
    "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_flash_attention_", "aten::_efficient_attention_", "aten::_cudnn_attention_",
)  # fmt: skip
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def lower_call(
    low: Lowering, target: Any, value: Any, args: Sequence[Any], kwargs: dict[str, Any], out_variant: Any = None,
    row_bytes: int = 0,
) -> Any:  # fmt: skip
    """The results of an extern call of `target`, nested as the operator returns them."""
    if getattr(getattr(target, "_schema", None), "is_mutable", False):
        raise InternalError(f"`{target}` writes its arguments inside a functional graph", kind="lower")
    fakes = flatten(value)
    results = low.extern(target, args, kwargs, fakes, out_variant, row_bytes)
    flat: list[Any] = [
        r if r is not None or not isinstance(f, _NUMBERS) else low.size(f) for r, f in zip(results, fakes)
    ]
    return flat if isinstance(value, (list, tuple)) else flat[0] if flat else None


def asks_strides(target: Any) -> bool:
    """Whether the operator works only on operands that lie as eager's do. Those of the CPU read any."""
    name = target._schema.name if isinstance(target, OpOverload) else ""
    return name.startswith(_ASK_STRIDES) and "_for_cpu" not in name


def flatten(value: Any) -> list[Any]:
    """The results of a call as a flat list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def call(low: Lowering, target: Any, fake: torch.Tensor, *args: Any, out_variant: Any = None, **kwargs: Any) -> Tensor:
    """The single tensor of an extern call."""
    result = low.extern(target, args, kwargs, [fake], out_variant)[0]
    assert result is not None
    return result
