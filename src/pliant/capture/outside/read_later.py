"""What a backward or a hook reads from outside: it is traced now and runs when a gradient is asked for.

In:     values as they are read, while such code is traced.
Out:    a break where the value may be another by then.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.guards.sources import Source


def refuse_read_later(reader: str, value: Any, source: Source) -> None:
    """Break the graph if the value that the reader reads may be another when it runs."""
    if _may_be_another(value) and not _is_of_function(value, source):
        raise GraphBreak("read-later", f"{reader} reads `{source}`")


def _may_be_another(value: Any) -> bool:
    """Whether it is a value that programs put in the place of another, and no part of the program itself."""
    return type(value) in (type(None), bool, int, float, complex, str) or issubclass(type(value), torch.Tensor)


def _is_of_function(value: Any, source: Any) -> bool:
    """Whether it leads to what a function was defined with: defaults, and texts in closures, by which decorators are told
    devices and modes (`torch.amp.custom_bwd`)."""
    names = ("__defaults__", "__kwdefaults__", *(("__closure__",) if type(value) is str else ()))
    while source is not None and getattr(source, "name", "") not in names:
        source = getattr(source, "parent", None)
    return source is not None
