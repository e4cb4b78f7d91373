"""The table of shape rules.

In:     an `OpOverload`, and its arguments with every tensor as a `TensorSpec`.
Out:    specs of the results, nested as the operator returns them. What a call writes is the caller's to know.
Holds:  a rule is a function of the specs alone, so its result may be remembered; it raises where eager would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
_F = TypeVar("_F", bound=Callable[..., Any])


def rule(*operators: Any) -> Callable[[_F], _F]:
    """Register a function as the rule of these operators."""

    def register(function: _F) -> _F:
        for operator in operators:
            RULES[operator] = function
        return function

    return register


class DependsOnValues(Exception):
    """Raised by a rule where the size of the result depends on values: `special_calls.py` serves such calls."""
