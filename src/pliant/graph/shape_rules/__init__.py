"""Direct shape rules: what eager operators return, from descriptions alone.

Reads on: `registry.py` (the table), `pointwise.py` (one rule for hundreds of operators), one file a family.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.shape_rules import (
    factories,
    images,
    indexing,
    like_operand,
    linear_algebra,
    losses,
    matmul,
    neural,
    pointwise,
    pooling,
    reductions,
    views,
)
from pliant.graph.shape_rules.pointwise import generic_rule
from pliant.graph.shape_rules.registry import DependsOnValues, Rule
from pliant.tables import joined

__all__ = ["FAMILIES", "RULES", "DependsOnValues", "Rule", "find_rule"]

FAMILIES = (like_operand, views, factories, matmul, reductions, indexing, neural, images, pooling, losses, linear_algebra, pointwise)
RULES = joined(*(family.RULES for family in FAMILIES))
_absent: set[Any] = set()


def find_rule(func: Any) -> Rule | None:
    """The rule of an operator, or None."""
    found = RULES.get(func)
    if found is None and func not in _absent:
        found = generic_rule(func)
        if found is None:
            _absent.add(func)
        else:
            found = RULES.setdefault(func, found)
    return found
