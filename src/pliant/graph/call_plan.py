"""What the schema of an operator says about a call, read once per operator.

In:     an `OpOverload`.
Out:    `CallPlan`: whether it decomposes, which arguments it writes and returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant import torch_adapter
from pliant.operators_torch_adapter import casting_below
from pliant.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class CallPlan:
    """`composite`: whether it only calls others, which tell what it does: not if it is given an object to act on.

    `returned`: for each output the (position, name) of the argument that it is, or None for a fresh value.

    `written`: (position, name) of the arguments the call mutates; `uncounted`: those whose versions PyTorch does not raise.
    `views`: whether results lie in an argument's memory that the call does not write.
    """

    func: Any
    composite: bool
    returned: tuple[tuple[int, str] | None, ...]
    written: tuple[tuple[int, str], ...]
    uncounted: tuple[tuple[int, str], ...]
    tags: frozenset[Any]
    views: bool


_plans: dict[Any, CallPlan] = {}


def plan_of(func: Any) -> CallPlan:
    plan = _plans.get(func)
    if plan is None:
        plan = _plans[func] = _read(func)
    return plan


def _read(func: Any) -> CallPlan:
    schema = func._schema
    owner: dict[str, tuple[int, str]] = {}
    written = []
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            written.append((position, argument.name))
            for name in alias.before_set:
                owner[name] = (position, argument.name)
    returned = tuple(_returned_argument(value, owner) for value in schema.returns)
    composite = torch_adapter.is_composite(func) and object_type(func) is None
    views = not written and any(value.alias_info is not None for value in schema.returns)
    uncounted = _uncounted(func, tuple(written)) if written else ()
    return CallPlan(func, composite, returned, tuple(written), uncounted, frozenset(func.tags), views)


def _uncounted(func: Any, written: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
    """All where no kernel does it; PyTorch's own operators in place raise the version of their first argument alone."""
    if not torch_adapter.counts_writes(func):
        return written
    return written[1:] if func.namespace == "aten" and func._schema.name.endswith("_") else ()


def decomposed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a composite operator gives, by those that it calls; NotImplemented if PyTorch does not say which.

    Its Python form of dropout copies what eager's returns as it was given.
    """
    if func is torch.ops.aten.dropout.default and not (args[2] and args[1]):
        return args[0]
    with casting_below(func):
        return func.decompose(*args, **kwargs)


_VALUES = frozenset(
    "Tensor int float bool number str complex Device Generator SymInt SymFloat SymBool NoneType".split()
)


def object_type(func: Any) -> str | None:
    """The type of an argument that is no tensor and no plain value, of which no schema says what is done with it."""
    return next((str(a.type) for a in func._schema.arguments if element_type(a.type) not in _VALUES), None)


def element_type(kind: Any) -> str:
    """The type inside lists and optional types."""
    text = str(kind)
    while (inner := re.fullmatch(r"(?:Optional|List)\[(.*)\]", text)) is not None:
        text = inner[1]
    return text


def _returned_argument(value: Any, owner: dict[str, tuple[int, str]]) -> tuple[int, str] | None:
    alias = value.alias_info
    if alias is None or not alias.is_write:
        return None
    return next((owner[name] for name in alias.before_set if name in owner), None)


def argument(key: tuple[int, str], args: Any, kwargs: dict[str, Any]) -> Any:
    """The argument at a (position, name)."""
    position, name = key
    return args[position] if position < len(args) else kwargs.get(name)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Those among arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
