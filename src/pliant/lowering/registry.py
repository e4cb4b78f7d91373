"""All lowering rules: ATen overload -> function that makes its result.

A rule takes `(low, out, *args, **kwargs)`: the lowering, the fake result (or results), and the call's arguments with
tensors as
`Tensor`s and symbolic numbers as expressions. It raises `Unsupported` for arguments that it does not serve.
`VIEW_OPS`: operators whose result has no memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.lowering import (
    adaptive_pooling,
    creation,
    depthwise,
    indexing,
    interpolation,
    joining,
    losses,
    matmul,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    resampling,
    scans,
    scattering,
    searching,
    special,
    views,
)
from pliant.tables import Table, joined

Rule = Callable[..., Any]

FAMILIES = (
    pointwise, creation, views, reduction, normalization, losses, indexing, scans, scattering, joining, padding, pooling, adaptive_pooling,
    resampling, interpolation, depthwise, matmul, special, searching,
)  # fmt: skip
RULES: Table[Any, Rule] = joined(*(family.RULES for family in FAMILIES))
VIEW_OPS: frozenset[Any] = frozenset(views.RULES)
