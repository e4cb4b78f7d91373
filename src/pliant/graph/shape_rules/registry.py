"""Tables of shape rules.

In:     an `OpOverload`, and its arguments with every tensor as a `TensorSpec`.
Out:    specs of the results, nested as the operator returns them. What a call writes is the caller's to know.
Holds:  a rule is a function of the specs alone, so its result may be remembered; it raises where eager would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from pliant.tables import Table

Rule = Callable[..., Any]
_F = TypeVar("_F", bound=Callable[..., Any])


class Rules(Table[Any, Rule]):
    """Rules by operator: each family has its own, and the package all of them."""

    def rule(self, *operators: Any) -> Callable[[_F], _F]:
        """The decorated function is the rule of these operators."""
        return cast(Callable[[_F], _F], self.row(*operators))


class DependsOnValues(Exception):
    """Raised by a rule where the size of the result depends on values: `special_calls.py` serves such calls."""
