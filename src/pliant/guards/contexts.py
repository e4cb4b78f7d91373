"""Sources of what context variables give: what they were set to, and their defaults.

Holds:  a variable has the default it was made with, but that is the program's object, which the program may change.
"""

from __future__ import annotations

import contextvars
from typing import Any

from pliant.guards.kinds import MISSING
from pliant.guards.sources import ChainedSource, source_class


def context_value(var: contextvars.ContextVar[Any]) -> Any:
    """What a context variable was set to, MISSING if it was not."""
    return var.get(MISSING)


def context_default(var: contextvars.ContextVar[Any]) -> Any:
    """What it gives where it was not set; LookupError if there is nothing."""
    return contextvars.Context().run(var.get)


@source_class
class ContextSource(ChainedSource):
    """What a context variable was set to."""

    text = "{function}({parent})"
    words = "{parent}.get()"
    function = context_value


@source_class
class DefaultSource(ChainedSource):
    """What it gives where it was not set."""

    text = "{function}({parent})"
    words = "the default of {parent}"
    function = context_default
