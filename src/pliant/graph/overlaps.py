"""Writes into memory that another argument of the call has a part of: eager refuses them, since the order would matter.

In:     a call that writes some of its arguments, which are fakes.
Out:    the error that ATen raises; for operators of programs, which may see each other's writes, a refusal.
Holds:  as in ATen, only tensors without gaps are compared; those with gaps may share elements or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.call_plan import CallPlan, argument, tensors_in
from pliant.graph.effects import OURS, TORCH
from pliant.graph.tensor_spec import dense_order
from pliant.graph.unsupported import UnsupportedOperator

# They write what nothing else may lie in, not even as a whole: they read the others while they write.
_ALONE = frozenset(
    f"aten::{name}"
    for name in """index_fill_ scatter_ scatter_add_ scatter_reduce_ index_add_ index_copy_ index_put_ index_reduce_ put_ gather
    index_select take cat linalg_cross""".split()
)
_MESSAGE = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a"
    " single memory location. Please clone() the tensor before performing the operation."
)


def refuse_overlap(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise what the call does not allow of the memory of its arguments."""
    if plan.func._schema.name in _ALONE:
        _refuse_any_overlap(plan, args, kwargs)
    elif plan.func.namespace in TORCH:
        _refuse_partial_overlap(plan, args, kwargs)
        if "out" in plan.func._overloadname and torch.Tag.pointwise not in plan.func.tags:
            _refuse_result_that_is_read(plan, args, kwargs)
    elif plan.func.namespace not in OURS:
        _refuse_shared_memory(plan, args, kwargs)


def _refuse_partial_overlap(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError if a written tensor shares some elements, but not all, with another argument."""
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    if len(tensors) < 2:
        return
    for written in plan.written:
        target = argument(written, args, kwargs)
        for other in tensors if isinstance(target, torch.Tensor) else ():
            if other is not target and _base(other) is _base(target) and _share_a_part(target, other):
                raise RuntimeError(_MESSAGE)


def _refuse_any_overlap(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    given = tensors_in((args, kwargs))
    for target in tensors_in([argument(one, args, kwargs) for one in plan.written]):
        place = next(i for i, other in enumerate(given) if other is target)  # of itself nothing need be known
        others = given[:place] + given[place + 1 :]
        if any(_base(other) is _base(target) and _meets(target, other) for other in others):
            raise RuntimeError(_MESSAGE)


def _meets(one: Any, other: Any) -> bool:
    """Whether tensors without gaps have an element in common."""
    if dense_order(one.spec) is None or dense_order(other.spec) is None:
        return False
    return bool(one.offset_ < other.offset_ + other.numel() and other.offset_ < one.offset_ + one.numel())


def _refuse_shared_memory(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse an operator of a program's library that writes a tensor whose memory it is given twice.

    What it is made functional by writes a copy, which the other argument does not see.
    """
    given = tensors_in((args, kwargs))
    written = tensors_in([argument(one, args, kwargs) for one in plan.written])
    if any(sum(may_share(one, other) for other in given) > 1 for one in written):
        raise UnsupportedOperator(f"`{plan.func}` writes memory that it is given twice", kind="shared-memory")


def _refuse_result_that_is_read(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse `out` that is an argument too: what eager gives depends on the order of its loops. It says so of the first
    argument alone, where the operator has a form in place."""
    packet = plan.func._schema.name.partition("::")[2]
    if args and hasattr(getattr(torch.ops, plan.func.namespace), f"{packet}_"):
        args = args[1:]
    written = tensors_in([argument(one, args, kwargs) for one in plan.written if one[1] in kwargs])
    given = tensors_in((args, {name: value for name, value in kwargs.items() if name not in {n for _, n in plan.written}}))
    if any(may_share(one, other) for one in written for other in given):
        raise UnsupportedOperator(f"`{plan.func}` writes memory that it reads", kind="shared-memory")


def may_share(one: Any, other: Any) -> bool:
    """Whether the memory from the first element to the last is the same in part; tensors without elements have none."""
    if _base(one) is not _base(other):
        return False
    (begin, end), (other_begin, other_end) = _extent(one), _extent(other)
    return one is other or bool(begin < other_end and other_begin < end)


def _extent(tensor: Any) -> tuple[Any, Any]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.storage_offset(), tensor.storage_offset() + last + 1


def _base(tensor: Any) -> Any:
    return tensor if tensor._base is None else tensor._base


def _share_a_part(one: Any, other: Any) -> bool:
    if dense_order(one.spec) is None or dense_order(other.spec) is None:
        return False
    begin, end = one.offset_, one.offset_ + one.numel()
    if begin == other.offset_ and end == other.offset_ + other.numel():
        return bool(one.spec.stride_key != other.spec.stride_key)
    return bool(begin < other.offset_ + other.numel() and other.offset_ < end)
