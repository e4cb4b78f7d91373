"""What C++ code gets where one of its arguments is a plain number and the program passes a symbolic one.

In:     `swap(give)`: from then on in this thread `give(node)` is asked; None leaves it to a guard.
Out:    the number.
Holds:  only conversions of arguments ask here, not decisions of C++ code about sizes.
Reads on: `graph/lent_numbers.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from pliant.symbolic.expr import Number

Give: TypeAlias = "Callable[[Any], Number | None]"

# Of PyTorch: what converts arguments, and what reads a number that was passed on as it is.
_PASSED_ON = "core/Scalar.h"
_ARGUMENTS = ("python_arg_parser.h", _PASSED_ON)


class _Active(threading.local):
    give: Give | None = None


_active = _Active()


class ArgumentAsked(Exception):
    """An argument of a C++ function is a plain number."""


def swap(give: Give | None) -> Give | None:
    """Who gives from now on; returns who gave before."""
    outer, _active.give = _active.give, give
    return outer


def refuse(node: Any) -> None:
    """The first giver of a call: whoever called is to find out what the number is for."""
    raise ArgumentAsked(f"{node} is to be a plain number")


def lent(node: Any, file: str) -> Number | None:
    """The number given for a node; None if it is no argument, or nobody gives."""
    give = _active.give
    return None if give is None or not file.endswith(_ARGUMENTS) or not node.expr.free else give(node)


def as_argument(number: Any) -> Any:
    """A number as C++ gets it for an argument that is a plain one; calls of operators by their own names ask otherwise."""
    return number.node.guard_float(_ARGUMENTS[0]) if hasattr(number, "node") else number
