"""Operators on lists of tensors: one result for each position, by the rule of the operator on single tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.lowering.tensors import Tensor

aten = torch.ops.aten
Rule = Callable[..., Any]

# (foreach operator, its overloads, the single operator's overload)
_ROWS: tuple[tuple[str, str, str, str], ...] = (
    *[(name, "List Scalar ScalarList Tensor", name, "Tensor") for name in ("add", "sub", "mul", "div")],
    *[
        (name, "default", name, "default")
        for name in ("sqrt", "rsqrt", "exp", "log", "neg", "abs", "sigmoid", "tanh", "reciprocal", "sign")
    ],
    *[(name, "Scalar ScalarList", name, "default") for name in ("addcmul", "addcdiv")],
    ("pow", "Scalar", "pow", "Tensor_Scalar"),
    ("pow", "List", "pow", "Tensor_Tensor"),
    ("lerp", "Scalar", "lerp", "Scalar"),
    ("lerp", "List", "lerp", "Scalar"),
    ("clamp_min", "Scalar", "clamp_min", "default"),
    ("clamp_max", "Scalar", "clamp_max", "default"),
    ("maximum", "List", "maximum", "default"),
    ("minimum", "List", "minimum", "default"),
)


def _per_tensor(rule: Rule) -> Rule:
    def lowered(low: Any, out: Any, first: list[Tensor], *args: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(out, (list, tuple)):
            raise Unsupported("no list of results")

        def pick(value: Any, k: int) -> Any:
            return value[k] if isinstance(value, list) else value

        return [rule(low, fake, first[k], *[pick(a, k) for a in args], **kwargs) for k, fake in enumerate(out)]

    return lowered


def rules(known: dict[Any, Rule]) -> dict[Any, Rule]:
    """Rules of the foreach operators, made from those of the single ones."""
    found: dict[Any, Rule] = {}
    for name, overloads, single, single_overload in _ROWS:
        packet = getattr(aten, f"_foreach_{name}", None)
        rule = known.get(getattr(getattr(aten, single), single_overload))
        for overload in overloads.split():
            target = getattr(packet, overload, None)
            if target is not None and rule is not None:
                found[target] = _per_tensor(rule)
    return found
