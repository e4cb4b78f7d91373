"""All lowering rules: ATen overload -> function that makes its result.

A rule takes `(low, out, *args, **kwargs)`: the lowering, the fake result (or results), and the call's arguments with
tensors as
`Tensor`s and symbolic numbers as expressions. It raises `Unsupported` for arguments that it does not serve.
`VIEW_OPS`: operators whose result has no memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.lowering import creation, indexing, joining, matmul, normalization, pointwise, reduction, views

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {
    **pointwise.RULES,
    **creation.RULES,
    **views.RULES,
    **reduction.RULES,
    **normalization.RULES,
    **indexing.RULES,
    **joining.RULES,
    **matmul.RULES,
}
VIEW_OPS: frozenset[Any] = frozenset(views.RULES)
