"""Graphs inside the captured graph: what transforms and functions of autograd call.

In:     a graph module and its arguments, fakes and symbols among them.
Out:    what it gives.
Holds:  on fakes each call is specialized as little as C++ code allows, as the calls of the captured graph itself are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from pliant.graph.lent_numbers import call_on_fakes, mode_of


class _OnFakes(fx.Interpreter):
    """Runs a graph with symbolic sizes."""

    def __init__(self, body: fx.GraphModule) -> None:
        super().__init__(body)
        self.extra_traceback = False  # errors are those of what is called

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_on_fakes(target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_on_fakes(getattr(type(args[0]), target), args, kwargs)


def run_body(body: fx.GraphModule, values: Sequence[Any]) -> tuple[Any, ...]:
    """What the body gives: of fakes, specialized as little as C++ code allows."""
    on_fakes = isinstance(body, fx.GraphModule) and mode_of(tuple(values), {}) is not None
    return tuple(_OnFakes(body).run(*values) if on_fakes else body(*values))
