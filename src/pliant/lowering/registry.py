"""All lowering rules: ATen overload -> function that makes its result.

A rule takes `(low, out, *args, **kwargs)`: the lowering, the fake result (or results), and the call's arguments with
tensors as
`Tensor`s and symbolic numbers as expressions. It raises `Unsupported` for arguments that it does not serve.
`VIEW_OPS`: operators whose result has no memory of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.lowering import creation, joining, matmul, pointwise, reduction, views
from pliant.tables import Table, joined

Rule = Callable[..., Any]

VIEW_OPS: frozenset[Any] = frozenset(views.RULES)
_COMMON: Table[Any, Rule] = joined(*(family.RULES for family in (pointwise, creation, views, reduction, joining, matmul)))


def find_rule(operator: Any) -> Rule | None:
    """The rule of an operator, or None."""
    return _COMMON.get(operator) or all_rules().get(operator)


@functools.cache
def all_rules() -> Table[Any, Rule]:
    """Those of all families: most are loaded with the first operator that the common ones do not have."""
    from pliant.lowering import (
        adaptive_pooling,
        depthwise,
        indexing,
        interpolation,
        losses,
        normalization,
        padding,
        pooling,
        resampling,
        scans,
        scattering,
        searching,
        special,
    )

    families = (
        normalization, losses, indexing, scans, scattering, padding, pooling, adaptive_pooling, resampling, interpolation, depthwise,
        special, searching,
    )  # fmt: skip
    return joined(_COMMON, *(family.RULES for family in families))
